"""Receives tensors from a process: values, statistics and views, requested or unrequested."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Protocol

from tensight import wire
from tensight.errors import TensightError
from tensight.sessions.errors import UnavailableError
from tensight.sessions.live.pending_requests import RequestKind
from tensight.sessions.live.recording import storing
from tensight.sessions.live.reported_tensors import ReportedRow, TensorKey
from tensight.sessions.live.shielded import shielded_in_thread
from tensight.sessions.live.statistics_store import received_statistics
from tensight.sessions.live.statistics_stream import RecordedRun, ReportingProcess, StatisticsStream
from tensight.sessions.live.values import ArrivingTensor, KeptValue, delete
from tensight.tensors import statistics
from tensight.wire.telemetry_pb2 import Receipt

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tensight.dumps.recorder import RankRecorder
    from tensight.graph import Graph, Node
    from tensight.sessions.live.connection import ProcessConnection
    from tensight.sessions.live.pending_requests import PendingRequest, PendingRequests
    from tensight.sessions.live.values import KeptValues, ValueWriters
    from tensight.sessions.records import TensorStatus
    from tensight.wire import ReceivedStatistics, TensorPiece
    from tensight.wire.debugger_pb2 import EventReply, TensorBase, TensorSummary
    from tensight.wire.telemetry_pb2 import StatisticsRows, ViewPiece


class KnownValues(Protocol):
    """The values of a session, which keeps and announces arriving ones; see `Inspection`."""

    writers: ValueWriters
    kept: KeptValues

    def announce(self, key: TensorKey, iteration: int, status: TensorStatus) -> None:
        """Tell the clients that a tensor has arrived, or that the process does not have it."""


class RequestingSession(RecordedRun, Protocol):
    """The session of a responding process."""

    @property
    def inspection(self) -> KnownValues:
        """Stores its tensors."""

    def announce(self, *, news: bool = False) -> None:
        """Tell the clients the state of the session."""


class RespondingProcess(ReportingProcess, Protocol):
    """A process from which tensors are requested; see `TrainingProcess`."""

    recorder: RankRecorder
    recording: asyncio.Lock
    requests: PendingRequests
    connection: ProcessConnection

    @property
    def session(self) -> RequestingSession:
        """Its session."""

    async def record_executions(self) -> None:
        """Record the completed iterations."""


class Responses:
    """Receives the tensors of a process.

    Parameters
    ----------
    process : RespondingProcess

    Attributes
    ----------
    has_levels : bool
        Whether the process can send statistics without values; MindSpore's first clients cannot.
    missing : set of (TensorKey, int)
        Tensors, with iteration, that the process does not have at its current stop.
    here : set of (TensorKey, int)
        Tensors, with iteration, that it has sent since this stop.
    """

    def __init__(self, process: RespondingProcess) -> None:
        self._process = process
        self.has_levels = True
        self.missing: set[tuple[TensorKey, int]] = set()
        self.here: set[tuple[TensorKey, int]] = set()

    def begin_stop(self) -> None:
        """Note that the process has stopped at another step or operator."""
        self.missing.clear()
        self.here.clear()

    # --- values ---

    async def send_tensors(self, pieces: AsyncIterator[bytes]) -> EventReply:
        """Receive tensors in pieces, each a serialized TensorProto.

        Raises
        ------
        TensightError
            The first error; other tensors have been received nevertheless.
        """
        problem: TensightError | None = None
        arriving: _Arriving | None = None
        try:
            async for raw in pieces:
                self._process.connection.note_answer()
                if isinstance(problem, wire.WireError):
                    # The rest of the stream cannot be trusted; read it so that the process is not disturbed.
                    continue
                try:
                    piece = wire.tensor_piece(raw)
                    if arriving is not None and arriving.tensor.request != piece.request:
                        raise wire.WireError(f"{arriving.name} breaks off, and another tensor follows")
                    arriving = arriving or self._begin(piece)
                    if arriving is not None:
                        await arriving.tensor.take(piece)
                    elif piece.is_missing:
                        self._miss(piece)
                    if piece.finished and arriving is not None:
                        done, arriving = arriving, None
                        await self._complete(done)
                except TensightError as error:
                    problem = problem or error
                    if isinstance(error, wire.WireError) and arriving is not None:
                        arriving.fail(error)
                        arriving = None
            if arriving is not None:
                done, arriving = arriving, None
                why = await done.tensor.why_incomplete()
                done.fail(why)
                problem = problem or why
        finally:
            if arriving is not None:
                arriving.fail(UnavailableError(f"{arriving.name} broke off before its end"))
        if problem is not None:
            raise problem
        return wire.ok()

    def _begin(self, piece: TensorPiece) -> _Arriving | None:
        """Begin to receive a tensor with its first piece; return None if it has no value, or its node is unknown."""
        process = self._process
        if piece.is_missing:
            return None
        requests = process.requests.matching(piece.request)
        if requests:
            first = requests[0]
            target = (first.graph, first.node, first.key, first.iteration)
        else:
            graph_and_node = process.graphs.meant(piece.node, piece.graph, process.progress.root_id)
            if graph_and_node is None:
                return None
            graph, node = graph_and_node
            key = TensorKey(process.rank, graph.name, node.name, piece.io, piece.slot)
            iteration = -1 if node.is_constant else process.progress.iteration - piece.previous
            target = (graph, node, key, iteration)
        inspection = process.session.inspection
        tensor = ArrivingTensor(piece, process.recorder, inspection.writers, inspection.kept)
        return _Arriving(tensor, *target, requests)

    def _miss(self, piece: TensorPiece) -> None:
        for request in self._process.requests.matching(piece.request):
            self.missing.add((request.key, request.iteration))
            if request.kind is RequestKind.STATISTICS:
                request.resolve(None)
            else:
                request.fail(UnavailableError(f"the training process has no value of {piece.node}:{piece.slot} now"))
            self._process.session.inspection.announce(request.key, request.iteration, "not_kept")

    async def _complete(self, done: _Arriving) -> None:
        try:
            kept = await self._keep(done)
        except TensightError as error:
            done.fail(error)
            raise
        self.here.add((done.key, done.iteration))
        for request in done.requests:
            if request.kind is RequestKind.STATISTICS:
                # Only statistics were requested, but it sent the value: it cannot send statistics alone.
                self.has_levels = False
                request.resolve(received_statistics(await asyncio.to_thread(lambda: statistics(kept.open()))))
            else:
                request.resolve(kept)
        self._process.session.inspection.announce(done.key, done.iteration, "available")

    async def _keep(self, done: _Arriving) -> KeptValue:
        writer = await done.tensor.complete()
        process = self._process
        kept_values = process.session.inspection.kept

        def keep() -> KeptValue:
            try:
                with storing(process.session.recording.folder):
                    path = process.recorder.keep_tensor(
                        writer, done.graph, done.node, done.key.slot, done.iteration, is_input=done.key.io == "input"
                    )
            finally:
                writer.discard()
            return KeptValue(path, writer.dtype, writer.shape, writer.offset, writer.offset + writer.data_bytes)

        async with process.recording:
            await process.record_executions()
            kept = await shielded_in_thread(keep)
        dropped = kept_values.add(done.key, done.iteration, kept)
        if dropped:
            await asyncio.to_thread(delete, dropped)
        return kept

    # --- statistics and headers ---

    async def send_tensor_stats(self, items: AsyncIterator[TensorSummary]) -> EventReply:
        """Receive requested statistics, in the order of the requests."""
        groups = self._process.requests.out_in_groups
        answered: list[tuple[list[PendingRequest], ReceivedStatistics | None]] = []
        number = 0
        async for item in items:
            reported = wire.received_statistics(item)
            if number < len(groups):
                answered.append((groups[number], reported))
            number += 1
        rows = [
            row
            for requests, reported in answered
            for request in requests
            if (row := self._row(request, reported)) is not None
        ]
        # Store them before resolving the requests: the requester may ask for the history next.
        await asyncio.to_thread(self._process.session.recording.statistics.add, rows)
        for requests, reported in answered:
            self._resolve(requests, reported)
        # The first statistics make the table of statistics available.
        self._process.session.announce()
        return wire.ok()

    async def send_tensor_base(self, items: AsyncIterator[TensorBase]) -> EventReply:
        """Receive requested types and shapes, in the order of the requests."""
        groups = self._process.requests.out_in_groups
        number = 0
        async for item in items:
            base = wire.received_base(item)
            received = None
            if base is not None:
                numbers = {"count": math.prod(base.shape)}
                received = wire.ReceivedStatistics(base.dtype, base.shape, base.size_bytes, numbers)
            if number < len(groups):
                self._resolve(groups[number], received)
            number += 1
        return wire.ok()

    def _resolve(self, requests: list[PendingRequest], received: ReceivedStatistics | None) -> None:
        for request in requests:
            request.resolve(received)
            if received is None:
                self.missing.add((request.key, request.iteration))

    def _row(self, request: PendingRequest, received: ReceivedStatistics | None) -> ReportedRow | None:
        if received is None:
            return None
        self.here.add((request.key, request.iteration))
        position = self._process.graphs.number(request.node)
        return ReportedRow(request.key, request.iteration, received, request.node.type, position)

    async def send_statistics(self, batches: AsyncIterator[StatisticsRows]) -> Receipt:
        """Receive statistics that the process sends while it runs."""
        stream = StatisticsStream(self._process)
        async for batch in batches:
            self._process.connection.note_answer()
            await asyncio.to_thread(stream.take, batch)
            if batch.facts:
                self._process.session.findings.changed()
        return Receipt(ok=True)

    # --- views ---

    async def send_views(self, pieces: AsyncIterator[ViewPiece]) -> Receipt:
        """Receive requested views."""
        requests = self._process.requests
        out, assembler = requests.out, requests.assembler
        async for piece in pieces:
            self._process.connection.note_answer()
            view = assembler.add(piece) if assembler is not None else None
            if view is None:
                continue
            if view.result is None:
                out[view.index].fail(UnavailableError(f"the training process has no such view: {view.error}"))
            else:
                out[view.index].resolve(view.result)
        if assembler is None:
            return Receipt(ok=False, message=b"no views were asked for, or they came too late")
        return Receipt(ok=True)


class _Arriving:
    """An arriving tensor, its node and iteration, and the requests for it."""

    def __init__(
        self,
        tensor: ArrivingTensor,
        graph: Graph,
        node: Node,
        key: TensorKey,
        iteration: int,
        requests: list[PendingRequest],
    ) -> None:
        self.tensor = tensor
        self.graph = graph
        self.node = node
        self.key = key
        self.iteration = iteration
        self.requests = requests

    @property
    def name(self) -> str:
        """The tensor for messages."""
        return f"{self.key.node}:{self.key.slot}"

    def fail(self, error: TensightError) -> None:
        """Discard the tensor, and fail its requests."""
        self.tensor.discard()
        for request in self.requests:
            request.fail(error)
