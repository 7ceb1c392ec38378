"""Mapping files, in which a user writes the names in B of tensors of A."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tensight.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_LINE = re.compile(r"""\s*"((?:[^"\\]|\\["\\])*)"\s*=\s*"((?:[^"\\]|\\["\\])*)"\s*(?:#.*)?""")
_LONGEST = 32 * 2**20


def read_mapping(path: Path) -> dict[str, str]:
    """Read a mapping file: a line ``"name in A" = "name in B"`` for each pair, which is TOML.

    Raises
    ------
    InputError
        The file cannot be read, or one of its lines is malformed.
    """
    try:
        if path.stat().st_size > _LONGEST:
            raise InputError(f"{path}: is too large for a mapping of names")
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read as a mapping: {error}") from None
    mapping: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = _LINE.fullmatch(line)
        if match is None or _unquoted(match[1]) in mapping:
            what = "has a name twice" if match else 'is not a line such as "name in A" = "name in B"'
            raise InputError(f"{path}:{number}: {what}")
        mapping[_unquoted(match[1])] = _unquoted(match[2])
    return mapping


def write_mapping(path: Path, lines: Iterable[str]) -> None:
    """Write a mapping file for the user to edit and pass to a later comparison.

    Parameters
    ----------
    path : Path
    lines : iterable of str
        Lines from `mapping_line`, or comments.

    Raises
    ------
    InputError
        The file cannot be written.
    """
    head = "# name in A = name in B, found by tensight compare; edit it, and give it with --mapping"
    try:
        path.write_text("\n".join((head, *lines)) + "\n", encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from None


def mapping_line(a: str, b: str, note: str) -> str:
    """Return the line that maps a name in A to its name in B, with a comment."""
    return f"{quoted(a)} = {quoted(b)}  # {note}"


def quoted(name: str) -> str:
    """Return a name as a TOML string."""
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ") + '"'


def _unquoted(text: str) -> str:
    return re.sub(r'\\(["\\])', r"\1", text)
