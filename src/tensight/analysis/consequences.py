"""What has followed from an anomaly: whether what a person asks about was computed from what shows one."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from tensight.analysis.anomalies import Anomaly
from tensight.graph.operator_facts import may_write_inputs
from tensight.graph.optimizers import is_optimizer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tensight.graph import Graph, Node


_HITS_OF = {
    Anomaly.ALL_ZERO: re.compile(r"zero|dead_units|vanishing"),
    Anomaly.EXPLOSION: re.compile(r"too_large|growth|range|^(max|min|mean|sd|max_min)_[gl]t$"),
}
"""Conditions of watchpoints that an anomaly may explain, by parts of their names."""


class Effect(NamedTuple):
    """Something of which a person wants to know where it comes from: a hit, or what is not finite.

    Attributes
    ----------
    rank : int
    graph : str
        Name of the graph that has the node.
    node : str
    iteration : int
    is_origin : bool
        Whether it is where NaN or Inf began: what began at the same node says nothing more of that.
    """

    rank: int
    graph: str
    node: str
    iteration: int
    is_origin: bool = False


class Effects:
    """Tells of nodes whether effects have followed from them.

    Parameters
    ----------
    effects : iterable of Effect
    graph : callable (rank, name) -> Graph or None
    """

    def __init__(self, effects: Iterable[Effect], graph: Callable[[int, str], Graph | None]) -> None:
        self._graph = graph
        self._effects: dict[int, dict[int, dict[str, list[Effect]]]] = {}
        for effect in effects:
            of_rank = self._effects.setdefault(effect.rank, {})
            of_rank.setdefault(effect.iteration, {}).setdefault(effect.graph, []).append(effect)
        self._causes: dict[tuple[int, int, str], frozenset[str]] = {}

    def iterations(self, rank: int) -> list[int]:
        """Return the iterations of a rank in which there is an effect."""
        return sorted(self._effects.get(rank, ()))

    def follow_from(self, rank: int, graph: str, node: str, iteration: int) -> bool | None:
        """Return whether an effect in an iteration was computed from a node; None if that cannot be said.

        One graph does not say what another one was given, and one rank not what others were sent.
        """
        of_rank = self._effects.get(rank)
        if of_rank is None:
            return None
        by_graph = of_rank.get(iteration, {})
        if graph in by_graph and node in self._nodes_behind(rank, iteration, graph):
            return True
        return None if by_graph.keys() - {graph} else False

    def _nodes_behind(self, rank: int, iteration: int, graph_name: str) -> frozenset[str]:
        key = rank, iteration, graph_name
        if key not in self._causes:
            graph, effects = self._graph(rank, graph_name), self._effects[rank][iteration][graph_name]
            hits = {effect.node for effect in effects if not effect.is_origin}
            behind = frozenset() if graph is None else upstream(graph, (effect.node for effect in effects))
            self._causes[key] = behind | hits
        return self._causes[key]


NO_EFFECTS = Effects((), lambda _rank, _name: None)
"""Where nobody asks for any."""


def explains(anomaly: Anomaly, condition: str) -> bool:
    """Return whether an anomaly that is no NaN or Inf may be why a condition of that name is met."""
    pattern = _HITS_OF.get(anomaly)
    return pattern is not None and pattern.search(condition) is not None


def upstream(graph: Graph, names: Iterable[str]) -> frozenset[str]:
    """Return the names of the nodes that nodes were computed from; of a parameter, those that have written to it, too.

    Parameters
    ----------
    graph : Graph
    names : iterable of str
    """
    nodes = [node for name in names if (node := graph.get(name)) is not None]
    writers = [reader for node in nodes if not node.is_operator for reader in graph.consumers(node) if _writes(reader)]
    found = {writer.name for writer in writers}
    waiting = [node for node in nodes if node.is_operator] + writers
    while waiting:
        for producer in graph.flat_producers(waiting.pop()):
            if producer is not None and producer[0].name not in found:
                found.add(producer[0].name)
                if producer[0].is_operator:
                    waiting.append(producer[0])
    return frozenset(found)


def _writes(node: Node) -> bool:
    return is_optimizer(node) or may_write_inputs(node.type)
