"""Kinds of nodes: weights, gradients, activations."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from tensight.graph.layers import backward_operators
from tensight.graph.operator_facts import ORIGINAL_ACTIVATIONS, activation_name
from tensight.graph.optimizers import is_gradient_scope, parameter_roles

if TYPE_CHECKING:
    from tensight.graph.model import Graph
    from tensight.graph.node import Node


class NodeKind(Enum):
    """The kind of a node; a node may have several."""

    WEIGHT = "weight"
    """A parameter that is trained."""
    FROZEN_WEIGHT = "frozen_weight"
    """A weight that is never updated."""
    OPTIMIZER_STATE = "optimizer_state"
    """A parameter of the optimizer: a moment, an accumulator, a step counter, a learning rate."""
    GRADIENT = "gradient"
    """An operator of the backward pass."""
    ACTIVATION = "activation"
    """An activation function of the forward pass."""
    TENSOR = "tensor"
    """Any node that can be watched: operators and parameters."""
    CONSTANT = "constant"
    """A constant; it never changes, so it cannot be watched."""


def original_kinds(node: Node, graph: Graph | None = None) -> frozenset[NodeKind]:
    """Classify a node exactly as MindInsight does (``node_type_identifier`` of version 2.0).

    Parameters
    ----------
    node : Node
        The node.
    graph : Graph, optional
        Its graph. MindInsight shows and classifies a parameter in each scope that uses it; here, it is a weight if it
        is one in any of these scopes. Without the graph, only the parameter's own name counts, so the moments of an
        optimizer are classified as weights.

    Returns
    -------
    frozenset of NodeKind
        A subset of WEIGHT, GRADIENT, ACTIVATION, TENSOR and CONSTANT.
    """
    if node.is_constant:
        return frozenset({NodeKind.CONSTANT})
    if node.is_parameter:
        weight = any(_is_original_weight(name) for name in _names_in_scopes(node, graph))
        return frozenset({NodeKind.TENSOR, NodeKind.WEIGHT} if weight else {NodeKind.TENSOR})
    if is_gradient_scope(node.full_name or node.name):
        return frozenset({NodeKind.TENSOR, NodeKind.GRADIENT})
    if node.type.lower() in ORIGINAL_ACTIVATIONS:
        return frozenset({NodeKind.TENSOR, NodeKind.ACTIVATION})
    return frozenset({NodeKind.TENSOR})


def kinds(graph: Graph, node: Node) -> frozenset[NodeKind]:
    """Classify a node of a graph.

    Unlike in MindInsight, weights are the parameters that an optimizer updates, regardless of their names; gradients
    include backward operators that lost their scope when the compiler expanded them; activations include newer
    functions and fusions that end with one.

    Parameters
    ----------
    graph : Graph
        The graph.
    node : Node
        A node of the graph.

    Returns
    -------
    frozenset of NodeKind
        All kinds that apply, including TENSOR for all nodes except constants.
    """
    if node.is_constant:
        return frozenset({NodeKind.CONSTANT})
    node_kinds = {NodeKind.TENSOR}
    if node.is_parameter:
        roles = parameter_roles(graph)
        for names, kind in (
            (roles.trainable, NodeKind.WEIGHT),
            (roles.frozen, NodeKind.FROZEN_WEIGHT),
            (roles.states, NodeKind.OPTIMIZER_STATE),
        ):
            if node.name in names:
                node_kinds.add(kind)
    elif is_gradient_scope(node.name) or node.name in backward_operators(graph):
        node_kinds.add(NodeKind.GRADIENT)
    elif activation_name(node.type):
        node_kinds.add(NodeKind.ACTIVATION)
    return frozenset(node_kinds)


def _names_in_scopes(node: Node, graph: Graph | None) -> list[str]:
    if graph is None:
        return [node.name]
    scopes = dict.fromkeys(consumer.scope for consumer in graph.consumers(node))
    return [f"{scope}/{node.name}" if scope else node.name for scope in scopes]


def _is_original_weight(full_name: str) -> bool:
    lower = full_name.lower()
    return lower.endswith((".weight", ".bias")) and "optimizer-" not in lower and not lower.startswith("gradients/")
