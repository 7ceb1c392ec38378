"""The errors of sessions."""

from __future__ import annotations

from tensight.errors import TensightError


class SessionError(TensightError):
    """Base class of the errors of sessions."""


class NotFoundError(SessionError):
    """There is no such session, rank, graph, node, watchpoint, tensor or file."""

    code = "not-found"


class StateError(SessionError):
    """The session cannot do this now, or not at all; the message says in which state it can."""

    code = "wrong-state"


class LimitError(SessionError):
    """A limit would be exceeded: sessions, subscribers, bytes, elements."""

    code = "limit-exceeded"


class UnavailableError(SessionError):
    """The value was not kept, or the training process did not answer."""

    code = "value-unavailable"


class StorageError(SessionError):
    """The workspace cannot be written: the disk is full, or permissions are missing."""

    code = "storage-failed"
