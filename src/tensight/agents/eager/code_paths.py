"""Finds the lines of a function that may have run between two of its calls, from the function's bytecode.

What a model itself computes between two calls of its modules is only observed at the second call. The lines that may
have computed it are those on a path through the function from the first call to the second one.
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


# Instructions that compute nothing; all others may.
_INERT = _words(
    """NOP RESUME CACHE EXTENDED_ARG PUSH_NULL PRECALL KW_NAMES POP_TOP COPY SWAP DUP_TOP DUP_TOP_TWO ROT_TWO ROT_THREE
    ROT_FOUR ROT_N END_FOR END_SEND LOAD_CONST LOAD_NAME LOAD_GLOBAL LOAD_DEREF LOAD_CLASSDEREF LOAD_CLOSURE STORE_NAME
    STORE_GLOBAL STORE_DEREF MAKE_CELL COPY_FREE_VARS RETURN_VALUE RETURN_CONST RETURN_GENERATOR BUILD_TUPLE BUILD_LIST
    BUILD_MAP BUILD_CONST_KEY_MAP BUILD_STRING LIST_TO_TUPLE IS_OP MAKE_FUNCTION SET_FUNCTION_ATTRIBUTE POP_BLOCK
    POP_EXCEPT PUSH_EXC_INFO SETUP_FINALLY JUMP_FORWARD JUMP_BACKWARD
    JUMP_BACKWARD_NO_INTERRUPT JUMP_ABSOLUTE GET_LEN RERAISE RAISE_VARARGS LOAD_ASSERTION_ERROR NOT_TAKEN"""
)
# Converting a tensor to a bool computes no tensor.
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
        Code of the function.
    begin : int or None
        Offset of the call after which it was computed; None for the beginning of the function.
    end : int or None
        Offset of the call before which it was computed; None for the end of the function.
    begin_computes, end_computes : bool
        Whether these calls may have computed it, too, because they called a function that called a module.
    owner : type, optional
        Class of ``self``, the first argument; reading an attribute of it that is not a property computes nothing.

    Returns
    -------
    Lines or None
        None if there is no path from `begin` to `end` that does not pass one of them in between.
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


def is_stored(owner: type, name: str) -> bool:
    """Whether reading an attribute of the objects of a class runs none of the user's code."""
    attribute = inspect.getattr_static(owner, name, None)
    return attribute is None or inspect.isfunction(attribute) or not hasattr(type(attribute), "__get__")


def _at(offsets: Sequence[int], offset: int) -> int:
    """Return the offset of the instruction at an offset, which may be in the instruction's cache."""
    return max((start for start in offsets if start <= offset), default=0)


def _reached(
    steps: dict[int, _Step], starts: Iterable[int], bounds: Collection[int | None]
) -> tuple[set[int], set[int]]:
    """Return the offsets that can be reached without passing the bounds, and the bounds that were reached."""
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
    leading = set(goals)
    waiting = list(goals)
    while waiting:
        for offset in before.get(waiting.pop(), ()):
            if offset not in leading:
                leading.add(offset)
                waiting.append(offset)
    return leading


def _is_inert(step: _Step, owner: type | None) -> bool:
    if step.name in _INERT or step.name.startswith(_INERT_STARTS):
        return True
    return bool(step.attribute_of_self) and owner is not None and is_stored(owner, step.attribute_of_self)


def _extent(steps: dict[int, _Step], offsets: Iterable[int]) -> Lines | None:
    lines = [step.lines for step in map(steps.__getitem__, offsets) if step.lines is not None]
    return Lines(min(span.first for span in lines), max(span.last for span in lines)) if lines else None


@functools.lru_cache(maxsize=256)
def _steps(code: CodeType) -> dict[int, _Step]:
    """Return the instructions of a function by their offsets."""
    instructions = list(dis.get_instructions(code))
    offsets = [instruction.offset for instruction in instructions]
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
    for index, instruction in enumerate(instructions):
        line, lines = _lines_of(instruction, line)
        following = set(handlers.get(instruction.offset, ()))
        if instruction.opname not in _UNCONDITIONAL and index + 1 < len(offsets):
            following.add(offsets[index + 1])
        if instruction.opcode in dis.hasjrel or instruction.opcode in dis.hasjabs:
            following.add(int(instruction.argval))
        attribute = ""
        if instruction.opname in _READS_ATTRIBUTE and self_name and before is not None and _loads(before, self_name):
            attribute = str(instruction.argval)
        steps[instruction.offset] = _Step(instruction.opname, lines, tuple(sorted(following)), attribute)
        before = instruction
    return steps


def _lines_of(instruction: dis.Instruction, line: int) -> tuple[int, Lines | None]:
    """Return the line on which an instruction begins, or the previous one's, and all lines of the instruction."""
    if _EXCEPTIONS_ARE_TABLED:
        positions = instruction.positions
        if positions is None or positions.lineno is None:
            return line, None
        # The positions of a loop's instructions span all lines of its body.
        is_expression = instruction.opname.startswith(_EXPRESSIONS)
        last = positions.end_lineno if is_expression else positions.lineno
        return positions.lineno, Lines(positions.lineno, last or positions.lineno)
    line = instruction.starts_line or line
    return line, Lines(line, line)


def _loads(instruction: dis.Instruction, name: str) -> bool:
    """Whether an instruction pushes a local variable onto the stack."""
    if not instruction.opname.startswith("LOAD_FAST"):
        return False
    value = instruction.argval
    return bool((value[-1] if isinstance(value, tuple) else value) == name)
