"""Following values upstream through the nodes that compute nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensight.graph.data_types import MONADS
from tensight.graph.node import Node
from tensight.graph.values import Monad

if TYPE_CHECKING:
    from collections.abc import Mapping

Producer = tuple[Node, int]

# These hand their first input on. Load reads a parameter, Depend waits for something, Return ends a graph.
_PASS_ON = frozenset({"Load", "Depend", "Return"})
VIRTUAL_TYPES = _PASS_ON | {"UpdateState", "MakeTuple", "TupleGetItem"}
# At these inputs stands a token that orders side effects, never a value.
_MONAD_INPUT = {"Load": 1, "UpdateState": 0}
# Tuples in tuples in tuples; a deeper nest is taken as it is.
_DEEPEST_NEST = 16
# Damaged graphs hold tuples of tuples that grow without end when flattened. All of a graph's tuples together may take
# so many steps, and as many again for each node; then they are taken as they are.
_FREE_STEPS = 65_536
_STEPS_PER_NODE = 64

_Path = tuple[int, ...]


def tuple_index(nodes: Mapping[str, Node], item: Node) -> int | None:
    """Return the constant index of a ``TupleGetItem``; None when it is known only at run time."""
    if len(item.inputs) < 2:
        return None
    source = nodes.get(item.inputs[1].source)
    index = source.value if source is not None and source.is_constant else None
    return index if isinstance(index, int) and not isinstance(index, bool) and index >= 0 else None


class Dataflow:
    """Answers who really computes a value, for all nodes of one graph.

    Answers are kept: a chain of nodes is followed once, however many operators ask. Cycles, which no sound graph has,
    end at the node where they are noticed.
    """

    def __init__(self, nodes: Mapping[str, Node]) -> None:
        self._nodes = nodes
        self._monads = _monad_constants(nodes)
        self._known: dict[tuple[str, _Path], Producer | None] = {}
        self._elements: dict[str, tuple[Producer | None, ...]] = {}
        self._steps_left = _FREE_STEPS + _STEPS_PER_NODE * len(nodes)

    def producer(self, name: str, path: _Path = ()) -> Producer | None:
        """Return the operator, parameter or constant behind `name`, and the slot; None when it is no value.

        `path` says which element of a tuple is meant, the outermost index last.
        """
        passed: list[tuple[str, _Path]] = []
        seen: set[str] = set()
        while True:
            at = (name, path)
            if at in self._known:
                found = self._known[at]
                break
            passed.append(at)
            node = self._nodes.get(name)
            if node is None or node.name in self._monads or node.type == "UpdateState":
                found = None
                break
            step = None if name in seen else self._step(node, path)
            if step is None:
                found = (node, path[0] if len(path) == 1 else 0)
                break
            seen.add(name)
            name, path = step
        self._known.update(dict.fromkeys(passed, found))
        return found

    def elements(self, name: str) -> tuple[Producer | None, ...]:
        """Return the producers behind `name`; for a whole tuple those of its elements, inner tuples included."""
        known = self._elements.get(name)
        if known is None:
            known = self._elements[name] = self._flatten(name)
        return known

    def _flatten(self, name: str) -> tuple[Producer | None, ...]:
        flat: list[Producer | None] = []
        waiting: list[tuple[str, frozenset[str]]] = [(name, frozenset())]
        while waiting:
            if self._steps_left <= 0:
                return (self.producer(name),)
            self._steps_left -= 1
            at, inside = waiting.pop()
            found = self.producer(at)
            whole = found is not None and found[0].type == "MakeTuple"
            spread = self._spread(found[0]) if found is not None and whole else None
            if spread is not None:
                flat.extend((spread, slot) for slot in range(len(spread.outputs)))
                continue
            if found is None or not whole or found[0].name in inside or len(inside) >= _DEEPEST_NEST:
                flat.append(found)
            else:
                within = inside | {found[0].name}
                waiting.extend((edge.source, within) for edge in reversed(found[0].inputs))
        return tuple(flat)

    def _step(self, node: Node, path: _Path) -> tuple[str, _Path] | None:
        """Go one node upstream; None where the value is made, or where it cannot be followed."""
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
        """Return the parameter of which a tuple is made, element by element; the file names it for each of them."""
        names = {edge.source for edge in made.inputs}
        source = self._nodes.get(next(iter(names))) if len(names) == 1 else None
        is_whole = source is not None and source.is_parameter and len(source.outputs) == len(made.inputs) > 1
        return source if is_whole else None


def _monad_constants(nodes: Mapping[str, Node]) -> frozenset[str]:
    """Find the constants that are no values; older files do not say so, but use gives them away."""
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
