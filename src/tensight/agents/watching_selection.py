"""Selects the slots that a watchpoint watches: outputs of nodes that it names, or that its selector matches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensight.graph import LayerNode, find_layers, holds_integers, is_gradient_scope
from tensight.graph.optimizers import is_of_optimizer
from tensight.watchpoints import NodeFacts, SelectorKind, matcher

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tensight.agents.program import Program, Role
    from tensight.agents.slots import DeclaredNode, TensorSlot
    from tensight.graph import Layers
    from tensight.wire import ReceivedWatchpoint

_BY_LAYERS = {SelectorKind.HIDDEN, SelectorKind.HIDDEN_ACTIVATION, SelectorKind.MATRIX_GRADIENTS}
_KINDS: dict[Role, str] = {
    "operator": "operator",
    "weight": "weight",
    "frozen_weight": "frozen",
    "state": "data",
    "buffer": "data",
    "input": "data",
    "constant": "constant",
}


class Selection:
    """Decides which nodes a watchpoint watches; called once for each node, when it is declared."""

    def __init__(self, rule: ReceivedWatchpoint, layers: Layers) -> None:
        self._rule = rule
        self._names = rule.names
        self._tails = rule.tails
        self.learn(layers)

    def learn(self, layers: Layers) -> None:
        """Set the layers of the network, as far as they are known now."""
        self._selected = None if self._rule.selector is None else matcher(self._rule.selector, layers)

    def __call__(self, tensor_slot: TensorSlot) -> bool:
        """Whether a slot is watched. As in MindSpore, only outputs of nodes are."""
        if tensor_slot.io != "output":
            return False
        node = tensor_slot.node
        if self._selected is not None and self._selected(NodeFacts(node.name, node.type, _KINDS[node.role])):
            return True
        if node.name in self._names:
            return True
        return node.role != "operator" and node.name in self._tails

    @property
    def depends_on_layers(self) -> bool:
        """Whether the layers of the network decide which weights are watched."""
        return self._rule.selector is not None and self._rule.selector.kind is SelectorKind.INNER_MATRICES

    def may_turn_out(self, tensor_slot: TensorSlot) -> bool:
        """Whether a slot may be watched once the layers have shown the role of its node."""
        selector = self._rule.selector
        return (
            selector is not None
            and selector.kind in _BY_LAYERS
            and tensor_slot.io == "output"
            and tensor_slot.node.role == "operator"
            and is_gradient_scope(tensor_slot.node.name) == (selector.kind is SelectorKind.MATRIX_GRADIENTS)
        )

    def name_of(self, node: DeclaredNode) -> str:
        """Return the server's name of a node; empty if it is the name here."""
        if node.role == "operator" or node.name in self._names:
            return ""
        return self._tails.get(node.name, "")


def layer_nodes(program: Program) -> Iterator[LayerNode]:
    """Yield the facts about the nodes of a program from which its layers follow."""
    for node in program.nodes:
        yield LayerNode(
            node.name,
            node.type,
            tuple(source[0] if source else "" for source in node.inputs),
            _KINDS[node.role],
            node.outputs[0].shape if node.outputs else None,
            node.role == "operator" and is_of_optimizer(node.type, node.scope),
            slots=tuple(source[1] if source else 0 for source in node.inputs),
            is_integer=holds_integers(node.outputs),
        )


def layers_of(program: Program) -> Layers:
    """Return the layers of the network that a program runs."""
    return find_layers(layer_nodes(program))
