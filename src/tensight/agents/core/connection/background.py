"""The thread beside the training: it polls the server for requests to stop, and keeps the connection alive."""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import TYPE_CHECKING

from tensight.agents.core.notices import log, log_once, report
from tensight.wire import NOTICE, OVER, STOP, encoded, text
from tensight.wire.debugger_pb2 import Heartbeat
from tensight.wire.telemetry_pb2 import PollRequest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tensight.agents.core.connection.connection import Connection
    from tensight.agents.core.connection.introduction import Introduction
    from tensight.agents.core.connection.telemetry import Telemetry
    from tensight.wire.debugger_pb2 import WatchpointHit

POLL_EVERY_S = 0.2
SENT_APART_S = 0.02
"""Messages at shorter intervals are sent together, because each call takes some of the training's time."""

HEARTBEAT_EVERY_S = 30.0
SEARCH_EVERY_S = 2.0
"""Interval of searches for a server; shorter at first, for a server that is starting."""

_SEARCH_SOON_S, _SOON_FOR_S = 0.2, 10.0
_REFUSED_S = 30.0
"""The same, if the server requires an access token that the process does not have."""

MOST_HITS = 100_000
"""Maximum number of hits that wait to be sent."""

_MOST_NOTICES = 100
_REST_S = 0.5
_RETRY_S = 0.5
_ANSWER_WITHIN_S = 5.0
_MOST_FAILED_HEARTBEATS, _MOST_FAILED_POLLS = 3, 2
_ALIVE = b"Debugger is alive"


