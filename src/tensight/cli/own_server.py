"""A temporary debug server for the duration of a command."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from types import FrameType

    from tensight.server.occupancy import Announcement

END_WITHIN_S = 15.0


@contextmanager
def own_server(workspace: Path) -> Iterator[Announcement]:
    """Start a server on free local ports, and end it with the context, also on SIGTERM or SIGHUP.

    Parameters
    ----------
    workspace : Path
        Workspace of the server, used by no other server.

    Raises
    ------
    StartError
        The server did not start; the message has the reason.
    """
    from tensight.cli.background import start_detached
    from tensight.server.occupancy import wait_until_free

    given = {"workspace": workspace, "host": "127.0.0.1", "port": 0, "debugger_port": 0, "enable_debugger": "true"}
    with _termination_as_interrupt():
        record = start_detached(given, None).record
        try:
            yield record
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(record.pid, signal.SIGTERM)
            wait_until_free(workspace, END_WITHIN_S)


@contextmanager
def _termination_as_interrupt() -> Iterator[None]:
    """Handle SIGTERM and SIGHUP like Ctrl-C, so that the stack is unwound and the server is ended."""
    before = {number: signal.signal(number, _interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt
