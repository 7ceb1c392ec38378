"""Views of a tensor for display: a slice, a picture, its distribution, its statistics; computed where the tensor is.

A view of a part reads only that part, so that a window into a memory map of many gigabytes opens at once. Only a
difference with a tolerance reads both tensors first, because its boundary is a share of the largest difference. Memory
is always bounded: tensors are read segment by segment.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from tensight.errors import InputError
from tensight.tensors.differences import DifferenceReader
from tensight.tensors.element_search import first_striking, largest, next_non_finite
from tensight.tensors.elements import element_type
from tensight.tensors.heat_maps import MOST_CELLS, heat_map, heat_map_of_blocks
from tensight.tensors.histograms import MOST_BINS, histogram, histogram_of_segments
from tensight.tensors.narrow_types import dtype_name
from tensight.tensors.slice_maps import MOST_CELLS as MOST_SLICES
from tensight.tensors.slice_maps import slice_map
from tensight.tensors.slices import parse_slice, slice_text
from tensight.tensors.statistics_row import statistics

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tensight.tensors.histograms import Histogram
    from tensight.tensors.schema import TensorStatistics

ViewKind = Literal["values", "heat_map", "histogram", "statistics", "slices", "first", "largest", "next", "previous"]
Which = Literal["current", "previous", "difference"]
Index = tuple[int | slice, ...]

SEARCHES = ("first", "largest", "next", "previous")
"""Views that show one element and its index."""

MOST_ELEMENTS = 2**24
"""Maximum number of elements of a view of values; for more, download the file."""

LONGEST_SLICE = 4096
"""Maximum number of characters; 64 dimensions with three numbers each are shorter."""


@dataclass(frozen=True, slots=True)
class View:
    """A view to compute of a tensor.

    Attributes
    ----------
    kind : {"values", "heat_map", "histogram", "statistics", "slices", "first", "largest", "next", "previous"}
        "slices" is a map of all slices along the dimensions for which `slice` has an index. "first" is the first NaN or
        infinity, or if there is none the element of largest magnitude; "largest" the finite element of largest
        magnitude; "next" and "previous" the nearest NaN or infinity after and before the element that `slice` selects,
        wrapping around at the ends of the tensor.
    slice : str
        The part, in the syntax of `parse_slice`. If empty, values, heat maps and maps of slices show the last two
        dimensions at index 0 of the others, values only a window of at most `limit` elements; "next" and "previous"
        start outside the tensor; other views show the whole tensor.
    tolerance : float
        0 to 1; differences up to this share of the largest one count as 0.
    rows, columns : int
        Maximum number of cells of a heat map, 1 to 4096, or of a map of slices, 1 to 1024.
    bins : int
        Number of bins of a histogram, 1 to 10,000.
    limit : int
        Maximum number of elements of a view of values, 1 to 2**24.

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
        """Raise InputError for invalid fields, before the tensor is fetched."""
        if self.kind not in get_args(ViewKind):
            raise InputError(f"there is no view {self.kind[:80]!r}; known ones: {', '.join(get_args(ViewKind))}")
        if len(self.slice) > LONGEST_SLICE:
            raise InputError(f"the slice has {len(self.slice):,} characters; give at most {LONGEST_SLICE:,}")
        if not 0 <= self.tolerance <= 1:
            raise InputError(f"tolerance is {self.tolerance}; give 0 to 1")
        for name, value, most in (
            ("rows", self.rows, MOST_SLICES if self.kind == "slices" else MOST_CELLS),
            ("columns", self.columns, MOST_SLICES if self.kind == "slices" else MOST_CELLS),
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
        Values: the part, in C order and native byte order, of the tensor's dtype (for a difference float64 or
        complex128), with the remaining dimensions of the slice. Heat map: float32 (rows, columns). Map of slices: see
        `slice_map`. Searches: the element as values; None if there is none. Else None.
    slice : str
        The selected part, or the element that was found, as text for `parse_slice`; empty if nothing was found.
    shape : tuple of int
        Shape of the whole tensor.
    dtype : str
        Element type of the whole tensor.
    statistics : TensorStatistics or None
        For the kind "statistics": those of the part, or of the difference of both parts.
    previous_statistics : TensorStatistics or None
        Statistics of the previous part, in addition to those of a difference.
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
        View of the tensor, of the same tensor before, or of current minus previous.
    current, previous : ndarray or None
        Arrays of any supported dtype, possibly maps of files; None if `which` does not need it. For a difference both
        have the same shape and dtype.

    Raises
    ------
    InputError
        An array that is needed is missing, the slice does not fit the tensor, it has more elements than `View.limit`
        or too many dimensions for a heat map, or does not select an element to start from; the dtype has no statistics,
        or two tensors cannot be compared.
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
    if view.kind in SEARCHES:
        return _search(view, _Source(array))
    if view.kind == "slices":
        return _map_slices(view, _Source(array))
    index = _index(view, array.shape)
    part = array[(*index, ...)]  # with the ellipsis even a scalar stays an array
    result = ViewResult(None, slice_text(index, array.shape), array.shape, dtype_name(array.dtype))
    if view.kind == "values":
        _require_few(part.size, view.limit)
        return replace(result, array=np.array(part, dtype=_native(part.dtype), order="C"))
    if view.kind == "heat_map":
        return replace(result, array=heat_map(_as_matrix(part), view.rows, view.columns))
    if view.kind == "histogram":
        return replace(result, histogram=histogram(part, view.bins))
    return replace(result, statistics=statistics(part))


