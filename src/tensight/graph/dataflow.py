"""Tracing of values upstream through nodes that only pass them on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensight.graph.data_types import MONADS
from tensight.graph.node import Node
from tensight.graph.values import Monad

if TYPE_CHECKING:
    from collections.abc import Mapping

Producer = tuple[Node, int]

# These pass on their first input. Load reads a parameter, Depend orders side effects, Return ends a graph.
_PASS_ON = frozenset({"Load", "Depend", "Return"})
VIRTUAL_TYPES = _PASS_ON | {"UpdateState", "MakeTuple", "TupleGetItem"}
# These inputs are tokens that order side effects, never values.
_MONAD_INPUT = {"Load": 1, "UpdateState": 0}
# Nesting of tuples; deeper ones are not flattened.
_DEEPEST_NEST = 16
# In damaged graphs, tuples of tuples may grow without limit when flattened. These are the steps allowed for all tuples
# of a graph together, plus those for each node; after that, tuples are not flattened.
_FREE_STEPS = 65_536
_STEPS_PER_NODE = 64

_Path = tuple[int, ...]


def tuple_index(nodes: Mapping[str, Node], item: Node) -> int | None:
    """Return the constant index of a ``TupleGetItem``; None if it is known only at run time."""
    if len(item.inputs) < 2:
        return None
    source = nodes.get(item.inputs[1].source)
    index = source.value if source is not None and source.is_constant else None
    return index if isinstance(index, int) and not isinstance(index, bool) and index >= 0 else None


class Dataflow:
    """Finds the nodes that actually compute values, for all nodes of a graph.

    Results are cached, so each chain of nodes is followed once. A cycle, which only damaged graphs have, is followed up
    to the node where it is detected.
    """

    def __init__(self, nodes: Mapping[str, Node]) -> None:
        self._nodes = nodes
        self._monads = _monad_constants(nodes)
        self._known: dict[tuple[str, _Path], Producer | None] = {}
        self._elements: dict[str, tuple[Producer | None, ...]] = {}
        self._steps_left = _FREE_STEPS + _STEPS_PER_NODE * len(nodes)

    def producer(self, name: str, path: _Path = ()) -> Producer | None:
        """Return the operator, parameter or constant that computes `name`, and the slot; None if it is not a value.

        `path` selects an element of a tuple, with the outermost index last.
        """
        passed: list[tuple[str, _Path]] = []
        seen: set[str] = set()
        while True:
            at = (name, path)
            if at in self._known:
                producer = self._known[at]
                break
            passed.append(at)
            node = self._nodes.get(name)
            if node is None or node.name in self._monads or node.type == "UpdateState":
                producer = None
                break
            step = None if name in seen else self._step(node, path)
            if step is None:
                producer = (node, path[0] if len(path) == 1 else 0)
                break
            seen.add(name)
            name, path = step
        self._known.update(dict.fromkeys(passed, producer))
        return producer

    def elements(self, name: str) -> tuple[Producer | None, ...]:
        """Return the producers of `name`; for a whole tuple those of its elements, including inner tuples."""
        elements = self._elements.get(name)
        if elements is None:
            elements = self._elements[name] = self._flatten(name)
        return elements

    def _flatten(self, name: str) -> tuple[Producer | None, ...]:
        flat: list[Producer | None] = []
        waiting: list[tuple[str, frozenset[str]]] = [(name, frozenset())]
        while waiting:
            if self._steps_left <= 0:
                return (self.producer(name),)
            self._steps_left -= 1
            at, inside = waiting.pop()
            producer = self.producer(at)
            whole = producer is not None and producer[0].type == "MakeTuple"
            spread = self._spread(producer[0]) if producer is not None and whole else None
            if spread is not None:
                flat.extend((spread, slot) for slot in range(len(spread.outputs)))
                continue
            if producer is None or not whole or producer[0].name in inside or len(inside) >= _DEEPEST_NEST:
                flat.append(producer)
            else:
                within = inside | {producer[0].name}
                waiting.extend((edge.source, within) for edge in reversed(producer[0].inputs))
        return tuple(flat)

    def _step(self, node: Node, path: _Path) -> tuple[str, _Path] | None:
        """Go one node upstream; None at the node that computes the value, or if it cannot be followed further."""
        inputs = node.inputs
        if node.type in _PASS_ON and inputs:
            return inputs[0].source, path
        if node.type == "TupleGetItem" and len(path) < _DEEPEST_NEST:
            index = tuple_index(self._nodes, node)
            return None if index is None else (inputs[0].source, (*path, index))
        if node.type == "MakeTuple" and path and path[-1] < len(inputs):
            spread = self._spread(node)
            if spread is not None:
                return spread.name, path
            return inputs[path[-1]].source, path[:-1]
        return None

    def _spread(self, made: Node) -> Node | None:
        """Return the parameter whose elements a tuple consists of; the file refers to it once for each element."""
        names = {edge.source for edge in made.inputs}
        source = self._nodes.get(next(iter(names))) if len(names) == 1 else None
        is_whole = source is not None and source.is_parameter and len(source.outputs) == len(made.inputs) > 1
        return source if is_whole else None


def _monad_constants(nodes: Mapping[str, Node]) -> frozenset[str]:
    """Find the constants that are tokens rather than values; in older files only their use shows this."""
    monads: set[str] = set()
    for node in nodes.values():
        if node.is_constant:
            if node.raw_value and isinstance(node.value, Monad):
                monads.add(node.name)
            continue
        index = _MONAD_INPUT.get(node.type, -1)
        if 0 <= index < len(node.inputs):
            source = nodes.get(node.inputs[index].source)
            if source is not None and source.is_constant:
                monads.add(source.name)
        if node.outputs and node.outputs[0].data_type in MONADS:
            monads.add(node.name)
    return frozenset(monads)
