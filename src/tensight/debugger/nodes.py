"""The nodes of a dump in the drop-in API, with their tensors and lines of code."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

import numpy as np

from tensight.debugger.arguments import IntSelection, selected_numbers, selected_slots
from tensight.debugger.exceptions import DebuggerParamValueError
from tensight.dumps import CONSTANTS
from tensight.graph import TensorValue
from tensight.graph.data_types import MONADS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tensight import graph
    from tensight.dumps import Dump, TensorFile
    from tensight.graph import Graph, SourceFrame

_OLD_GRAPH_NAME = re.compile(r"_[0-9]+$")
ASSIGN_INPUTS = 3
"""Parameter, value, and the dependency that orders side effects."""


class SourceLine(dict[str, Any]):
    """A line of a node's stack: a dictionary whose entries are also attributes.

    The keys are ``file_path``, ``line_no``, ``code_line`` and ``has_substack``. A line that is not a frame (a heading,
    or an unknown format) has an empty path, line number 0 and the whole line as its code.

    Parameters
    ----------
    frame : SourceFrame
        The line, as in the graph.
    """

    def __init__(self, frame: SourceFrame) -> None:
        super().__init__(
            file_path=frame.file,
            line_no=frame.line or 0,
            code_line=frame.code if frame.file else frame.raw,
            has_substack=frame.has_substack,
        )

    @property
    def file_path(self) -> str:
        """The source file."""
        return str(self["file_path"])

    @property
    def line_no(self) -> int:
        """The line number, from 1."""
        return int(self["line_no"])

    @property
    def code_line(self) -> str:
        """The code."""
        return str(self["code_line"])

    @property
    def has_substack(self) -> bool:
        """Whether frames of the code that it calls follow."""
        return bool(self["has_substack"])

    def to_dict(self) -> dict[str, Any]:
        """Return a plain dictionary."""
        return dict(self)

    def __str__(self) -> str:
        """Return the text that `DumpAnalyzer.select_nodes` searches with ``select_by="code_stack"``."""
        if not self.file_path:
            return self.code_line
        return f"# {'-' if self.has_substack else ' '} {self.file_path}:{self.line_no}  {self.code_line}"


class Node:
    """A node of a graph: an operator, a parameter or a constant.

    Obtain nodes from `DumpAnalyzer.select_nodes`. Each node of a dump is a single object, so ``==`` and ``is`` work.

    Parameters
    ----------
    owner : DumpNodes
        The nodes of the dump that contains it.
    rank : int
        Its rank.
    parent : tensight.graph.Graph
        Its graph.
    node : tensight.graph.Node
        The node in the graph.
    """

    __slots__ = ("_name", "_node", "_owner", "_parent", "_rank")

    def __init__(self, owner: DumpNodes, rank: int, parent: graph.Graph, node: graph.Node) -> None:
        self._owner = owner
        self._rank = rank
        self._parent = parent
        self._node = node
        self._name = name_of(node, parent)

    @property
    def name(self) -> str:
        """The full name with scope; for parameters and constants the name.

        In graphs of MindSpore up to 2.3 the original names ``Load`` and summary operators by scope, type and id.
        """
        return self._name

    @property
    def stack(self) -> list[SourceLine]:
        """The lines of code behind the node, innermost first; empty for parameters and constants."""
        return [SourceLine(frame) for frame in self._node.frames]

    @property
    def rank(self) -> int:
        """Its rank."""
        return self._rank

    @property
    def root_graph_id(self) -> int:
        """Number of the root graph, which also names its folder in the dump."""
        return self._parent.root_id

    @property
    def graph_name(self) -> str:
        """Name of the graph."""
        return self._parent.name

    @property
    def owner(self) -> DumpNodes:
        """The nodes of the dump that contains it."""
        return self._owner

    @property
    def parent(self) -> graph.Graph:
        """The graph, as the rest of Tensight represents it."""
        return self._parent

    @property
    def source(self) -> graph.Node:
        """The node, as the rest of Tensight represents it."""
        return self._node

    def get_input_tensors(
        self, iterations: IntSelection = None, slots: list[int] | None = None
    ) -> list[DebuggerTensor]:
        """Return the inputs of the node: the outputs of its input nodes.

        Parameters
        ----------
        iterations : int, list of int, set of int, optional
            Iterations; by default all dumped ones. Those that were not dumped are left out.
        slots : list of int, optional
            Indices of inputs; by default all. They are counted over the outputs of all input nodes in turn.

        Raises
        ------
        DebuggerParamTypeError
            `iterations` or an element of `slots` has the wrong type.
        TypeError
            `slots` is neither a list nor None.
        """
        chosen = self._chosen_iterations(iterations)
        positions = selected_slots(slots)
        outputs = [(node, slot) for node in self._owner.input_nodes(self) for slot in range(node.slot_count)]
        return [
            DebuggerTensor(node, slot, iteration)
            for position, (node, slot) in enumerate(outputs)
            if positions is None or position in positions
            for iteration in chosen
        ]

    def get_output_tensors(
        self, iterations: IntSelection = None, slots: list[int] | None = None
    ) -> list[DebuggerTensor]:
        """Return the outputs of the node.

        Parameters
        ----------
        iterations : int, list of int, set of int, optional
            Iterations; by default all dumped ones. Those that were not dumped are left out.
        slots : list of int, optional
            Indices of outputs; by default all.

        Raises
        ------
        DebuggerParamTypeError
            `iterations` or an element of `slots` has the wrong type.
        TypeError
            `slots` is neither a list nor None.
        """
        return self.outputs_in(self._chosen_iterations(iterations), selected_slots(slots))

    def outputs_in(self, iterations: Sequence[int], slots: frozenset[int] | None = None) -> list[DebuggerTensor]:
        """Return the output tensors of given iterations, slot by slot, without validation.

        Parameters
        ----------
        iterations : sequence of int
            From 0.
        slots : frozenset of int, optional
            Indices of outputs, from 0; by default all.
        """
        chosen = [slot for slot in range(self.slot_count) if slots is None or slot in slots]
        return [DebuggerTensor(self, slot, iteration) for slot in chosen for iteration in iterations]

    @property
    def slot_count(self) -> int:
        """Number of outputs, at least one. Tuple elements that only order side effects do not count."""
        return max(1, sum(slot.data_type not in MONADS for slot in self._node.outputs))

    def _chosen_iterations(self, iterations: IntSelection) -> list[int]:
        available = self._owner.iterations_of_graph(self._rank, self.root_graph_id)
        if iterations is not None and not available:
            # This graph was not dumped; the original then accepts every iteration.
            return selected_numbers("iterations", iterations, None)
        return selected_numbers("iterations", iterations, available, skip_unknown=True)

    def __str__(self) -> str:
        """Return rank, graph and name, on a line each."""
        return f"rank: {self._rank}\ngraph_name: {self._parent.name}\nnode_name: {self._name}"


def name_of(node: graph.Node, parent: graph.Graph) -> str:
    """Return the name of a node in the drop-in API."""
    if node.is_constant:
        return node.id or node.name
    renamed = node.type == "Load" or "Summary" in node.type
    if renamed and node.is_operator and _OLD_GRAPH_NAME.search(parent.name):
        short = f"{node.type}-op{node.id}"
        return f"{node.scope}/{short}" if node.scope else short
    # Runs recorded by Tensight use the name by which the original finds their files.
    return node.full_name if node.is_operator and is_recorded_otherwise(node) else node.name


def is_recorded_otherwise(node: graph.Node) -> bool:
    """Whether the files of a node have a different name than in the training, other than by a repetition number."""
    return bool(node.full_name) and not node.name.startswith(node.full_name)


class DebuggerTensor:
    """An output of a node in an iteration.

    Obtain tensors from `DumpAnalyzer.select_tensors`, `Node.get_output_tensors` or `Node.get_input_tensors`. Two
    objects for the same tensor are equal.

    Parameters
    ----------
    node : Node
        The node of the output.
    slot : int
        Index of the output, from 0.
    iteration : int or None
        The iteration, from 0.
    """

    __slots__ = ("_iteration", "_node", "_slot")

    def __init__(self, node: Node, slot: int, iteration: int | None) -> None:
        self._node = node
        self._slot = slot
        self._iteration = iteration

    @property
    def node(self) -> Node:
        """The node of this output."""
        return self._node

    @property
    def slot(self) -> int:
        """Index of the output, from 0."""
        return self._slot

    @property
    def iteration(self) -> int | None:
        """The iteration, from 0."""
        return self._iteration

    @property
    def rank(self) -> int:
        """The rank of the process that computed it."""
        return self._node.rank

    def value(self) -> NDArray[Any] | None:
        """Return the elements.

        Returns
        -------
        ndarray or None
            Read-only. None if the tensor was not dumped or is empty, or without an iteration. Constants have one
            value, from the dump or from the graph, in every iteration.

        Raises
        ------
        TensorFileError
            The file is damaged.
        """
        if self._iteration is None:
            return None
        return self._node.owner.value(self._node, self._slot, self._iteration)

    def __eq__(self, other: object) -> bool:
        """Return whether both refer to the same tensor."""
        if not isinstance(other, DebuggerTensor):
            return NotImplemented
        return (self._node, self._slot, self._iteration) == (other._node, other._slot, other._iteration)

    def __hash__(self) -> int:
        return hash((self._node, self._slot, self._iteration))

    def __str__(self) -> str:
        """Return rank, graph, node, slot and iteration, on a line each."""
        return f"{self._node}\nslot: {self._slot}\niteration: {self._iteration}"


class DumpNodes:
    """The nodes of a dump, built for each rank at first access.

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
        """Return this dump's node with the rank, graph and name of a node that may belong to another dump.

        Raises
        ------
        DebuggerParamValueError
            This dump has no such node.
        """
        if node.owner is self:
            return node
        same = None
        if node.rank in self.dump.ranks:
            self.of_rank(node.rank)
            same = self._by_name[node.rank].get((node.graph_name, node.source.name))
        if same is None:
            raise DebuggerParamValueError(
                f"The node {node.name} of rank {node.rank} in {node.graph_name} is not in the dump {self.dump.path};"
                " select nodes with the same DumpAnalyzer."
            )
        return same

    def input_nodes(self, node: Node) -> list[Node]:
        """Return the producers of a node's inputs, one for each input."""
        sources = [edge.source for edge in inputs_shown(node.source)]
        return [self._node(node.rank, node.parent, source) for source in sources if source in node.parent]

    def output_nodes(self, node: Node) -> list[Node]:
        """Return the consumers of a node's outputs, in topological order, one for each input fed."""
        return list(self._outputs_of_rank(node.rank).get(node, ()))

    def file(self, node: Node, slot: int, iteration: int) -> TensorFile | None:
        """Return the file of an output, None if it was not dumped."""
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
        """Return the file that contains the elements of an output; a constant has one file for all iterations."""
        if iteration is None:
            return None
        return self.file(node, slot, CONSTANTS if node.source.is_constant else iteration)

    def value(self, node: Node, slot: int, iteration: int) -> NDArray[Any] | None:
        """Return the elements of an output, None if there are none.

        Raises
        ------
        TensorFileError
            The file is damaged.
        """
        from tensight.dumps import read_tensor

        file = self.file_with_value(node, slot, iteration)
        if file is not None:
            array = np.asarray(read_tensor(file))
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
    """Return the inputs that the original shows: without the assigned parameter for an ``Assign`` with three inputs."""
    if node.type == "Assign" and len(node.inputs) == ASSIGN_INPUTS:
        return node.inputs[1:]
    return node.inputs


def _immediate(value: object) -> NDArray[Any] | None:
    """Return a value stored in the graph as an array; None if it is not a number (a monad, text, a type)."""
    if isinstance(value, TensorValue):
        return _tensor(value)
    if isinstance(value, (bool, int, float)):
        return np.array(value)
    if isinstance(value, (tuple, list)) and value and all(isinstance(element, (bool, int, float)) for element in value):
        return np.array(value)
    return None


def _tensor(value: TensorValue) -> NDArray[Any] | None:
    """Return a tensor stored in the graph; None if elements are missing or do not fit its shape."""
    try:
        dtype = np.dtype(value.dtype) if value.dtype else None
    except TypeError:
        return None
    count = math.prod(value.shape)
    if dtype is None or count * dtype.itemsize != len(value.content):
        return None
    return np.frombuffer(value.content, dtype.newbyteorder("<")).reshape(value.shape)
