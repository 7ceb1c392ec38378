"""The watchpoints of a session: their checks and their nodes, stored in the workspace for later sessions."""

from __future__ import annotations

import hashlib
import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from tensight.analysis.check import natural_selector
from tensight.errors import InputError, TensightError
from tensight.graph.fingerprint import fingerprint
from tensight.sessions.errors import LimitError, NotFoundError, StorageError
from tensight.sessions.programs import Programs
from tensight.sessions.records import WatchpointRecord, WatchpointSpec
from tensight.sessions.selection import (
    NO_NODE,
    WatchedNodes,
    effective_edits,
    is_known,
    parse_selection,
    selection_text,
    selection_words,
    watched,
)
from tensight.sessions.workspace import WATCHPOINTS
from tensight.watchpoints import ConditionCheck, Severity, Watchpoint, describe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from tensight.graph import Graph
    from tensight.sessions.records import Edit, WatchpointChange
    from tensight.sessions.selection import Watching
    from tensight.sessions.workspace import Workspace
    from tensight.watchpoints import Selector

MOST_WATCHPOINTS = 1000
"""Maximum number of watchpoints of a session; each costs the training process time at every step."""

_LARGEST_ID = 2**31 - 1


@dataclass(frozen=True, slots=True)
class SessionWatchpoint:
    """A watchpoint of a session.

    Attributes
    ----------
    watchpoint : Watchpoint
        Id, name, check, severity. Its `selection` is `base`, or `NO_NODE` if that is None.
    base : Selector or None
        Selection before the edits; None for the empty one.
    edits : tuple of Edit
        Nodes added to and removed from the selection.
    enabled : bool
        Whether it is checked.
    version : int
        From 1, incremented with every change, so that a sender knows whether to send it again.
    """

    watchpoint: Watchpoint
    base: Selector | None
    edits: tuple[Edit, ...] = ()
    enabled: bool = True
    version: int = 1

    @property
    def id(self) -> int:
        """The number of the watchpoint."""
        return self.watchpoint.id


