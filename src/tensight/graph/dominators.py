"""Which nodes of a graph everything that comes after them has to pass, in time that grows with the number of edges."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_OUTSIDE = 0


def passed_by_all(read: Sequence[Iterable[int]]) -> list[bool]:
    """Return which nodes lie on every path from outside to any node that comes after them.

    Such a node dominates all its descendants. With immediate dominators d, an edge (p, v) is a way round each node
    on the path of the dominator tree from p up to, but without, d(v); no other node has one.

    Parameters
    ----------
    read : sequence of iterable of int
        For each node the numbers of the nodes that it reads. One that does not come before it, or is negative, is
        something from outside.

    Returns
    -------
    list of bool
        For each node; False where nothing reads it.

    Notes
    -----
    Immediate dominators of an acyclic graph in one pass (Cooper, Harvey and Kennedy, 2001). Each node keeps a link to a
    far ancestor, so that common ancestors are found in logarithmic time (Myers, 1983).
    """
    tree = _Tree()
    ways_round = [0] * (len(read) + 1)
    is_read = [False] * (len(read) + 1)
    for node, inputs in enumerate(read, 1):
        # Node 0 is what is outside.
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
        Of each node; that of node 0 is itself.
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

    def common(self, one: int, other: int) -> int:
        """Return the nearest common ancestor of two nodes, of which each is one of itself."""
        far, depth, parent = self._far, self._depth, self.parent
        if depth[one] < depth[other]:
            one, other = other, one
        while depth[one] > depth[other]:
            one = far[one] if depth[far[one]] >= depth[other] else parent[one]
        while one != other:
            # Nodes of one depth have their links at one depth, too.
            if far[one] != far[other]:
                one, other = far[one], far[other]
            else:
                one, other = parent[one], parent[other]
        return one
