"""The interface of captures, which record the steps of a training: calls of modules, or every operator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    from tensight.agents.eager.traced_programs import Trace


class Capture(Protocol):
    """Records what a step runs, and lets the agent observe its tensors.

    All methods are called in the training's thread. Nothing is installed in PyTorch before `start`. In a step for which
    ``agent.capturing`` is false (and whose trace is not needed) nothing that costs time may remain installed.
    """

    def start(self) -> None:
        """Start to capture steps."""

    def enter(self, module: torch.nn.Module, arguments: tuple[Any, ...]) -> None:
        """Note that a module's forward has begun before `start`."""

    def stop(self) -> None:
        """Remove everything from PyTorch; also called in the child of a fork. Idempotent."""

    def begin_step(self) -> None:
        """Begin a step. Whether it is captured is decided here, by ``agent.capturing``."""

    def end_step(self) -> Trace:
        """Return what ran: the same object as before if the step ran like an earlier one, or was not captured."""

    def preview(self) -> Trace:
        """Return what is known about the operators before anything ran, with their final names."""

    def mark_evaluation(self) -> None:
        """Remember the position in the step: an optimizer is about to evaluate its closure for the first time."""

    def begin_evaluation(self) -> None:
        """Return to the mark: the closure is evaluated again, and the same nodes run again."""

    def before_swap(self, tensors: Sequence[torch.Tensor]) -> None:
        """Drop all references, also weak ones, to tensors whose contents PyTorch is about to swap; do not capture it.

        Parameters
        ----------
        tensors : sequence of Tensor
        """

    def after_swap(self) -> None:
        """Continue after a swap, whether it succeeded or not."""

    @property
    def without_gradients(self) -> set[str]:
        """Scopes of the modules that this step has called only with gradients switched off (``no_grad``)."""

    @property
    def idle(self) -> bool:
        """Whether nothing has run since the step began."""
