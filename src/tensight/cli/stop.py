"""`tensight stop`: end the debug server."""

from __future__ import annotations

import os
import signal
from typing import Annotated

import typer

from tensight.cli.options import Config, Workspace
from tensight.cli.visible import visible

SLACK_S = 10
"""Additional time to wait beyond the server's own deadlines."""


def stop(
    workspace: Workspace = None,
    config: Config = None,
    now: Annotated[bool, typer.Option("--now", help="End it at once, without notifying training processes.")] = False,
) -> None:
    """Stop the debug server of a workspace, and wait until it has ended; waiting training processes are notified."""
    from tensight.server.lifetime import DEADLINE_S, LAST_RESORT_S
    from tensight.server.occupancy import in_use, running_server, wait_until_free
    from tensight.server.settings import load_settings
    from tensight.sessions.errors import StateError

    folder = load_settings({} if workspace is None else {"workspace": workspace}, config).workspace
    server = running_server(folder)
    if server is None:
        if in_use(folder):
            raise StateError(f"the server of {folder} is just starting or ending; try again")
        typer.echo(visible(f"no server is running for the workspace {folder}"))
        return
    if not server.here:
        raise StateError(f"the server of {folder} runs on {server.machine}; stop it there")
    try:
        os.kill(server.pid, signal.SIGKILL if now else signal.SIGTERM)
    except ProcessLookupError:
        # It has just ended.
        pass
    except PermissionError:
        raise StateError(f"process {server.pid}, the server of {folder}, belongs to another user") from None
    if not wait_until_free(folder, DEADLINE_S + LAST_RESORT_S + SLACK_S):
        raise StateError(f"process {server.pid} does not end; `tensight stop --now` ends it without asking")
    typer.echo(visible(f"stopped the server at {server.http} (process {server.pid})"))
