"""Nodes of a graph that dominate all their descendants, in nearly linear time in the number of edges."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_OUTSIDE = 0


def passed_by_all(read: Sequence[Iterable[int]]) -> list[bool]:
    """Return which nodes lie on every path from outside to any of their descendants.

    Such a node dominates all its descendants. With immediate dominators d, an edge (p, v) bypasses exactly the nodes
    on the path of the dominator tree from p up to, but excluding, d(v).

    Parameters
    ----------
    read : sequence of iterable of int
        For each node, the numbers of the nodes that it reads. A number that is negative, or not lower than that of the
        node itself, stands for an input from outside.

    Returns
    -------
    list of bool
        Whether each node dominates its descendants; False for a node that is never read.

    Notes
    -----
    Immediate dominators of an acyclic graph are computed in one pass (Cooper, Harvey and Kennedy, 2001). Each node has
    a link to a far ancestor, which makes the search for common ancestors logarithmic (Myers, 1983).
    """
    tree = _Tree()
    ways_round = [0] * (len(read) + 1)
    is_read = [False] * (len(read) + 1)
    for node, inputs in enumerate(read, 1):
        # Node 0 represents everything outside.
        sources = {number + 1 if 0 <= number < node - 1 else _OUTSIDE for number in inputs} or {_OUTSIDE}
        dominator = min(sources)
        for source in sources:
            dominator = tree.common(dominator, source)
        tree.add(dominator)
        for source in sources:
            is_read[source] = True
            ways_round[source] += 1
            ways_round[dominator] -= 1
    for node in range(len(read), 0, -1):
        ways_round[tree.parent[node]] += ways_round[node]
    return [is_read[node] and not ways_round[node] for node in range(1, len(read) + 1)]


class _Tree:
    """A tree that grows leaf by leaf from node 0, with the nearest common ancestor of two nodes.

    Attributes
    ----------
    parent : list of int
        Parent of each node; that of node 0 is node 0.
    """

    def __init__(self) -> None:
        self.parent = [0]
        self._far = [0]
        self._depth = [0]

    def add(self, parent: int) -> None:
        """Add a node below another one."""
        far, depth = self._far, self._depth
        farther = far[far[parent]]
        even = depth[parent] - depth[far[parent]] == depth[far[parent]] - depth[farther]
        far.append(farther if even else parent)
        depth.append(depth[parent] + 1)
        self.parent.append(parent)

    def common(self, a: int, b: int) -> int:
        """Return the nearest common ancestor of two nodes, where each node counts as its own ancestor."""
        far, depth, parent = self._far, self._depth, self.parent
        if depth[a] < depth[b]:
            a, b = b, a
        while depth[a] > depth[b]:
            a = far[a] if depth[far[a]] >= depth[b] else parent[a]
        while a != b:
            # The links of nodes of equal depth lead to nodes of equal depth.
            if far[a] != far[b]:
                a, b = far[a], far[b]
            else:
                a, b = parent[a], parent[b]
        return a
