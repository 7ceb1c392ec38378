"""Pairs each operator of the backward pass with its operator of the forward pass."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from tensight.agents.core.call_stack import user_stack
from tensight.agents.torch.framework_frames import begins_backward, code_called_by_autograd, computes_again

if TYPE_CHECKING:
    from tensight.agents.core.program import StackFrame

_ACCUMULATE = "AccumulateGrad"
_GRADIENTS = "Gradients/"
# Autograd nodes without an operator have the largest possible number.
_NO_SEQUENCE = 2**63


class Forward(NamedTuple):
    """An operator of the forward pass that made autograd nodes.

    Attributes
    ----------
    name, scope : str
    stack : tuple of StackFrame
    """

    name: str
    scope: str
    stack: tuple[StackFrame, ...]


class Backward(NamedTuple):
    """The scope, stack and forward operator of an operator of the backward pass.

    Attributes
    ----------
    scope : str
        ``Gradients/Default/layer1``; empty if `weight` is set, because then the weight determines it.
    stack : tuple of StackFrame
        The user's code: of the forward operator, or of a backward function that the user has written.
    forward : str
        Name of the forward operator; empty if it is not known.
    weight : Tensor or None
        The weight whose gradient it accumulates.
    """

    scope: str
    stack: tuple[StackFrame, ...]
    forward: str = ""
    weight: Any = None


class AutogradPairs:
    """The autograd nodes of a step, by their numbers.

    Each operator of the forward pass that needs gradients makes a node and gives it the thread's next number. So the
    numbers given since the previous operator belong to this one.
    """

    def __init__(self) -> None:
        self.first = torch.autograd._get_sequence_nr()
        self._forward: dict[int, Forward] = {}
        self._given = self.first

    def taken(self) -> tuple[int, int]:
        """Return the numbers given since the last call, relative to the step, as a half-open range."""
        before, self._given = self._given, torch.autograd._get_sequence_nr()
        return before - self.first, max(self._given, before) - self.first

    def put(self, numbers: tuple[int, int], forward: Forward) -> None:
        """Note the forward operator whose nodes have some numbers."""
        for number in range(*numbers):
            self._forward[number] = forward

    def go_on_after(self, first: int, given: int) -> None:
        """Continue a step, given its first number and how many were given to the known operators."""
        self.first = first
        self._given = first + given

    def backward(self) -> Backward | None:
        """Return the scope and forward operator of the running operator; None if it is not a backward operator.

        Operators that activation checkpointing recomputes in the backward pass are not.
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
    """Return the weight whose gradient autograd is accumulating, if it does.

    Which operators it uses depends on other references to the gradient, and so on what the debugger keeps: it takes the
    gradient, copies it or adds it. Operators of a user's hook do not count.
    """
    node = torch._C._current_autograd_node()
    if node is None or not node.name().endswith(_ACCUMULATE) or code_called_by_autograd():
        return None
    return getattr(node, "variable", None)
