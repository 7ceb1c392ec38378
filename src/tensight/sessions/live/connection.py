"""The connection of a training process: the call in which it waits, and whether the process is still there."""

from __future__ import annotations

import asyncio
import socket
import time
from typing import TYPE_CHECKING

from tensight import wire

if TYPE_CHECKING:
    from collections.abc import Callable

    from tensight.sessions.live.identity import Identity
    from tensight.sessions.live.settings import Caller
    from tensight.wire.debugger_pb2 import EventReply

SHORTEST_PERIOD_S, LONGEST_PERIOD_S = 5, 3600
"""Range of accepted heartbeat periods."""

_MOST_MISSED = 3
_GRACE_S = 0.5
_SILENT_S = 2.0
"""A running process sends messages more often than this."""

_CHECK_EVERY_S = 1.0
_HERE = ("ipv4:127.", "ipv6:[::1]", "unix:")
_ENDED = ("Z", "X")
"""States of an ended process (zombie, dead)."""

_SILENT = "three heartbeats in a row are missing; the process, or the network to it, is gone"
_GONE = "the process has ended unexpectedly: it was killed, or it crashed"


class ProcessConnection:
    """The connection of a process, as far as its calls show it.

    Parameters
    ----------
    caller : Caller
    identity : Identity
        A process on another machine, or without a known process id, is never missed.
    lose : callable
        Called from the event loop, with a message for users, when the process is given up.
    heartbeat_second_s : float
        Duration of a second of the period of heartbeats.

    Attributes
    ----------
    caller : Caller
    is_open : bool
        Whether the connection has not broken.
    last_seen : float
        Time of its last call, in seconds since the epoch.
    last_answer : float
        Time at which a part of a response has arrived, by the monotonic clock.
    """

    def __init__(
        self, caller: Caller, identity: Identity, lose: Callable[[str], None], heartbeat_second_s: float
    ) -> None:
        self.caller = caller
        self.is_open = True
        self.last_seen = time.time()
        self.last_answer = time.monotonic()
        self._lose = lose
        self._second_s = heartbeat_second_s
        self._heartbeat, self._grace, self._presence = Timer(), Timer(), Timer()
        is_here = identity.host.startswith(_HERE) and identity.machine == socket.gethostname()
        self._process_id = identity.process_id or 0
        self._begun = beginning_of(self._process_id) if is_here else ""
        self._latest: asyncio.Future[EventReply] | None = None
        self._waiting: asyncio.Future[EventReply] | None = None

    # --- the call in which it waits for a command ---

    @property
    def is_waiting(self) -> bool:
        """Whether the process waits for a command now."""
        return self._waiting is not None

    def begin_call(self) -> asyncio.Future[EventReply]:
        """Return the reply to a call that replaces earlier ones; the process does not wait for it yet."""
        self.reply(_replaced())
        self._latest = asyncio.get_running_loop().create_future()
        return self._latest

    def is_latest(self, call: asyncio.Future[EventReply]) -> bool:
        """Whether the process has not called again meanwhile, over another connection."""
        return self._latest is call

    async def wait(self, call: asyncio.Future[EventReply], ready: Callable[[], None]) -> EventReply:
        """Return the reply to a call, as soon as there is one.

        Parameters
        ----------
        call : Future
        ready : callable
            Called when the process waits.
        """
        if not self.is_latest(call):
            return _replaced()
        self._waiting = call
        ready()
        return await call

    def reply(self, command: EventReply) -> None:
        """Reply to the process, if it waits."""
        waiting, self._waiting = self._waiting, None
        if waiting is not None and not waiting.done():
            waiting.set_result(command)

    # --- whether it is still there ---

    def note_answer(self) -> None:
        """Note that a part of a response has arrived."""
        self.last_answer = time.monotonic()

    def heartbeat(self, period_s: int) -> None:
        """Handle a heartbeat; the next is due after a period, and when three in a row are missing it is given up."""
        self._heartbeat.start(_MOST_MISSED * (period_s + _GRACE_S) * self._second_s, self._lose, _SILENT)

    def hear(self, caller: Caller) -> None:
        """Note that the process has called."""
        self.last_seen = time.time()
        self._grace.stop()
        self.caller = caller
        self.is_open = True

    def watch(self) -> None:
        """Check every second from now on, by asking the operating system, whether a process of this machine runs.

        A process that is killed between calls breaks no connection, and missing heartbeats reveal it only after a
        minute and a half.
        """
        if self._begun:
            self._presence.start(_CHECK_EVERY_S, self._check)

    def break_off(self, patience_s: float) -> None:
        """Note that the connection broke; give the process up if it does not come back."""
        self.is_open = False
        why = f"the connection broke, and the process did not come back in {patience_s:g} s"
        self._grace.start(patience_s, self._lose, why)

    def stop(self) -> None:
        """Stop all timers that watch the process."""
        for timer in (self._heartbeat, self._grace, self._presence):
            timer.stop()

    def _check(self) -> None:
        self.watch()
        # A process in a container has ids of its own: while it keeps calling, the missing id is another process's.
        is_silent = not self.is_waiting and time.time() - self.last_seen >= _SILENT_S
        if is_silent and beginning_of(self._process_id) != self._begun:
            self._lose(_GONE)


class Timer:
    """A call that is due after a while, unless the timer is stopped or started again."""

    def __init__(self) -> None:
        self._handle: asyncio.TimerHandle | None = None

    def start(self, delay_s: float, call: Callable[..., None], *arguments: object) -> None:
        """Call a function from the event loop after a while."""
        self.stop()
        self._handle = asyncio.get_running_loop().call_later(delay_s, call, *arguments)

    def stop(self) -> None:
        """Call nothing."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None


def beginning_of(process_id: int) -> str:
    """Return the start time of a process, which distinguishes reused ids; empty if it does not run."""
    try:
        with open(f"/proc/{process_id}/stat", encoding="ascii", errors="replace") as file:
            # The name of the program, in parentheses, may contain any character.
            fields = file.read().rpartition(")")[2].split()
        return "" if fields[0] in _ENDED else fields[19]
    except (OSError, IndexError):
        return ""


def _replaced() -> EventReply:
    return wire.failed("another WaitCMD of the same process replaced this one")
