"""What tells one network from another: the parameters that it has."""

from __future__ import annotations

import hashlib
import heapq
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tensight.graph.model import Graph


_AT_ONCE = 10_000
"""Texts that are sorted in one go, which takes some milliseconds."""


def fingerprint(graphs: Iterable[Graph]) -> str:
    """Return a text that graphs of the same network have in common, and those of another network do not.

    Networks are the same if their parameters have the same names, types and shapes; so a changed line of a forward pass
    makes no other network of it. Without any parameter the names and types of the operators count.

    Parameters
    ----------
    graphs : iterable of Graph
        Of one rank.

    Returns
    -------
    str
        64 hexadecimal digits.
    """
    nodes = [node for graph in graphs for node in graph.nodes]
    parameters = {(node.name, node.outputs) for node in nodes if node.is_parameter}
    operators = {(node.name, node.type) for node in nodes if node.is_operator}
    described = [repr(one) for one in parameters or operators]
    # There may be a million: a thread that sorts them in one go keeps all others waiting.
    pieces = [sorted(described[begin : begin + _AT_ONCE]) for begin in range(0, len(described), _AT_ONCE)]
    return hashlib.sha256("\n".join(heapq.merge(*pieces)).encode("utf-8", "surrogatepass")).hexdigest()
