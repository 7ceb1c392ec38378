"""Disables agents in children of `os.fork`, and keeps calls from being active during a fork.

Workers of data loaders are such children. Threads do not continue in them, and locks that a thread held may stay locked
for ever; so a child never touches the connection again, not even to free its memory.
"""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator, MutableSet


_WAIT_S = 0.5
"""Maximum wait for active calls when the process forks; a server that hangs never replies."""


class Forked(Protocol):
    """An object that is disabled in children."""

    def silence(self) -> object:
        """Disable this object for good; return what must never be freed."""


class ForkGate:
    """Ensures that no call of ours is active while the process forks, if gRPC has fork handlers.

    These cannot run during a call of gRPC: they then write a line for each fork, and leave the child with locks and
    threads of which it must not free anything.

    Parameters
    ----------
    is_needed : bool
        Whether gRPC has fork handlers.
    """

    def __init__(self, *, is_needed: bool) -> None:
        self._is_needed = is_needed
        # A signal handler may fork while this thread is in the middle of it.
        self._changed = threading.Condition(threading.RLock())
        self._calls = self._forks = 0
        self._has_waited = False
        if is_needed:
            _gates.add(self)

    @contextmanager
    def call(self) -> Iterator[None]:
        """Make a call in this block, which begins when no fork is in progress."""
        self.enter()
        try:
            yield
        finally:
            self.leave()

    def enter(self) -> None:
        """Begin a call, when no fork is in progress."""
        if self._is_needed:
            with self._changed:
                self._changed.wait_for(lambda: not self._forks, _WAIT_S)
                self._calls += 1

    def leave(self) -> None:
        """End a call."""
        if self._is_needed:
            with self._changed:
                self._calls -= 1
                self._has_waited = False
                self._changed.notify_all()

    def close(self) -> None:
        """Let no call begin, and wait for active ones; only once for a call that takes long."""
        with self._changed:
            self._forks += 1
            if not self._has_waited:
                self._has_waited = not self._changed.wait_for(lambda: not self._calls, _WAIT_S)

    def open(self) -> None:
        """Let calls begin again."""
        with self._changed:
            self._forks = max(self._forks - 1, 0)
            self._changed.notify_all()


_gates: MutableSet[ForkGate] = weakref.WeakSet()
_live_agents: MutableSet[Any] = weakref.WeakSet()
_is_registered = False


def silent_in_children(agent: Forked) -> None:
    """Disable an agent in processes that are forked from this one."""
    global _is_registered
    _live_agents.add(agent)
    if not _is_registered:
        _is_registered = True
        os.register_at_fork(before=_close_gates, after_in_parent=_open_gates, after_in_child=_silence_all)


def _close_gates() -> None:
    for gate in list(_gates):
        gate.close()


def _open_gates() -> None:
    for gate in list(_gates):
        gate.open()


def _silence_all() -> None:
    _gates.clear()
    for agent in list(_live_agents):
        # In a child, gRPC may wait for a lock that no thread will release when it frees memory.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(agent.silence()))
    _live_agents.clear()
