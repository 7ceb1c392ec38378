"""Finds where the user's code called a module, and the lines that computed something between two such calls."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from tensight.agents.core.call_stack import MOST_FRAMES, PACKAGE, frame_of, has_line, is_user_code, source_line
from tensight.agents.core.program import StackFrame
from tensight.agents.eager.code_paths import Lines, lines_between, lines_of

if TYPE_CHECKING:
    from collections.abc import Collection
    from types import CodeType, FrameType

_DEEPEST = 1000
_MOST_DECORATORS = 16

CalledOf = Callable[["FrameType"], "tuple[Any, object] | None"]
"""Returns the module that a frame of the framework calls, and its arguments; None if it calls no module."""


class Frame(NamedTuple):
    """A running function of the user.

    Attributes
    ----------
    code : code
    offset : int
        Offset of its current instruction.
    line : StackFrame
    owner : type or None
        Class of the module to which the function belongs, if it is known.
    """

    code: CodeType
    offset: int
    line: StackFrame
    owner: type | None = None

    @property
    def position(self) -> tuple[int, int]:
        """Key that distinguishes it from other functions, and from other calls in the same function."""
        return id(self.code), self.offset


class CallSite(NamedTuple):
    """The position of the user's code when a module was called.

    Attributes
    ----------
    frames : tuple of Frame
        Outermost first.
    is_direct : bool
        Whether the innermost frame called the module itself, and not through a library.
    levels : dict of int to int
        For each module that is being called, by its identity, how many of the frames are outside it.
    """

    frames: tuple[Frame, ...] = ()
    is_direct: bool = False
    levels: dict[int, int] = {}  # noqa: RUF012 - never changed

    @property
    def stack(self) -> tuple[StackFrame, ...]:
        """The lines, innermost first; only the innermost ones of a deep recursion."""
        return tuple(frame.line for frame in reversed(self.frames[-MOST_FRAMES:]))

    def outside_of(self, module: int) -> CallSite:
        """Return the position at which a running module was called."""
        return CallSite(self.frames[: self.levels[module]]) if module in self.levels else self


class Call(NamedTuple):
    """A module that is being called, and its arguments."""

    module: Any
    arguments: object


def call_site(called: CalledOf, machinery: Collection[str], depth: int = 1) -> tuple[CallSite, list[Call]]:
    """Return the position of the user's code, and the modules that are being called, innermost first.

    Parameters
    ----------
    called : callable
        Returns the module that a frame calls; see `CalledOf`.
    machinery : collection of str
        Files of the framework that call modules, and compute nothing.
    depth : int
        How many of the innermost frames are skipped; with 1 the caller of this function is the first.
    """
    frames: list[Frame] = []
    calls: list[Call] = []
    outside: list[int] = []
    is_direct = True
    frame: FrameType | None = sys._getframe(depth)
    while frame is not None and len(frames) < _DEEPEST:
        code = frame.f_code
        if is_user_code(code) and has_line(frame):
            frames.append(Frame(code, frame.f_lasti, frame_of(frame)))
        else:
            file = code.co_filename
            if not frames and file not in machinery and not file.startswith(PACKAGE):
                is_direct = False
            module_call = called(frame)
            if module_call is not None and not any(call.module is module_call[0] for call in calls):
                calls.append(Call(*module_call))
                outside.append(len(frames))
                _own(frames, type(module_call[0]))
        frame = frame.f_back
    levels = {id(call.module): len(frames) - inside for call, inside in zip(calls, outside, strict=True)}
    return CallSite(tuple(reversed(frames)), is_direct, levels), calls


def _own(frames: list[Frame], owner: type) -> None:
    """Note the class to which the outermost frame belongs, if the frame is a method."""
    if frames and frames[-1].owner is None:
        names = frames[-1].code.co_varnames
        if frames[-1].code.co_argcount and names[0] == "self":
            frames[-1] = frames[-1]._replace(owner=owner)


def between(begin: CallSite, end: CallSite, floor: int = 0) -> tuple[StackFrame, ...]:
    """Return the stack of a computation after one call and before another.

    Parameters
    ----------
    begin, end : CallSite
        Sites of the two calls.
    floor : int
        How many outer frames are certainly the same calls of the same functions.

    Returns
    -------
    tuple of StackFrame
        Innermost first; the first one is the range of lines that may have computed it.
    """
    same = 0
    for begin_frame, end_frame in zip(begin.frames, end.frames, strict=False):
        if begin_frame.position != end_frame.position:
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
    """Return the stack of a computation in a function before a call, from the function's beginning on.

    Parameters
    ----------
    end : CallSite
        Site of the call.
    level : int
        Index of the function's frame. If there is none, library code called from the last frame has computed it.
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
    """Return the stack of a computation in a function after a call, until the function returned.

    Parameters
    ----------
    begin : CallSite
        Site of the call.
    level : int
        Index of the function's frame.
    """
    if level >= len(begin.frames):
        return begin.stack
    frame = begin.frames[level]
    computes = level + 1 < len(begin.frames) or not begin.is_direct
    lines = lines_between(frame.code, frame.offset, None, begin_computes=computes, owner=frame.owner)
    return _stack(begin.frames[:level], frame, lines or lines_of(frame.code))


def whole_function(function: Any, outside: CallSite) -> tuple[StackFrame, ...]:
    """Return the stack of a computation on any line of a function, which was called at a site."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code is None or not is_user_code(code):
        return outside.stack
    return (_range(code, lines_of(code)), *outside.stack)


def stack_between(
    begin: CallSite | None, now: CallSite, container: object | None, forward: Any, *, ends: bool
) -> tuple[StackFrame, ...]:
    """Return the stack of a computation outside all modules of which only an earlier call is known.

    Parameters
    ----------
    begin : CallSite or None
        Site of a call after which all of it was computed; None if no such call is known.
    now : CallSite
        Current site.
    container : object or None
        The module in whose code the training is; None if it is in the script.
    forward : function or None
        The function that a call of the container runs.
    ends : bool
        Whether the call of the container has ended.
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
    """Return the first line of a function of the user, for a call of which no single line is known."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code is None or not is_user_code(code):
        return ()
    # Decorators come before the `def`.
    lines = range(code.co_firstlineno, code.co_firstlineno + _MOST_DECORATORS)
    texts = ((line, source_line(code.co_filename, line)) for line in lines)
    line, text = next((candidate for candidate in texts if candidate[1].startswith("def ")), (code.co_firstlineno, ""))
    return (StackFrame(os.path.abspath(code.co_filename), line, code.co_name, text),)


def _stack(outer: tuple[Frame, ...], frame: Frame, lines: Lines) -> tuple[StackFrame, ...]:
    return (_range(frame.code, lines), *CallSite(outer).stack)


def _range(code: CodeType, lines: Lines) -> StackFrame:
    name = code.co_filename
    text = source_line(name, lines.first)
    file = name if name.startswith("<") else os.path.abspath(name)
    return StackFrame(file, lines.first, code.co_name, text, lines.last if lines.last > lines.first else None)
