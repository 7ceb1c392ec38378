"""Compute the statistics of a tensor segment by segment, by any thread and in any order, and merge them."""

from __future__ import annotations

import math
import threading
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tensight.errors import InputError
from tensight.tensors import layout, portable
from tensight.tensors.elements import as_native, element_type, values_of
from tensight.tensors.layout import SEGMENT_ELEMENTS
from tensight.tensors.native import kernels
from tensight.tensors.schema import MEASURES, Moments, TensorStatistics, measures_of
from tensight.tensors.scratch import scan_totals
from tensight.tensors.shared_scan import scan_shared

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from tensight.tensors.elements import ElementType
    from tensight.tensors.native import Kernels
    from tensight.tensors.scratch import Totals
    from tensight.tensors.shared_scan import Team

# Beyond these magnitudes squares, or their sums, leave the range of float64, and values are scaled first.
_LARGE, _SMALL = 2.0**480, 2.0**-450


class Partial(NamedTuple):
    """The result of scanning one segment; only `merge` reads it.

    Sums are over the values divided by ``2**exponent``, squared deviations over their squares.
    """

    position: int
    size: int
    finite: int
    nan: int
    negative_infinite: int
    positive_infinite: int
    negative: int
    positive: int
    minimum: float
    maximum: float
    total: float
    absolute_total: float
    squared_deviation: float
    exponent: int
    block_hashes: int
    in_ranges: tuple[int, ...]


