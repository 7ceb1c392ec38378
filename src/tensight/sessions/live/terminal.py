"""Messages in the terminal of a training: the address of its page, where and why it stops, and that it continues.

They are sent to a single process of a run, since the others write to the same terminal. The process writes the text of
a reply that has no command, and asks again.
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
from tensight.watchpoints.recommended import NAMES_BEGIN

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable, Sequence

    from tensight.sessions.live.process import TrainingProcess
    from tensight.sessions.live.run_plans import RunPlan
    from tensight.sessions.live.settings import LiveSettings
    from tensight.sessions.live.shown_step import ShownStep
    from tensight.sessions.records import FindingRecord, NodeHits, OriginRecord
    from tensight.sessions.watchpoint_list import SessionWatchpoint

STOPPED_FOR_S = 0.5
"""Seconds until a stop is reported; shorter stops are ended by a program, not by a user."""

ARRIVED_WITHIN_S = 5.0
"""Seconds to wait for other ranks after the first one has stopped."""

HITS_EVERY_S = 1.0
"""Minimum seconds between two stops at hits that are reported immediately."""

_MOST_NAMES = 3
"""Watchpoints of earlier runs that are named."""

_MOST_FINDINGS = 3
"""Findings that are written out."""

_MOST_NODES = 100
"""Nodes with hits that are searched for the first severe one."""


class TerminalSession(RunningSession, Protocol):
    """The part of a session that its terminal needs; see `LiveSession`."""

    id: str
    settings: LiveSettings
    shown: ShownStep

    async def origins(self) -> Sequence[OriginRecord]:
        """Return the origins of anomalies up to the shown step."""

    def later(self, work: Coroutine[Any, Any, None]) -> None:
        """Schedule work that must complete before the session is closed."""


class Terminal:
    """Writes messages to the terminal of a session's training.

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
        """Send an attached process the address of its page."""
        page = self._page(process)
        if page and process.rank == 0:
            since = f" after step {process.progress.step}" if process.progress.step else ""
            process.tell(f"attached to the debug server{since}; the training can be watched at {page}")

    def tells_what_is_kept(self, process: TrainingProcess, kept: Sequence[SessionWatchpoint], set_again: int) -> None:
        """Send a process that has begun what it watches because of earlier runs.

        Parameters
        ----------
        process : TrainingProcess
        kept : sequence of SessionWatchpoint
            The watchpoints that earlier runs left.
        set_again : int
            Number of recommended watchpoints that were deleted in earlier runs and are set again.
        """
        if self._session.settings.page is None or process.rank != 0:
            return
        if set_again:
            process.tell(f"{_amount(set_again)}, recommended and deleted in an earlier run, set again")
        if not kept:
            return
        disabled = sum(not watchpoint.enabled for watchpoint in kept)
        off = f", {disabled} of them disabled" if disabled else ""
        if disabled == len(kept) and not set_again:
            off = ", all of them disabled, so nothing is watched"
        chosen = [point.watchpoint for point in kept if not point.watchpoint.name.startswith(NAMES_BEGIN)]
        names = [point.name or f"{point.text} on {point.selection}" for point in chosen[:_MOST_NAMES]]
        more = f" and {len(chosen) - len(names)} more" if len(chosen) > len(names) else ""
        which = f": {'with ' * (len(chosen) < len(kept))}{', '.join(names)}{more}" if chosen else ""
        process.tell(f"{_amount(len(kept))} kept from an earlier run of this network{off}{which}")

    def tells_findings(self, findings: Sequence[FindingRecord], *, stops: bool) -> None:
        """Send the first process what has been found, certain findings first.

        Parameters
        ----------
        findings : sequence of FindingRecord
        stops : bool
            Whether the training stops because of them.
        """
        speaker = min(self._session.live, key=lambda process: process.rank, default=None)
        if self._session.settings.page is None or speaker is None or not speaker.identity.is_agent:
            return
        shown = findings[:_MOST_FINDINGS]
        for finding in shown:
            line = finding.where.get("line", "")
            at_line = f" ({line})" if line and line not in finding.title else ""
            speaker.tell(f"{finding.certainty}: {finding.title}{at_line}")
        more = len(findings) - len(shown)
        rest = f"{more} more at {self._page(speaker)}" if more else f"evidence and advice at {self._page(speaker)}"
        speaker.tell(f"the training stops for this; {rest}" if stops else rest)

    def stops_at_hits(self) -> None:
        """Note that the training stops because of hits."""
        self._has_hits = True

    def stopped(self) -> None:
        """Note that no plan is running; processes may still be on their way to their next stop."""
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
        """Note that a plan starts."""
        if not plan.trains:
            return
        self.leaves()
        speaker, self._speaker = self._speaker, None
        if speaker is not None and speaker.is_live:
            speaker.tell(f"the training goes on{_how_far(plan)}")

    def leaves(self) -> None:
        """Note that the training continues, or ends; a stop at hits is still reported."""
        if self._has_hits and self._speaker is None and time.monotonic() >= self._notified_s + HITS_EVERY_S:
            self._notify(self._first_hit(), None, waits=False)
        self._stop += 1
        self._is_telling = self._has_hits = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def close(self) -> None:
        """Send no further messages."""
        if self._timer is not None:
            self._timer.cancel()

    # --- a stop ---

    def _tell_later(self, stop: int) -> None:
        self._timer = None
        self._is_telling = True
        self._session.later(self._tell(stop))

    async def _tell(self, stop: int) -> None:
        """Report a stop, unless the training has continued meanwhile."""
        first = self._first_hit()
        origin = None if first is None else await self._first_origin()
        if stop == self._stop:
            self._is_telling = False
            self._notify(first, origin)

    def _first_hit(self) -> NodeHits | None:
        """Return the first node with a hit that stopped the training; None if it stopped for another reason."""
        return _first_severe(self._session.shown.present_hits.page(limit=_MOST_NODES).nodes) if self._has_hits else None

    def _notify(self, first: NodeHits | None, origin: OriginRecord | None, *, waits: bool = True) -> None:
        """Let a process write that the training has stopped, and why."""
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
        if line is not None and line.end_line is not None and speaker.closer_command:
            speaker.tell(f"to find the operator, run it again with every operator captured: {speaker.closer_command}")
        if waits:
            speaker.tell(f"{code}; {waiting}" if code else waiting)
        elif code:
            speaker.tell(code)

    async def _first_origin(self) -> OriginRecord | None:
        """Return the origin of the first anomaly, preferably in the current step; None if unknown."""
        session = self._session
        if session.shown.step is not None:
            return None
        try:
            origins = await session.origins()
        except TensightError:
            return None
        return next((origin for origin in origins if origin.step == session.step), None) or next(iter(origins), None)

    def _finding(self, first: NodeHits, origin: OriginRecord | None) -> str:
        """Return a sentence with the first watchpoint that hit, and the origin if known, else the first node."""
        hit = next(hit for tensor in first.tensors for hit in tensor.hits if hit.hit)
        watchpoint_name = f" ({hit.name})" if hit.name and hit.condition not in hit.name else ""
        amount = self._session.shown.present_hits.tensors
        if origin is not None:
            return f"{hit.condition}{watchpoint_name} on {amount} tensor{'s' * (amount > 1)}: {origin.sentence}"
        more = f" and {amount - 1} more" if amount > 1 else ""
        return f"{hit.condition}{watchpoint_name} on {first.node}{more}"

    def _page(self, process: TrainingProcess) -> str:
        """Return the address of the session's page, as seen from the machine of a process."""
        page = self._session.settings.page
        return "" if page is None else page.of(self._session.id, process.identity.machine)


