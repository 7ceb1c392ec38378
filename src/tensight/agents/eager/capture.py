"""Sees the steps of a training through what an adapter reports of it, and lets the agent observe their tensors.

An adapter reports calls of modules, from which tensor a backward pass begins, and when a step is over; the gradients of
what modules return are followed here. PyTorch's adapter has a faster way to the same (`agents/torch/modules.py`): it
knows beforehand what comes next in a step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from tensight.agents.eager.calls import slot_id_of_gradient
from tensight.agents.eager.gradient_hooks import GradientHooks
from tensight.agents.eager.step_builder import StepBuilder
from tensight.agents.eager.traces import TraceCount, preview_of, trace_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from tensight.agents.agent import Agent
    from tensight.agents.eager.adapter import ReportedFramework
    from tensight.agents.eager.calls import Slot
    from tensight.agents.eager.names import ModuleName, Names
    from tensight.agents.eager.step_builder import Container, Position
    from tensight.agents.eager.traced_programs import Trace


class Begun(NamedTuple):
    """A call that has begun: in which step, and how many others there were that had not ended."""

    step: int
    depth: int


class EagerCapture:
    """Sees what a training computes.

    Parameters
    ----------
    agent : Agent
    framework : ReportedFramework
    names : Names
        Of the models.
    failed : callable (error) -> None
        Told what went wrong when a gradient came: that is no reason to disturb the training.
    modules : str
        What the framework calls modules.

    Attributes
    ----------
    sees : bool
        Whether this step is captured.
    has_seen_calls : bool
        Whether any call was seen in this step.
    hooks : GradientHooks
    """

    def __init__(
        self,
        agent: Agent,
        framework: ReportedFramework,
        names: Names,
        failed: Callable[[Exception], None],
        modules: str = "modules",
    ) -> None:
        self.sees = False
        self.has_seen_calls = False
        self.hooks = GradientHooks(framework, self._gradient_came)
        self._agent = agent
        self._slot_table = agent.slot_table
        self._needs = agent.slot_table.needs
        self._framework = framework
        self._names = names
        self._failed = failed
        self._builder = StepBuilder(framework, agent.slot_table, names, self._see)
        self._steps = 0
        self._running: list[Container] = []
        self._traces = TraceCount(modules)
        self._last: Trace | None = None

    # --- steps ---

    @property
    def idle(self) -> bool:
        """Whether nothing ran since the step began."""
        return self._builder.idle

    @property
    def at(self) -> Position:
        """Where the step is."""
        return self._builder.at

    def preview(self) -> Trace:
        """Return what is known before anything ran."""
        return preview_of(self._names)

    def begin_step(self) -> None:
        """Start to count anew; tensors are looked at only if somebody wants to know."""
        self._steps += 1
        self.has_seen_calls = False
        self._running.clear()
        self.hooks.remove()
        self._builder.begin()
        self.sees = self._agent.capturing or self._last is None

    def end_step(self) -> Trace | None:
        """Return what ran, the very object of an earlier step if that ran the same; None if nothing was ever seen."""
        at = self._builder.at
        if self.sees and not self._builder.idle:
            if at.trace is None and self._traces.may_add():
                at.trace = trace_of(at.executions())
            self._last = at.trace or self._last
        return self._last

    def stop(self) -> None:
        """Leave nothing on the training's tensors; idempotent."""
        self.sees = False
        self.hooks.remove()

    # --- what an adapter reports ---

    @property
    def within(self) -> Container:
        """The module of a model in whose code the training is."""
        return next((one for one in reversed(self._running) if one is not None), None)

    @property
    def is_outermost(self) -> bool:
        """Whether no module of a model is being called."""
        return all(one is None for one in self._running)

    @property
    def depth(self) -> int:
        """How many calls have begun, and not ended."""
        return len(self._running)

    def call_begins(self, name: ModuleName | None, module: Any, given: Any) -> Begun:
        """Note that a module is called.

        Parameters
        ----------
        name : ModuleName or None
            None for what only wraps a model: what it calls counts.
        module : object
        given : object
            What it is called with.

        Returns
        -------
        Begun
            For `call_is_over`.
        """
        self._running.append(None if name is None else (name, module, given))
        return Begun(self._steps, len(self._running) - 1)

    def call_is_over(self, begun: Begun) -> bool:
        """Note that a call has ended, whatever has ended it; return whether the step is the one in which it began."""
        if begun.step != self._steps:
            return False
        del self._running[begun.depth :]
        return True

    def returned(
        self, name: ModuleName, module: Any | None, given: Any, output: Any, *, is_opaque: bool = False
    ) -> None:
        """Note what a call has returned; it is over.

        Parameters
        ----------
        name : ModuleName
        module : object or None
            None for a function, of which nothing can be seen but this.
        given, output : object
        is_opaque : bool
            Whether nothing could be seen of what happened within it.
        """
        if not self.sees:
            return
        self.has_seen_calls = True
        if name.is_leaf or is_opaque:
            self._builder.leaf(name, module, given, output, self.within, opaque=is_opaque)
        else:
            self._builder.container(name, module, output)

    def backward_comes(self, root: Any) -> None:
        """Note from which tensor a backward pass will begin."""
        if self.sees:
            self._builder.script(root)

    def backward_begins(self, root: Any) -> None:
        """Note that a backward pass begins."""
        if self.sees:
            self._builder.backward(root)

    # --- tensors ---

    def _see(self, slot: Slot, tensor: Any) -> None:
        need = self._needs[slot.slot_id]
        if need:
            self._agent.observe(slot.slot_id, tensor, need)
        slot_id = slot.gradient_slot_id
        if (slot_id < 0 or self._needs[slot_id]) and self._framework.has_gradient(tensor):
            self.hooks.await_gradient(slot, tensor)

    def _gradient_came(self, slot: Slot, gradient: Any) -> None:
        try:
            slot_id = slot.gradient_slot_id = slot_id_of_gradient(slot, self._slot_table)
            if slot.gradient_outline is None:
                slot.gradient_outline = self._framework.outline(gradient)
            need = self._needs[slot_id]
            if need:
                self._agent.observe(slot_id, gradient, need)
        except Exception as error:
            self._failed(error)
