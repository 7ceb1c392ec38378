"""What is computed: graphs, their nodes and scopes, the lines of code behind them, and how to find a node."""

from __future__ import annotations

from tensight.graph.addresses import TensorAddress
from tensight.graph.data_types import OutputSlot, data_type_name, data_type_number, numpy_dtype_name
from tensight.graph.model import Graph
from tensight.graph.node import Edge, EdgeKind, Node
from tensight.graph.parsing import parse_graph, parse_graph_proto
from tensight.graph.scopes import Scope
from tensight.graph.source import SourceFrame, parse_frame
from tensight.graph.values import Monad, TensorValue, UnreadableValue

__all__ = [
    "Edge",
    "EdgeKind",
    "Graph",
    "Monad",
    "Node",
    "OutputSlot",
    "Scope",
    "SourceFrame",
    "TensorAddress",
    "TensorValue",
    "UnreadableValue",
    "data_type_name",
    "data_type_number",
    "numpy_dtype_name",
    "parse_frame",
    "parse_graph",
    "parse_graph_proto",
]
