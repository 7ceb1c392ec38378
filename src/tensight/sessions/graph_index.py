"""An index of a graph for fast queries: its nodes are ordered such that each scope is a contiguous range of them.

In this order, the nodes that a watchpoint watches are an array of flags, an edit sets a range of it, and the number of
watched nodes in a scope is a difference of two sums.
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
"""Paths of the groups of parameters and constants at the root of a tree."""

_NO_ROLES = (NodeKind.TENSOR, NodeKind.CONSTANT)


@dataclass(frozen=True, slots=True)
class Stretch:
    """A scope, or a group at the root: the nodes from `start` to `end` of `GraphIndex.order`.

    Attributes
    ----------
    path, label : str
        Names from the root down, joined by slashes, and the last of them. Paths are unique in the graph.
    start, end : int
        Range of all nodes below, at any depth.
    direct_start : int
        Start of the nodes directly in it; the nodes of its scopes come before them.
    scopes : tuple of Stretch
        The scopes directly below, in execution order.
    """

    path: str
    label: str
    start: int
    end: int
    direct_start: int
    scopes: tuple[Stretch, ...] = ()


@dataclass(frozen=True, slots=True)
class EdgeArrays:
    """All edges of a graph with both ends in the graph; each array has shape (edges,).

    Attributes
    ----------
    source, target : ndarray of int32
        Positions in `GraphIndex.order`.
    control : ndarray of bool
        Whether the edge is a control dependency only.
    """

    source: NDArray[np.int32]
    target: NDArray[np.int32]
    control: NDArray[np.bool_]


class TreeIndex:
    """Nodes in the order of their tree.

    Parameters
    ----------
    name : str
        Name of their graph; empty for nodes of several graphs.
    operators, parameters, constants : sequence of Node
        Scopes are ordered by their first operators. Names need not be unique.

    Attributes
    ----------
    name : str
    order : tuple of Node
        Operators, scope by scope; then the parameters; then the constants.
    operators : int
        Number of operators.
    root : Stretch
        The whole graph. Nodes directly in it are only the operators without a scope.
    groups : tuple of Stretch
        The groups of parameters and constants that are not empty.
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
        direct_start = len(order)
        order.extend(tree.nodes)
        self.operators = len(order)
        self.groups = tuple(
            self._group(path, nodes, order)
            for path, nodes in ((PARAMETERS, parameters), (CONSTANTS, constants))
            if nodes
        )
        self.root = self.scopes[""] = Stretch("", "", 0, len(order), direct_start, scopes)
        self.order = tuple(order)

    def __len__(self) -> int:
        return len(self.order)

    def _lay_out(self, scope: Scope, path: str, order: list[Node]) -> Stretch:
        """Append the nodes of a scope; scopes are nested at most 200 deep."""
        # Names in damaged graphs may be empty, or equal the path of a group.
        while path in self._taken:
            path += "/"
        self._taken.add(path)
        start = len(order)
        scopes = tuple(self._lay_out(child, f"{path}/{child.name}", order) for child in scope.children)
        direct_start = len(order)
        order.extend(scope.nodes)
        stretch = self.scopes[path] = Stretch(path, scope.name, start, len(order), direct_start, scopes)
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

    Properties that are rarely needed are computed at first access.

    Parameters
    ----------
    graph : Graph
    position : callable, optional
        Returns the position of an operator in execution order, if it is known better than from the graph.

    Attributes
    ----------
    graph : Graph
    sequence : tuple of Node
        All nodes: parameters, constants, then operators in execution order.
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
        """Index in `Graph.nodes` of the node at each position."""
        numbers = {node: number for number, node in enumerate(self.graph.nodes)}
        return tuple(numbers[node] for node in self.order)

    @lazily
    def watchable(self) -> NDArray[np.bool_]:
        """Mask of the nodes that can be watched, all except constants; shape (nodes,)."""
        return np.fromiter((not node.is_constant for node in self.order), bool, len(self.order))

    def of_kind(self, kind: NodeKind) -> NDArray[np.bool_]:
        """Return a mask of the nodes of a kind; shape (nodes,)."""
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
        """Masks of the operators that are gradients, and of those that are activations."""
        masks = {kind: np.zeros(len(self.order), bool) for kind in (NodeKind.GRADIENT, NodeKind.ACTIVATION)}
        for position in range(self.operators):
            for kind in kinds(self.graph, self.order[position]):
                if kind in masks:
                    masks[kind][position] = True
        return masks

    def roles(self, node: Node) -> tuple[str, ...]:
        """Return the roles of a node, as words."""
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
