"""The HTTP API served by uvicorn in a thread, for tests that talk to it over real sockets."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import httpx
import uvicorn

from tensight.server.event_stream import EventStreams
from tensight.server.http import create_http_app
from tensight.server.http_settings import HttpSettings
from tensight.server.listening import open_socket
from tensight.sessions.registry import Sessions
from tensight.sessions.workspace import Workspace

Result = TypeVar("Result")

WITHIN_S = 60


@dataclass
class Served:
    """An API that answers.

    Attributes
    ----------
    url : str
        With the prefix and ``/api/v1``.
    port : int
    sessions : Sessions
        Only to be used in the server's loop: with `do`.
    streams : EventStreams
    app : FastAPI
    """

    url: str
    port: int
    sessions: Sessions
    streams: EventStreams
    app: Any
    loop: asyncio.AbstractEventLoop

    @property
    def websocket_url(self) -> str:
        return self.url.replace("http", "ws", 1)

    def do(self, function: Callable[..., Result], *arguments: Any, **named: Any) -> Result:
        """Call a function in the server's loop, and return what it returns (if that is awaitable, its result)."""

        async def call() -> Any:
            result = function(*arguments, **named)
            return await result if asyncio.iscoroutine(result) else result

        return asyncio.run_coroutine_threadsafe(call(), self.loop).result(WITHIN_S)

    def client(self, **options: Any) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=WITHIN_S, **options)


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()


@contextmanager
def served(workspace: Path, base_dir: Path | None = None, *, max_offline: int = 2, **settings: Any) -> Iterator[Served]:
    """Serve the sessions of a workspace until the block ends."""
    ready = threading.Event()
    found: dict[str, Any] = {}

    async def serve() -> None:
        sessions = Sessions(Workspace(workspace), base_dir, max_offline=max_offline, reload_interval_s=0)
        app = create_http_app(sessions, settings=HttpSettings(**settings))
        config = uvicorn.Config(
            app, lifespan="off", log_level="critical", ws_per_message_deflate=False, timeout_graceful_shutdown=5
        )
        with open_socket("127.0.0.1", 0, "--port") as listening:
            found.update(sessions=sessions, app=app, port=listening.getsockname()[1], loop=asyncio.get_running_loop())
            found["server"] = _Server(config, ready.set)
            await found["server"].serve([listening])
        await sessions.close_all("the test is over")

    thread = threading.Thread(target=lambda: asyncio.run(serve()), name="http-server")
    thread.start()
    try:
        assert ready.wait(WITHIN_S), "the server did not start"
        streams = found["app"].state.context.streams
        prefix = settings.get("url_path_prefix", "")
        yield Served(
            f"http://127.0.0.1:{found['port']}{prefix}/api/v1",
            found["port"],
            found["sessions"],
            streams,
            found["app"],
            found["loop"],
        )
    finally:
        if "server" in found:
            found["loop"].call_soon_threadsafe(found["app"].state.context.streams.stop)
            found["server"].should_exit = True
        thread.join(WITHIN_S)


@dataclass
class Opened:
    """A dump that is open as a session.

    Attributes
    ----------
    client : httpx.Client
        Of the server.
    path : str
        ``/sessions/ID``.
    known : int
        Number of the last event that was seen.
    """

    client: httpx.Client
    path: str
    known: int = 0

    def ask(self, method: str, path: str = "", **options: Any) -> httpx.Response:
        return self.client.request(method, self.path + path, **options)

    def get(self, path: str = "", **parameters: Any) -> Any:
        """Return the JSON that is found at a path of the session."""
        answer = self.ask("GET", path, params=parameters)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def post(self, path: str, body: Any) -> Any:
        """Return the JSON that the answer to a JSON body is."""
        answer = self.ask("POST", path, json=body)
        assert answer.status_code in (200, 201), answer.text
        return answer.json()

    def refused(self, method: str, path: str, status: int, **options: Any) -> str:
        """Return the message with which a request is refused with this status."""
        answer = self.ask(method, path, **options)
        assert answer.status_code == status, answer.text
        message: str = answer.json()["error"]["message"]
        return message

    def settled(self) -> Any:
        """Wait until the session stands still, and return it."""
        while True:
            session = self.get()
            if session["state"] not in ("connecting", "running"):
                return session
            self.known = self.get("/events", after=self.known, wait_s=30)["last"]

    def command(self, action: str, **fields: Any) -> Any:
        """Give a command, wait until it is done, and return the session."""
        self.known = self.get()["last_event"]
        self.post("/command", {"action": action, **fields})
        return self.settled()


def opened(client: httpx.Client, dump: str) -> Opened:
    """Open a dump, and wait until it can be looked at."""
    answer = client.post("/sessions", json={"dump": dump})
    assert answer.status_code == 201, answer.text
    session = Opened(client, f"/sessions/{answer.json()['id']}")
    assert session.settled()["state"] == "paused"
    return session
