"""The connection to the server: requests, retries, and errors as exceptions."""

from __future__ import annotations

import copy
import os
import ssl
import time
import weakref
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from urllib.parse import quote

import httpx
from pydantic import TypeAdapter, ValidationError

from tensight.client.errors import AccessError, ServerError, UnreachableError, refused
from tensight.errors import InputError
from tensight.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator


API = "/api/v1"
TOKEN_VARIABLE = "TENSIGHT_TOKEN"  # noqa: S105 - the name of the variable that holds it
ANSWER_S = 120.0
"""Seconds to wait for a response: a training process may have to compute it first."""
CONNECT_S = 10.0
RETRY_AFTER_S = (0.1, 0.3, 0.9, 2.0)
"""Seconds between retries of a request whose connection failed or broke."""
KEEP_ALIVE_S = 4.0
"""Less than the server's five seconds, so that no request uses a connection that is just being closed."""

_LOOPBACK = ("localhost", "127.0.0.1", "::1")

Verify = bool | str | os.PathLike[str] | ssl.SSLContext
"""Trusted certificates for https: those of the system (True), those in a file, or any (False)."""
Certificate = tuple[str | os.PathLike[str], str | os.PathLike[str]]
"""Files with the certificate and the key of a client for https, PEM."""
T = TypeVar("T")


class Held(Protocol):
    """Keeps a session open as long as the script runs."""

    def let_go(self) -> None:
        """Let another thread close the session; takes no lock."""

    def close(self) -> None:
        """Close the session."""


class Connection:
    """Sends requests to a server.

    Thread-safe.

    Parameters
    ----------
    url : str
        Address of the server, with its prefix if it has one; ``http://`` may be omitted.
    token : str, optional
        By default the value of the environment variable ``TENSIGHT_TOKEN``, if set.
    verify : bool, path or ssl.SSLContext
        Trusted certificates: those of the system (True), any (False), or those in a file.
    certificate : (path, path), optional
        Certificate and key of this client, if the server requires one.

    Attributes
    ----------
    url : str
        Without a trailing slash.
    hold : Held or None
        Holds the session of this connection, if there is one.

    Raises
    ------
    InputError
        The address is invalid, or a file with certificates cannot be read.
    """

    def __init__(
        self, url: str, token: str | None = None, *, verify: Verify = True, certificate: Certificate | None = None
    ) -> None:
        self.url, host = _clean(url)
        self.hold: Held | None = None
        self._token_from = "token=…" if token is not None else f"the variable {TOKEN_VARIABLE}"
        token = token if token is not None else os.environ.get(TOKEN_VARIABLE)
        headers = {"User-Agent": f"tensight/{__version__}"}
        if token:
            headers["Authorization"] = f"Bearer {_clean_token(token)}"
        is_local = host in _LOOPBACK
        if is_local and verify is True and certificate is None and self.url.startswith("http:"):
            # Nothing is encrypted, and loading the system's certificates takes as long as many requests.
            verify = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._client = httpx.Client(
            base_url=self.url + API,
            headers=headers,
            verify=_trust(verify, certificate),
            timeout=httpx.Timeout(ANSWER_S, connect=CONNECT_S),
            limits=httpx.Limits(keepalive_expiry=KEEP_ALIVE_S),
            # A proxy from the environment does not know this machine's loopback addresses.
            trust_env=not is_local,
        )

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def of_session(self, hold: Held) -> Connection:
        """Return a copy of the connection for a held session; garbage collection of the copy lets go of the session."""
        connection = copy.copy(self)
        connection.hold = hold
        # At exit the hold closes the session itself.
        weakref.finalize(connection, hold.let_go).atexit = False
        return connection

    def get(self, kind: type[T], path: str, /, *, retries: int = len(RETRY_AFTER_S), **parameters: Any) -> T:
        """Get a record, or a list of records; parameters that are None are omitted."""
        return self._read(kind, self._request("GET", path, parameters, retries=retries))

    def answer(self, path: str, /, **parameters: Any) -> httpx.Response:
        """Get a response that is not JSON."""
        return self._request("GET", path, parameters)

    def send(self, kind: type[T], method: str, path: str, body: Any = None) -> T:
        """Send a change, and return the response."""
        return self._read(kind, self._request(method, path, {}, body=body))

    def tell(self, method: str, path: str, body: Any = None) -> None:
        """Send a change that has no response body."""
        self._request(method, path, {}, body=body)

    @contextmanager
    def stream(self, path: str, headers: dict[str, str], /, **parameters: Any) -> Iterator[httpx.Response]:
        """Stream the body of a response; no retries.

        Raises
        ------
        UnreachableError
            Also while the body is read.
        """
        try:
            with self._client.stream("GET", path, params=_given(parameters), headers=headers) as response:
                if not response.is_success:
                    response.read()
                    raise self._refusal(response)
                yield response
        except httpx.RequestError as error:
            raise self._unreachable(error) from error

    def _request(
        self, method: str, path: str, parameters: dict[str, Any], *, body: Any = None, retries: int | None = None
    ) -> httpx.Response:
        pauses = iter(RETRY_AFTER_S[:retries])
        while True:
            try:
                response = self._client.request(method, path, params=_given(parameters), **_json(method, body))
            except httpx.RequestError as error:  # noqa: PERF203 - to try again is what the loop is for
                pause = next(pauses, None)
                if pause is None or not _may_repeat(method, error):
                    raise self._unreachable(error) from error
                time.sleep(pause)
            else:
                break
        if not response.is_success:
            raise self._refusal(response)
        return response

    def _read(self, kind: type[T], response: httpx.Response) -> T:
        try:
            return _reader(kind).validate_json(response.content)
        except ValidationError as error:
            problem = error.errors(include_url=False)[0]
            where = ".".join(map(str, problem["loc"])) or "the answer"
            raise ServerError(
                f"{response.request.url} answered something that this version of Tensight ({__version__}) cannot read: "
                f"{where}: {problem['msg']}; is it a Tensight server, and of this version?",
                code="answer-unreadable",
            ) from error

    def _refusal(self, response: httpx.Response) -> Exception:
        """Return the exception for an error response."""
        try:
            error = response.json()["error"]
            code, message, where = str(error["code"]), str(error["message"]), str(error.get("where") or "")
        except (ValueError, KeyError, TypeError, AttributeError):
            location = response.headers.get("location", "")
            hint = f"it points to {location}; connect there" if location else "is this the address that it printed?"
            return ServerError(
                f"{response.request.url} answered {response.status_code} {response.reason_phrase}, which is not a "
                f"response of a Tensight server; {hint}",
                code="answer-unreadable",
            )
        if code == "unauthorized":
            has_token = "Authorization" in response.request.headers
            hint = f"it came from {self._token_from}" if has_token else f"give it with token=… or in {TOKEN_VARIABLE}"
            message = f"{self.url}: {message.partition(':')[0]}; {hint}"
        # A path tells the caller nothing new.
        if where and not where.startswith("/") and where not in message:
            message = f"{where}: {message}"
        return refused(code, response.status_code, message)

    def _unreachable(self, error: httpx.RequestError) -> Exception:
        if isinstance(error, httpx.ReadTimeout):
            return UnreachableError(f"{self.url} did not answer within {ANSWER_S:g} s")
        if certificate := _certificate_problem(error):
            return AccessError(
                f"the connection to {self.url} is not trusted: {certificate}; "
                "name the file with its certificate (or that of its authority) with verify=…",
                code="certificate-untrusted",
            )
        if isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout)):
            return UnreachableError(
                f"no server answers at {self.url} ({error}); start one with `tensight start`, or give the address "
                "that it printed"
            )
        hint = "; if it speaks TLS, the address begins with https://" if self.url.startswith("http:") else ""
        return UnreachableError(f"the connection to {self.url} broke: {error}{hint}")