def _view_difference(view: View, current: NDArray[Any], previous: NDArray[Any]) -> ViewResult:
    if view.kind in SEARCHES or view.kind == "slices":
        source = _Source(current, DifferenceReader.of(current, previous, view.tolerance))
        return _search(view, source) if view.kind in SEARCHES else _map_slices(view, source)
    index = _index(view, current.shape)
    # Check the limit before reading both tensors for the boundary.
    if view.kind == "values":
        _require_few(current[(*index, ...)].size, view.limit)
    part = DifferenceReader.of(current, previous, view.tolerance)[(*index, ...)]
    result = ViewResult(None, slice_text(index, current.shape), current.shape, dtype_name(current.dtype))
    if view.kind == "values":
        return replace(result, array=part.values())
    if view.kind == "heat_map":
        matrix = DifferenceReader(_as_matrix(part.current), _as_matrix(part.previous), part.boundary)
        picture = heat_map_of_blocks(
            lambda rows, columns: matrix[rows, columns].values(), matrix.current.shape, view.rows, view.columns
        )
        return replace(result, array=picture)
    part_statistics = part.statistics()
    if view.kind == "histogram":
        return replace(result, histogram=histogram_of_segments(part.segments(), part_statistics, view.bins))
    return replace(result, statistics=part_statistics, previous_statistics=statistics(part.previous))


@dataclass(frozen=True, slots=True)
class _Source:
    """A tensor that is read in parts: an array, or a difference with `array` as its current tensor."""

    array: NDArray[Any]
    difference: DifferenceReader | None = None

    def __getitem__(self, index: Any) -> NDArray[Any]:
        if self.difference is None:
            return np.asarray(self.array[index])
        return self.difference[index].values()

    def part(self, index: Index, order: tuple[int, ...]) -> _Source:
        """Return a part with its dimensions in another order."""
        array = self.array[(*index, ...)].transpose(order)
        if self.difference is None:
            return _Source(array)
        previous = self.difference.previous[(*index, ...)].transpose(order)
        return _Source(array, DifferenceReader(array, previous, self.difference.boundary))

    @property
    def result(self) -> ViewResult:
        return ViewResult(None, "", self.array.shape, dtype_name(self.array.dtype))


