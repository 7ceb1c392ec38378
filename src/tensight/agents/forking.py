"""What becomes of an agent in a child of `os.fork`: nothing; and what it leaves to its parent at that moment.

Workers of data loaders are such children. Threads do not live on in them, and locks may be held for ever that a thread
held; so a child never touches the connection again, not even to give its memory back.
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
"""For calls that are under way when the process forks; a server that hangs answers none."""


class Forked(Protocol):
    """What is to be silent in children."""

    def silence(self) -> object:
        """Do nothing from now on, for ever; return what must never be freed."""


class ForkGate:
    """Lets no call of ours be under way while the process forks, where gRPC has fork handlers.

    They cannot run while anybody calls gRPC: then they write a line for each fork, and leave the child with locks and
    threads of which it must not free anything.

    Parameters
    ----------
    is_needed : bool
        Whether gRPC has fork handlers.
    """

    def __init__(self, *, is_needed: bool) -> None:
        self._is_needed = is_needed
        # A signal handler may fork in the middle of it.
        self._changed = threading.Condition(threading.RLock())
        self._calls = self._forks = 0
        self._has_waited = False
        if is_needed:
            _gates.add(self)

    @contextmanager
    def call(self) -> Iterator[None]:
        """Make a call in this block; it begins when no fork is under way."""
        self.enter()
        try:
            yield
        finally:
            self.leave()

    def enter(self) -> None:
        """Begin a call, when no fork is under way."""
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
        """Let no call begin, and wait for those under way; for one that takes long only once."""
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
    """Have an agent do nothing in processes that are forked from this one."""
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
        # What gRPC frees in a child can wait for a lock that nobody holds any more.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(agent.silence()))
    _live_agents.clear()
