"""The totals of many scans, and the statistics that are computed from all of them at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tensight.tensors import layout
from tensight.tensors.elements import ELEMENT_NAMES, element_named
from tensight.tensors.schema import COUNTS, MEASURES, Moments, measures_of_many

if TYPE_CHECKING:
    from numpy.typing import NDArray

_ITEM_BYTES = np.array([element_named(name).native.itemsize for name in ELEMENT_NAMES], np.int64)
_HASH_KINDS = layout.hash_kinds(ELEMENT_NAMES)


@dataclass(frozen=True, slots=True)
class ScannedRows:
    """The totals of tensors, one row for each.

    Attributes
    ----------
    codes : ndarray of int64, shape (n,)
        Index of each element type in `tensors.elements.ELEMENT_NAMES`; -1 for a row that was never written.
    reals, raw_counts, exponents : ndarray
        The totals of `tensors.layout`, and the power of two that sums were divided by.
    """

    codes: NDArray[np.int64]
    reals: NDArray[np.float64]
    raw_counts: NDArray[np.int64]
    exponents: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def dtypes(self) -> list[str]:
        """Names of the element types; empty for rows that were never written."""
        return [ELEMENT_NAMES[code] if code >= 0 else "" for code in self.codes.tolist()]

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
        hashes = layout.tensor_hashes(blocks, sizes, _HASH_KINDS[self.codes])
        hashes[(blocks == 0) & (sizes > 0)] = 0
        return hashes

    def columns(self) -> dict[Any, NDArray[Any]]:
        """Return the counts and the measures by name."""
        counts, numbers = self.counts, self.numbers
        columns: dict[Any, NDArray[Any]] = {name: counts[:, index] for index, name in enumerate(COUNTS)}
        columns.update((name, numbers[:, index]) for index, name in enumerate(MEASURES))
        return columns

    def _elements(self) -> NDArray[np.int64]:
        raw = self.raw_counts
        kinds = layout.FINITE, layout.NAN, layout.NEGATIVE_INFINITE, layout.POSITIVE_INFINITE
        elements: NDArray[np.int64] = raw[:, kinds].sum(axis=1)
        return elements
