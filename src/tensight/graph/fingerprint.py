"""Fingerprints of networks, from their parameters."""

from __future__ import annotations

import hashlib
import heapq
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tensight.graph.model import Graph


_AT_ONCE = 10_000
"""Number of texts that are sorted in one call, which takes a few milliseconds."""


def fingerprint(graphs: Iterable[Graph]) -> str:
    """Return a fingerprint that is the same for graphs of the same network, and different for other networks.

    Networks are the same if their parameters have the same names, types and shapes, so a change in a forward pass does
    not matter. Without any parameters, the names and types of the operators are compared.

    Parameters
    ----------
    graphs : iterable of Graph
        Graphs of one rank.

    Returns
    -------
    str
        64 hexadecimal digits.
    """
    nodes = [node for graph in graphs for node in graph.nodes]
    parameters = {(node.name, node.outputs) for node in nodes if node.is_parameter}
    operators = {(node.name, node.type) for node in nodes if node.is_operator}
    described = [repr(entry) for entry in parameters or operators]
    # There may be a million texts, and a single call of sorted() would block all other threads.
    pieces = [sorted(described[begin : begin + _AT_ONCE]) for begin in range(0, len(described), _AT_ONCE)]
    return hashlib.sha256("\n".join(heapq.merge(*pieces)).encode("utf-8", "surrogatepass")).hexdigest()
