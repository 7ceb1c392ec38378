"""`tensight start`: the debug server."""

from __future__ import annotations

import os
from collections.abc import Iterator
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from tensight.cli.options import Config, Workspace
from tensight.cli.visible import visible

if TYPE_CHECKING:
    from tensight.server.occupancy import Ready


def start(
    host: Annotated[str | None, typer.Option(metavar="HOST", help="Where to listen. (default 127.0.0.1)")] = None,
    port: Annotated[
        str | None, typer.Option(metavar="PORT", help="Port for browsers and programs; 0: any. (default 8080)")
    ] = None,
    enable_debugger: Annotated[
        str | None, typer.Option(metavar="true|false", help="Let training processes attach. (default true)")
    ] = None,
    debugger_host: Annotated[
        str | None, typer.Option(metavar="HOST", help="Where training processes attach. (default --host)")
    ] = None,
    debugger_port: Annotated[
        str | None, typer.Option(metavar="PORT", help="Port for training processes; 0: any. (default 50051)")
    ] = None,
    summary_base_dir: Annotated[
        str | None, typer.Option(metavar="DIR", help="Dumps are found one or two levels below. (default .)")
    ] = None,
    offline_debugger_mem_limit: Annotated[
        str | None, typer.Option(metavar="MB", help="Memory for values of dumps, 6144 or more. (default 16384)")
    ] = None,
    max_offline_debugger_session_num: Annotated[
        str | None, typer.Option(metavar="N", help="Dumps open at a time, 1 to 1000. (default 2)")
    ] = None,
    max_graph_node_size: Annotated[
        str | None, typer.Option(metavar="N", help="Larger graphs are not drawn, 1 to 2000000. (default 100000)")
    ] = None,
    workspace: Workspace = None,
    rules: Annotated[
        str | None, typer.Option(metavar="FILE", help="Rules of your own for findings: a Python file, which is run.")
    ] = None,
    url_path_prefix: Annotated[
        str | None, typer.Option(metavar="PATH", help="Put before all paths, for a proxy. (default none)")
    ] = None,
    reload_interval: Annotated[
        str | None, typer.Option(metavar="SECONDS", help="Between looks for new dumps, 0 to 300. (default 3)")
    ] = None,
    token_file: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Need the access token in it, even on this machine; made if missing."),
    ] = None,
    tls_cert: Annotated[str | None, typer.Option(metavar="FILE", help="Certificate (PEM): encrypt.")] = None,
    tls_key: Annotated[str | None, typer.Option(metavar="FILE", help="Key of --tls-cert (PEM).")] = None,
    tls_client_ca: Annotated[
        str | None, typer.Option(metavar="FILE", help="Need client certificates that these authorities (PEM) signed.")
    ] = None,
    allowed_host: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Another name by which browsers reach it; repeatable.")
    ] = None,
    log_format: Annotated[str | None, typer.Option(metavar="text|json", help="Of the log. (default text)")] = None,
    config: Config = None,
    background: Annotated[bool, typer.Option("--background", help="Return when it is ready.")] = False,
    ready_fd: Annotated[int | None, typer.Option("--ready-fd", hidden=True)] = None,
) -> None:
    """Start the debug server: training processes attach to it, browsers and programs drive them."""
    from tensight.server.settings import Settings, load_settings

    given = {name: value for name, value in locals().items() if name in Settings.model_fields and value is not None}
    settings = load_settings(given, config)
    if background:
        from tensight.cli.background import start_detached

        _announce(start_detached(given, config))
        return
    # gRPC's own messages (a failed handshake, a port in use) would go to stderr; the log has better ones.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    import asyncio

    from tensight.server.app import serve

    if ready_fd is None:
        asyncio.run(serve(settings, _announce))
    else:
        from tensight.cli.background import Detachment

        asyncio.run(serve(settings, Detachment(ready_fd, settings.workspace).on_ready, log_on_stderr=False))


def _announce(ready: Ready) -> None:
    """Print how to reach the server, and flush, because another program may wait for it."""
    print("\n".join(map(visible, _lines(ready))), flush=True)  # noqa: T201 - what the command prints


def _lines(ready: Ready) -> Iterator[str]:
    record = ready.record
    yield f"Tensight {record.version} is ready."
    yield f"  for browsers and programs    {record.http}"
    if ready.http_elsewhere is not None:
        yield f"    from other machines        {ready.http_elsewhere}"
    yield f"  for training processes       {record.debugger or 'off (--enable-debugger)'}"
    yield f"  workspace                    {record.workspace}"
    if record.debugger is not None:
        host, port = _host_and_port(record.debugger)
        token = (
            "" if ready.debugger_token_file is None else f"TENSIGHT_TOKEN=$(cat {quote(ready.debugger_token_file)}) "
        )
        yield "To debug a training on this machine, on PyTorch or MindSpore, start it with"
        yield f"  {token}tensight run --host {host} --port {port} --recommended train.py"
        if not token:
            yield "or, as with MindSpore Insight (MindSpore 1.1 to 2.3 attaches with its built-in client):"
            yield f"  ENABLE_MS_DEBUGGER=1 MS_DEBUGGER_HOST={host} MS_DEBUGGER_PORT={port} python train.py"
        if ready.debugger_elsewhere is not None:
            host, port = _host_and_port(ready.debugger_elsewhere)
            placeholder = "TENSIGHT_TOKEN=TOKEN " if token else ""
            yield "On another machine, start it with"
            yield f"  {placeholder}tensight run --host {host} --port {port} --recommended train.py"
    if ready.new_token is not None:
        yield f"Access token, shown only now: {ready.new_token}"
    if ready.token_file is not None:
        yield f"The access token is in {ready.token_file}."
    if ready.token_was_open:
        yield "Other users of this machine could read that file until now; remove it and start again for a new token."
    if ready.workspace_is_open:
        yield f"Other users of this machine can enter the workspace; `chmod 700 {record.workspace}` keeps them out."
    if ready.in_the_clear:
        yield "It travels unencrypted, like all the rest; use --tls-cert and --tls-key, or an ssh tunnel."
    yield f"`tensight stop --workspace {record.workspace}` ends the server."


def _host_and_port(address: str) -> tuple[str, str]:
    """Return the parts of ``host:port``, an IPv6 address without its brackets."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), port
