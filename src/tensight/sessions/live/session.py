"""A session of training processes that are attached: the ranks of one job."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from tensight import wire
from tensight.analysis.collectives import across_ranks
from tensight.analysis.origin import in_causal_order
from tensight.graph.steps import iteration_of
from tensight.sessions.errors import LimitError, NotFoundError, StateError, StorageError
from tensight.sessions.graph_steps import GraphSteps
from tensight.sessions.live.executions import execution_page
from tensight.sessions.live.graph_stream import MOST_GRAPHS
from tensight.sessions.live.inspection import Inspection
from tensight.sessions.live.live_origins import live_origins, lost_weights, refined_origins
from tensight.sessions.live.overview import ReportedSource, known_steps, live_curves
from tensight.sessions.live.rank_graphs import RankGraphs
from tensight.sessions.live.recording import SESSION, SOURCES, JsonStateFile, storing
from tensight.sessions.live.reported_hits import ReportedHits
from tensight.sessions.live.run_controller import AT_ANY_TIME, RunController
from tensight.sessions.live.shielded import shielded_in_thread
from tensight.sessions.live.shown_step import ShownStep
from tensight.sessions.live.summary import capabilities_now, message, session_summary
from tensight.sessions.live.terminal import Terminal
from tensight.sessions.origin_records import effects_of, origin_records
from tensight.sessions.overview import overview
from tensight.sessions.records import State
from tensight.sessions.session import Session
from tensight.sessions.timeline import timeline
from tensight.watchpoints import recommended_watchpoints

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping
    from typing import Any

    import numpy as np
    from numpy.typing import NDArray

    from tensight.graph import Graph, Node, TensorAddress
    from tensight.sessions.live.graph_stream import ReceivedGraphs
    from tensight.sessions.live.identity import Identity
    from tensight.sessions.live.process import TrainingProcess
    from tensight.sessions.live.recording import Recording
    from tensight.sessions.live.settings import LiveSettings
    from tensight.sessions.live.values import ValueWriters
    from tensight.sessions.overview import OverviewChoice
    from tensight.sessions.records import (
        Capabilities,
        Command,
        Curves,
        ExecutionPage,
        OriginRecord,
        Overview,
        SessionRecord,
        StatisticsPage,
        StatisticsRow,
        TensorRecord,
        Timeline,
        Which,
    )
    from tensight.sessions.workspace import Workspace
    from tensight.tensors.views import View, ViewResult
    from tensight.watchpoints import Watchpoint

_QUIET_S = 0.25
"""While a run goes on, its step is announced to clients at most so often."""

_SENT_WITHIN_S = 10.0
"""A command waits at most so long for a stopped training to which another command is just being sent."""

_FIRST_OF = (
    *(State.RUNNING, State.SENDING, State.PAUSED, State.MISMATCH, State.CONNECTING),
    *(State.LOST, State.TERMINATED, State.FINISHED),
)
"""Of a session whose processes do different things, the first of these that one of them does."""


class LiveSession(Session):
    """The ranks of one job, attached or gone.

    Parameters
    ----------
    session_id, name : str
    workspace : Workspace
    recording : Recording
        Of this run.
    identity : Identity
        Of the process that came first.
    settings : LiveSettings
    writers : ValueWriters
    network : str
        Which network is trained, where that is known from before: the session goes on after a restart of the server.

    Attributes
    ----------
    processes : dict of int to TrainingProcess
        The newest process of each rank.
    texts : dict of str to str
        Of files of code, by path, as far as processes sent them.
    run_controller : RunController
        Tells them what to do.
    inspection : Inspection
        Has their tensors.
    reported : ReportedHits
    shown : ShownStep
        Which step people see.
    terminal : Terminal
        Tells the training's own terminal what happens.
    is_closing : bool
        The server shuts down, or the session is closed: what breaks off now is no news.
    """

    def __init__(
        self,
        session_id: str,
        name: str,
        *,
        workspace: Workspace,
        recording: Recording,
        identity: Identity,
        settings: LiveSettings,
        writers: ValueWriters,
        network: str = "",
    ) -> None:
        self.processes: dict[int, TrainingProcess] = {}
        super().__init__(
            session_id,
            name,
            workspace=workspace,
            platform=identity.platform,
            most_drawn_nodes=settings.most_drawn_nodes,
            network=network,
        )
        self.recording = recording
        self.identity = identity
        self.settings = settings
        self.is_closing = False
        self.reported = ReportedHits(self, workspace, self._complain)
        self.shown = ShownStep(self)
        self.run_controller = RunController(self)
        self.terminal = Terminal(self)
        self.inspection = Inspection(self, writers)
        self.texts: dict[str, str] = {}
        self._ending: asyncio.Task[None] | None = None
        self._later: set[asyncio.Task[None]] = set()
        self._announced: tuple[State, str, int, bool] | None = None
        self._announced_at = 0.0
        path = recording.name
        self._session_file = JsonStateFile(workspace, f"{path}/{SESSION}", self.as_json, self._complain)
        self._sources_file = JsonStateFile(workspace, f"{path}/{SOURCES}", lambda: self.texts, self._complain)

    # --- the session at a glance ---

    @property
    def live(self) -> list[TrainingProcess]:
        """The processes that may still say something."""
        return [process for process in self.processes.values() if process.is_live]

    @property
    def state(self) -> State:
        """What the session is doing, as its processes do."""
        live = {process.state for process in self.live}
        states = live or {process.state for process in self.processes.values()}
        return next((state for state in _FIRST_OF if state in states), State.CONNECTING)

    @property
    def step(self) -> int:
        """The step that is shown."""
        return self.present_step if self.shown.step is None else self.shown.step

    @property
    def present_step(self) -> int:
        """Steps that all live ranks have done together; of those that have ended, the most that one did."""
        steps = [process.global_step for process in self.live if process.state is not State.CONNECTING]
        return min(steps) if steps else max((process.global_step for process in self.processes.values()), default=0)

    def iteration_of(self, process: TrainingProcess) -> int:
        """Return the iteration of a process that is shown."""
        return process.iteration if self.shown.step is None else iteration_of(self.shown.step - process.offset)

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks that have attached so far."""
        return tuple(sorted(self.processes))

    def process_of(self, rank: int) -> TrainingProcess:
        """Return the process of a rank. NotFoundError if there is none."""
        process = self.processes.get(rank)
        if process is None:
            raise NotFoundError(f"there is no rank {rank}; attached are {', '.join(map(str, self.ranks)) or 'none'}")
        return process

    def graphs(self, rank: int) -> tuple[Graph, ...]:
        """Return the graphs of a rank. NotFoundError for an unknown rank."""
        return self.process_of(rank).graphs.graphs

    def position(self, rank: int, graph: str, node: str) -> int | None:
        """Return the position of a node in the order of execution of its step, from 1; None if that is not known."""
        graphs = self.process_of(rank).graphs
        found = graphs.node(graph, node)
        return graphs.number(found[1]) if found else None

    def execution_position(self, rank: int) -> Callable[[Node], int] | None:
        """Return a function from an operator of a rank to its position in the order of execution."""
        return self.process_of(rank).graphs.sort_position

    def are_parts(self, rank: int, graph: Graph, other: Graph) -> bool:
        """Whether two graphs may run in the same step: an agent tells of each step as one graph."""
        return graph.root_id == other.root_id or not self.process_of(rank).identity.is_agent

    def graph_steps(self, rank: int) -> GraphSteps:
        """Return which graphs of a rank ran in which step, as far as its process told."""
        process = self.process_of(rank)
        graphs, offset = process.graphs, process.offset
        known = process.executions.known() or [
            (0, process.step, root_id) for root_id in graphs.root_ids if len(graphs.root_ids) == 1 and process.step
        ]
        families = {root_id: frozenset(graphs.family(root_id)) for root_id in graphs.root_ids}
        return GraphSteps(
            (first + offset, end + offset, families.get(root_id, frozenset())) for first, end, root_id in known
        )

    def ran(self, rank: int, iteration: int | None = None) -> frozenset[str]:
        """Return the names of the graphs that ran in an iteration (default: the one shown), or last before it."""
        process = self.process_of(rank)
        root_id = process.executions.nearest(self.iteration_of(process) if iteration is None else iteration)
        return frozenset(process.graphs.family(root_id if root_id is not None else process.root_id))

    def record(self) -> SessionRecord:
        """Return the summary of the session."""
        return session_summary(self)

    def capabilities(self) -> Capabilities:
        """Return what can be done now."""
        return super().capabilities().model_copy(update=capabilities_now(self))

    def announce(self, *, news: bool = False) -> None:
        """Tell the clients how the session looks now, if that is new or they have not heard of it for a while."""
        state, now = self.state, time.monotonic()
        # While it runs the step is always another one.
        step = 0 if state is State.RUNNING else self.present_step
        summary = state, message(self), step, self.recording.statistics.is_empty
        if news or summary != self._announced or (state is State.RUNNING and now - self._announced_at >= _QUIET_S):
            self._announced, self._announced_at = summary, now
            self.events.append_state(self.record())

    # --- processes come and go ---

    def join(self, process: TrainingProcess) -> None:
        """Take in a process; one of the same rank gives way."""
        process.offset = max((one.global_step for one in self.live if one.rank != process.rank), default=0)
        former = self.processes.get(process.rank)
        if former is not None:
            former.lose("another process of the same rank took its place")
        self.processes[process.rank] = process
        self.changed()

    def begin(self, process: TrainingProcess) -> None:
        """Greet a process that has attached, and let the training go on if it wants no person for that."""
        if process.identity.is_agent:
            self.terminal.greet(process)
        if process.identity.run_at_start and process.state is not State.MISMATCH:
            # Ranks in mid-training wait for each other: one that attaches later does so only if the others go on.
            self.run_controller.begin(gathers=process.step == 0)
        self.announce(news=True)

    def left(self, process: TrainingProcess) -> None:
        """Note that a process has ended, or may have."""
        self.shown.return_to_present()
        if process.state is State.LOST and self.live:
            # The others may wait for it in vain; a person should see it.
            self.run_controller.stop()
        self.advance()
        self.announce(news=True)
        self.changed()
        if not self.live and not self.is_closing:
            self._ending = asyncio.create_task(self._finish(self._ending))

    def returned(self) -> None:
        """Note that a process which was given up has come back."""
        self.announce(news=True)
        self.changed()

    def advance(self) -> None:
        """Tell the processes that wait what to do."""
        if self.is_closing:
            for process in self.live:
                process.reply(wire.failed("the debug server is shutting down"))
        else:
            self.run_controller.advance()

    def paused(self) -> None:
        """Note that all processes stand where a command wanted them."""
        self.changed()

    async def take_graphs(self, process: TrainingProcess, received: ReceivedGraphs) -> None:
        """Take in the graphs of a process.

        If it ran before, all stop, because watchpoints do not know them; agents are told before they go on.
        """

        def keep() -> RankGraphs:
            with storing(self.recording.folder):
                process.recorder.keep_graphs(received.graphs, received.orders)
            return RankGraphs(process.recorder.graphs, process.recorder.order)

        sizes = {**process.graph_bytes, **{graph.name: file.size_bytes for file, graph in received.graphs}}
        nodes = {graph.name: len(graph) for graph in (*process.graphs.graphs, *(graph for _, graph in received.graphs))}
        most_bytes, most_nodes = self.settings.most_graph_bytes, self.settings.most_nodes_of_a_process
        try:
            if len(sizes) > MOST_GRAPHS or sum(sizes.values()) > most_bytes or sum(nodes.values()) > most_nodes:
                most = f"{MOST_GRAPHS:,} graphs, {most_bytes:,} bytes or {most_nodes:,} nodes"
                raise LimitError(f"rank {process.rank}: more than {most} of all graphs together are not accepted")
            async with process.recording:
                process.graphs = await shielded_in_thread(keep)
        finally:
            received.discard()
        process.graph_bytes = sizes
        process.queue.clear()
        process.prepared = process.preparing = None
        if process.released is not None and not process.identity.is_agent:
            self.run_controller.stop()
        if received.sources:
            self.texts.update(received.sources)
            self._sources_file.changed()
        self.events.append("graph", rank=process.rank, graphs=[graph.name for graph in process.graphs.graphs])
        await self.graphs_changed()
        if process.identity.recommended:
            await self._recommend_unasked()
        self.changed()
        self.announce(news=True)

    async def graphs_changed(self) -> None:
        """Work out what the watchpoints watch; the first graphs tell which earlier ones are there again."""
        first = next(filter(None, map(self.graphs, self.ranks)), ())
        if first and not self.watchpoint_list.network:
            async with self.lock:
                await asyncio.to_thread(self.watchpoint_list.recognise, first)
            self._tell_problems()
            self.changed()
        await super().graphs_changed()

    async def _recommend_unasked(self) -> None:
        """Create the recommended watchpoints, unless they were offered before."""
        async with self.lock:
            if not self.watchpoint_list.recommended_offered:
                await self._recommend(accept=True)

    @property
    def checks_own_conditions(self) -> bool:
        """Whether all processes can check conditions that the original does not have."""
        return all(process.identity.abilities.conditions for process in self.processes.values())

    @property
    def has_agent(self) -> bool:
        """Whether the training has Tensight's agent in it, and not MindSpore's own client."""
        return self.identity.is_agent

    def _recommended(self) -> list[Watchpoint]:
        if not self.has_agent:
            return super()._recommended()
        # The nodes of an agent appear as they run; that there is none to watch yet says nothing.
        recommended = recommended_watchpoints(initial=True, platform=self.platform, live=self.checks_own_conditions)
        return [point for point in recommended if not self._unavailable_because(point.check.condition)]

    def later(self, work: Coroutine[Any, Any, None]) -> None:
        """Have something done soon, and before the session is closed."""
        task = asyncio.create_task(work)
        self._later.add(task)
        task.add_done_callback(self._later.discard)

    # --- what a person does ---

    async def command(self, command: Command) -> SessionRecord:
        """Start or stop the run, or show another step; returns as soon as the command is accepted."""
        if command.action not in AT_ANY_TIME:
            await self._until_sent()
        async with self.lock:
            if self.is_closing:
                raise StateError("the session is being closed", code="session-closed")
            if command.action in ("step_back", "go_to_step"):
                await self.shown.obey(command)
            else:
                self.run_controller.obey(command)
            if command.action == "look_closer":
                await self._warn_of_lost_weights()
            self.announce(news=True)
            return self.record()

    async def _until_sent(self) -> None:
        """Wait while a command is being sent to a stopped training: it is stopped there again in a moment."""
        loop = asyncio.get_running_loop()
        end = loop.time() + _SENT_WITHIN_S
        while self.state is State.SENDING and not self.run_controller.trains and (left := end - loop.time()) > 0:
            await self.events.wait_after(self.events.last, left)

    async def _warn_of_lost_weights(self) -> None:
        """Say so where weights are not finite: then what the next steps compute is not, whatever was wrong before."""
        for rank, process in sorted(self.processes.items()):
            names = await asyncio.to_thread(
                lost_weights, self.recording.statistics, rank, process.iteration, process.graphs
            )
            if names:
                more = f" and {len(names) - 1} more" if len(names) > 1 else ""
                self.warn(
                    f"rank {rank}: after step {process.step} {names[0]}{more} hold NaN or Inf, so what is computed from"
                    " now on does, too, and what was wrong before cannot be told any more; to have the operator named,"
                    " run the training again with every operator captured (--capture ops)"
                )

    def editable(self) -> None:
        """Refuse if watchpoints may not be changed now. StateError.

        A running training gets them after its current step, and does not stop for them. MindSpore's own client asks for
        nothing while it runs.
        """
        if self.state is State.PAUSED:
            return
        if not all(process.identity.is_agent for process in self.live):
            raise StateError(
                f"watchpoints can be changed while the training is paused; it is {self.state.value}", code="not-paused"
            )
        if self.state not in (State.RUNNING, State.SENDING):
            raise StateError(
                f"watchpoints can be changed while a training is attached; it is {self.state.value}",
                code="training-ended",
            )

    async def watchpoints_changed(self) -> None:
        """Note that the processes must be told of watchpoints before they go on."""
        self.shown.present_hits.outdated |= self.hit_list.outdated
        self.run_controller.watch_anew()
        self.announce(news=True)

    def source_texts(self) -> Mapping[str, str]:
        """Return the text of files of code by path, as far as processes sent them."""
        return self.texts

    # --- tensors ---

    async def tensors_of(self, rank: int, graph: str, node: str, step: int | None = None) -> tuple[TensorRecord, ...]:
        """Return the inputs and outputs of a node at a step (default: the one that is shown), with statistics."""
        records = await self.inspection.tensors_of(rank, graph, node, step)
        # With the first statistics that were asked for there is a table of them.
        self.announce()
        return records

    async def value(self, address: TensorAddress) -> NDArray[np.generic]:
        """Return a tensor, as a read-only map of a file. NotFoundError, UnavailableError, StateError, StorageError."""
        return await self.inspection.value(address)

    def previous(self, address: TensorAddress) -> TensorAddress | None:
        """Return the same tensor in the step before, as far as one can be asked for; None if there is none."""
        return self.inspection.previous(address)

    async def view(self, address: TensorAddress, view: View, which: Which = "current") -> ViewResult:
        """Return a view of a tensor, computed in its process if that can, and the value is not here already."""
        result = await self.inspection.view_at_source(address, view, which)
        return result if result is not None else await super().view(address, view, which)

    async def statistics_over_steps(self, address: TensorAddress) -> tuple[StatisticsRow, ...]:
        """Return the statistics of a tensor at all steps where they are known, in order."""
        return await self.inspection.statistics_over_steps(address, self.same_node(address))

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
        if rank is not None:
            self.process_of(rank)
        iteration = iteration_of(self.step if step is None else step)

        def read() -> StatisticsPage:
            several = [one for one in self.ranks if len(self.graphs(one)) > 1]
            return self.recording.statistics.page(
                iteration,
                rank=rank,
                query=query,
                sort=sort,
                descending=descending,
                offset=offset,
                limit=limit,
                programs={one: (self.program(one), self.ran(one, iteration)) for one in several},
            )

        return await asyncio.to_thread(read)

    async def overview(self, rank: int, choice: OverviewChoice, *, read: bool = False) -> Overview:  # noqa: ARG002
        """Return a statistic of all tensors over all steps, as far as the process told it; there is nothing to read."""
        process, hits = self.process_of(rank), self.reported.history.snapshot()
        return await asyncio.to_thread(lambda: overview(self._source(process), hits, choice))

    async def timeline(self, rank: int, columns: int = 400) -> Timeline:
        """Return the steps of a rank."""
        process, hits = self.process_of(rank), self.reported.history.snapshot()
        kept, present, store = self.inspection.kept.iterations(), self.present_step, self.recording.statistics
        return await asyncio.to_thread(
            lambda: timeline(known_steps(process, store, self._source(process), kept, hits, present), columns)
        )

    def _source(self, process: TrainingProcess) -> ReportedSource:
        program = self.program(process.rank)
        return ReportedSource(self.recording.statistics, process.rank, process.offset, program.first_of)

    async def curves(self, rank: int, points: int = 400) -> Curves:
        """Return what the process told by itself, and of its tensors the loss."""
        process, store, present = self.process_of(rank), self.recording.statistics, self.present_step
        return await asyncio.to_thread(live_curves, process, store, present, points)

    async def executions(self, rank: int, offset: int = 0, limit: int = 100) -> ExecutionPage:
        """Return which graphs ran in which step."""
        process = self.process_of(rank)
        return execution_page(process.executions, process.graphs, self.inspection.kept.iterations(), offset, limit)

    async def origins(self) -> tuple[OriginRecord, ...]:
        """Return where anomalies began, up to the step shown; of MindSpore's own client too little is known."""
        if not self.identity.is_agent:
            return ()

        hits = effects_of(self.hit_list.all())

        def find() -> tuple[OriginRecord, ...]:
            store, found = self.recording.statistics, []
            for rank, process in sorted(self.processes.items()):
                found += live_origins(store, rank, self.iteration_of(process), process.graphs, hits)
            closer = []
            for origin in in_causal_order(across_ranks(found)):
                process = self.process_of(origin.address.rank)
                last, since = self.iteration_of(process), process.closer_since
                closer += refined_origins(origin, store, last, process.graphs, since)
            return origin_records(closer, self.texts)

        return await asyncio.to_thread(find)

    # --- what is kept ---

    def changed(self) -> None:
        """Note that the run's file must be written."""
        self._session_file.changed()

    def as_json(self) -> dict[str, Any]:
        """Return what ``session.json`` holds."""
        return {
            "format": 1,
            "id": self.id,
            "name": self.name,
            "created": self.created,
            "state": self.state.value,
            "is_live": bool(self.live) or self.state is State.LOST,
            "message": message(self),
            "step": self.present_step,
            "identity": self.identity.as_json(),
            "network": self.watchpoint_list.network,
            "processes": [process.as_json() for process in self.processes.values()],
        }

    async def _finish(self, before: asyncio.Task[None] | None) -> None:
        """Make the recording a dump that has everything; once more if it was one before, and the run went on."""
        if before is not None:
            await before
        try:
            for process in self.processes.values():
                async with process.recording:
                    await process.record_executions()
            if not self.live:
                graphs = {rank: process.graphs.graphs for rank, process in self.processes.items()}
                await shielded_in_thread(lambda: self.recording.export_statistics(graphs))
        except StorageError as error:
            self._complain(error)

    async def write_statistics(self) -> None:
        """Write what has arrived so far into the dump of the run, so that others can read it there.

        Raises
        ------
        StorageError
            The workspace cannot be written.
        """
        if self._ending is not None:
            await asyncio.shield(self._ending)
        if self.live:
            for process in self.processes.values():
                async with process.recording:
                    await process.record_executions()
            graphs = {rank: process.graphs.graphs for rank, process in self.processes.items()}
            await shielded_in_thread(lambda: self.recording.export_statistics(graphs))

    def _complain(self, error: StorageError) -> None:
        self.warn_of(error)

    async def close(self, reason: str) -> None:
        """Release the files. A closed session only knows its log.

        Raises
        ------
        StateError
            A training is attached, and the server does not shut down.
        """
        if self.live and not self.is_closing:
            raise StateError("a training is attached; terminate it first, or let it end")
        is_empty = not self.live and not self._has_anything
        await self.detach()
        self.events.append("closed", reason=reason)
        self.recording.close()
        self.forget_graphs()
        if is_empty:
            await asyncio.to_thread(self.recording.delete)

    @property
    def _has_anything(self) -> bool:
        """Whether the run has anything that somebody could want to look at."""
        has_graphs = any(process.graphs.graphs for process in self.processes.values())
        return has_graphs or not self.recording.statistics.is_empty or bool(self.reported.history.snapshot())

    def forget_graphs(self) -> None:
        """Let go of the graphs themselves, too: session and processes know each other, so nothing frees them soon."""
        super().forget_graphs()
        for process in self.processes.values():
            process.forget_graphs()

    async def abandon(self) -> None:
        """Leave nothing of a session that could not begin."""
        await self.detach()
        self.recording.close()
        await asyncio.to_thread(self.recording.delete)

    async def detach(self) -> None:
        """Tell the processes that wait that nobody is there any more, and write down what there is."""
        if self.is_closing:
            return
        self.is_closing = True
        self.advance()
        for process in self.processes.values():
            process.stop_timers()
        await self.run_controller.close()
        self.terminal.close()
        await asyncio.gather(*self._later, return_exceptions=True)
        await self._finish(self._ending)
        self.changed()
        for file in (self._session_file, self.reported, self._sources_file):
            await file.written()
