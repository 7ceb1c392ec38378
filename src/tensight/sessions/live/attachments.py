"""All attached training processes: identifies which process calls, and the session that it belongs to."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, TypeVar

from tensight import wire
from tensight.errors import TensightError
from tensight.sessions.errors import LimitError
from tensight.sessions.live.connection import LONGEST_PERIOD_S, SHORTEST_PERIOD_S
from tensight.sessions.live.identity import identity_of
from tensight.sessions.live.process import TrainingProcess
from tensight.sessions.live.recording import Recording
from tensight.sessions.live.restoring import RecordedRuns
from tensight.sessions.live.session import LiveSession
from tensight.sessions.live.settings import LiveSettings
from tensight.sessions.live.shielded import shielded
from tensight.sessions.live.values import ValueWriters
from tensight.sessions.records import State
from tensight.wire.telemetry_pb2 import PollReply, Receipt

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from tensight.sessions.live.identity import Identity
    from tensight.sessions.live.settings import Caller
    from tensight.sessions.registry import SessionTable
    from tensight.sessions.workspace import Workspace
    from tensight.wire import ReceivedHit
    from tensight.wire.debugger_pb2 import (
        Chunk,
        EventReply,
        Heartbeat,
        Metadata,
        TensorBase,
        TensorSummary,
        WatchpointHit,
    )
    from tensight.wire.telemetry_pb2 import PollRequest, StatisticsRows, ViewPiece

_Item = TypeVar("_Item")
_Answer = TypeVar("_Answer")

_UNKNOWN = "this process is not known here; send the metadata first"
_MOST_STRANGERS = 256
_MOST_EARLY_HITS = 10_000

_log = logging.getLogger(__name__)


class Attachments:
    """The processes attached to a server, with a handler for each call.

    Invalid input never raises here: the reply is FAILED with a message. A call whose connection breaks is cancelled.

    Parameters
    ----------
    workspace : Workspace
    sessions : SessionTable
        Lists the sessions.
    settings : LiveSettings
    """

    def __init__(self, workspace: Workspace, sessions: SessionTable, *, settings: LiveSettings | None = None) -> None:
        self._workspace = workspace
        self._sessions = sessions
        self._settings = settings or LiveSettings()
        self._writers = ValueWriters()
        self._recorded = RecordedRuns(workspace)
        self._joining = asyncio.Lock()
        self._by_key: dict[str, TrainingProcess] = {}
        self._by_peer: dict[str, TrainingProcess] = {}
        self._online: dict[str, LiveSession] = {}
        self._early_hits: dict[str, deque[ReceivedHit]] = {}
        self._early_periods_s: dict[str, int] = {}
        self._closing = ""

    # --- one method for each call ---

    async def send_metadata(self, caller: Caller, message: Metadata) -> EventReply:
        """Attach a process, or note that its training has ended."""
        if self._closing:
            return wire.failed(self._closing)
        process = self._find(caller)
        if message.training_done:
            return process.announce(message) if process is not None else wire.version_reply(True)
        try:
            return await shielded(self._introduce(caller, message))
        except TensightError as error:
            _log.warning("a training process cannot attach: %s", error)
            return wire.failed(str(error))
        except asyncio.CancelledError:
            await self.disconnected(caller)
            raise

    async def wait_cmd(self, caller: Caller, message: Metadata) -> EventReply:
        """Return the next command for a process; may wait for the user indefinitely."""
        if self._closing:
            return wire.failed(self._closing)
        identity = identity_of(caller, message)
        process = self._find(caller, identity)
        if process is None:
            try:
                process = await shielded(self._recover(caller, identity, message.cur_step))
            except TensightError as error:
                _log.warning("a recorded run cannot go on: %s", error)
                return wire.failed(str(error))
        if process is None:
            return wire.failed(_UNKNOWN)
        process.connection.note_answer()
        hits = self._early_hits.pop(caller.peer, None)
        if hits:
            process.report(list(hits))
        return await self._guarded(caller, process, process.wait_cmd(message), wire.failed)

    async def send_graph(self, caller: Caller, chunks: AsyncIterator[Chunk], multiple: bool) -> EventReply:
        """Receive a graph, or several."""
        return await self._streamed(caller, chunks, lambda process: process.send_graph(chunks, multiple))

    async def send_tensors(self, caller: Caller, pieces: AsyncIterator[bytes]) -> EventReply:
        """Receive values; each piece is a serialized TensorProto."""
        return await self._streamed(caller, pieces, lambda process: process.responses.send_tensors(pieces))

    async def send_tensor_base(self, caller: Caller, items: AsyncIterator[TensorBase]) -> EventReply:
        """Receive types and shapes."""
        return await self._streamed(caller, items, lambda process: process.responses.send_tensor_base(items))

    async def send_tensor_stats(self, caller: Caller, items: AsyncIterator[TensorSummary]) -> EventReply:
        """Receive requested statistics."""
        return await self._streamed(caller, items, lambda process: process.responses.send_tensor_stats(items))

    async def send_watchpoint_hits(self, caller: Caller, items: AsyncIterator[WatchpointHit]) -> EventReply:
        """Receive hits."""
        if self._find(caller) is None and not self._closing:
            return await self._keep_early_hits(caller, items)
        return await self._streamed(caller, items, lambda process: process.send_watchpoint_hits(items))

    async def send_heartbeat(self, caller: Caller, message: Heartbeat) -> EventReply:
        """Receive a heartbeat; refuse an invalid period."""
        if not SHORTEST_PERIOD_S <= message.period <= LONGEST_PERIOD_S:
            return wire.failed(
                f"a heartbeat every {message.period} s is not accepted; {SHORTEST_PERIOD_S} to {LONGEST_PERIOD_S} s are"
            )
        # MindSpore's first heartbeat arrives before the process has identified itself, the second half a minute later.
        # A forgotten process is identified again when it asks for a command; until then its heartbeats are accepted.
        process = self._find(caller)
        if process is not None:
            process.connection.heartbeat(message.period)
            if message.message.startswith(wire.NOTICE):
                process.note(wire.text(message.message.removeprefix(wire.NOTICE), wire.MOST_TEXT))
            elif message.message == wire.STOP:
                process.session.run_controller.stop()
            elif message.message.startswith(wire.OVER):
                process.note_over(wire.text(message.message.removeprefix(wire.OVER), wire.MOST_TEXT))
        else:
            _bounded(self._early_periods_s)[caller.peer] = message.period
        return wire.ok()

    async def send_statistics(self, caller: Caller, batches: AsyncIterator[StatisticsRows]) -> Receipt:
        """Receive statistics that a process sends while it runs."""
        return await self._received(caller, batches, lambda process: process.responses.send_statistics(batches))

    async def send_views(self, caller: Caller, pieces: AsyncIterator[ViewPiece]) -> Receipt:
        """Receive requested views."""
        return await self._received(caller, pieces, lambda process: process.responses.send_views(pieces))

    async def poll(self, caller: Caller, message: PollRequest) -> PollReply:
        """Return whether a running process shall stop."""
        process = self._find(caller)
        if process is None or self._closing:
            return PollReply(unknown=not self._closing and self._process_of(caller) is None)
        return process.poll(message.step)

    async def disconnected(self, caller: Caller) -> None:
        """Note that the connection of a call broke."""
        process = self._lookup(caller)
        if process is not None and process.connection.caller == caller:
            process.disconnect()

    async def close(self, reason: str) -> None:
        """Tell all waiting processes that the server shuts down, which never ends a training."""
        self._closing = "the debug server is shutting down" + (f": {reason}" if reason else "")
        await asyncio.gather(*(session.detach() for session in self._online.values()))
        self._writers.close()

    # --- shared by the handlers ---

    async def _streamed(
        self, caller: Caller, items: AsyncIterator[_Item], handle: Callable[[TrainingProcess], Awaitable[EventReply]]
    ) -> EventReply:
        process = self._find(caller)
        if process is None or self._closing:
            async for _ in items:
                pass
            return wire.failed(self._closing or _UNKNOWN)
        process.connection.note_answer()
        return await self._guarded(caller, process, handle(process), wire.failed)

    async def _received(
        self, caller: Caller, items: AsyncIterator[_Item], handle: Callable[[TrainingProcess], Awaitable[Receipt]]
    ) -> Receipt:
        process = self._find(caller)
        if process is None or self._closing:
            async for _ in items:
                pass
            return _refusal(self._closing or _UNKNOWN)
        return await self._guarded(caller, process, handle(process), _refusal)

    async def _guarded(
        self,
        caller: Caller,
        process: TrainingProcess,
        handling: Awaitable[_Answer],
        refuse: Callable[[str], _Answer],
    ) -> _Answer:
        """Await a handler; report invalid messages to the process and to the clients of its session."""
        try:
            return await handling
        except TensightError as error:
            if process.session.warn_of(error, f"rank {process.rank}: "):
                _log.warning("session %s, rank %d: %s", process.session.id, process.rank, error)
            return refuse(str(error))
        except BaseException:
            # It may have reconnected before the broken connection was noticed.
            if process.connection.caller == caller:
                process.disconnect()
            raise

    async def _keep_early_hits(self, caller: Caller, items: AsyncIterator[WatchpointHit]) -> EventReply:
        """Keep hits from a new connection until the process identifies itself by asking for a command."""
        hits: deque[ReceivedHit] = deque(maxlen=_MOST_EARLY_HITS)
        async for item in items:
            try:
                hits.append(wire.received_hit(item))
            except wire.WireError as error:
                return wire.failed(str(error))
        _bounded(self._early_hits)[caller.peer] = hits
        return wire.ok()

    # --- identifying callers ---

    def _lookup(self, caller: Caller) -> TrainingProcess | None:
        process = self._process_of(caller)
        # A user may have closed its session.
        return None if process is None or process.session.is_closing else process

    def _process_of(self, caller: Caller) -> TrainingProcess | None:
        if caller.process_key:
            return self._by_key.get(caller.process_key)
        process = self._by_peer.get(caller.peer)
        # Ports are reused: once a connection is gone, another process may call from the same port.
        return process if process is not None and process.connection.is_open else None

    def _find(self, caller: Caller, identity: Identity | None = None) -> TrainingProcess | None:
        """Return the calling process, and note that it is alive; None if the identity does not match."""
        process = self._lookup(caller)
        if process is None:
            return None
        if identity is not None and not (process.identity.is_agent or process.identity.may_be_same(identity)):
            return None
        process.hear(caller)
        return process

    def _note(self, caller: Caller, process: TrainingProcess) -> None:
        period_s = self._early_periods_s.pop(caller.peer, None)
        if period_s is not None:
            process.connection.heartbeat(period_s)
        if caller.process_key:
            self._by_key[caller.process_key] = process
            return
        self._by_peer = {peer: other for peer, other in self._by_peer.items() if other is not process}
        self._by_peer[caller.peer] = process

    def _goes_on(self, process: TrainingProcess, identity: Identity) -> bool:
        """Return whether a process that announces itself again continues its training, rather than starting anew."""
        if identity.is_agent:
            return process.identity.key == identity.key and process.is_live
        # MindSpore's own client has no key; if its graph has arrived already, this is a new training.
        return process.is_live and not process.graphs.graphs and process.identity.may_be_same(identity)

    # --- attaching ---

    async def _introduce(self, caller: Caller, message: Metadata) -> EventReply:
        """Attach a process, or recognise it, and reply to its metadata."""
        identity = identity_of(caller, message)
        async with self._joining:
            process = self._find(caller)
            if process is None and identity.is_agent:
                process = await self._restored(caller, identity, message.cur_step)
            if process is None or not self._goes_on(process, identity):
                process = await self._attach(caller, identity)
            reply = process.announce(message, identity)
        process.session.begin(process)
        return reply

    async def _attach(self, caller: Caller, identity: Identity) -> TrainingProcess:
        """Attach a process to the session of its job, or to a new session."""
        self._supersede(caller, identity)
        self._require_room(caller)
        session = self._session_for(identity)
        if session is not None:
            process = await self._join(session, caller, identity)
        else:
            session = await self._new_session(identity)
            try:
                process = await self._join(session, caller, identity)
                self._list(session)
            except TensightError:
                await session.abandon()
                raise
        self._note(caller, process)
        _log.info("session %s (%s): rank %d attached from %s", session.id, session.name, process.rank, caller.address)
        await self._drop_ended()
        return process

    def _require_room(self, caller: Caller) -> None:
        attached = [process for session in self._online.values() for process in session.live]
        if len(attached) >= self._settings.most_processes:
            raise LimitError(f"{len(attached)} training processes are attached, which is the maximum; end some")
        host_count = sum(process.connection.caller.host == caller.host for process in attached)
        if host_count >= self._settings.most_processes_of_a_host:
            raise LimitError(
                f"{host_count} training processes are attached from {caller.host}, the maximum for one machine;"
                " end some"
            )

    async def _join(self, session: LiveSession, caller: Caller, identity: Identity) -> TrainingProcess:
        placement = identity.placement(caller.address)
        recorder = await asyncio.to_thread(session.recording.rank, identity.rank, placement)
        process = TrainingProcess(session, identity, caller, recorder)
        session.join(process)
        return process

    def _supersede(self, caller: Caller, identity: Identity) -> None:
        """Give up processes that a new process replaces."""
        same_connection = self._lookup(caller)
        for session in self._online.values():
            for process in session.live:
                if process is same_connection:
                    process.lose("the process announced itself again, and has a new session")
                elif not (identity.is_agent or process.connection.is_open) and process.identity.may_be_same(identity):
                    process.lose("a new process on the same device took its place")

    def _session_for(self, identity: Identity) -> LiveSession | None:
        """Return the session of the job of a process; None if the process starts a new job."""
        for session in reversed(self._online.values()):
            if not identity.job or session.identity.job != identity.job or not session.live:
                continue
            former = session.processes.get(identity.rank)
            # If all ranks restart, it is a new run; if a single rank restarts, the others are still attached.
            others = any(process.rank != identity.rank for process in session.live)
            if former is None or (others and not former.connection.is_waiting):
                return session
        return None

    async def _new_session(self, identity: Identity) -> LiveSession:
        session_id = await asyncio.to_thread(self._workspace.next_session_id)
        recording = await asyncio.to_thread(
            Recording,
            self._workspace,
            session_id,
            identity.metadata,
            most_rows=self._settings.kept_rows,
        )
        return LiveSession(
            session_id,
            self._free_name(identity.name),
            workspace=self._workspace,
            recording=recording,
            identity=identity,
            settings=self._settings,
            writers=self._writers,
        )

    def _free_name(self, name: str) -> str:
        """Return a name that no session with a live training has; the watchpoints of an ended session are reused."""
        taken = {session.name for session in self._online.values() if session.live}
        free, number = name, 2
        while free in taken:
            free, number = f"{name}-{number}", number + 1
        return free

    def _list(self, session: LiveSession) -> None:
        self._sessions.add(session)
        self._online[session.id] = session

    async def _recover(self, caller: Caller, identity: Identity, step: int) -> TrainingProcess | None:
        """Return the process that asks for a command after it reconnected, or after the server was restarted."""
        async with self._joining:
            process = self._find(caller, identity) or self._known_before(caller, identity, step)
            if process is None:
                return await self._restored(caller, identity, step)
            self._note(caller, process)
            process.hear(caller)
            return process

    async def _restored(self, caller: Caller, identity: Identity, step: int) -> TrainingProcess | None:
        """Return a process whose run began before the server was restarted; None if there is none."""
        restored = await self._recorded.restore(identity, step, self._settings, self._writers)
        if restored is None:
            return None
        session, process = restored
        self._list(session)
        _log.info("session %s (%s): goes on after a restart of the server", session.id, session.name)
        self._note(caller, process)
        process.hear(caller)
        return process

    def _known_before(self, caller: Caller, identity: Identity, step: int) -> TrainingProcess | None:
        """Return the attached process that most likely lost its connection and has reconnected."""

        def may_be(process: TrainingProcess) -> bool:
            # It ended, and trains again.
            if process is self._by_peer.get(caller.peer):
                return True
            # Steps of a process never decrease, and a waiting process is still at the same step.
            last = process.progress.step
            is_at_step = last == step if process.connection.is_waiting else last <= step
            return is_at_step and (process.is_live or process.state is State.LOST)

        attached = [process for session in self._online.values() for process in session.processes.values()]
        candidates = [
            candidate for candidate in attached if candidate.identity.may_be_same(identity) and may_be(candidate)
        ]
        # Preferred, of several on one device: broken connection, then given up, then running, then waiting.
        return min(
            candidates,
            key=lambda candidate: (
                candidate.connection.is_open and candidate.is_live,
                candidate.connection.is_open,
                candidate.connection.is_waiting,
                -candidate.connection.last_seen,
            ),
            default=None,
        )

    async def _drop_ended(self) -> None:
        """Remove the oldest ended sessions from the list; they can be opened as recorded runs."""
        ended = [session for session in self._online.values() if not session.live and not session.is_closing]
        for session in ended[: max(len(ended) - self._settings.most_ended, 0)]:
            await session.close("ended a while ago; its recorded run can be opened")
            self._sessions.remove(session.id)
        self._online = {number: session for number, session in self._online.items() if not session.is_closing}
        self._by_key = {key: process for key, process in self._by_key.items() if not process.session.is_closing}
        self._by_peer = {peer: process for peer, process in self._by_peer.items() if not process.session.is_closing}


def _bounded(entries: dict[str, _Item]) -> dict[str, _Item]:
    """Make room for an entry of an unidentified caller; the oldest entries are dropped first."""
    while len(entries) >= _MOST_STRANGERS:
        entries.pop(next(iter(entries)))
    return entries


def _refusal(message: str) -> Receipt:
    return Receipt(ok=False, message=wire.encoded(message))