def _search(view: View, source: _Source) -> ViewResult:
    """Search for an element; its index is in the whole tensor, also if the search is in a part."""
    shape = source.array.shape
    element_type(source.array.dtype)
    if view.kind in ("next", "previous"):
        backwards = view.kind == "previous"
        after = _position(view.slice, shape, math.prod(shape) if backwards else -1)
        position = next_non_finite(source.__getitem__, shape, after, backwards=backwards)
        index: Index = () if position is None else _unraveled(position, shape)
    else:
        ranges = _ranges(view.slice, shape)
        within = source.part(tuple(map(_slice_of, ranges)), tuple(range(len(shape))))
        search = first_striking if view.kind == "first" else largest
        position = search(within.__getitem__, within.array.shape)
        indices = () if position is None else _unraveled(position, within.array.shape)
        index = tuple(steps[number] for steps, number in zip(ranges, indices, strict=position is not None))
    if position is None:
        return source.result
    element = np.asarray(source[(*index, ...)])
    return replace(source.result, array=np.array(element, dtype=_native(element.dtype)), slice=slice_text(index, shape))


def _position(text: str, shape: tuple[int, ...], outside: int) -> int:
    """Return the position of an element in C order."""
    if not text.strip():
        return outside
    index = parse_slice(text, shape)
    if any(isinstance(entry, slice) for entry in index):
        raise InputError(f"{text[:60]!r} does not select one element; give an index for each dimension")
    indices = [entry % length for entry, length in zip(index, shape, strict=True) if isinstance(entry, int)]
    return int(np.ravel_multi_index(indices, shape)) if shape else 0


def _ranges(text: str, shape: tuple[int, ...]) -> tuple[range, ...]:
    """Return the indices of a part in each dimension; of all elements if the text is empty."""
    index = parse_slice(text, shape) if text.strip() else (slice(None),) * len(shape)
    return tuple(
        range(*entry.indices(length)) if isinstance(entry, slice) else range(entry % length, entry % length + 1)
        for entry, length in zip(index, shape, strict=True)
    )


def _slice_of(indices: range) -> slice:
    """Return the slice that selects a range of indices, which may descend to the first one."""
    return slice(indices.start, None if indices.stop < 0 else indices.stop, indices.step)


def _unraveled(position: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(int(index) for index in np.unravel_index(position, shape)) if shape else ()


def _map_slices(view: View, source: _Source) -> ViewResult:
    shape = source.array.shape
    index = _index(view, shape)
    leading = tuple(number for number, entry in enumerate(index) if isinstance(entry, int))
    if not leading:
        raise InputError("a map of slices needs dimensions that choose one; give an index for some dimension")
    part = tuple(number for number in range(len(shape)) if number not in leading)
    ranges = tuple(slice(None) if isinstance(entry, int) else entry for entry in index)
    ordered = source.part(ranges, (*leading, *part))
    lengths = ordered.array.shape
    element_type(source.array.dtype)
    picture = slice_map(ordered.__getitem__, lengths[: len(leading)], lengths[len(leading) :], view.rows, view.columns)
    return replace(source.result, array=picture, slice=slice_text(index, shape))


def _index(view: View, shape: tuple[int, ...]) -> Index:
    """Return the index of the part that a view shows."""
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
    """Return the size of the largest, roughly square window of at most `limit` elements."""
    if len(shape) == 1:
        return (limit,)
    height, width = shape
    columns = min(width, max(math.isqrt(limit), limit // height))
    return min(height, limit // columns), columns


def _require_few(count: int, limit: int) -> None:
    if count > limit:
        raise InputError(f"the slice has {count:,} elements, at most {limit:,} are shown; choose a smaller one")


def _as_matrix(part: NDArray[Any]) -> NDArray[Any]:
    """Return a part as a matrix for a heat map; fewer than two dimensions become one row."""
    if part.ndim < 2:
        return part.reshape(1, -1)
    return part if part.size or part.ndim == 2 else part.reshape(0, max(part.shape[-1], 1))


def _native(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return dtype.newbyteorder("=")
