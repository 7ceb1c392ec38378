"""What a process sends of its tensors: values, statistics and views, asked for or of its own accord."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Protocol

from tensight import wire
from tensight.errors import TensightError
from tensight.sessions.errors import UnavailableError
from tensight.sessions.live.questions import Asked
from tensight.sessions.live.recording import storing
from tensight.sessions.live.reported_tensors import ReportedRow, TensorKey
from tensight.sessions.live.statistics_store import told_of
from tensight.sessions.live.statistics_stream import RecordedRun, ReportingProcess, StatisticsStream
from tensight.sessions.live.uninterrupted import to_the_end
from tensight.sessions.live.values import ArrivingTensor, KeptValue, delete
from tensight.tensors import statistics
from tensight.wire.telemetry_pb2 import Receipt

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tensight.dumps.recorder import RankRecorder
    from tensight.graph import Graph, Node
    from tensight.sessions.live.questions import Question, Questions
    from tensight.sessions.live.values import KeptValues, ValueWriters
    from tensight.sessions.records import TensorStatus
    from tensight.wire import ReceivedStatistics, TensorPiece
    from tensight.wire.debugger_pb2 import EventReply, TensorBase, TensorSummary
    from tensight.wire.telemetry_pb2 import StatisticsRows, ViewPiece


class KnownValues(Protocol):
    """The values of a session, as far as what arrives is kept and told; see `Inspection`."""

    writers: ValueWriters
    kept: KeptValues

    def announce(self, key: TensorKey, iteration: int, status: TensorStatus) -> None:
        """Tell the clients that a tensor has come, or that there is none."""


class AskingSession(RecordedRun, Protocol):
    """The session of a process that answers."""

    @property
    def inspection(self) -> KnownValues:
        """Has its tensors."""

    def announce(self, *, news: bool = False) -> None:
        """Tell the clients how the session looks now."""


class AnsweringProcess(ReportingProcess, Protocol):
    """A process that is asked for tensors; see `TrainingProcess`."""

    recorder: RankRecorder
    recording: asyncio.Lock
    questions: Questions

    @property
    def session(self) -> AskingSession:
        """The session that it belongs to."""

    @property
    def iteration(self) -> int:
        """The iteration whose values it holds."""

    def still_answers(self) -> None:
        """Note that it has said something."""

    async def record_executions(self) -> None:
        """Write down which iterations have run."""


class Answers:
    """Takes in the tensors of one process.

    Parameters
    ----------
    process : AnsweringProcess

    Attributes
    ----------
    has_levels : bool
        Whether the process can send statistics without values; MindSpore's first clients could not.
    missing : set of (TensorKey, int)
        What the process has no value of where it stands, with the iteration.
    here : set of (TensorKey, int)
        What it has told, or sent, since it stands there.
    """

    def __init__(self, process: AnsweringProcess) -> None:
        self._process = process
        self.has_levels = True
        self.missing: set[tuple[TensorKey, int]] = set()
        self.here: set[tuple[TensorKey, int]] = set()

    def begin_place(self) -> None:
        """Note that the process stands elsewhere than before."""
        self.missing.clear()
        self.here.clear()

    # --- values ---

    async def send_tensors(self, pieces: AsyncIterator[bytes]) -> EventReply:
        """Take in tensors, piece by piece, each a serialized TensorProto.

        Raises
        ------
        TensightError
            The first thing that went wrong; the other tensors have arrived all the same.
        """
        problem: TensightError | None = None
        arriving: _Arriving | None = None
        try:
            async for raw in pieces:
                self._process.still_answers()
                if isinstance(problem, wire.WireError):
                    # Nothing after it can be trusted; it is read so that the process is not disturbed.
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
        """Return where a tensor goes that begins with this piece; None if there is no value, or no such node."""
        process = self._process
        if piece.is_missing:
            return None
        questions = process.questions.of_request(piece.request)
        if questions:
            first = questions[0]
            place = (first.graph, first.node, first.key, first.iteration)
        else:
            found = process.graphs.meant(piece.node, piece.graph, process.root_id)
            if found is None:
                return None
            graph, node = found
            key = TensorKey(process.rank, graph.name, node.name, piece.io, piece.slot)
            iteration = -1 if node.is_constant else process.iteration - piece.previous
            place = (graph, node, key, iteration)
        inspection = process.session.inspection
        tensor = ArrivingTensor(piece, process.recorder, inspection.writers, inspection.kept)
        return _Arriving(tensor, *place, questions)

    def _miss(self, piece: TensorPiece) -> None:
        for question in self._process.questions.of_request(piece.request):
            self.missing.add((question.key, question.iteration))
            if question.asked is Asked.STATISTICS:
                question.resolve(None)
            else:
                question.fail(UnavailableError(f"the training process has no value of {piece.node}:{piece.slot} now"))
            self._process.session.inspection.announce(question.key, question.iteration, "not_kept")

    async def _complete(self, done: _Arriving) -> None:
        try:
            kept = await self._keep(done)
        except TensightError as error:
            done.fail(error)
            raise
        self.here.add((done.key, done.iteration))
        for question in done.questions:
            if question.asked is Asked.STATISTICS:
                # It was asked for less, so it does not know that one can.
                self.has_levels = False
                question.resolve(told_of(await asyncio.to_thread(lambda: statistics(kept.open()))))
            else:
                question.resolve(kept)
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
            kept = await to_the_end(keep)
        dropped = kept_values.add(done.key, done.iteration, kept)
        if dropped:
            await asyncio.to_thread(delete, dropped)
        return kept

    # --- statistics and headers ---

    async def send_tensor_stats(self, items: AsyncIterator[TensorSummary]) -> EventReply:
        """Take in statistics that were asked for, in the order of the questions."""
        groups = self._process.questions.out_in_groups
        answered: list[tuple[list[Question], ReceivedStatistics | None]] = []
        number = 0
        async for item in items:
            reported = wire.received_statistics(item)
            if number < len(groups):
                answered.append((groups[number], reported))
            number += 1
        rows = [
            row
            for questions, reported in answered
            for question in questions
            if (row := self._row(question, reported)) is not None
        ]
        # Stored before anybody has the answer: who has it may ask for the history next.
        await asyncio.to_thread(self._process.session.recording.statistics.add, rows)
        for questions, reported in answered:
            self._resolve(questions, reported)
        # With the first ones there is a table of statistics.
        self._process.session.announce()
        return wire.ok()

    async def send_tensor_base(self, items: AsyncIterator[TensorBase]) -> EventReply:
        """Take in types and shapes that were asked for, in the order of the questions."""
        groups = self._process.questions.out_in_groups
        number = 0
        async for item in items:
            base = wire.received_base(item)
            told = None
            if base is not None:
                known = {"count": math.prod(base.shape)}
                told = wire.ReceivedStatistics(base.dtype, base.shape, base.size_bytes, known)
            if number < len(groups):
                self._resolve(groups[number], told)
            number += 1
        return wire.ok()

    def _resolve(self, questions: list[Question], told: ReceivedStatistics | None) -> None:
        for question in questions:
            question.resolve(told)
            if told is None:
                self.missing.add((question.key, question.iteration))

    def _row(self, question: Question, told: ReceivedStatistics | None) -> ReportedRow | None:
        if told is None:
            return None
        self.here.add((question.key, question.iteration))
        position = self._process.graphs.number(question.node)
        return ReportedRow(question.key, question.iteration, told, question.node.type, position)

    async def send_statistics(self, batches: AsyncIterator[StatisticsRows]) -> Receipt:
        """Take in statistics that the process sends as it runs."""
        stream = StatisticsStream(self._process)
        async for batch in batches:
            self._process.still_answers()
            await asyncio.to_thread(stream.take, batch)
        return Receipt(ok=True)

    # --- views ---

    async def send_views(self, pieces: AsyncIterator[ViewPiece]) -> Receipt:
        """Take in views that were asked for."""
        questions = self._process.questions
        out, assembler = questions.out, questions.assembler
        async for piece in pieces:
            self._process.still_answers()
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
    """A tensor on its way, where it belongs, and who waits for it."""

    def __init__(
        self,
        tensor: ArrivingTensor,
        graph: Graph,
        node: Node,
        key: TensorKey,
        iteration: int,
        questions: list[Question],
    ) -> None:
        self.tensor = tensor
        self.graph = graph
        self.node = node
        self.key = key
        self.iteration = iteration
        self.questions = questions

    @property
    def name(self) -> str:
        """The tensor for messages."""
        return f"{self.key.node}:{self.key.slot}"

    def fail(self, error: TensightError) -> None:
        """Give the tensor up."""
        self.tensor.discard()
        for question in self.questions:
            question.fail(error)
