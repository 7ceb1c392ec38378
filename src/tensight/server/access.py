"""Access control of the HTTP API, applied first to every request, HTTP and WebSocket.

Every page in a user's browser can reach a debug server on the user's machine. So a request must name a host that is
allowed (against DNS rebinding, where a page makes its own name point here), and if the browser names the page that
sends it, that must be ours (against forged requests and cross-site WebSockets). If there is a token, the client must
also present it: in the ``Authorization`` header, or in the cookie that a login sets.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
from collections.abc import Collection
from dataclasses import dataclass, field

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, HTTPConnection
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from tensight.errors import TensightError
from tensight.server import errors
from tensight.server.errors import BodyTooLargeError, ContentTypeError, ForbiddenError, UnauthorizedError

COOKIE = "tensight_token"
SUBPROTOCOL = "bearer."
"""Prefix of the token in the WebSocket header of subprotocols, the only header that a page can set."""

NO_ACCESS = "this server needs its access token, which is in the file named at its start"
WRONG_ACCESS = "the access token is not that of this server, which is in the file named at its start"

LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})
_EVERY_ADDRESS = frozenset({"0.0.0.0", "[::]"})  # noqa: S104 - compared, not bound
_HOST = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9._-]{1,253})(?::(?P<port>[0-9]{1,5}))?")
_CHANGING = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_API_POLICY = "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'; sandbox"
PAGE_POLICY = (
    "default-src 'self'; img-src 'self' data: blob:; style-src 'self' 'unsafe-inline'; worker-src 'self' blob:; "
    "object-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
)
"""For content that browsers show or run; ``unsafe-inline`` only for styles, which scripts of the page set."""
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


@dataclass(frozen=True)
class AccessRules:
    """The rules for requests that the server accepts.

    Attributes
    ----------
    api_path : str
        Everything below it needs the token, if there is one; ends with a slash.
    open_paths : collection of str
        Paths below `api_path` that need no token: the login.
    token : str or None
        None if everyone who can reach the server may use it, which is for loopback only.
    allowed_hosts : collection of str
        Accepted host names and addresses, without port, in addition to those of the loopback interface. ``0.0.0.0`` or
        ``::`` accepts every address (but never a name, which an attacker could make point here).
    max_body_bytes : int
        Maximum size of a request body in bytes.
    """

    api_path: str
    open_paths: Collection[str] = ()
    token: str | None = field(default=None, repr=False)
    allowed_hosts: Collection[str] = ()
    max_body_bytes: int = 2**20


def cookie_value(token: str) -> str:
    """Return the value of the cookie, which proves knowledge of the token without containing it.

    Browsers send the cookies of a host to all of its ports, so other servers on this machine may see it.
    """
    return hmac.new(token.encode(), b"tensight cookie", hashlib.sha256).hexdigest()


def is_same(given: str, expected: str) -> bool:
    """Compare two secrets in constant time."""
    return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), expected.encode())


class Access:
    """Middleware that refuses forbidden requests, limits bodies, and adds security headers.

    Parameters
    ----------
    app : ASGI application
    rules : AccessRules
    """

    def __init__(self, app: ASGIApp, rules: AccessRules) -> None:
        self._app = app
        self._rules = rules
        self._hosts = LOOPBACK_NAMES | {_bracketed(host) for host in rules.allowed_hosts}
        self._cookie = cookie_value(rules.token) if rules.token is not None else ""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request or WebSocket."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        answer = _Answer(scope, send, is_api=scope["path"].startswith(self._rules.api_path))
        try:
            self._check(HTTPConnection(scope))
            if scope["type"] == "http" and scope["method"] in _CHANGING:
                receive = await self._with_whole_body(Headers(scope=scope), receive)
            await self._app(scope, receive, answer.send)
        except (ClientDisconnect, WebSocketDisconnect):
            return  # the client has gone
        except TensightError as error:
            await answer.give(errors.reply_to(error, scope["path"]), receive)
        except Exception as error:
            await answer.give(errors.reply_to_unexpected(error, scope["path"]), receive)

    def _check(self, connection: HTTPConnection) -> None:
        host = self._host(connection.headers)
        _check_origin(connection, host)
        path = connection.scope["path"]
        if path.startswith(self._rules.api_path) and path not in self._rules.open_paths:
            self._check_token(connection)

    def _host(self, headers: Headers) -> str:
        """Return the host and port of the request, in lower case."""
        given = headers.getlist("host")
        match = _HOST.fullmatch(given[0]) if len(given) == 1 else None
        if match is None:
            raise ForbiddenError("the request must have one Host header that names this server")
        name = match["name"].lower()
        if name not in self._hosts and not (self._hosts & _EVERY_ADDRESS and _is_address(name)):
            raise ForbiddenError(
                f"this server does not accept the host name {name!r}; to allow it, start it with --allowed-host {name}"
            )
        return given[0].lower()

    def _check_token(self, connection: HTTPConnection) -> None:
        token = self._rules.token
        if token is None:
            return
        scheme, _, given = connection.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and is_same(given.strip(), token):
            return
        if is_same(connection.cookies.get(COOKIE, ""), self._cookie):
            return
        offered = (name for name in connection.scope.get("subprotocols", ()) if name.startswith(SUBPROTOCOL))
        offered_tokens = [name.removeprefix(SUBPROTOCOL) for name in offered]
        if any(is_same(offered_token, token) for offered_token in offered_tokens):
            return
        if given or offered_tokens:
            raise UnauthorizedError(WRONG_ACCESS)
        raise UnauthorizedError(f"{NO_ACCESS}: send the header 'Authorization: Bearer TOKEN', or log in")

    async def _with_whole_body(self, headers: Headers, receive: Receive) -> Receive:
        """Read the body of a request that changes something; it must be JSON and within the size limit.

        A page of another site cannot send JSON without a preflight request, which this server never grants.
        """
        most = self._rules.max_body_bytes
        declared = headers.get("content-length", "0")
        if not declared.isdecimal() or len(declared) > 18 or int(declared) > most:
            raise BodyTooLargeError(f"the body of the request has {declared[:20]} bytes; {most:,} are accepted")
        body = bytearray()
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            body += message.get("body", b"")
            more = message.get("more_body", False)
            if len(body) > most:
                raise BodyTooLargeError(f"the body of the request has more than {most:,} bytes, the maximum")
        media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
        if body and media_type != "application/json":
            raise ContentTypeError(f"the body is declared as {media_type[:80]!r}; send JSON, as application/json")
        return _replay(bytes(body), receive)


class _Answer:
    """Sends the application's messages with our headers, or a refusal if none has been sent yet."""

    def __init__(self, scope: Scope, send: Send, *, is_api: bool) -> None:
        self._scope = scope
        self._send = send
        self._is_api = is_api
        self._started = False

    async def send(self, message: Message) -> None:
        if message["type"] in ("http.response.start", "websocket.http.response.start"):
            self._started = True
            self._add_headers(MutableHeaders(scope=message))
        elif message["type"] in ("websocket.accept", "websocket.close"):
            self._started = True
        await self._send(message)

    def _add_headers(self, headers: MutableHeaders) -> None:
        for name, value in _HEADERS.items():
            headers[name] = value
        headers.setdefault("Content-Security-Policy", _API_POLICY if self._is_api else PAGE_POLICY)
        if self._is_api:
            headers.setdefault("Cache-Control", "no-store")

    async def give(self, response: Response, receive: Receive) -> None:
        """Send a refusal; a response that has begun can only be aborted, which the server does."""
        if self._started:
            return
        if self._scope["type"] == "websocket":
            await errors.deny_websocket(WebSocket(self._scope, receive, self.send), response)
        else:
            await response(self._scope, receive, self.send)


