"""Captures the steps of a training from the reports of an adapter, and lets the agent observe their tensors.

An adapter reports calls of modules, the tensors from which backward passes begin, and the ends of steps; the gradients
of module outputs are followed here. PyTorch's adapter has a faster implementation (`agents/torch/modules.py`), which
predicts the next call of a step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from tensight.agents.eager.calls import slot_id_of_gradient
from tensight.agents.eager.gradient_hooks import GradientHooks
from tensight.agents.eager.step_builder import StepBuilder
from tensight.agents.eager.traces import TraceCount, preview_of, trace_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from tensight.agents.core.agent import Agent
    from tensight.agents.eager.adapter import ReportedFramework
    from tensight.agents.eager.calls import Slot
    from tensight.agents.eager.names import ModuleName, Names
    from tensight.agents.eager.step_builder import Container, Position
    from tensight.agents.eager.traced_programs import Trace


class Begun(NamedTuple):
    """A call that has begun: the number of its step, and how many calls had not ended then."""

    step: int
    depth: int


class EagerCapture:
    """Captures what a training computes.

    Parameters
    ----------
    agent : Agent
    framework : ReportedFramework
    names : Names
        Names of the models' modules and tensors.
    failed : callable (error) -> None
        Called with an error in the hook of a gradient, which must not disturb the training.
    modules : str
        The framework's word for modules.

    Attributes
    ----------
    sees : bool
        Whether this step is captured.
    has_seen_calls : bool
        Whether any call was captured in this step.
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
        """Whether nothing has run since the step began."""
        return self._builder.idle

    @property
    def at(self) -> Position:
        """The position of the step."""
        return self._builder.at

    def preview(self) -> Trace:
        """Return the trace that is known before the first step."""
        return preview_of(self._names)

    def begin_step(self) -> None:
        """Begin a step; it is captured only if the agent needs it, or if none was captured yet."""
        self._steps += 1
        self.has_seen_calls = False
        self._running.clear()
        self.hooks.remove()
        self._builder.begin()
        self.sees = self._agent.capturing or self._last is None

    def end_step(self) -> Trace | None:
        """Return what ran: the same object as for an earlier step that ran alike; None if no step was captured."""
        at = self._builder.at
        if self.sees and not self._builder.idle:
            if at.trace is None and self._traces.may_add():
                at.trace = trace_of(at.executions())
            self._last = at.trace or self._last
        return self._last

    def stop(self) -> None:
        """Remove all hooks from the training's tensors; idempotent."""
        self.sees = False
        self.hooks.remove()

    # --- what an adapter reports ---

    @property
    def within(self) -> Container:
        """The module of a model in whose code the training is."""
        return next((container for container in reversed(self._running) if container is not None), None)

    @property
    def is_outermost(self) -> bool:
        """Whether no module of a model is being called."""
        return all(container is None for container in self._running)

    @property
    def depth(self) -> int:
        """How many calls have begun and not ended."""
        return len(self._running)

    def call_begins(self, name: ModuleName | None, module: Any, given: Any) -> Begun:
        """Note that a module is called.

        Parameters
        ----------
        name : ModuleName or None
            None for a wrapper of a model, whose inner calls count.
        module : object
        given : object
            Its arguments.

        Returns
        -------
        Begun
            For `call_is_over`.
        """
        self._running.append(None if name is None else (name, module, given))
        return Begun(self._steps, len(self._running) - 1)

    def call_is_over(self, begun: Begun) -> bool:
        """Note that a call has ended, also by an exception; return whether it began in the current step."""
        if begun.step != self._steps:
            return False
        del self._running[begun.depth :]
        return True

    def returned(
        self, name: ModuleName, module: Any | None, given: Any, output: Any, *, is_opaque: bool = False
    ) -> None:
        """Note the return value of a call that has ended.

        Parameters
        ----------
        name : ModuleName
        module : object or None
            None for a function, of which nothing else is known.
        given, output : object
            Its arguments and its return value.
        is_opaque : bool
            Whether nothing inside it could be observed.
        """
        if not self.sees:
            return
        self.has_seen_calls = True
        if name.is_leaf or is_opaque:
            self._builder.leaf(name, module, given, output, self.within, opaque=is_opaque)
        else:
            self._builder.container(name, module, output)

    def backward_comes(self, root: Any) -> None:
        """Note the tensor from which a backward pass will begin."""
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
