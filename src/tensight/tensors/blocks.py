"""Cut tensors into blocks that follow each other in C order, for any layout in memory."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tensight.tensors.elements import Route, element_type, magnitudes
from tensight.tensors.layout import SEGMENT_ELEMENTS
from tensight.tensors.narrow_types import widened

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

Reader = Callable[[tuple[int | slice, ...]], "NDArray[Any]"]
"""Returns the block of an index, of any supported dtype."""


@dataclass(frozen=True, slots=True)
class Block:
    """A part of a tensor whose elements follow each other in C order.

    Attributes
    ----------
    index : tuple of int and slice
        Selects it; complete trailing dimensions are left out.
    start, end : int
        Positions of its first element and after its last one, in C order.
    """

    index: tuple[int | slice, ...]
    start: int
    end: int


def blocks_of(shape: Sequence[int], *, backwards: bool = False) -> Iterator[Block]:
    """Cut a tensor into blocks of at most 2**20 elements; `backwards` yields the last one first."""
    if math.prod(shape) == 0:
        return
    split, rest = len(shape), 1  # dimensions from `split` on are whole in every block
    while split and rest * shape[split - 1] <= SEGMENT_ELEMENTS:
        split -= 1
        rest *= shape[split]
    if split == 0:
        yield Block((), 0, rest)
        return
    leading, length, most = tuple(shape[: split - 1]), shape[split - 1], SEGMENT_ELEMENTS // rest
    outer = math.prod(leading)
    firsts = range(0, length, most)
    for number in reversed(range(outer)) if backwards else range(outer):
        leading_index = tuple(map(int, np.unravel_index(number, leading))) if leading else ()
        for first in reversed(firsts) if backwards else firsts:
            last = min(first + most, length)
            start = (number * length + first) * rest
            yield Block((*leading_index, slice(first, last)), start, start + (last - first) * rest)


def comparable(block: NDArray[Any]) -> NDArray[Any]:
    """Return the elements of a block as comparable values, flat.

    Floats of fewer than 32 bits are widened, complex numbers become magnitudes, bools 0 and 1; integers are unchanged,
    because large ones are not exact as floats.
    """
    element = element_type(block.dtype)
    flat = block.reshape(-1)
    if element.route is Route.MAGNITUDE:
        return magnitudes(flat)
    if element.is_bool:
        return np.asarray(np.ascontiguousarray(flat).view(np.uint8) != 0)
    if element.is_narrow_float:
        with np.errstate(invalid="ignore"):  # widening a signalling NaN warns
            return np.asarray(widened(flat), dtype=np.float32)
    return flat
