"""Errors between a script and the server; `tensight.sessions.errors` contains those of the server itself."""

from __future__ import annotations

from tensight.error_catalogue import CATALOGUE
from tensight.errors import (
    CheckpointError,
    CurveError,
    DumpError,
    GraphError,
    InputError,
    MissingFileError,
    TensightError,
    TensorFileError,
)
from tensight.sessions.errors import LimitError, NotFoundError, StateError, StorageError, UnavailableError


class ClientError(TensightError):
    """Base of the errors that arise between this client and the server."""


class UnreachableError(ClientError, ConnectionError):
    """No server answers at this address, or the connection broke and did not come back."""

    code = "server-unreachable"


class AccessError(ClientError):
    """The server asks for a token, or refuses the one given; or a certificate is not trusted."""


class ServerError(ClientError):
    """The server failed, or answered something that is not an answer of Tensight."""

    code = "server-failed"


class WaitError(ClientError, TimeoutError):
    """What was waited for did not happen in time."""

    code = "timed-out"


_RAISED: dict[str, type[TensightError]] = {
    kind.__name__: kind
    for kind in (
        AccessError,
        CheckpointError,
        CurveError,
        DumpError,
        GraphError,
        InputError,
        LimitError,
        MissingFileError,
        NotFoundError,
        ServerError,
        StateError,
        StorageError,
        TensorFileError,
        UnavailableError,
    )
}
"""Classes that the catalogue names, as far as a server raises them."""
_OF_STATUS: dict[int, type[TensightError]] = {
    401: AccessError,
    403: AccessError,
    404: NotFoundError,
    409: StateError,
    413: LimitError,
    415: InputError,
    416: InputError,
    422: InputError,
    429: LimitError,
    507: StorageError,
}
"""For codes that only newer servers have."""


def refused(code: str, status: int, message: str) -> TensightError:
    """Return the error of a response: with the same class and code as on the server.

    Parameters
    ----------
    code : str
        Error code in the body of the response.
    status : int
        HTTP status of the response.
    message : str
        Message for the user.
    """
    entry = CATALOGUE.get(code)
    kind = _RAISED.get(entry.raised_as) if entry is not None else None
    return (kind or _OF_STATUS.get(status, ServerError))(message, code=code)
