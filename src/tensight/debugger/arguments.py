"""Validation of arguments, with the error messages of the original."""

from __future__ import annotations

import numbers
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from tensight.debugger.exceptions import DebuggerParamTypeError, DebuggerParamValueError

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

IntSelection: TypeAlias = "int | list[int] | set[int] | None"
"""A number, several numbers, or None for all."""

MEM_LIMIT_MB = (2048, 2147483647)


def require_type(name: str, value: object, expected: type) -> None:
    """Raise if an argument does not have the expected type.

    Raises
    ------
    DebuggerParamTypeError
    """
    if not isinstance(value, expected):
        raise DebuggerParamTypeError(f"The type of {name} should be {expected.__name__}, but got {type(value)}.")


def number(name: str, value: object, expected: str = "float") -> float:
    """Return a threshold as float.

    Raises
    ------
    DebuggerParamTypeError
        It is not a number.
    OverflowError
        It is an integer that does not fit a 64-bit float.
    """
    if isinstance(value, (numbers.Real, np.bool_)):
        return float(value)
    raise DebuggerParamTypeError(f"The type of {name} should be {expected}, but got {type(value)}.")


def selected_numbers(
    name: str, selection: IntSelection, available: Sequence[int] | None, *, skip_unknown: bool = False
) -> list[int]:
    """Return the numbers that a caller selected, in the caller's order, including repetitions.

    Parameters
    ----------
    name : str
        Name of the argument, for the error message.
    selection : int, list of int, set of int or None
        The selection; None selects everything available.
    available : sequence of int or None
        The available numbers; None accepts all numbers.
    skip_unknown : bool
        Leave out numbers that are not available, instead of raising.

    Raises
    ------
    DebuggerParamTypeError
        It has a different type.
    DebuggerParamValueError
        It contains a number that is not available.
    """
    if selection is None:
        return list(available or ())
    values: Collection[int] = selection if isinstance(selection, (list, set)) else [selection]
    allowed = None if available is None else set(available)
    chosen: list[int] = []
    for value in values:
        if not isinstance(value, (int, np.integer)):
            raise DebuggerParamTypeError(f"The type of {name} should be int, list[int] or None, but got {type(value)}.")
        if allowed is None or value in allowed:
            chosen.append(int(value))
        elif not skip_unknown:
            raise DebuggerParamValueError(f"The value should be in {list(available or ())}")
    return chosen


def selected_slots(slots: list[int] | None) -> frozenset[int] | None:
    """Return the selected slots, None for all.

    Raises
    ------
    TypeError
        It is neither a list nor None; the original raises the built-in error here.
    DebuggerParamTypeError
        An element is not an integer.
    """
    if slots is None:
        return None
    if not isinstance(slots, list):
        raise TypeError(f"The param `slots` only support list[int] or None, but got {type(slots)}")
    for slot in slots:
        if not isinstance(slot, (int, np.integer)):
            raise DebuggerParamTypeError(f"The type of slot should be list[int] or None, but got {type(slot)}.")
    return frozenset(int(slot) for slot in slots)


def check_mem_limit(mem_limit: object) -> None:
    """Raise if the memory limit is neither None nor a number of megabytes that the original accepts.

    Raises
    ------
    DebuggerParamTypeError, DebuggerParamValueError
    """
    if mem_limit is None or mem_limit == 0:
        # The original also accepts 0 for "no limit".
        return
    if not isinstance(mem_limit, int):
        raise DebuggerParamTypeError(f"The type of mem_limit should be int or None, but got {type(mem_limit)}.")
    low, high = MEM_LIMIT_MB
    if not low <= mem_limit <= high:
        raise DebuggerParamValueError(f"If mem_limit is not None, it should be set in [{low}, {high}].")
