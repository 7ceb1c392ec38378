"""Programs of the graphs that MindSpore writes beside its dump, and the slots of the dumped files."""

from __future__ import annotations

import re
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from tensight.agents.core.notices import log_once
from tensight.agents.core.program import Program
from tensight.agents.core.slots import NO_SLOT
from tensight.agents.mindspore.parameter_names import ParameterNames
from tensight.agents.mindspore.printed_constants import read_printed, with_printed_constants
from tensight.agents.mindspore.traced_graphs import (
    executed,
    is_tuple,
    optimizes,
    other_role,
    results,
    sources,
    traced_nodes,
    updates_weights,
    user_stack,
)
from tensight.agents.mindspore.written_graphs import merged, renamed
from tensight.dumps.execution import ExecutionOrder
from tensight.dumps.matching import NodeMatcher, has_slot
from tensight.dumps.names import split_name
from tensight.errors import GraphError
from tensight.graph import parse_graph
from tensight.graph.given import printed_names
from tensight.graph.layers import nodes_of
from tensight.graph.operator_facts import UPDATED_IN_PLACE, may_write_inputs
from tensight.graph.optimizers import parameter_roles
from tensight.graph.parsing import graph_proto
from tensight.graph.spreading import runs_after_forward
from tensight.graph.unwritten import is_unwritten

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from tensight.agents.core.program import Role, TracedNode
    from tensight.agents.core.slots import Io, SlotTable
    from tensight.dumps.matching import Match
    from tensight.graph import Graph, Node

_NUMBER = re.compile(r"(?P<stem>.+-op)(?P<number>[0-9]{1,9})", re.ASCII | re.DOTALL)
_PERSISTENT: tuple[Role, ...] = ("weight", "frozen_weight", "state", "buffer")

_Meaning = tuple[object, ...]
"""What an operator does: its type, the sources of its inputs, its outputs, and the line of code."""


