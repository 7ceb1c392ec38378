"""A session: one person debugging one run. Live and offline sessions have this one interface.

Everything runs in one event loop; what computes or reads files runs in a thread that the method awaits. Methods that
change a session take its lock, so one command runs at a time.
"""

from __future__ import annotations

import asyncio
import gc
import time
from abc import ABC, abstractmethod
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

from tensight.graph.steps import iteration_of
from tensight.sessions.conditions import condition_records, unavailable_because
from tensight.sessions.errors import NotFoundError, StateError, StorageError, UnavailableError
from tensight.sessions.events import EventLog
from tensight.sessions.graph_pictures import graph_level, relation_graph
from tensight.sessions.graph_steps import GraphSteps
from tensight.sessions.graph_views import (
    GraphView,
    NodeQuery,
    ProgramView,
    graph_record,
    nodes_meant,
    require_page,
    search_page,
)
from tensight.sessions.hit_list import HitList
from tensight.sessions.programs import ProgramIndex, Programs
from tensight.sessions.records import Capabilities, State
from tensight.sessions.sources import Sources
from tensight.sessions.watchpoint_list import SessionWatchpoint, WatchpointList, watchpoint_record
from tensight.tensors.views import compute_view
from tensight.watchpoints import condition, recommended_watchpoints

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from tensight.errors import TensightError
    from tensight.graph import Graph, Node, TensorAddress
    from tensight.sessions.graph_views import TreeView
    from tensight.sessions.lease import Lease
    from tensight.sessions.overview import OverviewChoice
    from tensight.sessions.programs import Program
    from tensight.sessions.records import (
        Command,
        ConditionRecord,
        Curves,
        ExecutionPage,
        GraphLevel,
        GraphRecord,
        HitPage,
        NodeRecord,
        NodesMeant,
        OriginRecord,
        Overview,
        RelationGraph,
        SearchPage,
        SessionRecord,
        SourcePage,
        StatisticsPage,
        StatisticsRow,
        TensorRecord,
        Timeline,
        TreePage,
        WatchpointChange,
        WatchpointRecord,
        WatchpointSpec,
        Which,
    )
    from tensight.sessions.workspace import Workspace
    from tensight.tensors.views import View, ViewResult
    from tensight.watchpoints import Condition, Platform, Watchpoint

STORAGE_WARNING_EVERY_S = 60.0

MOST_GRAPH_THREADS = 2
"""Of a session, that work with its graphs at the same time."""

MOST_SIMILAR = 5
"""Nodes that are named where there is none of a name."""

_Result = TypeVar("_Result")


