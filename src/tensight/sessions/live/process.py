"""A training process: a handler for each of its messages, and the commands sent to it.

All handlers run in the event loop. A handler whose stream breaks off leaves the state unchanged.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from tensight import wire
from tensight.errors import TensightError
from tensight.sessions.errors import UnavailableError
from tensight.sessions.live.connection import ProcessConnection
from tensight.sessions.live.graph_stream import GraphStream
from tensight.sessions.live.identity import closer_command, root_graph_of
from tensight.sessions.live.live_origins import lost_weights
from tensight.sessions.live.orders import StopState
from tensight.sessions.live.outgoing import Outgoing
from tensight.sessions.live.pending_requests import PendingRequests
from tensight.sessions.live.progress import Progress
from tensight.sessions.live.rank_graphs import RankGraphs
from tensight.sessions.live.recording import storing
from tensight.sessions.live.responses import RequestingSession, Responses
from tensight.sessions.live.shielded import shielded_in_thread
from tensight.sessions.live.watching import MOST_HITS
from tensight.sessions.records import RankRecord, State
from tensight.wire.telemetry_pb2 import PollReply

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence

    from tensight.dumps.recorder import RankRecorder
    from tensight.sessions.events import EventLog
    from tensight.sessions.live.graph_stream import ReceivedGraphs
    from tensight.sessions.live.identity import Identity
    from tensight.sessions.live.settings import Caller, LiveSettings
    from tensight.wire import ReceivedHit
    from tensight.wire.debugger_pb2 import Chunk, EventReply, Metadata, WatchpointHit

_TERMINATED = "terminated from the debug server"
_MOST_NOTICES = 20
_NO_STEP = "the training ended before a step was counted, so nothing was checked"


class ProcessController(Protocol):
    """Decides when a process continues; see `RunController`."""

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


class Remarks:
    """The line that users see for a live process: a remark of the server, or else its latest notice.

    Attributes
    ----------
    current : str
        The remark.
    of_version : str
        The remark on the version of the process, which others replace for a while.
    notices : list of str
        They stay with the rank, even after the training has ended.
    """

    def __init__(self) -> None:
        self.current = ""
        self.of_version = ""
        self.notices: list[str] = []

    @property
    def latest_notice(self) -> str:
        """The latest notice; empty if there is none."""
        return self.notices[-1] if self.notices else ""

    @property
    def text(self) -> str:
        """The remark or notice."""
        return self.current or self.latest_notice


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
    remarks : Remarks
        What the message is while it is live.
    progress : Progress
        Its steps, and where it is stopped.
    graphs : RankGraphs
    requests : PendingRequests
    responses : Responses
    outgoing : Outgoing
        What it was sent, and what it is sent next.
    connection : ProcessConnection
    closer_since : int or None
        The first iteration in which it captures every operator, on demand.
    recording : Lock
        Held while its recorder is in use.
    """

    def __init__(self, session: ProcessOwner, identity: Identity, caller: Caller, recorder: RankRecorder) -> None:
        self.session = session
        self.identity = identity
        self.recorder = recorder
        self.state = State.CONNECTING
        self.message = ""
        self.remarks = Remarks()
        self.progress = Progress()
        self.graphs = RankGraphs(recorder.graphs, recorder.order)
        self.requests = PendingRequests(knows_graphs=identity.is_agent)
        self.responses = Responses(self)
        self.outgoing = Outgoing()
        self.connection = ProcessConnection(caller, identity, self.lose, session.settings.heartbeat_second_s)
        self.closer_since: int | None = None
        self.recording = asyncio.Lock()
        self._expects_graphs = True
        self._hits: list[ReceivedHit] = []

    # --- state ---

    @property
    def rank(self) -> int:
        """Its rank."""
        return self.identity.rank

    @property
    def done(self) -> int:
        """Completed steps: the global step without the step within which an agent is stopped at an operator."""
        return self.progress.global_step - (self.identity.is_agent and bool(self.progress.node))

    @property
    def is_live(self) -> bool:
        """Whether it has not ended."""
        return not self.state.has_ended

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
        progress, outgoing = self.progress, self.outgoing
        return StopState(
            global_step=progress.global_step,
            step=progress.step,
            state=self.state,
            released=progress.released,
            is_waiting=self.connection.is_waiting,
            wants_exit=outgoing.wants_exit,
            has_lines=bool(outgoing.lines),
            has_queue=bool(outgoing.queue),
            version=outgoing.prepared,
            has_unchecked=outgoing.has_unchecked,
            task="",
        )

    def record(self) -> RankRecord:
        """Return the record of the process."""
        root = self.graphs.graph_of_root(self.progress.root_id)
        return RankRecord(
            rank=self.rank,
            state=self.state,
            step=self.progress.step,
            node=self.progress.node,
            graph=root.name if root else "",
            graphs=tuple(graph.name for graph in self.graphs.graphs),
            address=self.connection.caller.address,
            device=self.identity.device,
            process_id=self.identity.process_id,
            last_seen=self.connection.last_seen,
            message=self.message,
        )

    def as_json(self) -> dict[str, Any]:
        """Return the data needed to recognise it after a restart of the server."""
        return {
            "identity": self.identity.as_json(),
            "address": self.connection.caller.address,
            "state": self.state.value,
            "is_live": self.is_live or self.state is State.LOST,
            **self.progress.as_json(),
            "sent": sorted(self.outgoing.sent),
            "closer_since": self.closer_since,
        }

    def forget_graphs(self) -> None:
        """Release the graphs when the session is closed."""
        self.graphs = RankGraphs()
        self.recorder.forget_graphs()

    @property
    def closer_command(self) -> str:
        """The command of another run that captures every operator, if this one does not and cannot find more itself."""
        is_over = self.progress.lost_weights or not self.is_live
        return closer_command(self.identity.command) if self.identity.abilities.closer and is_over else ""

    def capture_operators(self) -> None:
        """Queue the command to capture every operator from the next step on."""
        abilities = replace(self.identity.abilities, nodes=True, run_to_node=True, closer=False)
        self.identity = replace(self.identity, abilities=abilities)
        self.closer_since = self.progress.iteration + 1
        self.outgoing.queue.append(wire.capture_operators())

    # --- handlers, one for each message; those for tensors are in `responses` ---

    def announce(self, message: Metadata, identity: Identity | None = None) -> EventReply:
        """Handle the announcement of the process; reply whether its version is supported."""
        if message.training_done:
            self.finish(message.cur_step)
            return wire.version_reply(True)
        if identity is not None and identity.is_agent:
            # Its options may have changed; its rank and job stay the same.
            self.identity = replace(identity, rank=self.identity.rank, job=self.identity.job)
            if identity.abilities.closer and not self.outgoing.queue:
                # It never received the command, because the server was restarted before.
                self.closer_since = None
        check = wire.check_metadata(message)
        self._expects_graphs = not message.HasField("process") or message.graph_num > 0
        self.progress.root_id = root_graph_of(message)
        # It may no longer have what was sent before.
        self._invalidate()
        if self.identity.is_agent and self.identity.run_at_start and message.cur_step > 0:
            self._goes_on_from(message.cur_step)
        self.remarks.current = self.remarks.of_version = check.message
        self.set_state(State.CONNECTING if check.matched else State.MISMATCH, check.message)
        return wire.version_reply(check.matched, check.message)

    async def wait_cmd(self, message: Metadata) -> EventReply:
        """Return the next command for the stopped process as soon as there is one."""
        if message.training_done:
            self.finish(message.cur_step)
            return wire.exit_command("the training is done")
        if self.outgoing.wants_exit:
            self.end(State.TERMINATED, "")
            return self._exit_command()
        if self.state is not State.MISMATCH and self._expects_graphs and not self.graphs.graphs:
            return wire.failed("no graph has arrived; send the graph before asking for commands")
        if not self.is_live:
            self.set_state(State.RUNNING, self.remarks.text)
        self.requests.close(UnavailableError("the process went on without an answer"))
        call = self.connection.begin_call()
        await self._arrive(message)
        try:
            return await self.connection.wait(call, self.session.advance)
        except asyncio.CancelledError:
            # It may have reconnected before the broken connection was noticed.
            if self.connection.is_latest(call):
                self.disconnect()
            raise

    def _goes_on_from(self, step: int) -> None:
        """Note that the process is running in mid-training, so that other ranks do not wait for it at this step."""
        progress = self.progress
        if progress.released is None and progress.step == 0:
            # Its own count includes the steps before it joined the others.
            others = (other.progress.offset for other in self.session.live if other is not self)
            progress.offset = max(others, default=0)
        progress.step = step
        progress.released = progress.global_step

    async def _arrive(self, message: Metadata) -> None:
        """Note where the process is stopped, and process the hits that it sent before."""
        progress, abilities = self.progress, self.identity.abilities
        if progress.arrive(message, has_history=abilities.history):
            self.responses.begin_stop()
        hits, self._hits = self._hits, []
        if abilities.closer:
            store = self.session.recording.statistics
            progress.lost_weights = await asyncio.to_thread(
                lost_weights, store, self.rank, progress.iteration, self.graphs
            )
        await self.session.reported.take(self, hits)

    async def record_executions(self) -> None:
        """Record the completed iterations; the caller holds the lock `recording`."""
        stretches, done = self.progress.executions.unrecorded()
        if not self.progress.executions.are_listed:
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
            self.remarks.current = f"the graph was refused: {error}"
            self.set_state(self.state, self.remarks.current)
            raise
        self.remarks.current = self.remarks.of_version
        self.set_state(self.state, self.remarks.text)
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

    def poll(self, step: int) -> PollReply:
        """Return whether the running process shall stop or end, and what it writes to its terminal."""
        if step > self.progress.step:
            self.progress.move(step)
            self.session.announce()
        run_controller = self.session.run_controller
        stops = self.outgoing.wants_exit or not run_controller.is_running or run_controller.must_tell(self)
        lines = [wire.encoded(self.outgoing.lines.popleft()) for _ in range(len(self.outgoing.lines))]
        return PollReply(pause=stops, exit=self.outgoing.wants_exit, lines=lines)

    # --- commands ---

    def tell(self, line: str) -> None:
        """Queue a line that the process writes to its terminal when it polls next; for our agents only."""
        self.outgoing.lines.append(line)
        if self.connection.is_waiting:
            self.session.advance()

    def exit(self) -> None:
        """End the training as soon as the process asks for a command."""
        self.outgoing.wants_exit = True
        self.outgoing.queue.clear()
        if self.connection.is_waiting:
            self.connection.reply(self._exit_command())
            self.end(State.TERMINATED, "")
        elif self.is_live:
            self.remarks.current = "ends as soon as it asks what to do"
            self.set_state(self.state, self.remarks.current)

    def _exit_command(self) -> EventReply:
        """Return the command to end the training; the process with the lowest rank writes so to the terminal."""
        lines = [*self.outgoing.lines, *([_TERMINATED] if self.rank == min(self.session.processes) else [])]
        self.outgoing.lines.clear()
        return wire.exit_command("\n".join(lines))

    def note(self, text: str) -> None:
        """Add a notice from the process for users; it stays with the rank, even after the training has ended."""
        if text not in self.remarks.notices and len(self.remarks.notices) < _MOST_NOTICES:
            self.remarks.notices.append(text)
            self.session.warn(f"rank {self.rank}: {text}" if self.identity.world_size > 1 else text)
            self.set_state(self.state, self.remarks.text)
            self.session.announce(news=True)

    def note_over(self, text: str) -> None:
        """Remove a notice that no longer applies."""
        if text in self.remarks.notices:
            self.remarks.notices.remove(text)
            if self.message == text:
                self.set_state(self.state, self.remarks.text)
            self.session.announce(news=True)

    # --- connection ---

    def hear(self, caller: Caller) -> None:
        """Note that the process has called."""
        connection = self.connection
        # An agent may use several connections; MindSpore's own client opens a new one only if the old one broke.
        if not connection.is_open or (not self.identity.is_agent and caller != connection.caller):
            # A reply may have been lost with the connection.
            self._invalidate()
        connection.hear(caller)
        if self.state is State.LOST:
            self.set_state(State.RUNNING if self.graphs.graphs else State.CONNECTING, self.remarks.text)
            self.session.returned()
        elif self.is_live:
            self.set_state(self.state, self.remarks.text)
        if self.is_live:
            connection.watch()

    def disconnect(self) -> None:
        """Note that the connection broke; the process has some time to reconnect."""
        self.connection.reply(wire.failed("the connection broke; ask again"))
        if not self.is_live or not self.connection.is_open or self.session.is_closing:
            return
        self._invalidate()
        self.requests.close(UnavailableError("the connection to the training process broke", code="training-silent"))
        patience_s = self.session.settings.lost_after_s
        self.connection.break_off(patience_s)
        self.set_state(self.state, f"the connection broke; the process has {patience_s:g} s to come back")
        self.session.left(self)

    def finish(self, step: int = 0) -> None:
        """Note that the training has ended; agents report after which step."""
        if self.identity.is_agent and step > self.progress.step:
            self.progress.move(step)
        self.end(State.TERMINATED if self.outgoing.wants_exit else State.FINISHED, "")

    def lose(self, why: str) -> None:
        """Give the process up; it may still reconnect."""
        if self.is_live:
            self.connection.reply(wire.failed(why))
            self.end(State.TERMINATED if self.outgoing.wants_exit else State.LOST, why)

    def end(self, state: State, message: str) -> None:
        """Note that the process has ended."""
        self.connection.stop()
        # A lost process may still be connected.
        self.connection.is_open = self.connection.is_open and state is State.LOST
        self.outgoing.queue.clear()
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
        nothing_counted = state is State.FINISHED and not self.progress.step and self.identity.is_agent
        return self.remarks.latest_notice or (_NO_STEP if nothing_counted else "")

    async def _note_last_hits(self) -> None:
        """Process the hits of a process that ended before its next stop: they may explain why it ended."""
        if self.progress.released == self.progress.global_step:
            self.progress.move(self.progress.step + 1)
        hits, self._hits = self._hits, []
        await self.session.reported.take(self, hits)
        self.session.announce(news=True)

    def set_state(self, state: State, message: str | None = None) -> None:
        """Set state and message, and tell the clients if they have changed."""
        message = self.message if message is None else message
        if (state, message) != (self.state, self.message):
            self.state, self.message = state, message
            self.session.events.append("rank", **self.record().model_dump(mode="json"))

    def _invalidate(self) -> None:
        """Note that the process may not have received what was sent to it."""
        self.outgoing.invalidate()
        self.session.run_controller.forget(self)
