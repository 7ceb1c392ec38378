"""Finds the lines of the user's code that are running, to which nodes and stops are traced back."""

from __future__ import annotations

import ast
import functools
import itertools
import linecache
import os
import sys
import sysconfig
from typing import TYPE_CHECKING

from tensight.agents.core.process.termination import is_of_handler
from tensight.agents.core.program import StackFrame

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType, FrameType

MOST_FRAMES = 32
_MOST_OF_CALL = 60
"""Number of characters of a function that is called, as the code names it."""

# Code that was typed and has no file; all other names in angle brackets are generated code.
_TYPED = ("<stdin>", "<ipython-input", "<python-input")
_COMPILED = f"{os.sep}torchinductor_"
_COMPILED_FOLDER_VARIABLE = "TORCHINDUCTOR_CACHE_DIR"
_INSTALLED = tuple(f"{os.sep}{name}{os.sep}" for name in ("site-packages", "dist-packages"))
PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

# Code objects compare by their contents, which is slow; so they are looked up by address, and kept alive for that.
_frames: dict[tuple[int, int], tuple[CodeType, StackFrame]] = {}
_calls: dict[tuple[int, int], tuple[CodeType, str]] = {}
_is_users: dict[str, bool] = {}


rewritten: list[Callable[[CodeType], bool]] = []
"""Of each framework with a compiler: whether it has rewritten a function, which then runs no line of its own."""


def user_stack(depth: int = 1, within: CodeType | None = None) -> tuple[StackFrame, ...]:
    """Return the frames of the user's code that are running in this thread, innermost first.

    Libraries, frameworks, generated code and this package are left out. A script that is run counts as the user's
    wherever it is installed.

    Parameters
    ----------
    depth : int
        Number of innermost frames to skip; 1 begins with the caller of this function.
    within : code, optional
        Only frames that this code has called, directly or not.

    Returns
    -------
    tuple of StackFrame
        At most 32; for a deep recursion, the innermost ones.
    """
    frame: FrameType | None = sys._getframe(depth)
    frames: list[StackFrame] = []
    is_users = _is_users
    while frame is not None:
        code = frame.f_code
        if code is within:
            break
        is_user = is_users.get(code.co_filename)
        if is_user or (is_user is None and is_user_code(code)):
            entry = _frames.get((id(code), frame.f_lasti))
            if entry is None and not has_line(frame):
                frame = frame.f_back
                continue
            frames.append(frame_of(frame) if entry is None else entry[1])
            if len(frames) == MOST_FRAMES:
                break
        frame = frame.f_back
    return tuple(frames)


def line_of_user() -> str:
    """Return the line of the user's code that is running, as train.py:31; empty if there is none."""
    stack = user_stack()
    return stack[0].file_line if stack else ""


def call_of_user() -> tuple[str, str]:
    """Return what the user's code is calling, as self.generator (gan.py:31), and in which function.

    They are empty if that is unknown.

    Without the columns of instructions (before Python 3.11) the function that is called is not known.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not is_user_code(frame.f_code):
        frame = frame.f_back
    if frame is None:
        return "", ""
    key = id(frame.f_code), frame.f_lasti
    entry = _calls.get(key)
    if entry is None:
        called = _called(frame)
        text = f"{called} ({frame_of(frame).file_line})" if called else ""
        entry = _calls[key] = frame.f_code, text
    return entry[1], getattr(frame.f_code, "co_qualname", frame.f_code.co_name)


def _called(frame: FrameType) -> str:
    """Return the text of the function that a frame is calling; empty if it is unknown or long."""
    positions = getattr(frame.f_code, "co_positions", None)
    if positions is None or not has_line(frame):
        return ""
    first, last, begin, end = next(itertools.islice(positions(), frame.f_lasti // 2, None), (None,) * 4)
    if first is None or last is None or begin is None or end is None:
        return ""
    lines = [line.encode() for line in _source_lines(frame.f_code.co_filename, frame.f_globals)[first - 1 : last]]
    if not lines:
        return ""
    lines[-1] = lines[-1][:end]
    lines[0] = lines[0][begin:]
    try:
        call = ast.parse(b"".join(lines).decode(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ""
    text = ast.unparse(call.func) if isinstance(call, ast.Call) else ""
    return text if len(text) <= _MOST_OF_CALL else ""


def has_line(frame: FrameType) -> bool:
    """Whether the current line of a frame is known. A compiler that rewrites a function leaves only its first line."""
    code = frame.f_code
    return frame.f_lineno != code.co_firstlineno or not any(is_rewritten(code) for is_rewritten in rewritten)


def is_compiler_output(file: str) -> bool:
    """Whether a file, as code objects name it, was written by PyTorch's compiler."""
    folder = os.environ.get(_COMPILED_FOLDER_VARIABLE)
    return _COMPILED in file or (folder is not None and file.startswith(os.path.join(folder, "")))


