"""Lines that MindSpore's compiler has recorded for several calls of a cell, of which it keeps only one."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tensight.graph.optimizers import is_optimizer

if TYPE_CHECKING:
    from tensight.graph.model import Graph
    from tensight.graph.node import Node

_COMPILED = frozenset(("IsFeatureMapOutput", "IsFeatureMapInputList"))
"""Attributes that MindSpore's compiler gives to operators, and nothing else does."""

_FORWARD = "Default/"
"""Beginning of the scopes of cells."""

_Lines = tuple[str, str, tuple[str, ...]]


def calls_with_same_line(graph: Graph, node: Node) -> int:
    """Return for how many calls of a cell an operator's lines were recorded; 1 if they are certain.

    A cell that is called several times is compiled once, and the operators of several calls may have the lines of one.

    Parameters
    ----------
    graph : Graph
        The graph of the operator.
    node : Node
    """
    return graph.once(_calls).get(_lines(node), 1)


def _calls(graph: Graph) -> dict[_Lines, int]:
    """Return how many operators have the same type and the same lines, in each cell that may be called several times.

    Such a cell has no inner cells here, and several operators of each type.
    """
    outer = {scope[:end] for scope in {node.scope for node in graph.operators} for end in _slashes(scope)}
    # An optimizer updates all weights on the same line.
    compiled = [
        node
        for node in graph.operators
        if node.stack and node.scope.startswith(_FORWARD) and node.scope not in outer and not is_optimizer(node)
        if not _COMPILED.isdisjoint(node.attributes)
    ]
    amounts = Counter((node.scope, node.type) for node in compiled)
    once = {scope for (scope, _), amount in amounts.items() if amount == 1}
    return Counter(_lines(node) for node in compiled if node.scope not in once)


def _lines(node: Node) -> _Lines:
    return node.scope, node.type, node.stack


def _slashes(scope: str) -> list[int]:
    return [position for position, character in enumerate(scope) if character == "/"]
