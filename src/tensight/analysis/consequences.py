"""Consequences of anomalies: whether a hit, or NaN or Inf, was computed from a node that shows an anomaly."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from tensight.analysis.anomalies import Anomaly
from tensight.graph.operator_facts import may_write_inputs
from tensight.graph.optimizers import is_optimizer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tensight.graph import Graph, Node
    from tensight.watchpoints.causes import Since


_HITS_OF = {
    Anomaly.NAN: re.compile(r"overflow|^nan$"),
    Anomaly.INF: re.compile(r"overflow|^inf$"),
    Anomaly.ALL_ZERO: re.compile(r"zero|dead_units|vanishing|^weight_not_changed$|^gradient_imbalance$"),
    Anomaly.EXPLOSION: re.compile(r"too_large|growth|range|^(max|min|mean|sd|max_min)_[gl]t$"),
}
"""Watchpoint conditions that an anomaly may explain, by parts of their names."""


_OF_GRADIENTS = frozenset({"weight_not_changed", "gradient_imbalance"})
"""Conditions that zeros explain only if the gradient itself is zero, and got its zeros from theirs."""


class Effect(NamedTuple):
    """Something whose cause is sought: a hit, or an origin of NaN or Inf.

    Attributes
    ----------
    rank : int
    graph : str
        Name of the graph that contains the node.
    node : str
    iteration : int
    is_origin : bool
        Whether NaN or Inf began there; another anomaly that began at the same node then does not explain it.
    since : Since or None
        Since when the condition of a hit has held, if it must hold for several steps.
    of_gradient : bool
        Whether only zeros from which a gradient got its own explain it: the gradient `node`, or that of the weight.
    """

    rank: int
    graph: str
    node: str
    iteration: int
    is_origin: bool = False
    since: Since | None = None
    of_gradient: bool = False


class Effects:
    """Determines whether effects were computed from a node.

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
        """Return the iterations of a rank that have an effect."""
        return sorted(self._effects.get(rank, ()))

    def since(self, rank: int, graph: str, node: str, iteration: int) -> Since | None:
        """Return since when hits in an iteration have lasted that were computed from a node, the earliest first.

        None if no hit followed from it that must last for several steps.
        """
        effects = self._effects.get(rank, {}).get(iteration, {}).get(graph, ())
        first_nodes: dict[Since, list[str]] = {}
        for effect in effects:
            if effect.since is not None:
                first_nodes.setdefault(effect.since, []).append(effect.node)
        of_graph = self._graph(rank, graph) if first_nodes else None
        for since, nodes in sorted(first_nodes.items()):
            if node in nodes or (of_graph is not None and node in upstream(of_graph, nodes)):
                return since
        return None

    def follow_from(self, rank: int, graph: str, node: str, iteration: int) -> bool | None:
        """Return whether an effect in an iteration was computed from a node; None if unknown.

        It is unknown if the effect is in another graph or on another rank, whose inputs this graph does not describe.
        """
        of_rank = self._effects.get(rank)
        if of_rank is None:
            return None
        by_graph = of_rank.get(iteration, {})
        if graph in by_graph and node in self._nodes_behind(rank, iteration, graph):
            return True
        others = (effect for name, effects in by_graph.items() if name != graph for effect in effects)
        return False if all(effect.of_gradient for effect in others) else None

    def of_gradients(self, rank: int, graph: str, iteration: int) -> list[str]:
        """Return the gradients, and the weights, whose zeros are to be explained in an iteration."""
        effects = self._effects.get(rank, {}).get(iteration, {}).get(graph, ())
        return [effect.node for effect in effects if effect.of_gradient]

    def _nodes_behind(self, rank: int, iteration: int, graph_name: str) -> frozenset[str]:
        key = rank, iteration, graph_name
        if key not in self._causes:
            graph = self._graph(rank, graph_name)
            effects = [effect for effect in self._effects[rank][iteration][graph_name] if not effect.of_gradient]
            hits = {effect.node for effect in effects if not effect.is_origin}
            behind = frozenset() if graph is None else upstream(graph, (effect.node for effect in effects))
            self._causes[key] = behind | hits
        return self._causes[key]


NO_EFFECTS = Effects((), lambda _rank, _name: None)
"""No effects to explain."""


def explains(anomaly: Anomaly, condition: str) -> bool:
    """Return whether an anomaly may be the reason why a condition of that name is met."""
    pattern = _HITS_OF.get(anomaly)
    return pattern is not None and pattern.search(condition) is not None


def is_of_gradient(condition: str) -> bool:
    """Return whether only zeros of the gradient explain that a condition of that name is met."""
    return condition in _OF_GRADIENTS


def upstream(graph: Graph, names: Iterable[str]) -> frozenset[str]:
    """Return the names of the nodes that nodes were computed from, including the writers of parameters.

    Parameters
    ----------
    graph : Graph
    names : iterable of str
    """
    nodes = [node for name in names if (node := graph.get(name)) is not None]
    writers = [reader for node in nodes if not node.is_operator for reader in graph.consumers(node) if _writes(reader)]
    names_upstream = {writer.name for writer in writers}
    waiting = [node for node in nodes if node.is_operator] + writers
    while waiting:
        for producer in graph.flat_producers(waiting.pop()):
            if producer is not None and producer[0].name not in names_upstream:
                names_upstream.add(producer[0].name)
                if producer[0].is_operator:
                    waiting.append(producer[0])
    return frozenset(names_upstream)


def _writes(node: Node) -> bool:
    return is_optimizer(node) or may_write_inputs(node.type)
