"""Rows of statistics as the scan writes them, and what is computed from many of them at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tensight.tensors import COUNTS, MEASURES, TensorStatistics, layout
from tensight.tensors.elements import ELEMENT_NAMES, element_named
from tensight.tensors.schema import Moments, measures_of_many

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

NO_TYPE = -1
"""Code of the element type of a row that was never written."""

_ITEM_BYTES = np.array([element_named(name).native.itemsize for name in ELEMENT_NAMES], np.int64)
_HOLDS_INTEGERS = np.array([name.startswith(("int", "uint", "bool")) for name in ELEMENT_NAMES], np.bool_)


@dataclass(frozen=True, slots=True)
class Rows:
    """A copy of some rows of statistics, which the training does not write to.

    Attributes
    ----------
    slot_ids : ndarray of int64, shape (n,)
    iterations : ndarray of int64, shape (n,)
        In which each row was written; `columns.NEVER` if it never was.
    shapes : list of tuple of int
    codes : ndarray of int64, shape (n,)
        Index of each element type in `tensors.elements.ELEMENT_NAMES`; NO_TYPE for a row that was never written.
    reals, raw_counts, exponents : ndarray
        The totals of `tensors.layout`, and the power of two that sums were divided by.
    """

    slot_ids: NDArray[np.int64]
    iterations: NDArray[np.int64]
    shapes: list[tuple[int, ...]]
    codes: NDArray[np.int64]
    reals: NDArray[np.float64]
    raw_counts: NDArray[np.int64]
    exponents: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.slot_ids)

    @property
    def dtypes(self) -> list[str]:
        """Names of the element types; empty for rows that were never written."""
        return [ELEMENT_NAMES[code] if code >= 0 else "" for code in self.codes.tolist()]

    @property
    def holds_integers(self) -> NDArray[np.bool_]:
        """Which rows are of integers or booleans."""
        return _HOLDS_INTEGERS[self.codes] & (self.codes >= 0)

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Bytes of the elements."""
        return _ITEM_BYTES[self.codes] * self._elements()

    @property
    def counts(self) -> NDArray[np.int64]:
        """Counts of elements, shape (n, len(COUNTS))."""
        raw = self.raw_counts
        counts = np.empty((len(raw), len(COUNTS)), np.int64)
        counts[:, 0] = self._elements()
        counts[:, 1:4] = raw[:, [layout.NAN, layout.NEGATIVE_INFINITE, layout.POSITIVE_INFINITE]]
        counts[:, 4] = raw[:, layout.FINITE] - raw[:, layout.NEGATIVE] - raw[:, layout.POSITIVE]
        counts[:, 5:] = raw[:, [layout.NEGATIVE, layout.POSITIVE]]
        return counts

    @property
    def numbers(self) -> NDArray[np.float64]:
        """Measures of the finite elements, shape (n, len(MEASURES)); NaN where no element is finite."""
        finite = self.raw_counts[:, layout.FINITE].astype(np.float64)
        with np.errstate(all="ignore"):
            moments = Moments(
                finite,
                np.where(finite > 1, finite - 1, np.inf),
                self.reals[:, layout.MINIMUM],
                self.reals[:, layout.MAXIMUM],
                self.reals[:, layout.TOTAL] / finite,
                self.reals[:, layout.ABSOLUTE_TOTAL],
                self.reals[:, layout.SQUARED_DEVIATION],
                np.sqrt,
            )
        return measures_of_many(moments, self.exponents)

    @property
    def hashes(self) -> NDArray[np.uint64]:
        """Content hashes; 0 for rows without one."""
        blocks, sizes = self.raw_counts[:, layout.HASH].view(np.uint64), self.sizes
        hashes = layout.tensor_hashes(blocks, sizes, _KINDS[self.codes])
        hashes[(blocks == 0) & (sizes > 0)] = 0
        return hashes

    def columns(self) -> dict[Any, NDArray[Any]]:
        """Return the statistics by name, for the evaluation of watchpoints; without ``content_hash``, see `hashes`."""
        counts, numbers = self.counts, self.numbers
        columns: dict[Any, NDArray[Any]] = {name: counts[:, index] for index, name in enumerate(COUNTS)}
        columns.update((name, numbers[:, index]) for index, name in enumerate(MEASURES))
        return columns

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

    def _elements(self) -> NDArray[np.int64]:
        raw = self.raw_counts
        kinds = layout.FINITE, layout.NAN, layout.NEGATIVE_INFINITE, layout.POSITIVE_INFINITE
        elements: NDArray[np.int64] = raw[:, kinds].sum(axis=1)
        return elements


_KINDS = layout.hash_kinds(ELEMENT_NAMES)


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
