"""Small graphs made by hand, and files of them."""

from __future__ import annotations

from tensight.graph import Edge, Graph, Node, OutputSlot, parse_graph
from tensight.graph import ms_graph_pb2 as pb

FLOAT = OutputSlot(11, "float32", (2, 3))
INTEGER = OutputSlot(4, "int32", (1,))


def parameter(name: str, slot: OutputSlot = FLOAT) -> Node:
    return Node(name, "Parameter", id=name, full_name=name, outputs=(slot,))


def constant(name: str, value: pb.ValueProto | None = None) -> Node:
    return Node(name, "Const", id=name, full_name=name, raw_value=value.SerializeToString() if value else b"")


def operator(name: str, *inputs: str, slots: int = 1) -> Node:
    """An operator whose type is the part of its name before ``-op``."""
    scope, _, short = name.rpartition("/")
    kind = short.partition("-op")[0]
    return Node(name, kind, scope, name, name, tuple(Edge(source) for source in inputs), (FLOAT,) * slots)


def graph(*nodes: Node) -> Graph:
    return Graph("kernel_graph_0", nodes)


def index(number: int) -> pb.ValueProto:
    return pb.ValueProto(dtype=5, int_val=number)


def parsed(model: pb.GraphProto, where: str = "a.pb") -> Graph:
    return parse_graph(pb.ModelProto(ir_version=1, graph=model).SerializeToString(), where=where)


def names(nodes: object) -> list[str]:
    return [node.name for node in nodes]  # type: ignore[attr-defined]