class WatchpointList:
    """The watchpoints of a session.

    Change them in one thread only. The nodes that they watch can be requested in any thread, and are determined once
    for each graph.

    Parameters
    ----------
    name : str
        Name of the run. Watchpoints of an earlier session with this name are restored.
    network : str or None
        `fingerprint` of the trained network, if the name alone is ambiguous: watchpoints are restored only for the same
        name and network. Empty while unknown; `recognise` restores them later. None if the name is sufficient.
    workspace : Workspace or None
        Stores the watchpoints; None does not store them.
    graphs : callable
        Returns the graphs of a rank; must return the same objects until they change.
    programs : Programs, optional
        Programs of the graphs.

    Attributes
    ----------
    network : str or None
    recommended_offered : bool
        Whether the recommended watchpoints were accepted or declined.
    problems : list of str
        Reasons why watchpoints of an earlier session were not restored.
    """

    def __init__(
        self,
        name: str,
        workspace: Workspace | None,
        graphs: Callable[[int], tuple[Graph, ...]],
        programs: Programs | None = None,
        *,
        network: str | None = None,
    ) -> None:
        self.name = name
        self.network = network
        self.recommended_offered = False
        self.problems: list[str] = []
        self._workspace = workspace
        self._graphs = graphs
        self._programs = programs or Programs()
        self._watchpoints: dict[int, SessionWatchpoint] = {}
        self._last_id = 0
        # Ids of those of earlier sessions, each until an equal one is set.
        self._restored: list[int] = []
        # Entries of another version of Tensight that this one cannot read are written back unchanged.
        self._unreadable: list[Any] = []
        self._watched: dict[tuple[int, int], _Resolved] = {}
        self._resolving = threading.RLock()
        if network != "":
            self._load()

    # --- the watchpoints ---

    def all(self) -> list[SessionWatchpoint]:
        """Return the watchpoints, by id."""
        return list(self._watchpoints.values())

    def enabled(self) -> list[SessionWatchpoint]:
        """Return the enabled watchpoints, by id."""
        return [watchpoint for watchpoint in self._watchpoints.values() if watchpoint.enabled]

    def kept(self) -> list[SessionWatchpoint]:
        """Return the watchpoints of earlier sessions that were not set again in this one, by id."""
        return [self._watchpoints[number] for number in self._restored if number in self._watchpoints]

    def __len__(self) -> int:
        return len(self._watchpoints)

    def get(self, number: int) -> SessionWatchpoint:
        """Return a watchpoint.

        Raises
        ------
        NotFoundError
            The id is unknown.
        """
        watchpoint = self._watchpoints.get(number)
        if watchpoint is None:
            ids = ", ".join(map(str, list(self._watchpoints)[:20])) or "there are none"
            raise NotFoundError(f"there is no watchpoint {number}; {ids}", code="watchpoint-unknown")
        return watchpoint

    def create(self, spec: WatchpointSpec) -> SessionWatchpoint:
        """Add a watchpoint, or return the equal one of an earlier session.

        Those are restored, so a script that sets its watchpoints would otherwise set them once more in each run.

        Raises
        ------
        InputError
            Condition, parameters, selection or edits are invalid, or another watchpoint has the name.
        LimitError
            The maximum number of watchpoints is reached.
        """
        number = self._last_id + 1
        watchpoint = _from_spec(number, spec)
        restored = _equal_to(watchpoint, self.kept())
        if restored is not None:
            self._restored.remove(restored.id)
            return restored
        self._require_room(1)
        self._require_new_name(spec.name)
        self._watchpoints[number] = watchpoint
        self._last_id = number
        return watchpoint

    def change(self, number: int, change: WatchpointChange) -> SessionWatchpoint:
        """Change a watchpoint; fields of `change` that are None stay unchanged.

        Raises
        ------
        NotFoundError, InputError
        """
        old = self.get(number)
        point = old.watchpoint
        if change.name is not None and change.name != point.name:
            self._require_new_name(change.name)
        check = point.check
        if change.parameters is not None:
            check = ConditionCheck(check.condition, change.parameters)
        base = old.base if change.selection is None else parse_selection(change.selection)
        edits = old.edits
        if change.edits is not None or change.further_edits:
            edits = effective_edits((old.edits if change.edits is None else change.edits) + change.further_edits)
        changed = replace(
            old,
            watchpoint=Watchpoint(
                number,
                point.name if change.name is None else change.name,
                check,
                base or NO_NODE,
                point.severity if change.severity is None else Severity(change.severity),
                point.persistence if change.persistence is None else change.persistence,
            ),
            base=base,
            edits=edits,
            enabled=old.enabled if change.enabled is None else change.enabled,
            version=old.version + 1,
        )
        self._watchpoints[number] = changed
        return changed

    def delete(self, numbers: Iterable[int] | None = None) -> None:
        """Delete the given watchpoints, or all; none if an id is unknown.

        Raises
        ------
        NotFoundError
        """
        chosen = list(self._watchpoints) if numbers is None else [self.get(number).id for number in numbers]
        for number in chosen:
            self._watchpoints.pop(number, None)
        if numbers is None:
            self._unreadable.clear()

    def offered(self, recommended: Sequence[Watchpoint]) -> list[SessionWatchpoint]:
        """Return the watchpoints that `add_recommended` would add, under the next ids."""
        taken = {watchpoint.watchpoint.name for watchpoint in self._watchpoints.values()}
        free = [point for point in recommended if point.name not in taken]
        return [
            SessionWatchpoint(replace(point, id=number), point.selection)
            for number, point in enumerate(free, self._last_id + 1)
        ]

    def add_recommended(self, recommended: Sequence[Watchpoint]) -> list[SessionWatchpoint]:
        """Add recommended watchpoints under the next ids, except those whose names are taken.

        Raises
        ------
        LimitError
        """
        self._require_room(len(recommended))
        added = self.offered(recommended)
        for watchpoint in added:
            self._watchpoints[watchpoint.id] = watchpoint
            self._last_id = watchpoint.id
        return added

    # --- their nodes ---

    def nodes_of(self, watchpoint: SessionWatchpoint, rank: int) -> list[tuple[str, frozenset[str]]]:
        """Return, for each graph of a rank, its name and the names of the nodes that a watchpoint watches.

        For large graphs the first call takes seconds; call it in a thread.
        """
        return [
            (watched_nodes.index.graph.name, watched_nodes.names) for watched_nodes in self.watched(watchpoint, rank)
        ]

    def watched(self, watchpoint: SessionWatchpoint, rank: int) -> tuple[WatchedNodes, ...]:
        """Return the nodes that a watchpoint watches, for each graph of a rank."""
        graphs = self._graphs(rank)
        nodes = self._resolved_nodes(watchpoint, rank, graphs)
        if nodes is not None:
            return nodes
        with self._resolving:
            return self._resolved_nodes(watchpoint, rank, graphs) or self._resolve(watchpoint, rank, graphs)

    def watching(self, watchpoint: SessionWatchpoint, rank: int) -> Watching:
        """Return the counts of nodes that a watchpoint watches in the program of a rank."""
        graphs = self._graphs(rank)
        self.watched(watchpoint, rank)
        resolved = self._watched.get((watchpoint.id, rank))
        if resolved is not None and resolved.is_of(watchpoint) and resolved.graphs == graphs:
            return resolved.watching
        return self._programs.of(graphs).watching(self.watched(watchpoint, rank))

    def count(self, watchpoint: SessionWatchpoint, ranks: Iterable[int]) -> int:
        """Return the number of nodes that a watchpoint watches on all ranks, as far as already determined."""
        all_resolved = (self._watched.get((watchpoint.id, rank)) for rank in ranks)
        return sum(
            resolved.watching.count for resolved in all_resolved if resolved is not None and resolved.is_of(watchpoint)
        )

    def unknown_paths(self, watchpoint: SessionWatchpoint, ranks: Iterable[int]) -> list[str]:
        """Return the paths in the edits of a watchpoint that no graph has; empty while there are no graphs."""
        indexes = [self._programs.index(graph) for rank in ranks for graph in self._graphs(rank)]
        unknown = [edit.path for edit in watchpoint.edits if not any(is_known(index, edit) for index in indexes)]
        return unknown if indexes else []

    def resolve(self, ranks: Iterable[int]) -> None:
        """Determine the nodes of all watchpoints, and drop those of deleted watchpoints."""
        with self._resolving:
            for rank in ranks:
                for watchpoint in self.all():
                    self.watched(watchpoint, rank)
            self._watched = {key: resolved for key, resolved in self._watched.items() if key[0] in self._watchpoints}

    def forget(self) -> None:
        """Drop the nodes of all watchpoints; they are determined again when requested."""
        with self._resolving:
            self._watched = {}

    def selects_any(self, selector: Selector, ranks: Iterable[int]) -> bool:
        """Return whether a rule selects any node; True while there are no graphs."""
        graphs = [(graph, self._graphs(rank)) for rank in ranks for graph in self._graphs(rank)]
        return not graphs or any(
            watched(self._programs.index(graph), selector, (), others).any() for graph, others in graphs
        )

    def _resolved_nodes(
        self, watchpoint: SessionWatchpoint, rank: int, graphs: tuple[Graph, ...]
    ) -> tuple[WatchedNodes, ...] | None:
        resolved = self._watched.get((watchpoint.id, rank))
        return (
            resolved.watched
            if resolved is not None and resolved.is_of(watchpoint) and resolved.graphs == graphs
            else None
        )

    def _resolve(self, watchpoint: SessionWatchpoint, rank: int, graphs: tuple[Graph, ...]) -> tuple[WatchedNodes, ...]:
        nodes = []
        for graph in graphs:
            index = self._programs.index(graph)
            nodes.append(WatchedNodes(index, watched(index, watchpoint.base, watchpoint.edits, graphs)))
        watching = self._programs.of(graphs).watching(nodes)
        resolved = _Resolved(watchpoint.base, watchpoint.edits, graphs, tuple(nodes), watching)
        self._watched[watchpoint.id, rank] = resolved
        return resolved.watched

    # --- the file ---

    def stored(self) -> dict[str, Any]:
        """Return the content of the file, as data for JSON."""
        return {
            "format": 1,
            "name": self.name,
            "last_id": self._last_id,
            "recommended_offered": self.recommended_offered,
            "watchpoints": [_to_json(watchpoint) for watchpoint in self._watchpoints.values()] + self._unreadable,
        }

    def save(self, stored: Mapping[str, Any] | None = None) -> None:
        """Write the watchpoints to the workspace; pass the value of `stored()` to write them in another thread.

        Raises
        ------
        StorageError
            Writing failed; the watchpoints are still in memory.
        """
        if self._workspace is not None and self.network != "":
            self._workspace.write_json(self._file, self.stored() if stored is None else stored)

    def recognise(self, graphs: Sequence[Graph]) -> None:
        """Restore the watchpoints of an earlier session, once the first graphs identify the network.

        Watchpoints that were created meanwhile keep their ids. A second call does nothing.

        Parameters
        ----------
        graphs : sequence of Graph
            Graphs of a rank.
        """
        if self.network != "" or not graphs:
            return
        created, last_id, offered = self._watchpoints, self._last_id, self.recommended_offered
        self._watchpoints = {}
        self.network = fingerprint(graphs)
        self._load()
        self.recommended_offered |= offered
        if created:
            earlier, self._watchpoints, self._last_id, self._restored = self.all(), created, last_id, []
            taken = {watchpoint.watchpoint.name for watchpoint in created.values()} - {""}
            unmatched = list(created.values())
            for watchpoint in earlier:
                equal = _equal_to(watchpoint, unmatched)
                if equal is not None:
                    unmatched.remove(equal)
                elif watchpoint.watchpoint.name not in taken:
                    self._last_id += 1
                    numbered = replace(watchpoint.watchpoint, id=self._last_id)
                    self._watchpoints[self._last_id] = replace(watchpoint, watchpoint=numbered)
                    self._restored.append(self._last_id)

    @property
    def _file(self) -> str:
        key = self.name if self.network is None else f"{self.name}\0{self.network}"
        return f"{WATCHPOINTS}/{hashlib.sha256(key.encode('utf-8', 'surrogatepass')).hexdigest()}.json"

    def _load(self) -> None:
        workspace = self._workspace
        if workspace is None:
            return
        try:
            stored = workspace.read_json(self._file)
        except StorageError as error:
            self.problems.append(f"the watchpoints of an earlier session could not be restored: {error}")
            self._set_aside(workspace)
            return
        if stored is None:
            return
        if not isinstance(stored, dict) or not isinstance(stored.get("watchpoints"), list):
            self.problems.append(f"{workspace.folder / self._file} contains no watchpoints; starting with none")
            self._set_aside(workspace)
            return
        self.recommended_offered = stored.get("recommended_offered") is True
        last = stored.get("last_id")
        self._last_id = last if isinstance(last, int) and 0 <= last < _LARGEST_ID else 0
        for entry in stored["watchpoints"][:MOST_WATCHPOINTS]:
            self._load_one(entry)
        self._last_id = max([self._last_id, *self._watchpoints])
        self._watchpoints = dict(sorted(self._watchpoints.items()))
        self._restored = list(self._watchpoints)

    def _load_one(self, entry: Any) -> None:
        try:
            read = _from_json(entry)
        except (TensightError, ValidationError, AttributeError, KeyError, TypeError, ValueError) as error:
            self._unreadable.append(entry)
            self.problems.append(f"a watchpoint of an earlier session cannot be used and is left out: {error}")
        else:
            self._watchpoints[read.id] = read

    def _set_aside(self, workspace: Workspace) -> None:
        try:
            aside = workspace.set_aside(self._file)
        except StorageError as error:
            self.problems.append(str(error))
        else:
            self.problems.append(f"the file is now {aside}")

    # --- rules ---

    def _require_room(self, further: int) -> None:
        if len(self._watchpoints) + further > MOST_WATCHPOINTS or self._last_id + further > _LARGEST_ID:
            raise LimitError(f"a session has at most {MOST_WATCHPOINTS:,} watchpoints; delete some that are not needed")

    def _require_new_name(self, name: str) -> None:
        taken = next(
            (watchpoint for watchpoint in self._watchpoints.values() if name and watchpoint.watchpoint.name == name),
            None,
        )
        if taken is not None:
            raise InputError(f"watchpoint {taken.id} has the name {name!r} already; choose another")


