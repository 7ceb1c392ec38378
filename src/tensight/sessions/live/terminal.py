"""What the terminal of a training is told: where its page is, where it stops and why, and that it goes on.

One process of a run is told, for the others write to the same terminal. It writes what comes with a reply that has no
command, and asks again.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Protocol

from tensight.errors import TensightError
from tensight.graph import TensorAddress
from tensight.sessions.live.run_plans import NextNode, PreviousNode, RunToNode, Steps
from tensight.sessions.live.running_session import RunningSession
from tensight.sessions.records import State

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable, Sequence

    from tensight.sessions.live.process import TrainingProcess
    from tensight.sessions.live.run_plans import RunPlan
    from tensight.sessions.live.settings import LiveSettings
    from tensight.sessions.live.shown_step import ShownStep
    from tensight.sessions.records import NodeHits, OriginRecord

STOPPED_FOR_S = 0.5
"""A stop that a program ends sooner is none that a person waits for."""

ARRIVED_WITHIN_S = 5.0
"""Ranks that are still under way when the first one has stopped are waited for so long."""

HITS_EVERY_S = 1.0
"""Stops at hits are written at once, at most so often; others once the training is stopped."""

_MOST_NODES = 100
"""With hits, among which the first severe one is looked for."""


class TerminalSession(RunningSession, Protocol):
    """What a terminal needs of its session; see `LiveSession`."""

    id: str
    settings: LiveSettings
    shown: ShownStep

    async def origins(self) -> Sequence[OriginRecord]:
        """Return where the anomalies of the step began."""

    def later(self, work: Coroutine[Any, Any, None]) -> None:
        """Have something done soon, and before the session is closed."""


class Terminal:
    """Tells the terminal of a session's training what happens to it.

    Parameters
    ----------
    session : TerminalSession
    """

    def __init__(self, session: TerminalSession) -> None:
        self._session = session
        self._speaker: TrainingProcess | None = None
        self._stop = 0
        self._is_telling = self._has_hits = False
        self._notified_s = -HITS_EVERY_S
        self._timer: asyncio.TimerHandle | None = None

    def greet(self, process: TrainingProcess) -> None:
        """Tell a process that has attached where its page is."""
        page = self._page(process)
        if page and process.rank == 0:
            since = f" after step {process.step}" if process.step else ""
            process.tell(f"attached to the debug server{since}; the training can be watched at {page}")

    def stops_at_hits(self) -> None:
        """Note that hits are why the training stops."""
        self._has_hits = True

    def stopped(self) -> None:
        """Note that nothing runs; the training may be stopped already."""
        session = self._session
        if self._is_telling or self._speaker is not None or session.settings.page is None:
            return
        if not any(map(_is_stopped, session.live)):
            return
        wait_s = ARRIVED_WITHIN_S
        if session.state is State.PAUSED:
            at_once = self._has_hits and time.monotonic() >= self._notified_s + HITS_EVERY_S
            wait_s = 0.0 if at_once else STOPPED_FOR_S
        loop = asyncio.get_running_loop()
        if self._timer is not None and self._timer.when() > loop.time() + wait_s:
            self._timer.cancel()
            self._timer = None
        if self._timer is None:
            self._timer = loop.call_later(wait_s, self._tell_later, self._stop)

    def goes_on(self, plan: RunPlan) -> None:
        """Note that a run begins."""
        if not plan.trains:
            return
        self.leaves()
        speaker, self._speaker = self._speaker, None
        if speaker is not None and speaker.is_live:
            speaker.tell(f"the training goes on{_how_far(plan)}")

    def leaves(self) -> None:
        """Note that the training goes on, or ends; that hits have stopped it is told all the same."""
        if self._has_hits and self._speaker is None and time.monotonic() >= self._notified_s + HITS_EVERY_S:
            self._notify(self._first_hit(), None, waits=False)
        self._stop += 1
        self._is_telling = self._has_hits = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def close(self) -> None:
        """Tell nothing any more."""
        if self._timer is not None:
            self._timer.cancel()

    # --- a stop ---

    def _tell_later(self, stop: int) -> None:
        self._timer = None
        self._is_telling = True
        self._session.later(self._tell(stop))

    async def _tell(self, stop: int) -> None:
        """Tell of a stop, unless the training has gone on meanwhile."""
        first = self._first_hit()
        origin = None if first is None else await self._first_origin()
        if stop == self._stop:
            self._is_telling = False
            self._notify(first, origin)

    def _first_hit(self) -> NodeHits | None:
        """Return the first node of those that have stopped the training; None if something else has."""
        return _first_severe(self._session.shown.present_hits.page(limit=_MOST_NODES).nodes) if self._has_hits else None

    def _notify(self, first: NodeHits | None, origin: OriginRecord | None, *, waits: bool = True) -> None:
        """Have a process write that the training has stopped, and why."""
        session = self._session
        stopped = {process.rank: process for process in session.live if _is_stopped(process)}
        if not stopped or session.settings.page is None:
            return
        rank = min(stopped)
        if origin is not None:
            rank = TensorAddress.parse(origin.address).rank
        elif first is not None:
            rank = first.rank
        speaker = self._speaker = stopped.get(rank) or stopped[min(stopped)]
        self._notified_s = time.monotonic()
        where = f"stopped {_position(speaker)}"
        waiting = f"the training waits at {self._page(speaker)}"
        if first is None:
            speaker.tell(f"{where}; {waiting}")
            return
        who = f"rank {rank}: " if session.identity.world_size > 1 else ""
        speaker.tell(f"{who}{where} by {self._finding(first, origin)}")
        line = first.line if origin is None else origin.line
        code = "" if line is None or line.line is None else f"{line.file}:{line.lines}"
        if waits:
            speaker.tell(f"{code}; {waiting}" if code else waiting)
        elif code:
            speaker.tell(code)

    async def _first_origin(self) -> OriginRecord | None:
        """Return where the first anomaly of the step began; None if that is not known."""
        session = self._session
        if session.shown.step is not None:
            return None
        try:
            origins = await session.origins()
        except TensightError:
            return None
        return next((origin for origin in origins if origin.step == session.step), None) or next(iter(origins), None)

    def _finding(self, first: NodeHits, origin: OriginRecord | None) -> str:
        """Return which watchpoint hit first and on what, or where that began, if that is known."""
        hit = next(hit for tensor in first.tensors for hit in tensor.hits if hit.hit)
        own_name = f" ({hit.name})" if hit.name and hit.condition not in hit.name else ""
        amount = self._session.shown.present_hits.tensors
        if origin is not None:
            return f"{hit.condition}{own_name} on {amount} tensor{'s' * (amount > 1)}: {origin.sentence}"
        more = f" and {amount - 1} more" if amount > 1 else ""
        return f"{hit.condition}{own_name} on {first.node}{more}"

    def _page(self, process: TrainingProcess) -> str:
        """Return the address of the session's page, as the machine of a process finds it."""
        page = self._session.settings.page
        return "" if page is None else page.of(self._session.id, process.identity.machine)


def _is_stopped(process: TrainingProcess) -> bool:
    return process.state is State.PAUSED and process.identity.is_agent


def _position(process: TrainingProcess) -> str:
    """Return where a process is stopped, in words."""
    if process.node:
        return f"in step {process.global_step} at {process.node}"
    return f"after step {process.global_step}" if process.global_step else "before the first step"


def _how_far(plan: RunPlan) -> str:
    """Return how far a run goes, in words; empty for one without an end."""
    if isinstance(plan, NextNode):
        return " to the next operator"
    if isinstance(plan, (PreviousNode, RunToNode)):
        return " to another operator"
    if isinstance(plan, Steps) and plan.target is not None:
        return f" to step {plan.target}"
    return ""


def _first_severe(nodes: Iterable[NodeHits]) -> NodeHits | None:
    """Return the first node with a hit of a severe watchpoint, else the first with any."""
    found = [node for node in nodes if any(hit.hit for tensor in node.tensors for hit in tensor.hits)]
    severe = (node for node in found if any(hit.severity == "error" for one in node.tensors for hit in one.hits))
    return next(severe, found[0] if found else None)
