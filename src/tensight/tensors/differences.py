"""The element-wise difference of two tensors."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tensight.errors import InputError
from tensight.tensors.change_statistics import scan_changes
from tensight.tensors.elements import Route, element_type
from tensight.tensors.narrow_types import widened
from tensight.tensors.statistics_row import merge, scan_segment, segments_of, statistics

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from tensight.tensors.schema import TensorStatistics


@dataclass(frozen=True, slots=True)
class Difference:
    """The element-wise difference of two tensors, as in MindInsight's tensor comparison.

    Attributes
    ----------
    values : float64 or complex128, the tensors' shape
        ``current - previous``, with differences within the boundary set to 0.
    boundary : float
        ``tolerance`` times the largest finite magnitude of a difference.
    current, previous, statistics : TensorStatistics
        Statistics of the two tensors and of `values`.
    """

    values: NDArray[Any]
    boundary: float
    current: TensorStatistics
    previous: TensorStatistics
    statistics: TensorStatistics


def difference(current: NDArray[Any], previous: NDArray[Any], tolerance: float = 0.0) -> Difference:
    """Return the difference of two tensors of the same shape and dtype.

    Differences are computed in double precision (integers above 2**53 are rounded first); for complex tensors the
    magnitude of a difference is compared with the boundary.

    Parameters
    ----------
    current, previous : ndarray
    tolerance : float
        0 to 1: differences up to this share of the largest one count as 0.

    Raises
    ------
    InputError
        Shapes or dtypes differ, the dtype has no statistics, or the tolerance is outside 0 to 1.
    """
    reader = DifferenceReader.of(current, previous, tolerance)
    values = reader.values()
    return Difference(
        values, reader.boundary, statistics(reader.current), statistics(reader.previous), statistics(values)
    )


@dataclass(frozen=True, slots=True, eq=False)
class DifferenceReader:
    """The difference of two tensors, or of a part of them, computed on access.

    Attributes
    ----------
    current, previous : ndarray
        Arrays of the same shape and dtype; possibly maps of files larger than memory.
    boundary : float
        Finite differences up to this magnitude count as 0.
    """

    current: NDArray[Any]
    previous: NDArray[Any]
    boundary: float

    @classmethod
    def of(cls, current: NDArray[Any], previous: NDArray[Any], tolerance: float = 0.0) -> DifferenceReader:
        """Create the difference of two whole tensors; with a tolerance, both are read once. See `difference`."""
        current, previous = np.asarray(current), np.asarray(previous)
        if element_type(current.dtype) != element_type(previous.dtype) or current.shape != previous.shape:
            raise InputError(
                f"cannot compare {current.dtype} {list(current.shape)} with {previous.dtype} {list(previous.shape)}; "
                "shapes and dtypes must be the same"
            )
        if not 0 <= tolerance <= 1:
            raise InputError(f"tolerance is {tolerance}; give 0 to 1")
        return cls(current, previous, tolerance * _largest_change(current, previous) if tolerance else 0.0)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of differences: float64, or complex128 if the tensors are complex."""
        is_complex = element_type(self.current.dtype).route is Route.MAGNITUDE
        return np.dtype(np.complex128 if is_complex else np.float64)

    def __getitem__(self, index: Any) -> DifferenceReader:
        """Return the difference of a part, with the boundary of the whole."""
        return DifferenceReader(self.current[index], self.previous[index], self.boundary)

    def values(self) -> NDArray[Any]:
        """Return all differences, in the tensors' shape."""
        return self._within_boundary(self.current, self.previous)

    def segments(self) -> Iterator[NDArray[Any]]:
        """Yield the differences in C order as 1-D segments, like `segments_of`."""
        for current, previous in zip(segments_of(self.current), segments_of(self.previous), strict=True):
            yield self._within_boundary(current, previous)

    def statistics(self) -> TensorStatistics:
        """Return the statistics of the differences, reading the tensors segment by segment."""
        parts = [scan_segment(segment, index) for index, segment in enumerate(self.segments())]
        return merge(parts, dtype=self.dtype, shape=self.current.shape)[0]

    def _within_boundary(self, current: NDArray[Any], previous: NDArray[Any]) -> NDArray[Any]:
        with np.errstate(invalid="ignore", over="ignore"):
            values = np.asarray(_numbers(current, self.dtype) - _numbers(previous, self.dtype))
            if self.boundary:
                sizes = np.abs(values)
                values[np.isfinite(sizes) & (sizes <= self.boundary)] = 0
            else:
                values += 0.0  # turns negative zeros into 0
        return values


def _largest_change(current: NDArray[Any], previous: NDArray[Any]) -> float:
    """Return the largest finite magnitude of a difference, 0 if there is none."""
    largest = scan_changes(zip(segments_of(current), segments_of(previous), strict=True), atol=0.0).max_abs_change
    if math.isinf(largest):  # differences of finite numbers that overflow are ignored
        sizes = (np.abs(segment) for segment in DifferenceReader(current, previous, 0.0).segments())
        largest = max(float(size.max(where=np.isfinite(size), initial=0.0)) for size in sizes)
    return 0.0 if math.isnan(largest) else largest


def _numbers(array: NDArray[Any], kind: np.dtype[Any]) -> NDArray[Any]:
    """Return elements as `kind`; a bool is 0 or 1, for any value of its byte."""
    if array.dtype == np.bool_:
        array = np.asarray(array, order="C").view(np.uint8) != 0
    return widened(array).astype(kind)