@dataclass(frozen=True, slots=True, eq=False)
class _Resolved:
    """The nodes that a watchpoint watches, and the graphs, edits and rule for which they were determined."""

    base: Selector | None
    edits: tuple[Edit, ...]
    graphs: tuple[Graph, ...]
    watched: tuple[WatchedNodes, ...]
    watching: Watching

    def is_of(self, watchpoint: SessionWatchpoint) -> bool:
        return self.base == watchpoint.base and self.edits is watchpoint.edits


def watchpoint_record(watchpoint: SessionWatchpoint, *, nodes: int, hits: int) -> WatchpointRecord:
    """Return the record of a watchpoint."""
    point = watchpoint.watchpoint
    check = point.check
    watches = selection_words(watchpoint.base, watchpoint.edits)
    return WatchpointRecord(
        id=point.id,
        name=point.name,
        condition=check.condition.id,
        abbreviation=check.condition.abbreviation,
        parameters=dict(check.values),
        selection=selection_text(watchpoint.base),
        edits=watchpoint.edits,
        severity=point.severity.value,
        enabled=watchpoint.enabled,
        nodes=nodes,
        text=point.text,
        words=f"Watches {watches}; {describe(check)}{_in_a_row(point.persistence)}.",
        persistence=point.persistence,
        hits=hits,
    )


