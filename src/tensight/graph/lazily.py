"""Values that are computed when they are first asked for, and kept."""

from __future__ import annotations

import threading
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar, overload

if TYPE_CHECKING:
    from typing_extensions import Self

_Value = TypeVar("_Value")


class lazily(cached_property[_Value]):  # noqa: N801 - a decorator
    """A `functools.cached_property` that each object computes once, and for which no other object waits.

    Until Python 3.11 that has one lock for all objects, so a small graph would wait for a large one; since then it has
    none, and threads compute the same several times.
    """

    @overload
    def __get__(self, instance: None, owner: type[Any] | None = None) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type[Any] | None = None) -> _Value: ...

    def __get__(self, instance: object | None, owner: type[Any] | None = None) -> Self | _Value:
        """Return the value of an object."""
        if instance is None:
            return self
        kept = instance.__dict__
        name = self.func.__name__
        with kept.setdefault(f"{name}@lock", threading.RLock()):
            if name not in kept:
                kept[name] = self.func(instance)
            value: _Value = kept[name]
        kept.pop(f"{name}@lock", None)
        return value
