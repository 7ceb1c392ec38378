"""Which constants of a graph cannot be what an anomaly comes from."""

from __future__ import annotations

import math
import struct

import pytest

from tensight.analysis import Anomaly
from tensight.analysis.constants import is_clean
from tensight.graph import Node
from tensight.graph import ms_graph_pb2 as pb

EVERY = set(Anomaly)


def floating(number: float) -> pb.ValueProto:
    return pb.ValueProto(dtype=11, float_val=number)


def text(printed: str) -> pb.ValueProto:
    return pb.ValueProto(dtype=13, str_val=printed.encode())


def tensor(content: bytes, kind: int = 11) -> pb.ValueProto:
    return pb.ValueProto(dtype=14, tensor_val=pb.TensorProto(data_type=kind, dims=(2,), tensor_content=content))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (pb.ValueProto(dtype=1, bool_val=False), EVERY),
        (pb.ValueProto(dtype=5, int_val=0), EVERY),
        (pb.ValueProto(dtype=31, values=[floating(0.5), pb.ValueProto(dtype=5, int_val=0)]), EVERY),
        (text("DefaultFormat"), EVERY),
        (floating(0.9), EVERY),
        (floating(0.0), EVERY - {Anomaly.ALL_ZERO}),
        (floating(1e7), EVERY - {Anomaly.EXPLOSION}),
        (floating(math.nan), EVERY - {Anomaly.NAN, Anomaly.OVERFLOW}),
        (floating(-math.inf), EVERY - {Anomaly.INF, Anomaly.OVERFLOW, Anomaly.EXPLOSION}),
        (text("Tensor(shape=[], dtype=Float32, value=1e-08)"), EVERY),
        (text("Tensor(shape=[2], dtype=Float32, value=[ 1.0 nan])"), EVERY - {Anomaly.NAN, Anomaly.OVERFLOW}),
        (text("Tensor(shape=[9, 9], dtype=Float32, value=[[ 1.0 1.0] ... [1.0 1.0]])"), set()),
        (text("Tensor(shape=[], dtype=Float32, value=?)"), set()),
        (text("Tensor(shape=[40], dtype=Int32, value=[...])"), EVERY),
        (tensor(struct.pack("<2f", 1.0, 2.0)), EVERY),
        (tensor(struct.pack("<2f", 1.0, math.nan)), EVERY - {Anomaly.NAN, Anomaly.OVERFLOW}),
        (tensor(b""), set()),
        (tensor(b"abc"), set()),
        (tensor(b"", kind=4), EVERY),
        (pb.ValueProto(dtype=33), set()),
        (None, set()),
    ],
)
def test_what_a_constant_rules_out(value: pb.ValueProto | None, expected: set[Anomaly]) -> None:
    node = Node("Default_data-1", "Const", raw_value=b"" if value is None else value.SerializeToString())
    assert {anomaly for anomaly in Anomaly if is_clean(node, anomaly, 1e6)} == expected
