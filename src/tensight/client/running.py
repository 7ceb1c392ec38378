"""Commands to a session: continue, step, go back, run to a node, and wait."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Literal

from tensight.client.errors import WaitError
from tensight.client.events import Events
from tensight.client.part import SessionPart, spoken
from tensight.errors import InputError
from tensight.sessions.errors import NotFoundError
from tensight.sessions.records import Command, SessionRecord, State

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Self

_MOVING = (State.CONNECTING, State.SENDING, State.RUNNING)


class Running(SessionPart):
    """Commands to a session.

    Each returns the session as soon as the server has accepted the command, so that `wait` can be chained. A command
    that is not possible now raises `tensight.sessions.errors.StateError` with the reason.
    """

    def continue_(self, steps: int = -1, *, stop_on: Literal["new", "every"] = "new") -> Self:
        """Continue until there is a new hit or the run ends.

        Parameters
        ----------
        steps : int
            Maximum number of steps; -1 for no limit.
        stop_on : {"new", "every"}
            Hits that stop the run: new ones that do not follow from reported ones, or all.

        Examples
        --------
        >>> _ = session.watch("tensor_overflow")
        >>> record = session.continue_().wait(60)
        >>> record.step, record.hits > 0
        (3, True)
        """
        return self._command("continue", steps=steps, stop_on=stop_on)

    def step(self, steps: int = 1) -> Self:
        """Run some steps; watchpoints may stop earlier.

        Parameters
        ----------
        steps : int
            Number of steps, from 1.

        Examples
        --------
        >>> session.step(2).wait(60).step
        2
        """
        return self._command("continue", steps=steps)

    def next_node(self) -> Self:
        """Run to the next operator.

        Examples
        --------
        >>> _ = session.step().wait(60)
        >>> session.next_node().wait(60).node
        'Default/network-Loss/network-SickNetwork/dead-DeadBranch/conv-Conv2d/Conv2D-op0'
        """
        return self._command("next_node")

    def previous_node(self, node: str = "", *, rank: int | None = None, graph: str = "") -> Self:
        """Go back to the previous operator, or to an earlier one of the same step.

        This is possible in dumps and recorded runs, and in trainings whose agent sees a complete step; see the
        capability ``can_previous_node``. Until such a training continues, what it computed later in the step has its
        value of the previous step.

        Parameters
        ----------
        node : str
            Full name of an operator that has run in this step; by default the previous one.
        rank : int, optional
            The rank that goes back; by default all.
        graph : str
            Its graph, if several have a node of this name.

        Examples
        --------
        >>> _ = session.step().wait(60)
        >>> before = session.next_node().wait(60).node
        >>> _ = session.next_node().wait(60)
        >>> session.previous_node().wait(60).node == before
        True
        """
        return self._command("previous_node", node=node, rank=rank, graph=graph)

    def run_to(self, node: str, *, rank: int | None = None, graph: str = "") -> Self:
        """Run until an operator has run.

        Parameters
        ----------
        node : str
            Its full name.
        rank : int, optional
            Its rank; by default any.
        graph : str
            Its graph, if several have a node of this name.

        Examples
        --------
        >>> _ = session.step().wait(60)
        >>> relu = session.nodes(type="ReLU")[0].entry.path
        >>> session.run_to(relu).wait(60).node == relu
        True
        """
        return self._command("run_to_node", node=node, rank=rank, graph=graph)

    def look_closer(self, steps: int = -1) -> Self:
        """Capture every operator from the next step on, and continue until there is a hit.

        What a container, the script or a loss function computes between two calls of modules is reported as a range of
        lines. If the problem recurs, its operator and line are now named. The first hit counts as new, whatever was
        reported before. See the capability ``can_look_closer``.

        Parameters
        ----------
        steps : int
            Maximum number of steps; -1 for no limit.

        Examples
        --------
        >>> session.look_closer().wait(60).node  # doctest: +SKIP
        'Default/div-op0'
        """
        return self._command("look_closer", steps=steps)

    def pause(self) -> Self:
        """Stop a run at its next step.

        Examples
        --------
        >>> session.continue_().pause().wait(60).state.value  # doctest: +SKIP
        'paused'
        """
        return self._command("pause")

    def terminate(self) -> Self:
        """End the training; for a dump, close the session.

        Examples
        --------
        >>> _ = session.terminate()
        """
        return self._command("terminate")

    def go_to(self, step: int) -> Self:
        """Show a step; 0 is the state before the first update.

        This works for any step of a dump or a recorded run, and for past steps of a stopped training with Tensight's
        agent. It does not move the training, which continues from where it is stopped.

        Parameters
        ----------
        step : int
            From 1; 0 for the state before the first update.

        Examples
        --------
        >>> session.go_to(3).wait(60).step
        3
        """
        if step < 0:
            raise InputError(f"step {step} does not exist; steps count from 0, the state before the first update")
        return self._command("go_to_step", steps=step)

    def back(self, steps: int = 1) -> Self:
        """Go back some steps, as `go_to` does.

        Parameters
        ----------
        steps : int
            Number of steps, from 1.

        Examples
        --------
        >>> _ = session.go_to(3).wait(60)
        >>> session.back().wait(60).step
        2
        """
        return self._command("step_back", steps=steps)

    def recheck(self) -> Self:
        """Check all watchpoints again on the current step, after changing them.

        Examples
        --------
        >>> _ = session.go_to(3).wait(60)
        >>> _ = session.watch("tensor_overflow")
        >>> session.recheck().wait(60).hits > 0
        True
        """
        return self._command("recheck")

    def wait(self, timeout_s: float | None = None) -> SessionRecord:
        """Wait until the session is stopped: paused, or at its end.

        Parameters
        ----------
        timeout_s : float, optional
            Seconds; by default no limit.

        Returns
        -------
        SessionRecord
            `state` is the reason for the stop, `hits` the number of tensors with hits.

        Raises
        ------
        WaitError
            The session still runs after that time, and continues.

        Examples
        --------
        >>> session.wait(60).state.value
        'paused'
        """
        begin = time.monotonic()
        record = self._summary_or_end()
        events = Events(self._connection, self._path("events"), record.last_event)
        while record.state in _MOVING:
            left = None if timeout_s is None else timeout_s - (time.monotonic() - begin)
            if left is not None and left <= 0:
                raise WaitError(f"session {self.id} ({self.name}) is still {record.state.value} after {timeout_s:g} s")
            event = events.next(left)
            if event is not None and event.kind == "closed":
                message = str(event.data.get("reason", ""))
                self._known = record.model_copy(update={"state": State.TERMINATED, "message": message})
            if event is None or event.kind in ("state", "closed") or events.missed:
                record = self._summary_or_end()
        return record

    def wait_until(self, holds: Callable[[SessionRecord], bool], timeout_s: float | None = None) -> SessionRecord:
        """Wait until a condition on the session's summary is true, whether it runs or is stopped.

        Parameters
        ----------
        holds : callable
            Called whenever the session changes; at most several times a second while a training runs.
        timeout_s : float, optional
            Seconds; by default no limit.

        Returns
        -------
        SessionRecord

        Raises
        ------
        WaitError
            The condition did not become true in time, or cannot any more because the session has ended.

        Examples
        --------
        >>> session.continue_().wait_until(lambda record: record.step > 0, 60).step > 0
        True
        """
        begin = time.monotonic()
        record = self._summary_or_end()
        events = Events(self._connection, self._path("events"), record.last_event)
        while not holds(record):
            left = None if timeout_s is None else timeout_s - (time.monotonic() - begin)
            if record.state.has_ended or (left is not None and left <= 0):
                when = "" if record.state.has_ended else f" after {timeout_s:g} s"
                raise WaitError(
                    f"session {self.id} ({self.name}) is {record.state.value} at step {record.step}{when}, and the"
                    " condition is not true"
                )
            event = events.next(left)
            if event is None or event.kind in ("state", "closed", "hits") or events.missed:
                record = self._summary_or_end()
        return record

    def _summary_or_end(self) -> SessionRecord:
        """Return a summary of the session; if the server has forgotten an ended session, its final state."""
        try:
            return self.summary
        except NotFoundError:
            if self._known.state.has_ended:
                return self._known
            raise

    def _command(self, action: str, **details: Any) -> Self:
        command = spoken(Command, action=action, **details)
        self._known = self._connection.send(SessionRecord, "POST", self._path("command"), command)
        return self