class Background(threading.Thread):
    """Communicates with the server while the training runs.

    Parameters
    ----------
    connection : Connection
    introduction : Introduction
    telemetry : Telemetry
    send_every_s : float
        Interval at which offered messages are sent.

    Attributes
    ----------
    step : int
        Steps done; the training counts them here.
    wants_stop : bool
        Whether a user wants the training to stop. The training checks this and the following ones after each step.
    wants_exit : bool
        Whether a user wants it to end.
    is_lost : bool
        Whether the server was lost.
    is_back : bool
        Whether there is a server that the training is not attached to.
    """

    def __init__(
        self,
        connection: Connection,
        introduction: Introduction,
        telemetry: Telemetry,
        *,
        send_every_s: float = POLL_EVERY_S,
    ) -> None:
        super().__init__(name="tensight", daemon=True)
        self._send_every_s = send_every_s
        self.step = 0
        self._connection = connection
        self._introduction = introduction
        self._telemetry = telemetry
        self.wants_stop = self.wants_exit = False
        self.is_lost = False
        self.is_back = False
        self._wake = threading.Event()
        self._over = self._is_attached = self._runs = self._rests = False
        self._was_attached = False
        self._hits: list[WatchpointHit] = []
        self._notices: deque[bytes] = deque(maxlen=_MOST_NOTICES)
        self._offering, self._sending = threading.Lock(), threading.Lock()
        self._epoch = 0
        self._heartbeat_s = self._poll_s = self._search_soon_until_s = 0.0
        self._failed_heartbeats = self._failed_polls = 0

    # --- calls of the training ---

    def attached(self) -> None:
        """Note that a server is attached."""
        self.is_lost = self.is_back = False
        self._failed_heartbeats = self._failed_polls = 0
        self._heartbeat_s = self._poll_s = time.monotonic()
        self._is_attached = self._was_attached = True
        self._wake.set()

    def absent(self) -> None:
        """Note that no server is attached; one is searched for from now on."""
        if self._is_attached:
            self._search_soon()
        self._is_attached, self.is_lost, self.is_back = False, True, False
        self._telemetry.forget()

    def runs(self, runs: bool) -> None:
        """Note whether the training runs or is stopped."""
        self._epoch += 1
        self._runs = runs
        self.wants_stop = self.wants_exit = False
        if runs and self._rests:
            self._wake.set()

    def offer_hits(self, messages: Sequence[WatchpointHit]) -> None:
        """Send hits to the server soon; the training does not stop for them."""
        with self._offering:
            room = MOST_HITS - len(self._hits)
            self._hits += messages[:room]
        if room < len(messages):
            log_once(f"more than {MOST_HITS:,} hits wait for the server; further ones of steps without a stop are lost")

    def send_hits(self) -> None:
        """Send the offered hits; called by the training before it stops, and by this thread while it runs."""
        with self._sending:
            with self._offering:
                messages, self._hits = self._hits, []
            if messages and self._is_attached:
                call = self._connection.start_stream("SendWatchpointHits", iter(messages))
                if call is not None:
                    self._connection.result(call, _ANSWER_WITHIN_S)

    def offer_notice(self, text: str) -> None:
        """Send a notice for the user to the server, as soon as there is one."""
        self._notices.append(NOTICE + encoded(text))
        self._wake.set()

    def withdraw_notice(self, text: str) -> None:
        """Withdraw a notice that was sent to the server, because it no longer applies."""
        self._notices.append(OVER + encoded(text))
        self._wake.set()

    def ask_to_stop(self) -> None:
        """Ask the server to stop the run, because of the preceding notices."""
        self._notices.append(STOP)
        self._send_notices()

    def _send_notices(self) -> None:
        # The training may send notices at its end while this thread is still sending.
        with self._sending:
            while self._notices and self._is_attached:
                message = Heartbeat(message=self._notices[0], period=int(HEARTBEAT_EVERY_S))
                if self._connection.ask("SendHeartbeat", message, timeout_s=_ANSWER_WITHIN_S).reply is None:
                    return
                self._notices.popleft()

    def end(self) -> None:
        """Send what is left, and stop the thread."""
        try:
            self.send_hits()
            if self._introduction.is_ours:
                self._send_notices()
        finally:
            self._over = True
            self._wake.set()

    # --- in the thread ---

    def run(self) -> None:
        """Communicate with the server until the end."""
        self._search_soon()
        while not self._over:
            pause_s = SEARCH_EVERY_S
            try:
                pause_s = self._once()
            except Exception as error:
                log_once(f"communication with the debug server failed, and is tried again: {error!r}")
            self._rests = pause_s > POLL_EVERY_S
            self._wake.wait(pause_s)
            self._wake.clear()

    def _search_soon(self) -> None:
        self._search_soon_until_s = time.monotonic() + _SOON_FOR_S

    def _once(self) -> float:
        """Do what is due; return the seconds until the next call."""
        if not self._is_attached:
            if not self.is_back:
                self._search()
            if self._introduction.is_refused:
                return _REFUSED_S
            return _SEARCH_SOON_S if time.monotonic() < self._search_soon_until_s else SEARCH_EVERY_S
        if time.monotonic() >= self._heartbeat_s:
            self._send_heartbeat()
        if self._introduction.is_ours:
            self._send_notices()
        if not (self._runs and self._introduction.is_ours):
            return _REST_S
        if time.monotonic() >= self._poll_s:
            self._poll()
        if self._is_attached:
            self._telemetry.send_offered(self._connection)
            self.send_hits()
        return self._send_every_s

    def _search(self) -> None:
        """Search for a server; log once if it refuses the process."""
        why = self._introduction.find_out(self._connection, timeout_s=_ANSWER_WITHIN_S)
        # The training may have attached meanwhile, because it searches itself while it is stopped.
        self.is_back = not why and not self._is_attached
        if self._was_attached and self._introduction.is_refused:
            log_once(self._introduction.absence(self._connection, why))

    def _poll(self) -> None:
        epoch = self._epoch
        outcome = self._connection.ask("Poll", PollRequest(step=self.step), timeout_s=_ANSWER_WITHIN_S)
        self._poll_s = time.monotonic() + POLL_EVERY_S
        if epoch != self._epoch:
            return
        if outcome.reply is not None and outcome.reply.unknown:
            self._lose("another server is there, which does not know this training")
        elif outcome.reply is not None:
            self._failed_polls = 0
            for line in outcome.reply.lines:
                report(text(line))
            self.wants_exit = outcome.reply.exit
            self.wants_stop = outcome.reply.pause or outcome.reply.exit
        else:
            self._failed_polls += 1
            self._poll_s += _RETRY_S
            if self._failed_polls >= _MOST_FAILED_POLLS:
                self._lose(outcome.problem)

    def _send_heartbeat(self) -> None:
        message = Heartbeat(message=_ALIVE, period=int(HEARTBEAT_EVERY_S))
        outcome = self._connection.ask("SendHeartbeat", message, timeout_s=_ANSWER_WITHIN_S)
        if outcome.reply is not None:
            self._failed_heartbeats = 0
            self._heartbeat_s = time.monotonic() + HEARTBEAT_EVERY_S
            return
        self._failed_heartbeats += 1
        self._heartbeat_s = time.monotonic() + _RETRY_S
        if self._failed_heartbeats >= _MOST_FAILED_HEARTBEATS:
            self._lose(outcome.problem)

    def _lose(self, why: str) -> None:
        """Treat the server as lost: the training no longer waits for it."""
        if not self._is_attached or self._over:
            return
        self._is_attached = self.is_back = False
        self._search_soon()
        self._telemetry.forget()
        self.is_lost = True
        if self._runs:
            log(f"lost the debug server at {self._connection.address} ({why})")
        self._connection.abandon()
