"""Parameters that a script has written to, directly or by loading a checkpoint, since a graph last read them.

A graph reads its parameters in place, which cannot be observed. So written parameters are noted, and observed before
the next graph runs. Operators that compute in place (``weight.mul_(2)``) and arrays that share a parameter's memory are
not noticed.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from mindspore import Parameter, Tensor, ops

from tensight.agents.core.replacing import Replacements
from tensight.agents.mindspore.held_memory import HeldMemory

if TYPE_CHECKING:
    from collections.abc import Callable

_METHODS = ("assign_value", "copy_", "_setitem", "_setitem_origin")
_OPERATORS = (ops.Assign, ops.AssignAdd, ops.AssignSub)


class WrittenParameters:
    """Follows the functions by which scripts write to parameters."""

    def __init__(self) -> None:
        self._written: WeakValueDictionary[int, Any] = WeakValueDictionary()
        self._replaced = Replacements()
        self._memory = HeldMemory()

    def install(self) -> None:
        """Follow these functions from now on."""
        self._replaced.put(Parameter, "set_data", self._set_data_called)
        for name in _METHODS:
            self._replaced.put(Tensor, name, self._method_called)
        for operator in _OPERATORS:
            self._replaced.put(operator, "__call__", self._operator_called)

    def remove(self) -> None:
        """Restore everything, except where other code has replaced our functions."""
        self._replaced.take_back()
        self._written.clear()

    def __contains__(self, parameter: object) -> bool:
        return parameter is not None and self._written.get(id(parameter)) is parameter

    def __len__(self) -> int:
        return len(self._written)

    def forget(self, parameter: object) -> None:
        """Forget that a parameter was written to, because a graph reads it."""
        self._written.pop(id(parameter), None)

    def _method_called(self, original: Callable[..., Any], *given: Any, **named: Any) -> Any:
        self._note(given[:1])
        return original(*given, **named)

    def _set_data_called(self, original: Callable[..., Any], *given: Any, **named: Any) -> Any:
        # If memory cannot be kept, the training goes on as without the debugger.
        with contextlib.suppress(Exception):
            self._memory.hold(given[0])
        return self._method_called(original, *given, **named)

    def _operator_called(self, original: Callable[..., Any], *given: Any, **named: Any) -> Any:
        # The first argument is the operator itself.
        self._note(given[1:2])
        return original(*given, **named)

    def _note(self, written: tuple[Any, ...]) -> None:
        for parameter in written:
            if isinstance(parameter, Parameter):
                self._written[id(parameter)] = parameter
