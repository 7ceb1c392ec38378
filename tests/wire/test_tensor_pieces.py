"""Tensors in messages: asked for, cut into pieces, and read without a copy."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tensight.graph import Node
from tensight.graph.data_types import data_type_name
from tensight.wire import (
    CHUNK_BYTES,
    MOST_DIMENSIONS,
    MOST_NAME,
    TensorRequest,
    WireError,
    chunks,
    data_type_of,
    encoded,
    name,
    numpy_dtype,
    received_request,
    shape_of,
    slot_number,
    tensor_messages,
    tensor_piece,
    tensor_request,
    text,
)
from tensight.wire.debugger_pb2 import TensorProto


def varint(value: int) -> bytes:
    value &= 2**64 - 1
    written = b""
    while value > 0x7F:
        written += bytes([value & 0x7F | 0x80])
        value >>= 7
    return written + bytes([value])


def number_field(number: int, value: int) -> bytes:
    return varint(number << 3) + varint(value)


def bytes_field(number: int, value: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(value)) + value


# reading a piece ------------------------------------------------------------------------------------------------------


def test_a_piece_is_read_as_protobuf_reads_it() -> None:
    message = TensorProto(
        node_name=b"Default/conv1/Conv2D-op3",
        slot=b"2",
        tensor_content=b"\x00\x01\x02\x03",
        dims=[1, 2],
        data_type=10,
        finished=True,
        iter=b"prev",
        truncate=True,
        graph=b"kernel_graph_0",
        io=b"input",
    )
    piece = tensor_piece(message.SerializeToString())
    assert piece.request == TensorRequest("Default/conv1/Conv2D-op3", 2, True, True, "kernel_graph_0", "input")
    assert (piece.dims, piece.data_type, piece.finished, piece.is_missing) == ((1, 2), 10, True, False)
    assert bytes(piece.content) == b"\x00\x01\x02\x03"


def test_the_content_of_a_piece_is_not_copied() -> None:
    raw = TensorProto(node_name=b"a", tensor_content=bytes(CHUNK_BYTES), dims=[CHUNK_BYTES]).SerializeToString()
    piece = tensor_piece(raw)
    assert piece.content.obj is raw
    assert len(piece.content) == CHUNK_BYTES


def test_fields_come_in_any_order_more_than_once_and_unknown_ones_are_skipped() -> None:
    fields = [
        bytes_field(3, b"old"),
        number_field(5, 11),
        number_field(4, 2),
        bytes_field(4, varint(3) + varint(4)),  # packed
        number_field(4, 5),
        bytes_field(1, b"old name"),
        bytes_field(1, b"name"),
        bytes_field(2, b"7"),
        bytes_field(3, b"new"),
        number_field(6, 2**63),
        bytes_field(2000, b"later"),
        number_field(2001, 1),
        varint(2002 << 3 | 1) + bytes(8),
        varint(2003 << 3 | 5) + bytes(4),
        bytes_field(6, b"wrong type: not ours"),
        number_field(1, 9),
        bytes_field(7, b""),
    ]
    piece = tensor_piece(b"".join(fields))
    assert (piece.node, piece.slot, piece.dims, piece.data_type) == ("name", 7, (2, 3, 4, 5), 11)
    assert (bytes(piece.content), piece.finished, piece.previous) == (b"new", True, False)


def test_a_missing_tensor_is_told_from_an_empty_one_and_from_a_scalar() -> None:
    assert tensor_piece(TensorProto(node_name=b"a", slot=b"0", finished=True).SerializeToString()).is_missing
    empty = TensorProto(node_name=b"a", dims=[0], data_type=11, finished=True)
    assert not tensor_piece(empty.SerializeToString()).is_missing
    scalar = TensorProto(node_name=b"a", data_type=11, tensor_content=bytes(4), finished=True)
    assert not tensor_piece(scalar.SerializeToString()).is_missing


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"\xff", "not a piece of a tensor"),
        (bytes_field(1, b"name")[:-1], "not a piece of a tensor"),
        (b"\x0b", "not a piece of a tensor"),  # a group
        (number_field(4, -1), "no dimension can be negative"),
        (number_field(4, 2**40) * 3, "cannot be addressed"),
        (number_field(4, 2**62) + number_field(5, 11), "cannot be addressed"),
        (number_field(4, 0) + number_field(4, 2**62) * 2, "cannot be addressed"),
        (number_field(4, 1) * 65, "more than 64 dimensions"),
        (bytes_field(4, b"\x01" * 10**6), "more than 64 dimensions"),
        (bytes_field(4, b"\x80"), "not a piece of a tensor"),
        (bytes_field(2, b"one"), "'one' is not a number"),
        (bytes_field(2, b"4294967296"), "is not a number"),
        (bytes_field(2, "\u0663".encode()), "is not a number"),
        (bytes_field(1, b"n" * (MOST_NAME + 1)), "a name has more than"),
        (bytes_field(1000, b"n" * 10**6), "a name has more than"),
        (number_field(99, 0) * 10**6, "more than 1,000 fields"),
    ],
)
def test_nonsense_is_refused_with_a_reason(raw: bytes, message: str) -> None:
    with pytest.raises(WireError, match=message):
        tensor_piece(raw)


@settings(deadline=None)
@given(raw=st.binary(max_size=200))
def test_any_bytes_are_a_piece_or_an_error(raw: bytes) -> None:
    try:
        piece = tensor_piece(raw)
    except WireError:
        return
    assert 0 <= piece.slot < 2**31
    assert all(length >= 0 for length in piece.dims)
    np.empty((0, *piece.dims))  # a shape that NumPy takes


_FIELD = st.one_of(
    st.builds(number_field, st.sampled_from([4, 5, 6, 8, 17, 1000]), st.integers(0, 2**64 - 1)),
    st.builds(bytes_field, st.sampled_from([1, 2, 3, 4, 7, 1000, 1001, 3000]), st.binary(max_size=20)),
)


@settings(deadline=None)
@given(fields=st.lists(_FIELD, max_size=20))
def test_whatever_is_read_is_what_protobuf_reads(fields: list[bytes]) -> None:
    raw = b"".join(fields)
    try:
        piece = tensor_piece(raw)
    except WireError:
        return
    message = TensorProto.FromString(raw)
    assert piece.request == received_request(message)
    assert piece.dims == tuple(message.dims)
    assert (piece.data_type, piece.finished) == (message.data_type, message.finished)
    assert bytes(piece.content) == message.tensor_content


# asking for a tensor --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("node", "truncate"),
    [
        (Node("Default/conv1/Conv2D-op3", "Conv2D", full_name="Default/conv1/Conv2D-op3"), False),
        (Node("conv1.weight", "Parameter", full_name="conv1.weight"), True),
        (Node("Default--data-3", "Const", full_name="Default--data-3"), True),
        (Node("shared/conv1.weight", "Parameter", full_name="shared/conv1.weight"), False),
        (Node("generated", "Parameter"), True),
    ],
)
def test_parameters_and_constants_are_asked_for_without_their_scope(node: Node, truncate: bool) -> None:
    message = tensor_request(node, 1)
    assert message == TensorProto(node_name=node.name.encode(), slot=b"1", truncate=truncate)


def test_a_request_uses_the_name_that_the_process_knows() -> None:
    assert tensor_request(Node("Default/a#2", "ReLU", full_name="Default/a"), 0).node_name == b"Default/a"


def test_the_previous_value_the_graph_and_an_input_are_named() -> None:
    message = tensor_request(Node("a", "ReLU"), 0, previous=True, graph="g", io="input")
    assert (message.iter, message.graph, message.io) == (b"prev", b"g", b"input")


@given(
    request=st.builds(
        TensorRequest,
        st.text(max_size=30),
        st.integers(0, 2**31 - 1),
        st.booleans(),
        st.booleans(),
        st.text(max_size=30),
        st.sampled_from(["input", "output"]),
    )
)
def test_an_answer_names_the_tensor_that_was_asked_for(request: TensorRequest) -> None:
    (missing,) = tensor_messages(request, None)
    piece = tensor_piece(missing.SerializeToString())
    assert piece.is_missing
    assert piece.request == received_request(missing) == request


# cutting a tensor into pieces -----------------------------------------------------------------------------------------


_SENDABLE = [np.dtype(code) for code in ("?", "i1", "u2", ">i4", "<i8", "u8", "f2", ">f4", "f8", "c8", ">c16")]


@settings(deadline=None)
@given(array=st.sampled_from(_SENDABLE).flatmap(lambda d: hnp.arrays(d, hnp.array_shapes(min_dims=0, min_side=0))))
def test_a_tensor_arrives_as_it_was_sent(array: np.ndarray) -> None:
    pieces = [tensor_piece(m.SerializeToString()) for m in tensor_messages(TensorRequest("a", 0), array)]
    assert [piece.finished for piece in pieces] == [False] * (len(pieces) - 1) + [True]
    first = pieces[0]
    dtype = numpy_dtype(first.data_type)
    arrived = np.frombuffer(b"".join(bytes(piece.content) for piece in pieces), dtype).reshape(first.dims)
    assert arrived.astype(array.dtype).tobytes() == array.tobytes()
    assert arrived.shape == array.shape


def test_large_tensors_are_cut_into_pieces_that_any_peer_accepts() -> None:
    array = np.arange(CHUNK_BYTES * 2 // 4 + 1, dtype=np.float32).reshape(-1, 1)[::-1]
    messages = list(tensor_messages(TensorRequest("a", 0), array))
    assert [len(message.tensor_content) for message in messages] == [CHUNK_BYTES, CHUNK_BYTES, 4]
    assert all(message.ByteSize() < 4 * 2**20 for message in messages)
    assert b"".join(message.tensor_content for message in messages) == array.tobytes()


def test_what_has_no_type_in_the_protocol_cannot_be_sent() -> None:
    with pytest.raises(WireError, match="cannot be sent"):
        list(tensor_messages(TensorRequest("a", 0), np.array(["text"])))


@given(data=st.binary(max_size=50), size=st.integers(1, 20))
def test_chunks_put_together_are_the_content_and_never_none(data: bytes, size: int) -> None:
    pieces = list(chunks(data, size))
    assert b"".join(pieces) == data
    assert pieces
    assert all(len(piece) == size for piece in pieces[:-1])


# types, shapes, text --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16"])
def test_a_dtype_and_its_number_belong_together(code: str) -> None:
    dtype = np.dtype(code)
    assert numpy_dtype(data_type_of(dtype)) == dtype.newbyteorder("<")
    assert data_type_of(dtype.newbyteorder(">")) == data_type_of(dtype.name) == data_type_of(dtype)
    if dtype.kind != "c":
        assert data_type_name(data_type_of(dtype)) == f"DT_{dtype.name.upper()}"


@pytest.mark.parametrize(("name", "number"), [("float8_e4m3fn", 1843), ("float8_e5m2", 1852)])
def test_8_bit_floats_travel_under_numbers_of_tensights_own(name: str, number: int) -> None:
    dtype = np.dtype(getattr(ml_dtypes, name))
    assert data_type_of(dtype) == data_type_of(name) == number
    assert numpy_dtype(number) == dtype
    assert data_type_of("float8_e4m3fnuz") == 0


def test_bfloat16_travels_as_in_mindspore() -> None:
    assert data_type_of(np.dtype(ml_dtypes.bfloat16)) == 46
    assert numpy_dtype(46) == np.dtype(ml_dtypes.bfloat16)


@given(number=st.integers(-(2**31), 2**31 - 1))
def test_any_number_is_a_dtype_or_none(number: int) -> None:
    dtype = numpy_dtype(number)
    assert dtype is None or data_type_of(dtype) == number


@pytest.mark.parametrize("dtype", ["int4", "string", "tensor", "tuple", "U3", "", "float128"])
def test_types_without_elements_of_whole_bytes_have_no_number(dtype: str) -> None:
    assert data_type_of(dtype) == 0


@given(dims=st.lists(st.integers(-(2**63), 2**63 - 1), max_size=70), item_bytes=st.sampled_from([1, 4, 16]))
def test_any_dims_are_a_shape_or_an_error(dims: list[int], item_bytes: int) -> None:
    try:
        shape = shape_of(dims, item_bytes)
    except WireError:
        return
    assert len(shape) <= MOST_DIMENSIONS
    assert math.prod(shape) * item_bytes < 2**63


@given(data=st.binary(max_size=60), limit=st.integers(0, 30))
def test_any_bytes_are_a_text_within_its_limit(data: bytes, limit: int) -> None:
    decoded = text(data, limit)
    assert len(decoded) <= limit
    assert text(data).startswith(decoded)
    decoded.encode()


@given(word=st.text(max_size=40))
def test_names_arrive_as_they_were_sent(word: str) -> None:
    assert name(encoded(word)) == word


@pytest.mark.parametrize(("data", "reads"), [(b"caf\xc3\xa9", "café"), (b"caf\xe9", "caf\\xe9")])
def test_bytes_that_are_no_utf8_stay_visible_as_in_a_graph(data: bytes, reads: str) -> None:
    assert text(data) == name(data) == reads


def test_half_a_surrogate_pair_can_be_sent() -> None:
    assert encoded("\ud800") == b"\\ud800"


@given(data=st.binary(max_size=12) | st.integers(-(2**70), 2**70).map(lambda number: str(number).encode()))
def test_any_bytes_are_a_slot_or_an_error(data: bytes) -> None:
    try:
        slot: Any = slot_number(data)
    except WireError:
        return
    assert 0 <= slot < 2**31
