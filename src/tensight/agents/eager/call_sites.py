"""Where the user's code called a module, and which of its lines computed what came between two such calls."""

from __future__ import annotations

import inspect
import linecache
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from tensight.agents.call_stack import MOST_FRAMES, PACKAGE, frame_of, is_user_code
from tensight.agents.eager.code_paths import Lines, lines_between, lines_of
from tensight.agents.program import StackFrame

if TYPE_CHECKING:
    from collections.abc import Collection
    from types import CodeType, FrameType

_DEEPEST = 1000
_MOST_DECORATORS = 16

CalledOf = Callable[["FrameType"], "tuple[Any, object] | None"]
"""Returns what a frame of the framework calls, and with which arguments; None if it calls no module."""


class Frame(NamedTuple):
    """A function of the user's that is running.

    Attributes
    ----------
    code : code
    offset : int
        Of the instruction that it is at.
    line : StackFrame
    owner : type or None
        Class of the module whose code it is, as far as that is known.
    """

    code: CodeType
    offset: int
    line: StackFrame
    owner: type | None = None

    @property
    def position(self) -> tuple[int, int]:
        """What tells it from other functions, and from other calls in the same function."""
        return id(self.code), self.offset


class CallSite(NamedTuple):
    """Where the user's code stood when a module was called.

    Attributes
    ----------
    frames : tuple of Frame
        Outermost first.
    is_direct : bool
        Whether the innermost one called the module itself, and not by way of a library.
    levels : dict of int to int
        How many of the frames are outside of a module that is being called, by the module's identity.
    """

    frames: tuple[Frame, ...] = ()
    is_direct: bool = False
    levels: dict[int, int] = {}  # noqa: RUF012 - never changed

    @property
    def stack(self) -> tuple[StackFrame, ...]:
        """The lines, innermost first; of a deep recursion the innermost ones."""
        return tuple(frame.line for frame in reversed(self.frames[-MOST_FRAMES:]))

    def outside_of(self, module: int) -> CallSite:
        """Return where a module was called that is still being called."""
        return CallSite(self.frames[: self.levels[module]]) if module in self.levels else self


class Call(NamedTuple):
    """A module that is being called, and with what."""

    module: Any
    arguments: object


def call_site(called: CalledOf, machinery: Collection[str], depth: int = 1) -> tuple[CallSite, list[Call]]:
    """Return where the user's code is, and the modules that are being called, innermost first.

    Parameters
    ----------
    called : callable
    machinery : collection of str
        Files of the framework's code that calls modules, and computes nothing.
    depth : int
        How many of the innermost frames are not looked at; 1 is the caller of this function.
    """
    frames: list[Frame] = []
    calls: list[Call] = []
    outside: list[int] = []
    is_direct = True
    frame: FrameType | None = sys._getframe(depth)
    while frame is not None and len(frames) < _DEEPEST:
        code = frame.f_code
        if is_user_code(code):
            frames.append(Frame(code, frame.f_lasti, frame_of(frame)))
        else:
            file = code.co_filename
            if not frames and file not in machinery and not file.startswith(PACKAGE):
                is_direct = False
            found = called(frame)
            if found is not None and not any(call.module is found[0] for call in calls):
                calls.append(Call(*found))
                outside.append(len(frames))
                _own(frames, type(found[0]))
        frame = frame.f_back
    levels = {id(call.module): len(frames) - inside for call, inside in zip(calls, outside, strict=True)}
    return CallSite(tuple(reversed(frames)), is_direct, levels), calls


def _own(frames: list[Frame], owner: type) -> None:
    """Note whose code the outermost of the frames is, if it is a method of that class."""
    if frames and frames[-1].owner is None:
        names = frames[-1].code.co_varnames
        if frames[-1].code.co_argcount and names[0] == "self":
            frames[-1] = frames[-1]._replace(owner=owner)


def between(begin: CallSite, end: CallSite, floor: int = 0) -> tuple[StackFrame, ...]:
    """Return the stack of what was computed after one call and before another.

    Parameters
    ----------
    begin, end : CallSite
    floor : int
        How many frames are certainly the same calls of the same functions.

    Returns
    -------
    tuple of StackFrame
        Innermost first; the first one is the range of lines that may have computed it.
    """
    same = 0
    for one, other in zip(begin.frames, end.frames, strict=False):
        if one.position != other.position:
            break
        same += 1
    if same < len(begin.frames) and same < len(end.frames):
        first, last = begin.frames[same], end.frames[same]
        if first.code is last.code:
            lines = lines_between(
                first.code,
                first.offset,
                last.offset,
                begin_computes=same + 1 < len(begin.frames) or not begin.is_direct,
                end_computes=same + 1 < len(end.frames) or not end.is_direct,
                owner=last.owner,
            )
            if lines is not None:
                return _stack(end.frames[:same], last, lines)
    elif same < len(end.frames):
        return since_beginning(end, same)
    elif same < len(begin.frames):
        return until_end(begin, same)
    for level in range(same - 1, floor - 1, -1):
        frame = end.frames[level]
        lines = lines_between(
            frame.code, frame.offset, frame.offset, begin_computes=True, end_computes=True, owner=frame.owner
        )
        if lines is not None:
            return _stack(end.frames[:level], frame, lines)
    return CallSite(end.frames[:same]).stack


