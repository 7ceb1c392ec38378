"""Tensors in messages: requests, reading pieces, and cutting a tensor into pieces."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tensight.graph.protobuf_fields import LENGTH_DELIMITED, ProtobufFormatError, fields, varint
from tensight.wire.chunks import chunks
from tensight.wire.data_types import data_type_of, numpy_dtype, shape_of
from tensight.wire.debugger_pb2 import TensorProto
from tensight.wire.errors import WireError
from tensight.wire.protocol import MOST_DIMENSIONS
from tensight.wire.text import encoded, name, slot_number

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from tensight.graph import Node

PREVIOUS = b"prev"
"""`TensorProto.iter` of the value in the previous step."""

Io = Literal["output", "input"]

_NODE_NAME, _SLOT, _CONTENT, _DIMS, _DATA_TYPE, _FINISHED, _ITER, _TRUNCATE, _GRAPH, _IO = (*range(1, 9), 1000, 1001)
_SCALARS = frozenset({_DATA_TYPE, _FINISHED, _TRUNCATE})
_TEXTS = frozenset({_NODE_NAME, _SLOT, _CONTENT, _ITER, _GRAPH, _IO})

_MOST_FIELDS = 1_000
"""Millions of tiny fields would keep the reader busy for seconds; a real message has ten, and 64 dims."""


@dataclass(frozen=True, slots=True)
class TensorRequest:
    """The tensor that a message is about.

    Attributes
    ----------
    node : str
        Full name of the node in its process.
    slot : int
    previous : bool
        Whether the value of the previous step is meant.
    truncate : bool
        Only the part of `node` after its last slash counts.
    graph : str
        Empty if a process does not need it to identify nodes.
    io : {"output", "input"}
    """

    node: str
    slot: int
    previous: bool = False
    truncate: bool = False
    graph: str = ""
    io: Io = "output"


@dataclass(frozen=True, slots=True)
class TensorPiece:
    """A piece of a tensor, or the message that there is none.

    Attributes
    ----------
    node, slot, previous, truncate, graph, io
        As in `TensorRequest`.
    dims : tuple of int
        Shape of the whole tensor.
    data_type : int
        DataType number of the elements.
    content : memoryview
        A piece of the elements, as a view of the message: C order, little-endian.
    finished : bool
        Whether this is the last piece.
    """

    node: str
    slot: int
    previous: bool
    truncate: bool
    dims: tuple[int, ...]
    data_type: int
    content: memoryview
    finished: bool
    graph: str
    io: Io

    @property
    def is_missing(self) -> bool:
        """Whether the process reports that it has no such value."""
        return self.finished and not (self.content or self.data_type or self.dims)

    @property
    def request(self) -> TensorRequest:
        """The tensor of this piece."""
        return TensorRequest(self.node, self.slot, self.previous, self.truncate, self.graph, self.io)


def tensor_piece(raw: bytes | memoryview) -> TensorPiece:
    """Parse a serialized TensorProto without copying its content.

    Parameters
    ----------
    raw : bytes or memoryview
        Must live as long as the piece.

    Raises
    ------
    WireError
        The bytes are not a TensorProto, or no tensor has such a shape, slot or name.
    """
    values: dict[int, int] = {}
    texts: dict[int, memoryview] = {}
    dims: list[int] = []
    try:
        for count, (number, wire_type, value) in enumerate(fields(raw)):
            if count == _MOST_FIELDS:
                raise WireError(f"a piece of a tensor has more than {_MOST_FIELDS:,} fields")
            if isinstance(value, int):
                if number == _DIMS:
                    dims.append(_signed(value, 64))
                elif number in _SCALARS:
                    values[number] = value
            elif wire_type == LENGTH_DELIMITED and number == _DIMS:
                dims.extend(_packed(value))
            elif wire_type == LENGTH_DELIMITED and number in _TEXTS:
                texts[number] = value
            if len(dims) > MOST_DIMENSIONS:
                raise WireError(f"a tensor has more than {MOST_DIMENSIONS} dimensions")
    except ProtobufFormatError as error:
        raise WireError(f"a message is not a piece of a tensor: {error}") from error
    data_type = _signed(values.get(_DATA_TYPE, 0), 32)
    dtype = numpy_dtype(data_type)
    return TensorPiece(
        node=name(bytes(texts.get(_NODE_NAME, b""))),
        slot=slot_number(bytes(texts.get(_SLOT, b""))),
        previous=texts.get(_ITER, b"") == PREVIOUS,
        truncate=bool(values.get(_TRUNCATE)),
        dims=shape_of(dims, dtype.itemsize if dtype else 1),
        data_type=data_type,
        content=texts.get(_CONTENT, memoryview(b"")),
        finished=bool(values.get(_FINISHED)),
        graph=name(bytes(texts.get(_GRAPH, b""))),
        io="input" if texts.get(_IO, b"") == b"input" else "output",
    )


def _packed(content: memoryview) -> Iterator[int]:
    """Yield packed numbers, up to one more than a tensor may have."""
    position, end = 0, len(content)
    for _ in range(MOST_DIMENSIONS + 1):
        if position == end:
            return
        value, position = varint(content, position, end)
        yield _signed(value, 64)


def _signed(value: int, bits: int) -> int:
    """Interpret the lowest bits of a number as a signed integer, as protobuf does."""
    value &= 2**bits - 1
    return value - 2**bits if value >> (bits - 1) else value


def tensor_request(node: Node, slot: int, *, previous: bool = False, graph: str = "", io: Io = "output") -> TensorProto:
    """Return a request for a tensor.

    Parameters
    ----------
    node : Node
    slot : int
    previous : bool
        Request its value in the previous step.
    graph : str
        Name of the graph that contains the node.
    io : {"output", "input"}
    """
    full_name = node.full_name or node.name
    # MindSpore uses only the part after the last slash of such a name, unless the slash belongs to the name
    truncate = not node.is_operator and "/" not in full_name
    request = TensorRequest(full_name, slot, previous, truncate, graph, io)
    return TensorProto(**_fields_of(request))


def received_request(message: TensorProto) -> TensorRequest:
    """Parse a server's request for a tensor.

    Raises
    ------
    WireError
        There cannot be such a slot or name.
    """
    return TensorRequest(
        name(message.node_name),
        slot_number(message.slot),
        message.iter == PREVIOUS,
        message.truncate,
        name(message.graph),
        "input" if message.io == b"input" else "output",
    )


def tensor_messages(request: TensorRequest, array: NDArray[Any] | None) -> Iterator[TensorProto]:
    """Yield the response to a request: the tensor in pieces, or the message that there is none.

    Parameters
    ----------
    request : TensorRequest
    array : ndarray or None
        Any dtype that `data_type_of` supports.

    Raises
    ------
    WireError
        The dtype cannot be sent.
    """
    echo = _fields_of(request)
    if array is None:
        yield TensorProto(**echo, finished=True)
        return
    content, data_type = array_content(array)
    pieces = list(chunks(content))
    for number, piece in enumerate(pieces, 1):
        yield TensorProto(
            **echo,
            tensor_content=bytes(piece),
            dims=array.shape,
            data_type=data_type,
            finished=number == len(pieces),
        )


def array_content(array: NDArray[Any]) -> tuple[memoryview, int]:
    """Return the elements of an array for messages, C order and little-endian, and their DataType.

    Raises
    ------
    WireError
        The dtype cannot be sent.
    """
    data_type = data_type_of(array.dtype)
    dtype = numpy_dtype(data_type)
    if dtype is None:
        raise WireError(f"a tensor of dtype {array.dtype} cannot be sent; convert it to a numeric dtype first")
    plain = np.ascontiguousarray(array, dtype=dtype).reshape(-1)
    return plain.view(np.uint8).data, data_type


def _fields_of(request: TensorRequest) -> dict[str, Any]:
    """Return the fields of a TensorProto that identify the tensor."""
    return {
        "node_name": encoded(request.node),
        "slot": str(request.slot).encode(),
        "iter": PREVIOUS if request.previous else b"",
        "truncate": request.truncate,
        "graph": encoded(request.graph),
        "io": b"input" if request.io == "input" else b"",
    }