def part(text: str) -> str:
    """Return text as one segment of a path."""
    return quote(text, safe="")


def _clean(url: str) -> tuple[str, str]:
    text = url.strip()
    if "://" not in text:
        text = "http://" + text
    try:
        parsed = httpx.URL(text)
    except httpx.InvalidURL as error:
        raise InputError(f"{url!r} is not the address of a server: {error}") from None
    if parsed.scheme not in ("http", "https") or not parsed.host or parsed.query or parsed.fragment:
        raise InputError(f"{url!r} is not the address of a server, such as http://127.0.0.1:8080")
    return text.rstrip("/").removesuffix(API), parsed.host


def _clean_token(token: str) -> str:
    token = token.strip()
    if not token.isascii() or not token.isprintable():
        raise InputError("the token has characters that a token cannot have; copy it again")
    return token


def _trust(verify: Verify, certificate: Certificate | None) -> ssl.SSLContext | bool:
    if isinstance(verify, (bool, ssl.SSLContext)) and certificate is None:
        return verify
    try:
        context = verify if isinstance(verify, ssl.SSLContext) else _context(verify)
        if certificate is not None:
            context.load_cert_chain(*certificate)
    except (OSError, ValueError) as error:
        raise InputError(f"the certificates cannot be used: {error}") from None
    return context


def _context(verify: bool | str | os.PathLike[str]) -> ssl.SSLContext:
    if isinstance(verify, bool):
        return httpx.create_ssl_context(verify=verify)
    return ssl.create_default_context(cafile=os.fspath(verify))


def _certificate_problem(error: BaseException | None) -> str:
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return str(error.verify_message)
        error = error.__cause__ or error.__context__
    return ""


def _may_repeat(method: str, error: httpx.RequestError) -> bool:
    """Return whether a request may be retried: it changes nothing or was never sent, and a retry may succeed."""
    if isinstance(error, (httpx.UnsupportedProtocol, httpx.ReadTimeout)) or _certificate_problem(error):
        return False
    return method == "GET" or isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout))


def _given(parameters: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in parameters.items() if value is not None}


def _json(method: str, body: Any) -> dict[str, Any]:
    # The server accepts changes as JSON only, so that forms of foreign pages cannot make them.
    return {} if method == "GET" else {"json": {} if body is None else body}


def _reader(kind: type[T]) -> TypeAdapter[T]:
    reader: TypeAdapter[T] | None = _READERS.get(kind)
    if reader is None:
        reader = _READERS[kind] = TypeAdapter(kind)
    return reader


_READERS: dict[Any, TypeAdapter[Any]] = {}
