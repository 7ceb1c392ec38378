"""A program becomes a graph that reads back as it was: names, edges, stacks, roles of parameters."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

import pytest

from tensight.agents.core.graph_messages import (
    MOST_FILE_BYTES,
    OUTSIDE,
    SourceTexts,
    execution_order,
    graph_chunks,
    graph_message,
    graph_number,
)
from tensight.agents.core.program import Program, StackFrame, TracedNode
from tensight.graph import OutputSlot, optimizer_states, trainable_weights
from tensight.graph.parsing import parse_graph_proto
from tensight.wire.debugger_pb2 import Chunk
from tests.agents import numpy_training
from tests.agents.numpy_training import FORWARD, GRADIENTS, LOSS, MOMENTS, SPLIT, WEIGHTS, Network

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tensight.client import Session
    from tensight.graph import Graph
    from tests.agents.agent_stage import Scene

Debug = Callable[..., "tuple[Scene, Session]"] if TYPE_CHECKING else object

FLOAT = OutputSlot.of_tensor(11, (2, 3))
FRAME = StackFrame("/home/me/net.py", 12, "forward", "y = self.conv(x)")


def program(*nodes: TracedNode, name: str = "kernel_graph_0") -> Program:
    return Program(name, 0, nodes)


def read(written: Program) -> Graph:
    return parse_graph_proto(graph_message(written), where="here")


def weight(name: str = "fc.weight") -> TracedNode:
    return TracedNode(name, "Parameter", "weight", (), (FLOAT,))


def test_names_types_scopes_and_stacks_read_back() -> None:
    node = TracedNode("Default/fc/Linear-op0", "Linear", "operator", (("fc.weight", 0),), (FLOAT,), (FRAME, FRAME))
    graph = read(program(weight(), node))
    assert [node.name for node in graph.nodes] == ["fc.weight", "Default/fc/Linear-op0"]
    found = graph.node("Default/fc/Linear-op0")
    assert (found.type, found.scope, found.full_name) == ("Linear", "Default/fc", found.name)
    assert [(frame.file, frame.line, frame.code) for frame in found.frames] == [
        ("/home/me/net.py", 12, "y = self.conv(x)")
    ] * 2
    assert found.outputs == (FLOAT,)
    assert graph.node("fc.weight").outputs == (FLOAT,)
    assert not graph.problems


def test_the_output_that_is_taken_out_of_several_is_known() -> None:
    split = TracedNode("Default/Split-op0", "Split", "operator", (("x", 0),), (FLOAT, OutputSlot.of_tensor(5, ())))
    users = [
        TracedNode(f"Default/User-op{slot}", "User", "operator", (("Default/Split-op0", slot), ("x", 0)), (FLOAT,))
        for slot in (0, 1, 1)
    ]
    users[2] = TracedNode("Default/User-op2", "User", "operator", users[1].inputs, (FLOAT,))
    graph = read(program(TracedNode("x", "Parameter", "input", (), (FLOAT,)), split, *users))
    sources = [[(node.name, slot) for node, slot in graph.producers(graph.node(user.name))] for user in users]
    assert sources == [[("Default/Split-op0", slot), ("x", 0)] for slot in (0, 1, 1)]
    assert [slot.shape for slot in graph.node("Default/Split-op0").outputs] == [(2, 3), ()]
    assert sum(node.type == "TupleGetItem" for node in graph.operators) == 2


def test_an_input_from_outside_keeps_the_others_in_their_places() -> None:
    node = TracedNode("Default/Add-op0", "Add", "operator", (None, ("fc.weight", 0), ("unknown", 0)), (FLOAT,))
    graph = read(program(weight(), node))
    assert [edge.source for edge in graph.node("Default/Add-op0").inputs] == [OUTSIDE, "fc.weight", OUTSIDE]
    assert not graph.problems


def test_what_is_trained_and_what_is_the_optimizers_is_known() -> None:
    debugger = numpy_training.NumpyDebugger(Network(), numpy_training.AgentSettings())
    debugger.agent.capturing = True
    debugger.network.step(debugger._see, debugger.reader.wrote)
    graph = read(debugger.program())
    debugger.agent.close()
    assert [node.name for node in trainable_weights(graph)] == [*WEIGHTS]
    assert [node.name for node in optimizer_states(graph)] == [*MOMENTS]
    assert execution_order(debugger.program())[: len(FORWARD)] == [*FORWARD]


def test_attributes_are_what_they_were() -> None:
    attributes = {"stride": 2, "eps": 1e-5, "inplace": True, "mode": "zeros", "huge": 2**70, "half": "\ud800"}
    node = TracedNode("Default/Op-op0", "Op", "operator", (), (FLOAT,), (), attributes)
    found = read(program(node)).node("Default/Op-op0").attributes
    assert found == {**attributes, "huge": float(2**70), "half": "\\ud800"}


def test_code_and_files_with_odd_characters_stay_one_line() -> None:
    odd = StackFrame("/home/Зоя/a b.py", 3, "f", "x = '''\n# In file /etc/passwd:1/ y'''")
    node = TracedNode("Default/Op-op0", "Op", "operator", (), (FLOAT,), (odd,))
    (frame,) = read(program(node)).node("Default/Op-op0").frames
    assert (frame.file, frame.line) == ("/home/Зоя/a b.py", 3)
    assert frame.code.startswith("x = '''")


def test_a_tensor_of_unknown_shape_and_no_tensor_are_no_shapes() -> None:
    outputs = (OutputSlot(11, "float32", (-1, 3)), OutputSlot(34, "", None))
    node = TracedNode("Default/Op-op0", "Op", "operator", (), outputs)
    assert read(program(node)).node("Default/Op-op0").outputs == outputs


@pytest.mark.parametrize(("name", "number"), [("kernel_graph_7", 7), ("kernel_graph_0", 0), ("odd", 0)])
def test_the_number_of_a_graph_is_in_its_name(name: str, number: int) -> None:
    written = program(weight(), name=name)
    assert graph_number(written) == number
    assert read(written).name == name
    assert read(written).root_id == number


def test_a_graph_travels_in_pieces_that_any_peer_accepts() -> None:
    order = [f"Default/{'x' * 100}/Op-op{number}" for number in range(30_000)]
    data = bytes(7 * 2**20)
    pieces = list(graph_chunks(data, order, {"/a.py": "print()"}))
    assert all(piece.ByteSize() < 4 * 2**20 for piece in pieces)
    assert b"".join(piece.buffer for piece in pieces) == data
    assert [name.decode() for piece in pieces for name in piece.execution_order] == order
    assert [piece.finished for piece in pieces] == [False] * (len(pieces) - 1) + [True]
    assert pieces[0].sources[0].text == b"print()"
    assert list(graph_chunks(b"")) == [Chunk(finished=True)]


def test_each_file_is_sent_once_and_none_that_is_no_code_of_a_person(tmp_path: Path) -> None:
    small, large = tmp_path / "small.py", tmp_path / "large.py"
    small.write_text("y = x\n")
    large.write_text("#" * (MOST_FILE_BYTES + 1))
    frames = tuple(StackFrame(str(file), 1, "f", "") for file in (small, large, tmp_path / "missing.py", small))
    node = TracedNode("Default/Op-op0", "Op", "operator", (), (FLOAT,), frames)
    texts = SourceTexts()
    assert texts.of([program(node)]) == {str(small): "y = x\n"}
    assert texts.of([program(node)]) == {}
    texts.forget()
    assert list(texts.of([program(node)])) == [str(small)]


def test_a_person_sees_the_graph_the_code_and_the_order(debug: Debug) -> None:
    _, session = debug(steps=4, network={"other_at": (2,)})
    assert [graph.name for graph in session.graphs()] == ["kernel_graph_0"]
    session.step(2).wait(30)
    assert [graph.name for graph in session.graphs()] == ["kernel_graph_0", "kernel_graph_1"]
    node = session.node(GRADIENTS[1], graph="kernel_graph_1")
    (line,) = node.stack
    assert (line.file, line.code) == (numpy_training.__file__, _line_of("see(GRADIENTS[1]"))
    text = session.source_text(numpy_training.__file__)
    assert text == inspect.getsource(numpy_training)
    assert session.node(SPLIT).name == SPLIT
    positions = {row.node: row.position for row in session.statistics()}
    assert positions[FORWARD[0]] < positions[SPLIT] < positions[LOSS] < positions[WEIGHTS[0]]


def _line_of(start: str) -> str:
    lines = map(str.strip, inspect.getsource(numpy_training).splitlines())
    return next(line for line in lines if line.startswith(start))
