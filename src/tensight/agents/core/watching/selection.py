"""Selects the slots that a watchpoint watches: outputs of nodes that it names, or that its selector matches."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tensight.graph import LayerNode, find_layers, holds_integers
from tensight.graph.optimizers import is_of_optimizer
from tensight.watchpoints import SelectorKind, node_rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from tensight.agents.core.program import Program, Role
    from tensight.agents.core.slots import DeclaredNode, SlotClass, SlotColumns, TensorSlot
    from tensight.graph import Layers
    from tensight.watchpoints.selection import NodeRule
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
    """Decides which slots a watchpoint watches: each when it is declared, all when the watchpoint is set."""

    def __init__(self, rule: ReceivedWatchpoint, layers: Layers) -> None:
        self._rule = rule
        self._names = rule.names
        self._tails = rule.tails
        self.learn(layers)

    def learn(self, layers: Layers) -> None:
        """Set the layers of the network, as far as they are known now."""
        selector = self._rule.selector
        self._layers = layers
        self._node_rule = None if selector is None else node_rule(selector, layers)

    def __call__(self, tensor_slot: TensorSlot) -> bool:
        """Whether a slot is watched. As in MindSpore, only outputs of nodes are."""
        if tensor_slot.io != "output":
            return False
        node, rule = tensor_slot.node, self._node_rule
        if (
            rule is not None
            and rule.includes_name(node.name)
            and rule.includes(node.type, _KINDS[node.role], self._layers.is_backward(node.name))
        ):
            return True
        if node.name in self._names:
            return True
        return node.role != "operator" and node.name in self._tails

    def of_class(self, slot_class: SlotClass) -> bool | None:
        """Whether slots of a class are watched; None if that depends on their names."""
        rule = self._node_rule
        if slot_class.io != "output":
            return False
        if self.class_may_turn_out(slot_class):
            return None
        is_included = rule is not None and _includes(rule, slot_class, is_backward=slot_class.is_gradient)
        # Outside of the scope of the backward pass, its operators are known by their names.
        may_differ = slot_class.role == "operator" and rule is not None and not slot_class.is_gradient
        if may_differ and rule is not None and _includes(rule, slot_class, is_backward=True) != is_included:
            return None
        if is_included and (rule is None or not rule.is_of_names):
            return True
        return None if is_included or self._names else False

    def over(self, columns: SlotColumns, is_backward: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return which slots are watched.

        Parameters
        ----------
        columns : SlotColumns
        is_backward : ndarray of bool
            Which of them belong to the backward pass, regardless of their scopes.
        """
        selected = np.zeros(len(columns), np.bool_)
        rule = self._node_rule
        if rule is not None:
            forward = columns.of_classes(lambda each: _includes(rule, each, is_backward=False))
            backward = columns.of_classes(lambda each: _includes(rule, each, is_backward=True))
            selected = np.where(is_backward, backward, forward)
            if rule.names is not None:
                selected &= columns.named(rule.names)
            if rule.pattern is not None:
                selected &= columns.named(list(filter(rule.pattern, columns.names)))
        if self._names:
            selected |= columns.named(self._names)
            selected |= columns.named(self._tails) & columns.of_classes(lambda each: each.role != "operator")
        return selected & columns.of_classes(lambda each: each.io == "output")

    @property
    def depends_on_layers(self) -> bool:
        """Whether the layers of the network decide which weights are watched."""
        return self._rule.selector is not None and self._rule.selector.kind is SelectorKind.INNER_MATRICES

    def may_turn_out(self, columns: SlotColumns) -> NDArray[np.bool_]:
        """Return which slots may be watched once the layers have shown the roles of their nodes."""
        return columns.of_classes(self.class_may_turn_out)

    def class_may_turn_out(self, slot_class: SlotClass) -> bool:
        """Do the same for a class of slots."""
        selector = self._rule.selector
        return (
            selector is not None
            and selector.kind in _BY_LAYERS
            and slot_class.io == "output"
            and slot_class.role == "operator"
            and slot_class.is_gradient == (selector.kind is SelectorKind.MATRIX_GRADIENTS)
        )

    def name_of(self, node: DeclaredNode) -> str:
        """Return the server's name of a node; empty if it is the name here."""
        if node.role == "operator" or node.name in self._names:
            return ""
        return self._tails.get(node.name, "")


def _includes(rule: NodeRule, slot_class: SlotClass, *, is_backward: bool) -> bool:
    return rule.includes(slot_class.type, _KINDS[slot_class.role], is_backward)


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
