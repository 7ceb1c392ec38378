"""Receives statistics that a process sends while it runs, and adds them to the store."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Protocol

from tensight import wire
from tensight.sessions.live.reported_tensors import ReportedRow, ReportedTensor, TensorKey
from tensight.wire.facts import received_facts
from tensight.wire.scalars import split_scalars

if TYPE_CHECKING:
    from tensight.sessions.live.findings import LiveFindings
    from tensight.sessions.live.progress import Progress
    from tensight.sessions.live.rank_graphs import RankGraphs
    from tensight.sessions.live.recording import Recording
    from tensight.wire import BlockTensor
    from tensight.wire.telemetry_pb2 import StatisticsRows

MOST_ROWS = 200_000
"""Rows of statistics of a message that are stored; further ones are ignored."""

MOST_SCALARS = 100
"""Scalars of a step that are stored; further ones are ignored."""


class RecordedRun(Protocol):
    """A run with a recording and facts."""

    @property
    def recording(self) -> Recording:
        """Its recording."""

    @property
    def findings(self) -> LiveFindings:
        """Its facts and findings."""


class ReportingProcess(Protocol):
    """A process that reports statistics; see `TrainingProcess`."""

    graphs: RankGraphs
    progress: Progress

    @property
    def session(self) -> RecordedRun:
        """Its session."""

    @property
    def rank(self) -> int:
        """Its rank."""


class StatisticsStream:
    """The messages of a call, which may refer to tensors by numbers.

    Parameters
    ----------
    process : ReportingProcess
        The sender.
    """

    def __init__(self, process: ReportingProcess) -> None:
        self._process = process
        self._reader = wire.BlockReader()
        self._received: dict[int, tuple[BlockTensor, ReportedTensor]] = {}
        self._graphs = 0

    def take(self, batch: StatisticsRows) -> None:
        """Store the statistics of a message. Call it in a thread, in the order of the messages.

        Raises
        ------
        WireError, InputError
            The message is invalid.
        StorageError
            The statistics cannot be stored.
        """
        session = self._process.session
        store = session.recording.statistics
        if batch.facts:
            session.findings.take(self._process.rank, received_facts(batch.facts))
        if batch.HasField("block"):
            block = self._reader.rows(batch)
            scalars, rows = split_scalars(block)
            if scalars:
                store.add_scalars(self._process.rank, block.iteration, scalars[:MOST_SCALARS])
                block = block.only(rows)
            if len(block):
                store.add_block(self._tensors(block.tensors), block)
                self._note_graph(block.iteration, block.tensors[0].graph)
        if batch.rows:
            store.add(self._rows(batch))

    def _tensors(self, named: list[BlockTensor]) -> list[ReportedTensor]:
        """Return the tensors as they are named in the store; cached until the graphs change."""
        version = self._process.graphs.version
        if version != self._graphs:
            self._received, self._graphs = {}, version
        received = self._received
        for tensor in named:
            entry = received.get(tensor.number)
            if entry is None or entry[0] is not tensor:
                received[tensor.number] = tensor, self._meant(tensor)
        return [received[tensor.number][1] for tensor in named]

    def _note_graph(self, iteration: int, name: str) -> None:
        """Note which graph ran: an agent reports the tensors of a step for the graph of that step."""
        graph = self._process.graphs.graph(name)
        if graph is not None:
            self._process.progress.executions.note(iteration, graph.root_id)

    def _meant(self, tensor: BlockTensor) -> ReportedTensor:
        process = self._process
        graph_and_node = process.graphs.meant(tensor.node, tensor.graph, process.progress.root_id)
        if graph_and_node is None:
            key = TensorKey(process.rank, tensor.graph, tensor.node, tensor.io, tensor.slot)
            return ReportedTensor(key, "", tensor.position + 1)
        graph, node = graph_and_node
        key = TensorKey(process.rank, graph.name, node.name, tensor.io, tensor.slot)
        return ReportedTensor(key, node.type, process.graphs.number(node))

    def _rows(self, batch: StatisticsRows) -> list[ReportedRow]:
        rows: list[ReportedRow] = []
        for message in islice(batch.rows, MOST_ROWS):
            row = wire.received_row(message)
            if row.statistics is not None:
                key, kind, position = self._meant(
                    wire.BlockTensor(0, row.graph, row.node, row.slot, row.io, row.position)
                )
                rows.append(ReportedRow(key, max(batch.iteration, -1), row.statistics, kind, position))
        return rows
