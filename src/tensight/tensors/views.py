"""What a person sees of a tensor: a slice of it, a picture, its distribution, its statistics; computed where it lives.

A view of a part touches no more of the tensor than that part, so that a window into a memory map of many gigabytes
opens at once. Only a difference with a tolerance has to see both tensors first: its boundary is a share of the largest
difference anywhere. Whatever is computed, memory stays bounded: tensors are read segment by segment.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from tensight.errors import InputError
from tensight.tensors.differences import DifferenceReader
from tensight.tensors.heat_maps import MOST_CELLS, heat_map, heat_map_of_blocks
from tensight.tensors.histograms import MOST_BINS, histogram, histogram_of_segments
from tensight.tensors.slices import parse_slice, slice_text
from tensight.tensors.statistics_row import statistics

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tensight.tensors.histograms import Histogram
    from tensight.tensors.statistics_row import TensorStatistics

ViewKind = Literal["values", "heat_map", "histogram", "statistics"]
Which = Literal["current", "previous", "difference"]
Index = tuple[int | slice, ...]

MOST_ELEMENTS = 2**24
"""Elements of a view of values; whoever wants more wants the file."""

LONGEST_SLICE = 4096
"""Characters; 64 dimensions with three numbers each are shorter."""


@dataclass(frozen=True, slots=True)
class View:
    """What to compute of a tensor.

    Attributes
    ----------
    kind : {"values", "heat_map", "histogram", "statistics"}
    slice : str
        Which part, as `parse_slice` reads it. Empty means for values and heat maps the last two dimensions, index 0 of
        the others, and of values a window of at most `limit` elements; for histograms and statistics the whole tensor.
    tolerance : float
        0 to 1; of a difference, what is within this share of the largest one counts as none.
    rows, columns : int
        Most cells of a heat map, 1 to 4096.
    bins : int
        Of a histogram, 1 to 10,000.
    limit : int
        Most elements of a view of values, 1 to 2**24.

    Raises
    ------
    InputError
        A field is out of its range.
    """

    kind: ViewKind
    slice: str = ""
    tolerance: float = 0.0
    rows: int = 256
    columns: int = 256
    bins: int = 40
    limit: int = 100_000

    def __post_init__(self) -> None:
        """Refuse what could not be computed, before anybody fetches the tensor."""
        if self.kind not in get_args(ViewKind):
            raise InputError(f"there is no view {self.kind[:80]!r}; known ones: {', '.join(get_args(ViewKind))}")
        if len(self.slice) > LONGEST_SLICE:
            raise InputError(f"the slice has {len(self.slice):,} characters; give at most {LONGEST_SLICE:,}")
        if not 0 <= self.tolerance <= 1:
            raise InputError(f"tolerance is {self.tolerance}; give 0 to 1")
        for name, value, most in (
            ("rows", self.rows, MOST_CELLS),
            ("columns", self.columns, MOST_CELLS),
            ("bins", self.bins, MOST_BINS),
            ("limit", self.limit, MOST_ELEMENTS),
        ):
            if not 1 <= value <= most:
                raise InputError(f"{name} is {value}; give 1 to {most:,}")


@dataclass(frozen=True, slots=True)
class ViewResult:
    """A view of a tensor.

    Attributes
    ----------
    array : ndarray or None
        Values: the part, in C order and native byte order, of the tensor's dtype (of a difference float64 or
        complex128), with the dimensions that the slice leaves. Heat map: float32 (rows, columns). Else None.
    slice : str
        The part that was chosen, so written that `parse_slice` finds the same again.
    shape : tuple of int
        Of the whole tensor.
    dtype : str
        Of the whole tensor.
    statistics : TensorStatistics or None
        For the kind "statistics": of the part, or of the difference of both parts.
    previous_statistics : TensorStatistics or None
        Of the previous part, beside those of a difference.
    histogram : Histogram or None
        For the kind "histogram".
    """

    array: NDArray[Any] | None
    slice: str
    shape: tuple[int, ...]
    dtype: str
    statistics: TensorStatistics | None = None
    previous_statistics: TensorStatistics | None = None
    histogram: Histogram | None = None


def compute_view(
    view: View, which: Which, current: NDArray[Any] | None, previous: NDArray[Any] | None = None
) -> ViewResult:
    """Compute a view.

    Parameters
    ----------
    view : View
    which : {"current", "previous", "difference"}
        Of the tensor, of the same tensor before, or of current minus previous.
    current, previous : ndarray or None
        Any supported dtype, possibly maps of files; what `which` does not need may be None. For a difference both have
        one shape and dtype.

    Raises
    ------
    InputError
        An array that is needed is missing, the slice does not fit the tensor, it has more elements than `View.limit`
        or too many dimensions for a heat map, the dtype has no statistics, or two tensors cannot be compared.
    """
    if which not in get_args(Which):
        raise InputError(f"there is no {which!r} tensor to view; choose {', '.join(get_args(Which))}")
    if which == "difference":
        return _view_difference(view, _required(current, "current"), _required(previous, "previous"))
    return _view_one(view, _required(current, which) if which == "current" else _required(previous, which))


def _required(array: NDArray[Any] | None, name: str) -> NDArray[Any]:
    if array is None:
        raise InputError(f"the {name} value of the tensor is not known here; choose another view")
    return np.asarray(array)


def _view_one(view: View, array: NDArray[Any]) -> ViewResult:
    index = _index(view, array.shape)
    part = array[(*index, ...)]  # with the ellipsis even a scalar stays an array
    result = ViewResult(None, slice_text(index, array.shape), array.shape, array.dtype.name)
    if view.kind == "values":
        _require_few(part.size, view.limit)
        return replace(result, array=np.array(part, dtype=_native(part.dtype), order="C"))
    if view.kind == "heat_map":
        return replace(result, array=heat_map(_as_matrix(part), view.rows, view.columns))
    if view.kind == "histogram":
        return replace(result, histogram=histogram(part, view.bins))
    return replace(result, statistics=statistics(part))


def _view_difference(view: View, current: NDArray[Any], previous: NDArray[Any]) -> ViewResult:
    index = _index(view, current.shape)
    # what the limit refuses must not be read for its boundary first
    if view.kind == "values":
        _require_few(current[(*index, ...)].size, view.limit)
    part = DifferenceReader.of(current, previous, view.tolerance)[(*index, ...)]
    result = ViewResult(None, slice_text(index, current.shape), current.shape, current.dtype.name)
    if view.kind == "values":
        return replace(result, array=part.values())
    if view.kind == "heat_map":
        matrix = DifferenceReader(_as_matrix(part.current), _as_matrix(part.previous), part.boundary)
        picture = heat_map_of_blocks(
            lambda rows, columns: matrix[rows, columns].values(), matrix.current.shape, view.rows, view.columns
        )
        return replace(result, array=picture)
    found = part.statistics()
    if view.kind == "histogram":
        return replace(result, histogram=histogram_of_segments(part.segments(), found, view.bins))
    return replace(result, statistics=found, previous_statistics=statistics(part.previous))


def _index(view: View, shape: tuple[int, ...]) -> Index:
    """Return the part that a view shows."""
    if view.slice.strip():
        return parse_slice(view.slice, shape)
    if view.kind in ("histogram", "statistics"):
        return (slice(None),) * len(shape)
    leading: Index = tuple(0 if length else slice(None) for length in shape[:-2])
    last = shape[-2:]
    if view.kind == "values" and math.prod(last) > view.limit:
        return (*leading, *(slice(0, length) for length in _window(last, view.limit)))
    return (*leading, *(slice(None) for _ in last))


def _window(shape: tuple[int, ...], limit: int) -> tuple[int, ...]:
    """Return the size of the largest window of at most `limit` elements that is about as high as wide."""
    if len(shape) == 1:
        return (limit,)
    height, width = shape
    columns = min(width, max(math.isqrt(limit), limit // height))
    return min(height, limit // columns), columns


def _require_few(count: int, limit: int) -> None:
    if count > limit:
        raise InputError(f"the slice has {count:,} elements, at most {limit:,} are shown; choose a smaller one")


def _as_matrix(part: NDArray[Any]) -> NDArray[Any]:
    """Return what a heat map can show: fewer than two dimensions are one row."""
    if part.ndim < 2:
        return part.reshape(1, -1)
    return part if part.size or part.ndim == 2 else part.reshape(0, max(part.shape[-1], 1))


def _native(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return dtype.newbyteorder("=")
