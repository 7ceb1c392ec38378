"""Samples of tensors, which show whether values have changed, and how shapes are written."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

SAMPLED = 512
"""Maximum number of elements of a tensor that are kept to compare it with itself later."""

MOST_ELEMENTS = 1 << 20
"""Maximum number of elements of a target or an input that are read."""


def sampled(count: int) -> slice:
    """Return which elements of a flat tensor are kept: evenly spaced ones.

    Parameters
    ----------
    count : int
        Number of its elements.
    """
    stride = -(-count // SAMPLED) or 1
    # An odd stride meets all columns of a matrix whose rows have an even length.
    return slice(None, None, stride | 1 if stride > 1 else 1)


def rows_read(shape: Sequence[int]) -> slice:
    """Return which rows of a target or an input are read: all, or of a large one the first so many.

    Parameters
    ----------
    shape : sequence of int
        Not that of a scalar.
    """
    count = 1
    for size in shape:
        count *= int(size)
    return slice(None) if count <= MOST_ELEMENTS else slice(max(MOST_ELEMENTS * int(shape[0]) // count, 1))


def fingerprint(samples: Sequence[NDArray[Any]]) -> int:
    """Return 64 bits that tell samples apart."""
    digest = hashlib.blake2b(digest_size=8)
    for values in samples:
        digest.update(values.tobytes())
    return int.from_bytes(digest.digest(), "little") | 1


def distinct(values: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Return the distinct values of an array, in order, and how often each occurs, as NumPy's ``unique`` does.

    That imports NumPy's masked arrays when it is first called, which takes longer than hundreds of steps of a small
    training.

    Parameters
    ----------
    values : ndarray
    """
    ordered = np.sort(values, axis=None)
    # All NaN, which come last, are one.
    begins = np.flatnonzero((ordered[1:] != ordered[:-1]) & (ordered[:-1] == ordered[:-1])) + 1
    starts = np.concatenate((np.zeros(min(ordered.size, 1), np.int64), begins))
    return ordered[starts], np.diff(starts, append=ordered.size)


def shape_text(shape: Sequence[Any]) -> str:
    """Return a shape as 8x10; of a scalar, an empty text."""
    return "x".join(str(int(size)) for size in shape)
