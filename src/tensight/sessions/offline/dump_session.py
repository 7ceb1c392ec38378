"""A session on a dump: opening, access to its tensors, and closing."""

from __future__ import annotations

import asyncio
import logging
import threading
from abc import abstractmethod
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tensight.errors import InputError, TensightError
from tensight.graph import TensorAddress, iteration_of
from tensight.sessions.diagnosis import RunFacts, diagnosis_record
from tensight.sessions.errors import NotFoundError, StateError
from tensight.sessions.garbage import cycle_collector
from tensight.sessions.hit_history import HitHistory
from tensight.sessions.offline.opened_dump import OpenedDump
from tensight.sessions.offline.thread import AnalysisThread
from tensight.sessions.offline.value_memory import TENSOR_BYTES
from tensight.sessions.records import DiagnosisRecord, State
from tensight.sessions.session import Session
from tensight.sessions.stopping import StopDecisions
from tensight.watchpoints import Platform

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from tensight.dumps import Dump
    from tensight.graph import Graph, Node
    from tensight.sessions.graph_steps import GraphSteps
    from tensight.sessions.hit_list import SessionHit
    from tensight.sessions.lease import Lease
    from tensight.sessions.offline.value_memory import ValueMemory
    from tensight.sessions.overview import OverviewChoice
    from tensight.sessions.recorded_run import RecordedRun
    from tensight.sessions.records import (
        Curves,
        ExecutionPage,
        FactsRecord,
        OriginRecord,
        Overview,
        StatisticsPage,
        StatisticsRow,
        TensorRecord,
        Timeline,
    )
    from tensight.sessions.workspace import Workspace

_log = logging.getLogger(__name__)


