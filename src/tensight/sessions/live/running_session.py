"""What every part of a session of attached processes may ask of it; each part adds what else it needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from tensight.sessions.live.identity import Identity
    from tensight.sessions.live.process import TrainingProcess
    from tensight.sessions.records import State


class RunningSession(Protocol):
    """The processes of a session, and where they are; see `LiveSession`."""

    identity: Identity

    @property
    def live(self) -> list[TrainingProcess]:
        """The processes that may still say something."""

    @property
    def state(self) -> State:
        """What the session is doing."""

    @property
    def step(self) -> int:
        """The step that is shown."""

    @property
    def present_step(self) -> int:
        """Steps that all live ranks have done together."""

    def announce(self, *, news: bool = False) -> None:
        """Tell the clients how the session looks now."""
