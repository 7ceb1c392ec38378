"""Replaces methods of MindSpore's classes, and finds those that it has given another place in a later version."""

from __future__ import annotations

import functools
import importlib
import sys
from types import FunctionType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


class Replacements:
    """Methods that were replaced; others may replace ours meanwhile."""

    def __init__(self) -> None:
        self._replaced: list[tuple[Any, str, Any, Any]] = []
        self._is_active = True

    def put(self, owner: Any, name: str, replacement: Callable[..., Any]) -> None:
        """Replace a method.

        Parameters
        ----------
        owner : type or module
        name : str
        replacement : callable (original, self, ...)
        """
        original = getattr(owner, name)
        self._is_active = True

        def method(*given: Any, **named: Any) -> Any:
            if not self._is_active:
                return original(*given, **named)
            return replacement(original, *given, **named)

        # What compiles the method reads the original's code, and looks for its names where they are.
        of_original = FunctionType(method.__code__, original.__globals__, name, None, method.__closure__)
        method = functools.update_wrapper(of_original, original)
        is_own = name in vars(owner)
        setattr(owner, name, method)
        self._replaced.append((owner, name, method, original if is_own else None))

    def take_back(self) -> None:
        """Put back what was there. What somebody else has replaced since stays, and only passes on."""
        self._is_active = False
        for owner, name, method, original in reversed(self._replaced):
            if vars(owner).get(name) is method:
                if original is None:
                    delattr(owner, name)
                else:
                    setattr(owner, name, original)
        self._replaced.clear()


def executor_classes() -> tuple[type, type]:
    """Return the class that runs compiled functions, and the one that PyNative mode runs on."""
    module = _executors()
    return getattr(module, "_JitExecutor", None) or module._MindsporeFunctionExecutor, module._PyNativeExecutor


def cell_executor_class() -> type:
    """Return the class that runs cells in GRAPH_MODE."""
    return type(_executors()._cell_graph_executor)


def pynative_executor() -> Any:
    """Return what PyNative mode runs on."""
    return _executors()._pynative_executor


@functools.cache
def _executors() -> Any:
    # Since 2.9 the old name is only there to warn people who use it.
    for name in ("mindspore.graph.api", "mindspore.common.api"):
        module = sys.modules.get(name)
        if module is not None and hasattr(module, "_cell_graph_executor"):
            return module
    return importlib.import_module("mindspore.common.api")
