"""What graphs of a step were given by others that ran in it: of which values a parameter may be one."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from tensight.graph.declared import Given, GivenSource
from tensight.graph.given import NUMBERED_INPUT, GraphRun, given_values, is_given, runs_nothing

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from tensight.analysis.observations import Observations
    from tensight.graph import Graph, Node


class GraphStep(Protocol):
    """What was observed of a graph in one step."""

    @property
    def graph(self) -> Graph:
        """The graph."""

    @property
    def moments(self) -> tuple[int, int, bool]:
        """When its first operator ran and when the last, in any unit, and whether operators ran several times."""

    def outputs(self, node: Node) -> Collection[object]:
        """Return what is known of the outputs of a node."""


_Step = TypeVar("_Step", bound=GraphStep)


class GivenValues(Generic[_Step]):
    """The graphs that ran in one step of a rank, and what they gave each other.

    Parameters
    ----------
    observed : Observations
    rank : int
    steps : sequence of GraphStep
        Of one iteration, one for each graph that ran.
    """

    def __init__(self, observed: Observations, rank: int, steps: Sequence[_Step]) -> None:
        self._observed = observed
        self._rank = rank
        self._steps = {step.graph.name: step for step in steps}
        self._known: dict[str, Mapping[str, Given]] = {}

    def of(self, graph: Graph, parameter: Node) -> Given | None:
        """Return what a parameter of a graph may be; None of one that no other graph has computed."""
        if not is_given(parameter):
            return self._elsewhere(graph, parameter)
        known = self._known.get(graph.name)
        if known is None:
            known = self._known[graph.name] = given_values(graph, self._runs, self._others)
        return known.get(parameter.name)

    def _elsewhere(self, graph: Graph, parameter: Node) -> Given | None:
        """Return an input of the network where it is seen in another graph; a variable may be called like one."""
        if NUMBERED_INPUT.fullmatch(parameter.name) is None:
            return None
        for name, step in self._steps.items():
            node = step.graph.get(parameter.name)
            if name != graph.name and node is not None and node.is_parameter and step.outputs(node):
                return Given((GivenSource(name, node.name, 0),), is_complete=True)
        return None

    @property
    def steps(self) -> Sequence[_Step]:
        """What was observed of each graph."""
        return tuple(self._steps.values())

    def step(self, graph: str) -> _Step | None:
        """Return what was observed of a graph; None if it did not run, or left nothing."""
        return self._steps.get(graph)

    @cached_property
    def _runs(self) -> list[GraphRun]:
        return [
            GraphRun(step.graph, *step.moments, self._observed.printed_names(self._rank, step.graph.name))
            for step in self._steps.values()
        ]

    @cached_property
    def _others(self) -> list[Graph]:
        others = (graph for graph in self._observed.graphs(self._rank) if graph.name not in self._steps)
        return [graph for graph in others if runs_nothing(graph) or not self._observed.is_whole]
