"""A session whose run is a dump: opening it, what it tells about tensors, and closing it."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
from abc import abstractmethod
from functools import partial
from typing import TYPE_CHECKING

from tensight.errors import TensightError
from tensight.graph import TensorAddress, iteration_of
from tensight.sessions.errors import NotFoundError, StateError
from tensight.sessions.hit_history import HitHistory
from tensight.sessions.offline.opened_dump import OpenedDump
from tensight.sessions.offline.thread import AnalysisThread
from tensight.sessions.offline.value_memory import TENSOR_BYTES
from tensight.sessions.records import State
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
    """A person looking at a dump.

    Opening returns at once; the graphs are parsed and the tensors listed while clients see the state ``connecting``.

    Parameters
    ----------
    session_id, name : str
        The name under which the dump is listed.
    dump : Dump
        Just opened.
    workspace : Workspace or None
    memory : ValueMemory
        Shared by all sessions on dumps.
    most_drawn_nodes : int
        Graphs with more nodes are not drawn.
    run : RecordedRun, optional
        What a live session kept beside the dump. The session then has the name, and so the watchpoints, of the job.
    cache_dir : path, optional
        Where statistics are kept; by default as for the command line.
    lease : Lease, optional
        Of a script, for which the session was opened: it has no watchpoints of earlier sessions and keeps none.

    Attributes
    ----------
    dump_name : str
        The name under which the dump is listed.
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
        # What checks found since the watchpoints last changed, and how many hits each checked step had.
        self._found_hits = HitHistory()
        self._checked: dict[int, int] = {}
        self._texts: Mapping[str, str] = {}
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
        platform = next((one for one in Platform if one.value == self.metadata.device_target), None)
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

    # --- what it is ---

    @property
    def state(self) -> State:
        """What the session is doing; ``running`` while steps are checked."""
        return self._state

    @property
    def step(self) -> int:
        """The step that is shown; 0 is the state before the first update."""
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
        """Start to open the dump; returns at once, events tell how far it is."""
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
        for problem in self._run.problems if self._run is not None else ():
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
        return OpenedDump(
            dump,
            report=self._thread.report,
            progress=self._thread.progress,
            first_of=lambda rank: self.program(rank).first_of,
            cache_dir=self._cache_dir,
        )

    def _fail(self, error: Exception) -> None:
        if not isinstance(error, TensightError):
            _log.exception("the dump %s could not be opened", self.name)
        self._let_go()
        if not self._state.has_ended:
            self._state = State.FAILED
            self._message = f"the dump cannot be opened: {str(error) or type(error).__name__}"
            self.events.append_state(self.record())

    async def close(self, reason: str) -> None:
        """Stop what runs and let go of the dump. A closed session only knows its log."""
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
            await asyncio.to_thread(give_memory_back)

    def _let_go(self) -> None:
        """Forget the dump and what was read of it."""
        self._memory.forget(self.id)
        self._memory.release(self._listed_bytes)
        self._listed_bytes = 0
        self._opened = None
        self._recorded_hits, self._texts = {}, {}
        self._forget_checks()
        self.forget_graphs()

    def _required(self) -> OpenedDump:
        """Return the opened dump.

        Raises
        ------
        StateError
            It is not opened yet, cannot be, or is closed.
        """
        if self._state.has_ended:
            raise StateError(self._message or "the session was closed; open the dump again", code="session-closed")
        if self._opened is None:
            raise StateError("the dump is still being opened; its progress is among the events")
        return self._opened

    def _report(self, what: str, done: int, total: int) -> None:
        self.events.append("progress", what=what, done=done, total=total)

    # --- what it tells ---

    def source_texts(self) -> Mapping[str, str]:
        """Return the text of files of code that a recorded training had sent."""
        return self._texts

    def execution_position(self, rank: int) -> Callable[[Node], int] | None:
        """Return what tells where an operator of a rank stands in the order of execution."""
        return None if self._opened is None else partial(self._opened.dump.node_position, rank)

    def are_parts(self, rank: int, graph: Graph, other: Graph) -> bool:
        """Whether two graphs of a rank may run in the same step: an agent tells of each step as one graph."""
        if self.metadata.by_agent:
            return graph.root_id == other.root_id
        return self._opened is None or self._opened.are_parts(rank, graph, other)

    def graph_of(self, rank: int, node: str, graph: str = "", iteration: int | None = None) -> str:
        """Return the graph in which a node is meant; none, as an empty text, where only files are called so."""
        if not graph and self._opened is not None and self._opened.index.is_foreign(rank, node):
            return ""
        return super().graph_of(rank, node, graph, iteration)

    def graph_steps(self, rank: int) -> GraphSteps:
        """Return which graphs of a rank ran in which step."""
        self.graphs(rank)
        return super().graph_steps(rank) if self._opened is None else self._opened.graph_steps(rank)

    def position(self, rank: int, graph: str, node: str) -> int | None:
        """Return the position of a node in its step, from 1; None for constants, and for unknown ones."""
        return None if self._opened is None else self._opened.position(rank, graph, node)

    async def tensors_of(self, rank: int, graph: str, node: str, step: int | None = None) -> tuple[TensorRecord, ...]:
        """Return the inputs and outputs of a node at a step, with statistics; only these are read."""
        opened = self._required()
        self.graphs(rank)
        at = TensorAddress(rank, graph, node, 0, iteration_of(self._step if step is None else step))
        return await self._thread.run(f"reading {node}", lambda: opened.tensors(at, self.hit_list.abbreviations))

    async def value(self, address: TensorAddress) -> NDArray[np.generic]:
        """Return a tensor; an npy file is mapped, what has to be held in memory counts against the server's limit."""
        return await asyncio.to_thread(self._required().value, address, self._memory, self.id)

    def previous(self, address: TensorAddress) -> TensorAddress | None:
        """Return the same tensor when its graph ran last before, by the history; initial weights count."""
        return self._required().index.previous(address)

    async def statistics_over_steps(self, address: TensorAddress) -> tuple[StatisticsRow, ...]:
        """Return the statistics of a tensor in all steps of the dump, also those after the one shown."""
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
        """Return the statistics of all tensors of a step; what is not known yet is read, which may take long."""
        opened = self._required()
        ranks = self.ranks if rank is None else (rank,)
        self.graphs(ranks[0])
        wanted = self._step if step is None else step
        return await self._thread.run(
            f"reading the statistics of step {wanted}",
            lambda: opened.statistics(
                ranks, iteration_of(wanted), query=query, sort=sort, descending=descending, offset=offset, limit=limit
            ),
        )

    async def overview(self, rank: int, choice: OverviewChoice, *, read: bool = False) -> Overview:
        """Return a statistic of all tensors over all steps, of those that were read; `read`: read some more before."""
        opened, hits = self._required(), self._hits_by_step()
        self.graphs(rank)
        return await self._thread.run(
            "reading statistics for the overview", lambda: opened.overview(rank, hits, choice, read=read)
        )

    async def timeline(self, rank: int, columns: int = 400) -> Timeline:
        """Return the steps of a rank; of its loss those values are read that are not known yet."""
        opened, hits = self._required(), self._hits_by_step()
        self.graphs(rank)
        present = self._step
        unchecked = [step for step in (0, *opened.steps) if self._results_of(step) is None]
        reported = self._scalars.get(rank, {})
        return await self._thread.run(
            "reading the loss", lambda: opened.timeline(rank, hits, present, columns, unchecked, reported)
        )

    async def curves(self, rank: int, points: int = 400) -> Curves:
        """Return what the training told by itself, where that was kept; else its loss, whose values are read."""
        opened, reported = self._required(), self._scalars.get(rank, {})
        self.graphs(rank)
        return await self._thread.run("reading the loss", lambda: opened.curves(rank, reported, points))

    def _results_of(self, step: int) -> tuple[SessionHit, ...] | None:
        """Return what a check found in a step, or its training reported; None if neither is known."""
        found = self._found_hits.of(step)
        if found or self._checked.get(step) == 0:
            return found
        return self._recorded_hits.get(step)

    def _forget_checks(self) -> None:
        """Forget what checks found."""
        self._found_hits = HitHistory()
        self._checked = {}

    def _hits_by_step(self) -> dict[int, Sequence[SessionHit]]:
        """Return the hits that were recorded, or found since watchpoints last changed."""
        shown = {self.hit_list.step: self.hit_list.all()} if len(self.hit_list) else {}
        return {**self._recorded_hits, **self._found_hits.snapshot(), **shown}

    async def executions(self, rank: int, offset: int = 0, limit: int = 100) -> ExecutionPage:
        """Return which graphs ran in which step, by the dump's history and by what was dumped."""
        opened = self._required()
        self.graphs(rank)
        return await asyncio.to_thread(opened.executions, rank, offset, limit)

    async def origins(self) -> tuple[OriginRecord, ...]:
        """Return where anomalies began, in the whole dump whatever step is shown; reads what is not known yet."""
        opened, hits = self._required(), self.hit_list.all()
        return await self._thread.run("looking for origins", lambda: opened.origins(self._texts, hits))


def give_memory_back() -> None:
    """Free what refers to itself in circles; what is still in use is not looked at again."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()
