"""A session: a user debugs a run. Live and offline sessions implement this interface.

Everything runs in one event loop; methods await threads for computations and file access. Methods that change a
session take its lock, so one command runs at a time.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from tensight.graph.steps import iteration_of
from tensight.sessions.conditions import condition_records, unavailable_because
from tensight.sessions.diagnosis import RunFacts
from tensight.sessions.errors import NotFoundError, StateError, StorageError, UnavailableError
from tensight.sessions.events import EventLog
from tensight.sessions.garbage import cycle_collector
from tensight.sessions.graph_pictures import graph_level, relation_graph
from tensight.sessions.graph_steps import GraphSteps
from tensight.sessions.graph_views import (
    GraphView,
    NodeQuery,
    ProgramView,
    graph_record,
    names_like,
    nodes_meant,
    require_page,
    search_page,
)
from tensight.sessions.hit_list import HitList
from tensight.sessions.programs import ProgramIndex, Programs
from tensight.sessions.records import Capabilities, DiagnosisRecord, State
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
        FactsRecord,
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
"""Threads of a session that work with its graphs at the same time."""

_Result = TypeVar("_Result")


class Session(ABC):
    """A run being debugged.

    Implements everything that needs only graphs, watchpoints and hits; a subclass provides the run: its graphs, its
    tensors, and its control.

    Parameters
    ----------
    session_id : str
    name : str
        Name of the job or the dump. Watchpoints of an earlier session with this name are restored.
    workspace : Workspace or None
        Stores the watchpoints; None does not store them.
    platform : Platform or None
        The kind of device of the run; None while unknown.
    most_drawn_nodes : int
        Graphs with more nodes are listed and searched, but not drawn.
    network : str or None
        See `WatchpointList`.

    Attributes
    ----------
    events : EventLog
    lock : asyncio.Lock
        Held while a command changes the session.
    watchpoint_list : WatchpointList
    hit_list : HitList
        The hits of the shown step; filled by the subclass.
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

    # --- implemented by subclasses ---

    @property
    @abstractmethod
    def state(self) -> State:
        """State of the session."""

    @property
    @abstractmethod
    def step(self) -> int:
        """The shown step, which is the number of completed steps; 0 is the state before the first update."""

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
        """Return the position of a node in the execution order of its step, from 1; None if unknown."""

    @abstractmethod
    async def tensors_of(self, rank: int, graph: str, node: str, step: int | None = None) -> tuple[TensorRecord, ...]:
        """Return the inputs and outputs of a node at a step (default: the shown step), with statistics."""

    @abstractmethod
    async def value(self, address: TensorAddress) -> NDArray[np.generic]:
        """Return a tensor as a read-only array, which may be memory-mapped.

        Raises
        ------
        NotFoundError
            There is no such tensor.
        UnavailableError
            Its value was not kept, or the process did not answer.
        StateError
            It must come from the process, and the process is running.
        """

    @abstractmethod
    def previous(self, address: TensorAddress) -> TensorAddress | None:
        """Return the address of the same tensor in the previous step; None if it cannot be requested."""

    @abstractmethod
    async def statistics_over_steps(self, address: TensorAddress) -> tuple[StatisticsRow, ...]:
        """Return the statistics of a tensor at all steps at which they are known, in order."""

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
        """Return the known statistics of all tensors of a step (default: the shown step)."""

    @abstractmethod
    async def overview(self, rank: int, choice: OverviewChoice, *, read: bool = False) -> Overview:
        """Return a statistic of all tensors of a rank over all steps, as far as known.

        Parameters
        ----------
        rank : int
        choice : OverviewChoice
        read : bool
            First read missing tensors of a dump, for about a second; `unread` of the result counts the rest.
        """

    @abstractmethod
    async def timeline(self, rank: int, columns: int = 400) -> Timeline:
        """Return the steps of a rank in at most `columns` columns; neighbouring steps are merged."""

    @abstractmethod
    async def curves(self, rank: int, points: int = 400) -> Curves:
        """Return loss, learning rates and gradient norm over the steps of a rank, as far as known."""

    @abstractmethod
    async def executions(self, rank: int, offset: int = 0, limit: int = 100) -> ExecutionPage:
        """Return the graphs that ran in each step."""

    @abstractmethod
    async def origins(self) -> tuple[OriginRecord, ...]:
        """Return the origins of anomalies, as far as known up to the shown step.

        If watchpoints hit in that step: origins of NaN and Inf, and of explosions and zeros that led to a hit.
        """

    @abstractmethod
    async def command(self, command: Command) -> SessionRecord:
        """Start, stop or move the run; return when the command is accepted, not when it is completed.

        Raises
        ------
        StateError
            Not possible now, or not in this session.
        """

    @abstractmethod
    async def close(self, reason: str) -> None:
        """Notify waiting clients, cancel running work, and release files. Only the log remains usable afterwards."""

    # --- subclasses may override ---

    async def diagnosis(self) -> DiagnosisRecord:
        """Return why the training does not learn, as far as rules find it in its facts; by default there are none."""
        return DiagnosisRecord()

    async def facts(self, rank: int, subject: str) -> FactsRecord:
        """Return a table of the facts of a rank; by default it is empty.

        Raises
        ------
        NotFoundError
            There is no such subject.
        """
        return RunFacts().table(rank, subject)

    def editable(self) -> None:
        """Raise an error if watchpoints cannot be changed now; by default they can while the run is paused.

        Raises
        ------
        StateError
            They cannot be changed; the message says when they can.
        """
        if self.state is not State.PAUSED:
            raise StateError(
                f"watchpoints can be changed while the run is paused; it is {self.state.value}", code="not-paused"
            )

    async def watchpoints_changed(self) -> None:
        """React to changed watchpoints; by default, append the new state to the event log.

        Called with the session's lock held, after the list has been changed, saved and announced.
        """
        self.events.append_state(self.record())

    def source_texts(self) -> Mapping[str, str]:
        """Return the texts of source files by path, as far as the training process sent them."""
        return {}

    def execution_position(self, rank: int) -> Callable[[Node], int] | None:  # noqa: ARG002 - a subclass may know
        """Return a function that returns the position of an operator in execution order; None if unknown."""
        return None

    def are_parts(self, rank: int, graph: Graph, other: Graph) -> bool:  # noqa: ARG002 - a subclass may know
        """Return whether two graphs of a rank may run in the same step; otherwise they are variants of a program."""
        return True

    def graph_steps(self, rank: int) -> GraphSteps:  # noqa: ARG002 - a subclass may know
        """Return the graphs of a rank that ran in each step, as far as known."""
        return GraphSteps(())

    def shown_iteration(self, rank: int) -> int:  # noqa: ARG002 - ranks may be at different steps
        """Return the shown iteration of a rank."""
        return iteration_of(self.step)

    # --- for subclasses ---

    def ran(self, rank: int, iteration: int | None = None) -> frozenset[str]:
        """Return the names of the graphs that ran in an iteration (default: the shown one), or last before it."""
        return self.graph_steps(rank).at(self.shown_iteration(rank) if iteration is None else iteration)

    def program(self, rank: int) -> Program:
        """Return the graphs of a rank as one program; for large graphs its first query takes a second."""
        return self.programs.of(self.graphs(rank))

    def graph_of(self, rank: int, node: str, graph: str = "", iteration: int | None = None) -> str:
        """Return the graph to which a node refers at an iteration (default: the shown one).

        Of the variants of a program that have the node, it is the one that ran.

        Parameters
        ----------
        rank : int
        node : str
        graph : str
            A graph that has the node; by default any.
        iteration : int, optional

        Raises
        ------
        NotFoundError
            There is no such rank, or no `graph` was given and no graph has the node.
        """
        graph_name = self.program(rank).graph_for(node, self.ran(rank, iteration), graph)
        if not graph_name:
            if not self.graphs(rank):
                raise NotFoundError(f"rank {rank} has no graph yet; wait until its process has sent one")
            raise NotFoundError(
                f"no graph of rank {rank} has a node {node[:200]!r}{names_like(self.graphs(rank), node)}",
                code="node-unknown",
            )
        return graph_name

    def meant(self, address: TensorAddress) -> TensorAddress:
        """Return an address with its graph replaced by the variant that ran in its step and has the same node."""
        ran = self.ran(address.rank, address.iteration)
        return replace(address, graph=self.program(address.rank).graph_for(address.node, ran, address.graph))

    def same_node(self, address: TensorAddress) -> tuple[str, ...]:
        """Return the graphs in which the node of an address is the same, the graph of the address first."""
        program = self.program(address.rank)
        names = program.names_of(program.entry(address.graph, address.node))
        return tuple(dict.fromkeys((address.graph, *reversed(names))))

    async def graphs_changed(self) -> None:
        """Determine the nodes that the watchpoints watch.

        Must be called when graphs were added or changed; until then watchpoints count no nodes.
        """
        await asyncio.to_thread(self._resolve_watchpoints)
        cycle_collector.exempt()
        if len(self.watchpoint_list):
            self.events.append("watchpoints")

    def forget_graphs(self) -> None:
        """Release indexes and other large data derived from graphs, when the session is closed."""
        self.programs.keep_only(())
        self.watchpoint_list.forget()
        self._lines_of_code = Sources()

    def warn(self, text: str) -> None:
        """Send a warning to the clients."""
        self.events.append("message", level="warning", text=text)

    def warn_of(self, error: TensightError, who: str = "") -> bool:
        """Send an error to the clients as a warning; return whether it was sent.

        On a full disk every write fails. That is reported once, then once a minute with the number of failed writes.

        Parameters
        ----------
        error : TensightError
        who : str
            Prefix of the message.
        """
        remark = ""
        if isinstance(error, StorageError):
            now = time.monotonic()
            if now < self._next_storage_warning:
                self._writes_refused += 1
                return False
            if self._writes_refused:
                remark = f" ({self._writes_refused:,} more writes failed since the last warning)"
            self._next_storage_warning, self._writes_refused = now + STORAGE_WARNING_EVERY_S, 0
        self.warn(f"{who}{error}{remark}")
        return True

    def graph_view(self, rank: int, graph: str = "", watchpoint: int | None = None) -> GraphView:
        """Return the view of a graph; for a large graph the first call takes a second.

        Without a name, return the graph that ran in the shown step, or the largest of several.

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
            graph = max((candidate for candidate in graphs if candidate.name in ran), key=len, default=graphs[-1]).name
        number = next((number for number, candidate in enumerate(graphs) if candidate.name == graph), None)
        if number is None:
            raise NotFoundError(f"there is no graph {graph[:200]!r} in rank {rank}; ask for the list of graphs")
        watching = None
        if watchpoint is not None:
            watching = self.watchpoint_list.watched(self.watchpoint_list.get(watchpoint), rank)[number].watching
        return GraphView(rank, self.programs.index(graphs[number]), self.hit_list, watching)

    # --- derived from graphs, watchpoints and hits ---

    def capabilities(self) -> Capabilities:
        """Return the current capabilities; a subclass adds its own."""
        can_edit = False
        with suppress(StateError):
            self.editable()
            can_edit = True
        can_draw = all(len(graph) <= self.most_drawn_nodes for graph in self._every_graph())
        return Capabilities(can_edit_watchpoints=can_edit, can_draw_graph=can_draw)

    async def _of_graphs(self, work: Callable[[], _Result]) -> _Result:
        """Run work on graphs, which may take long, in a thread; limited, so that other sessions get threads, too."""
        async with self._graph_work:
            return await asyncio.to_thread(work)

    async def graph_records(self, rank: int | None = None) -> tuple[GraphRecord, ...]:
        """Return the graphs of a rank, or of all."""
        ranks = self.ranks if rank is None else (rank,)

        def records() -> Iterator[GraphRecord]:
            for each_rank in ranks:
                steps, ran = self.graph_steps(each_rank), self.ran(each_rank)
                for graph in self.graphs(each_rank):
                    yield graph_record(each_rank, graph, steps.of(graph.name), ran=graph.name in ran)

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

        Without the name of a graph, return rows of the program.
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
        """Find nodes that match all given criteria; texts are substrings or regular expressions."""
        require_page(offset, limit)
        query = NodeQuery(name, op_type, kind, stack, regex, case_sensitive)

        return await self._of_graphs(lambda: search_page(self._views(rank, graph, watchpoint), query, offset, limit))

    async def nodes_meant(self, name: str, rank: int = 0, graph: str = "", step: int | None = None) -> NodesMeant:
        """Return the nodes of a rank, or of one of its graphs, that a full or partial name may mean at a step."""
        graphs = [self.graph_view(rank, graph).index.graph] if graph else self.graphs(rank)
        ran = self.ran(rank, None if step is None else iteration_of(step))
        return await self._of_graphs(lambda: nodes_meant(graphs, name, ran))

    async def node(
        self, rank: int, graph: str, name: str, *, step: int | None = None, follow: bool = False
    ) -> NodeRecord:
        """Return the record of a node with everything that the graph knows about it.

        Parameters
        ----------
        rank : int
        graph : str
            Empty for the graph that ran in the step.
        name : str
        step : int, optional
            By default the shown step.
        follow : bool
            Take the node from the variant of the program that ran in the step, if that is another graph.
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
        """Return an opened scope, and opened scopes in it, for drawing; see `graph_level`.

        Raises
        ------
        StateError
            The graph is too large to be drawn.
        """
        require_page(0, limit)
        view = partial(self.graph_view, rank, graph, watchpoint)
        return await self._of_graphs(
            lambda: graph_level(view(), scope, limit, self.most_drawn_nodes, opened=opened, beside=beside)
        )

    async def relations(self, address: TensorAddress, hops: int = 1, limit: int = 200) -> RelationGraph:
        """Return the node of a tensor with its producers and with the consumers of the tensor."""
        return await self._of_graphs(
            lambda: relation_graph(self.graph_view(address.rank, address.graph), address, hops, limit)
        )

    async def sources(self, query: str = "", offset: int = 0, limit: int = 10) -> SourcePage:
        """Return the lines of code that created nodes; `query` is a case-insensitive part of ``path:line code``."""
        require_page(offset, limit)
        texts = self.source_texts()
        return await self._of_graphs(
            lambda: self._lines_of_code.of(tuple(map(self.program, self.ranks))).page(query, offset, limit, texts)
        )

    async def source_text(self, file: str) -> str:
        """Return the text of a source file. NotFoundError if the training process did not send it."""
        text = self.source_texts().get(file)
        if text is None:
            raise NotFoundError(f"the text of {file[:200]!r} did not come with the run; open it where it was written")
        return text

    def conditions(self) -> tuple[ConditionRecord, ...]:
        """Return the conditions, each with whether it can be checked in this session now."""
        return condition_records(
            platform=self.platform,
            live=self.capabilities().live,
            step=self.step,
            can_check_own=self.checks_own_conditions,
        )

    def watchpoints(self) -> tuple[WatchpointRecord, ...]:
        """Return the watchpoints, by id."""
        return tuple(map(self._watchpoint_record, self.watchpoint_list.all()))

    async def create_watchpoint(self, spec: WatchpointSpec) -> WatchpointRecord:
        """Add a watchpoint, or return the equal one of an earlier session. See `WatchpointList.create`.

        Raises
        ------
        StateError
            Watchpoints cannot be changed now, or the condition cannot be checked in this session.
        InputError, LimitError
        """
        async with self.lock:
            self.editable()
            because = self._unavailable_because(condition(spec.condition))
            if because:
                raise StateError(f"{spec.condition} cannot be watched for: {because}")
            amount = len(self.watchpoint_list)
            watchpoint = self.watchpoint_list.create(spec)
            if len(self.watchpoint_list) > amount:
                await self._watchpoints_edited()
                self._warn_of_unknown_paths(watchpoint)
            return self._watchpoint_record(watchpoint)

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
        """Delete the given watchpoints, or all; none if an id is unknown. StateError, NotFoundError."""
        async with self.lock:
            self.editable()
            self.watchpoint_list.delete(watchpoints)
            await self._watchpoints_edited()

    async def recommended(self) -> tuple[WatchpointRecord, ...]:
        """Return the recommended watchpoints that `recommend` would add now."""
        offered = self.watchpoint_list.offered(await asyncio.to_thread(self._recommended))

        def work_out_nodes() -> None:
            for watchpoint in offered:
                for rank in self.ranks:
                    self.watchpoint_list.watched(watchpoint, rank)

        await asyncio.to_thread(work_out_nodes)
        return tuple(map(self._watchpoint_record, offered))

    async def recommend(self, accept: bool) -> tuple[WatchpointRecord, ...]:
        """Accept the recommended watchpoints, or decline them. StateError.

        Recommended watchpoints that exist already, from this session or an earlier one, are kept and returned, too.
        """
        async with self.lock:
            self.editable()
            return await self._recommend(accept)

    async def _recommend(self, accept: bool) -> tuple[WatchpointRecord, ...]:
        recommended = await asyncio.to_thread(self._recommended) if accept else []
        added = self.watchpoint_list.add_recommended(recommended)
        self.watchpoint_list.recommended_offered = True
        await self._watchpoints_edited(outdated=bool(added))
        names = {point.name for point in recommended}
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
        """Return a page of the nodes with hits at the current step, in execution order; see `HitList.page`."""
        return await asyncio.to_thread(
            lambda: self.hit_list.page(
                rank=rank, graph=graph, watchpoint=watchpoint, focus=focus, offset=offset, limit=limit
            )
        )

    async def view(self, address: TensorAddress, view: View, which: Which = "current") -> ViewResult:
        """Return a slice, picture, histogram or the statistics of a tensor, its previous value, or their difference.

        Views are computed where the tensor is: a subclass overrides this if a process can compute them.

        Raises
        ------
        NotFoundError, UnavailableError, StateError
            See `value`; or there is no previous value.
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

    # --- implementation ---

    def _tree_view(self, rank: int, graph: str, watchpoint: int | None) -> TreeView:
        """Return the view of a graph, or of all graphs of a rank as one program, with the nodes of a watchpoint."""
        program = self.program(rank)
        index = program.tree if program.graphs else None
        if graph or not isinstance(index, ProgramIndex):
            return self.graph_view(rank, graph, watchpoint)
        watching = None
        if watchpoint is not None:
            watching = self.watchpoint_list.watching(self.watchpoint_list.get(watchpoint), rank)
        return ProgramView(rank, program, index, self.hit_list, watching, self.ran(rank))

    def _views(self, rank: int | None, graph: str, watchpoint: int | None) -> list[TreeView]:
        """Return the views to search: of a rank or all ranks, of a graph or the program."""
        ranks = [each_rank for each_rank in (self.ranks if rank is None else (rank,)) if self.graphs(each_rank)]
        if graph:
            ranks = [each_rank for each_rank in ranks if any(each.name == graph for each in self.graphs(each_rank))]
            if not ranks:
                where = "" if rank is None else f" in rank {rank}"
                raise NotFoundError(f"there is no graph {graph[:200]!r}{where}; ask for the list of graphs")
        return [self._tree_view(each_rank, graph, watchpoint) for each_rank in ranks]

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
        can_check_own = self.checks_own_conditions
        return unavailable_because(
            condition, platform=self.platform, live=live, step=self.step, can_check_own=can_check_own
        )

    lease: Lease | None = None
    """Lease of a session that was opened for a script."""

    @property
    def has_agent(self) -> bool:
        """Whether the training runs Tensight's agent, or was recorded by it."""
        return False

    @property
    def checks_own_conditions(self) -> bool:
        """Whether conditions that the original does not have can be checked."""
        return True

    async def _watchpoints_edited(self, *, outdated: bool = True) -> None:
        """Save and announce changed watchpoints; if they cannot be saved, they stay in memory."""
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
        """Warn of paths in edits that match no node so far; nodes of an agent may still appear while they run."""
        for path in self.watchpoint_list.unknown_paths(watchpoint, self.ranks):
            self.warn(f"watchpoint {watchpoint.id}: no graph has a scope or a node {path!r} so far; check its spelling")

    def _tell_problems(self) -> None:
        """Warn of watchpoints of an earlier session that could not be restored."""
        for problem in self.watchpoint_list.problems:
            self.warn(problem)
        self.watchpoint_list.problems.clear()

    def _watchpoint_record(self, watchpoint: SessionWatchpoint) -> WatchpointRecord:
        return watchpoint_record(
            watchpoint,
            nodes=self.watchpoint_list.count(watchpoint, self.ranks),
            hits=self.hit_list.count_of(watchpoint.id),
        )
