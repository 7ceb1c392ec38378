"""The watchpoints of a session: what each one checks and watches, kept in the workspace for later sessions."""

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
"""Of a session; each one costs the training process time at every step."""

_LARGEST_ID = 2**31 - 1


@dataclass(frozen=True, slots=True)
class SessionWatchpoint:
    """A watchpoint as a session has it.

    Attributes
    ----------
    watchpoint : Watchpoint
        Id, name, check, severity. Its `selection` is `base`, or one that finds nothing.
    base : Selector or None
        What is selected before the edits; None for nothing.
    edits : tuple of Edit
        Nodes added and removed after that.
    enabled : bool
        Whether it is checked.
    version : int
        From 1, one more with every change: who sent it away knows by this whether to send it again.
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
    """The watchpoints of one session.

    They are changed in one thread only; which nodes they watch may be asked for in any, and is worked out once for
    each graph.

    Parameters
    ----------
    name : str
        Of the run: watchpoints of an earlier session of this name are there again.
    network : str or None
        The `fingerprint` of what is trained, where a name alone does not tell: earlier watchpoints are there again only
        for the same name and the same network. Empty while it is unknown: `recognise` brings them back. None: the name
        is enough.
    workspace : Workspace or None
        Where they are kept; None keeps them nowhere.
    graphs : callable
        Returns the graphs of a rank, always the same objects until they change.
    programs : Programs, optional
        Of the graphs.

    Attributes
    ----------
    network : str or None
    recommended_offered : bool
        The recommended watchpoints were accepted or refused.
    problems : list of str
        Why watchpoints of an earlier session are not there.
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
        # What another version of Tensight wrote and this one cannot read is written back as it was.
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
        """Return the watchpoints that are checked, by id."""
        return [one for one in self._watchpoints.values() if one.enabled]

    def __len__(self) -> int:
        return len(self._watchpoints)

    def get(self, number: int) -> SessionWatchpoint:
        """Return a watchpoint.

        Raises
        ------
        NotFoundError
            There is none of this id.
        """
        found = self._watchpoints.get(number)
        if found is None:
            known = ", ".join(map(str, list(self._watchpoints)[:20])) or "there are none"
            raise NotFoundError(f"there is no watchpoint {number}; {known}", code="watchpoint-unknown")
        return found

    def create(self, spec: WatchpointSpec) -> SessionWatchpoint:
        """Add a watchpoint.

        Raises
        ------
        InputError
            Condition, parameters, selection or edits are wrong, or another watchpoint has the name.
        LimitError
            There are as many as there can be.
        """
        self._require_room(1)
        self._require_new_name(spec.name)
        number = self._last_id + 1
        made = _from_spec(number, spec)
        self._watchpoints[number] = made
        self._last_id = number
        return made

    def change(self, number: int, change: WatchpointChange) -> SessionWatchpoint:
        """Change a watchpoint; what is None in the change stays.

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
        """Delete some watchpoints, or all; none if one of them does not exist.

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
        """Return what `add_recommended` would add: without those whose names are taken, under the next ids."""
        taken = {one.watchpoint.name for one in self._watchpoints.values()}
        free = [point for point in recommended if point.name not in taken]
        return [
            SessionWatchpoint(replace(point, id=number), point.selection)
            for number, point in enumerate(free, self._last_id + 1)
        ]

    def add_recommended(self, recommended: Sequence[Watchpoint]) -> list[SessionWatchpoint]:
        """Add watchpoints of the recommended set under ids of this list, without those whose names are taken.

        Raises
        ------
        LimitError
        """
        self._require_room(len(recommended))
        added = self.offered(recommended)
        for made in added:
            self._watchpoints[made.id] = made
            self._last_id = made.id
        return added

    # --- what they watch ---

    def nodes_of(self, watchpoint: SessionWatchpoint, rank: int) -> list[tuple[str, frozenset[str]]]:
        """Return for each graph of a rank its name and the names of the nodes that a watchpoint watches.

        The first call for large graphs takes seconds; call it in a thread.
        """
        return [(one.index.graph.name, one.names) for one in self.watched(watchpoint, rank)]

    def watched(self, watchpoint: SessionWatchpoint, rank: int) -> tuple[WatchedNodes, ...]:
        """Return for each graph of a rank what a watchpoint watches."""
        graphs = self._graphs(rank)
        known = self._known(watchpoint, rank, graphs)
        if known is not None:
            return known
        with self._resolving:
            return self._known(watchpoint, rank, graphs) or self._resolve(watchpoint, rank, graphs)

    def watching(self, watchpoint: SessionWatchpoint, rank: int) -> Watching:
        """Return how far a watchpoint watches the nodes of the program of a rank."""
        graphs = self._graphs(rank)
        self.watched(watchpoint, rank)
        known = self._watched.get((watchpoint.id, rank))
        if known is not None and known.is_of(watchpoint) and known.graphs == graphs:
            return known.watching
        return self._programs.of(graphs).watching(self.watched(watchpoint, rank))

    def count(self, watchpoint: SessionWatchpoint, ranks: Iterable[int]) -> int:
        """Return how many nodes a watchpoint watches, all ranks together, as far as that is worked out."""
        found = (self._watched.get((watchpoint.id, rank)) for rank in ranks)
        return sum(known.watching.count for known in found if known is not None and known.is_of(watchpoint))

    def unknown_paths(self, watchpoint: SessionWatchpoint, ranks: Iterable[int]) -> list[str]:
        """Return the paths in the edits of a watchpoint that no graph has; none while there are no graphs."""
        indexes = [self._programs.index(graph) for rank in ranks for graph in self._graphs(rank)]
        unknown = [edit.path for edit in watchpoint.edits if not any(is_known(index, edit) for index in indexes)]
        return unknown if indexes else []

    def resolve(self, ranks: Iterable[int]) -> None:
        """Work out what all watchpoints watch, and forget what was known of graphs that are not there any more."""
        with self._resolving:
            for rank in ranks:
                for watchpoint in self.all():
                    self.watched(watchpoint, rank)
            self._watched = {key: known for key, known in self._watched.items() if key[0] in self._watchpoints}

    def forget(self) -> None:
        """Forget what the watchpoints watch; it is worked out again when somebody asks."""
        with self._resolving:
            self._watched = {}

    def selects_any(self, selector: Selector, ranks: Iterable[int]) -> bool:
        """Return whether a rule selects any node; so it does while there are no graphs."""
        graphs = [(graph, self._graphs(rank)) for rank in ranks for graph in self._graphs(rank)]
        return not graphs or any(
            watched(self._programs.index(graph), selector, (), others).any() for graph, others in graphs
        )

    def _known(
        self, watchpoint: SessionWatchpoint, rank: int, graphs: tuple[Graph, ...]
    ) -> tuple[WatchedNodes, ...] | None:
        known = self._watched.get((watchpoint.id, rank))
        return known.watched if known is not None and known.is_of(watchpoint) and known.graphs == graphs else None

    def _resolve(self, watchpoint: SessionWatchpoint, rank: int, graphs: tuple[Graph, ...]) -> tuple[WatchedNodes, ...]:
        found = []
        for graph in graphs:
            index = self._programs.index(graph)
            found.append(WatchedNodes(index, watched(index, watchpoint.base, watchpoint.edits, graphs)))
        watching = self._programs.of(graphs).watching(found)
        resolved = _Resolved(watchpoint.base, watchpoint.edits, graphs, tuple(found), watching)
        self._watched[watchpoint.id, rank] = resolved
        return resolved.watched

    # --- the file ---

    def stored(self) -> dict[str, Any]:
        """Return everything that is kept, as JSON can hold it."""
        return {
            "format": 1,
            "name": self.name,
            "last_id": self._last_id,
            "recommended_offered": self.recommended_offered,
            "watchpoints": [_to_json(one) for one in self._watchpoints.values()] + self._unreadable,
        }

    def save(self, stored: Mapping[str, Any] | None = None) -> None:
        """Write the watchpoints to the workspace; `stored` is what `stored()` returned, to write it in a thread.

        Raises
        ------
        StorageError
            If that fails; the watchpoints are still there in memory.
        """
        if self._workspace is not None and self.network != "":
            self._workspace.write_json(self._file, self.stored() if stored is None else stored)

    def recognise(self, graphs: Sequence[Graph]) -> None:
        """Bring back the watchpoints of an earlier session, now that its first graphs tell which network this is.

        Those that were created meanwhile keep their ids. A second call does nothing.

        Parameters
        ----------
        graphs : sequence of Graph
            Of one rank.
        """
        if self.network != "" or not graphs:
            return
        created, last_id, offered = self._watchpoints, self._last_id, self.recommended_offered
        self._watchpoints = {}
        self.network = fingerprint(graphs)
        self._load()
        self.recommended_offered |= offered
        if created:
            earlier, self._watchpoints, self._last_id = self.all(), created, last_id
            taken = {one.watchpoint.name for one in created.values()} - {""}
            for one in earlier:
                if one.watchpoint.name not in taken:
                    self._last_id += 1
                    numbered = replace(one.watchpoint, id=self._last_id)
                    self._watchpoints[self._last_id] = replace(one, watchpoint=numbered)

    @property
    def _file(self) -> str:
        of = self.name if self.network is None else f"{self.name}\0{self.network}"
        return f"{WATCHPOINTS}/{hashlib.sha256(of.encode('utf-8', 'surrogatepass')).hexdigest()}.json"

    def _load(self) -> None:
        workspace = self._workspace
        if workspace is None:
            return
        try:
            stored = workspace.read_json(self._file)
        except StorageError as error:
            self.problems.append(f"the watchpoints of an earlier session are not there: {error}")
            self._set_aside(workspace)
            return
        if stored is None:
            return
        if not isinstance(stored, dict) or not isinstance(stored.get("watchpoints"), list):
            self.problems.append(f"{workspace.folder / self._file} holds no watchpoints; starting with none")
            self._set_aside(workspace)
            return
        self.recommended_offered = stored.get("recommended_offered") is True
        last = stored.get("last_id")
        self._last_id = last if isinstance(last, int) and 0 <= last < _LARGEST_ID else 0
        for entry in stored["watchpoints"][:MOST_WATCHPOINTS]:
            self._load_one(entry)
        self._last_id = max([self._last_id, *self._watchpoints])
        self._watchpoints = dict(sorted(self._watchpoints.items()))

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
        taken = next((one for one in self._watchpoints.values() if name and one.watchpoint.name == name), None)
        if taken is not None:
            raise InputError(f"watchpoint {taken.id} has the name {name!r} already; choose another")


@dataclass(frozen=True, slots=True, eq=False)
class _Resolved:
    """What a watchpoint watches, and of which graphs, edits and rule that is true."""

    base: Selector | None
    edits: tuple[Edit, ...]
    graphs: tuple[Graph, ...]
    watched: tuple[WatchedNodes, ...]
    watching: Watching

    def is_of(self, watchpoint: SessionWatchpoint) -> bool:
        return self.base == watchpoint.base and self.edits is watchpoint.edits


def watchpoint_record(watchpoint: SessionWatchpoint, *, nodes: int, hits: int) -> WatchpointRecord:
    """Return what a session tells about a watchpoint."""
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
