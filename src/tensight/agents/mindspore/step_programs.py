"""Combines the graphs that ran in a step into one program."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tensight.agents.core.graph_messages import graph_number
from tensight.agents.core.program import Program
from tensight.agents.mindspore.compiled_calls import GraphsInCalls
from tensight.agents.mindspore.written_graphs import merged

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tensight.agents.core.program import TracedNode
    from tensight.agents.mindspore.compiled_calls import CompiledCall
    from tensight.agents.mindspore.graph_programs import DumpedProgram


class StepPrograms:
    """The programs of a training; steps in which the same graphs run share one."""

    def __init__(self) -> None:
        self._programs: dict[tuple[object, ...], tuple[Program, tuple[Program, ...]]] = {}
        self._previewed = ""

    def preview(self, programs: Sequence[Program]) -> Program:
        """Return what is known before the first step; the first program that differs replaces it."""
        program = self.merged(programs)
        self._previewed = program.name
        return program

    def merged(
        self, programs: Sequence[Program], calls: Sequence[CompiledCall] = (), backward: Sequence[DumpedProgram] = ()
    ) -> Program:
        """Return the program of a step.

        Parameters
        ----------
        programs : sequence of Program
            Of the graphs that ran, in their order; empty if nothing is known yet.
        calls : sequence of CompiledCall
            Calls with which eager code, the first of the programs, ran the others.
        backward : sequence of DumpedProgram
            Graphs of the backward passes of such calls.
        """
        key = (*map(id, programs), *calls)
        entry = self._programs.get(key)
        if entry is None:
            name, self._previewed = self._previewed or _name(programs), ""
            # The programs are kept alive, so that no others can get their identities.
            entry = _merged(name, len(self._programs), programs, calls, backward), tuple(programs)
            self._programs[key] = entry
        return entry[0]


def _name(programs: Sequence[Program]) -> str:
    if not programs:
        return "kernel_graph_0"
    first = programs[0]
    # The name of a graph ends with its number.
    return first.name if len(programs) == 1 else f"{len(programs)}_graphs_from_{first.name}"


def _merged(
    name: str,
    number: int,
    programs: Sequence[Program],
    calls: Sequence[CompiledCall],
    backward: Sequence[DumpedProgram],
) -> Program:
    if len(programs) == 1 and programs[0].name == name:
        return Program(name, number, programs[0].nodes, programs[0].written)
    if calls:
        arranged = GraphsInCalls(programs[0], programs[1:], calls, backward)
        return Program(name, number, _each_once(arranged.nodes()))
    whole = Program(name, number, _each_once(node for program in programs for node in program.nodes))
    if not programs or not all(program.written for program in programs):
        return whole
    # The graphs that MindSpore wrote contain more: every line of every stack, all attributes, values of constants.
    return replace(whole, written=merged([program.written for program in programs], name, graph_number(whole)))


def _each_once(nodes: Iterable[TracedNode]) -> tuple[TracedNode, ...]:
    """Return the first node of each name; those that are not operators come first."""
    by_name: dict[str, TracedNode] = {}
    for node in nodes:
        by_name.setdefault(node.name, node)
    return tuple(sorted(by_name.values(), key=lambda node: node.role == "operator"))
