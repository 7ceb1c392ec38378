"""Shows an earlier step of a stopped training, which stays at its current step."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from typing import TYPE_CHECKING, Protocol

from tensight.errors import InputError
from tensight.graph.steps import step_of
from tensight.sessions.errors import StateError
from tensight.sessions.hit_list import HitList
from tensight.sessions.live.running_session import RunningSession
from tensight.sessions.records import State

if TYPE_CHECKING:
    from tensight.sessions.events import EventLog
    from tensight.sessions.hit_history import HitHistory
    from tensight.sessions.live.recording import Recording
    from tensight.sessions.live.responses import KnownValues
    from tensight.sessions.records import Command


class HitsOfSteps(Protocol):
    """The hits of all steps; see `ReportedHits`."""

    history: HitHistory


class ShowingSession(RunningSession, Protocol):
    """The part of a session that `ShownStep` needs; see `LiveSession`."""

    recording: Recording
    events: EventLog
    hit_list: HitList

    @property
    def reported(self) -> HitsOfSteps:
        """Stores the hits."""

    @property
    def inspection(self) -> KnownValues:
        """Stores the values."""


class ShownStep:
    """The shown step of a session.

    For an earlier step, recorded hits and statistics are shown, and values that the process still has. The training
    itself does not move; when it continues, the current step is shown again.

    Parameters
    ----------
    session : ShowingSession

    Attributes
    ----------
    step : int or None
        The earlier step; None for the step at which the training is stopped.
    """

    def __init__(self, session: ShowingSession) -> None:
        self._session = session
        self.step: int | None = None
        self._present_hits: HitList | None = None

    @property
    def present_hits(self) -> HitList:
        """The hits of the step at which the training is stopped."""
        return self._session.hit_list if self._present_hits is None else self._present_hits

    @property
    def can_show_past(self) -> bool:
        """Whether earlier steps can be shown now."""
        session = self._session
        return session.state is State.PAUSED and session.identity.is_agent and session.present_step > 0

    async def obey(self, command: Command) -> None:
        """Show another step.

        Raises
        ------
        StateError
            The training is not paused, or nothing is known about the step.
        InputError
            There is no such step.
        """
        session = self._session
        if not session.identity.is_agent:
            raise StateError(
                f"this training cannot do {command.action!r}; open its recorded run when it has ended",
                code="unsupported",
            )
        if session.state is not State.PAUSED:
            raise StateError(
                f"earlier steps are shown while the training is paused; it is {session.state.value}", code="not-paused"
            )
        present = session.present_step
        steps = await asyncio.to_thread(self._known_steps, present)
        if command.action == "step_back":
            before = bisect_left(steps, session.step)
            if not before:
                raise StateError(f"nothing is known of a step before step {session.step}")
            step = steps[max(before - max(command.steps, 1), 0)]
        else:
            step = command.steps
            if not 0 <= step <= present:
                raise InputError(f"there is no step {step}; the training is at step {present}")
            if step not in steps:
                some = ", ".join(map(str, steps[-20:]))
                raise StateError(f"nothing is known of step {step}; of these there is something: {some}")
        self._show(step, present)

    def return_to_present(self) -> None:
        """Show the current step of the training."""
        if self.step is not None:
            self._show(self._session.present_step, self._session.present_step)

    def _show(self, step: int, present: int) -> None:
        session = self._session
        if self._present_hits is None:
            self._present_hits = session.hit_list
        if step == present:
            self.step, session.hit_list = None, self._present_hits
            self._present_hits = None
        else:
            self.step, session.hit_list = step, HitList()
            session.hit_list.replace(step, session.reported.history.of(step))
        session.events.append("hits", step=step, total=session.hit_list.tensors)
        session.announce(news=True)

    def _known_steps(self, present: int) -> list[int]:
        """Return the steps with any recorded data, in order; the last is the current step of the training."""
        session = self._session
        steps = {step_of(iteration) for iteration in session.recording.statistics.iterations()}
        steps.update(
            session.reported.history.snapshot(),
            (step_of(iteration) for iteration in session.inspection.kept.iterations()),
        )
        for process in session.live:
            if process.progress.oldest is not None:
                # Another process may be, or claim to be, millions of steps ahead.
                end = min(step_of(process.progress.iteration) + process.progress.offset + 1, present)
                steps.update(range(step_of(process.progress.oldest) + process.progress.offset, end))
        return sorted({step for step in steps if 0 <= step < present} | {present})
