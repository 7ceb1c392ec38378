"""Match dumped files to graph nodes.

File names of MindSpore up to 2.3 contain only the last part of an operator's name, newer ones the whole name with all
separators replaced by ``_``. Both can fit several nodes. A file is matched to a node only if the match is unambiguous.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Literal, NamedTuple

from tensight.dumps.names import constant_key, joined, split_head

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tensight.dumps.execution import ExecutionOrder
    from tensight.graph import Graph, Node

Io = Literal["input", "output"]

_PARAMETER = "Parameter"

#: The end of an operator's name: ``-op61``, in newer versions numbered separately in every scope.
_NUMBER = re.compile(r"(?P<stem>.+-op)(?P<number>\d{1,18})", re.ASCII | re.DOTALL)


class Candidate(NamedTuple):
    """A node that a file could belong to.

    Attributes
    ----------
    graph : Graph
    node : Node
    position : int
        In the order of execution.
    """

    graph: Graph
    node: Node
    position: int


@dataclass(slots=True, eq=False)
class Match:
    """The nodes that the head of a file name (type and name of the operator) fits.

    Attributes
    ----------
    op_type, op_name : str
        As in the file name.
    candidates : tuple of Candidate
        In the order of execution; one: matched, none: unmatched, more: decided by the files themselves.
    mistyped : bool
        A node of this name exists, but is of another type; it is not a candidate.
    by_order : bool
        The number in the file name differs from the node's; see `NodeMatcher.renumbered`.
    """

    op_type: str
    op_name: str
    candidates: tuple[Candidate, ...] = ()
    mistyped: bool = False
    by_order: bool = False
    _ordered: bool | None = field(default=None, init=False)

    @property
    def is_ordered(self) -> bool:
        """Whether each candidate depends on the previous one, so that they can only have run in this order."""
        if self._ordered is None:
            pairs = zip(self.candidates, self.candidates[1:], strict=False)
            self._ordered = all(_depends(later, earlier) for earlier, later in pairs)
        return self._ordered


@dataclass(slots=True)
class MatchReport:
    """The result of matching the files in a folder of a root graph.

    Attributes
    ----------
    files, matched, matched_by_order : int
        Tensors, how many of them have a node, and how many of those have another number in the graph.
    constants_without_node : int
        Constants that MindSpore dumped although it had folded them away; this is not a problem.
    unmatched, mistyped : dict of str to int
        Number of files by type and name of the operator.
    ambiguous : dict of str to tuple of str
        Names of the possible nodes by type and name of the operator.
    ambiguous_files : int
    """

    files: int = 0
    matched: int = 0
    matched_by_order: int = 0
    constants_without_node: int = 0
    unmatched: dict[str, int] = field(default_factory=dict)
    mistyped: dict[str, int] = field(default_factory=dict)
    ambiguous: dict[str, tuple[str, ...]] = field(default_factory=dict)
    ambiguous_files: int = 0

    def add(self, match: Match, count: int) -> None:
        """Count files without a node."""
        head = f"{match.op_type}.{match.op_name}"
        if match.candidates:
            self.ambiguous_files += count
            self.ambiguous[head] = tuple(
                f"{candidate.graph.name}/{candidate.node.name}" for candidate in match.candidates
            )
        elif match.mistyped:
            self.mistyped[head] = self.mistyped.get(head, 0) + count
        elif constant_key(match.op_name) is not None and match.op_type == _PARAMETER:
            self.constants_without_node += count
        else:
            self.unmatched[head] = self.unmatched.get(head, 0) + count


class NodeMatcher:
    """Find the nodes of the graphs that share one folder of tensors.

    Parameters
    ----------
    graphs : sequence of Graph
        The root graph and its sub-graphs.
    order : ExecutionOrder
    root_id : int
        The root graph's id.
    """

    def __init__(self, graphs: Sequence[Graph], order: ExecutionOrder, root_id: int) -> None:
        self._root_id = root_id
        self._operators = _Names()
        self._parameters = _Names()
        self._constants = _Names()
        for graph in graphs:
            for node in graph.operators:
                name = node.full_name or node.name
                self._operators.add(Candidate(graph, node, order.position(node)), name, name.rpartition("/")[2])
            for node in graph.parameters:
                self._parameters.add(Candidate(graph, node, order.position(node)), node.name, node.name)
            for node in graph.constants:
                candidate = Candidate(graph, node, order.position(node))
                self._constants.add(candidate, node.name, constant_key(node.name) or node.name)
        self._matches: dict[str, Match] = {}
        self._stems: dict[tuple[str, str], list[Candidate]] | None = None

    def match(self, head: str) -> Match:
        """Return the nodes that the head of an npy file's name, ``{op_type}.{op_name}``, fits."""
        match = self._matches.get(head)
        if match is None:
            match = self._matches[head] = self._find(*split_head(head))
        return match

    def match_names(self, op_type: str, op_name: str) -> Match:
        """Return the nodes that type and name of an operator fit, as stored in other kinds of files."""
        key = f"{op_type}\0{op_name}"
        match = self._matches.get(key)
        if match is None:
            match = self._matches[key] = self._find(op_type, op_name)
        return match

    def _find(self, op_type: str, op_name: str) -> Match:
        if op_type == _PARAMETER:
            variables = self._parameters.find(op_name) or self._constants.find(op_name)
            return Match(op_type, op_name, tuple(self._one_variable(variables)))
        whole = self._operators.find_whole(op_name)
        typed = _of_type(whole, op_type)
        if whole:
            # The whole name is sufficient; device kernels may have other types.
            return Match(op_type, op_name, _in_order(typed or whole))
        short = self._operators.find_short(op_name)
        if short:
            typed = _of_type(short, op_type)
            return Match(op_type, op_name, _in_order(typed), mistyped=not typed)
        others = [] if op_type else [*self._parameters.find(op_name), *self._constants.find(op_name)]
        return Match(op_type, op_name, _in_order(others))

    def renumbered(self, matches: Iterable[Match], dtypes: Mapping[Match, str]) -> dict[Match, Match]:
        """Correct the matches of one folder whose files number their operators differently from the graph.

        MindSpore 2.10 numbers operators separately in every scope, and creates some of them (Cast, AddN, …) again after
        naming them, so that the graph has ``…/Cast-op5, -op6`` and the files ``…_Cast-op0, -op1``. Numbers of files
        increase in the order of the graph. If, in one scope and type, files have a number that no node has, or the
        numbers in the graph do not increase, no number there can be trusted. Then the n-th file belongs to the n-th
        node if there are as many files as nodes and the element types agree. Otherwise all nodes of that scope and type
        remain candidates.

        Parameters
        ----------
        matches : iterable of Match
            The matches of all files in the folder.
        dtypes : mapping of Match to str
            Element types of first outputs according to the file names.

        Returns
        -------
        dict of Match to Match
            Replacements of matches.
        """
        matches = list(matches)
        if not self._unordered and all(match.candidates for match in matches):
            return {}
        families: dict[tuple[str, str], dict[int, Match]] = {}
        for match in matches:
            parts = _NUMBER.fullmatch(match.op_name)
            if parts is not None and match.op_type != _PARAMETER:
                family = joined(match.op_type), joined(parts["stem"])
                families.setdefault(family, {})[int(parts["number"])] = match
        replaced: dict[Match, Match] = {}
        for family, numbered in families.items():
            if family not in self._unordered and all(match.candidates for match in numbered.values()):
                continue
            nodes = self._by_stem.get(family, [])
            ordered = [numbered[number] for number in sorted(numbered)]
            exact = len(nodes) == len(ordered) and all(
                _may_be(node, dtypes.get(match, "")) for node, match in zip(nodes, ordered, strict=True)
            )
            for index, match in enumerate(ordered if nodes else ()):
                candidates = (nodes[index],) if exact else _in_order(nodes)
                replaced[match] = Match(match.op_type, match.op_name, candidates, by_order=exact)
        return replaced

    @cached_property
    def _unordered(self) -> frozenset[tuple[str, str]]:
        """Scopes and types in which numbers in the graph do not increase, if every scope is numbered separately."""
        latest: dict[str, int] = {}
        numbers: set[int] = set()
        families: list[tuple[str, str]] = []
        amount = 0
        for candidate in self._operators.all():
            stem, _, number = (candidate.node.full_name or candidate.node.name).rpartition("-op")
            if not (stem and number.isdecimal()):
                continue
            counted = int(number)
            if counted < latest.get(stem, -1):
                families.append((joined(candidate.node.type), joined(f"{stem}-op")))
            latest[stem] = counted
            numbers.add(counted)
            amount += 1
        return frozenset(families) if len(numbers) < amount else frozenset()

    @property
    def _by_stem(self) -> dict[tuple[str, str], list[Candidate]]:
        """Operators in the order of the graph files, by type and by name without its number."""
        if self._stems is None:
            self._stems = {}
            for candidate in self._operators.all():
                name = joined(candidate.node.full_name or candidate.node.name)
                parts = _NUMBER.fullmatch(name)
                if parts is not None:
                    self._stems.setdefault((joined(candidate.node.type), parts["stem"]), []).append(candidate)
        return self._stems

    def _one_variable(self, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        """Return the root graph's node for a parameter that several graphs share, if type and shape agree."""
        if len(candidates) < 2:
            return candidates
        names = {candidate.node.name for candidate in candidates}
        kinds = {(slot.dtype, slot.shape) for candidate in candidates for slot in candidate.node.outputs[:1]}
        if len(names) > 1 or len(kinds) > 1:
            return _in_order(candidates)
        return [
            min(candidates, key=lambda candidate: (candidate.graph.graph_id != self._root_id, candidate.graph.graph_id))
        ]


class _Names:
    """Nodes by all spellings of their names in files."""

    def __init__(self) -> None:
        self._exact: dict[str, Candidate | list[Candidate]] = {}
        self._joined: dict[str, Candidate | list[Candidate]] = {}
        self._short: dict[str, Candidate | list[Candidate]] = {}
        self._tails: dict[str, list[Candidate]] | None = None

    def all(self) -> Iterable[Candidate]:
        """Yield every node in the order in which it was added."""
        # Nodes of the same name follow the first of them.
        for name in self._exact:
            yield from _get(self._exact, name)

    def add(self, candidate: Candidate, name: str, short: str) -> None:
        """Add a node under its name, its name joined by ``_``, and its short name."""
        _put(self._exact, name, candidate)
        _put(self._joined, joined(name), candidate)
        _put(self._short, short, candidate)

    def find_whole(self, name: str) -> Sequence[Candidate]:
        """Return the nodes with this whole name."""
        return _get(self._exact, name) or _get(self._joined, joined(name))

    def find_short(self, name: str) -> Sequence[Candidate]:
        """Return the nodes whose name ends with this part."""
        candidates = _get(self._short, name)
        return candidates or (() if "_" in joined(name) else self._by_tail.get(name, ()))

    def find(self, name: str) -> Sequence[Candidate]:
        """Return the nodes with this whole name, or else with this short name."""
        return self.find_whole(name) or _get(self._short, name)

    @property
    def _by_tail(self) -> dict[str, list[Candidate]]:
        """Nodes by the part after the last ``_`` of their joined name, which is all that some converters keep."""
        if self._tails is None:
            self._tails = {}
            for name in self._joined:
                self._tails.setdefault(name.rpartition("_")[2], []).extend(_get(self._joined, name))
        return self._tails


def _put(table: dict[str, Candidate | list[Candidate]], key: str, candidate: Candidate) -> None:
    present = table.get(key)
    if present is None:
        table[key] = candidate
    elif isinstance(present, list):
        present.append(candidate)
    else:
        table[key] = [present, candidate]


def _get(table: dict[str, Candidate | list[Candidate]], key: str) -> Sequence[Candidate]:
    present = table.get(key)
    if present is None:
        return ()
    return present if isinstance(present, list) else (present,)


def _of_type(candidates: Sequence[Candidate], op_type: str) -> Sequence[Candidate]:
    if not op_type:
        return candidates
    joined_type = joined(op_type)
    return [candidate for candidate in candidates if joined(candidate.node.type) == joined_type]


def _may_be(candidate: Candidate, dtype: str) -> bool:
    """Return whether a node's first output can have an element type; True if unknown."""
    outputs = candidate.node.outputs
    return not dtype or not outputs or not outputs[0].dtype or outputs[0].dtype == dtype.lower()


def _in_order(candidates: Iterable[Candidate]) -> tuple[Candidate, ...]:
    return tuple(sorted(candidates, key=lambda candidate: candidate.position))


def _depends(candidate: Candidate, earlier: Candidate) -> bool:
    """Return whether a node depends, directly or indirectly, on an earlier one of the same graph."""
    graph = candidate.graph
    if graph is not earlier.graph:
        return False
    seen = {candidate.node}
    waiting = [candidate.node]
    while waiting:
        for node in graph.inputs(waiting.pop()):
            if node is earlier.node:
                return True
            if node not in seen:
                seen.add(node)
                waiting.append(node)
    return False


def has_slot(candidate: Candidate, io: Io, slot: int) -> bool:
    """Return whether a node has an input or output with this number; True if unknown."""
    if io == "output":
        return not candidate.node.outputs or slot < len(candidate.node.outputs)
    return slot < max(len(candidate.node.inputs), len(candidate.graph.flat_producers(candidate.node)))
