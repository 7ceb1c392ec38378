"""Tracks the running module, which is the scope of the operators that it calls."""

from __future__ import annotations

from threading import get_ident
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.modules import module as global_hooks

from tensight.agents.torch.boundary import hide_warning_of_hooks
from tensight.agents.torch.compiled import OBSERVED_OPERATORS, report_compiled
from tensight.agents.torch.framework import is_compiled

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn
    from torch.utils.hooks import RemovableHandle

    from tensight.agents.torch.boundary import Boundary

ROOT_SCOPE = "Default"


class EnteredScopes:
    """The scopes that a step has entered with gradients, and with gradients switched off."""

    def __init__(self) -> None:
        self._with_gradients: set[str] = set()
        self._without_gradients: set[str] = set()

    @property
    def without_gradients(self) -> set[str]:
        """Scopes that were entered only with gradients switched off."""
        return self._without_gradients - self._with_gradients

    def add(self, scope: str) -> None:
        """Note that a scope is entered."""
        (self._with_gradients if torch.is_grad_enabled() else self._without_gradients).add(scope)

    def clear(self) -> None:
        """Forget all scopes."""
        self._with_gradients.clear()
        self._without_gradients.clear()


class ModuleScopes:
    """Follows which module's forward runs in the training thread.

    Parameters
    ----------
    scope_of : callable (module) -> str
        Returns the scope of a module; empty if it has none, and then belongs to that of its caller.
    entered : callable (scope)
        Called whenever the scope changes. Equal scopes are the same object.
    outermost : callable (module, begins)
        Called when an outermost module begins or ends.
    boundary : Boundary

    Attributes
    ----------
    thread : int
        The thread whose modules are followed.
    """

    def __init__(
        self,
        scope_of: Callable[[nn.Module], str],
        entered: Callable[[str], None],
        outermost: Callable[[nn.Module, bool], None],
        boundary: Boundary,
    ) -> None:
        self._scope_of = scope_of
        self._entered = entered
        self._outermost = outermost
        self._boundary = boundary
        self._running: list[tuple[int, str]] = []
        self._known = {ROOT_SCOPE: ROOT_SCOPE}
        self._entered_scopes = EnteredScopes()
        self.thread = 0
        self._handles: list[RemovableHandle] = []

    @property
    def scope(self) -> str:
        """The scope that runs now."""
        return self._running[-1][1] if self._running else ROOT_SCOPE

    @property
    def without_gradients(self) -> set[str]:
        """Scopes entered since `begin_step`, and only with gradients switched off."""
        return self._entered_scopes.without_gradients

    def begin_step(self) -> None:
        """Forget the entered scopes."""
        self._entered_scopes.clear()

    def install(self) -> None:
        """Follow the modules of this thread from now on."""
        self.thread = get_ident()
        if not self._handles:
            hide_warning_of_hooks()
            self._handles = [
                global_hooks.register_module_forward_pre_hook(self._boundary.hook(self._before)),
                global_hooks.register_module_forward_hook(self._boundary.hook(self._after), always_call=True),
            ]
            self._entered(self.scope)

    def enter(self, module: nn.Module, arguments: Any) -> None:
        """Note that a module's forward has begun before the hooks were installed."""
        if self._handles:
            self._before(module, arguments)

    def remove(self) -> None:
        """Stop following modules."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._running.clear()

    def _before(self, module: nn.Module, args: Any) -> None:  # noqa: ARG002 - given by torch
        if get_ident() != self.thread:
            return
        if not self._running:
            self._outermost(module, True)
            if not self._handles:
                # The step has ended in this call, and captures nothing any more.
                return
        if is_compiled(module):
            report_compiled(module, f"inside it, {OBSERVED_OPERATORS}")
        scope = self._scope_of(module) or self.scope
        scope = self._known.setdefault(scope, scope)
        self._entered_scopes.add(scope)
        self._running.append((id(module), scope))
        self._entered(scope)

    def _after(self, module: nn.Module, args: Any, output: Any) -> None:  # noqa: ARG002 - given by torch
        running = self._running
        if get_ident() != self.thread or not running:
            return
        # A forward that an exception left in a generator, or that began before `install`, has no entry or a late one.
        identity = id(module)
        if running[-1][0] != identity and not any(identity == other for other, _ in running):
            return
        while running.pop()[0] != identity:
            pass
        self._entered(self.scope)
        if not running:
            self._outermost(module, False)
