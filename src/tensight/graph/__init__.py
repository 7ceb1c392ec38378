"""The computation: graphs, their nodes and scopes, the source lines of operators, and the search for nodes."""

from __future__ import annotations

from tensight.graph.addresses import TensorAddress
from tensight.graph.data_types import OutputSlot, data_type_name, data_type_number, numpy_dtype_name
from tensight.graph.declared import ParameterRoles
from tensight.graph.kinds import NodeKind, kinds, original_kinds
from tensight.graph.layer_node import LayerNode
from tensight.graph.layers import Layers, find_layers, holds_integers
from tensight.graph.model import Graph
from tensight.graph.node import Edge, EdgeKind, Node
from tensight.graph.operator_facts import activation_name
from tensight.graph.optimizers import (
    frozen_weights,
    is_after_forward,
    is_gradient_scope,
    is_optimizer,
    optimizer_states,
    trainable_weight_names,
    trainable_weights,
)
from tensight.graph.parsing import graph_proto_steps, parse_graph, parse_graph_proto
from tensight.graph.scopes import Scope
from tensight.graph.search import search, text_pattern
from tensight.graph.source import SourceFrame, parse_frame, user_frame
from tensight.graph.steps import iteration_of, step_of
from tensight.graph.values import Monad, TensorValue, UnreadableValue
from tensight.graph.zero_provenance import ZeroProvenance

__all__ = [
    "Edge",
    "EdgeKind",
    "Graph",
    "LayerNode",
    "Layers",
    "Monad",
    "Node",
    "NodeKind",
    "OutputSlot",
    "ParameterRoles",
    "Scope",
    "SourceFrame",
    "TensorAddress",
    "TensorValue",
    "UnreadableValue",
    "ZeroProvenance",
    "activation_name",
    "data_type_name",
    "data_type_number",
    "find_layers",
    "frozen_weights",
    "graph_proto_steps",
    "holds_integers",
    "is_after_forward",
    "is_gradient_scope",
    "is_optimizer",
    "iteration_of",
    "kinds",
    "numpy_dtype_name",
    "optimizer_states",
    "original_kinds",
    "parse_frame",
    "parse_graph",
    "parse_graph_proto",
    "search",
    "step_of",
    "text_pattern",
    "trainable_weight_names",
    "trainable_weights",
    "user_frame",
]
