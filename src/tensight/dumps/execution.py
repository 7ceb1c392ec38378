"""The execution order of operators, and the iterations in which each graph ran."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from tensight.errors import DumpError, Problem

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from tensight.dumps.rank_folders import RankFolder
    from tensight.dumps.storage import Storage
    from tensight.graph import Graph, Node

_ORDER = re.compile(r"ms_execution_order_graph_(\d{1,18})\.csv", re.ASCII)
_HISTORY = re.compile(r"ms_global_execution_order_graph_(\d{1,18})\.csv", re.ASCII)
_TITLE = "NodeExecutionOrder-FullNameWithScope"

#: Position of tensors without a node: after all others.
UNMATCHED = 2**31 - 1


@dataclass(frozen=True, slots=True)
class ExecutionFiles:
    """The files in ``execution_order/`` of a rank.

    Attributes
    ----------
    orders : dict of int to tuple of str
        Full names of operators in the order of execution, by graph id.
    histories : dict of int to tuple of int
        Executed iterations by root graph id, in increasing order.
    """

    orders: dict[int, tuple[str, ...]]
    histories: dict[int, tuple[int, ...]]


class ExecutionOrder:
    """Positions of the nodes of a rank's graphs.

    Constants come first (negative positions), then operators as they ran, then parameters, whose files contain the
    values at the end of an iteration. `position` sorts the nodes of all graphs; `number` is for display: the number of
    a node among those of its step.

    Parameters
    ----------
    graphs : sequence of Graph
        In the order of their first runs.
    orders : mapping of int to tuple of str
        Operators by graph id as the dump lists them; topological order is used for a graph without a list.
    ran : mapping of int to collection of int, optional
        The iterations of root graphs. By default no two ran in the same step.
    """

    def __init__(
        self,
        graphs: Sequence[Graph],
        orders: Mapping[int, tuple[str, ...]],
        ran: Mapping[int, Collection[int]] | None = None,
    ) -> None:
        names: list[str] = []
        self._positions: dict[Node, int] = {}
        self.unknown: dict[int, int] = {}
        for graph in graphs:
            listed = orders.get(graph.graph_id, ())
            by_file_name = {node.full_name: node for node in graph.operators if node.full_name}
            listed_nodes = (by_file_name.get(name) or graph.get(name) for name in listed)
            nodes = [node for node in listed_nodes if node is not None and node.is_operator]
            if len(nodes) < len(listed):
                self.unknown[graph.graph_id] = len(listed) - len(nodes)
            for node in nodes or graph.operators:
                self._positions.setdefault(node, len(names))
                names.append(node.name)
        self.names = tuple(names)
        position = len(names)
        for graph in graphs:
            # Operators that only pass values through are not listed.
            for node in (*graph.operators, *graph.parameters):
                if node not in self._positions:
                    self._positions[node] = position
                    position += 1
        constants = [node for graph in graphs for node in graph.constants]
        self._positions.update((node, index - len(constants)) for index, node in enumerate(constants))
        self._numbers = self._numbers_in_steps(graphs, _ran_together(ran or {}))

    def position(self, node: Node) -> int:
        """Return the position of a node."""
        return self._positions.get(node, UNMATCHED)

    def number(self, node: Node) -> int | None:
        """Return the number of a node in the order of execution of its step, from 1; None for constants."""
        return self._numbers.get(node)

    @cached_property
    def numbers_by_position(self) -> Sequence[float]:
        """The number of the node at each position from 0 on; NaN where there is none."""
        by_position = [math.nan] * (max(self._positions.values(), default=-1) + 1)
        for node, number in self._numbers.items():
            by_position[self._positions[node]] = number
        return by_position

    def _numbers_in_steps(self, graphs: Sequence[Graph], together: Mapping[int, set[int]]) -> dict[Node, int]:
        """Return the number of each node among those of the graphs that ran in the same steps, from 1."""
        by_root: dict[int, list[Node]] = {}
        for graph in graphs:
            by_root.setdefault(graph.root_id, []).extend((*graph.operators, *graph.parameters))
        numbers: dict[Node, int] = {}
        for root, nodes in by_root.items():
            roots = {root, *together.get(root, ())}.intersection(by_root)
            in_step = sorted(self._positions[node] for other in roots for node in by_root[other])
            numbers_of_positions = {position: number for number, position in enumerate(in_step, 1)}
            numbers.update((node, numbers_of_positions[self._positions[node]]) for node in nodes)
        return numbers


def _ran_together(ran: Mapping[int, Collection[int]]) -> dict[int, set[int]]:
    """Return for each root graph the root graphs that ran in the same iterations."""
    in_iteration: dict[int, set[int]] = {}
    for root, iterations in ran.items():
        for iteration in iterations:
            in_iteration.setdefault(iteration, set()).add(root)
    together: dict[int, set[int]] = {}
    for roots in map(frozenset, in_iteration.values()):
        for root in roots:
            together.setdefault(root, set()).update(roots)
    return together


def read_execution_files(storage: Storage, rank: RankFolder, problems: list[Problem]) -> ExecutionFiles:
    """Read the order of operators and the history of iterations of a rank, if they exist."""
    orders: dict[int, tuple[str, ...]] = {}
    histories: dict[int, tuple[int, ...]] = {}
    folder = rank.child("execution_order")
    try:
        if "execution_order" not in storage.folders(rank.path):
            return ExecutionFiles({}, {})
        listing = storage.list_folder(folder)
    except DumpError as error:
        problems.append(Problem(folder, str(error)))
        return ExecutionFiles({}, {})
    problems.extend(listing.no_files(folder, lambda name: _ORDER.fullmatch(name) or _HISTORY.fullmatch(name)))
    for file in listing.files:
        path = f"{folder}/{file.name}"
        order, history = _ORDER.fullmatch(file.name), _HISTORY.fullmatch(file.name)
        if order is None and history is None:
            continue
        try:
            text = storage.read_bytes(path).decode("utf-8", "replace")
            if order is not None:
                orders[int(order[1])] = parse_order(text)
            elif history is not None:
                histories[int(history[1])] = parse_history(text)
        except (DumpError, ValueError) as error:
            what = "the order of the graph" if order else "what is on disk"
            problems.append(Problem(path, f"cannot be used: {error}", f"{what} is taken instead"))
    return ExecutionFiles(orders, histories)


def parse_order(text: str) -> tuple[str, ...]:
    """Read an execution order: one full name per line, below a title.

    Raises
    ------
    ValueError
        If the text is empty; a graph without operators still has a title.
    """
    if not text.strip():
        raise ValueError("it is empty")
    lines = (line.strip() for line in text.splitlines())
    return tuple(line for line in lines if line and line != _TITLE)


def parse_history(text: str) -> tuple[int, ...]:
    """Read the iterations in which a graph ran, one per line; return them in increasing order.

    Raises
    ------
    ValueError
        If a line is not a number.
    """
    iterations: set[int] = set()
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if not line:
            continue
        if not (line.isascii() and line.isdigit()) or len(line) > 18:
            raise ValueError(f"line {number} is not an iteration number: {line[:40]!r}")
        iterations.add(int(line))
    return tuple(sorted(iterations))


def usable_history(
    histories: Mapping[int, tuple[int, ...]], dumped: Mapping[int, Sequence[int]], where: str
) -> tuple[Mapping[int, tuple[int, ...]] | None, Problem | None]:
    """Check the history of a rank against what was dumped.

    Every dumped iteration must have run. One more, directly after the last of the history, is accepted: MindSpore
    leaves it in data-sink mode.

    Returns
    -------
    mapping or None
        The history; None if there is none, or if it contradicts the dump.
    Problem or None
        Why the history was not used.
    """
    if not histories:
        return None, None
    ran = {iteration for iterations in histories.values() for iteration in iterations}
    for graph_id, iterations in dumped.items():
        extra = sorted(set(iterations) - ran)
        if not extra or (len(extra) == 1 and extra[0] == max(ran, default=-1) + 1):
            continue
        listed = ", ".join(map(str, extra[:5])) + (", …" if len(extra) > 5 else "")
        what = f"iterations of graph {graph_id} were dumped that its history does not list: {listed}"
        return None, Problem(where, what, "the history of this rank is not used")
    return histories, None
