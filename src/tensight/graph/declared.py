"""Declarations about a graph's parameters, in addition to its nodes: their roles and their possible values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class ParameterRoles:
    """The names of a graph's parameters by role; a parameter is in at most one of the sets.

    Attributes
    ----------
    trainable : frozenset of str
        Parameters that an operator of an optimizer updates.
    states : frozenset of str
        Optimizer states: moments, accumulators, step counters, learning rates.
    frozen : frozenset of str
        Weights that are never updated.
    """

    trainable: frozenset[str]
    states: frozenset[str]
    frozen: frozenset[str]


class GivenSource(NamedTuple):
    """A value that a graph may receive.

    Attributes
    ----------
    graph : str
        Name of the graph that contains the node.
    node : str
    slot : int
    """

    graph: str
    node: str
    slot: int


@dataclass(frozen=True, slots=True)
class Given:
    """The possible values of a parameter of a graph.

    Attributes
    ----------
    sources : tuple of GivenSource
    is_complete : bool
        Whether it is certainly one of the sources, with their observed values.
    """

    sources: tuple[GivenSource, ...]
    is_complete: bool
