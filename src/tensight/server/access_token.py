"""The access token: generated once, stored in a file that only its owner can read."""

from __future__ import annotations

import os
import re
import secrets
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tensight.errors import InputError

TOKEN_NAME = "token"  # noqa: S105 - a file name
SHORTEST, LONGEST = 16, 1024
ALLOWED = re.compile(r"[!-~]+")
"""Characters allowed in a header."""


@dataclass(frozen=True, slots=True)
class AccessToken:
    """The secret that clients must present.

    Attributes
    ----------
    text : str
    file : Path
    new : bool
        It was generated just now, so clients do not know it yet.
    was_open : bool
        Other users of the machine could read the file until now.
    """

    text: str
    file: Path
    new: bool
    was_open: bool = False

    def __repr__(self) -> str:
        return f"AccessToken(file={str(self.file)!r}, new={self.new})"


def access_token(file: Path) -> AccessToken:
    """Return the token in a file; generate it if the file does not exist.

    Raises
    ------
    InputError
        The file cannot be read or created, or does not contain a token.
    """
    try:
        try:
            handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            text = _usable(file.read_text(encoding="ascii").strip(), file)
            return AccessToken(text, file, new=False, was_open=_close_to_others(file))
        text = secrets.token_urlsafe(32)
        with open(handle, "w", encoding="ascii") as opened:
            opened.write(f"{text}\n")
    except OSError as error:
        raise InputError(f"the token file {file} cannot be used: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InputError(f"the token file {file} contains no token: {_rule()}") from None
    return AccessToken(text, file, new=True)


def _close_to_others(file: Path) -> bool:
    """Make a file readable by its owner only; return whether it was readable by others."""
    if not is_open_to_others(file):
        return False
    # The mode of another user's file cannot be changed; the returned value is correct even then.
    with suppress(OSError):
        file.chmod(0o600)
    return True


def is_open_to_others(path: Path) -> bool:
    """Whether other users of the machine may read or enter a file or folder."""
    return path.stat().st_mode & 0o077 != 0


def _usable(text: str, file: Path) -> str:
    if not SHORTEST <= len(text) <= LONGEST or not ALLOWED.fullmatch(text):
        raise InputError(f"the token file {file} contains no token: {_rule()}")
    return text


def _rule() -> str:
    return f"give {SHORTEST} to {LONGEST} printable ASCII characters without spaces, or remove the file to get one"
