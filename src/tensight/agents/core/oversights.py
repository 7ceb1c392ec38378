"""Cases in which users may believe that something is debugged although it is not. Each is reported once."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

UPDATES = 3
"""Number of updates without a step, or of steps without an operator, that is reported."""

BACKWARD_PASSES = 32
"""Number of backward passes without an update that are not reported."""

ACCUMULATED = 256
"""The same for backward passes that add to the gradients of earlier ones."""

CALLS = 64
"""The same for calls of models without an update or a backward pass."""

_UNTIL_A_STEP = {"backward", "calls", "elsewhere"}
"""Reports that apply as long as no step has been counted."""

UNKNOWN_PARAMETERS = (
    "none of its parameters belongs to a model that is debugged. It was made before the model was replaced, or trains"
    " another one."
)
"""Why an update by an optimizer is not counted."""


class Oversights:
    """Counts what is observed of a training but does not become a step.

    Parameters
    ----------
    report : callable (text) -> None
        Reports to the user, wherever the session is open.
    withdraw : callable (text) -> None
        Withdraws a report that no longer applies.
    step : callable
        Returns how many steps have been counted.
    """

    def __init__(self, report: Callable[[str], None], withdraw: Callable[[str], None], step: Callable[[], int]) -> None:
        self._report = report
        self._withdraw = withdraw
        self._step = step
        self._strangers: dict[str, tuple[int, int]] = {}
        self._elsewhere: dict[tuple[str, str], int] = {}
        self._backward_passes = self._accumulates_to = 0
        self._calls: dict[int, int] = {}
        self._is_updating = False
        self._empty_steps = 0
        self._reported: dict[str, str] = {}
        self._withdrawn: set[str] = set()

    def strange_update(self, optimizer: str, why: str) -> None:
        """Note an update by an optimizer that does not train the models.

        Parameters
        ----------
        optimizer : str
            Its class.
        why : str
            The reason, as a sentence.
        """
        step = self._step()
        earlier, count = self._strangers.get(optimizer, (step, 0))
        # Beside others that do train a model, it may well hold something else, such as the temperature of a policy.
        count = count + 1 if earlier == step else 1
        self._strangers[optimizer] = step, count
        if count >= UPDATES:
            self._once(
                "strangers",
                f"{count} updates by {optimizer} are not counted as steps: {why} The session stays at step"
                f" {step} until an optimizer updates parameters of a model that is debugged; make it from the"
                " parameters of the model that is called",
            )

    def update_elsewhere(self, optimizer: str, thread: str) -> None:
        """Note an update in a thread that is not followed."""
        key = optimizer, threading.current_thread().name
        self._elsewhere[key] = count = self._elsewhere.get(key, 0) + 1
        if count >= UPDATES and not self._step():
            self._once(
                "elsewhere",
                f"{count} updates by {optimizer} in thread {key[1]!r} are not counted as steps: only thread {thread!r},"
                " in which debugging began, is followed. Begin debugging in the thread that trains",
            )

    def update_begins(self) -> None:
        """Note an update by an optimizer that trains the models; it may run backward passes itself."""
        self._is_updating = True
        self._backward_passes = self._accumulates_to = 0

    def update_ends(self) -> None:
        """Note that the update is done."""
        self._is_updating = False

    def backward_pass(self, adds_up: Callable[[], bool] = lambda: False) -> None:
        """Note that a backward pass begins.

        Parameters
        ----------
        adds_up : callable
            Returns whether it adds to gradients of earlier backward passes.
        """
        self._backward_passes += not self._is_updating
        if self._backward_passes <= max(BACKWARD_PASSES, self._accumulates_to) or "backward" in self._reported:
            return
        is_accumulation = self._backward_passes <= ACCUMULATED and adds_up()
        if is_accumulation:
            # Gradients are read again only after twice as many passes.
            self._accumulates_to = min(2 * self._backward_passes, ACCUMULATED)
        if not (is_accumulation or self._strangers or self._elsewhere):
            self._once(
                "backward",
                f"{self._backward_passes} backward passes since step {self._step()}, and no update by an optimizer that"
                " trains the models. If gradients are accumulated over more, this is normal; if something else updates"
                " the parameters, end steps with dbg.step() or step_on='forward'",
            )

    def call(self, model: object) -> None:
        """Note a call of a model that was not made by another model."""
        if self._is_updating or self._step():
            return
        # Many layers may be called one after another, without a model around them.
        self._calls[id(model)] = calls = self._calls.get(id(model), 0) + 1
        if calls == CALLS and not (self._backward_passes or self._strangers or self._elsewhere):
            self._once(
                "calls",
                f"{calls} calls of a model were seen, and no backward pass and no update by an optimizer: no step"
                " is counted, and nothing is checked, until there is one. Where nothing is trained, end steps with"
                " step_on='forward' (TENSIGHT_STEP_ON=forward) or dbg.step()",
            )

    def step_done(self, *, has_operators: bool, why: str) -> None:
        """Note that a step was counted.

        Parameters
        ----------
        has_operators : bool
            Whether any operator of its forward pass was observed, as far as it was captured.
        why : str
            The possible reason if not, as a sentence.
        """
        self._strangers.clear()
        self._backward_passes = self._accumulates_to = 0
        for what in _UNTIL_A_STEP & self._reported.keys() - self._withdrawn:
            self._withdrawn.add(what)
            self._withdraw(self._reported[what])
        self._empty_steps = 0 if has_operators else self._empty_steps + 1
        if self._empty_steps >= UPDATES:
            seen = f"{self._empty_steps} steps were counted, and no call of a model was seen in them"
            self._once("empty", f"{seen}: {why}")

    def _once(self, what: str, text: str) -> None:
        if what not in self._reported:
            self._reported[what] = text
            self._report(text)