def _in_a_row(steps: int) -> str:
    return f" in {steps:,} steps in a row" if steps > 1 else ""


def _equal_to(watchpoint: SessionWatchpoint, others: Iterable[SessionWatchpoint]) -> SessionWatchpoint | None:
    """Return the first that is equal but for its id and its version."""
    for other in others:
        numbered = replace(watchpoint.watchpoint, id=other.id)
        if replace(watchpoint, watchpoint=numbered, version=other.version) == other:
            return other
    return None


def _from_spec(number: int, spec: WatchpointSpec) -> SessionWatchpoint:
    check = ConditionCheck(spec.condition, spec.parameters)
    base = natural_selector(check) if spec.selection is None else parse_selection(spec.selection)
    severity = Severity(spec.severity)
    point = Watchpoint(number, spec.name, check, base or NO_NODE, severity, spec.persistence)
    return SessionWatchpoint(point, base, effective_edits(spec.edits), spec.enabled)


def _to_json(watchpoint: SessionWatchpoint) -> dict[str, Any]:
    point = watchpoint.watchpoint
    spec = WatchpointSpec(
        condition=point.check.condition.id,
        parameters=dict(point.check.values),
        name=point.name,
        selection=selection_text(watchpoint.base),
        edits=watchpoint.edits,
        severity=point.severity.value,
        enabled=watchpoint.enabled,
        persistence=point.persistence,
    )
    return {"id": point.id, "version": watchpoint.version, **spec.model_dump(mode="json")}


def _from_json(entry: Any) -> SessionWatchpoint:
    spec = WatchpointSpec.model_validate({key: entry[key] for key in WatchpointSpec.model_fields if key in entry})
    version = entry.get("version")
    return replace(_from_spec(int(entry["id"]), spec), version=version if isinstance(version, int) else 1)