class DumpSession(Session):
    """A session on a dump.

    Opening returns immediately; the graphs are parsed and the tensors listed in the state ``connecting``.

    Parameters
    ----------
    session_id, name : str
        `name` is the name of the dump in the list of dumps.
    dump : Dump
        The dump, whose graphs have not been parsed yet.
    workspace : Workspace or None
    memory : ValueMemory
        Shared by all sessions on dumps.
    most_drawn_nodes : int
        Graphs with more nodes are not drawn.
    run : RecordedRun, optional
        What a live session kept besides the dump. The session then has the name, and hence the watchpoints, of the job.
    cache_dir : path, optional
        Cache for statistics; by default that of the command line.
    lease : Lease, optional
        Lease of the script for which the session was opened. The session then neither restores nor saves watchpoints.

    Attributes
    ----------
    dump_name : str
        Name of the dump in the list of dumps.
    metadata : DumpMetadata
    framework : str
    lease : Lease or None
    """

    def __init__(
        self,
        session_id: str,
        name: str,
        dump: Dump,
        *,
        workspace: Workspace | None,
        memory: ValueMemory,
        most_drawn_nodes: int = 100_000,
        run: RecordedRun | None = None,
        cache_dir: str | os.PathLike[str] | None = None,
        lease: Lease | None = None,
    ) -> None:
        self.dump_name = name
        self.lease = lease
        self.metadata = dump.metadata
        self.framework = ("" if run is None else run.framework) or self.metadata.framework
        self._run = run
        self._recorded_hits: Mapping[int, tuple[SessionHit, ...]] = {}
        # Hits found by checks since the watchpoints last changed, and the number of hits of each checked step.
        self._found_hits = HitHistory()
        self._checked: dict[int, int] = {}
        self._texts: Mapping[str, str] = {}
        self._user_rules = () if workspace is None else workspace.user_rules
        self._facts = RunFacts(self._user_rules)
        self._facts_problem = ""
        self._diagnosis = DiagnosisRecord()
        self._scalars: Mapping[int, Mapping[tuple[str, int], Sequence[tuple[int, float]]]] = {}
        self._ranks = dump.ranks
        self._unopened: Dump | None = dump
        self._memory = memory
        self._cache_dir = cache_dir
        self._opened: OpenedDump | None = None
        self._state = State.CONNECTING
        self._message = ""
        self._step = 0
        self._listed_bytes = 0
        self._stop = threading.Event()
        self._task: asyncio.Task[None] | None = None
        platform = next((candidate for candidate in Platform if candidate.value == self.metadata.device_target), None)
        super().__init__(
            session_id,
            name if run is None else run.name,
            workspace=workspace if lease is None else None,
            platform=platform,
            most_drawn_nodes=most_drawn_nodes,
            network=None if run is None else run.network,
        )
        self._thread = AnalysisThread(self._report)
        self._decisions = StopDecisions(self.watchpoint_list, self.graphs)

    # --- state ---

    @property
    def state(self) -> State:
        """State of the session; ``running`` while steps are checked."""
        return self._state

    @property
    def step(self) -> int:
        """The shown step; 0 is the state before the first update."""
        return self._step

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks of the dump, in order."""
        return self._ranks

    def graphs(self, rank: int) -> tuple[Graph, ...]:
        """Return the graphs of a rank; none while the dump is being opened. NotFoundError for an unknown rank."""
        if rank not in self.ranks:
            raise NotFoundError(f"the dump has no rank {rank}; it has {', '.join(map(str, self.ranks[:20]))}")
        return () if self._opened is None else self._opened.graphs[rank]

    @property
    def has_agent(self) -> bool:
        """Whether Tensight's agent recorded it."""
        return self.metadata.by_agent

    # --- opening and closing ---

    def begin(self) -> None:
        """Start to open the dump, and return immediately; progress is reported by events."""
        dump, self._unopened = self._unopened, None
        if dump is not None:
            self._task = asyncio.get_running_loop().create_task(self._open(dump))

    async def _open(self, dump: Dump) -> None:
        try:
            opened = await self._thread.run("opening the dump", lambda: self._load(dump))
            tensors = len(opened.table.files)
            self._memory.hold(tensors * TENSOR_BYTES, f"the list of the {tensors:,} tensors of {self.name}")
            self._listed_bytes = tensors * TENSOR_BYTES
            self._opened = opened
            await self.graphs_changed()
        except Exception as error:
            self._fail(error)
            return
        problems = self._run.problems if self._run is not None else ()
        for problem in filter(None, (*problems, self._facts_problem)):
            self.warn(problem)
        for rank in self.ranks:
            self.events.append("graph", rank=rank, graphs=[graph.name for graph in opened.graphs[rank]])
        self._state = State.PAUSED
        self._is_opened()

    @abstractmethod
    def _is_opened(self) -> None:
        """Show the first step."""

    def _load(self, dump: Dump) -> OpenedDump:
        if self._run is not None:
            dump = self._run.complete(dump, self._thread.report)
            self._recorded_hits, self._texts = self._run.hits(), self._run.texts()
            self._scalars = self._run.scalars(dump.ranks)
        self._read_facts(Path(dump.path) if self._run is None else self._run.folder)
        return OpenedDump(
            dump,
            report=self._thread.report,
            progress=self._thread.progress,
            first_of=lambda rank: self.program(rank).first_of,
            cache_dir=self._cache_dir,
        )

    def _read_facts(self, folder: Path) -> None:
        try:
            self._facts.read(folder)
        except (OSError, InputError) as error:
            self._facts_problem = str(error)
        self._diagnosis = diagnosis_record(self._facts.diagnose())

    def _fail(self, error: Exception) -> None:
        if not isinstance(error, TensightError):
            _log.exception("the dump %s could not be opened", self.name)
        self._let_go()
        if not self._state.has_ended:
            self._state = State.FAILED
            self._message = f"the dump cannot be opened: {str(error) or type(error).__name__}"
            self.events.append_state(self.record())

    async def close(self, reason: str) -> None:
        """Cancel running work and release the dump. Only the log remains usable afterwards."""
        if self._state is State.TERMINATED:
            return
        self._state, self._message = State.TERMINATED, reason
        if self.lease is not None:
            self.lease.ended.set()
        self._stop.set()
        self._thread.close()
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        was_opened = self._opened is not None
        self._let_go()
        self.hit_list.clear()
        self.events.append_state(self.record())
        self.events.append("closed", reason=reason)
        if was_opened:
            cycle_collector.collect_soon()

    def _let_go(self) -> None:
        """Release the dump and everything read from it."""
        self._memory.forget(self.id)
        self._memory.release(self._listed_bytes)
        self._listed_bytes = 0
        self._opened = None
        self._recorded_hits, self._texts = {}, {}
        self._facts, self._diagnosis = RunFacts(self._user_rules), DiagnosisRecord()
        self._forget_checks()
        self.forget_graphs()

    def _required(self) -> OpenedDump:
        """Return the opened dump.

        Raises
        ------
        StateError
            It is not opened yet, cannot be opened, or is closed.
        """
        if self._state.has_ended:
            raise StateError(self._message or "the session was closed; open the dump again", code="session-closed")
        if self._opened is None:
            raise StateError("the dump is still being opened; its progress is among the events")
        return self._opened

    def _report(self, what: str, done: int, total: int) -> None:
        self.events.append("progress", what=what, done=done, total=total)

    # --- queries ---

    async def diagnosis(self) -> DiagnosisRecord:
        """Return why the training did not learn, if it wrote facts beside its recording or trace."""
        self._required()
        return self._diagnosis

    async def facts(self, rank: int, subject: str) -> FactsRecord:
        """Return a table of the facts of a rank."""
        return await asyncio.to_thread(self._facts.table, rank, subject)

    def source_texts(self) -> Mapping[str, str]:
        """Return the texts of source files that a recorded training sent."""
        return self._texts

    def execution_position(self, rank: int) -> Callable[[Node], int] | None:
        """Return a function that returns the position of an operator of a rank in execution order."""
        return None if self._opened is None else partial(self._opened.dump.node_position, rank)

    def are_parts(self, rank: int, graph: Graph, other: Graph) -> bool:
        """Return whether two graphs of a rank may run in the same step: an agent reports each step as one graph."""
        if self.metadata.by_agent:
            return graph.root_id == other.root_id
        return self._opened is None or self._opened.are_parts(rank, graph, other)

    def graph_of(self, rank: int, node: str, graph: str = "", iteration: int | None = None) -> str:
        """Return the graph to which a node refers; empty if only files, and no node, have this name."""
        if not graph and self._opened is not None and self._opened.index.is_foreign(rank, node):
            return ""
        return super().graph_of(rank, node, graph, iteration)

    def graph_steps(self, rank: int) -> GraphSteps:
        """Return the graphs of a rank that ran in each step."""
        self.graphs(rank)
        return super().graph_steps(rank) if self._opened is None else self._opened.graph_steps(rank)

    def position(self, rank: int, graph: str, node: str) -> int | None:
        """Return the position of a node in its step, from 1; None for constants and unknown nodes."""
        return None if self._opened is None else self._opened.position(rank, graph, node)

    async def tensors_of(self, rank: int, graph: str, node: str, step: int | None = None) -> tuple[TensorRecord, ...]:
        """Return the inputs and outputs of a node at a step, with statistics; reads no other tensors."""
        opened = self._required()
        self.graphs(rank)
        at = TensorAddress(rank, graph, node, 0, iteration_of(self._step if step is None else step))
        return await self._thread.run(f"reading {node}", lambda: opened.tensors(at, self.hit_list.abbreviations))

    async def value(self, address: TensorAddress) -> NDArray[np.generic]:
        """Return a tensor; npy files are memory-mapped, others count towards the memory limit of the server."""
        return await asyncio.to_thread(self._required().value, address, self._memory, self.id)

    def previous(self, address: TensorAddress) -> TensorAddress | None:
        """Return the address of the same tensor in the previous run of its graph; initial weights are included."""
        return self._required().index.previous(address)

    async def statistics_over_steps(self, address: TensorAddress) -> tuple[StatisticsRow, ...]:
        """Return the statistics of a tensor in all steps of the dump, including steps after the shown one."""
        opened, graphs = self._required(), self.same_node(address)
        return await self._thread.run(
            f"reading {address.node} in all steps", lambda: opened.over_steps(address, graphs)
        )

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
        """Return the statistics of all tensors of a step; reads tensors without statistics, which may take long."""
        opened = self._required()
        ranks = self.ranks if rank is None else (rank,)
        self.graphs(ranks[0])
        requested_step = self._step if step is None else step
        return await self._thread.run(
            f"reading the statistics of step {requested_step}",
            lambda: opened.statistics(
                ranks,
                iteration_of(requested_step),
                query=query,
                sort=sort,
                descending=descending,
                offset=offset,
                limit=limit,
            ),
        )

    async def overview(self, rank: int, choice: OverviewChoice, *, read: bool = False) -> Overview:
        """Return a statistic of all tensors over all steps, as far as read; `read`: first read more for a second."""
        opened, hits = self._required(), self._hits_by_step()
        self.graphs(rank)
        return await self._thread.run(
            "reading statistics for the overview", lambda: opened.overview(rank, hits, choice, read=read)
        )

    async def timeline(self, rank: int, columns: int = 400) -> Timeline:
        """Return the steps of a rank; reads unknown values of its loss."""
        opened, hits = self._required(), self._hits_by_step()
        self.graphs(rank)
        present = self._step
        unchecked = [step for step in (0, *opened.steps) if self._results_of(step) is None]
        reported = self._scalars.get(rank, {})
        return await self._thread.run(
            "reading the loss", lambda: opened.timeline(rank, hits, present, columns, unchecked, reported)
        )

    async def curves(self, rank: int, points: int = 400) -> Curves:
        """Return the scalars that the training reported and, if it reported no loss, the loss tensor, which is read."""
        opened, reported = self._required(), self._scalars.get(rank, {})
        self.graphs(rank)
        return await self._thread.run("reading the loss", lambda: opened.curves(rank, reported, points))

    def _results_of(self, step: int) -> tuple[SessionHit, ...] | None:
        """Return the hits of a step found by a check, or else reported by its training; None if unknown."""
        hits = self._found_hits.of(step)
        if hits or self._checked.get(step) == 0:
            return hits
        return self._recorded_hits.get(step)

    def _forget_checks(self) -> None:
        """Remove the hits found by checks."""
        self._found_hits = HitHistory()
        self._checked = {}

    def _hits_by_step(self) -> dict[int, Sequence[SessionHit]]:
        """Return the hits by step: recorded, or found since the watchpoints last changed."""
        shown = {self.hit_list.step: self.hit_list.all()} if len(self.hit_list) else {}
        return {**self._recorded_hits, **self._found_hits.snapshot(), **shown}

    async def executions(self, rank: int, offset: int = 0, limit: int = 100) -> ExecutionPage:
        """Return the graphs that ran in each step, from the dump's history and its tensors."""
        opened = self._required()
        self.graphs(rank)
        return await asyncio.to_thread(opened.executions, rank, offset, limit)

    async def origins(self) -> tuple[OriginRecord, ...]:
        """Return the origins of anomalies in the whole dump, independent of the shown step; reads unread tensors."""
        opened, hits = self._required(), self.hit_list.all()
        return await self._thread.run("looking for origins", lambda: opened.origins(self._texts, hits))
