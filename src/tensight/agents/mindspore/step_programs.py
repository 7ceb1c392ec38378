"""What a step computed, of all graphs that ran in it: one program."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
    more = f"_and_{len(programs) - 1}_more" if len(programs) > 1 else ""
    return f"{programs[0].name}{more}"


def _merged(name: str, number: int, programs: Sequence[Program]) -> Program:
    if len(programs) == 1:
        return Program(name, number, programs[0].nodes, programs[0].written)
    return Program(name, number, tuple(_nodes(programs)))


def _nodes(programs: Iterable[Program]) -> list[TracedNode]:
    """Return the nodes of several programs, each once: what is no operator comes first."""
    found: dict[str, TracedNode] = {}
    for program in programs:
        for node in program.nodes:
            found.setdefault(node.name, node)
    return sorted(found.values(), key=lambda node: node.role == "operator")
