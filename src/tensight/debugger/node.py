"""A node of the graph as the drop-in API shows it, and the lines of code it came from."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from tensight.debugger.arguments import IntSelection, selected_numbers, selected_slots
from tensight.debugger.tensor import DebuggerTensor
from tensight.graph.data_types import MONADS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tensight import graph
    from tensight.debugger.dump_nodes import DumpNodes
    from tensight.graph import SourceFrame

_OLD_GRAPH_NAME = re.compile(r"_[0-9]+$")


class SourceLine(dict[str, Any]):
    """One line of a node's stack: a dictionary whose entries are attributes, too.

    The keys are ``file_path``, ``line_no``, ``code_line`` and ``has_substack``. A line that is no frame (a heading, or
    a form that nobody knows) has an empty path, line number 0 and the whole line as its code.
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
        """The line in it, from 1."""
        return int(self["line_no"])

    @property
    def code_line(self) -> str:
        """The code."""
        return str(self["code_line"])

    @property
    def has_substack(self) -> bool:
        """Whether more frames of the code it calls follow."""
        return bool(self["has_substack"])

    def to_dict(self) -> dict[str, Any]:
        """Return a plain dictionary."""
        return dict(self)

    def __str__(self) -> str:
        """Return the text in which `DumpAnalyzer.select_nodes` searches with ``select_by="code_stack"``."""
        if not self.file_path:
            return self.code_line
        return f"# {'-' if self.has_substack else ' '} {self.file_path}:{self.line_no}  {self.code_line}"


class Node:
    """A node of a graph: an operator, a parameter or a constant.

    Obtain them from `DumpAnalyzer.select_nodes`. A node of a dump is one object, so ``==`` and ``is`` compare it.

    Parameters
    ----------
    owner : DumpNodes
        The nodes of the dump that it belongs to.
    rank : int
        The rank whose graph it is in.
    parent : tensight.graph.Graph
        That graph.
    node : tensight.graph.Node
        The node in it.
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
        """The full name with scope; of a parameter or a constant its own name.

        In graphs of MindSpore up to 2.3 the original calls ``Load`` and summary operators by scope, type and id.
        """
        return self._name

    @property
    def stack(self) -> list[SourceLine]:
        """The lines of code that the node came from, innermost first; empty for parameters and constants."""
        return [SourceLine(frame) for frame in self._node.frames]

    @property
    def rank(self) -> int:
        """The rank whose graph it is in."""
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
        """The nodes of the dump that it belongs to."""
        return self._owner

    @property
    def parent(self) -> graph.Graph:
        """The graph, as the rest of Tensight sees it."""
        return self._parent

    @property
    def source(self) -> graph.Node:
        """The node, as the rest of Tensight sees it."""
        return self._node

    def get_input_tensors(
        self, iterations: IntSelection = None, slots: list[int] | None = None
    ) -> list[DebuggerTensor]:
        """Return the tensors that the node takes: the outputs of its input nodes.

        Parameters
        ----------
        iterations : int, list of int, set of int, optional
            Which iterations; all dumped ones by default. Those that were not dumped are left out.
        slots : list of int, optional
            Which inputs; all by default. They count over the outputs of all input nodes, one after the other.

        Raises
        ------
        DebuggerParamTypeError
            `iterations` or an element of `slots` has the wrong type.
        TypeError
            `slots` is neither a list nor None.
        """
        chosen = self._chosen_iterations(iterations)
        wanted = selected_slots(slots)
        outputs = [(node, slot) for node in self._owner.input_nodes(self) for slot in range(node.slot_count)]
        return [
            DebuggerTensor(node, slot, iteration)
            for position, (node, slot) in enumerate(outputs)
            if wanted is None or position in wanted
            for iteration in chosen
        ]

    def get_output_tensors(
        self, iterations: IntSelection = None, slots: list[int] | None = None
    ) -> list[DebuggerTensor]:
        """Return the tensors that the node produces.

        Parameters
        ----------
        iterations : int, list of int, set of int, optional
            Which iterations; all dumped ones by default. Those that were not dumped are left out.
        slots : list of int, optional
            Which outputs; all by default.

        Raises
        ------
        DebuggerParamTypeError
            `iterations` or an element of `slots` has the wrong type.
        TypeError
            `slots` is neither a list nor None.
        """
        return self.outputs_in(self._chosen_iterations(iterations), selected_slots(slots))

    def outputs_in(self, iterations: Sequence[int], slots: frozenset[int] | None = None) -> list[DebuggerTensor]:
        """Return the output tensors of given iterations, slot by slot, without any test of the arguments."""
        chosen = [slot for slot in range(self.slot_count) if slots is None or slot in slots]
        return [DebuggerTensor(self, slot, iteration) for slot in chosen for iteration in iterations]

    @property
    def slot_count(self) -> int:
        """How many outputs it has; at least one. Elements of a tuple that only order side effects do not count."""
        return max(1, sum(slot.data_type not in MONADS for slot in self._node.outputs))

    def _chosen_iterations(self, iterations: IntSelection) -> list[int]:
        available = self._owner.iterations_of_graph(self._rank, self.root_graph_id)
        if iterations is not None and not available:
            # Nothing was dumped of this graph; the original then takes every iteration.
            return selected_numbers("iterations", iterations, None)
        return selected_numbers("iterations", iterations, available, skip_unknown=True)

    def __str__(self) -> str:
        """Return rank, graph and name, a line each."""
        return f"rank: {self._rank}\ngraph_name: {self._parent.name}\nnode_name: {self._name}"


def name_of(node: graph.Node, parent: graph.Graph) -> str:
    """Return the name that the drop-in API gives to a node."""
    if node.is_constant:
        return node.id or node.name
    renamed = node.type == "Load" or "Summary" in node.type
    if renamed and node.is_operator and _OLD_GRAPH_NAME.search(parent.name):
        short = f"{node.type}-op{node.id}"
        return f"{node.scope}/{short}" if node.scope else short
    # What Tensight recorded has the name by which the original finds its files.
    return node.full_name if node.is_operator and is_recorded_otherwise(node) else node.name


def is_recorded_otherwise(node: graph.Node) -> bool:
    """Whether the files of a node have another name than the training gave it; a repeated name is only numbered."""
    return bool(node.full_name) and not node.name.startswith(node.full_name)
