"""What is known of a graph beside its nodes: what its parameters are for, and what they may have been given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class ParameterRoles:
    """The names of a graph's parameters by what they are for; a parameter is in one of the sets at most.

    Attributes
    ----------
    trainable : frozenset of str
        An operator of an optimizer updates them.
    states : frozenset of str
        The optimizer's: moments, accumulators, step counters, learning rates.
    frozen : frozenset of str
        Weights that nothing updates.
    """

    trainable: frozenset[str]
    states: frozenset[str]
    frozen: frozenset[str]


class GivenSource(NamedTuple):
    """A value that a graph may be given.

    Attributes
    ----------
    graph : str
        Name of the graph that has the node.
    node : str
    slot : int
    """

    graph: str
    node: str
    slot: int


@dataclass(frozen=True, slots=True)
class Given:
    """What a parameter of a graph may be.

    Attributes
    ----------
    sources : tuple of GivenSource
    is_complete : bool
        Whether it is one of the sources for certain, with the values that are seen of them.
    """

    sources: tuple[GivenSource, ...]
    is_complete: bool
