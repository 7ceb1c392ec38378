"""Conversion of watchpoints to commands for a process, and of its reported hits to hits of the session."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tensight import wire
from tensight.sessions.hit_list import SessionHit
from tensight.sessions.records import HitParameter, HitRecord
from tensight.watchpoints import ErrorCode, Parameter, ParameterKind, conditions_by_wire_number, error_words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from tensight.graph import Node
    from tensight.sessions.live.identity import Identity
    from tensight.sessions.live.rank_graphs import RankGraphs
    from tensight.sessions.watchpoint_list import SessionWatchpoint
    from tensight.wire import ReceivedHit, ReceivedParameter
    from tensight.wire.debugger_pb2 import SetCMD

MOST_HITS = 200_000
"""Maximum number of hits of a call; further ones are ignored."""

_WITHOUT_ACTUAL = ("rtol", "range_start_inclusive", "range_end_inclusive")
"""Parameters for which MindSpore computes no actual value."""

# A watchpoint on more nodes than fit into a command is sent in parts, each with its own number.
_FIRST_PART = 2**30
_PART_BITS = 10
_MOST_BYTES = 3 * 2**20
_NODE_BYTES = 32

Signature = tuple[int, int]
"""Version of a watchpoint, and of the graphs whose nodes it watches; 0 if the process selects them itself."""


def part_id(watchpoint: int, part: int) -> int:
    """Return the number under which a part of a watchpoint is sent; the first part has the watchpoint's id."""
    return watchpoint if part == 0 else _FIRST_PART + ((watchpoint << _PART_BITS) % _FIRST_PART) + part


def watchpoint_of(number: int) -> int:
    """Return the id of the watchpoint that is sent under a number."""
    return number if number < _FIRST_PART else (number - _FIRST_PART) >> _PART_BITS


@dataclass(frozen=True, slots=True)
class WatchChanges:
    """The changes of watchpoints to send to a process.

    Attributes
    ----------
    commands : list of SetCMD
    sent : dict of int to Signature
        The watchpoints that it has after these commands, by the number under which they were sent.
    problems : list of str
        Reasons why watchpoints cannot be sent.
    """

    commands: list[SetCMD]
    sent: dict[int, Signature | None]
    problems: list[str]


def watch_changes(
    watchpoints: Sequence[SessionWatchpoint],
    nodes_of: Callable[[SessionWatchpoint, int], list[tuple[str, frozenset[str]]]],
    graphs: RankGraphs,
    identity: Identity,
    sent: Mapping[int, Signature | None],
) -> WatchChanges:
    """Compare the watchpoints that a process has with those that it should have; takes seconds for large graphs.

    Parameters
    ----------
    watchpoints : sequence of SessionWatchpoint
    nodes_of : callable
        Returns the nodes that a watchpoint watches in each graph of a rank.
    graphs : RankGraphs
    identity : Identity
        Identity of the process.
    sent : mapping of int to Signature or None
        The watchpoints that it has; None if that is uncertain.
    """
    changes = WatchChanges([], dict(sent), [])
    required_ids: set[int] = set()
    for watchpoint in watchpoints:
        if not watchpoint.enabled:
            continue
        selection = _sent_selection(watchpoint, identity)
        signature = (watchpoint.version, 0 if selection else graphs.version)
        unchanged = [
            number for number, has in sent.items() if watchpoint_of(number) == watchpoint.id and has == signature
        ]
        if unchanged:
            required_ids.update(unchanged)
            continue
        because = _not_checked_because(watchpoint, identity)
        if because:
            changes.problems.append(
                f"rank {identity.rank} does not check watchpoint {watchpoint.watchpoint}: {because}"
            )
            continue
        try:
            # A process to which a selection says everything needs no names, of which there may be many.
            nodes = () if selection else nodes_of(watchpoint, identity.rank)
            for command in _commands(watchpoint, nodes, graphs, identity, selection):
                changes.commands.append(command)
                changes.sent[command.id] = signature
                required_ids.add(command.id)
        except wire.WireError as error:
            changes.problems.append(str(error))
    for number in sorted(set(changes.sent) - required_ids):
        changes.commands.append(wire.delete_command(number))
        del changes.sent[number]
    return changes


def _not_checked_because(watchpoint: SessionWatchpoint, identity: Identity) -> str:
    """Return why a process cannot check a watchpoint; empty if it can."""
    if identity.abilities.conditions:
        return ""
    if watchpoint.watchpoint.check.condition.is_own:
        return "the condition is one of Tensight's own, which only its agents know"
    if watchpoint.watchpoint.persistence > 1:
        return "only Tensight's agents count in how many steps in a row a condition holds"
    return ""


def _sent_selection(watchpoint: SessionWatchpoint, identity: Identity) -> str:
    """Return the selection that is sent in place of nodes; empty if the process, or the watchpoint, needs nodes."""
    return str(watchpoint.base) if identity.is_agent and watchpoint.base and not watchpoint.edits else ""


