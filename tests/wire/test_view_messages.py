"""Views that a training process computes: asked for, answered in pieces, put together again."""

from __future__ import annotations

import math
from typing import Any, get_args

import ml_dtypes
import numpy as np
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st

from tensight.errors import InputError
from tensight.graph import Node
from tensight.tensors import View, ViewKind, ViewResult, compute_view, statistics
from tensight.wire import (
    CHUNK_BYTES,
    AssembledView,
    ViewAssembler,
    WireError,
    summary_of,
    tensor_request,
    view_failure,
    view_of,
    view_pieces,
    view_request,
)
from tensight.wire.debugger_pb2 import TensorBase, TensorProto, ViewRequest
from tensight.wire.telemetry_pb2 import ViewPiece

REQUEST = tensor_request(Node("Default/ReLU-op4", "ReLU"), 1, graph="g")
_VIEWS = st.builds(
    View,
    st.sampled_from(get_args(ViewKind)),
    st.sampled_from(["", "[0, :, ::-1]", "[:, :, 0]", "[1, 1, 1]", "[:, 0:0, :]"]),
    st.floats(0, 1),
    st.integers(1, 1024),
    st.integers(1, 1024),
    st.integers(1, 200),
    st.integers(1, 2**24),
)


def sent(view: View, result: ViewResult) -> AssembledView:
    """Send a result over the wire, and put it together on the other side."""
    assembler = ViewAssembler([view])
    found = None
    for piece in view_pieces(0, result):
        assert found is None
        assert piece.ByteSize() < 4 * 2**20
        found = assembler.add(ViewPiece.FromString(piece.SerializeToString()))
    assert found is not None
    assert assembler.missing == ()
    return found


def assert_same(one: ViewResult | None, other: ViewResult) -> None:
    assert one is not None
    assert (one.slice, one.shape, one.dtype) == (other.slice, other.shape, other.dtype)
    assert repr((one.statistics, one.previous_statistics)) == repr((other.statistics, other.previous_statistics))
    assert repr(one.histogram) == repr(other.histogram)
    assert (one.array is None) == (other.array is None)
    if one.array is not None and other.array is not None:
        assert (one.array.dtype, one.array.shape) == (other.array.dtype, other.array.shape)
        assert one.array.tobytes() == other.array.tobytes()


# asking ---------------------------------------------------------------------------------------------------------------


@given(view=_VIEWS, which=st.sampled_from(["current", "previous", "difference"]))
def test_a_request_arrives_as_it_was_made(view: View, which: Any) -> None:
    message = ViewRequest.FromString(view_request(REQUEST, view, which).SerializeToString())
    asked = view_of(message)
    assert (asked.view, asked.which) == (view, which)
    assert (asked.tensor.node, asked.tensor.slot, asked.tensor.graph) == ("Default/ReLU-op4", 1, "g")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"which": b"next"}, "an unknown tensor is requested: 'next'"),
        ({"which": b"\xff" * 10**6}, "an unknown tensor is requested"),
        ({"kind": b"secrets"}, "there is no view 'secrets'"),
        ({"rows": 0}, "rows is 0"),
        ({"columns": 10**6}, "columns is"),
        ({"bins": -1}, "bins is -1"),
        ({"limit": 2**62}, "limit is"),
        ({"tolerance": math.nan}, "tolerance is nan"),
        ({"slice": b"[0" * 10**5}, "the slice has"),
        ({"tensor": TensorProto(slot=b"x")}, "not a number"),
    ],
)
def test_a_request_for_what_there_is_not_is_refused(fields: dict[str, Any], message: str) -> None:
    request = view_request(REQUEST, View("values"))
    for name, value in fields.items():
        if isinstance(value, TensorProto):
            request.tensor.CopyFrom(value)
        else:
            setattr(request, name, value)
    with pytest.raises(WireError, match=message):
        view_of(request)


@settings(deadline=None)
@given(raw=st.binary(max_size=100))
def test_any_request_is_a_view_or_an_error(raw: bytes) -> None:
    try:
        message = ViewRequest.FromString(raw)
    except DecodeError:
        return
    try:
        view_of(message)
    except WireError:
        return


# answers --------------------------------------------------------------------------------------------------------------


DTYPES = [np.dtype(code) for code in "?bhqfd"]
DTYPES += [np.dtype(one) for one in (ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2)]


@settings(deadline=None)
@given(view=_VIEWS, which=st.sampled_from(["current", "previous", "difference"]), dtype=st.sampled_from(DTYPES))
def test_an_answer_arrives_as_it_was_computed(view: View, which: Any, dtype: np.dtype[Any]) -> None:
    generator = np.random.default_rng(1)
    current, previous = ((generator.standard_normal((2, 30, 4)) * 9).astype(dtype) for _ in range(2))
    try:
        result = compute_view(view, which, current, previous)
    except InputError:
        return
    assert_same(sent(view, result).result, result)