class GraphPrograms:
    """The programs of the graphs of a process.

    Graphs of one network contain different facts: only the one with the optimizer shows what is trained. So each
    parameter has the role that follows from all graphs known so far. Graphs that were compiled separately use the same
    names for their operators; if a name means something else in a later graph, the operator gets another number.

    Parameters
    ----------
    slot_table : SlotTable
        A parameter that is declared there already, by code that knows the network, keeps its role.
    requires_gradient : callable (name) -> bool, optional
        Whether a parameter has the default of being trainable.
    """

    def __init__(self, slot_table: SlotTable, requires_gradient: Callable[[str], bool] = lambda _: False) -> None:
        self._slot_table = slot_table
        self._requires_gradient = requires_gradient
        self._graphs: dict[int, LearnedGraph] = {}
        self._programs: dict[int, DumpedProgram] = {}
        self._meanings: dict[str, tuple[int, _Meaning]] = {}
        self._parameters = ParameterNames()
        self._declared: dict[str, Role] = {}
        self._refused: dict[str, int] = {}

    def learn(self, graph_files: Mapping[int, str], order_of: Callable[[int], tuple[str, ...]]) -> None:
        """Read new graphs.

        Parameters
        ----------
        graph_files : mapping of int to str
            Paths of all graph files, by the number in their names.
        order_of : callable
            Returns the names of a graph's operators in the order of execution.
        """
        new = [(number, path) for number, path in sorted(graph_files.items()) if number not in self._graphs]
        for number, path in new:
            data = _bytes_of(path)
            if self._refused.get(path) == len(data):
                continue
            try:
                graph = parse_graph(data, where=path)
            except GraphError as error:
                self._refused[path] = len(data)
                log_once(f"a graph cannot be read, and what it runs is not observed: {error}")
                continue
            listed = order_of(graph.graph_id) or order_of(number)
            written = with_printed_constants(graph_proto(data, where=path), path)
            self._graphs[number] = LearnedGraph(graph, listed, written, self._names(graph, listed), path)
            self._programs.pop(graph.root_id, None)
            self._programs.pop(graph.graph_id, None)
        if new:
            self._decide_roles()

    def program(self, graph: int) -> DumpedProgram | None:
        """Return the program that a launch of a graph runs; None if it was not learned.

        Parameters
        ----------
        graph : int
            Number of the folder of its dump: that of the root graph.
        """
        program = self._programs.get(graph)
        if program is None:
            every = self._graphs.values()
            members = [member for member in every if member.graph.root_id == graph]
            members = members or [member for member in every if member.graph.graph_id == graph]
            if not members:
                return None
            program = self._programs[graph] = DumpedProgram(graph, members, self._slot_table, self._declared)
        return program

    # --- names ---

    def _names(self, graph: Graph, listed: Sequence[str]) -> dict[str, str]:
        """Return the name in the program of each node of a new graph."""
        names = {node.name: node.name for node in graph.nodes} | self._parameters.names_of(graph)
        for node in executed(graph, listed):
            meaning = _meaning(graph, node, names)
            name = names[node.name] = self._name(graph, node, meaning)
            self._meanings.setdefault(name, (graph.root_id, meaning))
        return names

    def _name(self, graph: Graph, node: Node, meaning: _Meaning) -> str:
        if self._is_free(node.name, graph, meaning):
            return node.name
        parts = _NUMBER.fullmatch(node.name)
        stem, start = (parts["stem"], int(parts["number"])) if parts else (f"{node.name}#", 1)
        candidates = (f"{stem}{number}" for number in count(start + 1))
        return next(name for name in candidates if name not in graph and self._is_free(name, graph, meaning))

    def _is_free(self, name: str, graph: Graph, meaning: _Meaning) -> bool:
        """Whether an operator of a graph may have a name: it is free, or means the same in another graph."""
        taken = self._meanings.get(name)
        return taken is None or (taken[0] != graph.root_id and taken[1] == meaning)

    # --- roles ---

    def _decide_roles(self) -> None:
        """Decide the role of each parameter, and pass changed roles to the slot table."""
        changed: dict[str, Role] = {}
        for name, role in self._roles().items():
            before = self._declared.get(name)
            node = self._slot_table.find_node(name)
            if node is not None and node.role in _PERSISTENT and node.role != before:
                # It was declared by code that knows the network.
                self._declared[name] = node.role
                continue
            self._declared[name] = role
            if node is not None and node.role != role:
                changed[name] = role
        self._slot_table.change_roles(changed)

    def _roles(self) -> dict[str, Role]:
        every = list(self._graphs.values())
        deciding = [learned for learned in every if learned.optimizes]
        trained = _union(learned.called(parameter_roles(learned.graph).trainable) for learned in deciding or every)
        states = _union(learned.called(parameter_roles(learned.graph).states) for learned in every) - trained
        states -= _union(frozenset(learned.tuples) for learned in every)
        weights = (
            parameter_roles(learned.graph).frozen | parameter_roles(learned.graph).trainable for learned in every
        )
        frozen = _union(learned.called(names) for learned, names in zip(every, weights, strict=True))
        forgotten = {
            name for learned in every for name in _before_trained(learned, trained) if self._requires_gradient(name)
        }
        roles: dict[str, Role] = {}
        for learned in every:
            for node in learned.graph.parameters:
                name, other = learned.names[node.name], other_role(learned.graph, node)
                if other == "buffer" or name not in roles:
                    roles[name] = other
        roles.update(dict.fromkeys(frozen, "frozen_weight"))
        roles.update(dict.fromkeys(states, "state"))
        # No optimizer has these, and the script has not frozen them.
        roles.update(dict.fromkeys(forgotten & frozen, "weight"))
        roles.update(dict.fromkeys(trained, "weight"))
        return roles


class LearnedGraph:
    """A graph that was read, with the names of its nodes in programs.

    Attributes
    ----------
    graph : Graph
    names : dict of str to str
        Name in the program of each node.
    """

    def __init__(
        self, graph: Graph, listed: tuple[str, ...], data: bytes, names: dict[str, str], path: str = ""
    ) -> None:
        self._path = path
        self.graph = graph
        self.listed = listed
        self.names = names
        self.optimizes = optimizes(graph)
        self.tuples = {names[node.name]: len(node.outputs) for node in graph.parameters if is_tuple(node)}
        self.written = renamed(data, graph, names)

    @cached_property
    def printed(self) -> dict[str, str]:
        """The names of operators' values in MindSpore's printed graph, by the operators' names."""
        return printed_names(read_printed(self._path))

    def called(self, names: Iterable[str]) -> frozenset[str]:
        """Return the names in programs of nodes with some names."""
        return frozenset(self.names[name] for name in names)