def is_user_code(code: CodeType) -> bool:
    """Whether a function is in a file of the user, according to `is_user_file`."""
    is_user = _is_users.get(code.co_filename)
    if is_user is None:
        is_user = _is_users[code.co_filename] = is_user_file(code.co_filename)
    return is_user


def is_user_file(file: str) -> bool:
    """Whether a file, as code objects name it, belongs to neither a library nor generated code."""
    if file.startswith("<"):
        return file.startswith(_TYPED)
    path = os.path.abspath(file)
    if is_compiler_output(path):
        return False
    if path.startswith(_folder(sysconfig.get_paths()["scripts"])):
        return False
    is_library = path.startswith(_libraries()) or any(name in path for name in _INSTALLED)
    return not is_library or path == _script()


def frame_of(frame: FrameType) -> StackFrame:
    """Return the current line of a frame."""
    code = frame.f_code
    entry = _frames.get((id(code), frame.f_lasti))
    if entry is not None:
        return entry[1]
    line = frame.f_lineno or code.co_firstlineno
    text = source_line(code.co_filename, line, frame.f_globals)
    file = code.co_filename if code.co_filename.startswith("<") else os.path.abspath(code.co_filename)
    made = StackFrame(file, line, code.co_name, text)
    _frames[id(code), frame.f_lasti] = (code, made)
    return made


def source_text(file: str) -> str:
    """Return the text of a source file; empty if it cannot be read."""
    return _as_utf_8("".join(_source_lines(file, None)))


def source_line(file: str, line: int, module: dict[str, object] | None = None) -> str:
    """Return a line of a source file without its indent; empty if it cannot be read.

    Parameters
    ----------
    file : str
        As code objects name it.
    line : int
        Counted from 1.
    module : dict, optional
        The variables of its module, whose loader may have the text.
    """
    lines = _source_lines(file, module)
    return _as_utf_8(lines[line - 1].strip()) if 1 <= line <= len(lines) else ""


def _source_lines(file: str, module: dict[str, object] | None) -> list[str]:
    try:
        return linecache.getlines(file, module)
    except Exception as error:
        # A loader of the script may raise anything.
        if is_of_handler(error):
            raise
        return []


def _as_utf_8(text: str) -> str:
    """Escape what is no text in UTF-8, such as a lone surrogate in the cell of a notebook."""
    return text.encode("utf-8", "backslashreplace").decode()


def _script() -> str:
    """Return the file that was run by its path; empty for ``python -m``, which may run a library."""
    main = sys.modules.get("__main__")
    file = getattr(main, "__file__", None)
    return os.path.abspath(file) if file and getattr(main, "__spec__", None) is None else ""


@functools.cache
def _libraries() -> tuple[str, ...]:
    """Return the folders of Python, of installed packages, and of this package."""
    paths = sysconfig.get_paths()
    folders = {paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    # In a virtual environment, the modules of Python are still those of the base installation.
    folders |= {os.path.dirname(os.__file__), PACKAGE}
    return tuple(map(_folder, folders))


def _folder(path: str) -> str:
    return os.path.join(os.path.abspath(path), "")
