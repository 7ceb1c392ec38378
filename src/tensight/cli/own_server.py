"""A debug server that a command starts for itself, and ends."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tensight.server.occupancy import Announcement

END_WITHIN_S = 15.0


@contextmanager
def own_server(workspace: Path) -> Iterator[Announcement]:
    """Start a server on free ports of this machine, and end it with the context.

    Parameters
    ----------
    workspace : Path
        Of its own.

    Raises
    ------
    StartError
        It cannot start; the message says why.
    """
    from tensight.cli.background import start_detached
    from tensight.server.occupancy import wait_until_free

    given = {"workspace": workspace, "host": "127.0.0.1", "port": 0, "debugger_port": 0, "enable_debugger": "true"}
    record = start_detached(given, None).record
    try:
        yield record
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(record.pid, signal.SIGTERM)
        wait_until_free(workspace, END_WITHIN_S)