class DumpedProgram:
    """The program that a launch of a graph runs.

    Attributes
    ----------
    program : Program
    updates : bool
        Whether it contains an optimizer's operator that writes weights.
    order : tuple of str
        The operators that the dump lists, in the order of execution.
    members : sequence of LearnedGraph
    number : int
        Of the folder of its dump.
    tuples : dict of str to int
        Number of tensors in each tuple that it is given.
    results : tuple of Source or None
        Sources of the values that it returns, nested tuples included; empty if they are unknown.
    """

    def __init__(
        self, number: int, members: Sequence[LearnedGraph], slot_table: SlotTable, roles: Mapping[str, Role]
    ) -> None:
        self.members = members
        self.number = number
        graphs = [member.graph for member in members]
        self._names = {member.graph.graph_id: member.names for member in members}
        self._operators = [member.called(node.name for node in member.graph.operators) for member in members]
        nodes: dict[str, TracedNode] = {}
        for member in members:
            for node in traced_nodes(member.graph, member.listed, member.names, roles):
                nodes.setdefault(node.name, node)
        root = next((graph for graph in graphs if graph.graph_id == number), graphs[0])
        ordered = sorted(nodes.values(), key=lambda node: node.role == "operator")
        # Several graphs that run as one are merged.
        parts = [member.written for member in members]
        written = parts[0] if len(parts) == 1 else merged(parts, root.name, number)
        self.program = Program(root.name, number + 1, tuple(ordered), written)
        self.updates = any(map(updates_weights, graphs))
        self.order = tuple(
            member.names[name] for member in members for name in member.listed if name in member.names
        ) or tuple(node.name for node in ordered if node.role == "operator")
        self.tuples = {name: length for member in members for name, length in member.tuples.items()}
        self.results = results(graphs[0], members[0].names) if len(graphs) == 1 else ()
        self._slot_table = slot_table
        self._roles = roles
        orders = {member.graph.graph_id: member.listed for member in members}
        self._matcher = NodeMatcher(graphs, ExecutionOrder(graphs, orders), number)
        self._dtypes: dict[Match, str] = {}
        self._keys: dict[tuple[str, ...], Match] = {}
        self._slot_ids: dict[tuple[str, ...], int] = {}

    def slot_ids_of(self, files: Sequence[str]) -> list[int]:
        """Return the slot ids of the tensors in the files of one launch, by the names of the files.

        It is `NO_SLOT` for a file without a node, of a constant, or with undefined content. Files can be numbered
        differently from the graph, so pass all files of a launch together.
        """
        slot_ids = self._slot_ids
        try:
            return [slot_ids[_key(file)] for file in files]
        except KeyError:
            self._learn(files)
            return [slot_ids[_key(file)] for file in files]

    @cached_property
    def parameters(self) -> dict[str, int]:
        """Slot ids of the persistent parameters, by name."""
        return {node.name: self._slot_id_of(node, 0) for node in self.program.nodes if node.role in _PERSISTENT}

    def updated(self, dumped: Iterable[int]) -> dict[int, str]:
        """Return the names of parameters that operators have updated, by the slot ids of the outputs with their values.

        Parameters
        ----------
        dumped : iterable of int
            Slots that were dumped when it ran. A branch without any was not taken.
        """
        names = {self._slot_table[slot_id].node.name for slot_id in dumped if slot_id != NO_SLOT}
        ran = frozenset().union(*(operators for operators in self._operators if not operators.isdisjoint(names)))
        # The last write determines the final value.
        last: dict[str, int] = {}
        for node in self.program.nodes:
            if node.name not in ran or not may_write_inputs(node.type):
                continue
            in_place = node.type in UPDATED_IN_PLACE
            for slot, source in enumerate(node.inputs[: len(node.outputs)] if in_place else node.inputs):
                if source is not None and source[0] in self.parameters:
                    last[source[0]] = self._slot_id_of(node, slot) if in_place else NO_SLOT
        return {slot_id: name for name, slot_id in last.items() if slot_id != NO_SLOT}

    def _slot_id_of(self, node: TracedNode, slot: int) -> int:
        return self._slot_table.slot_id(self._slot_table.node(node.name, node.type, node.role), slot)

    def _learn(self, files: Iterable[str]) -> None:
        """Find the nodes of files; the numbers of all files of one scope and type decide together."""
        for file in files:
            split, key = split_name(file), _key(file)
            if split is None:
                self._slot_ids[key] = NO_SLOT
                continue
            match = self._keys[key] = self._matcher.match(split[0])
            if split[4] == "output" and split[5] == 0:
                self._dtypes[match] = split[7]
        replaced = self._matcher.renumbered(dict.fromkeys(self._keys.values()), self._dtypes)
        for key, match in self._keys.items():
            self._slot_ids[key] = self._slot_id(replaced.get(match, match), *key[1:])

    def _slot_id(self, match: Match, io: str, slot: str) -> int:
        side: Io = "input" if io == "input" else "output"
        able = [
            candidate
            for candidate in match.candidates
            if len(match.candidates) == 1 or has_slot(candidate, side, int(slot))
        ]
        if len(able) != 1:
            return NO_SLOT
        graph, node, _ = able[0]
        if node.is_constant or (side == "output" and is_unwritten(node.type, int(slot), (graph, node))):
            return NO_SLOT
        name = self._names[graph.graph_id][node.name]
        declared = self._slot_table.node(name, node.type, "operator" if node.is_operator else self._roles[name])
        return self._slot_table.slot_id(declared, int(slot), side)


