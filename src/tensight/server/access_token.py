"""The access token: made once, kept in a file that only its owner reads."""

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
"""What can travel in a header."""


@dataclass(frozen=True, slots=True)
class AccessToken:
    """What a client must show.

    Attributes
    ----------
    text : str
    file : Path
    new : bool
        It was made just now, so nobody knows it yet.
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
    """Return the token that a file holds; make both if there is none.

    Raises
    ------
    InputError
        The file cannot be read or made, or what it holds is no token.
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
        raise InputError(f"the token file {file} holds no token: {_rule()}") from None
    return AccessToken(text, file, new=True)


def _close_to_others(file: Path) -> bool:
    """Let only the owner read a file from now on; return whether others could."""
    if not is_open_to_others(file):
        return False
    # Of somebody else's file it stays as it is; what is said of it is true all the same.
    with suppress(OSError):
        file.chmod(0o600)
    return True


def is_open_to_others(path: Path) -> bool:
    """Whether users of the machine other than its owner may read or enter a file or folder."""
    return path.stat().st_mode & 0o077 != 0


def _usable(text: str, file: Path) -> str:
    if not SHORTEST <= len(text) <= LONGEST or not ALLOWED.fullmatch(text):
        raise InputError(f"the token file {file} holds no token: {_rule()}")
    return text


def _rule() -> str:
    return f"give {SHORTEST} to {LONGEST} printable ASCII characters without spaces, or remove the file to get one"
