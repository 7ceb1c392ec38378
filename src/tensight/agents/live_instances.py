"""Objects of this process that nobody has handed to the debugger: modules, optimizers, parameters."""

from __future__ import annotations

import gc
from typing import TypeVar

_T = TypeVar("_T")


def live_instances(kind: type[_T] | tuple[type[_T], ...]) -> list[_T]:
    """Return the objects of a class, or of several, that there are in this process; looking at all takes a while.

    Parameters
    ----------
    kind : type or tuple of type
    """
    # Not isinstance(): it asks an object for its class, which may wake it up, or answer with a property of its own.
    return [one for one in gc.get_objects() if issubclass(type(one), kind)]
