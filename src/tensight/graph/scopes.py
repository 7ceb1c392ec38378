"""The operators of a graph as a tree of scopes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tensight.graph.node import Node

# Deeper scopes are no nested cells any more; the rest of a longer path becomes one name, so that whoever walks the
# tree by recursion is safe.
_DEEPEST = 200


class Scope:
    """One level of the names of operators: a cell of the network, in most cases.

    Attributes
    ----------
    name : str
        Last part of the path; empty for the root.
    path : str
        Names from the root down, joined by slashes; empty for the root.
    """

    __slots__ = ("_children", "_nodes", "name", "path")

    # No scope refers to the one around it: a graph would not be freed before the next search for reference cycles.
    def __init__(self, name: str, path: str) -> None:
        self.name = name
        self.path = path
        self._children: dict[str, Scope] = {}
        self._nodes: list[Node] = []

    @property
    def children(self) -> tuple[Scope, ...]:
        """The scopes directly below, in the order of the first operators in them."""
        return tuple(self._children.values())

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The operators directly in this scope, in topological order."""
        return tuple(self._nodes)

    def child(self, name: str) -> Scope | None:
        """Return the scope `name` directly below, None when there is none."""
        return self._children.get(name)

    def walk(self) -> Iterator[Scope]:
        """Go through this scope and all below it, outer ones first, each level in its order."""
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
    """Build the tree of the scopes of all operators among `nodes`, in their order, and return its root."""
    root = Scope("", "")
    known: dict[str, Scope] = {"": root}
    for node in nodes:
        if not node.is_operator:
            continue
        scope = known.get(node.scope)
        if scope is None:
            scope = root
            for name in node.scope.split("/", _DEEPEST - 1):
                scope = scope._descend(name, name if scope is root else f"{scope.path}/{name}")
            known[node.scope] = scope
        scope._nodes.append(node)
    return root
