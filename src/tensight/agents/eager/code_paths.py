"""Which lines of a function may have run between two calls that it made, as its bytecode says.

What a network computes itself between two calls of its modules is seen only when the second one is called. The lines
that may have computed it are those on a way through the function from the first call to the second one.
"""

from __future__ import annotations

import dis
import functools
import inspect
import sys
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence
    from types import CodeType

_EXCEPTIONS_ARE_TABLED = sys.version_info >= (3, 11)


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Instructions that compute nothing; all that are not named here may.
_INERT = _words(
    """NOP RESUME CACHE EXTENDED_ARG PUSH_NULL PRECALL KW_NAMES POP_TOP COPY SWAP DUP_TOP DUP_TOP_TWO ROT_TWO ROT_THREE
    ROT_FOUR ROT_N END_FOR END_SEND LOAD_CONST LOAD_NAME LOAD_GLOBAL LOAD_DEREF LOAD_CLASSDEREF LOAD_CLOSURE STORE_NAME
    STORE_GLOBAL STORE_DEREF MAKE_CELL COPY_FREE_VARS RETURN_VALUE RETURN_CONST RETURN_GENERATOR BUILD_TUPLE BUILD_LIST
    BUILD_MAP BUILD_CONST_KEY_MAP BUILD_STRING LIST_TO_TUPLE IS_OP MAKE_FUNCTION SET_FUNCTION_ATTRIBUTE POP_BLOCK
    POP_EXCEPT PUSH_EXC_INFO SETUP_FINALLY JUMP_FORWARD JUMP_BACKWARD
    JUMP_BACKWARD_NO_INTERRUPT JUMP_ABSOLUTE GET_LEN RERAISE RAISE_VARARGS LOAD_ASSERTION_ERROR NOT_TAKEN"""
)
# The truth of a tensor is none.
_INERT_STARTS = ("LOAD_FAST", "STORE_FAST", "DELETE_FAST", "POP_JUMP", "JUMP_IF", "TO_BOOL", "UNARY_NOT")
_EXPRESSIONS = ("BINARY_", "CALL", "COMPARE_", "UNARY_")
_UNCONDITIONAL = _words(
    """JUMP_FORWARD JUMP_BACKWARD JUMP_BACKWARD_NO_INTERRUPT JUMP_ABSOLUTE RETURN_VALUE RETURN_CONST RAISE_VARARGS
    RERAISE"""
)
_RETURNS = frozenset(("RETURN_VALUE", "RETURN_CONST"))
_READS_ATTRIBUTE = frozenset(("LOAD_ATTR", "LOAD_METHOD"))


class Lines(NamedTuple):
    """A range of lines of one file, both included."""

    first: int
    last: int


class _Step(NamedTuple):
    """An instruction."""

    name: str
    lines: Lines | None
    following: tuple[int, ...]
    attribute_of_self: str


def lines_between(
    code: CodeType,
    begin: int | None,
    end: int | None,
    *,
    begin_computes: bool = False,
    end_computes: bool = False,
    owner: type | None = None,
) -> Lines | None:
    """Return the lines of a function that may have computed something between two of its instructions.

    Parameters
    ----------
    code : code
        Of the function.
    begin : int or None
        Offset of the call after which it was computed; None for the beginning of the function.
    end : int or None
        Offset of the call before which it was computed; None for the end of the function.
    begin_computes, end_computes : bool
        Whether also what these calls themselves did is meant: they called a function that called a module.
    owner : type, optional
        Of ``self``, the first argument; reading what is no property of it computes nothing.

    Returns
    -------
    Lines or None
        None if no way leads from the one to the other without coming by one of them in between.
    """
    steps = _steps(code)
    offsets = tuple(steps)
    first = None if begin is None else _at(offsets, begin)
    last = None if end is None else _at(offsets, end)
    starts = offsets[:1] if first is None else steps[first].following
    ahead, arrives = _reached(steps, starts, {first, last})
    if last is None:
        goals: Collection[int] = [offset for offset in ahead if steps[offset].name in _RETURNS]
    else:
        goals = [offset for offset in (*ahead, *(() if first is None else (first,))) if last in steps[offset].following]
        if not arrives.intersection((last,)) and last not in starts:
            return None
    if last is None and not goals:
        return None
    path = ahead & _leading_to(steps, goals)
    bounds = [(first, begin_computes), (last, end_computes)]
    whole = path.union(offset for offset, _ in bounds if offset is not None)
    computing = {offset for offset in path if not _is_inert(steps[offset], owner)}
    computing.update(offset for offset, computes in bounds if computes and offset is not None)
    return _extent(steps, computing) or _extent(steps, whole)


