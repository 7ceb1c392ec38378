"""The thread beside the training: it asks whether somebody wants to stop it, and keeps the connection alive."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from tensight.agents.notices import say
from tensight.wire.debugger_pb2 import Heartbeat
from tensight.wire.telemetry_pb2 import PollRequest

if TYPE_CHECKING:
    from tensight.agents.connection import Connection
    from tensight.agents.introduction import Introduction
    from tensight.agents.telemetry import Telemetry

POLL_EVERY_S = 0.1
BEAT_EVERY_S = 30.0
LOOK_EVERY_S = 2.0
"""How often it is looked whether a server that is gone is there again."""

_SLOW_S = 5.0
_ANSWER_WITHIN_S = 5.0
_MOST_FAILED_BEATS = 3
_ALIVE = b"Debugger is alive"


class Background(threading.Thread):
    """Talks with the server while the training runs.

    Parameters
    ----------
    connection : Connection
    introduction : Introduction
    telemetry : Telemetry

    Attributes
    ----------
    step : int
        Steps done; the training counts them here.
    """

    def __init__(self, connection: Connection, introduction: Introduction, telemetry: Telemetry) -> None:
        super().__init__(name="tensight", daemon=True)
        self.step = 0
        self._connection = connection
        self._introduction = introduction
        self._telemetry = telemetry
        self._wake = threading.Event()
        self._over = False
        self._is_attached = False
        self._runs = False
        self._polls = False
        self._epoch = 0
        # What the training looks at after each step: single attributes, read without a lock.
        self.wants_stop = False
        self.is_lost = False
        self.is_back = False

    # --- what the training tells ---

    def attached(self) -> None:
        """Note that there is a server."""
        self._is_attached, self.is_lost, self.is_back = True, False, False
        self._polls = self._introduction.is_ours
        self._beat_s = time.monotonic()
        self._failed_beats = 0
        self._wake.set()

    def absent(self) -> None:
        """Note that there is no server; it is looked for from now on."""
        self._is_attached, self.is_lost, self.is_back = False, True, False
        self._telemetry.forget()
        self._wake.set()

    def runs(self, runs: bool) -> None:
        """Note that the training runs by itself, or stands still."""
        self._epoch += 1
        self._runs = runs
        self.wants_stop = False
        if runs:
            self._wake.set()

    def end(self) -> None:
        """Say nothing more."""
        self._over = True
        self._wake.set()

    # --- what goes on beside it ---

    def run(self) -> None:
        """Talk with the server until the end."""
        while not self._over:
            try:
                self._once()
            except Exception as error:
                say(f"internal error beside the training: {error!r}; it goes on")
                self._wake.wait(LOOK_EVERY_S)

    def _once(self) -> None:
        if not self._is_attached:
            self._pause(LOOK_EVERY_S)
            if not self._is_attached and not self._over and not self.is_back:
                self._look()
            return
        if time.monotonic() >= self._beat_s:
            self._beat()
        if self._runs and self._polls and self._is_attached:
            self._poll()
            self._telemetry.send_offered(self._connection)
            self._pause(POLL_EVERY_S)
        else:
            self._pause(1.0)

    def _pause(self, seconds: float) -> None:
        self._wake.wait(seconds)
        self._wake.clear()

    def _look(self) -> None:
        if not self._introduction.find_out(self._connection, timeout_s=_ANSWER_WITHIN_S):
            self.is_back = True

    def _poll(self) -> None:
        epoch = self._epoch
        outcome = self._connection.call("Poll", PollRequest(step=self.step), timeout_s=_ANSWER_WITHIN_S)
        if epoch != self._epoch:
            return
        if outcome.reply is not None:
            self.wants_stop = outcome.reply.pause or outcome.reply.exit
        else:
            self._lose(f"{outcome.code} {outcome.details}")

    def _beat(self) -> None:
        message = Heartbeat(message=_ALIVE, period=int(BEAT_EVERY_S))
        outcome = self._connection.call("SendHeartbeat", message, timeout_s=_ANSWER_WITHIN_S)
        if outcome.reply is not None:
            self._failed_beats = 0
            self._beat_s = time.monotonic() + BEAT_EVERY_S
            return
        self._failed_beats += 1
        self._beat_s = time.monotonic() + 1.0
        if self._failed_beats >= _MOST_FAILED_BEATS:
            self._lose(f"{outcome.code} {outcome.details}")
            if not self._runs:
                # The training waits for a command that will never come.
                self._connection.abandon()

    def _lose(self, why: str) -> None:
        if self._is_attached:
            self._is_attached = False
            self._telemetry.forget()
            self.is_lost = True
            say(f"lost the debug server at {self._connection.address} ({why.strip()[:200]})")