def _check_origin(connection: HTTPConnection, host: str) -> None:
    """Refuse requests that a browser sends for a page that is not ours."""
    for origin in connection.headers.getlist("origin"):
        if not _is_own_origin(origin, host, needs_tls=connection.scope["scheme"] in ("https", "wss")):
            raise ForbiddenError(f"a page of {origin[:200]!r} may not use this server; open the server's own page")
    site = connection.headers.get("sec-fetch-site", "same-origin")
    is_visit = connection.headers.get("sec-fetch-mode") == "navigate" and connection.scope.get("method") == "GET"
    if site in ("cross-site", "same-site") and not is_visit:
        raise ForbiddenError("a page of another site may not use this server; open the server's own page")


def _is_own_origin(origin: str, host: str, *, needs_tls: bool) -> bool:
    scheme, separator, address = origin.lower().partition("://")
    default = {"http": 80, "https": 443}.get(scheme)
    if default is None or not separator or (needs_tls and scheme != "https"):
        return False
    theirs, ours = _HOST.fullmatch(address), _HOST.fullmatch(host)
    if theirs is None or ours is None or theirs["name"] != ours["name"]:
        return False
    # Behind a proxy that terminates TLS the page's scheme differs from ours, so a missing port is that of the page's.
    return int(theirs["port"] or default) == int(ours["port"] or default)


def _replay(body: bytes, receive: Receive) -> Receive:
    pending: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replayed() -> Message:
        return pending.pop() if pending else await receive()

    return replayed


def _bracketed(host: str) -> str:
    """Return a host as in a Host header: lower case, an IPv6 address in brackets."""
    host = host.strip().lower()
    if host.startswith("["):
        return host
    try:
        return f"[{host}]" if ipaddress.ip_address(host).version == 6 else host
    except ValueError:
        return host


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True
