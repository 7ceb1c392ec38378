"""A graph laid out for quick answers: every scope is one stretch of a list of its nodes.

With the nodes in that order, what a watchpoint watches is an array of flags, an edit of it sets a stretch, and how many
nodes of a scope are watched is a difference of two sums.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tensight.graph import EdgeKind, NodeKind, kinds
from tensight.graph.lazily import lazily
from tensight.graph.optimizers import parameter_roles
from tensight.graph.scopes import scope_tree

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from tensight.graph import Graph, Node, Scope

PARAMETERS = "@parameters"
CONSTANTS = "@constants"
"""Paths of the groups at the root of a tree that hold parameters and constants."""

_NO_ROLES = (NodeKind.TENSOR, NodeKind.CONSTANT)


@dataclass(frozen=True, slots=True)
class Stretch:
    """A scope, or a group of the root: the nodes from `start` to `end` of `GraphIndex.order`.

    Attributes
    ----------
    path, label : str
        Names from the root down, joined by slashes, and the last one. Unique in the graph.
    start, end : int
        All nodes anywhere below.
    own : int
        Where the nodes directly in it begin; the scopes in it come before them.
    scopes : tuple of Stretch
        The scopes directly below, in the order in which they run.
    """

    path: str
    label: str
    start: int
    end: int
    own: int
    scopes: tuple[Stretch, ...] = ()


@dataclass(frozen=True, slots=True)
class EdgeArrays:
    """All edges of a graph whose two ends it has; each array has shape (edges,).

    Attributes
    ----------
    source, target : ndarray of int32
        Places in `GraphIndex.order`.
    control : ndarray of bool
        The edge carries only an order.
    """

    source: NDArray[np.int32]
    target: NDArray[np.int32]
    control: NDArray[np.bool_]


class TreeIndex:
    """Nodes in the order of their tree.

    Parameters
    ----------
    name : str
        Of their graph; empty for nodes of several.
    operators, parameters, constants : sequence of Node
        Scopes stand in the order of the first operators in them. Names need not be unique.

    Attributes
    ----------
    name : str
    order : tuple of Node
        Operators, scope by scope; then the parameters; then the constants.
    operators : int
        How many of them there are.
    root : Stretch
        The whole graph. Its own nodes are only the operators without a scope.
    groups : tuple of Stretch
        The parameters and the constants, as far as there are any.
    scopes : mapping of str to Stretch
        Root, groups and scopes by path.
    """

    def __init__(
        self, name: str, operators: Sequence[Node], parameters: Sequence[Node], constants: Sequence[Node]
    ) -> None:
        self.name = name
        order: list[Node] = []
        self.scopes: dict[str, Stretch] = {}
        self._taken = {"", PARAMETERS, CONSTANTS}
        tree = scope_tree(operators)
        scopes = tuple(self._lay_out(scope, scope.name, order) for scope in tree.children)
        own = len(order)
        order.extend(tree.nodes)
        self.operators = len(order)
        self.groups = tuple(
            self._group(path, nodes, order)
            for path, nodes in ((PARAMETERS, parameters), (CONSTANTS, constants))
            if nodes
        )
        self.root = self.scopes[""] = Stretch("", "", 0, len(order), own, scopes)
        self.order = tuple(order)

    def __len__(self) -> int:
        return len(self.order)

    def _lay_out(self, scope: Scope, path: str, order: list[Node]) -> Stretch:
        """Append the nodes of a scope; scopes are nested at most 200 deep."""
        # Names of damaged graphs may be empty, or look like a group.
        while path in self._taken:
            path += "/"
        self._taken.add(path)
        start = len(order)
        scopes = tuple(self._lay_out(child, f"{path}/{child.name}", order) for child in scope.children)
        own = len(order)
        order.extend(scope.nodes)
        stretch = self.scopes[path] = Stretch(path, scope.name, start, len(order), own, scopes)
        return stretch

    def _group(self, path: str, nodes: Sequence[Node], order: list[Node]) -> Stretch:
        start = len(order)
        order.extend(nodes)
        stretch = self.scopes[path] = Stretch(path, path.removeprefix("@"), start, len(order), start)
        return stretch

    @lazily
    def names(self) -> tuple[str, ...]:
        """The names, in order."""
        return tuple(node.name for node in self.order)

    @lazily
    def lower_names(self) -> tuple[str, ...]:
        """The names in lower case, in order."""
        return tuple(name.lower() for name in self.names)


class GraphIndex(TreeIndex):
    """A graph with its nodes in the order of its tree.

    What is needed only sometimes is computed when it is first asked for.

    Parameters
    ----------
    graph : Graph
    position : callable, optional
        Returns where an operator stands in the order of execution, where that is known better than by the graph.

    Attributes
    ----------
    graph : Graph
    sequence : tuple of Node
        All nodes: first everything that is no operator, then operators in the order of execution.
    positions : mapping of str to int
        The position in `order` of each node, by name.
    """

    def __init__(self, graph: Graph, position: Callable[[Node], int] | None = None) -> None:
        self.graph = graph
        operators = graph.operators if position is None else tuple(sorted(graph.operators, key=position))
        super().__init__(graph.name, operators, graph.parameters, graph.constants)
        self.sequence = (*graph.parameters, *graph.constants, *operators)
        self.positions: Mapping[str, int] = {node.name: number for number, node in enumerate(self.order)}

    @lazily
    def file_order(self) -> tuple[int, ...]:
        """For each position the number of its node in `Graph.nodes`."""
        numbers = {node: number for number, node in enumerate(self.graph.nodes)}
        return tuple(numbers[node] for node in self.order)

    @lazily
    def watchable(self) -> NDArray[np.bool_]:
        """Which nodes can be watched: all but the constants; shape (nodes,)."""
        return np.fromiter((not node.is_constant for node in self.order), bool, len(self.order))

    def of_kind(self, kind: NodeKind) -> NDArray[np.bool_]:
        """Return which nodes are of a kind; shape (nodes,)."""
        roles = parameter_roles(self.graph) if kind in _PARAMETER_KINDS else None
        if roles is not None:
            names = {
                NodeKind.WEIGHT: roles.trainable,
                NodeKind.FROZEN_WEIGHT: roles.frozen,
                NodeKind.OPTIMIZER_STATE: roles.states,
            }[kind]
            mask = np.zeros(len(self.order), bool)
            mask[[self.positions[name] for name in names if name in self.positions]] = True
            return mask
        if kind is NodeKind.TENSOR:
            return self.watchable
        if kind is NodeKind.CONSTANT:
            return ~self.watchable
        return self._computed[kind]

    @lazily
    def _computed(self) -> Mapping[NodeKind, NDArray[np.bool_]]:
        """Which operators are gradients, and which activations."""
        masks = {kind: np.zeros(len(self.order), bool) for kind in (NodeKind.GRADIENT, NodeKind.ACTIVATION)}
        for position in range(self.operators):
            for kind in kinds(self.graph, self.order[position]):
                if kind in masks:
                    masks[kind][position] = True
        return masks

    def roles(self, node: Node) -> tuple[str, ...]:
        """Return what a node is for, in words."""
        return tuple(sorted(kind.value for kind in kinds(self.graph, node) if kind not in _NO_ROLES))

    @lazily
    def edges(self) -> EdgeArrays:
        """All edges between nodes of the graph."""
        source: list[int] = []
        target: list[int] = []
        control: list[bool] = []
        for position, node in enumerate(self.order):
            for edge in node.inputs:
                at = self.positions.get(edge.source)
                if at is not None:
                    source.append(at)
                    target.append(position)
                    control.append(edge.kind is EdgeKind.CONTROL)
        return EdgeArrays(np.array(source, np.int32), np.array(target, np.int32), np.array(control, bool))


_PARAMETER_KINDS = (NodeKind.WEIGHT, NodeKind.FROZEN_WEIGHT, NodeKind.OPTIMIZER_STATE)
