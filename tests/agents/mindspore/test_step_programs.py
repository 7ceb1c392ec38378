"""Graphs that run in one step are one program, and one graph for the server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tensight.agents.core.graph_messages import graph_message, graph_number
from tensight.agents.core.program import Program, TracedNode
from tensight.agents.mindspore.step_programs import StepPrograms
from tensight.graph import parse_graph_proto
from tests.agents.mindspore.test_dumped_programs import Dumped

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def programs(unpacked: Callable[[str], Path]) -> list[Program]:
    dumped = Dumped(unpacked("healthy-2.10.0"))
    dumped.learn()
    return [dumped.program(number).program for number in (1, 3, 4, 5)]


def test_the_graph_of_several_has_the_nodes_of_all_with_everything_that_is_known(programs: list[Program]) -> None:
    whole = StepPrograms().merged(programs)
    shown = parse_graph_proto(graph_message(whole), where="here")
    assert not shown.problems
    assert (shown.name, shown.graph_id, shown.root_id) == (whole.name, graph_number(whole), graph_number(whole))
    for program in programs:
        own = parse_graph_proto(graph_message(program), where="here")
        for node in program.nodes:
            if node.role == "operator":
                found, known = shown.node(node.name), own.node(node.name)
                assert (found.stack, found.attributes, found.outputs) == (known.stack, known.attributes, known.outputs)
                assert [one and one[0].type for one in shown.flat_producers(found)] == [
                    one and one[0].type for one in own.flat_producers(known)
                ]
    values = [node.value for node in shown.constants]
    assert (-1,) in values
    assert [node.name for node in shown.parameters].count("фscores") == 1


def test_one_graph_stays_as_it_is(programs: list[Program]) -> None:
    found = StepPrograms().merged(programs[:1])
    assert (found.name, found.nodes, found.written) == (programs[0].name, programs[0].nodes, programs[0].written)


def test_a_graph_that_takes_the_place_of_the_preview_is_called_so_everywhere(programs: list[Program]) -> None:
    steps = StepPrograms()
    preview = steps.preview(programs)
    alone = steps.merged(programs[:1])
    assert alone.name == preview.name
    assert parse_graph_proto(graph_message(alone), where="here").name == preview.name


def test_what_was_not_written_by_mindspore_is_written_from_the_nodes(programs: list[Program]) -> None:
    traced = Program("kernel_graph_0", 0, (TracedNode("Default/net-op0", "Net"),))
    found = StepPrograms().merged([traced, *programs])
    assert found.written == b""
    shown = parse_graph_proto(graph_message(found), where="here")
    assert "Default/net-op0" in shown
    assert "Default/softmax-Softmax/Softmax-op0" in shown
