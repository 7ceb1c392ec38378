"""Decoding of the attributes and constants of a graph from their serialized form."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from google.protobuf.message import DecodeError

from tensight.graph.data_types import (
    DT_DICT,
    DT_LIST,
    DT_NONE,
    DT_TUPLE,
    MONADS,
    data_type_name,
    numpy_dtype_name,
)

if TYPE_CHECKING:
    from tensight.graph.ms_graph_pb2 import TensorProto, ValueProto


@dataclass(frozen=True, slots=True)
class TensorValue:
    """A tensor that is stored in the graph.

    Attributes
    ----------
    dtype : str
        Name of the elements' dtype; empty if unknown.
    shape : tuple of int
        Shape as written; it may not match `content`.
    content : bytes
        The elements, little endian, C order; often empty, because MindSpore leaves out values that it dumps to a file.
    """

    dtype: str
    shape: tuple[int, ...]
    content: bytes


@dataclass(frozen=True, slots=True)
class UnreadableValue:
    """A value that is damaged, or of a type that this version does not support.

    Attributes
    ----------
    reason : str
        Why it cannot be read.
    """

    reason: str


@dataclass(frozen=True, slots=True)
class Monad:
    """The token that orders operators with side effects; it has no data.

    Attributes
    ----------
    data_type : str
        ``DT_UMONAD`` or ``DT_IOMONAD``.
    """

    data_type: str


def decode_text(text: bytes) -> str:
    r"""Decode a name or a line; bytes that are not UTF-8 are shown as ``\xff``."""
    return text.decode("utf-8", "backslashreplace")


def decode_value(data: bytes) -> object:
    """Decode a serialized ValueProto to a plain Python object.

    Returns
    -------
    object
        bool, int, float, str, tuple, list, dict, None, a type's name, `TensorValue` or `Monad`;
        `UnreadableValue` for damaged bytes, so that other values remain readable.
    """
    from tensight.graph.ms_graph_pb2 import ValueProto

    try:
        return _value(ValueProto.FromString(data))
    except DecodeError:
        return UnreadableValue("damaged")
    except RecursionError:
        return UnreadableValue("nested too deeply")


def decode_attributes(attributes: Iterable[bytes]) -> Mapping[str, object]:
    """Decode serialized AttributeProtos; if several have the same name, the last one counts."""
    from tensight.graph.ms_graph_pb2 import AttributeProto

    decoded: dict[str, object] = {}
    for index, data in enumerate(attributes):
        try:
            attribute = AttributeProto.FromString(data)
        except DecodeError:
            decoded[f"attribute {index}"] = UnreadableValue("damaged")
            continue
        decoded[decode_text(attribute.name)] = _value(attribute.value)
    return MappingProxyType(decoded)


def _value(value: ValueProto) -> object:
    """Decode a value by its declared type; protobuf's nesting limit (100) bounds the recursion."""
    if decoder := _DECODERS.get(value.dtype):
        return decoder(value)
    if value.dtype in MONADS:
        return Monad(data_type_name(value.dtype))
    if value.dtype == 0 and not value.ByteSize():
        return None
    return UnreadableValue(f"of type {data_type_name(value.dtype)}")


def _sequence(value: ValueProto) -> list[object]:
    return [_value(element) for element in value.values]


def _dictionary(value: ValueProto) -> dict[str, object]:
    return {decode_text(item.key): _value(item.value) for item in value.dict_val}


def _tensor(tensor: TensorProto) -> TensorValue:
    return TensorValue(numpy_dtype_name(tensor.data_type), tuple(tensor.dims), tensor.tensor_content)


def _type(value: ValueProto) -> str:
    declared = value.type_val
    if declared.HasField("tensor_type"):
        return f"tensor[{numpy_dtype_name(declared.tensor_type.elem_type)}]"
    return numpy_dtype_name(declared.data_type) or data_type_name(declared.data_type)


_Decoder = Callable[["ValueProto"], object]

# Keys are DataType numbers. Narrow integers are stored in the 64-bit fields.
_DECODERS: dict[int, _Decoder] = {
    1: lambda value: value.bool_val,
    **dict.fromkeys((2, 3, 4, 5, 48), lambda value: value.int_val),
    **dict.fromkeys((6, 7, 8, 9), lambda value: value.uint_val),
    10: lambda value: value.float_val,
    11: lambda value: value.float_val,
    12: lambda value: value.double_val,
    13: lambda value: decode_text(value.str_val),
    14: lambda value: _tensor(value.tensor_val),
    15: lambda value: f"graph {decode_text(value.graph.name)}",
    16: lambda value: list(value.bool_vals),
    **dict.fromkeys((17, 18, 19, 20), lambda value: list(value.int_vals)),
    **dict.fromkeys((21, 22, 23, 24), lambda value: list(value.uint_vals)),
    25: lambda value: list(value.float_vals),
    26: lambda value: list(value.float_vals),
    27: lambda value: list(value.double_vals),
    28: lambda value: [decode_text(text) for text in value.str_vals],
    29: lambda value: [_tensor(tensor) for tensor in value.tensor_vals],
    30: lambda value: [f"graph {decode_text(graph.name)}" for graph in value.graphs],
    46: lambda value: value.float_val,
    DT_TUPLE: lambda value: tuple(_sequence(value)),
    DT_LIST: _sequence,
    DT_DICT: _dictionary,
    DT_NONE: lambda _: None,
    39: _type,
}