def lines_of(code: CodeType) -> Lines:
    """Return all lines of a function, from its ``def`` on."""
    lines = _extent(_steps(code), _steps(code))
    return Lines(code.co_firstlineno, max(code.co_firstlineno, lines.last if lines is not None else 0))


def lines_at(code: CodeType, offset: int) -> Lines:
    """Return the line of an instruction, as tracebacks name it."""
    steps = _steps(code)
    lines = steps[_at(tuple(steps), offset)].lines
    line = code.co_firstlineno if lines is None else lines.first
    return Lines(line, line)


def is_stored(owner: type, name: str) -> bool:
    """Whether reading an attribute of the objects of a class runs none of the user's code."""
    found = inspect.getattr_static(owner, name, None)
    return found is None or inspect.isfunction(found) or not hasattr(type(found), "__get__")


def _at(offsets: Sequence[int], offset: int) -> int:
    """Return the instruction at an offset, which may be that of a cache behind it."""
    return max((one for one in offsets if one <= offset), default=0)


def _reached(
    steps: dict[int, _Step], starts: Iterable[int], bounds: Collection[int | None]
) -> tuple[set[int], set[int]]:
    """Return what can be reached without coming by the bounds, and which of these were come to."""
    reached: set[int] = set()
    arrived: set[int] = set()
    waiting = list(starts)
    while waiting:
        offset = waiting.pop()
        if offset in bounds:
            arrived.add(offset)
        elif offset not in reached:
            reached.add(offset)
            waiting += steps[offset].following
    return reached, arrived


def _leading_to(steps: dict[int, _Step], goals: Collection[int]) -> set[int]:
    before: dict[int, list[int]] = {}
    for offset, step in steps.items():
        for following in step.following:
            before.setdefault(following, []).append(offset)
    found = set(goals)
    waiting = list(goals)
    while waiting:
        for offset in before.get(waiting.pop(), ()):
            if offset not in found:
                found.add(offset)
                waiting.append(offset)
    return found


def _is_inert(step: _Step, owner: type | None) -> bool:
    if step.name in _INERT or step.name.startswith(_INERT_STARTS):
        return True
    return bool(step.attribute_of_self) and owner is not None and is_stored(owner, step.attribute_of_self)


def _extent(steps: dict[int, _Step], offsets: Iterable[int]) -> Lines | None:
    lines = [step.lines for step in map(steps.__getitem__, offsets) if step.lines is not None]
    return Lines(min(one.first for one in lines), max(one.last for one in lines)) if lines else None


@functools.lru_cache(maxsize=256)
def _steps(code: CodeType) -> dict[int, _Step]:
    """Return the instructions of a function by their offsets."""
    instructions = list(dis.get_instructions(code))
    offsets = [one.offset for one in instructions]
    handlers: dict[int, set[int]] = {}
    if _EXCEPTIONS_ARE_TABLED:
        for entry in dis.Bytecode(code).exception_entries:  # type: ignore[attr-defined]
            for offset in offsets:
                if entry.start <= offset < entry.end:
                    handlers.setdefault(offset, set()).add(entry.target)
    steps: dict[int, _Step] = {}
    line = code.co_firstlineno
    self_name = code.co_varnames[0] if code.co_argcount else ""
    before: dis.Instruction | None = None
    for index, one in enumerate(instructions):
        line, lines = _lines_of(one, line)
        following = set(handlers.get(one.offset, ()))
        if one.opname not in _UNCONDITIONAL and index + 1 < len(offsets):
            following.add(offsets[index + 1])
        if one.opcode in dis.hasjrel or one.opcode in dis.hasjabs:
            following.add(int(one.argval))
        attribute = ""
        if one.opname in _READS_ATTRIBUTE and self_name and before is not None and _loads(before, self_name):
            attribute = str(one.argval)
        steps[one.offset] = _Step(one.opname, lines, tuple(sorted(following)), attribute)
        before = one
    return steps


def _lines_of(instruction: dis.Instruction, line: int) -> tuple[int, Lines | None]:
    """Return the line of an instruction that has begun last, and all that it is on."""
    if _EXCEPTIONS_ARE_TABLED:
        positions = instruction.positions
        if positions is None or positions.lineno is None:
            return line, None
        # A loop's instructions are said to be on all lines of its body.
        is_expression = instruction.opname.startswith(_EXPRESSIONS)
        last = positions.end_lineno if is_expression else positions.lineno
        return positions.lineno, Lines(positions.lineno, last or positions.lineno)
    line = instruction.starts_line or line
    return line, Lines(line, line)


def _loads(instruction: dis.Instruction, name: str) -> bool:
    """Whether an instruction puts a local variable on top of the stack."""
    if not instruction.opname.startswith("LOAD_FAST"):
        return False
    value = instruction.argval
    return bool((value[-1] if isinstance(value, tuple) else value) == name)
