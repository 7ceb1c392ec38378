"""The stand-in's own messages: they read what the real MindSpore wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.standin.mindspore_messages import CALLS, DATA_TYPE, messages, rows
from tests.standin.mindspore_network import graph_of, make_network

if TYPE_CHECKING:
    from pathlib import Path

MODEL_GRAPH = b"\x22"  # field 4 of ModelProto: its graph
MODEL_VERSION = b"\x08\x01"


def graph_in(model: bytes) -> bytes:
    """Cut the graph out of a file that holds a version and a graph."""
    assert model.startswith(MODEL_VERSION + MODEL_GRAPH)
    start = len(MODEL_VERSION) + 1
    while model[start] & 0x80:
        start += 1
    return model[start + 1 :]


def test_a_graph_that_mindspore_wrote_is_understood_to_the_last_field(dump_200: Path) -> None:
    (file,) = dump_200.glob("rank_0/graphs/*graph_0.pb")
    graph = messages.GraphProto.FromString(graph_in(file.read_bytes()))
    assert graph.root_name == "0"
    known = graph.ByteSize()
    graph.DiscardUnknownFields()
    # Unknown are the kinds of lists in attributes that the stand-in never writes; they are next to nothing.
    assert known - graph.ByteSize() < known / 100
    assert {node.op_type for node in graph.node} >= {"Conv2D", "ReLU", "Load", "MakeTuple"}
    assert {parameter.type.data_type for parameter in graph.parameters} == {DATA_TYPE["DT_TENSOR"]}


def test_the_graph_of_the_stand_in_hangs_together() -> None:
    graph = graph_of(make_network())
    known = {node.name for node in graph.node}
    known |= {parameter.name for parameter in graph.parameters} | {constant.key for constant in graph.const_vals}
    assert {each.name for node in graph.node for each in node.input} <= known
    assert len({node.full_name for node in graph.node}) == len(graph.node)


def test_a_row_of_the_table_may_go_over_several_lines() -> None:
    assert rows("A: 1 x int32;\n  2 y string\nB: 1 z bool") == [("A", ["1 x int32", "2 y string"]), ("B", ["1 z bool"])]


def test_every_call_has_its_request() -> None:
    assert len(CALLS) == 9
    assert all(hasattr(messages, request) for request, _ in CALLS.values())
