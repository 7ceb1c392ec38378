"""Detects gradients that are not cleared between updates, so that each update repeats the previous ones.

One weight of each optimizer is followed. Its gradient was not cleared if it is still the same tensor when the next
backward pass begins, and has not been written to since the update. Scaling it down instead is a write.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

import torch

from tensight.agents.oversights import UPDATES
from tensight.agents.torch.arrays import version_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tensight.agents.eager.persistent_tensors import Updated
    from tensight.agents.reader import TensorReader


_GRADIENTS_READ = 4
"""Limit of the gradients that are read to see whether they are zero."""


class KeptGradients:
    """Follows the gradient of a weight of each optimizer.

    Parameters
    ----------
    reader : TensorReader
    report : callable (optimizer, weight) -> None
        Called once for each such optimizer, with its class and the name of the weight.
    """

    def __init__(self, reader: TensorReader, report: Callable[[str, str], None]) -> None:
        self._reader = reader
        self._report = report
        self._followed: weakref.WeakKeyDictionary[torch.optim.Optimizer, _Followed] = weakref.WeakKeyDictionary()

    def update_begins(self, optimizer: torch.optim.Optimizer) -> None:
        """Note that an optimizer is about to update."""
        followed = self._followed.get(optimizer)
        if followed is None or followed.is_settled:
            return
        followed.updates = followed.updates + 1 if followed.was_added_to else 0
        if followed.updates == UPDATES:
            followed.is_settled = True
            self._report(type(optimizer).__name__, followed.name)

    def update_ends(self, optimizer: torch.optim.Optimizer, weights: Sequence[Updated | None]) -> None:
        """Note that an optimizer has updated its weights."""
        followed = self._followed.get(optimizer)
        if followed is None or followed.weight() is None:
            first = next((weight for weight in weights if weight is not None and _gradient(weight) is not None), None)
            if first is None:
                return
            followed = self._followed[optimizer] = _Followed(first)
        followed.was_used()

    def before_swap(self) -> None:
        """Drop all references to gradients: PyTorch is about to swap the contents of tensors."""
        for followed in self._followed.values():
            followed.forget()

    def backward_begins(self) -> None:
        """Note that a backward pass begins."""
        for followed in self._followed.values():
            if followed.is_there() and followed.updates == UPDATES - 1:
                # Writes through `.data` do not change the version, so the values are checked before the report.
                values = self._reader.host(followed.gradient())
                followed.is_settled |= values is None or not values.any()

    def backward_ends(self) -> None:
        """Note that a backward pass has ended."""
        for followed in self._followed.values():
            followed.may_be_added_to()


def adds_up(reader: TensorReader, weights: Iterable[torch.Tensor | None]) -> bool:
    """Return whether a backward pass that begins adds to gradients of earlier ones: those were not cleared."""
    gradients = [weight.grad for weight in weights if weight is not None and weight.grad is not None]
    values = [reader.host(gradient) for gradient in gradients[:_GRADIENTS_READ]]
    return any(value is None or bool(value.any()) for value in values)


class _Followed:
    """The gradient that an update has used, as long as only backward passes write to it."""

    def __init__(self, weight: Updated) -> None:
        self.name = weight.name
        self.weight = weight.tensor
        self.updates = 0
        self.was_added_to = False
        self.is_settled = False
        self._used: weakref.ref[torch.Tensor] | None = None
        self._version = 0

    def gradient(self) -> torch.Tensor | None:
        """Return the current gradient."""
        weight = self.weight()
        return None if weight is None else weight.grad

    def was_used(self) -> None:
        """Note that an update has used the gradient."""
        gradient = None if self.is_settled else self.gradient()
        self.was_added_to = False
        # Tensor subclasses have their memory elsewhere, and count versions differently.
        self._used = weakref.ref(gradient) if type(gradient) is torch.Tensor else None
        self._version = 0 if gradient is None else version_of(gradient)

    def forget(self) -> None:
        """Stop following the gradient until the next update."""
        self._used, self.was_added_to = None, False

    def is_there(self) -> bool:
        """Whether only backward passes have written to the gradient since the update."""
        if self._used is None:
            return False
        gradient = self.gradient()
        if gradient is None or gradient is not self._used() or version_of(gradient) != self._version:
            self.forget()
            return False
        return True

    def may_be_added_to(self) -> None:
        """Note whether a backward pass has added to it."""
        if self._used is None:
            return
        gradient = self.gradient()
        if gradient is None or gradient is not self._used():
            self.forget()
        elif version_of(gradient) != self._version:
            self._version, self.was_added_to = version_of(gradient), True


def _gradient(weight: Updated) -> torch.Tensor | None:
    tensor = weight.tensor()
    return None if tensor is None else tensor.grad
