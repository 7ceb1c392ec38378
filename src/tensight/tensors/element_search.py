"""Search a tensor for non-finite and for the largest elements, block by block in C order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tensight.tensors.blocks import blocks_of, comparable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from tensight.tensors.blocks import Block, Reader


def first_striking(read: Reader, shape: Sequence[int]) -> int | None:
    """Return the position of the first NaN or infinity; if there is none, of the largest magnitude.

    Parameters
    ----------
    read : callable
        Returns the block of an index, of any supported dtype; blocks have at most 2**20 elements.
    shape : sequence of int

    Returns
    -------
    int or None
        In C order; None for a tensor without elements.
    """
    return _largest(read, shape, or_non_finite=True)


def largest(read: Reader, shape: Sequence[int]) -> int | None:
    """Return the position of the first of the finite elements of largest magnitude; None if none is finite."""
    return _largest(read, shape, or_non_finite=False)


def next_non_finite(read: Reader, shape: Sequence[int], after: int, *, backwards: bool = False) -> int | None:
    """Return the position of the nearest NaN or infinity after (or, if `backwards`, before) a position.

    The search wraps around at the ends of the tensor, so each tensor is read at most once, and a single element is
    found again.

    Parameters
    ----------
    read, shape
        See `first_striking`.
    after : int
        Position in C order; -1 or the number of elements to search from an end of the tensor.
    """
    blocks = list(blocks_of(shape, backwards=backwards))
    turn = next((index for index, block in enumerate(blocks) if block.start <= after < block.end), None)
    if turn is None:
        return _first_of((_non_finite(read, block) for block in blocks), backwards)
    block = blocks[turn]
    here = _non_finite(read, block)
    beyond, before = (
        (here[here < after], here[here >= after]) if backwards else (here[here > after], here[here <= after])
    )
    if beyond.size:
        return _nearest(beyond, backwards)
    others = (_non_finite(read, other) for other in (*blocks[turn + 1 :], *blocks[:turn]))
    position = _first_of(others, backwards)
    return position if position is not None or not before.size else _nearest(before, backwards)


def _first_of(positions_of_blocks: Iterable[NDArray[np.intp]], backwards: bool) -> int | None:
    for positions in positions_of_blocks:
        if positions.size:
            return _nearest(positions, backwards)
    return None


def _nearest(positions: NDArray[np.intp], backwards: bool) -> int:
    return int(positions[-1 if backwards else 0])


def _non_finite(read: Reader, block: Block) -> NDArray[np.intp]:
    """Return the positions of a block's NaN and infinities, in order."""
    values = comparable(read(block.index))
    if values.dtype.kind != "f" or _is_finite(values):
        return np.empty(0, np.intp)
    return np.flatnonzero(~np.isfinite(values)) + block.start


def _is_finite(values: NDArray[Any]) -> bool:
    """Return whether all floats are finite, faster than by testing each of them."""
    with np.errstate(invalid="ignore"):
        return bool(np.isfinite(values.max()) and np.isfinite(values.min()))


def _largest(read: Reader, shape: Sequence[int], *, or_non_finite: bool) -> int | None:
    best: float = -1
    position: int | None = None
    for block in blocks_of(shape):
        values = comparable(read(block.index))
        finite = None
        if values.dtype.kind == "f" and not _is_finite(values):
            finite = np.isfinite(values)
            if or_non_finite:
                return block.start + int(finite.argmin())
            if not finite.any():
                continue
            values = np.where(finite, values, 0)
        size = max(values.max().item(), -values.min().item())
        if size > best:
            best, position = size, block.start + _first_of_size(values, size, finite)
    return position


def _first_of_size(values: NDArray[Any], size: float, finite: NDArray[np.bool_] | None) -> int:
    """Return the position of the first (finite) element with a magnitude."""
    is_there = values == size
    if values.dtype.kind in "if":
        is_there |= values == -size
    return int((is_there if finite is None else is_there & finite).argmax())
