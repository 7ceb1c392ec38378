"""The attachment to a debug server: what happens if there is none, if it is lost, and when it comes back."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from tensight.agents.core.connection.background import POLL_EVERY_S, SENT_APART_S, Background
from tensight.agents.core.connection.commands import ON, LostError, RefusedError
from tensight.agents.core.connection.connection import Connection
from tensight.agents.core.notices import log, log_once, report
from tensight.agents.core.process.termination import Termination

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tensight.agents.core.connection.commands import CommandLoop, Order
    from tensight.agents.core.connection.introduction import Introduction
    from tensight.agents.core.connection.telemetry import StepRows, Telemetry
    from tensight.agents.core.program import Program
    from tensight.agents.core.settings import AgentSettings
    from tensight.wire.debugger_pb2 import ContentHash, Metadata

_SEARCH_EVERY_S = 0.5
_ANSWER_WITHIN_S = 1.0
"""A server that is not running is noticed at once; a network that drops packets delays a training by this."""

_WAIT_S = 5.0
_DONE_WITHIN_S = 1.0


class StopState(NamedTuple):
    """Where a training is stopped.

    Attributes
    ----------
    step : int
        Steps done, including the current one.
    program : Program or None
        What ran.
    node : str
        Full name of the operator, if the training is stopped within a step.
    hashes : sequence of ContentHash
        Of the tensors that are compared between ranks.
    oldest_iteration : int or None
        The first iteration that can still be shown.
    """

    step: int
    program: Program | None
    node: str = ""
    hashes: Sequence[ContentHash] = ()
    oldest_iteration: int | None = None


class Attachment:
    """The debug server, from the training's side.

    Parameters
    ----------
    settings : AgentSettings
    introduction : Introduction
    telemetry : Telemetry

    Attributes
    ----------
    connection : Connection
    background : Background
    is_attached : bool
        Whether a server knows the process, as far as the training has noticed.
    """

    def __init__(self, settings: AgentSettings, introduction: Introduction, telemetry: Telemetry) -> None:
        self._settings = settings
        self._introduction = introduction
        self._telemetry = telemetry
        self._stop_state = StopState(0, None)
        self._refusals = 0
        self._retry_s = 0.0
        self._loop: CommandLoop | None = None
        self.connection = Connection(settings, introduction.key)
        send_every_s = min(POLL_EVERY_S, max(settings.losses_every_s or POLL_EVERY_S, SENT_APART_S))
        self.background = Background(self.connection, introduction, telemetry, send_every_s=send_every_s)
        self._termination = Termination(self.connection.hold_no_more)
        self.is_attached = False

    def obey(self, loop: CommandLoop) -> None:
        """Use this loop to execute commands."""
        self._loop = loop

    # --- attaching ---

    def begin(self, stop_state: StopState) -> None:
        """Search for the server; without one the training begins, unless the settings make it wait."""
        self._stop_state = stop_state
        if not self.connection.is_usable or not self._settings.connects:
            return
        settings = self._settings
        why = self._find(self._patience_s(_WAIT_S if settings.break_at_start else 0.0))
        if why and settings.on_disconnect == "wait":
            log(f"{self._introduction.absence(self.connection, why)}; the training waits")
            with self._termination.noticed():
                why = self._find(None)
        elif why:
            without = " without the debugger" if self._introduction.is_refused else ", and attaches when there is one"
            log(f"{self._introduction.absence(self.connection, why)}; the training goes on{without}")
        if not why and self._announce(run_at_start=not settings.break_at_start):
            self._report_attached()
        if not self.is_attached:
            self.background.absent()
        self.background.start()

    def come_back(self, stop_state: StopState) -> bool:
        """Attach to a server that has become available; return whether that was possible."""
        self._stop_state = stop_state
        if time.monotonic() < self._retry_s or not self._announce(run_at_start=True):
            self.background.absent()
            return False
        self._report_attached()
        return True

    def wait(self, stop_state: StopState) -> None:
        """Wait until there is a server again."""
        log(f"the training waits for the debug server at {self.connection.address}")
        self._stop_state = stop_state
        self.background.absent()
        with self._termination.noticed():
            while not (self._find(None) or self._announce(run_at_start=True)):
                time.sleep(_SEARCH_EVERY_S)

    def _report_attached(self) -> None:
        """Log that the training is attached; our server logs this itself, with the address of the page."""
        if not self._introduction.is_ours:
            report(f"attached to the debug server at {self.connection.address}")

    def _patience_s(self, otherwise_s: float) -> float:
        chosen = self._settings.connect_within_s
        return otherwise_s if chosen is None else chosen

    def _find(self, within_s: float | None) -> str:
        """Search for a server repeatedly; return why there is none, empty if there is one.

        Without a time, the search goes on until there is one, or the process is asked to end.
        """
        end_s = None if within_s is None else time.monotonic() + within_s
        while True:
            left_s = _SEARCH_EVERY_S if end_s is None else end_s - time.monotonic()
            why = self._introduction.find_out(self.connection, timeout_s=max(min(left_s, 5.0), _ANSWER_WITHIN_S))
            is_late = end_s is not None and (time.monotonic() >= end_s or self._introduction.is_refused)
            is_over = is_late or self._termination.is_requested
            if not why or is_over:
                return why
            time.sleep(min(0.1, max(left_s, 0.0)))

    def _announce(self, *, run_at_start: bool) -> bool:
        why = self._introduction.announce(self.connection, self._stop_state.step, run_at_start=run_at_start)
        self.is_attached = not why
        if why:
            self._leave(why)
            return False
        self._telemetry.forget()
        if self._loop is not None:
            self._loop.is_ours = self._introduction.is_ours
            self._loop.forget_watchpoints()
        self.background.attached()
        return True

    # --- stopped ---

    def stop(self, stop_state: StopState, *, is_held: bool) -> Order:
        """Execute the server's commands until it lets the training go on, or is gone and the training may go on.

        Parameters
        ----------
        stop_state : StopState
        is_held : bool
            Whether the stop is known to belong to a user or a hit; see `CommandLoop`.

        Raises
        ------
        Terminated
            The user ends the training.
        """
        self._stop_state = stop_state
        loop = self._loop
        if loop is None or self._termination.is_requested:
            return ON
        loop.is_held = is_held
        self.background.runs(False)
        with self._termination.noticed():
            order = self._obey(loop)
        if self._termination.is_requested:
            log("SIGTERM: the training goes on to its end, and is not stopped any more")
        return order

    def _obey(self, loop: CommandLoop) -> Order:
        while True:
            try:
                order = loop.obey(self.where)
            except RefusedError as error:
                self._leave(str(error))
                return ON
            except LostError as error:
                if self._termination.is_requested:
                    self.background.runs(True)
                    return ON
                if self._returns(str(error), is_held=loop.is_held):
                    continue
                return ON
            self._refusals = 0
            self.background.runs(True)
            return order

    def where(self) -> Metadata:
        """Return the stop state as a message."""
        at = self._stop_state
        return self._introduction.metadata(
            at.step, at.program, at.node, hashes=at.hashes, oldest_iteration=at.oldest_iteration
        )

    def introduce_again(self) -> str:
        """Introduce the stopped process to the server again; return why it refuses."""
        is_held = False
        if self._loop is not None:
            self._loop.forget_watchpoints()
            is_held = self._loop.is_held
        return self._introduction.announce(self.connection, self._stop_state.step, run_at_start=not is_held)

    def _returns(self, why: str, *, is_held: bool) -> bool:
        """Wait for a server that was lost while the training was stopped; return whether it came back.

        A training that only asks for commands waits for no server, unless the settings say so.
        """
        self.is_attached = False
        self.background.absent()
        waits = self._settings.on_disconnect == "wait"
        patience_s = self._patience_s(_WAIT_S) if is_held else 0.0
        within_s = None if waits else patience_s
        patience = "" if waits else f" {patience_s:g} s"
        does = f"; the training waits for it{patience}" if waits or patience_s else ""
        log(f"lost the debug server at {self.connection.address} ({why}){does}")
        if not self._find(within_s) and self._announce(run_at_start=not is_held):
            self._report_attached()
            return True
        if not self._termination.is_requested:
            log("the training goes on without the debug server, and attaches again when it is back")
        self.background.absent()
        return False

    # --- detaching ---

    def _leave(self, why: str) -> None:
        """Go on without a server that refuses the process; try it again at growing intervals."""
        self._refusals += 1
        self._retry_s = time.monotonic() + min(2.0**self._refusals, 60.0)
        self.is_attached = False
        self.background.absent()
        log_once(f"the debug server at {self.connection.address} refuses the training ({why}); it goes on without")

    def lose(self) -> None:
        """Note that the server is gone, while the training runs."""
        self.is_attached = False

    def end(self, stop_state: StopState, rows: StepRows | None) -> None:
        """Report that the training has ended; this takes at most two seconds."""
        try:
            self.background.end()
            if self.is_attached and not self.background.is_lost:
                batches = [] if rows is None else [rows]
                if self._introduction.is_ours and (batches or self._telemetry.has_more):
                    self._telemetry.send(self.connection, *batches, within_s=_DONE_WITHIN_S)
                done = self._introduction.metadata(stop_state.step, stop_state.program, done=True)
                self.connection.call("SendMetadata", done, timeout_s=_DONE_WITHIN_S)
        finally:
            self.is_attached = False
            self.connection.close()
