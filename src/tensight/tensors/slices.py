"""Parse and format slices as typed into the view of a tensor: ``[0, :, -1, 0:8]``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tensight.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

_INTEGER = re.compile(r"[+-]?[0-9]{1,18}", re.ASCII)


def parse_slice(text: str, shape: Sequence[int]) -> tuple[int | slice, ...]:
    """Return the index that a text selects in a tensor of a shape.

    Parameters
    ----------
    text : str
        One entry for each dimension, with or without brackets: an integer (negative ones count from the end),
        ``start:end`` or ``start:end:step``, with all parts optional. ``[]`` for a scalar.
    shape : sequence of int

    Returns
    -------
    tuple of int or slice
        For ``array[index]``.

    Raises
    ------
    InputError
        The text is not a slice, the numbers of entries and dimensions differ, or an index is out of range; the message
        names the dimension and its range.
    """
    inner = text.strip()
    if inner.startswith("[") != inner.endswith("]"):
        raise InputError(f"slice {_shown(text)} has only one bracket; write for example {_example(shape)}")
    inner = inner.removeprefix("[").removesuffix("]").strip()
    entries = [entry.strip() for entry in inner.split(",")] if inner else []
    if len(entries) != len(shape):
        raise InputError(
            f"slice {_shown(text)} has {len(entries)} entries, the tensor has {len(shape)} dimensions "
            f"{list(shape)}; give one entry for each, for example {_example(shape)}"
        )
    return tuple(
        _entry(entry, number, length) for number, (entry, length) in enumerate(zip(entries, shape, strict=True))
    )


def slice_text(index: Sequence[int | slice], shape: Sequence[int]) -> str:
    """Return an index as text for `parse_slice`: ``[0, :, 2:8]``, without negative numbers.

    Parameters
    ----------
    index : sequence of int or slice
        One entry for each dimension, within the shape.
    shape : sequence of int
    """
    return "[" + ", ".join(map(_entry_text, index, shape)) + "]"


def _entry_text(entry: int | slice, length: int) -> str:
    if not isinstance(entry, slice):
        return str(entry % length)
    start, end, step = entry.indices(length)
    if step == 1:
        return ":" if (start, end) == (0, length) else f"{start}:{end}"
    if end < 0:  # down to the first element, for which there is no end: -1 is the last element
        return f"{start}::{step}" if length else f"::{step}"
    return f"{start}:{end}:{step}"


def _entry(entry: str, dimension: int, length: int) -> int | slice:
    parts = [part.strip() for part in entry.split(":")]
    if len(parts) > 3:
        raise InputError(f"{_shown(entry)} for dimension {dimension}: give an index, start:end or start:end:step")
    numbers = [_integer(part, dimension, length, optional=len(parts) > 1) for part in parts]
    if len(parts) == 1:
        return _index(numbers[0], dimension, length)
    start, end, step = (*numbers, None)[:3]
    if step == 0:
        raise InputError(f"the step of {_shown(entry)} for dimension {dimension} is 0; give another")
    for bound in (start, end):
        if bound is not None and not -length <= bound <= length:
            raise InputError(f"{bound} in {_shown(entry)} is outside dimension {dimension}: give {-length} to {length}")
    return slice(start, end, step)


def _index(number: int | None, dimension: int, length: int) -> int:
    if number is None or not -length <= number < length:
        rule = f"give {-length} to {length - 1}" if length else "it has no elements, give ':'"
        raise InputError(f"index {number} is outside dimension {dimension}: {rule}")
    return number


def _integer(text: str, dimension: int, length: int, *, optional: bool) -> int | None:
    if not text and optional:
        return None
    if not _INTEGER.fullmatch(text):
        raise InputError(
            f"{_shown(text)} for dimension {dimension} is not an index; give an integer from {-length} to "
            f"{length - 1}, or a range such as 0:8 or :"
        )
    return int(text)


def _shown(text: str) -> str:
    """Return a text in quotes, shortened, because it may be any pasted text."""
    return repr(text if len(text) <= 60 else text[:57] + "...")


def _example(shape: Sequence[int]) -> str:
    return "[" + ", ".join([*("0" for _ in shape[2:]), *(":" for _ in shape[:2])]) + "]"