def _key(file: str) -> tuple[str, ...]:
    """Return the parts of a file's name that identify its tensor, without time and stream: head, io and slot."""
    fields = file.rsplit(".", 8)
    if len(fields) < 9 or fields[4] not in ("output", "input"):
        # Up to MindSpore 2.3 names do not contain the element type.
        fields = file.rsplit(".", 7)
        if len(fields) < 8:
            return (file,)
    return fields[0], fields[4], fields[5]


def _meaning(graph: Graph, node: Node, names: Mapping[str, str]) -> _Meaning:
    inputs = tuple(
        ("",) if source is None or _is_constant(graph, source[0]) else source for source in sources(graph, node, names)
    )
    # Lengths differ where only the last batch is smaller.
    outputs = tuple((slot.dtype, None if slot.shape is None else len(slot.shape)) for slot in node.outputs)
    return node.type, inputs, outputs, user_stack(node)


def _is_constant(graph: Graph, name: str) -> bool:
    node = graph.get(name)
    return node is not None and node.is_constant


def _bytes_of(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""


def _union(sets: Iterable[frozenset[str]]) -> frozenset[str]:
    return frozenset().union(*sets)


def _before_trained(learned: LearnedGraph, trained: Collection[str]) -> set[str]:
    """Return the parameters of layers whose outputs lead to trained layers, by their names in programs."""
    nodes = list(nodes_of(learned.graph))
    forward = [node for node in nodes if node.kind == "operator" and not runs_after_forward(node)]
    of_trained = {node.name for node in nodes if node.kind != "operator" and learned.names[node.name] in trained}
    leading: set[str] = set()
    takes_trained: set[str] = set()
    for node in forward:
        if not of_trained.isdisjoint(node.inputs):
            # A conversion of a weight is not yet a layer.
            (of_trained if of_trained.issuperset(node.inputs) else takes_trained).add(node.name)
    for node in reversed(forward):
        if node.name in takes_trained or node.name in leading:
            leading.update(node.inputs)
    parameters = {node.name for node in nodes if node.kind in ("weight", "frozen")}
    read = {name for node in forward if node.name in leading for name in node.inputs}
    return {learned.names[name] for name in read & parameters}
