"""Two tensors side by side: current, previous, and what lies between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tensight.errors import InputError
from tensight.tensors.elements import Route, element_type
from tensight.tensors.statistics_row import TensorStatistics, statistics

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Difference:
    """The element-wise difference of two tensors, as in the original's tensor comparison.

    Attributes
    ----------
    values : float64 or complex128, the tensors' shape
        ``current - previous``, with what is within the boundary set to 0.
    boundary : float
        ``tolerance`` times the largest finite magnitude of a difference.
    current, previous, statistics : TensorStatistics
        Of the two tensors and of `values`.
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
        0 to 1: differences up to this share of the largest one count as none.

    Raises
    ------
    InputError
        Shapes or dtypes differ, the dtype has no statistics, or the tolerance is outside 0 to 1.
    """
    current, previous = np.asarray(current), np.asarray(previous)
    element = element_type(current.dtype)
    if element != element_type(previous.dtype) or current.shape != previous.shape:
        raise InputError(
            f"cannot compare {current.dtype} {list(current.shape)} with {previous.dtype} {list(previous.shape)}; "
            "shapes and dtypes must be the same"
        )
    if not 0 <= tolerance <= 1:
        raise InputError(f"tolerance is {tolerance}; give 0 to 1")
    wide = np.complex128 if element.route is Route.MAGNITUDE else np.float64
    with np.errstate(invalid="ignore", over="ignore"):
        values = np.asarray(_numbers(current, wide) - _numbers(previous, wide))
        sizes = np.abs(values)
    finite = np.isfinite(sizes)
    boundary = float(sizes.max(where=finite, initial=0.0)) * tolerance
    values[finite & (sizes <= boundary)] = 0
    return Difference(values, boundary, statistics(current), statistics(previous), statistics(values))


def _numbers(array: NDArray[Any], kind: type[np.generic]) -> NDArray[Any]:
    """Return elements as wide numbers; a bool, whatever its byte, is 0 or 1."""
    if array.dtype == np.bool_:
        array = np.ascontiguousarray(array).view(np.uint8) != 0
    return array.astype(kind)
