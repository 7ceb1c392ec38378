"""Values that are computed on first access and cached."""

from __future__ import annotations

import threading
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar, overload

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Self

_Value = TypeVar("_Value")


class lazily(cached_property[_Value]):  # noqa: N801 - a decorator
    """A `functools.cached_property` with a lock for each object.

    Until Python 3.11, `cached_property` has one lock for all objects, so a small graph would wait for a large one.
    Since 3.12 it has none, and threads may compute the same value several times.
    """

    @overload
    def __get__(self, instance: None, owner: type[Any] | None = None) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type[Any] | None = None) -> _Value: ...

    def __get__(self, instance: object | None, owner: type[Any] | None = None) -> Self | _Value:
        """Return the value of an object."""
        if instance is None:
            return self
        return once(instance.__dict__, self.func.__name__, lambda: self.func(instance))


def once(kept: dict[Any, Any], key: object, compute: Callable[[], _Value]) -> _Value:
    """Return the cached value of a key, or compute it while other threads that need it wait.

    Parameters
    ----------
    kept : dict
        The cache of one object; other objects do not wait.
    key : hashable
    compute : callable
        Returns the value.
    """
    if key not in kept:
        with kept.setdefault(f"{key}@lock", threading.RLock()):
            if key not in kept:
                kept[key] = compute()
        kept.pop(f"{key}@lock", None)
    value: _Value = kept[key]
    return value
