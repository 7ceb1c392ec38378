"""Values that the graphs of a step pass to each other: the possible values of a graph's parameters."""

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
    """Observations of a graph in one step."""

    @property
    def graph(self) -> Graph:
        """The graph."""

    @property
    def moments(self) -> tuple[int, int, bool]:
        """Times of its first and last operator, in any unit, and whether operators ran several times."""

    def outputs(self, node: Node) -> Collection[object]:
        """Return the observed outputs of a node."""


_Step = TypeVar("_Step", bound=GraphStep)


class GivenValues(Generic[_Step]):
    """The graphs that ran in one step of a rank, and the values that they passed to each other.

    Parameters
    ----------
    observed : Observations
    rank : int
    steps : sequence of GraphStep
        Observations of an iteration, one for each graph that ran.
    """

    def __init__(self, observed: Observations, rank: int, steps: Sequence[_Step]) -> None:
        self._observed = observed
        self._rank = rank
        self._steps = {step.graph.name: step for step in steps}
        self._known: dict[str, Mapping[str, Given]] = {}

    def of(self, graph: Graph, parameter: Node) -> Given | None:
        """Return the possible values of a parameter of a graph; None if no other graph computed it."""
        if not is_given(parameter):
            return self._elsewhere(graph, parameter)
        values = self._known.get(graph.name)
        if values is None:
            values = self._known[graph.name] = given_values(graph, self._runs, self._others)
        return values.get(parameter.name)

    def _elsewhere(self, graph: Graph, parameter: Node) -> Given | None:
        """Return an input of the network as observed in another graph; None for others, such as variables."""
        if NUMBERED_INPUT.fullmatch(parameter.name) is None:
            return None
        for name, step in self._steps.items():
            node = step.graph.get(parameter.name)
            if name != graph.name and node is not None and node.is_parameter and step.outputs(node):
                return Given((GivenSource(name, node.name, 0),), is_complete=True)
        return None

    @property
    def steps(self) -> Sequence[_Step]:
        """The observations of each graph."""
        return tuple(self._steps.values())

    def step(self, graph: str) -> _Step | None:
        """Return the observations of a graph; None if it did not run or was not observed."""
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
