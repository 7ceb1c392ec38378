"""Execution order and execution history."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensight.dumps import TensorFile, open_dump
from tensight.dumps.execution import parse_history, parse_order, usable_history
from tests.dumps.dump_writer import DumpWriter, GraphWriter

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def writer(tmp_path: Path) -> DumpWriter:
    writer = DumpWriter(tmp_path / "run")
    graph = GraphWriter().parameter("w").operator("Default/Add-op1").operator("Default/Mul-op2")
    writer.graph(graph)
    return writer


def order_file(writer: DumpWriter) -> Path:
    return writer.rank() / "execution_order" / "ms_execution_order_graph_0.csv"


def test_tensors_come_in_the_order_of_execution_inputs_first_parameters_last(writer: DumpWriter) -> None:
    order_file(writer).write_text("NodeExecutionOrder-FullNameWithScope\nDefault/Mul-op2\nDefault/Add-op1\n")
    for head, io, slot in (
        ("Parameter.w", "output", 0),
        ("Add.Add-op1", "output", 0),
        ("Mul.Mul-op2", "output", 0),
        ("Mul.Mul-op2", "input", 1),
        ("Mul.Mul-op2", "input", 0),
        ("Sub.Sub-op9", "output", 0),
    ):
        writer.tensor(0, head, io=io, slot=slot)
    dump = open_dump(writer.root)
    assert dump.execution_order(0) == ("Default/Mul-op2", "Default/Add-op1")
    tensors = dump.tensors()
    assert [(tensor.op_type, tensor.io, tensor.slot) for tensor in tensors] == [
        ("Mul", "input", 0),
        ("Mul", "input", 1),
        ("Mul", "output", 0),
        ("Add", "output", 0),
        ("Parameter", "output", 0),
        ("Sub", "output", 0),
    ]
    positions = [dump.execution_position(tensor) for tensor in tensors]
    assert positions[:5] == [0, 0, 0, 1, 2]
    assert positions[5] > 1000


@pytest.mark.parametrize("text", [None, "", "NodeExecutionOrder-FullNameWithScope\n", "\x00\x01"])
def test_without_a_usable_order_the_graph_decides(writer: DumpWriter, text: str | None) -> None:
    if text is None:
        order_file(writer).unlink()
    else:
        order_file(writer).write_text(text)
    assert open_dump(writer.root).execution_order(0) == ("Default/Add-op1", "Default/Mul-op2")


def test_an_order_of_another_graph_is_a_problem_with_counts(writer: DumpWriter) -> None:
    order_file(writer).write_text("Default/Mul-op2\nDefault/Sub-op7\nDefault/Div-op8\n")
    dump = open_dump(writer.root)
    assert dump.execution_order(0) == ("Default/Mul-op2",)
    assert any("2 of 3 operators are not in graph 0" in str(problem) for problem in dump.problems)


def test_the_previous_tensor_is_of_the_iteration_that_ran_last_before(writer: DumpWriter) -> None:
    writer.history(0, 1, 4)
    for iteration in (0, 1, 4):
        writer.tensor(iteration, "Add.Add-op1")
    dump = open_dump(writer.root)
    by_iteration = {tensor.iteration: tensor for tensor in dump.tensors()}
    assert dump.history(0) == {0: (0, 1, 4)}
    assert dump.previous(by_iteration[4]) == by_iteration[1]
    assert dump.previous(by_iteration[1]) == by_iteration[0]
    assert dump.previous(by_iteration[0]) is None


def test_there_is_no_previous_tensor_if_the_iteration_before_was_not_dumped(writer: DumpWriter) -> None:
    writer.history(0, 1, 2)
    for iteration in (0, 2):
        writer.tensor(iteration, "Add.Add-op1")
    dump = open_dump(writer.root)
    assert dump.previous(dump.tensors()[1]) is None


def test_without_history_the_previous_dumped_iteration_counts(writer: DumpWriter) -> None:
    for iteration in (3, 8):
        writer.tensor(iteration, "Add.Add-op1")
        writer.tensor(iteration, "Unknown.Unknown-op3")
    dump = open_dump(writer.root)
    assert dump.history(0) is None
    old, old_unknown, new, new_unknown = dump.tensors()
    assert dump.previous(new) == old
    assert dump.previous(new_unknown) == old_unknown
    assert dump.at(0, 0, 8, "Default/Add-op1", 0) == new
    assert dump.at(0, 0, 8, "Default/Add-op1", 0, "input") is None
    assert dump.at(0, 0, 5, "Default/Add-op1", 0) is None


def test_one_iteration_after_the_history_is_let_pass(writer: DumpWriter) -> None:
    writer.history(0, 1)
    for iteration in (0, 1, 2):
        writer.tensor(iteration, "Add.Add-op1")
    dump = open_dump(writer.root)
    assert dump.history(0) == {0: (0, 1)}
    assert dump.problems == []


@pytest.mark.parametrize("extra", [[3], [2, 3]])
def test_a_history_that_contradicts_the_dump_is_not_used(writer: DumpWriter, extra: list[int]) -> None:
    writer.history(0, 1)
    for iteration in (0, 1, *extra):
        writer.tensor(iteration, "Add.Add-op1")
    dump = open_dump(writer.root)
    assert dump.history(0) is None
    assert "its history does not list" in str(dump.problems[0])


def test_a_broken_history_is_a_problem(writer: DumpWriter) -> None:
    writer.tensor(0, "Add.Add-op1")
    (writer.rank() / "execution_order" / "ms_global_execution_order_graph_0.csv").write_text("0\nx\n")
    dump = open_dump(writer.root)
    assert dump.history(0) is None
    assert "line 2 is not an iteration number: 'x'" in str(dump.problems[0])


def test_iterations_that_ran_in_another_graph_do_not_contradict() -> None:
    histories = {0: (0,), 1: (1, 2, 3)}
    assert usable_history(histories, {0: (0, 1, 2)}, "") == (histories, None)
    assert usable_history({}, {0: (0, 1, 2)}, "") == (None, None)


def test_a_tensor_that_ran_though_its_history_lacks_it_has_a_previous(writer: DumpWriter) -> None:
    writer.history(0, graph_id=0)
    writer.history(1, 2, graph_id=1)
    for iteration in (0, 1, 2):
        writer.tensor(iteration, "Add.Add-op1")
    dump = open_dump(writer.root)
    previous = [dump.previous(tensor) for tensor in dump.tensors()]
    assert [tensor.iteration if isinstance(tensor, TensorFile) else None for tensor in previous] == [None, 0, 1]


@given(st.text())
def test_any_text_is_an_order_or_a_history_or_refused(text: str) -> None:
    if text.strip():
        assert all(name.strip() for name in parse_order(text))
    else:
        with pytest.raises(ValueError, match="it is empty"):
            parse_order(text)
    try:
        history = parse_history(text)
    except ValueError:
        return
    assert list(history) == sorted(set(history))


@pytest.mark.parametrize(
    ("second_ran", "expected"),
    [
        ((1,), {"Default/Add-op1": 1, "Default/Mul-op2": 2, "w": 3, "Default/Exp-op3": 1, "v": 2}),
        ((0, 1), {"Default/Add-op1": 1, "Default/Mul-op2": 2, "Default/Exp-op3": 3, "w": 4, "v": 5}),
    ],
    ids=["in steps of its own", "in the same step"],
)
def test_nodes_are_numbered_within_their_step(
    writer: DumpWriter, second_ran: tuple[int, ...], expected: dict[str, int]
) -> None:
    writer.graph(GraphWriter(name="kernel_graph_1", root="1").parameter("v").operator("Default/Exp-op3"), 1)
    writer.tensor(0, "Add.Add-op1")
    for iteration in second_ran:
        writer.tensor(iteration, "Exp.Exp-op3", graph_id=1)
    dump = open_dump(writer.root)
    nodes = [node for graph in dump.graphs(0) for node in graph.nodes]
    assert {node.name: dump.node_number(0, node) for node in nodes} == expected
