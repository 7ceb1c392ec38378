"""The operators of a graph as a tree of scopes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tensight.graph.node import Node

# Cells are not nested more deeply; the rest of a longer path becomes a single name, so that recursion over the tree is
# safe.
_DEEPEST = 200


class Scope:
    """A level in the names of operators, usually a cell of the network.

    Attributes
    ----------
    name : str
        Last part of the path; empty for the root.
    path : str
        Names from the root down, joined by slashes; empty for the root.
    """

    __slots__ = ("_children", "_nodes", "name", "path")

    # A scope does not refer to its parent: with reference cycles, a graph would not be freed before the next garbage
    # collection.
    def __init__(self, name: str, path: str) -> None:
        self.name = name
        self.path = path
        self._children: dict[str, Scope] = {}
        self._nodes: list[Node] = []

    @property
    def children(self) -> tuple[Scope, ...]:
        """The scopes directly below, ordered by their first operators."""
        return tuple(self._children.values())

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The operators directly in this scope, in topological order."""
        return tuple(self._nodes)

    def child(self, name: str) -> Scope | None:
        """Return the scope `name` directly below; None if it does not exist."""
        return self._children.get(name)

    def walk(self) -> Iterator[Scope]:
        """Yield this scope and all scopes below it in depth-first order, outer scopes first."""
        waiting = [self]
        while waiting:
            scope = waiting.pop()
            yield scope
            waiting.extend(reversed(scope.children))

    def __repr__(self) -> str:
        return f"Scope({self.path!r}, {len(self._children)} scopes, {len(self._nodes)} nodes)"

    def _descend(self, name: str, path: str) -> Scope:
        child = self._children.get(name)
        if child is None:
            child = self._children[name] = Scope(name, path)
        return child


def scope_tree(nodes: Iterable[Node]) -> Scope:
    """Return the root of the tree of scopes of the operators among `nodes`, in their order."""
    root = Scope("", "")
    scopes: dict[str, Scope] = {"": root}
    for node in nodes:
        if not node.is_operator:
            continue
        scope = scopes.get(node.scope)
        if scope is None:
            scope = root
            for name in node.scope.split("/", _DEEPEST - 1):
                scope = scope._descend(name, name if scope is root else f"{scope.path}/{name}")
            scopes[node.scope] = scope
        scope._nodes.append(node)
    return root