class Session(ABC):
    """One run being debugged.

    What needs only graphs, watchpoints and hits is done here; a subclass brings the run: its graphs, its tensors, and
    how it goes on.

    Parameters
    ----------
    session_id : str
    name : str
        Of the job, or of the dump. Watchpoints of an earlier session of this name are there again.
    workspace : Workspace or None
        Where watchpoints are kept; None keeps them nowhere.
    platform : Platform or None
        The kind of device the run is on; None while it is unknown.
    most_drawn_nodes : int
        A graph with more nodes is listed and searched, but not drawn.
    network : str or None
        As of `WatchpointList`.

    Attributes
    ----------
    events : EventLog
    lock : asyncio.Lock
        Held while a command changes the session.
    watchpoint_list : WatchpointList
    hit_list : HitList
        The hits of the step that is shown; the subclass fills it.
    """

    def __init__(
        self,
        session_id: str,
        name: str,
        *,
        workspace: Workspace | None,
        platform: Platform | None = None,
        most_drawn_nodes: int = 100_000,
        network: str | None = None,
    ) -> None:
        self.id = session_id
        self.name = name
        self.platform = platform
        self.most_drawn_nodes = most_drawn_nodes
        self.created = time.time()
        self.events = EventLog()
        self.lock = asyncio.Lock()
        self.programs = Programs(self._position_in, self._are_parts)
        self._graph_work = asyncio.Semaphore(MOST_GRAPH_THREADS)
        self.hit_list = HitList()
        self.watchpoint_list = WatchpointList(name, workspace, self.graphs, self.programs, network=network)
        self._lines_of_code = Sources()
        self._next_storage_warning = 0.0
        self._writes_refused = 0
        self._tell_problems()

    # --- what a subclass brings ---

    @property
    @abstractmethod
    def state(self) -> State:
        """What the session is doing."""

    @property
    @abstractmethod
    def step(self) -> int:
        """Steps done, and the one that is shown; 0 is the state before the first update."""

    @property
    @abstractmethod
    def ranks(self) -> tuple[int, ...]:
        """The ranks of the run, in order."""

    @abstractmethod
    def graphs(self, rank: int) -> tuple[Graph, ...]:
        """Return the graphs of a rank. NotFoundError for an unknown rank."""

    @abstractmethod
    def record(self) -> SessionRecord:
        """Return the summary of the session."""

    @abstractmethod
    def position(self, rank: int, graph: str, node: str) -> int | None:
        """Return the position of a node in the order of execution of its step, from 1; None if that is not known."""

    @abstractmethod
    async def tensors_of(self, rank: int, graph: str, node: str, step: int | None = None) -> tuple[TensorRecord, ...]:
        """Return the inputs and outputs of a node at a step (default: the one that is shown), with statistics."""

    @abstractmethod
    async def value(self, address: TensorAddress) -> NDArray[np.generic]:
        """Return a tensor, as a read-only array that may be a map of a file.

        Raises
        ------
        NotFoundError
            There is no such tensor.
        UnavailableError
            Its value was not kept, or the process did not answer.
        StateError
            It has to come from the process, and that runs.
        """

    @abstractmethod
    def previous(self, address: TensorAddress) -> TensorAddress | None:
        """Return the same tensor in the step before, as far as one can be asked for; None if there is none."""

    @abstractmethod
    async def statistics_over_steps(self, address: TensorAddress) -> tuple[StatisticsRow, ...]:
        """Return the statistics of a tensor at all steps where they are known, in order."""

    @abstractmethod
    async def statistics_table(
        self,
        *,
        rank: int | None = None,
        step: int | None = None,
        query: str = "",
        sort: str = "position",
        descending: bool = False,
        offset: int = 0,
        limit: int = 100,
    ) -> StatisticsPage:
        """Return the statistics of all tensors of a step (default: the one shown) that are known."""

    @abstractmethod
    async def overview(self, rank: int, choice: OverviewChoice, *, read: bool = False) -> Overview:
        """Return a statistic of all tensors of a rank over all steps, as far as it is known.

        Parameters
        ----------
        rank : int
        choice : OverviewChoice
        read : bool
            What has to be read of a dump is read before, as much as takes about a second; `unread` tells what is left.
        """

    @abstractmethod
    async def timeline(self, rank: int, columns: int = 400) -> Timeline:
        """Return the steps of a rank, neighbours merged so that there are so many columns at most."""

    @abstractmethod
    async def curves(self, rank: int, points: int = 400) -> Curves:
        """Return loss, learning rates and norm of the gradients over the steps of a rank, as far as they are known."""

    @abstractmethod
    async def executions(self, rank: int, offset: int = 0, limit: int = 100) -> ExecutionPage:
        """Return which graphs ran in which step."""

    @abstractmethod
    async def origins(self) -> tuple[OriginRecord, ...]:
        """Return where anomalies began, as far as what is known up to the step shown allows.

        Where watchpoints hit in that step: NaN and Inf, and of explosions and zeros those of which a hit has followed.
        """

    @abstractmethod
    async def command(self, command: Command) -> SessionRecord:
        """Start, stop or move the run; returns as soon as the command is accepted, not when it is done.

        Raises
        ------
        StateError
            Not possible now, or not in this session.
        """

    @abstractmethod
    async def close(self, reason: str) -> None:
        """Tell whoever waits, stop what runs, and release files. A closed session only knows its log."""

    # --- what a subclass may bring ---

    def editable(self) -> None:
        """Refuse if watchpoints may not be changed now; by default they may while the run is paused.

        Raises
        ------
        StateError
            They may not; the message says when they may.
        """
        if self.state is not State.PAUSED:
            raise StateError(
                f"watchpoints can be changed while the run is paused; it is {self.state.value}", code="not-paused"
            )

    async def watchpoints_changed(self) -> None:
        """Take notice of changed watchpoints; by default clients are told that the session looks different.

        The session's lock is held; the list is changed, saved and announced.
        """
        self.events.append_state(self.record())

    def source_texts(self) -> Mapping[str, str]:
        """Return the text of files of code by path, as far as the training process sent them."""
        return {}

    def execution_position(self, rank: int) -> Callable[[Node], int] | None:  # noqa: ARG002 - a subclass may know
        """Return what tells where an operator of a rank stands in the order of execution; None if nothing does."""
        return None

    def are_parts(self, rank: int, graph: Graph, other: Graph) -> bool:  # noqa: ARG002 - a subclass may know
        """Whether two graphs of a rank may run in the same step; otherwise they are variants of one program."""
        return True

    def graph_steps(self, rank: int) -> GraphSteps:  # noqa: ARG002 - a subclass may know
        """Return which graphs of a rank ran in which step, as far as that is known."""
        return GraphSteps(())

    def shown_iteration(self, rank: int) -> int:  # noqa: ARG002 - ranks may count for themselves
        """Return the iteration that is shown of a rank."""
        return iteration_of(self.step)

    # --- what a subclass uses ---

    def ran(self, rank: int, iteration: int | None = None) -> frozenset[str]:
        """Return the names of the graphs that ran in an iteration (default: the one shown), or last before it."""
        return self.graph_steps(rank).at(self.shown_iteration(rank) if iteration is None else iteration)

    def program(self, rank: int) -> Program:
        """Return the graphs of a rank as one program; for large ones the first question takes a second."""
        return self.programs.of(self.graphs(rank))

    def graph_of(self, rank: int, node: str, graph: str = "", iteration: int | None = None) -> str:
        """Return the graph in which a node is meant at an iteration (default: the one shown).

        Of the variants of a program that have the node it is the one that ran.

        Parameters
        ----------
        rank : int
        node : str
        graph : str
            One of its graphs; by default any.
        iteration : int, optional

        Raises
        ------
        NotFoundError
            There is no such rank, or no graph has such a node and none was named.
        """
        found = self.program(rank).graph_for(node, self.ran(rank, iteration), graph)
        if not found:
            if not self.graphs(rank):
                raise NotFoundError(f"rank {rank} has no graph yet; wait until its process has sent one")
            raise NotFoundError(
                f"no graph of rank {rank} has a node {node[:200]!r}{self._similar(rank, node)}", code="node-unknown"
            )
        return found

    def _similar(self, rank: int, name: str) -> str:
        """Return a hint at nodes whose names contain a text; empty if there are none."""
        nodes = (node.name for graph in reversed(self.graphs(rank)) for node in graph.nodes)
        found = dict.fromkeys(islice((one for one in nodes if name.lower() in one.lower()), MOST_SIMILAR))
        return f"; some that contain it: {', '.join(found)}" if found else "; search for a part of its name"

    def meant(self, address: TensorAddress) -> TensorAddress:
        """Return an address with the graph that ran in its step, of the variants in which its node is the same."""
        ran = self.ran(address.rank, address.iteration)
        return replace(address, graph=self.program(address.rank).graph_for(address.node, ran, address.graph))

    def same_node(self, address: TensorAddress) -> tuple[str, ...]:
        """Return the graphs in which the node of an address is the same, its own first."""
        program = self.program(address.rank)
        names = program.names_of(program.entry(address.graph, address.node))
        return tuple(dict.fromkeys((address.graph, *reversed(names))))

    async def graphs_changed(self) -> None:
        """Work out what the watchpoints watch.

        To be called whenever graphs are there for the first time, or changed; until then watchpoints count no nodes.
        """
        await asyncio.to_thread(self._resolve_watchpoints)
        # Graphs stay for long, and are large: the search for reference cycles would stop the server to look at them.
        gc.freeze()
        if len(self.watchpoint_list):
            self.events.append("watchpoints")

    def forget_graphs(self) -> None:
        """Let go of what was worked out of graphs, which is large; for a session that is being closed."""
        self.programs.keep_only(())
        self.watchpoint_list.forget()
        self._lines_of_code = Sources()

    def warn(self, text: str) -> None:
        """Tell the clients about something that went wrong and can be lived with."""
        self.events.append("message", level="warning", text=text)

    def warn_of(self, error: TensightError, who: str = "") -> bool:
        """Tell the clients about an error; return whether they were told.

        A disk that is full refuses every write. That is told once, then once a minute with the number of writes.

        Parameters
        ----------
        error : TensightError
        who : str
            Put before it.
        """
        remark = ""
        if isinstance(error, StorageError):
            now = time.monotonic()
            if now < self._next_storage_warning:
                self._writes_refused += 1
                return False
            if self._writes_refused:
                remark = f" ({self._writes_refused:,} more writes failed since the last time that this was said)"
            self._next_storage_warning, self._writes_refused = now + STORAGE_WARNING_EVERY_S, 0
        self.warn(f"{who}{error}{remark}")
        return True

    def graph_view(self, rank: int, graph: str = "", watchpoint: int | None = None) -> GraphView:
        """Return a graph as it is looked at; takes a second for a large one that nobody has looked at yet.

        Without a name it is the graph that ran in the step shown; of several of that step the largest.

        Raises
        ------
        NotFoundError
            There is no such rank, graph or watchpoint.
        """
        graphs = self.graphs(rank)
        if not graphs:
            raise NotFoundError(f"rank {rank} has no graph yet")
        if not graph:
            ran = self.ran(rank)
            graph = max((one for one in graphs if one.name in ran), key=len, default=graphs[-1]).name
        number = next((number for number, one in enumerate(graphs) if one.name == graph), None)
        if number is None:
            raise NotFoundError(f"there is no graph {graph[:200]!r} in rank {rank}; ask for the list of graphs")
        watching = None
        if watchpoint is not None:
            watching = self.watchpoint_list.watched(self.watchpoint_list.get(watchpoint), rank)[number].watching
        return GraphView(rank, self.programs.index(graphs[number]), self.hit_list, watching)

    # --- what follows from graphs, watchpoints and hits ---

    def capabilities(self) -> Capabilities:
        """Return what can be done now; a subclass adds what it can do to this."""
        can_edit = False
        with suppress(StateError):
            self.editable()
            can_edit = True
        can_draw = all(len(graph) <= self.most_drawn_nodes for graph in self._every_graph())
        return Capabilities(can_edit_watchpoints=can_edit, can_draw_graph=can_draw)

    async def _of_graphs(self, work: Callable[[], _Result]) -> _Result:
        """Do in a thread what may take long for large graphs, without taking the threads of other sessions."""
        async with self._graph_work:
            return await asyncio.to_thread(work)

    async def graph_records(self, rank: int | None = None) -> tuple[GraphRecord, ...]:
        """Return the graphs of a rank, or of all."""
        ranks = self.ranks if rank is None else (rank,)

        def records() -> Iterator[GraphRecord]:
            for one in ranks:
                steps, ran = self.graph_steps(one), self.ran(one)
                for graph in self.graphs(one):
                    yield graph_record(one, graph, steps.of(graph.name), ran=graph.name in ran)

        return await self._of_graphs(lambda: tuple(records()))

    async def tree(
        self,
        rank: int,
        graph: str,
        scope: str = "",
        *,
        watchpoint: int | None = None,
        offset: int = 0,
        limit: int = 1000,
    ) -> TreePage:
        """Return the rows directly below a scope; below the root also the groups of parameters and constants.

        Without the name of a graph they are those of the program.
        """
        require_page(offset, limit)
        return await self._of_graphs(lambda: self._tree_view(rank, graph, watchpoint).tree_page(scope, offset, limit))

    async def search(
        self,
        *,
        name: str = "",
        op_type: str = "",
        kind: str = "",
        stack: str = "",
        rank: int | None = None,
        graph: str = "",
        regex: bool = False,
        case_sensitive: bool = False,
        watchpoint: int | None = None,
        offset: int = 0,
        limit: int = 100,
    ) -> SearchPage:
        """Find nodes that match all that is given; texts are parts of what is searched, or regular expressions."""
        require_page(offset, limit)
        query = NodeQuery(name, op_type, kind, stack, regex, case_sensitive)

        return await self._of_graphs(lambda: search_page(self._views(rank, graph, watchpoint), query, offset, limit))

    async def nodes_meant(self, name: str, rank: int = 0, graph: str = "", step: int | None = None) -> NodesMeant:
        """Return the nodes of a rank, or of one of its graphs, that a name or a part of one may mean at a step."""
        graphs = [self.graph_view(rank, graph).index.graph] if graph else self.graphs(rank)
        ran = self.ran(rank, None if step is None else iteration_of(step))
        return await self._of_graphs(lambda: nodes_meant(graphs, name, ran))

    async def node(
        self, rank: int, graph: str, name: str, *, step: int | None = None, follow: bool = False
    ) -> NodeRecord:
        """Return all that the graph says about a node.

        Parameters
        ----------
        rank : int
        graph : str
            Empty: the one that ran in the step.
        name : str
        step : int, optional
            By default the one that is shown.
        follow : bool
            If another variant of the program ran in the step, the node is taken from that.
        """
        if follow or not graph:
            iteration = None if step is None else iteration_of(step)
            graph = await self._of_graphs(lambda: self.graph_of(rank, name, graph, iteration))
        position = self.position(rank, graph, name)

        def read() -> NodeRecord:
            program = self.program(rank)
            graphs, apart = program.names_of(program.entry(graph, name)), len(program.entries(name)) > 1
            return self.graph_view(rank, graph).node_record(name, position, graphs, apart=apart)

        return await self._of_graphs(read)

    async def level(
        self,
        rank: int,
        graph: str,
        scope: str = "",
        limit: int = 1500,
        *,
        opened: Sequence[str] = (),
        beside: bool = False,
        watchpoint: int | None = None,
    ) -> GraphLevel:
        """Return a scope opened, with others in it, for drawing; see `graph_level`.

        Raises
        ------
        StateError
            The graph has more nodes than are drawn.
        """
        require_page(0, limit)
        view = partial(self.graph_view, rank, graph, watchpoint)
        return await self._of_graphs(
            lambda: graph_level(view(), scope, limit, self.most_drawn_nodes, opened=opened, beside=beside)
        )

    async def relations(self, address: TensorAddress, hops: int = 1, limit: int = 200) -> RelationGraph:
        """Return a tensor's node with what feeds it and what reads that slot."""
        return await self._of_graphs(
            lambda: relation_graph(self.graph_view(address.rank, address.graph), address, hops, limit)
        )

    async def sources(self, query: str = "", offset: int = 0, limit: int = 10) -> SourcePage:
        """Return the lines of code that made nodes; `query` is a part of ``path:line code``, in any case."""
        require_page(offset, limit)
        texts = self.source_texts()
        return await self._of_graphs(
            lambda: self._lines_of_code.of(tuple(map(self.program, self.ranks))).page(query, offset, limit, texts)
        )

    async def source_text(self, file: str) -> str:
        """Return the text of a file of code that the training process sent. NotFoundError if it sent none."""
        text = self.source_texts().get(file)
        if text is None:
            raise NotFoundError(f"the text of {file[:200]!r} did not come with the run; open it where it was written")
        return text

    def conditions(self) -> tuple[ConditionRecord, ...]:
        """Return the conditions, each with whether it can be watched for in this session now."""
        return condition_records(
            platform=self.platform, live=self.capabilities().live, step=self.step, own=self.checks_own_conditions
        )

    def watchpoints(self) -> tuple[WatchpointRecord, ...]:
        """Return the watchpoints, by id."""
        return tuple(map(self._watchpoint_record, self.watchpoint_list.all()))

    async def create_watchpoint(self, spec: WatchpointSpec) -> WatchpointRecord:
        """Add a watchpoint.

        Raises
        ------
        StateError
            Watchpoints may not be changed now, or the condition cannot be checked in this session.
        InputError, LimitError
            See `WatchpointList.create`.
        """
        async with self.lock:
            self.editable()
            because = self._unavailable_because(condition(spec.condition))
            if because:
                raise StateError(f"{spec.condition} cannot be watched for: {because}")
            created = self.watchpoint_list.create(spec)
            await self._watchpoints_edited()
            self._warn_of_unknown_paths(created)
            return self._watchpoint_record(created)

    async def change_watchpoint(self, watchpoint: int, change: WatchpointChange) -> WatchpointRecord:
        """Change a watchpoint. StateError, NotFoundError, InputError."""
        async with self.lock:
            self.editable()
            changed = self.watchpoint_list.change(watchpoint, change)
            await self._watchpoints_edited()
            if change.edits is not None or change.further_edits:
                self._warn_of_unknown_paths(changed)
            return self._watchpoint_record(changed)

    async def delete_watchpoints(self, watchpoints: Sequence[int] | None = None) -> None:
        """Delete some watchpoints, or all; if one of them does not exist, none. StateError, NotFoundError."""
        async with self.lock:
            self.editable()
            self.watchpoint_list.delete(watchpoints)
            await self._watchpoints_edited()

    async def recommended(self) -> tuple[WatchpointRecord, ...]:
        """Return the recommended watchpoints as they would be now if they were accepted."""
        offered = self.watchpoint_list.offered(await asyncio.to_thread(self._recommended))

        def work_out_nodes() -> None:
            for one in offered:
                for rank in self.ranks:
                    self.watchpoint_list.watched(one, rank)

        await asyncio.to_thread(work_out_nodes)
        return tuple(map(self._watchpoint_record, offered))

    async def recommend(self, accept: bool) -> tuple[WatchpointRecord, ...]:
        """Have the recommended watchpoints, or note that they are not wanted. StateError.

        Those that are there already, from this session or an earlier one, stay as they are and are returned, too.
        """
        async with self.lock:
            self.editable()
            return await self._recommend(accept)

    async def _recommend(self, accept: bool) -> tuple[WatchpointRecord, ...]:
        wanted = await asyncio.to_thread(self._recommended) if accept else []
        added = self.watchpoint_list.add_recommended(wanted)
        self.watchpoint_list.recommended_offered = True
        await self._watchpoints_edited(outdated=bool(added))
        names = {point.name for point in wanted}
        return tuple(record for record in self.watchpoints() if record.name in names)

    async def hits(
        self,
        *,
        rank: int | None = None,
        graph: str = "",
        watchpoint: int | None = None,
        focus: str = "",
        offset: int = 0,
        limit: int = 10,
    ) -> HitPage:
        """Return the nodes with hits of the current step in execution order; `focus`: the page that has this node."""
        return await asyncio.to_thread(
            lambda: self.hit_list.page(
                rank=rank, graph=graph, watchpoint=watchpoint, focus=focus, offset=offset, limit=limit
            )
        )

    async def view(self, address: TensorAddress, view: View, which: Which = "current") -> ViewResult:
        """Return a slice, picture, histogram or the statistics of a tensor, of its previous value, or of both.

        Computed where the tensor lives: a subclass overrides this if a process can do it.

        Raises
        ------
        NotFoundError, UnavailableError, StateError
            See `value`; there is no previous value.
        InputError
            See `compute_view`.
        """
        current = None if which == "previous" else await self.value(address)
        earlier = None
        if which != "current":
            before = self.previous(address)
            if before is None:
                raise UnavailableError(f"{address} has no value of the step before that could be shown")
            earlier = await self.value(before)
        return await asyncio.to_thread(compute_view, view, which, current, earlier)

    # --- how ---

    def _tree_view(self, rank: int, graph: str, watchpoint: int | None) -> TreeView:
        """Return a graph of a rank, or all of them as one program, with what the watchpoint watches of it."""
        program = self.program(rank)
        index = program.tree if program.graphs else None
        if graph or not isinstance(index, ProgramIndex):
            return self.graph_view(rank, graph, watchpoint)
        watching = None
        if watchpoint is not None:
            watching = self.watchpoint_list.watching(self.watchpoint_list.get(watchpoint), rank)
        return ProgramView(rank, program, index, self.hit_list, watching, self.ran(rank))

    def _views(self, rank: int | None, graph: str, watchpoint: int | None) -> list[TreeView]:
        """Return what is to be searched of that rank, or of any."""
        ranks = [one for one in (self.ranks if rank is None else (rank,)) if self.graphs(one)]
        if graph:
            ranks = [one for one in ranks if any(each.name == graph for each in self.graphs(one))]
            if not ranks:
                where = "" if rank is None else f" in rank {rank}"
                raise NotFoundError(f"there is no graph {graph[:200]!r}{where}; ask for the list of graphs")
        return [self._tree_view(one, graph, watchpoint) for one in ranks]

    def _position_in(self, graph: Graph) -> Callable[[Node], int] | None:
        rank = self._rank_of(graph)
        return None if rank is None else self.execution_position(rank)

    def _are_parts(self, graph: Graph, other: Graph) -> bool:
        rank = self._rank_of(graph)
        return rank is None or self.are_parts(rank, graph, other)

    def _rank_of(self, graph: Graph) -> int | None:
        return next((rank for rank in self.ranks if graph in self.graphs(rank)), None)

    def _every_graph(self) -> tuple[Graph, ...]:
        return tuple(graph for rank in self.ranks for graph in self.graphs(rank))

    def _resolve_watchpoints(self) -> None:
        self.programs.keep_only(map(self.graphs, self.ranks))
        self.watchpoint_list.resolve(self.ranks)

    def _recommended(self) -> list[Watchpoint]:
        """Return the recommended watchpoints that can be checked in this session and have something to watch."""
        return [
            point
            for point in recommended_watchpoints(initial=True, platform=self.platform, live=self.has_agent)
            if not self._unavailable_because(point.check.condition)
            and self.watchpoint_list.selects_any(point.selection, self.ranks)
        ]

    def _unavailable_because(self, condition: Condition) -> str:
        live = self.capabilities().live
        own = self.checks_own_conditions
        return unavailable_because(condition, platform=self.platform, live=live, step=self.step, own=own)

    lease: Lease | None = None
    """Who needs the session, if it was opened for a script."""

    @property
    def has_agent(self) -> bool:
        """Whether Tensight's agent is in the training, or recorded it."""
        return False

    @property
    def checks_own_conditions(self) -> bool:
        """Whether conditions that the original does not have can be checked."""
        return True

    async def _watchpoints_edited(self, *, outdated: bool = True) -> None:
        """Make known that watchpoints are others now; what cannot be saved stays in memory."""
        self.hit_list.outdated |= outdated
        stored = self.watchpoint_list.stored()
        try:
            await asyncio.to_thread(self.watchpoint_list.save, stored)
        except StorageError as error:
            self.warn(f"watchpoints are changed but will be lost when the server ends: {error}")
        await asyncio.to_thread(self._resolve_watchpoints)
        self.events.append("watchpoints")
        await self.watchpoints_changed()

    def _warn_of_unknown_paths(self, watchpoint: SessionWatchpoint) -> None:
        """Tell which paths a person has written that name nothing; an agent's nodes may still appear as they run."""
        for path in self.watchpoint_list.unknown_paths(watchpoint, self.ranks):
            self.warn(f"watchpoint {watchpoint.id}: no graph has a scope or a node {path!r} so far; check its spelling")

    def _tell_problems(self) -> None:
        """Tell why watchpoints of an earlier session are not there."""
        for problem in self.watchpoint_list.problems:
            self.warn(problem)
        self.watchpoint_list.problems.clear()

    def _watchpoint_record(self, watchpoint: SessionWatchpoint) -> WatchpointRecord:
        return watchpoint_record(
            watchpoint,
            nodes=self.watchpoint_list.count(watchpoint, self.ranks),
            hits=self.hit_list.count_of(watchpoint.id),
        )
