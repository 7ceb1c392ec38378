"""Which lines of the user's own code are running: what a node, and a stop, is traced back to."""

from __future__ import annotations

import functools
import linecache
import os
import sys
import sysconfig
from typing import TYPE_CHECKING

from tensight.agents.program import StackFrame

if TYPE_CHECKING:
    from types import CodeType, FrameType

MOST_FRAMES = 32
# Code without a file that a person typed; all other names in angle brackets are generated code.
_TYPED = ("<stdin>", "<ipython-input", "<python-input")
_INSTALLED = tuple(f"{os.sep}{name}{os.sep}" for name in ("site-packages", "dist-packages"))
PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

# Code is compared by what it holds, which is slow; so codes are known by their addresses, and kept alive for that.
_frames: dict[tuple[int, int], tuple[CodeType, StackFrame]] = {}
_is_users: dict[str, bool] = {}


def user_stack(depth: int = 1, within: CodeType | None = None) -> tuple[StackFrame, ...]:
    """Return the frames of the user's code that are running in this thread, innermost first.

    Libraries, frameworks, generated code and this package are left out. A script that is run counts as the user's
    wherever it is installed.

    Parameters
    ----------
    depth : int
        How many of the innermost frames are not looked at; 1 is the caller of this function.
    within : code, optional
        Only what this code has called, directly or not.

    Returns
    -------
    tuple of StackFrame
        At most 32; the innermost ones of a deep recursion.
    """
    frame: FrameType | None = sys._getframe(depth)
    found: list[StackFrame] = []
    is_users = _is_users
    while frame is not None:
        code = frame.f_code
        if code is within:
            break
        own = is_users.get(code.co_filename)
        if own or (own is None and is_user_code(code)):
            known = _frames.get((id(code), frame.f_lasti))
            found.append(frame_of(frame) if known is None else known[1])
            if len(found) == MOST_FRAMES:
                break
        frame = frame.f_back
    return tuple(found)


def is_user_code(code: CodeType) -> bool:
    """Whether a function is the user's, as `is_user_file` says of its file."""
    own = _is_users.get(code.co_filename)
    if own is None:
        own = _is_users[code.co_filename] = is_user_file(code.co_filename)
    return own


def is_user_file(file: str) -> bool:
    """Whether a file, as code objects name it, is neither a library's nor generated."""
    if file.startswith("<"):
        return file.startswith(_TYPED)
    path = os.path.abspath(file)
    if path.startswith(_folder(sysconfig.get_paths()["scripts"])):
        return False
    is_library = path.startswith(_libraries()) or any(name in path for name in _INSTALLED)
    return not is_library or path == _script()


def frame_of(frame: FrameType) -> StackFrame:
    """Return the line that a function is at."""
    code = frame.f_code
    known = _frames.get((id(code), frame.f_lasti))
    if known is not None:
        return known[1]
    line = frame.f_lineno or code.co_firstlineno
    text = linecache.getline(code.co_filename, line, frame.f_globals)
    file = code.co_filename if code.co_filename.startswith("<") else os.path.abspath(code.co_filename)
    made = StackFrame(file, line, code.co_name, text.strip())
    _frames[id(code), frame.f_lasti] = (code, made)
    return made


def _script() -> str:
    """Return the file that was run by its path; of what ``python -m`` runs only code outside libraries is a user's."""
    main = sys.modules.get("__main__")
    file = getattr(main, "__file__", None)
    return os.path.abspath(file) if file and getattr(main, "__spec__", None) is None else ""


@functools.cache
def _libraries() -> tuple[str, ...]:
    """Return the folders of Python, of installed packages, and of this package."""
    paths = sysconfig.get_paths()
    folders = {paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    # In a virtual environment the modules of Python are still those of the one it was made from.
    folders |= {os.path.dirname(os.__file__), PACKAGE}
    return tuple(map(_folder, folders))


def _folder(path: str) -> str:
    return os.path.join(os.path.abspath(path), "")
