from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensight.graph import Monad, Node, TensorValue, UnreadableValue
from tensight.graph import ms_graph_pb2 as pb

Value = pb.ValueProto


def decoded(value: pb.ValueProto) -> object:
    return Node("c", "Const", raw_value=value.SerializeToString()).value


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Value(dtype=1, bool_val=True), True),
        (Value(dtype=5), 0),
        (Value(dtype=3, int_val=-7), -7),
        (Value(dtype=9, uint_val=2**64 - 1), 2**64 - 1),
        (Value(dtype=11, float_val=0.5), 0.5),
        (Value(dtype=12, double_val=1e300), 1e300),
        (Value(dtype=13, str_val=b"NCHW"), "NCHW"),
        (Value(dtype=13, str_val=b"\xff"), "\\xff"),
        (Value(dtype=31, values=[Value(dtype=5, int_val=1), Value(dtype=13, str_val=b"a")]), (1, "a")),
        (Value(dtype=32, values=[Value(dtype=31)]), [()]),
        (Value(dtype=33, dict_val=[pb.NamedDictValueProto(key=b"k", value=Value(dtype=1))]), {"k": False}),
        (Value(dtype=34), None),
        (Value(dtype=20, int_vals=[1, -1]), [1, -1]),
        (Value(dtype=28, str_vals=[b"x"]), ["x"]),
        (
            Value(dtype=14, tensor_val=pb.TensorProto(dims=[1], data_type=11, tensor_content=b"\0\0\0\0")),
            TensorValue("float32", (1,), b"\0\0\0\0"),
        ),
        (Value(dtype=15, graph=pb.GraphProto(name=b"sub")), "graph sub"),
        (Value(dtype=39, type_val=pb.TypeProto(data_type=10)), "float16"),
        (
            Value(dtype=39, type_val=pb.TypeProto(data_type=14, tensor_type=pb.TypeProto.Tensor(elem_type=4))),
            "tensor[int32]",
        ),
        (Value(dtype=43), Monad("DT_UMONAD")),
        (Value(dtype=49, int_val=3), UnreadableValue("of type DT_SLICE")),
        (Value(dtype=99), UnreadableValue("of type DT_UNKNOWN_99")),
    ],
)
def test_values_become_plain_objects(value: pb.ValueProto, expected: object) -> None:
    found = decoded(value)

    assert found == expected
    assert type(found) is type(expected)


def test_a_constant_that_is_not_in_the_graph_has_no_value() -> None:
    assert Node("c", "Const").value is None


def test_a_damaged_attribute_does_not_hide_its_neighbours() -> None:
    good = pb.AttributeProto(name=b"mode", value=Value(dtype=5, int_val=1)).SerializeToString()
    node = Node("n", "Conv2D", raw_attributes=(b"\xff\xff", good))

    assert dict(node.attributes) == {"attribute 0": UnreadableValue("damaged"), "mode": 1}


@given(st.binary(max_size=200))
def test_any_bytes_give_a_value(data: bytes) -> None:
    _ = Node("c", "Const", raw_value=data).value, dict(Node("n", "Mul", raw_attributes=(data,)).attributes)


def nested(levels: int) -> bytes:
    """A tuple in a tuple in a tuple, written byte by byte, because protobuf refuses to."""
    data = b"\x08\x1f"
    for _ in range(levels):
        length = len(data)
        size = bytes([length]) if length < 128 else bytes([length & 0x7F | 0x80, length >> 7])
        data = b"\x08\x1f\x92\x01" + size + data
    return data


def test_a_value_nested_beyond_reason_is_unreadable() -> None:
    assert isinstance(Node("c", "Const", raw_value=nested(60)).value, tuple)
    assert Node("c", "Const", raw_value=nested(1000)).value == UnreadableValue("damaged")
