"""`tensight status`: show whether a debug server is running, and its sessions."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import typer

from tensight.cli.exit_codes import FOUND
from tensight.cli.options import Config, Json, Workspace
from tensight.cli.output import console, print_json, table
from tensight.cli.visible import visible

if TYPE_CHECKING:
    from rich.console import Console

    from tensight.server.occupancy import Announcement

ANSWER_WITHIN_S = 5.0
NOT_RUNNING = FOUND


def status(workspace: Workspace = None, config: Config = None, json: Json = False) -> None:
    """Show the debug server of a workspace and its sessions; exits with 1 if none is running."""
    from tensight.server.occupancy import running_server
    from tensight.server.settings import load_settings

    folder = load_settings({} if workspace is None else {"workspace": workspace}, config).workspace
    server = running_server(folder)
    if server is None:
        if json:
            print_json({"running": False, "workspace": str(folder)})
        else:
            typer.echo(visible(f"no server is running for the workspace {folder}"))
        raise typer.Exit(NOT_RUNNING)
    sessions, problem = _sessions(server)
    if json:
        data = asdict(server) | {"uptime_s": server.uptime_s, "sessions": sessions, "problem": problem}
        print_json({"running": True, **data})
    else:
        _print(console(), server, sessions, problem)


def _sessions(server: Announcement) -> tuple[list[dict[str, Any]] | None, str]:
    """Return the sessions from the API; on failure None and the reason."""
    import httpx

    if not server.here:
        return None, f"it runs on {server.machine}; ask there"
    if server.client_certificates:
        return None, "it answers only who shows a certificate"
    try:
        token = server.token()
        answer = httpx.get(
            f"{server.http}/api/v1/sessions",
            headers={} if token is None else {"Authorization": f"Bearer {token}"},
            verify=server.trust(),
            timeout=ANSWER_WITHIN_S,
            # Proxies in the environment are not for the local machine.
            trust_env=False,
        )
        answer.raise_for_status()
        return list(answer.json()), ""
    except OSError as error:
        return None, f"{error.filename}: {error.strerror}" if error.filename else str(error)
    except (httpx.HTTPError, ValueError) as error:
        return None, f"it does not answer: {error or type(error).__name__}"


def _print(out: Console, server: Announcement, sessions: list[dict[str, Any]] | None, problem: str) -> None:
    from rich.markup import escape

    out.print(f"[bold]{escape(server.http)}[/]")
    out.print(f"  Tensight {escape(server.version)}, process {server.pid}, up {_duration(server.uptime_s)}")
    out.print(f"  training processes attach at {escape(server.debugger or 'no address: switched off')}")
    out.print(f"  workspace {escape(server.workspace)}")
    if sessions is None:
        out.print(f"  [yellow]sessions unknown: {escape(problem)}[/]")
        return
    if not sessions:
        out.print("  no sessions")
        return
    rows = table("id", "name", "state", "step", "hits", "ranks", right=("id", "step", "hits", "ranks"))
    for session in sessions:
        cells = (session.get(name, "") for name in ("id", "name", "state", "step", "hits"))
        rows.add_row(*(escape(str(cell)) for cell in cells), str(len(session.get("ranks", ()))))
    out.print(rows)


def _duration(seconds: float) -> str:
    minutes, _ = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours} h"
    return f"{hours} h {minutes} min" if hours else (f"{minutes} min" if minutes else f"{int(seconds)} s")
