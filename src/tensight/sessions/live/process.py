"""A training process: a handler for each of its messages, and the commands sent to it.

All handlers run in the event loop. A handler whose stream breaks off leaves the state unchanged.
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
from tensight.sessions.live.executions import Executions
from tensight.sessions.live.graph_stream import GraphStream
from tensight.sessions.live.heartbeat import Watchdog
from tensight.sessions.live.identity import closer_command, root_graph_of
from tensight.sessions.live.live_origins import lost_weights
from tensight.sessions.live.orders import StopState
from tensight.sessions.live.pending_requests import PendingRequests
from tensight.sessions.live.presence import Presence
from tensight.sessions.live.rank_graphs import RankGraphs
from tensight.sessions.live.rank_hashes import received_hashes
from tensight.sessions.live.recording import storing
from tensight.sessions.live.responses import RequestingSession, Responses
from tensight.sessions.live.shielded import shielded_in_thread
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
"""A running process sends messages more often than this."""


def _replaced() -> EventReply:
    return wire.failed("another WaitCMD of the same process replaced this one")


_MOST_KEPT = 100_000
"""Iterations before the current one of which a process may keep values."""

_MOST_NOTICES = 20
_NO_STEP = "the training ended before a step was counted, so nothing was checked"


class ProcessController(Protocol):
    """Decides when a process continues; see `RunController`."""

    generation: int

    def forget(self, process: TrainingProcess) -> None:
        """Note that a process may not have received its command."""

    def must_tell(self, process: TrainingProcess) -> bool:
        """Return whether a running process must stop to receive changed watchpoints."""

    def stop_at_hits(self) -> None:
        """Stop all ranks at their next stop, because one has hits."""

    @property
    def is_running(self) -> bool:
        """Whether the processes train or check something."""

    def stop(self) -> None:
        """Stop all processes at their next stop."""


class HitTaker(Protocol):
    """Stores the hits of a process; see `ReportedHits`."""

    async def take(self, process: TrainingProcess, received: Sequence[ReceivedHit]) -> None:
        """Note that a process has stopped, and add the hits that it reported before."""

    async def note(self, process: TrainingProcess, received: Sequence[ReceivedHit]) -> None:
        """Add hits at which a process did not stop."""


class ProcessOwner(RequestingSession, Protocol):
    """The part of a session that its processes need; see `LiveSession`."""

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
        """The processes that have not ended."""

    @property
    def run_controller(self) -> ProcessController:
        """Sends commands to the processes."""

    @property
    def reported(self) -> HitTaker:
        """Stores their hits."""

    def advance(self) -> None:
        """Send waiting processes their next commands."""

    def announce(self, *, news: bool = False) -> None:
        """Tell the clients the state of the session."""

    def warn(self, text: str) -> None:
        """Send a warning to the clients."""

    def warn_of(self, error: TensightError, who: str = "") -> bool:
        """Send an error to the clients as a warning; return whether it was sent."""

    def later(self, work: Coroutine[Any, Any, None]) -> None:
        """Schedule work that must complete before the session is closed."""

    def begin(self, process: TrainingProcess) -> None:
        """Greet an attached process, and start the training if it does not wait for a user."""

    def left(self, process: TrainingProcess) -> None:
        """Note that a process has ended, or may have."""

    def returned(self) -> None:
        """Note that a process that was given up has reconnected."""

    async def take_graphs(self, process: TrainingProcess, received: ReceivedGraphs) -> None:
        """Add the received graphs of a process."""


class TrainingProcess:
    """A training process as the server sees it.

    Parameters
    ----------
    session : ProcessOwner
    identity : Identity
    caller : Caller
    recorder : RankRecorder
        Recorder of its rank; graphs that it has already become the graphs of the process.

    Attributes
    ----------
    state : State
    message : str
        Message about it for users.
    remark : str
        Message for users while it is live; precedes its own notices.
    step : int
        Number of completed steps.
    offset : int
        Steps that the other ranks of its run had completed when it joined them.
    executions : Executions
        The graphs that ran in its iterations.
    node : str
        Full name of the operator at which it is stopped, if it stops at operators.
    root_id : int or None
        Number of the root graph in which it is stopped.
    hashes : dict of ComparedTensor to int
        Hashes, at the current stop, of tensors that are compared between ranks.
    graphs : RankGraphs
    graph_bytes : dict of str to int
        Sizes of the graphs as they were sent, by name.
    sent : dict of int to Signature
        The watchpoints that it has; the signature is None if that is uncertain.
    prepared : int or None
        Version of the session's watchpoints for which it has all changes, or has them in its queue.
    knows_held : bool
        Whether the process knows that it is stopped by a user or at a hit, and not only waiting for commands.
    preparing : Task or None
        Determines the changes of watchpoints to send.
    has_unchecked : bool
        Whether it received watchpoints that have not been checked on the initial values.
    released : int or None
        The global step from which it last continued.
    queue : deque of EventReply
        Commands that are sent before others.
    lines : deque of str
        Lines for its terminal, which are sent before the queue.
    recording : Lock
        Held while its recorder is in use.
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
        self._oldest: int | None = None
        self.closer_since: int | None = None
        self.lost_weights: tuple[str, ...] = ()
        self.hashes: dict[ComparedTensor, int] = {}
        self.graphs = RankGraphs(recorder.graphs, recorder.order)
        self.graph_bytes: dict[str, int] = {}
        self.requests = PendingRequests(knows_graphs=identity.is_agent)
        self.responses = Responses(self)
        self.sent: dict[int, Signature | None] = {}
        self.prepared: int | None = None
        self.knows_held = False
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

    # --- state ---

    @property
    def rank(self) -> int:
        """Its rank."""
        return self.identity.rank

    @property
    def global_step(self) -> int:
        """Its step as counted by all ranks of the run together."""
        return self.step + self.offset

    @property
    def done(self) -> int:
        """Completed steps: `global_step` without the step within which an agent is stopped at an operator."""
        return self.global_step - (self.identity.is_agent and bool(self.node))

    @property
    def iteration(self) -> int:
        """The iteration whose values it has; -1 before the first."""
        return iteration_of(self.step)

    @property
    def oldest(self) -> int | None:
        """The oldest iteration of which it keeps values, if it keeps any; it may claim more than it can have."""
        return None if self._oldest is None else max(self._oldest, self.iteration - _MOST_KEPT)

    @property
    def is_live(self) -> bool:
        """Whether it has not ended."""
        return not self.state.has_ended

    @property
    def is_waiting(self) -> bool:
        """Whether it waits for a command now."""
        return self._waiting is not None

    @property
    def watches_without_deciding(self) -> bool:
        """Whether it reports hits, and leaves the decision to stop to the session."""
        return not self.identity.is_agent

    @property
    def is_alone(self) -> bool:
        """Whether its run has no other ranks."""
        return self.identity.world_size == 1 and self.session.live == [self]

    @property
    def stop_state(self) -> StopState:
        """Its stop state, without its task in the plan of the run."""
        return StopState(
            global_step=self.global_step,
            step=self.step,
            state=self.state,
            released=self.released,
            is_waiting=self.is_waiting,
            wants_exit=self.wants_exit,
            has_lines=bool(self.lines),
            has_queue=bool(self.queue),
            version=self.prepared,
            has_unchecked=self.has_unchecked,
            task="",
        )

    def record(self) -> RankRecord:
        """Return the record of the process."""
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
        """Return the data needed to recognise it after a restart of the server."""
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
        """Release the graphs when the session is closed."""
        self.graphs = RankGraphs()
        self.recorder.forget_graphs()

    @property
    def closer_command(self) -> str:
        """The command of another run that captures every operator, if this one does not and cannot find more itself."""
        is_over = self.lost_weights or not self.is_live
        return closer_command(self.identity.command) if self.identity.abilities.closer and is_over else ""

    def capture_operators(self) -> None:
        """Queue the command to capture every operator from the next step on."""
        abilities = replace(self.identity.abilities, nodes=True, run_to_node=True, closer=False)
        self.identity = replace(self.identity, abilities=abilities)
        self.closer_since = self.iteration + 1
        self.queue.append(wire.capture_operators())

    # --- handlers, one for each message; those for tensors are in `responses` ---

    def announce(self, message: Metadata, identity: Identity | None = None) -> EventReply:
        """Handle the announcement of the process; reply whether its version is supported."""
        if message.training_done:
            self.finish(message.cur_step)
            return wire.version_reply(True)
        if identity is not None and identity.is_agent:
            # Its options may have changed; its rank and job stay the same.
            self.identity = replace(identity, rank=self.identity.rank, job=self.identity.job)
            if identity.abilities.closer and not self.queue:
                # It never received the command, because the server was restarted before.
                self.closer_since = None
        check = wire.check_metadata(message)
        self._expects_graphs = not message.HasField("process") or message.graph_num > 0
        self.root_id = root_graph_of(message)
        # It may no longer have what was sent before.
        self._invalidate_sent()
        if self.identity.is_agent and self.identity.run_at_start and message.cur_step > 0:
            self._goes_on_from(message.cur_step)
        self.remark = self._version_remark = check.message
        self.set_state(State.CONNECTING if check.matched else State.MISMATCH, check.message)
        return wire.version_reply(check.matched, check.message)

    async def wait_cmd(self, message: Metadata) -> EventReply:
        """Return the next command for the stopped process as soon as there is one."""
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
        self.requests.close(UnavailableError("the process went on without an answer"))
        self.reply(_replaced())
        self._calls += 1
        call = self._calls
        await self._arrive(message)
        if call != self._calls:
            # It has asked again meanwhile, over another connection; only the latest call is answered.
            return _replaced()
        self.reply(_replaced())
        waiting: asyncio.Future[EventReply] = asyncio.get_running_loop().create_future()
        self._waiting = self._latest = waiting
        self.session.advance()
        try:
            return await waiting
        except asyncio.CancelledError:
            # It may have reconnected before the broken connection was noticed.
            if self._latest is waiting:
                self.disconnect()
            raise

    def _goes_on_from(self, step: int) -> None:
        """Note that the process is running in mid-training, so that other ranks do not wait for it at this step."""
        if self.released is None and self.step == 0:
            # Its own count includes the steps before it joined the others.
            self.offset = max((other.offset for other in self.session.live if other is not self), default=0)
        self.step = step
        self.released = self.global_step

    async def _arrive(self, message: Metadata) -> None:
        """Note where the process is stopped, and process the hits that it sent before."""
        step, root_id = max(message.cur_step, 0), root_graph_of(message)
        self.root_id = self.root_id if root_id is None else root_id
        if self.identity.abilities.history:
            self._oldest = max(message.oldest_iteration, -1)
        self.hashes = received_hashes(message.hashes)
        node = wire.text(message.cur_node, wire.MOST_NAME)
        if (step, node) != (self.step, self.node):
            self.responses.begin_stop()
        self.node = node
        if step != self.step:
            self._move(step)
        if root_id is not None:
            self.executions.note(self.iteration, root_id)
        hits, self._hits = self._hits, []
        if self.identity.abilities.closer:
            store = self.session.recording.statistics
            self.lost_weights = await asyncio.to_thread(lost_weights, store, self.rank, self.iteration, self.graphs)
        await self.session.reported.take(self, hits)

    def _move(self, step: int) -> None:
        """Note that the process has completed steps."""
        self.executions.advance(self.step if self.step < step else max(step - 1, 0), step)
        self.step = step

    async def record_executions(self) -> None:
        """Record the completed iterations; the caller holds the lock `recording`."""
        stretches, done = self.executions.unrecorded()
        if not self.executions.are_listed:
            with storing(self.recorder.folder):
                self.recorder.forget_executions()
            return
        roots = self.graphs.root_ids
        if len(roots) == 1:
            stretches = [(done.start, done.stop, roots[0])]

        def record() -> None:
            with storing(self.recorder.folder):
                for first, end, root_id in stretches:
                    if root_id in roots:
                        self.recorder.record_executions(root_id, range(first, end))

        if stretches:
            await shielded_in_thread(record)

    async def send_graph(self, chunks: AsyncIterator[Chunk], several: bool) -> EventReply:
        """Receive graphs of the process."""
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
        """Receive hits; hits without an iteration count when the process stops and asks for a command."""
        hits: list[ReceivedHit] = []
        senseless: wire.WireError | None = None
        async for item in items:
            if len(hits) <= MOST_HITS:
                try:
                    hits.append(wire.received_hit(item))
                except wire.WireError as error:
                    senseless = error
        if senseless is not None:
            self.session.warn(f"rank {self.rank} reported invalid hits: {senseless}")
        self.report([hit for hit in hits if hit.iteration is None])
        await self.session.reported.note(self, [hit for hit in hits if hit.iteration is not None])
        return wire.ok()

    def report(self, hits: list[ReceivedHit]) -> None:
        """Queue hits until the process stops."""
        if len(self._hits) + len(hits) > MOST_HITS:
            self.session.warn(f"rank {self.rank} reported more than {MOST_HITS:,} hits; the others are not shown")
        self._hits = (self._hits + hits)[:MOST_HITS]
        if hits and not self.watches_without_deciding:
            # The process has decided to stop because of them.
            self.session.run_controller.stop_at_hits()

    def heartbeat(self, period_s: int) -> None:
        """Handle a heartbeat; the next is due after a period."""
        self._watchdog.heartbeat(period_s)

    def poll(self, step: int) -> PollReply:
        """Return whether the running process shall stop or end, and what it writes to its terminal."""
        if step > self.step:
            self._move(step)
            self.session.announce()
        run_controller = self.session.run_controller
        stops = self._wants_exit or not run_controller.is_running or run_controller.must_tell(self)
        lines = [wire.encoded(self.lines.popleft()) for _ in range(len(self.lines))]
        return PollReply(pause=stops, exit=self._wants_exit, lines=lines)

    # --- commands ---

    def reply(self, command: EventReply) -> None:
        """Reply to the process, if it waits."""
        waiting, self._waiting = self._waiting, None
        if waiting is not None and not waiting.done():
            waiting.set_result(command)

    def tell(self, line: str) -> None:
        """Queue a line that the process writes to its terminal when it polls next; for our agents only."""
        self.lines.append(line)
        if self.is_waiting:
            self.session.advance()

    def exit(self) -> None:
        """End the training as soon as the process asks for a command."""
        self._wants_exit = True
        self.queue.clear()
        if self.is_waiting:
            self.reply(self._exit_command())
            self.end(State.TERMINATED, "")
        elif self.is_live:
            self.remark = "ends as soon as it asks what to do"
            self.set_state(self.state, self.remark)

    def _exit_command(self) -> EventReply:
        """Return the command to end the training; the process with the lowest rank writes so to the terminal."""
        lines = [*self.lines, *([_TERMINATED] if self.rank == min(self.session.processes) else [])]
        self.lines.clear()
        return wire.exit_command("\n".join(lines))

    @property
    def wants_exit(self) -> bool:
        """Whether it shall end."""
        return self._wants_exit

    def note(self, text: str) -> None:
        """Add a notice from the process for users; it stays with the rank, even after the training has ended."""
        if text not in self._notices and len(self._notices) < _MOST_NOTICES:
            self._notices.append(text)
            self.session.warn(f"rank {self.rank}: {text}" if self.identity.world_size > 1 else text)
            self.set_state(self.state, self._remark_or_notice)
            self.session.announce(news=True)

    def note_over(self, text: str) -> None:
        """Remove a notice that no longer applies."""
        if text in self._notices:
            self._notices.remove(text)
            if self.message == text:
                self.set_state(self.state, self._remark_or_notice)
            self.session.announce(news=True)

    @property
    def _remark_or_notice(self) -> str:
        """Message for users while the process is live: the remark, or else its latest notice."""
        return self.remark or (self._notices[-1] if self._notices else "")

    # --- connection ---

    def hear(self, caller: Caller) -> None:
        """Note that the process has called."""
        self.last_seen = time.time()
        if self._grace is not None:
            self._grace.cancel()
            self._grace = None
        # An agent may use several connections; MindSpore's own client opens a new one only if the old one broke.
        if not self.is_connected or (not self.identity.is_agent and caller != self.caller):
            # A reply may have been lost with the connection.
            self._invalidate_sent()
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
        """Restore the state in which an earlier server last saw the process."""
        self.step, self.offset, self.node, self.root_id = step, offset, node, root_id
        # It is uncertain whether it still has its watchpoints.
        self.sent = dict.fromkeys(sent)
        self.is_connected = False

    def note_alive(self) -> None:
        """Note that a part of a response has arrived."""
        self.last_answer = time.monotonic()

    def disconnect(self) -> None:
        """Note that the connection broke; the process has some time to reconnect."""
        self.reply(wire.failed("the connection broke; ask again"))
        if not self.is_live or not self.is_connected or self.session.is_closing:
            return
        self.is_connected = False
        self._invalidate_sent()
        self.requests.close(UnavailableError("the connection to the training process broke", code="training-silent"))
        patience_s = self.session.settings.lost_after_s
        self.set_state(self.state, f"the connection broke; the process has {patience_s:g} s to come back")
        why = f"the connection broke, and the process did not come back in {patience_s:g} s"
        self._grace = asyncio.get_running_loop().call_later(patience_s, self.lose, why)
        self.session.left(self)

    def finish(self, step: int = 0) -> None:
        """Note that the training has ended; agents report after which step."""
        if self.identity.is_agent and step > self.step:
            self._move(step)
        self.end(State.TERMINATED if self._wants_exit else State.FINISHED, "")

    def lose(self, why: str) -> None:
        """Give the process up; it may still reconnect."""
        if self.is_live:
            self.reply(wire.failed(why))
            self.end(State.TERMINATED if self._wants_exit else State.LOST, why)

    def end(self, state: State, message: str) -> None:
        """Note that the process has ended."""
        self.stop_timers()
        # A lost process may still be connected.
        self.is_connected = self.is_connected and state is State.LOST
        self.queue.clear()
        gone = UnavailableError("the training process has ended, and the value was not kept")
        self.requests.close(gone)
        self.requests.refuse(gone)
        if self.state is not State.TERMINATED:
            self.set_state(state, message or self._at_end(state))
        if self._hits:
            self.session.later(self._note_last_hits())
        self.session.left(self)

    def _at_end(self, state: State) -> str:
        """Return the message for users about an ended training."""
        if self._notices:
            return self._notices[-1]
        return _NO_STEP if state is State.FINISHED and not self.step and self.identity.is_agent else ""

    async def _note_last_hits(self) -> None:
        """Process the hits of a process that ended before its next stop: they may explain why it ended."""
        if self.released == self.global_step:
            self._move(self.step + 1)
        hits, self._hits = self._hits, []
        await self.session.reported.take(self, hits)
        self.session.announce(news=True)

    def stop_timers(self) -> None:
        """Stop all timers that watch the process."""
        self._watchdog.stop()
        self._presence.stop()
        if self._grace is not None:
            self._grace.cancel()
            self._grace = None

    def set_state(self, state: State, message: str | None = None) -> None:
        """Set state and message, and tell the clients if they have changed."""
        message = self.message if message is None else message
        if (state, message) != (self.state, self.message):
            self.state, self.message = state, message
            self.session.events.append("rank", **self.record().model_dump(mode="json"))

    def _miss_heartbeats(self) -> None:
        self.lose("three heartbeats in a row are missing; the process, or the network to it, is gone")

    def _miss(self) -> None:
        # A process in a container has ids of its own: while it keeps calling, the missing id is another process's.
        if not self.is_waiting and time.time() - self.last_seen >= _SILENT_S:
            self.lose("the process has ended unexpectedly: it was killed, or it crashed")

    def _invalidate_sent(self) -> None:
        """Mark everything sent to the process as uncertain."""
        self.sent = dict.fromkeys(self.sent)
        self.prepared = self.preparing = None
        self.knows_held = False
        self.queue.clear()
        self.session.run_controller.forget(self)
