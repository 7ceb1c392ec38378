"""The server process, with one event loop: training processes connect by gRPC, clients by HTTP."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import grpc

from tensight.diagnosis.catalogue import load_user_rules
from tensight.diagnosis.rule import Rule
from tensight.diagnosis.user_rules import MOST_LIVE_S
from tensight.server.access_token import TOKEN_NAME, AccessToken, access_token, is_open_to_others
from tensight.server.grpc_service import grpc_server, listen
from tensight.server.http import create_http_app
from tensight.server.http_server import FINISH_S, HttpServer
from tensight.server.http_settings import HttpSettings
from tensight.server.lifetime import Lifetime, allow_threads, end_threads
from tensight.server.listening import (
    PortError,
    address_text,
    allow_many_connections,
    is_loopback,
    open_socket,
    reachable_host,
)
from tensight.server.logs import server_log
from tensight.server.memory import prepare_memory
from tensight.server.occupancy import Announcement, Ready, WorkspaceLock
from tensight.server.settings import Settings
from tensight.server.tls import Tls, load_tls
from tensight.sessions.live import Attachments, LiveSettings, PageAddress
from tensight.sessions.registry import Sessions
from tensight.sessions.workspace import Workspace
from tensight.version import __version__

REASON = "the debug server is shutting down"

logger = logging.getLogger(__name__)


async def serve(settings: Settings, on_ready: Callable[[Ready], None], *, log_on_stderr: bool = True) -> None:
    """Run the server until a signal ends it.

    Parameters
    ----------
    settings : Settings
    on_ready : callable
        Called once, when training processes and clients can connect.
    log_on_stderr : bool
        Also log to stderr, in addition to the file in the workspace.

    Raises
    ------
    TensightError
        The server cannot start: the workspace is in use, a port is taken, a certificate is unusable.
    """
    lock = WorkspaceLock(settings.workspace)
    try:
        with server_log(settings.workspace, settings.log_format, on_stderr=log_on_stderr):
            lifetime = Lifetime(at_once=lock.withdraw)
            lifetime.obey_signals()
            allow_many_connections()
            prepare_memory()
            allow_threads()
            await _Process(settings, lock).run(lifetime, on_ready)
    finally:
        lock.withdraw()
    await end_threads()


class _Process:
    """The parts of the server process, and the order in which they start and stop."""

    def __init__(self, settings: Settings, lock: WorkspaceLock) -> None:
        self._settings = settings
        self._lock = lock
        self._tls = _tls(settings)
        self._http_token = _token(settings, settings.host)
        self._grpc_token = _token(settings, settings.attach_host) if settings.enable_debugger else None
        self._workspace = Workspace(settings.workspace, _user_rules(settings))
        self._sessions = Sessions(
            self._workspace,
            settings.summary_base_dir,
            mem_limit_mb=settings.offline_debugger_mem_limit,
            max_offline=settings.max_offline_debugger_session_num,
            most_drawn_nodes=settings.max_graph_node_size,
            reload_interval_s=settings.reload_interval,
        )
        self._attachments: Attachments | None = None
        self._grpc: grpc.aio.Server | None = None
        self._http: HttpServer | None = None

    async def run(self, lifetime: Lifetime, on_ready: Callable[[Ready], None]) -> None:
        """Open the ports, announce them, wait for the end, and close everything."""
        settings = self._settings
        with open_socket(settings.host, settings.port, "--port") as http_socket:
            try:
                port = http_socket.getsockname()[1]
                debugger = await self._open_debugger(self._page(port)) if settings.enable_debugger else None
                self._http = http = self._http_server(debugger)
                await http.start(http_socket)
                record = self._record(port, debugger)
                self._lock.announce(record)
                logger.info("ready", extra={"http": record.http, "debugger": record.debugger, "pid": record.pid})
                on_ready(self._ready(record, port))
                await asyncio.wait([lifetime.over, http.running], return_when=asyncio.FIRST_COMPLETED)
            finally:
                await self._close()
        logger.info("ended")

    def _page(self, port: int) -> PageAddress:
        """Return the address of the page that shows sessions."""
        return PageAddress(
            here=self._http_address(reachable_host(self._settings.host), port),
            elsewhere=self._http_elsewhere(port) or "",
            machine=socket.gethostname(),
            is_local=is_loopback(self._settings.host),
        )

    async def _open_debugger(self, page: PageAddress) -> str:
        """Accept training processes, and return the address."""
        settings = self._settings
        bounds = LiveSettings()
        drawn = settings.max_graph_node_size
        # To draw graphs of that size, the server must also accept them.
        bounds = replace(
            bounds,
            most_drawn_nodes=drawn,
            most_nodes=max(bounds.most_nodes, drawn),
            most_nodes_of_a_process=max(bounds.most_nodes_of_a_process, 2 * drawn),
            page=page,
        )
        self._attachments = Attachments(self._workspace, self._sessions, settings=bounds)
        token = self._grpc_token
        self._grpc = grpc_server(self._attachments, None if token is None else token.text)
        host = settings.attach_host
        port = listen(self._grpc, address_text(host, settings.debugger_port), self._tls)
        if port is None:
            # gRPC gives no reason; the error of our own attempt does.
            open_socket(host, settings.debugger_port, "--debugger-port").close()
            raise PortError(f"{address_text(host, settings.debugger_port)} cannot be listened on by gRPC")
        await self._grpc.start()
        return address_text(reachable_host(host), port)

    def _debugger_elsewhere(self, debugger: str | None) -> str | None:
        """Return the address for training processes on other machines; None if they cannot attach."""
        host = self._settings.attach_host
        if debugger is None or is_loopback(host):
            return None
        if reachable_host(host) == host:
            return debugger
        return address_text(socket.gethostname(), int(debugger.rpartition(":")[2]))

    def _http_server(self, debugger: str | None) -> HttpServer:
        settings = self._settings
        token = self._http_token
        application = create_http_app(
            self._sessions,
            settings=HttpSettings(
                url_path_prefix=settings.url_path_prefix,
                token=None if token is None else token.text,
                allowed_hosts=(settings.host, socket.gethostname(), *settings.allowed_host),
                debugger_address=debugger,
                debugger_elsewhere=self._debugger_elsewhere(debugger),
                debugger_needs_token=self._grpc_token is not None,
            ),
        )
        return HttpServer(application, self._tls)

    async def _close(self) -> None:
        """Stop accepting connections, answer waiting training processes, close the sessions, then the connections."""
        if self._http is not None:
            self._http.stop()
        if self._grpc is not None and self._attachments is not None:
            stopping = asyncio.ensure_future(self._grpc.stop(FINISH_S))
            await self._attachments.close("")
            await stopping
        await self._sessions.close_all(REASON)
        if self._http is not None:
            await self._http.running

    def _record(self, port: int, debugger: str | None) -> Announcement:
        settings, token, tls_cert = self._settings, self._http_token, self._settings.tls_cert
        return Announcement(
            pid=os.getpid(),
            machine=socket.gethostname(),
            http=self._http_address(reachable_host(settings.host), port),
            debugger=debugger,
            started=time.time(),
            version=__version__,
            workspace=str(settings.workspace),
            token_file=None if token is None else str(token.file),
            tls_cert=None if tls_cert is None else str(tls_cert),
            client_certificates=settings.tls_client_ca is not None,
        )

    def _ready(self, record: Announcement, port: int) -> Ready:
        settings = self._settings
        tokens = [token for token in (self._http_token, self._grpc_token) if token is not None]
        return Ready(
            record,
            http_elsewhere=self._http_elsewhere(port),
            debugger_elsewhere=self._debugger_elsewhere(record.debugger),
            token_file=str(tokens[0].file) if tokens else None,
            new_token=next((token.text for token in tokens if token.new), None),
            in_the_clear=self._tls is None and not (is_loopback(settings.host) and is_loopback(settings.attach_host)),
            token_was_open=any(token.was_open for token in tokens),
            workspace_is_open=is_open_to_others(settings.workspace),
            debugger_token_file=None if self._grpc_token is None else str(self._grpc_token.file),
        )

    def _http_elsewhere(self, port: int) -> str | None:
        """Return the address for other machines; None if it is the same as for this machine."""
        for_all = reachable_host(self._settings.host) != self._settings.host
        return self._http_address(socket.gethostname(), port) if for_all else None

    def _http_address(self, host: str, port: int) -> str:
        scheme = "http" if self._tls is None else "https"
        return f"{scheme}://{address_text(host, port)}{self._settings.url_path_prefix}"


def _tls(settings: Settings) -> Tls | None:
    if settings.tls_cert is None or settings.tls_key is None:
        return None
    return load_tls(settings.tls_cert, settings.tls_key, settings.tls_client_ca)


def _user_rules(settings: Settings) -> Sequence[Rule]:
    return () if settings.rules is None else load_user_rules(settings.rules, most_s=MOST_LIVE_S)


def _token(settings: Settings, host: str) -> AccessToken | None:
    """Return the token required on a host: None if only this machine can reach it."""
    if settings.token_file is not None:
        return access_token(settings.token_file)
    return None if is_loopback(host) else access_token(settings.workspace / TOKEN_NAME)
