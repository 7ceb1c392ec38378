"""All nodes of a dump, by rank, as the drop-in API shows them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from tensight.debugger.exceptions import DebuggerParamValueError
from tensight.debugger.node import Node
from tensight.dumps import CONSTANTS
from tensight.graph import TensorValue

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tensight import graph
    from tensight.dumps import Dump, TensorFile
    from tensight.graph import Graph


ASSIGN_INPUTS = 3
"""Parameter, value, and the order of side effects."""


class DumpNodes:
    """The nodes of a dump, built for a rank when it is first asked for.

    Parameters
    ----------
    dump : Dump
        The dump.
    """

    def __init__(self, dump: Dump) -> None:
        self.dump = dump
        self._of_rank: dict[int, tuple[Node, ...]] = {}
        self._by_name: dict[int, dict[tuple[str, str], Node]] = {}
        self._files: dict[int, dict[tuple[str, str], list[TensorFile]]] = {}
        self._outputs: dict[int, dict[Node, list[Node]]] = {}

    def of_rank(self, rank: int) -> tuple[Node, ...]:
        """Return the nodes of a rank: constants of all graphs, parameters, then operators in topological order."""
        if rank not in self._of_rank:
            graphs = self.dump.graphs(rank)
            nodes = tuple(
                Node(self, rank, graph, node)
                for kind in ("constants", "parameters", "operators")
                for graph in graphs
                for node in getattr(graph, kind)
            )
            self._of_rank[rank] = nodes
            self._by_name[rank] = {(node.graph_name, node.source.name): node for node in nodes}
        return self._of_rank[rank]

    def iterations(self, rank: int) -> list[int]:
        """Return the dumped iterations of a rank, ascending."""
        return list(self.dump.iterations(rank))

    def iterations_of_graph(self, rank: int, root_graph_id: int) -> list[int]:
        """Return the iterations in which a root graph of a rank was dumped, ascending."""
        return list(self.dump.iterations(rank, root_graph_id))

    def same(self, node: Node) -> Node:
        """Return this dump's node with the rank, graph and name of a node that may come from another dump.

        Raises
        ------
        DebuggerParamValueError
            This dump has no such node.
        """
        if node.owner is self:
            return node
        found = None
        if node.rank in self.dump.ranks:
            self.of_rank(node.rank)
            found = self._by_name[node.rank].get((node.graph_name, node.source.name))
        if found is None:
            raise DebuggerParamValueError(
                f"The node {node.name} of rank {node.rank} in {node.graph_name} is not in the dump {self.dump.path};"
                " select nodes with the same DumpAnalyzer."
            )
        return found

    def input_nodes(self, node: Node) -> list[Node]:
        """Return the nodes that a node takes its inputs from, one for each input."""
        sources = [edge.source for edge in inputs_shown(node.source)]
        return [self._node(node.rank, node.parent, source) for source in sources if source in node.parent]

    def output_nodes(self, node: Node) -> list[Node]:
        """Return the nodes that take an output of a node, in topological order, one for each input fed."""
        return list(self._outputs_of_rank(node.rank).get(node, ()))

    def file(self, node: Node, slot: int, iteration: int) -> TensorFile | None:
        """Return the file of an output, None when it was not dumped."""
        if node.rank not in self.dump.ranks:
            return None
        return self.dump.at(node.rank, node.root_graph_id, iteration, node.source.name, slot, "output")

    def files_of(self, node: Node) -> list[TensorFile]:
        """Return the input and output files of a node in all iterations, inputs first, slot by slot."""
        if node.rank not in self._files:
            by_node: dict[tuple[str, str], list[TensorFile]] = {}
            for file in self.dump.tensors(ranks=[node.rank]):
                if file.node is not None and not file.is_constant:
                    by_node.setdefault((file.graph, file.node), []).append(file)
            self._files[node.rank] = by_node
        return self._files[node.rank].get((node.graph_name, node.source.name), [])

    def file_with_value(self, node: Node, slot: int, iteration: int | None) -> TensorFile | None:
        """Return the file that holds the elements of an output; that of a constant belongs to no iteration."""
        if iteration is None:
            return None
        return self.file(node, slot, CONSTANTS if node.source.is_constant else iteration)

    def value(self, node: Node, slot: int, iteration: int) -> NDArray[Any] | None:
        """Return the elements of an output, None when there are none.

        Raises
        ------
        TensorFileError
            The file is damaged.
        """
        from tensight.dumps import read_tensor

        found = self.file_with_value(node, slot, iteration)
        if found is not None:
            array = np.asarray(read_tensor(found))
            return array if array.size else None
        return _immediate(node.source.value) if node.source.is_constant else None

    def _node(self, rank: int, graph: Graph, name: str) -> Node:
        self.of_rank(rank)
        return self._by_name[rank][graph.name, name]

    def _outputs_of_rank(self, rank: int) -> dict[Node, list[Node]]:
        if rank not in self._outputs:
            outputs: dict[Node, list[Node]] = {}
            for consumer in self.of_rank(rank):
                for source in self.input_nodes(consumer):
                    outputs.setdefault(source, []).append(consumer)
            self._outputs[rank] = outputs
        return self._outputs[rank]


def inputs_shown(node: graph.Node) -> tuple[graph.Edge, ...]:
    """Return the inputs that the original shows: of an ``Assign`` with three inputs not the parameter assigned to."""
    if node.type == "Assign" and len(node.inputs) == ASSIGN_INPUTS:
        return node.inputs[1:]
    return node.inputs


def _immediate(value: object) -> NDArray[Any] | None:
    """Return a value written into the graph as an array; None for what is no number (a monad, text, a type)."""
    if isinstance(value, TensorValue):
        return _tensor(value)
    if isinstance(value, (bool, int, float)):
        return np.array(value)
    if isinstance(value, (tuple, list)) and value and all(isinstance(element, (bool, int, float)) for element in value):
        return np.array(value)
    return None


def _tensor(value: TensorValue) -> NDArray[Any] | None:
    """Return a tensor written into the graph, None when its elements are missing or do not fit its shape."""
    try:
        dtype = np.dtype(value.dtype) if value.dtype else None
    except TypeError:
        return None
    count = math.prod(value.shape)
    if dtype is None or count * dtype.itemsize != len(value.content):
        return None
    return np.frombuffer(value.content, dtype.newbyteorder("<")).reshape(value.shape)