def _amount(watchpoints: int) -> str:
    return f"{watchpoints} watchpoint{'s' * (watchpoints != 1)}"


def _is_stopped(process: TrainingProcess) -> bool:
    return process.state is State.PAUSED and process.identity.is_agent


def _position(process: TrainingProcess) -> str:
    """Describe where a process is stopped."""
    if process.progress.node:
        return f"in step {process.progress.global_step} at {process.progress.node}"
    return f"after step {process.progress.global_step}" if process.progress.global_step else "before the first step"


def _how_far(plan: RunPlan) -> str:
    """Describe the target of a plan; empty if it has none."""
    if isinstance(plan, NextNode):
        return " to the next operator"
    if isinstance(plan, (PreviousNode, RunToNode)):
        return " to another operator"
    if isinstance(plan, Steps) and plan.target is not None:
        return f" to step {plan.target}"
    return ""


def _first_severe(nodes: Iterable[NodeHits]) -> NodeHits | None:
    """Return the first node with a hit of a severe watchpoint, else the first with any hit."""
    hit_nodes = [node for node in nodes if any(hit.hit for tensor in node.tensors for hit in tensor.hits)]
    severe = (
        node for node in hit_nodes if any(hit.severity == "error" for tensor in node.tensors for hit in tensor.hits)
    )
    return next(severe, hit_nodes[0] if hit_nodes else None)
