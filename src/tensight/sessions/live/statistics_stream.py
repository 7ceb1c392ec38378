"""Statistics that a process sends as it runs, into the store."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Protocol

from tensight import wire
from tensight.sessions.live.reported_tensors import ReportedRow, ReportedTensor, TensorKey
from tensight.wire.scalars import split_scalars

if TYPE_CHECKING:
    from tensight.sessions.live.executions import Executions
    from tensight.sessions.live.rank_graphs import RankGraphs
    from tensight.sessions.live.recording import Recording
    from tensight.wire import BlockTensor
    from tensight.wire.telemetry_pb2 import StatisticsRows

MOST_ROWS = 200_000
"""Rows of statistics of one message that are looked at; messages are bounded, and so are fewer."""

MOST_SCALARS = 100
"""Numbers of a training at one step that are kept."""


class RecordedRun(Protocol):
    """The run that a process is part of, as far as what it tells is kept."""

    @property
    def recording(self) -> Recording:
        """Where it is kept."""


class ReportingProcess(Protocol):
    """A process that tells statistics; see `TrainingProcess`."""

    graphs: RankGraphs
    executions: Executions
    root_id: int | None

    @property
    def session(self) -> RecordedRun:
        """The session that it belongs to."""

    @property
    def rank(self) -> int:
        """Its rank."""


class StatisticsStream:
    """The messages of one call, which may name tensors by numbers.

    Parameters
    ----------
    process : ReportingProcess
        That sends them.
    """

    def __init__(self, process: ReportingProcess) -> None:
        self._process = process
        self._reader = wire.BlockReader()
        self._received: dict[BlockTensor, ReportedTensor] = {}
        self._graphs = 0

    def take(self, batch: StatisticsRows) -> None:
        """Keep what a message tells; to be called in a thread, in the order of the messages.

        Raises
        ------
        WireError
            It tells what cannot be.
        StorageError
            It cannot be kept.
        """
        store = self._process.session.recording.statistics
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
        """Return the names of some tensors in the store, found out once for the graphs that there are."""
        version = self._process.graphs.version
        if version != self._graphs:
            self._received, self._graphs = {}, version
        received = self._received
        for tensor in named:
            if tensor not in received:
                received[tensor] = self._meant(tensor)
        return [received[tensor] for tensor in named]

    def _note_graph(self, iteration: int, name: str) -> None:
        """Note which graph ran: an agent names the tensors of a step after the program of that step."""
        graph = self._process.graphs.graph(name)
        if graph is not None:
            self._process.executions.note(iteration, graph.root_id)

    def _meant(self, tensor: BlockTensor) -> ReportedTensor:
        process = self._process
        found = process.graphs.meant(tensor.node, tensor.graph, process.root_id)
        if found is None:
            key = TensorKey(process.rank, tensor.graph, tensor.node, tensor.io, tensor.slot)
            return ReportedTensor(key, "", tensor.position + 1)
        graph, node = found
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
