"""Which operator of the forward pass an operator of the backward pass belongs to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from tensight.agents.call_stack import user_stack
from tensight.agents.torch.framework_frames import begins_backward, code_called_by_autograd, computes_again

if TYPE_CHECKING:
    from tensight.agents.program import StackFrame

_ACCUMULATE = "AccumulateGrad"
_GRADIENTS = "Gradients/"
# Autograd nodes that belong to no operator have the largest number that there is.
_NO_SEQUENCE = 2**63


class Forward(NamedTuple):
    """What is known of an operator that made autograd nodes.

    Attributes
    ----------
    name, scope : str
    stack : tuple of StackFrame
    """

    name: str
    scope: str
    stack: tuple[StackFrame, ...]


class Backward(NamedTuple):
    """Where an operator of the backward pass belongs.

    Attributes
    ----------
    scope : str
        ``Gradients/Default/layer1``; of what adds up the gradient of a weight ``Gradients/Default/layer1/weight``.
    stack : tuple of StackFrame
        The user's code: of the forward operator, or of a backward function that the user has written.
    forward : str
        Name of the forward operator; empty if it is not known.
    weight : Tensor or None
        Whose gradient is added up.
    """

    scope: str
    stack: tuple[StackFrame, ...]
    forward: str = ""
    weight: Any = None


class AutogradPairs:
    """The autograd nodes of a step, by their numbers.

    Each operator of the forward pass that needs gradients makes a node and gives it the thread's next number. So the
    numbers that were given since the operator before belong to this one.
    """

    def __init__(self) -> None:
        self.first = torch.autograd._get_sequence_nr()
        self._forward: dict[int, Forward] = {}
        self._given = self.first

    def taken(self) -> tuple[int, int]:
        """Return the numbers given since this was last asked: the first, and the one after the last; from 0."""
        before, self._given = self._given, torch.autograd._get_sequence_nr()
        return before - self.first, max(self._given, before) - self.first

    def put(self, numbers: tuple[int, int], forward: Forward) -> None:
        """Note whose nodes have some numbers."""
        for number in range(*numbers):
            self._forward[number] = forward

    def go_on_after(self, first: int, given: int) -> None:
        """Take over a step: its first number, and how many were given to the operators that are known."""
        self.first = first
        self._given = first + given

    def backward(self) -> Backward | None:
        """Return where the operator that runs now belongs in the backward pass; None if it is none of it.

        What activation checkpointing computes again in the backward pass is none of it.
        """
        node = torch._C._current_autograd_node()
        if node is None:
            return Backward(f"{_GRADIENTS}Default", user_stack(2)) if begins_backward() else None
        if torch.is_grad_enabled() and computes_again():
            return None
        live = user_stack(2) if code_called_by_autograd() else ()
        weight = getattr(node, "variable", None) if node.name().endswith(_ACCUMULATE) else None
        if weight is not None:
            return Backward("", live or user_stack(2), weight=weight)
        number = int(node._sequence_nr())
        forward = self._forward.get(number - self.first) if number < _NO_SEQUENCE else None
        if forward is None:
            return Backward(f"{_GRADIENTS}Default", live or user_stack(2))
        return Backward(f"{_GRADIENTS}{forward.scope.removeprefix(_GRADIENTS)}", live or forward.stack, forward.name)


def accumulated_weight() -> torch.Tensor | None:
    """Return the weight whose gradient autograd adds up now, if it does.

    How it does that depends on who else holds the gradient, and so on what is kept of it: it takes it, copies it or
    adds it. What a user's hook does meanwhile is none of it.
    """
    node = torch._C._current_autograd_node()
    if node is None or not node.name().endswith(_ACCUMULATE) or code_called_by_autograd():
        return None
    return getattr(node, "variable", None)
