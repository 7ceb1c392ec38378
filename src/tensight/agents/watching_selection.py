"""Which places a watchpoint watches: outputs of nodes that are named, or that a selector means."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensight.graph import activation_name, is_gradient_scope, text_pattern
from tensight.watchpoints import SelectorKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from tensight.agents.places import DeclaredNode, Place
    from tensight.agents.watching_commands import WatchRule
    from tensight.watchpoints import Selector


class Selection:
    """Decides of each node whether a watchpoint watches it; nodes are asked about once, as they are declared."""

    def __init__(self, rule: WatchRule) -> None:
        self._names = rule.names
        self._tails = rule.tails
        self._selected = None if rule.selector is None else _matcher(rule.selector)

    def __call__(self, place: Place) -> bool:
        """Whether a place is watched. As in MindSpore, only what nodes put out is."""
        if place.io != "output":
            return False
        node = place.node
        if self._selected is not None and self._selected(node):
            return True
        if node.name in self._names:
            return True
        return node.role != "operator" and node.name in self._tails

    def name_of(self, node: DeclaredNode) -> str:
        """Return what the server calls a node, where that is not its name here."""
        if node.role == "operator" or node.name in self._names:
            return ""
        return self._tails.get(node.name, "")


def _matcher(selector: Selector) -> Callable[[DeclaredNode], bool]:
    kind = selector.kind
    if kind is SelectorKind.ALL:
        return lambda _: True
    if kind in (SelectorKind.WEIGHTS, SelectorKind.TRAINABLE_WEIGHTS):
        return lambda node: node.role == "weight"
    if kind is SelectorKind.GRADIENTS:
        return lambda node: is_gradient_scope(node.name)
    if kind is SelectorKind.NAME:
        pattern = text_pattern(selector.argument)
        return lambda node: pattern.search(node.name) is not None
    if kind is SelectorKind.TYPE:
        types = {name.lower() for name in selector.names}
        return lambda node: node.type.lower() in types
    if kind is SelectorKind.ACTIVATIONS:
        return lambda node: _activation(node) != ""
    functions = {activation_name(name) or name.lower() for name in selector.names}
    return lambda node: _activation(node) in functions


def _activation(node: DeclaredNode) -> str:
    """Return the activation function that a node of the forward pass computes; empty if none."""
    if node.role != "operator" or is_gradient_scope(node.name):
        return ""
    return activation_name(node.type)