def scan_segment(
    segment: NDArray[Any],
    index: int,
    ranges: Sequence[tuple[float, float]] = (),
    *,
    hashed: bool = True,
    team: Team | None = None,
) -> Partial:
    """Scan one segment of a tensor, mostly without holding the GIL.

    Parameters
    ----------
    segment : ndarray, 1-D
        ``SEGMENT_ELEMENTS`` elements of any supported dtype, or the rest of the tensor.
    index : int
        Position of the segment in the tensor, from 0.
    ranges : sequence of (float, float)
        Count the values from start to end, both inclusive. Values are compared as doubles; an infinite bound includes
        infinite values, NaN is in no range.
    hashed : bool
        Whether to compute the content hash; if not, it may be 0.
    team : Team, optional
        Threads that help if no ranges are counted.

    Raises
    ------
    InputError
        The dtype has no statistics, or the segment is too long.
    """
    element = element_type(segment.dtype)
    elements = as_native(segment, element)
    if elements.size > SEGMENT_ELEMENTS:
        raise InputError(f"a segment has {elements.size:,} elements; give at most {SEGMENT_ELEMENTS:,}")
    route = element.route
    totals = scan_totals(len(ranges))
    first_block = index * (SEGMENT_ELEMENTS // layout.BLOCK)
    compiled = kernels()
    if compiled is None:
        portable.scan(elements, element, first_block, ranges, totals.reals, totals.counts)
    else:
        stored = element.kind, elements.ctypes.data, elements.size, first_block if hashed else layout.NO_HASH
        _scan_compiled(compiled, stored, ranges, totals, team)
    reals, counts = totals.reals.tolist(), totals.counts.tolist()
    exponent = rescan_if_out_of_range(elements, element, reals) if route.is_double else 0
    return _partial(index, elements.size, exponent, reals, counts)


def _scan_compiled(
    compiled: Kernels,
    stored: tuple[int, int, int, int],
    ranges: Sequence[tuple[float, float]],
    totals: Totals,
    team: Team | None,
) -> None:
    """Run the kernel over elements: their kind, address and number, and the number of the first block."""
    row = totals.reals_address, totals.counts_address
    if ranges:
        bounds = np.array(ranges, np.float64)
        compiled.scan_ranges(*stored, *row, bounds.ctypes.data, len(ranges))
    elif team is not None:
        scan_shared(compiled, team, stored, row)
    else:
        compiled.scan(*stored, *row)


def rescan_if_out_of_range(elements: NDArray[Any], element: ElementType, reals: list[float]) -> int:
    """Sum again with scaled values if squares leave the range of float64; return the exponent of the scale."""
    largest = max(abs(reals[layout.MINIMUM]), abs(reals[layout.MAXIMUM]))
    if not math.isfinite(largest) or largest == 0 or _SMALL <= largest <= _LARGE:
        return 0
    exponent = math.frexp(largest)[1]
    values = values_of(elements, element)
    # ldexp, because 2**-exponent itself may be out of range; lost bits are below double precision
    values = np.ldexp(values[np.isfinite(values)], -exponent)
    deviations = values - values.mean()
    spread = float(np.square(deviations).sum()) - float(deviations.sum()) ** 2 / values.size
    reals[layout.TOTAL] = float(values.sum())
    reals[layout.ABSOLUTE_TOTAL] = float(np.abs(values).sum())
    reals[layout.SQUARED_DEVIATION] = max(spread, 0.0)
    return exponent


def _partial(index: int, count: int, exponent: int, reals: list[float], counts: list[int]) -> Partial:
    total, absolute_total, squared_deviation, minimum, maximum = reals
    finite, nan, negative_infinite, positive_infinite, negative, positive, block_hashes, *in_ranges = counts
    return Partial(
        index,
        count,
        finite,
        nan,
        negative_infinite,
        positive_infinite,
        negative,
        positive,
        minimum,
        maximum,
        total,
        absolute_total,
        squared_deviation,
        exponent,
        block_hashes,
        tuple(in_ranges),
    )


def merge(
    partials: Iterable[Partial], *, dtype: np.dtype[Any], shape: Sequence[int]
) -> tuple[TensorStatistics, tuple[int, ...]]:
    """Return the statistics of a tensor, and the number of values in each range, from its segments in any order.

    Raises
    ------
    InputError
        The segments are not exactly those of a tensor of this shape.
    """
    parts = sorted(partials)
    element = element_type(np.dtype(dtype))
    count = math.prod(shape)
    _require_whole(parts, count)
    whole = parts[0] if len(parts) == 1 else joined(parts)
    size_bytes = count * element.native.itemsize
    statistics = TensorStatistics(
        dtype=element.name,
        shape=tuple(shape),
        size_bytes=size_bytes,
        count=count,
        nan_count=whole.nan,
        neg_inf_count=whole.negative_infinite,
        pos_inf_count=whole.positive_infinite,
        zero_count=whole.finite - whole.negative - whole.positive,
        negative_count=whole.negative,
        positive_count=whole.positive,
        **dict(zip(MEASURES, _measures(whole), strict=True)),
        content_hash=layout.tensor_hash(whole.block_hashes, size_bytes, element.name),
    )
    return statistics, whole.in_ranges


def _require_whole(parts: Sequence[Partial], count: int) -> None:
    """Raise InputError unless the sorted segments are those of a tensor of `count` elements."""
    if len(parts) == 1 and parts[0].position == 0 and parts[0].size == count:
        return
    positions = [part.position for part in parts]
    given = sum(part.size for part in parts)
    if positions != list(range(len(parts))) or given != count:
        raise InputError(
            f"segments {positions[:8]}{'…' if len(positions) > 8 else ''} with {given:,} elements do not "
            f"make up a tensor of {count:,} elements; scan every segment of it once"
        )


def joined(parts: Sequence[Partial]) -> Partial:
    """Return the result of scanning all segments as one."""
    finite = [part for part in parts if part.finite]
    count = sum(part.finite for part in finite)
    # All sums use the scale of the largest segment; values that underflow are below double precision.
    scale = max((part.exponent for part in finite if part.absolute_total), default=0)
    totals = [math.ldexp(part.total, part.exponent - scale) for part in finite]
    total = math.fsum(totals)
    spread = math.fsum(math.ldexp(part.squared_deviation, 2 * (part.exponent - scale)) for part in finite)
    spread += math.fsum(
        part.finite * (part_total / part.finite - total / count) ** 2
        for part, part_total in zip(finite, totals, strict=True)
    )
    return Partial(
        position=0,
        size=sum(part.size for part in parts),
        finite=count,
        nan=sum(part.nan for part in parts),
        negative_infinite=sum(part.negative_infinite for part in parts),
        positive_infinite=sum(part.positive_infinite for part in parts),
        negative=sum(part.negative for part in parts),
        positive=sum(part.positive for part in parts),
        minimum=min((part.minimum for part in finite), default=math.inf),
        maximum=max((part.maximum for part in finite), default=-math.inf),
        total=total,
        absolute_total=math.fsum(math.ldexp(part.absolute_total, part.exponent - scale) for part in finite),
        squared_deviation=spread,
        exponent=scale,
        block_hashes=sum(part.block_hashes for part in parts),
        in_ranges=tuple(sum(column) for column in zip(*(part.in_ranges for part in parts), strict=True)),
    )


def _measures(whole: Partial) -> list[float]:
    finite = whole.finite
    moments = Moments(
        finite,
        finite - 1 if finite > 1 else math.inf,
        whole.minimum,
        whole.maximum,
        whole.total / finite if finite else math.nan,
        whole.absolute_total,
        whole.squared_deviation,
        math.sqrt,
    )
    return measures_of(moments, whole.exponent)


def segments_of(array: NDArray[Any]) -> Iterator[NDArray[Any]]:
    """Yield the elements of an array in C order as 1-D segments, copied one at a time if necessary."""
    flat = np.asarray(array)
    if flat.flags.c_contiguous:
        flat = flat.reshape(-1)
        for start in range(0, flat.size, SEGMENT_ELEMENTS):
            yield flat[start : start + SEGMENT_ELEMENTS]
    else:
        for start in range(0, flat.size, SEGMENT_ELEMENTS):
            yield flat.flat[start : start + SEGMENT_ELEMENTS]


def statistics(array: NDArray[Any], *, threads: int = 1) -> TensorStatistics:
    """Return the statistics of a whole array.

    Parameters
    ----------
    array : ndarray
        Any shape, strides and byte order; bool, integer, float up to 64 bits, bfloat16, 8-bit float or complex.
    threads : int
        Number of segments that are scanned concurrently.

    Raises
    ------
    InputError
        The dtype has no statistics (text, objects, records), or `threads` is below 1.
    """
    if threads < 1:
        raise InputError(f"threads is {threads}; give at least 1")
    array = np.asarray(array)
    element_type(array.dtype)
    if threads == 1 or array.size <= SEGMENT_ELEMENTS:
        parts = [scan_segment(segment, index) for index, segment in enumerate(segments_of(array))]
    else:
        parts = _scan_in_threads(array, threads)
    return merge(parts, dtype=array.dtype, shape=array.shape)[0]


def _scan_in_threads(array: NDArray[Any], threads: int) -> list[Partial]:
    from concurrent.futures import ThreadPoolExecutor

    segments = enumerate(segments_of(array))
    lock = threading.Lock()

    def work() -> list[Partial]:
        parts: list[Partial] = []
        while True:
            with lock:  # each thread copies the segments that it scans, so there are at most `threads` copies
                index, segment = next(segments, (-1, None))
            if segment is None:
                return parts
            parts.append(scan_segment(segment, index))

    with ThreadPoolExecutor(threads, thread_name_prefix="tensight-scan") as pool:
        return [part for parts in pool.map(lambda _: work(), range(threads)) for part in parts]
