"""What a way of looking at a training's steps must offer: calls of modules, or every operator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    from tensight.agents.eager.traced_programs import Trace


class Capture(Protocol):
    """Sees what a step runs, and lets the agent observe its tensors.

    All methods are called in the training's thread. Nothing is installed in PyTorch before `start`, and after a step
    for which ``agent.capturing`` is false (and whose trace is not needed) nothing must remain that costs anything.
    """

    def start(self) -> None:
        """Make ready: from now on steps are seen."""

    def stop(self) -> None:
        """Remove everything from PyTorch; also called in the child of a fork. Twice is once."""

    def begin_step(self) -> None:
        """Start to count anew. Whether this step is captured is decided here, by ``agent.capturing``."""

    def end_step(self) -> Trace:
        """Return what ran: the very object of an earlier step if that ran the same, or if this was not captured."""

    def preview(self) -> Trace:
        """Return what can be known of the operators before anything ran; their names are those they will have."""

    def mark_evaluation(self) -> None:
        """Remember where the step is: an optimizer is about to evaluate its closure for the first time."""

    def begin_evaluation(self) -> None:
        """Go back to the mark: the closure is evaluated again, and the same nodes run again."""

    def before_swap(self, tensors: Sequence[torch.Tensor]) -> None:
        """Hold no reference, also no weak one, to tensors whose contents PyTorch is about to swap; see nothing of that.

        Parameters
        ----------
        tensors : sequence of Tensor
        """

    def after_swap(self) -> None:
        """Go on after a swap, whether it was possible or not."""

    @property
    def without_gradients(self) -> set[str]:
        """Scopes of the modules that this step has called only where gradients were switched off (``no_grad``)."""

    @property
    def idle(self) -> bool:
        """Whether nothing ran since the step began."""