def _commands(
    watchpoint: SessionWatchpoint,
    watched: Iterable[tuple[str, frozenset[str]]],
    graphs: RankGraphs,
    identity: Identity,
    selection: str,
) -> Iterator[SetCMD]:
    """Yield the commands that set a watchpoint; several if its nodes do not fit into a single command."""
    nodes: list[tuple[str, Node]] = []
    size_bytes, part = 0, 0
    for graph_name, names in watched:
        graph = graphs.graph(graph_name)
        for node in graph.nodes if graph is not None and names else ():
            if node.name not in names:
                continue
            node_bytes = len(node.name) + len(node.type) + len(graph_name) + _NODE_BYTES
            if size_bytes + node_bytes > _MOST_BYTES:
                yield _command(watchpoint, part, nodes, identity, selection)
                nodes, size_bytes, part = [], 0, part + 1
            nodes.append((graph_name, node))
            size_bytes += node_bytes
    if nodes or selection:
        yield _command(watchpoint, part, nodes, identity, selection)


def _command(
    watchpoint: SessionWatchpoint, part: int, nodes: list[tuple[str, Node]], identity: Identity, selection: str
) -> SetCMD:
    numbered = replace(watchpoint.watchpoint, id=part_id(watchpoint.id, part))
    return wire.set_command(numbered, nodes, identity.rank, selection=selection)


def session_hits(
    received: Iterable[ReceivedHit],
    watchpoints: Iterable[SessionWatchpoint],
    graphs: RankGraphs,
    identity: Identity,
    iteration: int,
    root_id: int | None = None,
) -> list[SessionHit]:
    """Convert hits that a process reported to hits of the session; takes a second for many thousands.

    Hits on nodes that no graph has, and of deleted watchpoints, are included.
    """
    by_id = {watchpoint.id: watchpoint for watchpoint in watchpoints}
    causes: dict[tuple[int, int], _Cause] = {}
    hits: list[SessionHit] = []
    for hit in received:
        number = (hit.watchpoint, hit.condition)
        if number not in causes:
            causes[number] = _Cause(watchpoint_of(hit.watchpoint), by_id, hit.condition)
        graph_and_node = graphs.meant(hit.node, hit.graph, root_id)
        node = graph_and_node[1] if graph_and_node else None
        hits.append(
            SessionHit(
                rank=identity.rank,
                graph=graph_and_node[0].name if graph_and_node else hit.graph,
                node=node.name if node else hit.node,
                slot=hit.slot,
                iteration=iteration,
                hit=causes[number].record(hit, with_actual=not hit.error_code or identity.is_agent),
                io=hit.io,
                position=graphs.number(node) if node else None,
                type=node.type if node else "",
                line=graphs.line(node) if node else None,
            )
        )
    return hits


class _Cause:
    """A watchpoint with hits, as the session knows it and as the process numbers it; shared by many hits."""

    def __init__(self, number: int, watchpoints: Mapping[int, SessionWatchpoint], wire_number: int) -> None:
        self._number = number
        self._watchpoint = watchpoints.get(number)
        named_by_number = next(iter(conditions_by_wire_number(wire_number)), None)
        self._condition = self._watchpoint.watchpoint.check.condition if self._watchpoint else named_by_number
        self._condition_id = self._condition.id if self._condition else f"condition {wire_number}"
        flag = self._condition.flag if self._condition is not None else None
        self._harmless = int(ErrorCode.NAN | ErrorCode.INF) if flag is not None else 0
        shown = self._condition.parameters if self._condition is not None else ()
        self._shown = {parameter.name: parameter for parameter in shown if parameter.kind is not ParameterKind.HIDDEN}

    def record(self, hit: ReceivedHit, *, with_actual: bool) -> HitRecord:
        """Return the record of a hit."""
        watchpoint = self._watchpoint.watchpoint if self._watchpoint else None
        return HitRecord(
            watchpoint=self._number,
            name=watchpoint.name if watchpoint else "",
            condition=self._condition_id,
            abbreviation=self._condition.abbreviation if self._condition else "",
            severity=watchpoint.severity.value if watchpoint else "warning",
            hit=not hit.error_code & ~self._harmless or any(parameter.hit for parameter in hit.parameters),
            parameters=tuple(
                _hit_parameter(parameter, declared, with_actual=with_actual)
                for parameter in hit.parameters
                if not parameter.disabled and (declared := self._shown.get(parameter.name)) is not None
            ),
            error_code=hit.error_code,
            errors=error_words(hit.error_code),
            since=hit.since,
            may_be_older=hit.may_be_older,
        )


def _hit_parameter(parameter: ReceivedParameter, declared: Parameter, *, with_actual: bool) -> HitParameter:
    has_actual = with_actual and parameter.name not in _WITHOUT_ACTUAL
    return HitParameter(
        name=parameter.name,
        preset=bool(parameter.value) if declared.values.is_boolean else parameter.value,
        actual=parameter.actual if has_actual else None,
        hit=parameter.hit,
    )
