"""Hooks that observe the gradients of tensors during a step."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from tensight.agents.eager.adapter import ReportedFramework
    from tensight.agents.eager.calls import Slot

_Hooked = tuple["Slot", Any, Any]


class GradientHooks:
    """The hooks of a step.

    Parameters
    ----------
    framework : ReportedFramework
    came : callable (slot, gradient) -> None
        Called with each gradient.
    """

    def __init__(self, framework: ReportedFramework, came: Callable[[Slot, Any], None]) -> None:
        self._framework = framework
        self._came = came
        self._hooked: dict[int, _Hooked] = {}

    def await_gradient(self, slot: Slot, tensor: Any) -> None:
        """Observe the gradient of a tensor when the backward pass has computed it."""
        hooked = self._hooked.get(id(tensor))
        if hooked is not None and hooked[1]() is tensor:
            return
        if slot.on_gradient is None:
            slot.on_gradient = self._seer(slot)
        handle = self._framework.on_gradient(tensor, slot.on_gradient)
        if handle is not None:
            self._hooked[id(tensor)] = slot, weakref.ref(tensor), handle

    def take_off(self, tensors: list[Any]) -> list[tuple[Slot, Any]]:
        """Remove the hooks of some tensors; return what `put_back` needs."""
        taken = []
        for tensor in tensors:
            hooked = self._hooked.get(id(tensor))
            if hooked is not None and hooked[1]() is tensor:
                hooked[2].remove()
                del self._hooked[id(tensor)]
                taken.append((hooked[0], tensor))
        return taken

    def put_back(self, taken: list[tuple[Slot, Any]]) -> None:
        """Restore the hooks that `take_off` has removed."""
        for slot, tensor in taken:
            self.await_gradient(slot, tensor)

    def remove(self) -> None:
        """Remove all hooks."""
        for _, reference, handle in self._hooked.values():
            if reference() is not None:
                handle.remove()
        self._hooked.clear()

    def _seer(self, slot: Slot) -> Callable[[Any], None]:
        came = self._came

        def see(gradient: Any) -> None:
            if gradient is not None:
                came(slot, gradient)

        return see
