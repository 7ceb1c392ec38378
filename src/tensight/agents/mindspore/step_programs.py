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
            # The programs are kept, so that no other ones get their identities.
            known = _merged(len(self._programs), programs), tuple(programs)
            self._programs[key] = known
        return known[0]


def _merged(number: int, programs: Sequence[Program]) -> Program:
    if not programs:
        return Program("kernel_graph_0", number, ())
    first = programs[0]
    if len(programs) == 1:
        return Program(first.name, number, first.nodes, first.written)
    return Program(f"{first.name}_and_{len(programs) - 1}_more", number, tuple(_nodes(programs)))


def _nodes(programs: Iterable[Program]) -> list[TracedNode]:
    """Return the nodes of several programs, each once: what is no operator comes first."""
    found: dict[str, TracedNode] = {}
    for program in programs:
        for node in program.nodes:
            found.setdefault(node.name, node)
    return sorted(found.values(), key=lambda node: node.role == "operator")
