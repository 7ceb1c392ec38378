"""The boundary between PyTorch and the debugger: nothing of ours runs unguarded where PyTorch calls it.

Every callback that PyTorch is given (hooks of modules, of gradients and of optimizers) is made by `Boundary.hook`, and
what replaces functions of PyTorch calls ours through `Boundary.call`. The dispatch mode has to run the training's
operator as well, and guards itself (`operator_mode`). Two rules hold for all of them: no exception of ours gets out,
and where PyTorch traces, exports, compiles or works on fake tensors nothing is done.
"""

from __future__ import annotations

import contextlib
import re
import warnings
from typing import TYPE_CHECKING, Any, cast

import torch
import torch.fx._symbolic_trace as fx_tracing
from torch.optim import optimizer as optimizer_hooks

from tensight.agents.termination import is_of_handler

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.utils.hooks import RemovableHandle

_is_compiling: Callable[[], bool] = torch.compiler.is_compiling
_tracing_state: Callable[[], Any] = torch._C._get_tracing_state
_count_of_modes: Callable[[], int] = torch._C._len_torch_dispatch_stack
_innermost_transform: Callable[[], Any] = torch._C._functorch.peek_interpreter_stack
_transforms: Callable[[], Any] = torch._C._functorch.get_interpreter_stack
_FUNCTIONALIZE = torch._C._functorch.TransformType.Functionalize
_mode_of: Callable[[Any], Any] = torch._C._get_dispatch_mode
_TRANSFORMING_MODES = (
    torch._C._TorchDispatchModeKey.FAKE,
    torch._C._TorchDispatchModeKey.PROXY,
    torch._C._TorchDispatchModeKey.FUNCTIONAL,
)

_WARNING_OF_HOOKS = (
    "ignore",
    re.compile("Using `torch.compile\\(module\\)` when there are global hooks"),
    UserWarning,
    None,
    0,
)

_left_hooks: list[RemovableHandle] = []
"""Hooks that do nothing any more, and could not be removed while PyTorch was calling them; the next debugger does."""


def _find_fx_tracing() -> Callable[[], bool]:
    """Return what says whether FX traces: newer versions of PyTorch know that of each thread, older ones of all."""
    of_thread: Callable[[], bool] | None = getattr(fx_tracing, "_get_is_fx_tracing", None)
    return of_thread or (lambda: getattr(fx_tracing, "_is_fx_tracing_flag", False))


_is_fx_tracing = _find_fx_tracing()


def hide_warning_of_hooks() -> None:
    """Let PyTorch not warn people who compile modules of global hooks: they are ours, and bear to be called once more.

    `warnings.filterwarnings` would make Python show again what it has warned of before.
    """
    if _WARNING_OF_HOOKS not in warnings.filters:
        cast("list[Any]", warnings.filters).insert(0, _WARNING_OF_HOOKS)


def is_transforming() -> bool:
    """Whether what runs here is no training: PyTorch traces, exports or compiles it, or its tensors are fake."""
    # Only this first question is one that PyTorch's compiler can answer while it reads our hooks.
    if _is_compiling():
        return True
    if _is_fx_tracing() or _tracing_state() is not None:
        return True
    if _innermost_transform() is not None and any(each.key() == _FUNCTIONALIZE for each in _transforms()):
        # Its tensors look like any other, and have no memory. Those of vmap and grad say so.
        return True
    return _count_of_modes() > 0 and any(_mode_of(key) is not None for key in _TRANSFORMING_MODES)


class Boundary:
    """Calls what is ours on behalf of PyTorch, and of what replaces functions of PyTorch.

    An interruption by a person (`KeyboardInterrupt`, and the `SystemExit` that ends a training) passes through.

    Parameters
    ----------
    on_error : callable (error)
        Told of an exception of ours.

    Attributes
    ----------
    compiled_update : Optimizer or None
        The last one whose step compiled code has run: of that we are not told when it happens.
    """

    def __init__(self, on_error: Callable[[Exception], None]) -> None:
        self._on_error = on_error
        self._followers: list[tuple[Callable[..., Any], Callable[..., Any]]] = []
        self._step_hooks: list[RemovableHandle] = []
        self._is_at_step = False
        self.compiled_update: torch.optim.Optimizer | None = None

    def hook(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function for PyTorch to call in place of one of ours: it returns None where that fails.

        Parameters
        ----------
        function : callable
        """
        failed = self.failed

        def hook(*arguments: Any) -> Any:
            try:
                return None if is_transforming() else function(*arguments)
            except Exception as error:
                failed(error)
                return None

        return hook

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function of ours, unless PyTorch is tracing or compiling; return None where that fails."""
        try:
            return None if is_transforming() else function(*arguments)
        except Exception as error:
            self.failed(error)
            return None

    def failed(self, error: Exception) -> None:
        """Note an exception of ours; one that a signal handler of the training has raised goes its way."""
        if is_of_handler(error):
            raise error
        # Where even that fails nobody can be told.
        with contextlib.suppress(Exception):
            self._on_error(error)

    # --- hooks of all optimizers ---

    def follow_steps(self, before: Callable[..., Any], after: Callable[..., Any]) -> None:
        """Have functions of ours called before and after the step of every optimizer.

        PyTorch does not bear that such hooks come and go while it calls them. So there is one of each for all of ours,
        from the first call of this until `leave`.

        Parameters
        ----------
        before : callable (optimizer, arguments, named)
            It may return other arguments and keyword arguments for the step.
        after : callable (optimizer, arguments, named)
        """
        while _left_hooks:
            _left_hooks.pop().remove()
        self._followers.append((before, after))
        if not self._step_hooks:
            self._step_hooks = [
                optimizer_hooks.register_optimizer_step_pre_hook(self._before_step),
                optimizer_hooks.register_optimizer_step_post_hook(self._after_step),
            ]

    def leave(self) -> None:
        """Call nothing of ours before and after steps any more."""
        self._followers.clear()
        self.compiled_update = None
        if self._is_at_step:
            _left_hooks.extend(self._step_hooks)
        else:
            for hook in self._step_hooks:
                hook.remove()
        self._step_hooks = []

    def _is_no_training(self) -> bool:
        try:
            return is_transforming()
        except Exception as error:
            self.failed(error)
            return True

    def _before_step(self, *given: Any) -> Any:
        if self._is_no_training():
            return None
        return self._at_step([before for before, _ in self._followers], given)

    def _after_step(self, optimizer: torch.optim.Optimizer, *given: Any) -> None:
        if _is_compiling():
            # What is set here the compiled code will set, each time that it runs; anything else would change it.
            self.compiled_update = optimizer
        elif not self._is_no_training():
            self._at_step([after for _, after in self._followers], (optimizer, *given))

    def _at_step(self, functions: list[Callable[..., Any]], given: tuple[Any, ...]) -> Any:
        """Call functions of ours; return the last thing that one of them returned."""
        changed = None
        self._is_at_step = True
        try:
            for function in functions:
                changed = self.call(function, *given) or changed
        finally:
            self._is_at_step = False
        return changed
