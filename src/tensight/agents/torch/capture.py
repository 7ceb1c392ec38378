"""What a way of looking at a training's steps must offer: calls of modules, or every operator."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tensight.agents.program import Source, TracedNode


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """The operators that a step ran. Steps that ran the same share one trace: it is compared by identity.

    Weights, buffers, states of optimizers, the gradients that optimizers read and the optimizers' updates are no part
    of it: they are the same whatever is captured, and `programs` puts them around it.

    Attributes
    ----------
    inputs : tuple of TracedNode
        Tensors that the step got from outside, with the role ``input``.
    operators : tuple of TracedNode
        Forward and backward, in the order of execution.
    gradient_sources : mapping of str to tuple of Source
        For the name of a weight what its gradient was computed from.
    """

    inputs: tuple[TracedNode, ...] = ()
    operators: tuple[TracedNode, ...] = ()
    gradient_sources: Mapping[str, tuple[Source | None, ...]] = field(default_factory=dict)


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
        """Remember where the step stands: an optimizer is about to evaluate its closure for the first time."""

    def begin_evaluation(self) -> None:
        """Go back to the mark: the closure is evaluated again, and the same nodes run again."""

    @property
    def idle(self) -> bool:
        """Whether nothing ran since the step began."""
