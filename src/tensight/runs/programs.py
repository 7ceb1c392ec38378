"""Which ranks run the same program: stages of a pipeline have other nodes than others."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tensight.dumps import Dump
    from tensight.graph import Graph

Programs = tuple[tuple[int, ...], ...]
"""Ranks that have the same nodes, in increasing order."""


def program(dump: Dump) -> str:
    """Return a digest of the names of all nodes of a rank, which is equal on ranks that run the same program.

    Parameters
    ----------
    dump : Dump
        Of one rank.
    """
    names = "".join(graph.once(_names) for graph in dump.graphs(dump.ranks[0]))
    return hashlib.blake2b(names.encode("utf-8", "surrogateescape"), digest_size=8).hexdigest()


def _names(graph: Graph) -> str:
    return "\n".join((graph.name, *(node.name for node in graph.nodes), ""))


def programs(about: Mapping[int, Mapping[str, Any]]) -> Programs:
    """Return the ranks by their program.

    Parameters
    ----------
    about : mapping of int to mapping
        What is known of each rank, with ``program``.
    """
    ranks: dict[str, list[int]] = {}
    for rank, each in sorted(about.items()):
        ranks.setdefault(each["program"], []).append(rank)
    return tuple(map(tuple, ranks.values()))
