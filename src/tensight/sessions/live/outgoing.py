"""What a training process was sent, and what it is sent next."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from tensight import wire

if TYPE_CHECKING:
    import asyncio

    from tensight.sessions.live.watching import Signature, WatchChanges
    from tensight.wire.debugger_pb2 import EventReply


class Outgoing:
    """The watchpoints and commands of a process.

    Attributes
    ----------
    sent : dict of int to Signature
        The watchpoints that it has; the signature is None if that is uncertain.
    prepared : int or None
        Version of the session's watchpoints for which it has all changes, or has them in its queue.
    preparing : Task or None
        Determines the changes of watchpoints to send.
    has_unchecked : bool
        Whether it received watchpoints that have not been checked on the initial values.
    knows_held : bool
        Whether the process knows that it is stopped by a user or at a hit, and not only waiting for commands.
    wants_exit : bool
        Whether it shall end.
    queue : deque of EventReply
        Commands that are sent before others.
    lines : deque of str
        Lines for its terminal, which are sent before the queue.
    """

    def __init__(self) -> None:
        self.sent: dict[int, Signature | None] = {}
        self.prepared: int | None = None
        self.preparing: asyncio.Task[None] | None = None
        self.has_unchecked = False
        self.knows_held = False
        self.wants_exit = False
        self.queue: deque[EventReply] = deque()
        self.lines: deque[str] = deque()

    def add(self, changes: WatchChanges, version: int) -> None:
        """Queue the changes after which the process has the watchpoints of a version."""
        self.preparing = None
        self.sent = changes.sent
        self.prepared = version
        self.queue.extend(map(wire.set_reply, changes.commands))
        self.has_unchecked |= bool(changes.commands)

    def prepare_again(self) -> None:
        """Discard the changes of watchpoints that have not been sent; they must be determined again."""
        self.prepared = self.preparing = None
        self.queue.clear()

    def invalidate(self) -> None:
        """Mark everything that was sent as uncertain: it may have been lost with the connection."""
        self.sent = dict.fromkeys(self.sent)
        self.knows_held = False
        self.prepare_again()
