"""What a session refuses, and why."""

from __future__ import annotations

from tensight.errors import TensightError


class SessionError(TensightError):
    """Base of the errors of sessions."""


class NotFoundError(SessionError):
    """There is no such session, rank, graph, node, watchpoint, tensor or file."""


class StateError(SessionError):
    """The session cannot do this now, or not at all; the message says in which state it could."""


class LimitError(SessionError):
    """A bound would be exceeded: sessions, subscribers, bytes, elements."""


class UnavailableError(SessionError):
    """The value was not kept, or the training process did not answer."""


class StorageError(SessionError):
    """The workspace cannot be written: disk full, no permission."""
