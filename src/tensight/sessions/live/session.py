"""A session of attached training processes: the ranks of a job."""

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
from tensight.sessions.live.findings import LiveFindings
from tensight.sessions.live.graph_stream import MOST_GRAPHS
from tensight.sessions.live.inspection import Inspection
from tensight.sessions.live.live_origins import live_origins, refined_origins
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
    from collections.abc import Callable, Coroutine, Mapping, Sequence
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
        DiagnosisRecord,
        ExecutionPage,
        FactsRecord,
        FindingRecord,
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
"""Minimum seconds between two announcements of the step of a running training."""

_SENT_WITHIN_S = 10.0
"""Maximum seconds that a command waits while another command is being sent to a stopped training."""

_FIRST_OF = (
    *(State.RUNNING, State.SENDING, State.PAUSED, State.MISMATCH, State.CONNECTING),
    *(State.LOST, State.TERMINATED, State.FINISHED),
)
"""The state of a session is the first of these that one of its processes has."""


class LiveSession(Session):
    """The ranks of a job, attached or ended.

    Parameters
    ----------
    session_id, name : str
    workspace : Workspace
    recording : Recording
        Recording of this run.
    identity : Identity
        Identity of the first process.
    settings : LiveSettings
    writers : ValueWriters
    network : str
        Fingerprint of the trained network, if known because the session is restored after a restart of the server.

    Attributes
    ----------
    processes : dict of int to TrainingProcess
        The newest process of each rank.
    findings : LiveFindings
        Its facts, and why it does not learn.
    texts : dict of str to str
        Texts of source files by path, as far as processes sent them.
    run_controller : RunController
        Sends them commands.
    inspection : Inspection
        Provides their tensors.
    reported : ReportedHits
    shown : ShownStep
        The shown step.
    terminal : Terminal
        Writes to the terminal of the training.
    is_closing : bool
        Whether the server shuts down, or the session is closed; broken connections are not reported then.
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
        self.findings = LiveFindings(self, workspace.user_rules)
        self.texts: dict[str, str] = {}
        # Whether what it asks for has not been set yet; a restored session has what its training asked for.
        self._is_new = not network
        self._ending: asyncio.Task[None] | None = None
        self._later: set[asyncio.Task[None]] = set()
        self._announced: tuple[State, str, int, bool] | None = None
        self._announced_at = 0.0
        path = recording.name
        self._session_file = JsonStateFile(workspace, f"{path}/{SESSION}", self.as_json, self._complain)
        self._sources_file = JsonStateFile(workspace, f"{path}/{SOURCES}", lambda: self.texts, self._complain)

    # --- summary ---

    @property
    def live(self) -> list[TrainingProcess]:
        """The processes that have not ended."""
        return [process for process in self.processes.values() if process.is_live]

    @property
    def state(self) -> State:
        """State of the session, derived from the states of its processes."""
        live = {process.state for process in self.live}
        states = live or {process.state for process in self.processes.values()}
        return next((state for state in _FIRST_OF if state in states), State.CONNECTING)

    @property
    def step(self) -> int:
        """The shown step."""
        return self.present_step if self.shown.step is None else self.shown.step

    @property
    def present_step(self) -> int:
        """Number of steps that all live ranks have completed; if all have ended, the maximum of their steps."""
        steps = [process.progress.global_step for process in self.live if process.state is not State.CONNECTING]
        if steps:
            return min(steps)
        return max((process.progress.global_step for process in self.processes.values()), default=0)

    def iteration_of(self, process: TrainingProcess) -> int:
        """Return the shown iteration of a process."""
        progress, shown = process.progress, self.shown.step
        return progress.iteration if shown is None else iteration_of(shown - progress.offset)

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
        """Return the position of a node in the execution order of its step, from 1; None if unknown."""
        graphs = self.process_of(rank).graphs
        graph_and_node = graphs.node(graph, node)
        return graphs.number(graph_and_node[1]) if graph_and_node else None

    def execution_position(self, rank: int) -> Callable[[Node], int] | None:
        """Return a function that returns the position of an operator of a rank in execution order."""
        return self.process_of(rank).graphs.sort_position

    def are_parts(self, rank: int, graph: Graph, other: Graph) -> bool:
        """Return whether two graphs may run in the same step: an agent reports each step as a single graph."""
        return graph.root_id == other.root_id or not self.process_of(rank).identity.is_agent

    def graph_steps(self, rank: int) -> GraphSteps:
        """Return the graphs of a rank that ran in each step, as far as its process reported them."""
        process = self.process_of(rank)
        graphs, progress, offset = process.graphs, process.progress, process.progress.offset
        stretches = progress.executions.stretches()
        if not stretches and len(graphs.root_ids) == 1 and progress.step:
            stretches = [(0, progress.step, graphs.root_ids[0])]
        families = {root_id: frozenset(graphs.family(root_id)) for root_id in graphs.root_ids}
        return GraphSteps(
            (first + offset, end + offset, families.get(root_id, frozenset())) for first, end, root_id in stretches
        )

    def ran(self, rank: int, iteration: int | None = None) -> frozenset[str]:
        """Return the names of the graphs that ran in an iteration (default: the shown one), or last before it."""
        process = self.process_of(rank)
        root_id = process.progress.executions.nearest(self.iteration_of(process) if iteration is None else iteration)
        return frozenset(process.graphs.family(root_id if root_id is not None else process.progress.root_id))

    def record(self) -> SessionRecord:
        """Return the summary of the session."""
        return session_summary(self)

    def capabilities(self) -> Capabilities:
        """Return the current capabilities."""
        return super().capabilities().model_copy(update=capabilities_now(self))

    def announce(self, *, news: bool = False) -> None:
        """Tell the clients the state of the session, if it has changed, or periodically while it runs."""
        state, now = self.state, time.monotonic()
        # While it runs, the step changes constantly.
        step = 0 if state is State.RUNNING else self.present_step
        summary = state, message(self), step, self.recording.statistics.is_empty
        if news or summary != self._announced or (state is State.RUNNING and now - self._announced_at >= _QUIET_S):
            self._announced, self._announced_at = summary, now
            self.events.append_state(self.record())
        if state is State.PAUSED and not self.is_closing:
            self.findings.stopped()

    # --- processes ---

    def join(self, process: TrainingProcess) -> None:
        """Add a process; it replaces an earlier one of the same rank."""
        others = (other.progress.global_step for other in self.live if other.rank != process.rank)
        process.progress.offset = max(others, default=0)
        former = self.processes.get(process.rank)
        if former is not None:
            former.lose("another process of the same rank took its place")
            self.findings.begin_again(process.rank)
        self.processes[process.rank] = process
        self.changed()

    def begin(self, process: TrainingProcess) -> None:
        """Greet an attached process, and start the training if it does not wait for a user."""
        if process.identity.is_agent:
            self.terminal.greet(process)
        if process.identity.run_at_start and process.state is not State.MISMATCH:
            # In mid-training, ranks wait for each other: others can attach only if the attached ones continue.
            self.run_controller.begin(gathers=process.progress.step == 0)
        self.announce(news=True)

    def left(self, process: TrainingProcess) -> None:
        """Note that a process has ended, or may have."""
        self.shown.return_to_present()
        if process.state is State.LOST and self.live:
            # The others may wait for it forever; stop, so that users notice.
            self.run_controller.stop()
        self.advance()
        self.announce(news=True)
        self.changed()
        if not self.live and not self.is_closing:
            self._ending = asyncio.create_task(self._finish(self._ending))

    def returned(self) -> None:
        """Note that a process that was given up has reconnected."""
        self.announce(news=True)
        self.changed()

    def advance(self) -> None:
        """Send waiting processes their next commands."""
        if self.is_closing:
            for process in self.live:
                process.connection.reply(wire.failed("the debug server is shutting down"))
        else:
            self.run_controller.advance()

    def paused(self) -> None:
        """Note that all processes are stopped at the target of the plan."""
        self.changed()

    async def take_graphs(self, process: TrainingProcess, received: ReceivedGraphs) -> None:
        """Add received graphs of a process.

        If the process ran before, all processes stop, because watchpoints do not cover the new graphs. Agents do not
        stop; they receive the watchpoints before they continue.
        """

        def keep() -> RankGraphs:
            with storing(self.recording.folder):
                process.recorder.keep_graphs(received.graphs, received.orders)
            return RankGraphs(process.recorder.graphs, process.recorder.order, sizes)

        sizes = {**process.graphs.size_bytes, **{graph.name: file.size_bytes for file, graph in received.graphs}}
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
        process.outgoing.prepare_again()
        if process.progress.released is not None and not process.identity.is_agent:
            self.run_controller.stop()
        if received.sources:
            self.texts.update(received.sources)
            self._sources_file.changed()
        self.events.append("graph", rank=process.rank, graphs=[graph.name for graph in process.graphs.graphs])
        was_known = self.watchpoint_list.network
        await self.graphs_changed()
        kept = self.watchpoint_list.kept()
        set_again = await self._recommend_unasked() if process.identity.recommended else 0
        if self.watchpoint_list.network and not was_known:
            self.terminal.tells_what_is_kept(process, kept, set_again)
        self.changed()
        self.announce(news=True)

    async def graphs_changed(self) -> None:
        """Determine the nodes that watchpoints watch; the first graphs identify earlier watchpoints to restore."""
        first = next(filter(None, map(self.graphs, self.ranks)), ())
        if first and not self.watchpoint_list.network:
            async with self.lock:
                await asyncio.to_thread(self.watchpoint_list.recognise, first)
            self._tell_problems()
            self.changed()
        await super().graphs_changed()

    async def _recommend_unasked(self) -> int:
        """Create the recommended watchpoints once in a session; return how many were deleted in earlier ones."""
        async with self.lock:
            was_offered, before = self.watchpoint_list.recommended_offered, len(self.watchpoint_list)
            if was_offered and not self._is_new:
                return 0
            self._is_new = False
            await self._recommend(accept=True)
            return len(self.watchpoint_list) - before if was_offered else 0

    @property
    def checks_own_conditions(self) -> bool:
        """Whether all processes can check conditions that the original does not have."""
        return all(process.identity.abilities.conditions for process in self.processes.values())

    @property
    def has_agent(self) -> bool:
        """Whether the training runs Tensight's agent, rather than MindSpore's own client."""
        return self.identity.is_agent

    def _recommended(self) -> list[Watchpoint]:
        if not self.has_agent:
            return super()._recommended()
        # The nodes of an agent appear while they run, so watchpoints without nodes yet are recommended, too.
        recommended = recommended_watchpoints(initial=True, platform=self.platform, live=self.checks_own_conditions)
        return [point for point in recommended if not self._unavailable_because(point.check.condition)]

    def later(self, work: Coroutine[Any, Any, None]) -> None:
        """Schedule work that must complete before the session is closed."""
        task = asyncio.create_task(work)
        self._later.add(task)
        task.add_done_callback(self._later.discard)

    # --- commands ---

    async def command(self, command: Command) -> SessionRecord:
        """Start or stop the run, or show another step; return when the command is accepted."""
        if command.action not in AT_ANY_TIME:
            await self._until_sent()
        async with self.lock:
            if self.is_closing:
                raise StateError("the session is being closed", code="session-closed")
            if command.action in ("step_back", "go_to_step"):
                await self.shown.obey(command)
            else:
                self.run_controller.obey(command)
            self.announce(news=True)
            return self.record()

    async def _until_sent(self) -> None:
        """Wait while a command is being sent to a stopped training, which stops again soon."""
        loop = asyncio.get_running_loop()
        end = loop.time() + _SENT_WITHIN_S
        while self.state is State.SENDING and not self.run_controller.trains and (left := end - loop.time()) > 0:
            await self.events.wait_after(self.events.last, left)

    def editable(self) -> None:
        """Raise StateError if watchpoints cannot be changed now.

        A running agent receives changes after its current step, without a pause. MindSpore's own client receives
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
        """Note that changed watchpoints must be sent to the processes before they continue."""
        self.shown.present_hits.outdated |= self.hit_list.outdated
        self.run_controller.watch_anew()
        self.announce(news=True)

    def source_texts(self) -> Mapping[str, str]:
        """Return the texts of source files by path, as far as processes sent them."""
        return self.texts

    # --- tensors ---

    async def tensors_of(self, rank: int, graph: str, node: str, step: int | None = None) -> tuple[TensorRecord, ...]:
        """Return the inputs and outputs of a node at a step (default: the shown step), with statistics."""
        records = await self.inspection.tensors_of(rank, graph, node, step)
        # The first requested statistics make the table of statistics available.
        self.announce()
        return records

    async def value(self, address: TensorAddress) -> NDArray[np.generic]:
        """Return a tensor, memory-mapped read-only. NotFoundError, UnavailableError, StateError, StorageError."""
        return await self.inspection.value(address)

    def previous(self, address: TensorAddress) -> TensorAddress | None:
        """Return the address of the same tensor in the previous step; None if it cannot be requested."""
        return self.inspection.previous(address)

    async def view(self, address: TensorAddress, view: View, which: Which = "current") -> ViewResult:
        """Return a view of a tensor, computed in its process if possible, unless the value is on disk."""
        result = await self.inspection.view_at_source(address, view, which)
        return result if result is not None else await super().view(address, view, which)

    async def statistics_over_steps(self, address: TensorAddress) -> tuple[StatisticsRow, ...]:
        """Return the statistics of a tensor at all steps at which they are known, in order."""
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
        """Return the known statistics of all tensors of a step (default: the shown step)."""
        if rank is not None:
            self.process_of(rank)
        iteration = iteration_of(self.step if step is None else step)

        def read() -> StatisticsPage:
            several = [each_rank for each_rank in self.ranks if len(self.graphs(each_rank)) > 1]
            return self.recording.statistics.page(
                iteration,
                rank=rank,
                query=query,
                sort=sort,
                descending=descending,
                offset=offset,
                limit=limit,
                programs={
                    each_rank: (self.program(each_rank), self.ran(each_rank, iteration)) for each_rank in several
                },
            )

        return await asyncio.to_thread(read)

    async def overview(self, rank: int, choice: OverviewChoice, *, read: bool = False) -> Overview:  # noqa: ARG002
        """Return a statistic of all tensors over all steps, as far as reported; `read` has no effect."""
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
        return ReportedSource(self.recording.statistics, process.rank, process.progress.offset, program.first_of)

    async def curves(self, rank: int, points: int = 400) -> Curves:
        """Return the scalars that the process reported, and the loss from its tensors."""
        process, store, present = self.process_of(rank), self.recording.statistics, self.present_step
        return await asyncio.to_thread(live_curves, process, store, present, points)

    async def executions(self, rank: int, offset: int = 0, limit: int = 100) -> ExecutionPage:
        """Return the graphs that ran in each step."""
        process = self.process_of(rank)
        with_data = self.inspection.kept.iterations()
        return execution_page(process.progress.executions, process.graphs, with_data, offset, limit)

    async def origins(self) -> tuple[OriginRecord, ...]:
        """Return the origins of anomalies up to the shown step; empty for MindSpore's own client."""
        if not self.identity.is_agent:
            return ()

        hits = effects_of(self.hit_list.all())

        def find() -> tuple[OriginRecord, ...]:
            store, origins = self.recording.statistics, []
            for rank, process in sorted(self.processes.items()):
                origins += live_origins(store, rank, self.iteration_of(process), process.graphs, hits)
            closer = []
            for origin in in_causal_order(across_ranks(origins)):
                process = self.process_of(origin.address.rank)
                last, since = self.iteration_of(process), process.closer_since
                closer += refined_origins(origin, store, last, process.graphs, since)
            return origin_records(closer, self.texts)

        return await asyncio.to_thread(find)

    async def diagnosis(self) -> DiagnosisRecord:
        """Return why the training does not learn: what has been so for a while, or at its end."""
        return self.findings.record

    async def facts(self, rank: int, subject: str) -> FactsRecord:
        """Return a table of its facts."""
        return await asyncio.to_thread(self.findings.facts.table, rank, subject)

    def announce_findings(self, findings: Sequence[FindingRecord]) -> None:
        """Announce new findings, and stop the training if it asks for that."""
        self.events.append("findings", rules=[finding.rule for finding in findings])
        stops = self.run_controller.trains and any(
            self.identity.findings == "every"
            or (self.identity.findings == "certain" and finding.certainty == "certain")
            for finding in findings
        )
        self.terminal.tells_findings(findings, stops=stops)
        if stops:
            self.run_controller.stop()
        self.announce(news=True)

    # --- recording and closing ---

    def changed(self) -> None:
        """Note that the file of the run must be written."""
        self._session_file.changed()

    def as_json(self) -> dict[str, Any]:
        """Return the content of ``session.json``."""
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
        """Complete the recorded dump; repeated if the run continued after an earlier completion."""
        if before is not None:
            await before
        await self.findings.judge_ended()
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
        """Write the statistics received so far into the dump of the run, so that it can be opened.

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
        """Release the files. Only the log remains usable afterwards.

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
        """Whether the run has graphs, statistics or hits."""
        has_graphs = any(process.graphs.graphs for process in self.processes.values())
        return has_graphs or not self.recording.statistics.is_empty or bool(self.reported.history.snapshot())

    def forget_graphs(self) -> None:
        """Also release the graphs: session and processes refer to each other, so they are not freed soon."""
        super().forget_graphs()
        for process in self.processes.values():
            process.forget_graphs()

    async def abandon(self) -> None:
        """Delete everything of a session that failed to start."""
        await self.detach()
        self.recording.close()
        await asyncio.to_thread(self.recording.delete)

    async def detach(self) -> None:
        """Detach waiting processes, and write all files."""
        if self.is_closing:
            return
        self.is_closing = True
        self.advance()
        for process in self.processes.values():
            process.connection.stop()
        await self.run_controller.close()
        self.terminal.close()
        self.findings.close()
        await asyncio.gather(*self._later, return_exceptions=True)
        await self._finish(self._ending)
        self.changed()
        for file in (self._session_file, self.reported, self._sources_file):
            await file.written()
