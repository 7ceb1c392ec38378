"""The scan in plain NumPy, for installations without compiled kernels.

Counts, minimum, maximum and hash are bit-identical to those of the kernels; sums differ in the last bits, because they
are added in another order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tensight.tensors import layout
from tensight.tensors.elements import doubles_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tensight.tensors.elements import ElementType


def scan(
    elements: NDArray[Any],
    element: ElementType,
    first_block: int,
    ranges: Sequence[tuple[float, float]],
    reals: NDArray[np.float64],
    counts: NDArray[np.int64],
) -> None:
    """Add `elements` (native, 1-D, contiguous) to the totals, chunk by chunk; see `native.Kernels.scan`."""
    blocks = 0
    for start in range(0, elements.size, layout.CHUNK):
        chunk = elements[start : start + layout.CHUNK]
        values = doubles_of(chunk, element)
        for index, (low, high) in enumerate(ranges, start=layout.COUNTS):
            counts[index] += np.count_nonzero((values >= low) & (values <= high))
        _add_values(values, reals, counts)
        blocks += layout.hash_blocks(chunk, first_block + start // layout.BLOCK)
    counts[layout.HASH : layout.HASH + 1].view(np.uint64)[0] = (int(counts[layout.HASH]) + blocks) & (2**64 - 1)


def _add_values(values: NDArray[np.float64], reals: NDArray[np.float64], counts: NDArray[np.int64]) -> None:
    """Add one chunk of values to the totals."""
    finite = np.isfinite(values)
    if not finite.all():
        nan = np.isnan(values)
        counts[layout.NAN] += np.count_nonzero(nan)
        counts[layout.POSITIVE_INFINITE] += np.count_nonzero(values == np.inf)
        counts[layout.NEGATIVE_INFINITE] += np.count_nonzero(values == -np.inf)
        values = values[finite]
    count = values.size
    if not count:
        return
    # The caller detects an overflow here, and then scans again with scaled values.
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        shift = float(values[0])
        deviations = values - shift
        total = float(deviations.sum())
        spread = max(float(np.square(deviations).sum()) - total * (total / count), 0.0)
        total += shift * count
        before = int(counts[layout.FINITE])
        if before:
            gap = total / count - float(reals[layout.TOTAL]) / before
            spread += gap * gap * (count * (before / (before + count)))
        reals[layout.TOTAL] += total
        reals[layout.ABSOLUTE_TOTAL] += np.abs(values).sum()
        reals[layout.SQUARED_DEVIATION] += spread
    counts[layout.FINITE] = before + count
    counts[layout.NEGATIVE] += np.count_nonzero(values < 0)
    counts[layout.POSITIVE] += np.count_nonzero(values > 0)
    reals[layout.MINIMUM] = min(float(reals[layout.MINIMUM]), float(values.min()))
    reals[layout.MAXIMUM] = max(float(reals[layout.MAXIMUM]), float(values.max()))
