"""The protocol that all components of a live session use to access it; each component extends it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from tensight.sessions.live.identity import Identity
    from tensight.sessions.live.process import TrainingProcess
    from tensight.sessions.records import State


class RunningSession(Protocol):
    """The processes of a session and their steps; see `LiveSession`."""

    identity: Identity

    @property
    def live(self) -> list[TrainingProcess]:
        """The processes that have not ended."""

    @property
    def state(self) -> State:
        """State of the session."""

    @property
    def step(self) -> int:
        """The shown step."""

    @property
    def present_step(self) -> int:
        """Number of steps that all live ranks have completed."""

    def announce(self, *, news: bool = False) -> None:
        """Tell the clients the state of the session."""
