"""One training process: what it says, one handler for each message, and what it is told.

All handlers run in the event loop. A handler whose stream breaks off leaves everything as it was before.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from tensight import wire
from tensight.errors import TensightError
from tensight.graph.steps import iteration_of
from tensight.sessions.errors import UnavailableError
from tensight.sessions.live.answers import Answers, AskingSession
from tensight.sessions.live.executions import Executions
from tensight.sessions.live.graph_stream import GraphStream
from tensight.sessions.live.heartbeat import Watchdog
from tensight.sessions.live.identity import root_graph_of
from tensight.sessions.live.orders import Standing
from tensight.sessions.live.presence import Presence
from tensight.sessions.live.questions import Questions
from tensight.sessions.live.rank_graphs import RankGraphs
from tensight.sessions.live.rank_hashes import received_hashes
from tensight.sessions.live.recording import storing
from tensight.sessions.live.uninterrupted import to_the_end
from tensight.sessions.live.watching import MOST_HITS
from tensight.sessions.records import RankRecord, State
from tensight.wire.telemetry_pb2 import PollReply

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine, Iterable, Mapping, Sequence

    from tensight.dumps.recorder import RankRecorder
    from tensight.sessions.events import EventLog
    from tensight.sessions.live.graph_stream import ReceivedGraphs
    from tensight.sessions.live.identity import Identity
    from tensight.sessions.live.rank_hashes import ComparedTensor
    from tensight.sessions.live.settings import Caller, LiveSettings
    from tensight.sessions.live.watching import Signature
    from tensight.wire import ReceivedHit
    from tensight.wire.debugger_pb2 import Chunk, EventReply, Metadata, WatchpointHit

_TERMINATED = "terminated from the debug server"
_SILENT_S = 2.0
"""A process that runs says something more often than that."""


def _replaced() -> EventReply:
    return wire.failed("another WaitCMD of the same process took the place of this one")


_MOST_NOTICES = 20
_NO_STEP = "the training ended before a step was counted, so nothing was checked"


class Director(Protocol):
    """Who decides when a process goes on; see `Conductor`."""

    generation: int

    def forget(self, process: TrainingProcess) -> None:
        """Note that a process may not have got what it was told."""

    def must_tell(self, process: TrainingProcess) -> bool:
        """Whether a process that runs is to come back to be told what to watch."""

    def stop_at_hits(self) -> None:
        """Stop all ranks where they are next, because one has hits."""

    @property
    def is_running(self) -> bool:
        """Whether the processes are to go on, or to check something."""

    def stop(self) -> None:
        """Let no process go on from where it is next."""


class HitTaker(Protocol):
    """Who takes in the hits of a process; see `ReportedHits`."""

    async def take(self, process: TrainingProcess, received: Sequence[ReceivedHit]) -> None:
        """Note where a process has arrived, and its hits on the way."""

    async def note(self, process: TrainingProcess, received: Sequence[ReceivedHit]) -> None:
        """Note hits of a process that goes on."""


class ProcessOwner(AskingSession, Protocol):
    """What a process needs of the session that it belongs to; see `LiveSession`."""

    id: str
    name: str
    settings: LiveSettings
    events: EventLog
    is_closing: bool

    @property
    def processes(self) -> Mapping[int, TrainingProcess]:
        """The newest process of each rank."""

    @property
    def live(self) -> list[TrainingProcess]:
        """The processes that may still say something."""

    @property
    def conductor(self) -> Director:
        """Tells them what to do."""

    @property
    def reported(self) -> HitTaker:
        """Has their hits."""

    def advance(self) -> None:
        """Tell the processes that wait what to do."""

    def announce(self, *, news: bool = False) -> None:
        """Tell the clients how the session looks now."""

    def warn(self, text: str) -> None:
        """Tell the clients about something that went wrong and can be lived with."""

    def warn_of(self, error: TensightError, who: str = "") -> bool:
        """Tell the clients about an error; return whether they were told."""

    def later(self, work: Coroutine[Any, Any, None]) -> None:
        """Have something done soon, and before the session is closed."""

    def begin(self, process: TrainingProcess) -> None:
        """Greet a process that has attached, and let the training go on if it wants no person for that."""

    def left(self, process: TrainingProcess) -> None:
        """Note that a process has ended, or may have."""

    def returned(self) -> None:
        """Note that a process which was given up has come back."""

    async def take_graphs(self, process: TrainingProcess, received: ReceivedGraphs) -> None:
        """Take in the graphs of a process."""


class TrainingProcess:
    """A training process as the server sees it.

    Parameters
    ----------
    session : ProcessOwner
        That it belongs to.
    identity : Identity
    caller : Caller
    recorder : RankRecorder
        Of its rank; the graphs that it has are those of the process.

    Attributes
    ----------
    state : State
    message : str
        What a person should know about it.
    remark : str
        What a person should know about it for as long as it lives.
    step : int
        Steps done.
    offset : int
        Steps that the ranks of its run had done together when it joined them.
    executions : Executions
        Which graph ran in which iteration.
    node : str
        Full name of the operator at which it stands, if it stops at operators.
    root_id : int or None
        Number of the root graph in which it stands.
    oldest : int or None
        The first iteration of which it can still show values, if it keeps some.
    hashes : dict of ComparedTensor to int
        Of tensors that are compared between ranks, as they are where it stands.
    graphs : RankGraphs
    graph_bytes : dict of str to int
        Their sizes as they were sent, by name.
    sent : dict of int to Signature
        The watchpoints that it has; the signature is None for one that it may have or not.
    prepared : int or None
        For which version of what the session watches it has what it should have, or has it in its queue.
    preparing : Task or None
        Works out what it must be told of watchpoints.
    has_unchecked : bool
        It was told of watchpoints that have not been checked on the initial values, if it stands at these.
    released : int or None
        The place from which it was last let go.
    queue : deque of EventReply
        Commands that it gets before anything else.
    lines : deque of str
        For its terminal, which it gets before that.
    recording : Lock
        Held while its recorder works.
    """

    def __init__(self, session: ProcessOwner, identity: Identity, caller: Caller, recorder: RankRecorder) -> None:
        self.session = session
        self.identity = identity
        self.caller = caller
        self.recorder = recorder
        self.state = State.CONNECTING
        self.message = ""
        self.remark = ""
        self.step = 0
        self.offset = 0
        self.node = ""
        self.root_id: int | None = None
        self.oldest: int | None = None
        self.closer_since: int | None = None
        self.hashes: dict[ComparedTensor, int] = {}
        self.graphs = RankGraphs(recorder.graphs, recorder.order)
        self.graph_bytes: dict[str, int] = {}
        self.questions = Questions(knows_graphs=identity.is_agent)
        self.answers = Answers(self)
        self.sent: dict[int, Signature | None] = {}
        self.prepared: int | None = None
        self.preparing: asyncio.Task[None] | None = None
        self.has_unchecked = False
        self.released: int | None = None
        self.queue: deque[EventReply] = deque()
        self.lines: deque[str] = deque()
        self.recording = asyncio.Lock()
        self.executions = Executions()
        self.is_connected = True
        self.last_seen = time.time()
        self.last_answer = time.monotonic()
        self._version_remark = ""
        self._expects_graphs = True
        self._wants_exit = False
        self._waiting: asyncio.Future[EventReply] | None = None
        self._latest: asyncio.Future[EventReply] | None = None
        self._calls = 0
        self._hits: list[ReceivedHit] = []
        self._notices: list[str] = []
        self._watchdog = Watchdog(self._miss_heartbeats, session.settings.heartbeat_second_s)
        self._presence = Presence(identity, self._miss)
        self._grace: asyncio.TimerHandle | None = None

    # --- what others want to know ---

    @property
    def rank(self) -> int:
        """Its rank."""
        return self.identity.rank

    @property
    def place(self) -> int:
        """How far it is, in steps as all ranks of the run count them together."""
        return self.step + self.offset

    @property
    def done(self) -> int:
        """The same without the step within which it stands: agents count that one, and say at which operator."""
        return self.place - (self.identity.is_agent and bool(self.node))

    @property
    def iteration(self) -> int:
        """The iteration whose values it holds; -1 before the first."""
        return iteration_of(self.step)

    @property
    def is_live(self) -> bool:
        """Whether it may still say something."""
        return not self.state.has_ended

    @property
    def is_waiting(self) -> bool:
        """Whether it waits for a command at this moment."""
        return self._waiting is not None

    @property
    def watches_without_deciding(self) -> bool:
        """Whether it reports hits, and leaves it to the session which of them are a reason to stop."""
        return not self.identity.is_agent

    @property
    def is_alone(self) -> bool:
        """Whether its run has no other ranks."""
        return self.identity.world_size == 1 and self.session.live == [self]

    @property
    def standing(self) -> Standing:
        """Where it stands, and what there is to tell it; without what the run wants of it."""
        return Standing(
            place=self.place,
            step=self.step,
            state=self.state,
            released=self.released,
            is_waiting=self.is_waiting,
            wants_exit=self.wants_exit,
            has_lines=bool(self.lines),
            has_queue=bool(self.queue),
            version=self.prepared,
            has_unchecked=self.has_unchecked,
            wanted="",
        )

    def record(self) -> RankRecord:
        """Return what a session tells about it."""
        root = self.graphs.graph_of_root(self.root_id)
        return RankRecord(
            rank=self.rank,
            state=self.state,
            step=self.step,
            node=self.node,
            graph=root.name if root else "",
            graphs=tuple(graph.name for graph in self.graphs.graphs),
            address=self.caller.address,
            device=self.identity.device,
            process_id=self.identity.process_id,
            last_seen=self.last_seen,
            message=self.message,
        )

    def as_json(self) -> dict[str, Any]:
        """Return what is needed to know it again when the server was restarted."""
        return {
            "identity": self.identity.as_json(),
            "address": self.caller.address,
            "state": self.state.value,
            "is_live": self.is_live or self.state is State.LOST,
            "step": self.step,
            "offset": self.offset,
            "node": self.node,
            "root_id": self.root_id,
            "sent": sorted(self.sent),
            "closer_since": self.closer_since,
        }

    def forget_graphs(self) -> None:
        """Let go of the graphs of a process whose session is closed."""
        self.graphs = RankGraphs()
        self.recorder.forget_graphs()

    def look_closer(self) -> None:
        """Have it capture every operator from its next step on."""
        abilities = replace(self.identity.abilities, nodes=True, run_to_node=True, closer=False)
        self.identity = replace(self.identity, abilities=abilities)
        self.closer_since = self.iteration + 1
        self.queue.append(wire.capture_operators())

    # --- one handler for each message; those of tensors are in `answers` ---

    def announce(self, message: Metadata, identity: Identity | None = None) -> EventReply:
        """Learn who the process is; reply whether it is understood."""
        if message.training_done:
            self.finish(message.cur_step)
            return wire.version_reply(True)
        if identity is not None and identity.is_agent:
            # It may have chosen otherwise since; its rank and its job are what they were.
            self.identity = replace(identity, rank=self.identity.rank, job=self.identity.job)
            if identity.abilities.closer and not self.queue:
                # It was never told to, because the server was restarted before.
                self.closer_since = None
        check = wire.check_metadata(message)
        self._expects_graphs = not message.HasField("process") or message.graph_num > 0
        self.root_id = root_graph_of(message)
        # What it was told before, it may have forgotten.
        self._doubt()
        if self.identity.is_agent and self.identity.run_at_start and message.cur_step > 0:
            self._goes_on_from(message.cur_step)
        self.remark = self._version_remark = check.message
        self.set_state(State.CONNECTING if check.matched else State.MISMATCH, check.message)
        return wire.version_reply(check.matched, check.message)

    async def wait_cmd(self, message: Metadata) -> EventReply:
        """Tell the process, which stands still, what to do, as soon as there is something."""
        if message.training_done:
            self.finish(message.cur_step)
            return wire.exit_command("the training is done")
        if self._wants_exit:
            self.end(State.TERMINATED, "")
            return self._exit_command()
        if self.state is not State.MISMATCH and self._expects_graphs and not self.graphs.graphs:
            return wire.failed("no graph has arrived; send the graph before asking for commands")
        if not self.is_live:
            self.set_state(State.RUNNING, self._remark_or_notice)
        self.questions.close(UnavailableError("the process went on without an answer"))
        self.reply(_replaced())
        self._calls += 1
        call = self._calls
        await self._arrive(message)
        if call != self._calls:
            # It has asked once more meanwhile, over another connection; only the last call is answered.
            return _replaced()
        self.reply(_replaced())
        waiting: asyncio.Future[EventReply] = asyncio.get_running_loop().create_future()
        self._waiting = self._latest = waiting
        self.session.advance()
        try:
            return await waiting
        except asyncio.CancelledError:
            # It may have come back over another connection before this one was known to be broken.
            if self._latest is waiting:
                self.disconnect()
            raise

    def _goes_on_from(self, step: int) -> None:
        """Note that the process runs, in the middle of its training: other ranks must not wait for it here."""
        if self.released is None and self.step == 0:
            # It has counted the steps that the others have done, too.
            self.offset = max((one.offset for one in self.session.live if one is not self), default=0)
        self.step = step
        self.released = self.place

    async def _arrive(self, message: Metadata) -> None:
        """Note where the process stands, and the hits that it has sent on its way."""
        step, root_id = max(message.cur_step, 0), root_graph_of(message)
        self.root_id = self.root_id if root_id is None else root_id
        if self.identity.abilities.history:
            self.oldest = max(message.oldest_iteration, -1)
        self.hashes = received_hashes(message.hashes)
        node = wire.text(message.cur_node, wire.MOST_NAME)
        if (step, node) != (self.step, self.node):
            self.answers.begin_place()
        self.node = node
        if step != self.step:
            self._move(step)
        if root_id is not None:
            self.executions.note(self.iteration, root_id)
        hits, self._hits = self._hits, []
        await self.session.reported.take(self, hits)

    def _move(self, step: int) -> None:
        """Note that the process has done some steps."""
        self.executions.advance(self.step if self.step < step else max(step - 1, 0), step)
        self.step = step

    async def record_executions(self) -> None:
        """Write down which iterations have run; whoever calls holds the lock of the recorder."""
        stretches, done = self.executions.unrecorded()
        roots = self.graphs.root_ids
        if len(roots) == 1:
            stretches = [(done.start, done.stop, roots[0])]

        def record() -> None:
            with storing(self.recorder.folder):
                for first, end, root_id in stretches:
                    if root_id in roots:
                        self.recorder.record_executions(root_id, range(first, end))

        if stretches:
            await to_the_end(record)

    async def send_graph(self, chunks: AsyncIterator[Chunk], several: bool) -> EventReply:
        """Take in the graphs of the process."""
        where = f"rank {self.rank} of {self.session.name}"
        stream = GraphStream(self.recorder, several=several, settings=self.session.settings, where=where)
        try:
            received = await stream.receive(chunks)
            await self.session.take_graphs(self, received)
        except TensightError as error:
            self.remark = f"the graph was refused: {error}"
            self.set_state(self.state, self.remark)
            raise
        self.remark = self._version_remark
        self.set_state(self.state, self._remark_or_notice)
        return wire.ok()

    async def send_watchpoint_hits(self, items: AsyncIterator[WatchpointHit]) -> EventReply:
        """Take in hits; they count once the process stands still and asks what to do."""
        hits: list[ReceivedHit] = []
        senseless: wire.WireError | None = None
        async for item in items:
            if len(hits) <= MOST_HITS:
                try:
                    hits.append(wire.received_hit(item))
                except wire.WireError as error:
                    senseless = error
        if senseless is not None:
            self.session.warn(f"rank {self.rank} reported hits that make no sense: {senseless}")
        self.report([hit for hit in hits if hit.iteration is None])
        await self.session.reported.note(self, [hit for hit in hits if hit.iteration is not None])
        return wire.ok()

    def report(self, hits: list[ReceivedHit]) -> None:
        """Take in hits that the process reported."""
        if len(self._hits) + len(hits) > MOST_HITS:
            self.session.warn(f"rank {self.rank} reported more than {MOST_HITS:,} hits; the others are not shown")
        self._hits = (self._hits + hits)[:MOST_HITS]
        if hits and not self.watches_without_deciding:
            # It has decided that they are a reason to stop.
            self.session.conductor.stop_at_hits()

    def beat(self, period_s: int) -> None:
        """Take a heartbeat; the next is due after a period."""
        self._watchdog.beat(period_s)

    def poll(self, step: int) -> PollReply:
        """Tell the process, which runs, whether somebody wants it to stop."""
        if step > self.step:
            self._move(step)
            self.session.announce()
        conductor = self.session.conductor
        stops = self._wants_exit or not conductor.is_running or conductor.must_tell(self)
        return PollReply(pause=stops, exit=self._wants_exit)

    # --- what it is told ---

    def reply(self, command: EventReply) -> None:
        """Answer the process, if it waits."""
        waiting, self._waiting = self._waiting, None
        if waiting is not None and not waiting.done():
            waiting.set_result(command)

    def tell(self, line: str) -> None:
        """Have the process write a line to its terminal, as soon as it asks what to do; only for our agents."""
        self.lines.append(line)
        if self.is_waiting:
            self.session.advance()

    def exit(self) -> None:
        """Have the process end the training as soon as it asks what to do."""
        self._wants_exit = True
        self.queue.clear()
        if self.is_waiting:
            self.reply(self._exit_command())
            self.end(State.TERMINATED, "")
        elif self.is_live:
            self.remark = "ends as soon as it asks what to do"
            self.set_state(self.state, self.remark)

    def _exit_command(self) -> EventReply:
        """Return the command to end the training; the first of its processes says so at the terminal."""
        lines = [*self.lines, *([_TERMINATED] if self.rank == min(self.session.processes) else [])]
        self.lines.clear()
        return wire.exit_command("\n".join(lines))

    @property
    def wants_exit(self) -> bool:
        """Whether it is to be told to end."""
        return self._wants_exit

    def note(self, text: str) -> None:
        """Take what the process has to say to a person: it stays with the rank, also when the training has ended."""
        if text not in self._notices and len(self._notices) < _MOST_NOTICES:
            self._notices.append(text)
            self.session.warn(f"rank {self.rank}: {text}" if self.identity.world_size > 1 else text)
            self.set_state(self.state, self._remark_or_notice)
            self.session.announce(news=True)

    def note_over(self, text: str) -> None:
        """Take it that something which the process had to say is so no longer."""
        if text in self._notices:
            self._notices.remove(text)
            if self.message == text:
                self.set_state(self.state, self._remark_or_notice)
            self.session.announce(news=True)

    @property
    def _remark_or_notice(self) -> str:
        """What a person should know of the process while it lives: else the last that it reported itself."""
        return self.remark or (self._notices[-1] if self._notices else "")

    # --- coming and going ---

    def hear(self, caller: Caller) -> None:
        """Note that the process has said something."""
        self.last_seen = time.time()
        if self._grace is not None:
            self._grace.cancel()
            self._grace = None
        # An agent may use several connections at once; MindSpore's own client has a new one only if the old one broke.
        if not self.is_connected or (not self.identity.is_agent and caller != self.caller):
            # With it a reply may have been lost.
            self._doubt()
        self.caller = caller
        self.is_connected = True
        if self.state is State.LOST:
            self.set_state(State.RUNNING if self.graphs.graphs else State.CONNECTING, self._remark_or_notice)
            self.session.returned()
        elif self.is_live:
            self.set_state(self.state, self._remark_or_notice)
        if self.is_live:
            self._presence.watch()

    def come_back(self, step: int, offset: int, node: str, root_id: int | None, sent: Iterable[int]) -> None:
        """Stand where the process stood when an earlier server last heard of it."""
        self.step, self.offset, self.node, self.root_id = step, offset, node, root_id
        # Whether it has its watchpoints is not certain.
        self.sent = dict.fromkeys(sent)
        self.is_connected = False

    def still_answers(self) -> None:
        """Note that a piece of an answer has come."""
        self.last_answer = time.monotonic()

    def disconnect(self) -> None:
        """Note that a call of the process broke off; it has some time to come back."""
        self.reply(wire.failed("the connection broke; ask again"))
        if not self.is_live or not self.is_connected or self.session.is_closing:
            return
        self.is_connected = False
        self._doubt()
        self.questions.close(UnavailableError("the connection to the training process broke"))
        patience_s = self.session.settings.lost_after_s
        self.set_state(self.state, f"the connection broke; the process has {patience_s:g} s to come back")
        why = f"the connection broke, and the process did not come back in {patience_s:g} s"
        self._grace = asyncio.get_running_loop().call_later(patience_s, self.lose, why)
        self.session.left(self)

    def finish(self, step: int = 0) -> None:
        """Note that the training has ended by itself; agents say after which step."""
        if self.identity.is_agent and step > self.step:
            self._move(step)
        self.end(State.TERMINATED if self._wants_exit else State.FINISHED, "")

    def lose(self, why: str) -> None:
        """Give the process up; it may come back all the same."""
        if self.is_live:
            self.reply(wire.failed(why))
            self.end(State.TERMINATED if self._wants_exit else State.LOST, why)

    def end(self, state: State, message: str) -> None:
        """Note that nothing more is expected of the process."""
        self.stop_timers()
        # One that is lost may only be silent.
        self.is_connected = self.is_connected and state is State.LOST
        self.queue.clear()
        gone = UnavailableError("the training process has ended, and the value was not kept")
        self.questions.close(gone)
        self.questions.refuse(gone)
        if self.state is not State.TERMINATED:
            self.set_state(state, message or self._at_end(state))
        if self._hits:
            self.session.later(self._note_last_hits())
        self.session.left(self)

    def _at_end(self, state: State) -> str:
        """Return what a person should know of a training that has ended by itself."""
        if self._notices:
            return self._notices[-1]
        return _NO_STEP if state is State.FINISHED and not self.step and self.identity.is_agent else ""

    async def _note_last_hits(self) -> None:
        """Note the hits of a process that ended before it arrived anywhere with them: they may say why."""
        if self.released == self.place:
            self._move(self.step + 1)
        hits, self._hits = self._hits, []
        await self.session.reported.take(self, hits)
        self.session.announce(news=True)

    def stop_timers(self) -> None:
        """Stop watching the process."""
        self._watchdog.stop()
        self._presence.stop()
        if self._grace is not None:
            self._grace.cancel()
            self._grace = None

    def set_state(self, state: State, message: str | None = None) -> None:
        """Note what the process is doing, and tell the clients if that is news."""
        message = self.message if message is None else message
        if (state, message) != (self.state, self.message):
            self.state, self.message = state, message
            self.session.events.append("rank", **self.record().model_dump(mode="json"))

    def _miss_heartbeats(self) -> None:
        self.lose("three heartbeats in a row are missing; the process, or the network to it, is gone")

    def _miss(self) -> None:
        # While it speaks, what is not there is another one that had its number: numbers of a container are its own.
        if not self.is_waiting and time.time() - self.last_seen >= _SILENT_S:
            self.lose("the process has ended without a word: it was killed, or it crashed")

    def _doubt(self) -> None:
        """Forget what the process has been told for certain."""
        self.sent = dict.fromkeys(self.sent)
        self.prepared = self.preparing = None
        self.queue.clear()
        self.session.conductor.forget(self)
