"""The boundary between PyTorch and the debugger, which guards every callback.

`Boundary.hook` makes every callback that is registered with PyTorch (hooks of modules, gradients and optimizers), and
replacements of PyTorch's functions call the debugger through `Boundary.call`. The dispatch mode also has to run the
training's operator, and guards itself (`operator_mode`). Three rules apply to all of them: no exception of the debugger
reaches the training, nothing is done while PyTorch traces, exports, compiles or works on fake tensors, and what the
debugger reads of tensors is seen neither by modes of the training nor by its tensor subclasses.
"""

from __future__ import annotations

import contextlib
import re
import warnings
from typing import TYPE_CHECKING, Any, cast

import torch
import torch.fx._symbolic_trace as fx_tracing
from torch.optim import optimizer as optimizer_hooks

from tensight.agents.core.process.termination import is_of_handler

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch.utils.hooks import RemovableHandle

_without_functions = torch._C.DisableTorchFunction
_without_dispatch = torch._C._DisableTorchDispatch
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
"""Inactive hooks that could not be removed while PyTorch was calling them. The next debugger removes them."""


def _find_fx_tracing() -> Callable[[], bool]:
    """Return a function that tells whether FX traces: in this thread, or with older versions of PyTorch in any."""
    of_thread: Callable[[], bool] | None = getattr(fx_tracing, "_get_is_fx_tracing", None)
    return of_thread or (lambda: getattr(fx_tracing, "_is_fx_tracing_flag", False))


_is_fx_tracing = _find_fx_tracing()


def hide_warning_of_hooks() -> None:
    """Suppress PyTorch's warning about global hooks when modules are compiled: ours may safely be called again.

    `warnings.filterwarnings` would make Python repeat warnings that it has already shown.
    """
    if _WARNING_OF_HOOKS not in warnings.filters:
        cast("list[Any]", warnings.filters).insert(0, _WARNING_OF_HOOKS)


def is_transforming() -> bool:
    """Whether the running code is not training: PyTorch traces, exports or compiles it, or its tensors are fake."""
    # This check comes first: it is the only one that PyTorch's compiler can evaluate while it reads our hooks.
    if _is_compiling():
        return True
    if _is_fx_tracing() or _tracing_state() is not None:
        return True
    if _innermost_transform() is not None and any(each.key() == _FUNCTIONALIZE for each in _transforms()):
        # Its tensors look like ordinary ones, but have no memory. Those of vmap and grad can be recognized.
        return True
    return _count_of_modes() > 0 and any(_mode_of(key) is not None for key in _TRANSFORMING_MODES)


def unseen(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function of the debugger so that no mode and no tensor subclass of the training sees what it reads."""
    with _without_functions():
        if not _count_of_modes():
            return function(*arguments)
        with _without_dispatch():
            return function(*arguments)


class Boundary:
    """Calls the debugger's functions from PyTorch's hooks, and from replacements of PyTorch's functions.

    `KeyboardInterrupt`, and the `SystemExit` that ends a training, pass through.

    Parameters
    ----------
    on_error : callable (error)
        Called with an exception of the debugger.

    Attributes
    ----------
    compiled_update : Optimizer or None
        The last optimizer whose step compiled code has run; hooks are not called for it.
    """

    def __init__(self, on_error: Callable[[Exception], None]) -> None:
        self._on_error = on_error
        self._followers: list[tuple[Callable[..., Any], Callable[..., Any]]] = []
        self._step_hooks: list[RemovableHandle] = []
        self._is_at_step = False
        self._is_paused = False
        self.compiled_update: torch.optim.Optimizer | None = None

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Call no function of the debugger in this block, in which it runs the model itself."""
        self._is_paused = True
        try:
            yield
        finally:
            self._is_paused = False

    def hook(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a guarded version of a function, for PyTorch to call; it returns None if the function fails.

        Parameters
        ----------
        function : callable
            A function of the debugger.
        """
        failed = self.failed

        def hook(*arguments: Any) -> Any:
            try:
                return None if is_transforming() or self._is_paused else unseen(function, *arguments)
            except Exception as error:
                failed(error)
                return None

        return hook

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function of the debugger, unless PyTorch is tracing or compiling; return None if it fails."""
        try:
            return None if is_transforming() or self._is_paused else unseen(function, *arguments)
        except Exception as error:
            self.failed(error)
            return None

    def failed(self, error: Exception) -> None:
        """Note an exception of the debugger; raise one that comes from a signal handler of the training."""
        if is_of_handler(error):
            raise error
        # If reporting fails as well, there is nowhere to report it.
        with contextlib.suppress(Exception):
            self._on_error(error)

    # --- hooks of all optimizers ---

    def follow_steps(self, before: Callable[..., Any], after: Callable[..., Any]) -> None:
        """Call functions before and after the step of every optimizer.

        PyTorch does not allow such hooks to be added or removed while it calls them. So one hook of each kind calls all
        functions, from the first call of this method until `leave`.

        Parameters
        ----------
        before : callable (optimizer, arguments, named)
            May return other arguments and keyword arguments for the step.
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
        """Stop calling functions before and after steps."""
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
            # The compiled code sets this attribute each time that it runs; anything else would change that code.
            self.compiled_update = optimizer
        elif not self._is_no_training():
            self._at_step([after for _, after in self._followers], (optimizer, *given))

    def _at_step(self, functions: list[Callable[..., Any]], given: tuple[Any, ...]) -> Any:
        """Call functions; return the last value that is not None."""
        changed = None
        self._is_at_step = True
        try:
            for function in functions:
                changed = self.call(function, *given) or changed
        finally:
            self._is_at_step = False
        return changed
