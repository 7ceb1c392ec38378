"""Source lines of the user's code, from the stack that a graph file contains for each operator."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence


class _HasFile(Protocol):
    @property
    def file(self) -> str:
        """Path of a source file; empty if unknown."""


_Frame = TypeVar("_Frame", bound=_HasFile)

# `# In file /p/net.py:313/  code/`, `/p/net.py(175)/`, `/p/net.py:373, 17~44/`, `/p/net.py:372~376, 4~21/`,
# `/p/net.py:372~376/`. The code may be missing, may contain anything, and ends with a slash. The left-most position
# counts: code such as `x[:2/n]` may look like a position, but folder names hardly ever do.
_FRAME = re.compile(
    r"""
    \#(?:[ ]{1,3}(?P<mark>-))?\s{1,8}In\ file\s
    (?P<file>.+?)
    (?: (?<=\.py)\((?P<old_line>[0-9]{1,9})\)
      | :(?P<line>[0-9]{1,9})(?:~(?P<end_line>[0-9]{1,9}))?
        (?:,\ (?P<column>[0-9]{1,9})~(?P<end_column>[0-9]{1,9}))? )
    /(?P<code>.*)
    """,
    re.VERBOSE | re.DOTALL,
)
# Longer lines are not source lines; the limit bounds the time that a malicious one can take.
_LONGEST_LINE = 65_536


@dataclass(frozen=True, slots=True)
class SourceFrame:
    """One line of the stack of an operator.

    Attributes
    ----------
    file : str
        Path as written by the training process; empty if the line could not be parsed.
    line, end_line : int or None
        First and last line of the code, from 1. `end_line` is None if the file contains only one line. For values that
        a network computes between two calls of its modules, the range of lines that may have computed them.
    column, end_column : int or None
        First column and the one after the last, from 0, if the file contains them (MindSpore 2.10).
    code : str
        The code without indentation; the whole line if it could not be parsed (a heading such as
        ``# Corresponding forward node candidate:``).
    has_substack : bool
        Whether the code called something whose frames are also listed (``# - In file``).
    raw : str
        The line as in the graph file, without surrounding whitespace.
    """

    file: str
    line: int | None
    end_line: int | None
    column: int | None
    end_column: int | None
    code: str
    has_substack: bool
    raw: str

    @property
    def is_range(self) -> bool:
        """Whether the code spans several lines."""
        return self.line is not None and self.end_line is not None and self.end_line > self.line

    @property
    def lines(self) -> str:
        """The line, ``16``, or the range of lines, ``16-18``."""
        return f"{self.line}-{self.end_line}" if self.is_range else f"{self.line}"

    @property
    def text(self) -> str:
        """The frame as searched by users: mark, file, line, code; the raw line if it could not be parsed."""
        if not self.file:
            return self.raw
        return f"# {'-' if self.has_substack else ' '} {self.file}:{self.lines}  {self.code}"


@lru_cache(maxsize=65_536)
def parse_frame(line: str) -> SourceFrame:
    """Parse one line of a source address.

    Parameters
    ----------
    line : str
        For instance ``# In file /home/me/net.py:313/    out = self.conv(x)/``.

    Returns
    -------
    SourceFrame
        With an empty `file` if the line has none of the known forms.
    """
    raw = line.strip()
    match = _FRAME.fullmatch(raw) if len(raw) <= _LONGEST_LINE else None
    if match is None:
        return SourceFrame("", None, None, None, None, raw, has_substack=False, raw=raw)
    number = match["line"] or match["old_line"]
    return SourceFrame(
        file=match["file"],
        line=int(number),
        end_line=_optional_int(match["end_line"]),
        column=_optional_int(match["column"]),
        end_column=_optional_int(match["end_column"]),
        code=match["code"].removesuffix("/").strip(),
        has_substack=match["mark"] is not None,
        raw=raw,
    )


def parse_stack(lines: tuple[str, ...]) -> tuple[SourceFrame, ...]:
    """Parse the lines of a source address; skip blank lines."""
    return tuple(parse_frame(line) for line in lines if line and not line.isspace())


def _optional_int(digits: str | None) -> int | None:
    return None if digits is None else int(digits)


def user_frame(frames: Sequence[_Frame]) -> _Frame | None:
    """Return the frame most likely to be the user's own code: the innermost one outside of installed packages.

    Parameters
    ----------
    frames : sequence of SourceFrame
        A node's stack, innermost frame first; frames of any kind that have the name of a ``file``.
    """
    located = [frame for frame in frames if frame.file]
    user_frames = [
        frame for frame in located if "site-packages" not in frame.file and "dist-packages" not in frame.file
    ]
    return next(iter(user_frames or located), None)
