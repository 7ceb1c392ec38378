"""What a step computed, of all graphs that ran in it: one program."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tensight.agents.graph_messages import graph_number
from tensight.agents.mindspore.written_graphs import merged
from tensight.agents.program import Program

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tensight.agents.program import TracedNode


class StepPrograms:
    """The programs of a training; steps in which the same graphs run share one."""

    def __init__(self) -> None:
        self._programs: dict[tuple[int, ...], tuple[Program, tuple[Program, ...]]] = {}
        self._previewed = ""

    def preview(self, programs: Sequence[Program]) -> Program:
        """Return what is known before the first step; the first program that is another one takes its place."""
        program = self.merged(programs)
        self._previewed = program.name
        return program

    def merged(self, programs: Sequence[Program]) -> Program:
        """Return the program of a step.

        Parameters
        ----------
        programs : sequence of Program
            Of the graphs that ran, in their order. None at all is the program of nothing that is known yet.
        """
        key = tuple(map(id, programs))
        known = self._programs.get(key)
        if known is None:
            name, self._previewed = self._previewed or _name(programs), ""
            # The programs are kept, so that no other ones get their identities.
            known = _merged(name, len(self._programs), programs), tuple(programs)
            self._programs[key] = known
        return known[0]


def _name(programs: Sequence[Program]) -> str:
    if not programs:
        return "kernel_graph_0"
    first = programs[0]
    # What a graph is called ends with its number.
    return first.name if len(programs) == 1 else f"{len(programs)}_graphs_from_{first.name}"


def _merged(name: str, number: int, programs: Sequence[Program]) -> Program:
    if len(programs) == 1 and programs[0].name == name:
        return Program(name, number, programs[0].nodes, programs[0].written)
    whole = Program(name, number, tuple(_nodes(programs)))
    if not programs or not all(program.written for program in programs):
        return whole
    # As MindSpore wrote them they tell more: every line of every stack, all attributes, what constants are.
    return replace(whole, written=merged([program.written for program in programs], name, graph_number(whole)))


def _nodes(programs: Iterable[Program]) -> list[TracedNode]:
    """Return the nodes of several programs, each once: what is no operator comes first."""
    found: dict[str, TracedNode] = {}
    for program in programs:
        for node in program.nodes:
            found.setdefault(node.name, node)
    return sorted(found.values(), key=lambda node: node.role == "operator")
