"""What can go wrong between a script and the server; what the server itself refuses are `tensight.sessions.errors`."""

from __future__ import annotations

from tensight.errors import DumpError, InputError, TensightError
from tensight.sessions.errors import LimitError, NotFoundError, StateError, StorageError, UnavailableError


class ClientError(TensightError):
    """Base of the errors that arise between this client and the server."""


class UnreachableError(ClientError, ConnectionError):
    """No server answers at this address, or the connection broke and did not come back."""


class AccessError(ClientError):
    """The server asks for a token, or refuses the one given; or a certificate is not trusted."""


class ServerError(ClientError):
    """The server failed, or answered something that is not an answer of Tensight."""


class WaitError(ClientError, TimeoutError):
    """What was waited for did not happen in time."""


BY_CODE: dict[str, type[TensightError]] = {
    "not_found": NotFoundError,
    "invalid": InputError,
    "wrong_state": StateError,
    "limit": LimitError,
    "unavailable": UnavailableError,
    "storage": StorageError,
    "forbidden": AccessError,
    "unauthorized": AccessError,
    "too_large": LimitError,
    "dump": DumpError,
    "internal": ServerError,
}
"""What is raised for each ``code`` in the body of an error."""
