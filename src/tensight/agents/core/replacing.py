"""Replaces functions of a framework and restores them, even if other code replaces them, too."""

from __future__ import annotations

import functools
from types import FunctionType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


class Replacements:
    """Functions and methods that were replaced; other code may replace ours meanwhile."""

    def __init__(self) -> None:
        self._replaced: list[tuple[Any, str, Any, Any]] = []
        self._is_active = True

    def put(self, owner: Any, name: str, replacement: Callable[..., Any]) -> None:
        """Replace a function or a method.

        Parameters
        ----------
        owner : type or module
        name : str
        replacement : callable (original, ...)
        """
        original = getattr(owner, name)
        self._is_active = True

        def method(*given: Any, **named: Any) -> Any:
            if not self._is_active:
                return original(*given, **named)
            return replacement(original, *given, **named)

        # Code that compiles the method reads the original's code, and looks up its names where they are defined.
        names = getattr(original, "__globals__", globals())
        of_original = FunctionType(method.__code__, names, name, None, method.__closure__)
        method = functools.update_wrapper(of_original, original)
        is_own = name in vars(owner)
        setattr(owner, name, method)
        self._replaced.append((owner, name, method, original if is_own else None))

    def take_back(self) -> None:
        """Restore the originals. What other code has replaced since stays, and then calls the original."""
        self._is_active = False
        for owner, name, method, original in reversed(self._replaced):
            if vars(owner).get(name) is method:
                if original is None:
                    delattr(owner, name)
                else:
                    setattr(owner, name, original)
        self._replaced.clear()