def test_large_answers_come_in_pieces() -> None:
    array = np.random.default_rng(1).standard_normal((CHUNK_BYTES // 4, 2)).astype(np.float32)
    view = View("values", "[:, :]", limit=array.size)
    result = compute_view(view, "current", array)
    assert [len(piece.content) for piece in view_pieces(0, result)] == [CHUNK_BYTES] * 2
    assert_same(sent(view, result).result, result)


def test_a_dtype_that_the_protocol_lacks_can_be_described_but_its_values_not_sent() -> None:
    result = ViewResult(np.zeros(1, "U3"), "[:]", (1,), "str96")
    with pytest.raises(WireError, match="cannot be sent"):
        list(view_pieces(0, result))


def test_answers_come_in_any_order_and_some_fail() -> None:
    views = [View("statistics"), View("histogram", bins=2), View("values")]
    results = [compute_view(view, "current", np.arange(4.0)) for view in views]
    assembler = ViewAssembler(views)
    (last,), (first,) = (view_pieces(index, results[index]) for index in (2, 0))
    assert assembler.missing == (0, 1, 2)
    arrived = assembler.add(last)
    assert arrived is not None
    assert_same(arrived.result, results[2])
    assert assembler.add(view_failure(1, "out of memory")) == AssembledView(1, None, "out of memory")
    assert assembler.missing == (0,)
    assert assembler.add(first) is not None
    assert view_failure(0, "").error


def test_a_failure_may_come_after_the_first_pieces() -> None:
    assembler = ViewAssembler([View("values")])
    (piece,) = view_pieces(0, compute_view(View("values"), "current", np.arange(4.0)))
    piece.finished, piece.content = False, piece.content[:8]
    assert assembler.add(piece) is None
    failed = assembler.add(view_failure(0, "out of memory"))
    assert failed is not None
    assert failed.result is None


def _values(**changes: Any) -> ViewPiece:
    (piece,) = view_pieces(0, compute_view(View("values"), "current", np.arange(4, dtype=np.float32)))
    piece.MergeFrom(ViewPiece(**changes))
    return piece


@pytest.mark.parametrize(
    ("view", "piece", "message"),
    [
        (View("values"), _values(index=1), "arrives at position 1"),
        (View("values"), _values(index=-1), "arrives at position -1"),
        (View("values"), _values(content=b"1"), "ends after 1"),
        (View("values"), _values(content=bytes(17)), "arrives with more"),
        (View("values"), _values(dims=[1]), r"with the shape \[4, 1\]"),
        (View("values"), _values(data_type=99), "not numeric"),
        (View("values"), _values(slice=b"[:]\r\nSet-Cookie: a"), "a part that the tensor does not have"),
        (View("values"), _values(slice=b"[0:2]"), r"of shape \[2\] arrive"),
        (View("values", limit=3), _values(), "at most 3 values"),
        (View("values"), _values(tensor=TensorBase(shape=[-1])), "can be negative"),
        (View("values"), ViewPiece(dims=[2**62], data_type=11, slice=b"[:]"), "does not have"),
        (View("heat_map"), _values(), "a heat map of 256 x 256"),
        (View("heat_map", columns=2), _values(data_type=11), "a heat map of 256 x 2"),
        (View("slices"), _values(data_type=11), "a map of 256 x 256 slices"),
        (View("next"), _values(), "one element was requested"),
        (View("statistics"), _values(), "arrive incomplete"),
        (View("statistics"), _values(summary=summary_of(statistics(np.arange(3)), complete=False)), "incomplete"),
        (View("histogram", bins=2), _values(counts=[1], edges=[0, 1]), "2 bins arrives with 1 counts"),
        (View("histogram", bins=2), _values(counts=[1, -1], edges=[0, 1, 2]), "negative counts"),
        (View("histogram", bins=2), _values(counts=[1, 1], edges=[0, 2, 1]), "edges that do not rise"),
        (View("histogram", bins=2), _values(counts=[1, 1], edges=[0, 1, math.nan]), "edges that do not rise"),
        (View("histogram", bins=1), _values(counts=[4], edges=[0, 1]), "a view of 0 bytes arrives with more"),
    ],
)
def test_an_answer_that_does_not_fit_the_request_is_refused(view: View, piece: ViewPiece, message: str) -> None:
    with pytest.raises(WireError, match=message):
        ViewAssembler([view]).add(piece)


def test_no_view_is_answered_twice() -> None:
    assembler = ViewAssembler([View("values")])
    assert assembler.add(_values()) is not None
    with pytest.raises(WireError, match="each once"):
        assembler.add(_values())


@settings(deadline=None)
@given(
    view=_VIEWS,
    pieces=st.lists(
        st.builds(
            ViewPiece,
            index=st.integers(-1, 1),
            error=st.sampled_from([b"", b"", b"\xff"]),
            data_type=st.integers(0, 50),
            dims=st.lists(st.integers(-1, 3), max_size=3),
            content=st.binary(max_size=12),
            finished=st.booleans(),
            counts=st.lists(st.integers(-1, 5), max_size=3),
            edges=st.lists(st.floats(), max_size=4),
            slice=st.sampled_from([b"", b"[0, :]", b"[:, :]", b"[\xff]"]),
            tensor=st.builds(TensorBase, shape=st.lists(st.integers(-1, 3), max_size=3), data_type=st.integers(0, 50)),
        ),
        max_size=5,
    ),
)
def test_any_pieces_are_a_view_or_an_error(view: View, pieces: list[ViewPiece]) -> None:
    assembler = ViewAssembler([view])
    for piece in pieces:
        try:
            found = assembler.add(piece)
        except WireError:
            return
        if found is not None and found.result is not None and found.result.array is not None:
            assert found.result.array.size <= max(view.limit, view.rows * view.columns)
