"""Rows of statistics as the scan writes them, and what is computed from many of them at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tensight.tensors import COUNTS, MEASURES, TensorStatistics, layout
from tensight.tensors.elements import ELEMENT_NAMES
from tensight.tensors.rows import ScannedRows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

NO_TYPE = -1
"""Code of the element type of a row that was never written."""

_HOLDS_INTEGERS = np.array([name.startswith(("int", "uint", "bool")) for name in ELEMENT_NAMES], np.bool_)


@dataclass(frozen=True, slots=True)
class Rows(ScannedRows):
    """A copy of some rows of statistics, which the training does not write to.

    Attributes
    ----------
    slot_ids : ndarray of int64, shape (n,)
    iterations : ndarray of int64, shape (n,)
        In which each row was written; `columns.NEVER` if it never was.
    shapes : list of tuple of int
    """

    slot_ids: NDArray[np.int64]
    iterations: NDArray[np.int64]
    shapes: list[tuple[int, ...]]

    @property
    def holds_integers(self) -> NDArray[np.bool_]:
        """Which rows are of integers or booleans."""
        return _HOLDS_INTEGERS[self.codes] & (self.codes >= 0)

    def statistics(self) -> Iterator[TensorStatistics | None]:
        """Yield the rows one by one; None for those that were never written."""
        every = zip(
            *(self.dtypes, self.shapes, self.sizes.tolist()),
            *(self.counts.tolist(), self.numbers.tolist(), self.hashes.tolist()),
            strict=True,
        )
        for dtype, shape, size, counts, numbers, content_hash in every:
            named: dict[str, Any] = dict(zip((*COUNTS, *MEASURES), (*counts, *numbers), strict=True))
            yield TensorStatistics(dtype, shape, size, **named, content_hash=content_hash) if dtype else None


def raw_row(statistics: TensorStatistics) -> tuple[list[float], list[int]]:
    """Return totals that these statistics are computed from, up to rounding; the hash exactly."""
    row = statistics
    finite = row.finite_count
    counts = [0] * layout.COUNTS
    counts[layout.FINITE], counts[layout.NAN] = finite, row.nan_count
    counts[layout.NEGATIVE_INFINITE], counts[layout.POSITIVE_INFINITE] = row.neg_inf_count, row.pos_inf_count
    counts[layout.NEGATIVE], counts[layout.POSITIVE] = row.negative_count, row.positive_count
    blocks = layout.block_hashes(row.content_hash, row.size_bytes, row.dtype) if row.content_hash else 0
    counts[layout.HASH] = blocks - 2**64 if blocks >= 2**63 else blocks
    reals = [0.0] * layout.REALS
    if finite:
        reals[layout.TOTAL] = row.mean * finite
        reals[layout.ABSOLUTE_TOTAL] = row.abs_mean * finite
        reals[layout.SQUARED_DEVIATION] = row.std * row.std * (finite - 1)
        reals[layout.MINIMUM], reals[layout.MAXIMUM] = row.min, row.max
    return reals, counts
