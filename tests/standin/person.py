"""What a person does with a debug server, over its HTTP API."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import httpx
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from numpy.typing import NDArray

PATIENCE_S = 60.0
LONGEST_POLL_S = 20.0


def checked(response: httpx.Response) -> httpx.Response:
    assert response.is_success, f"{response.request.method} {response.url}: {response.status_code} {response.text}"
    return response


class Person:
    """Talks with one debug server.

    Parameters
    ----------
    url : str
        ``http://HOST:PORT/prefix``.
    """

    def __init__(self, url: str) -> None:
        self.http = httpx.Client(base_url=f"{url}/api/v1", timeout=PATIENCE_S)

    def __enter__(self) -> Person:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.http.close()

    def get(self, path: str, **parameters: Any) -> Any:
        return checked(self.http.get(path, params=parameters)).json()

    def sessions(self) -> list[dict[str, Any]]:
        return list(self.get("/sessions"))

    def last_sessions(self) -> str:
        """Return what the newest sessions do, in few words: a server of many tests has dozens."""
        newest = [(each["name"], each["state"], each["step"], each["message"]) for each in self.sessions()[-5:]]
        return "; ".join(f"{name} {state} at step {step} ({message})" for name, state, step, message in newest)

    def wait_for(self, events: str, look: Callable[[], Any], what: str, timeout_s: float = PATIENCE_S) -> Any:
        """Look again after each event until something is seen, and return that."""
        after, end = 0, time.monotonic() + timeout_s
        while True:
            seen = look()
            if seen:
                return seen
            left = end - time.monotonic()
            assert left > 0, f"{what}: not within {timeout_s} s; the last sessions are {self.last_sessions()}"
            after = self.get(events, after=after, wait_s=min(left, LONGEST_POLL_S))["last"]

    def open(self, dump: str) -> Inspection:
        """Open a dump or recorded run, and wait until it can be looked at."""
        session = Inspection(self, checked(self.http.post("/sessions", json={"dump": dump})).json()["id"])
        session.wait("paused")
        return session

    def session_of(
        self, device: int | str, *, live: bool = True, besides: tuple[str, ...] = (), timeout_s: float = PATIENCE_S
    ) -> Inspection:
        """Wait for the session of the training on a device that was none of `besides`."""

        def look() -> str | None:
            for record in reversed(self.sessions()):
                ended = record["state"] in ("finished", "terminated", "lost", "failed")
                devices = [rank["device"] for rank in record["ranks"]]
                if str(device) in devices and record["id"] not in besides and not (live and ended):
                    return str(record["id"])
            return None

        return Inspection(self, self.wait_for("/events", look, f"a session of device {device}", timeout_s))


class Inspection:
    """One session, as a person sees it."""

    def __init__(self, person: Person, session_id: str) -> None:
        self.person = person
        self.id = session_id
        self.path = f"/sessions/{session_id}"

    # --- the session ---

    def record(self) -> dict[str, Any]:
        return dict(self.person.get(self.path))

    def wait(self, state: str, *, step: int | None = None, timeout_s: float = PATIENCE_S) -> dict[str, Any]:
        """Wait until the session is in a state, and at a step if one is given."""

        def look() -> dict[str, Any] | None:
            record = self.record()
            return record if record["state"] == state and step in (None, record["step"]) else None

        return dict(self.wait_until(look, f"{state} at step {step}", timeout_s))

    def wait_until(self, look: Callable[[], Any], what: str, timeout_s: float = PATIENCE_S) -> Any:
        return self.person.wait_for(f"{self.path}/events", look, f"session {self.id} {what}", timeout_s)

    def events(self) -> list[dict[str, Any]]:
        return list(self.person.get(f"{self.path}/events", after=0, limit=1000)["events"])

    def try_command(self, action: str, **arguments: Any) -> httpx.Response:
        return self.person.http.post(f"{self.path}/command", json={"action": action, **arguments})

    def command(self, action: str, **arguments: Any) -> dict[str, Any]:
        return dict(checked(self.try_command(action, **arguments)).json())

    def proceed(self, action: str = "continue", **arguments: Any) -> dict[str, Any]:
        """Give a command and wait until the training stands again."""
        self.command(action, **arguments)
        return self.wait("paused")

    # --- watchpoints and hits ---

    def watch(self, condition: str, *nodes: str, name: str = "", **parameters: Any) -> dict[str, Any]:
        """Create a watchpoint, on some nodes only if any are given."""
        spec: dict[str, Any] = {"condition": condition, "parameters": parameters, "name": name}
        if nodes:
            spec["selection"] = "none"
            spec["edits"] = [{"path": node} for node in nodes]
        return dict(checked(self.person.http.post(f"{self.path}/watchpoints", json=spec)).json())

    def change(self, watchpoint: int, **change: Any) -> dict[str, Any]:
        response = self.person.http.patch(f"{self.path}/watchpoints/{watchpoint}", json=change)
        return dict(checked(response).json())

    def delete(self, watchpoint: int) -> None:
        checked(self.person.http.delete(f"{self.path}/watchpoints/{watchpoint}"))

    def watchpoints(self) -> list[dict[str, Any]]:
        return list(self.person.get(f"{self.path}/watchpoints"))

    def hits(self, **parameters: Any) -> dict[str, Any]:
        return dict(self.person.get(f"{self.path}/hits", limit=1000, **parameters))

    def hit_list(self) -> list[tuple[str, int, int]]:
        """Return what hit, in the order shown: node and slot, watchpoint, error code."""
        return [
            (f"{node['node']}:{tensor['slot']}", hit["watchpoint"], hit["error_code"])
            for node in self.hits()["nodes"]
            for tensor in node["tensors"]
            for hit in tensor["hits"]
        ]

    # --- graphs and tensors ---

    def graphs(self) -> list[dict[str, Any]]:
        return list(self.person.get(f"{self.path}/graphs"))

    def nodes(self, **parameters: Any) -> list[str]:
        page = self.person.get(f"{self.path}/nodes", limit=1000, **parameters)
        return [found["entry"]["path"] for found in page["nodes"]]

    def tensors(self, node: str, graph: str = "kernel_graph_0", **parameters: Any) -> list[dict[str, Any]]:
        return list(self.person.get(f"{self.path}/tensors", rank=0, graph=graph, node=node, **parameters))

    def try_values(self, address: str, **parameters: Any) -> httpx.Response:
        return self.person.http.get(
            f"{self.path}/tensor/values", params={"address": address, "format": "raw", **parameters}
        )

    def values(self, address: str, **parameters: Any) -> NDArray[Any]:
        response = checked(self.try_values(address, **parameters))
        shape = [int(size) for size in response.headers["X-Tensight-Shape"].strip("[]()").split(",") if size.strip()]
        return np.frombuffer(response.content, response.headers["X-Tensight-Dtype"]).reshape(shape)

    def statistics(self, address: str, **parameters: Any) -> dict[str, Any]:
        return dict(self.person.get(f"{self.path}/tensor/statistics", address=address, **parameters))