def since_beginning(end: CallSite, level: int, *, again: bool = False) -> tuple[StackFrame, ...]:
    """Return the stack of what a function computed before a call, from its beginning on.

    Parameters
    ----------
    end : CallSite
    level : int
        Which of its frames is the function's. If there is none, library code has computed it, called from the last.
    again : bool
        Whether the function may have made that call before, in a loop.
    """
    if level >= len(end.frames):
        return end.stack
    frame = end.frames[level]
    computes = level + 1 < len(end.frames) or not end.is_direct
    lines = lines_between(frame.code, None, frame.offset, end_computes=computes, owner=frame.owner)
    if lines is not None and again:
        loop = lines_between(frame.code, frame.offset, frame.offset, begin_computes=computes, owner=frame.owner)
        lines = Lines(min(lines.first, loop.first), max(lines.last, loop.last)) if loop is not None else lines
    return _stack(end.frames[:level], frame, lines or lines_of(frame.code))


def until_end(begin: CallSite, level: int) -> tuple[StackFrame, ...]:
    """Return the stack of what a function computed after a call, until it returned.

    Parameters
    ----------
    begin : CallSite
    level : int
        Which of its frames is the function's.
    """
    if level >= len(begin.frames):
        return begin.stack
    frame = begin.frames[level]
    computes = level + 1 < len(begin.frames) or not begin.is_direct
    lines = lines_between(frame.code, frame.offset, None, begin_computes=computes, owner=frame.owner)
    return _stack(begin.frames[:level], frame, lines or lines_of(frame.code))


def whole_function(function: Any, outside: CallSite) -> tuple[StackFrame, ...]:
    """Return the stack of what a function computed that was called somewhere, on any of its lines."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code is None or not is_user_code(code):
        return outside.stack
    return (_range(code, lines_of(code)), *outside.stack)


def stack_between(
    begin: CallSite | None, now: CallSite, container: object | None, forward: Any, *, ends: bool
) -> tuple[StackFrame, ...]:
    """Return the stack of what no module has returned, where it is only known after which call it was computed.

    Parameters
    ----------
    begin : CallSite or None
        Of a call after which all of it was computed; None if no such call is known.
    now : CallSite
    container : object or None
        The module in whose code the training is; None if it is in the script.
    forward : function or None
        What a call of the container runs.
    ends : bool
        Whether the call of the container is over.
    """
    if begin is not None and begin.frames:
        if ends:
            return until_end(begin, len(now.frames))
        return between(begin, now, 0 if container is None else now.levels.get(id(container), 0))
    if container is None:
        return since_beginning(now, max(len(now.frames) - 1, 0), again=True)
    if ends:
        return whole_function(forward, now)
    return since_beginning(now, now.levels.get(id(container), 0), again=True)


def beginning_of(function: Any) -> tuple[StackFrame, ...]:
    """Return where a function begins, if it is the user's: nobody can say which of its lines did what."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code is None or not is_user_code(code):
        return ()
    # Decorators stand before it.
    lines = range(code.co_firstlineno, code.co_firstlineno + _MOST_DECORATORS)
    texts = ((line, linecache.getline(code.co_filename, line).strip()) for line in lines)
    line, text = next((one for one in texts if one[1].startswith("def ")), (code.co_firstlineno, ""))
    return (StackFrame(os.path.abspath(code.co_filename), line, code.co_name, text),)


def _stack(outer: tuple[Frame, ...], frame: Frame, lines: Lines) -> tuple[StackFrame, ...]:
    return (_range(frame.code, lines), *CallSite(outer).stack)


def _range(code: CodeType, lines: Lines) -> StackFrame:
    name = code.co_filename
    text = linecache.getline(name, lines.first).strip()
    file = name if name.startswith("<") else os.path.abspath(name)
    return StackFrame(file, lines.first, code.co_name, text, lines.last if lines.last > lines.first else None)
