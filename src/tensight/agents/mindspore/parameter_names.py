"""Names of graphs' parameters in programs, as graphs use one name for different tensors.

A weight has the name that its cell gives it, whatever graph reads it. But each graph calls its first argument
``args0``, and each optimizer its states ``learning_rate`` and ``global_step``: with two networks, as in a GAN, those
are different tensors in one step.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, NamedTuple

from tensight.agents.mindspore.traced_graphs import is_tuple, other_role, user_stack
from tensight.graph.dataflow import VIRTUAL_TYPES
from tensight.graph.optimizers import parameter_roles

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tensight.graph import Graph, Node

_CAPTURED = "▸"
"""Prefix of the names of parameters that a graph reads from the graph around it."""


class _Use(NamedTuple):
    """The use of a parameter, which distinguishes parameters of the same name.

    Attributes
    ----------
    is_state : bool
        Whether it is a state of an optimizer.
    by : frozenset of object
        For a state, the weights that are trained with it; for an input, its readers.
    """

    is_state: bool
    by: frozenset[object]

    def may_be(self, other: _Use) -> bool:
        """Whether both may be the same tensor: an evaluation reads less of the data than a training."""
        if self.is_state != other.is_state:
            return False
        if self.is_state:
            return not self.by or not other.by or not self.by.isdisjoint(other.by)
        return self.by <= other.by or other.by <= self.by

    def with_(self, other: _Use) -> _Use:
        """Return the use that combines both."""
        return _Use(self.is_state, self.by | other.by)


class ParameterNames:
    """Assigns names in programs to the parameters of graphs."""

    def __init__(self) -> None:
        self._uses: dict[str, _Use] = {}
        self._given: dict[tuple[int, str], str] = {}

    def names_of(self, graph: Graph) -> dict[str, str]:
        """Return the name in the program of each parameter of a new graph."""
        readers = _readers(graph)
        roles = parameter_roles(graph)
        names: dict[str, str] = {}
        for node in graph.parameters:
            name = node.name
            outer = name.lstrip(_CAPTURED)
            if outer and outer not in graph:
                names[name] = self._given.get((graph.root_id, outer), outer)
                continue
            if "." in name:
                names[name] = name
                continue
            if name in roles.states and not is_tuple(node):
                use = _Use(True, frozenset(roles.trainable))
            elif other_role(graph, node) == "input":
                use = _Use(False, readers.get(name, frozenset()))
            else:
                names[name] = name
                continue
            program_name = names[name] = self._free_name(name, graph, use)
            self._uses[program_name] = use.with_(self._uses.get(program_name, use))
            self._given[graph.root_id, name] = program_name
        return names

    def _free_name(self, name: str, graph: Graph, use: _Use) -> str:
        others = (f"{name}#{number}" for number in count(2))
        return next(
            candidate
            for candidate in _and(name, others)
            if candidate == name or candidate not in graph
            if self._is_free(candidate, use)
        )

    def _is_free(self, name: str, use: _Use) -> bool:
        existing = self._uses.get(name)
        return existing is None or existing.may_be(use)


def _and(first: str, others: Iterable[str]) -> Iterable[str]:
    yield first
    yield from others


def _readers(graph: Graph) -> dict[str, frozenset[object]]:
    """Return the operators that read each parameter, with the network's parameters that they read beside it."""
    readers_of: dict[str, set[object]] = {}
    for node in graph.operators:
        if node.type in VIRTUAL_TYPES:
            continue
        producers = graph.flat_producers(node)
        beside = frozenset(
            producer[0].name for producer in producers if producer is not None and _is_owned(producer[0])
        )
        for slot, producer in enumerate(producers):
            if producer is not None and producer[0].is_parameter:
                readers_of.setdefault(producer[0].name, set()).add(
                    (node.type, slot, producer[1], beside, user_stack(node))
                )
    return {name: frozenset(readers) for name, readers in readers_of.items()}


def _is_owned(node: Node) -> bool:
    return node.is_parameter and "." in node.name
