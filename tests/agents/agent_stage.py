"""A training in NumPy that runs in a thread of the tests, and the session in which a person sees it."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from tensight.agents.core.settings import AgentSettings
from tensight.errors import TensightError
from tests.agents.numpy_training import Network, NumpyDebugger

if TYPE_CHECKING:
    from collections.abc import Callable

    from tensight.client import Server, Session
    from tensight.sessions.records import SessionRecord
    from tests.server.running import RunningServer

PATIENCE_S = 30.0


def until(condition: Callable[[], Any], what: str, timeout_s: float = PATIENCE_S) -> Any:
    """Wait until something is true, and return it."""
    end = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < end, f"{what}: not within {timeout_s} s"
        threading.Event().wait(0.005)
    return found


def settings_for(server: RunningServer | str | None, **chosen: Any) -> AgentSettings:
    """Return how a training finds a server, or the place where none is."""
    address = server if isinstance(server, str) else (server.debugger if server else None) or "127.0.0.1:1"
    host, _, port = address.rpartition(":")
    return AgentSettings(host=host, port=int(port), **{"connect_within_s": PATIENCE_S, "capture": "ops", **chosen})


class Scene:
    """A training that is debugged.

    Attributes
    ----------
    debugger : NumpyDebugger
    outcome : object
        What ended the training: an exception, or how many steps it did.
    """

    def __init__(
        self,
        settings: AgentSettings,
        steps: int,
        network: dict[str, Any] | None = None,
        *,
        before_step: Callable[[int], None] | None = None,
        **framework: Any,
    ) -> None:
        self.debugger = NumpyDebugger(Network(**(network or {})), settings, **framework)
        self.outcome: object = None
        self._steps = steps
        self._before_step = before_step
        self._breath = threading.Event()
        self._thread = threading.Thread(target=self._train, daemon=True)

    def start(self) -> Scene:
        self._thread.start()
        return self

    def _train(self) -> None:
        try:
            self.debugger.attach()
            number = 0
            while number < self._steps:
                if self._before_step is not None:
                    self._before_step(number + 1)
                # A training that never gives up the interpreter's lock is none: it computes elsewhere.
                self._breath.wait(0.0002)
                self.debugger.step()
                number += 1
            self.outcome = self.debugger.network.steps
        except BaseException as error:
            self.outcome = error
        finally:
            self.debugger.agent.close()

    @property
    def steps(self) -> int:
        """Steps that the training did so far."""
        return self.debugger.network.steps

    def finish(self) -> object:
        """Wait for the end, and return what ended it."""
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), "the training goes on"
        return self.outcome

    def abandon(self, session: Session | None) -> None:
        """End it whatever it does."""
        if session is not None and self._thread.is_alive():
            with suppress(TensightError):
                session.terminate()
        self._steps = 0
        self._thread.join(PATIENCE_S)


def session_named(server: Server, name: str) -> Session:
    return server.wait_for_session(PATIENCE_S, name=name)


def ended_session(server: Server, name: str) -> SessionRecord:
    """Wait for the end of a session, which may have ended already, and return how it ended."""

    def look() -> SessionRecord | None:
        named = (session.summary for session in server.sessions() if session.name == name)
        return next((record for record in named if record.state.has_ended), None)

    found: SessionRecord = until(look, f"the end of {name}")
    return found
