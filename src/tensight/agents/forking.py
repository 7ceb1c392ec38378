"""What becomes of an agent in a child of `os.fork`: nothing.

Workers of data loaders are such children. Threads do not live on in them, and locks may be held for ever that a thread
held; so a child never touches the connection again, not even to give its memory back.
"""

from __future__ import annotations

import ctypes
import os
import weakref
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import MutableSet


class Forked(Protocol):
    """What is to be silent in children."""

    def silence(self) -> object:
        """Do nothing from now on, for ever; return what must never be freed."""


_living: MutableSet[Any] = weakref.WeakSet()
_is_registered = False


def silent_in_children(agent: Forked) -> None:
    """Have an agent do nothing in processes that are forked from this one."""
    global _is_registered
    _living.add(agent)
    if not _is_registered:
        _is_registered = True
        os.register_at_fork(after_in_child=_silence_all)


def _silence_all() -> None:
    for agent in list(_living):
        # What gRPC frees in a child can wait for a lock that nobody holds any more.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(agent.silence()))
    _living.clear()
