"""Views that a training process computes: requests, and responses in pieces."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from tensight.errors import InputError
from tensight.tensors import Histogram, View, ViewKind, ViewResult, Which, parse_slice, slice_text
from tensight.tensors.narrow_types import dtype_name
from tensight.tensors.views import LONGEST_SLICE, SEARCHES
from tensight.wire.chunks import chunks
from tensight.wire.data_types import data_type_of, numpy_dtype, shape_of
from tensight.wire.debugger_pb2 import TensorBase, TensorSummary, ViewRequest
from tensight.wire.errors import WireError
from tensight.wire.statistics import received_statistics, summary_of
from tensight.wire.telemetry_pb2 import ViewPiece
from tensight.wire.tensor_pieces import TensorRequest, array_content, received_request
from tensight.wire.text import encoded, text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tensight.tensors import TensorStatistics
    from tensight.wire.debugger_pb2 import TensorProto

_LONGEST_WORD = 40


@dataclass(frozen=True, slots=True)
class RequestedView:
    """A view requested by the server.

    Attributes
    ----------
    tensor : TensorRequest
    view : View
    which : {"current", "previous", "difference"}
    iteration : int or None
        An earlier one; None for that at which the process is stopped.
    """

    tensor: TensorRequest
    view: View
    which: Which
    iteration: int | None = None


@dataclass(frozen=True, slots=True)
class AssembledView:
    """The response to a request.

    Attributes
    ----------
    index : int
        Index of the request.
    result : ViewResult or None
    error : str
        Why there is no result.
    """

    index: int
    result: ViewResult | None
    error: str = ""


def view_request(
    tensor: TensorProto, view: View, which: Which = "current", iteration: int | None = None
) -> ViewRequest:
    """Return a request for a view of a tensor; see `tensor_request`, whose `previous` is ignored here.

    Parameters
    ----------
    tensor : TensorProto
    view : View
    which : {"current", "previous", "difference"}
    iteration : int, optional
        An earlier one; by default that at which the process is stopped.
    """
    return ViewRequest(
        tensor=tensor,
        which=encoded(which),
        kind=encoded(view.kind),
        slice=encoded(view.slice),
        tolerance=view.tolerance,
        rows=view.rows,
        columns=view.columns,
        bins=view.bins,
        limit=view.limit,
        iteration=iteration,
    )


def view_of(message: ViewRequest) -> RequestedView:
    """Parse a server's request for a view.

    Raises
    ------
    WireError
        There is no such view, tensor or slot.
    """
    which = text(message.which, _LONGEST_WORD)
    if which not in ("current", "previous", "difference"):
        raise WireError(f"a view of an unknown tensor is requested: {which!r}")
    try:
        view = View(
            kind=cast("ViewKind", text(message.kind, _LONGEST_WORD)),
            slice=text(message.slice, LONGEST_SLICE + 1),
            tolerance=message.tolerance,
            rows=message.rows,
            columns=message.columns,
            bins=message.bins,
            limit=message.limit,
        )
    except InputError as error:
        raise WireError(f"an unknown view is requested: {error}") from error
    iteration = message.iteration if message.HasField("iteration") else None
    return RequestedView(received_request(message.tensor), view, cast("Which", which), iteration)


def view_pieces(index: int, result: ViewResult) -> Iterator[ViewPiece]:
    """Yield the response to the request at position `index`, in pieces that any gRPC peer accepts.

    Raises
    ------
    WireError
        The dtype of the array cannot be sent.
    """
    first = ViewPiece(
        index=index,
        slice=encoded(result.slice),
        tensor=TensorBase(data_type=data_type_of(result.dtype), shape=result.shape),
    )
    if result.statistics is not None:
        first.summary.CopyFrom(summary_of(result.statistics))
    if result.previous_statistics is not None:
        first.previous_summary.CopyFrom(summary_of(result.previous_statistics))
    if result.histogram is not None:
        first.counts.extend(result.histogram.counts.tolist())
        first.edges.extend(result.histogram.edges.tolist())
    if result.array is None:
        first.finished = True
        yield first
        return
    content, first.data_type = array_content(result.array)
    first.dims.extend(result.array.shape)
    pieces = list(chunks(content))
    for number, piece in enumerate(pieces, 1):
        message = first if number == 1 else ViewPiece(index=index)
        message.content, message.finished = bytes(piece), number == len(pieces)
        yield message


def view_failure(index: int, reason: str) -> ViewPiece:
    """Return the response that there is no view, with the reason."""
    return ViewPiece(index=index, error=encoded(reason) or b"no reason given", finished=True)


class ViewAssembler:
    """Assembles the responses to some requests, storing no more than was requested.

    Parameters
    ----------
    views : sequence of View
        In the order of the requests.
    """

    def __init__(self, views: Sequence[View]) -> None:
        self._views = tuple(views)
        self._begun: dict[int, _Begun] = {}
        self._done: set[int] = set()

    @property
    def missing(self) -> tuple[int, ...]:
        """Indices of the requests without a complete response."""
        return tuple(index for index in range(len(self._views)) if index not in self._done)

    def add(self, piece: ViewPiece) -> AssembledView | None:
        """Add a piece; return the view if it is now complete.

        Raises
        ------
        WireError
            The piece does not belong to a request, or does not fit the request or the pieces before it.
        """
        index = piece.index
        if not 0 <= index < len(self._views) or index in self._done:
            raise WireError(f"a view arrives at position {index}; {len(self._views)} were requested, each once")
        if piece.error:
            self._done.add(index)
            self._begun.pop(index, None)
            return AssembledView(index, None, text(piece.error))
        begun = self._begun.get(index)
        if begun is None:
            begun = self._begun[index] = _begin(self._views[index], piece)
        if len(begun.content) + len(piece.content) > begun.size_bytes:
            raise WireError(f"a view of {begun.size_bytes:,} bytes arrives with more")
        begun.content += piece.content
        if not piece.finished:
            return None
        if len(begun.content) != begun.size_bytes:
            raise WireError(f"a view of {begun.size_bytes:,} bytes ends after {len(begun.content):,}")
        self._done.add(index)
        return AssembledView(index, self._begun.pop(index).complete())


@dataclass(slots=True)
class _Begun:
    """A view whose first piece has arrived."""

    result: ViewResult
    dtype: np.dtype[Any] | None
    dims: tuple[int, ...]
    content: bytearray = field(default_factory=bytearray)

    @property
    def size_bytes(self) -> int:
        return math.prod(self.dims) * self.dtype.itemsize if self.dtype else 0

    def complete(self) -> ViewResult:
        if self.dtype is None:
            return self.result
        array = np.frombuffer(bytes(self.content), self.dtype).reshape(self.dims)
        return replace(self.result, array=array)


def _begin(view: View, piece: ViewPiece) -> _Begun:
    """Parse the first piece; refuse it if it does not match the request."""
    shape = shape_of(piece.tensor.shape)
    dtype = numpy_dtype(piece.tensor.data_type)
    if view.kind in SEARCHES and not piece.dims and not piece.data_type:
        return _Begun(ViewResult(None, "", shape, dtype_name(dtype) if dtype else ""), None, ())
    try:
        index = parse_slice(text(piece.slice, LONGEST_SLICE), shape)
    except InputError as error:
        raise WireError(f"a view shows a part that the tensor does not have: {error}") from error
    result = ViewResult(None, slice_text(index, shape), shape, dtype_name(dtype) if dtype else "")
    if view.kind == "statistics":
        previous = _statistics(piece.previous_summary) if piece.HasField("previous_summary") else None
        result = replace(result, statistics=_statistics(piece.summary), previous_statistics=previous)
    elif view.kind == "histogram":
        result = replace(result, histogram=_histogram(view, piece))
    else:
        return _Begun(result, *_array_type(view, piece, index, shape))
    return _Begun(result, None, ())


def _array_type(
    view: View, piece: ViewPiece, index: Sequence[int | slice], shape: tuple[int, ...]
) -> tuple[np.dtype[Any], tuple[int, ...]]:
    """Return dtype and shape of the array that follows."""
    dtype = numpy_dtype(piece.data_type)
    if dtype is None:
        raise WireError(f"a view has elements of the DataType {piece.data_type}, which is not numeric")
    dims = shape_of(piece.dims, dtype.itemsize)
    if view.kind == "heat_map":
        if dtype != np.float32 or len(dims) != 2 or dims[0] > view.rows or dims[1] > view.columns:
            raise WireError(f"a heat map of {view.rows} x {view.columns} cells arrives as {dtype} {list(dims)}")
        return dtype, dims
    if view.kind == "slices":
        if dtype != np.float64 or len(dims) != 3 or dims[0] != 3 or dims[1] > view.rows or dims[2] > view.columns:
            raise WireError(f"a map of {view.rows} x {view.columns} slices arrives as {dtype} {list(dims)}")
        return dtype, dims
    if view.kind in SEARCHES and any(isinstance(entry, slice) for entry in index):
        raise WireError("one element was requested, and several arrive")
    ranges = (entry.indices(length) for entry, length in zip(index, shape, strict=True) if isinstance(entry, slice))
    chosen = tuple(len(range(*each)) for each in ranges)
    if dims != chosen or math.prod(dims) > view.limit:
        raise WireError(f"at most {view.limit:,} values of shape {list(chosen)} arrive with the shape {list(dims)}")
    return dtype, dims


def _statistics(summary: TensorSummary) -> TensorStatistics:
    received = received_statistics(summary)
    if received is None or received.whole is None:
        raise WireError("requested statistics arrive incomplete; views come from Tensight's agents")
    return received.whole


def _histogram(view: View, piece: ViewPiece) -> Histogram:
    counts, edges = np.array(piece.counts, np.int64), np.array(piece.edges, np.float64)
    if not len(counts) == view.bins == len(edges) - 1:
        raise WireError(f"a histogram of {view.bins} bins arrives with {len(counts)} counts, {len(edges)} edges")
    if (counts < 0).any() or not np.isfinite(edges).all() or (np.diff(edges) < 0).any():
        raise WireError("a histogram has negative counts, or edges that do not rise")
    return Histogram(counts, edges)
