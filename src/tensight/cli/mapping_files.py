"""Files in which a person says what names of A are called in B."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from tensight.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


def read_mapping(path: Path) -> dict[str, str]:
    """Return the names of A, and what they are called in B.

    Parameters
    ----------
    path : Path
        TOML, with lines such as ``"encoder.0.attn" = "layers.0.attention"``.

    Raises
    ------
    InputError
        The file cannot be read or holds something else.
    """
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        mapping = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read as a mapping: {error}") from None
    if not all(isinstance(value, str) for value in mapping.values()):
        raise InputError(f'{path}: a mapping has lines such as "encoder.0.attn" = "layers.0.attention" only')
    return mapping


def write_mapping(path: Path, entries: Iterable[tuple[str, str, str]]) -> None:
    """Write a mapping that a person can edit.

    Parameters
    ----------
    path : Path
    entries : iterable of (str, str, str)
        Name in A, name in B, and the rule that matched them, which becomes a comment.

    Raises
    ------
    InputError
        The file cannot be written.
    """
    lines = ["# Names of A and what they are called in B. Edit, and give with --mapping."]
    lines += [f"{json.dumps(a)} = {json.dumps(b)}  # {rule}" for a, b, rule in entries]
    try:
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}") from None
