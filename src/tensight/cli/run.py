"""`tensight run`: run an unchanged training script under the debugger."""

from __future__ import annotations

import os
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from tensight.cli.plain_run import MODULE_HELP, RUN
from tensight.cli.starting import size_bytes, start_training


class Capture(str, Enum):
    """`tensight.agents.core.settings.Capture`, for ``--help``."""

    MODULES = "modules"
    OPS = "ops"


class StepOn(str, Enum):
    """`tensight.agents.core.settings.StepOn` without the choice that needs a call in the script."""

    OPTIMIZER = "optimizer"
    FORWARD = "forward"


class StopOn(str, Enum):
    """`tensight.agents.core.settings.StopOn`."""

    NEW = "new"
    EVERY = "every"


class Findings(str, Enum):
    """`tensight.agents.core.settings.Findings`."""

    OFF = "off"
    LIST = "list"
    CERTAIN = "certain"
    EVERY = "every"


class OnDisconnect(str, Enum):
    """`tensight.agents.core.settings.OnDisconnect`."""

    CONTINUE = "continue"
    WAIT = "wait"


def run(
    script: Annotated[
        str, typer.Argument(metavar="SCRIPT", help="What `python` would run, or a command such as torchrun.")
    ],
    arguments: Annotated[list[str] | None, typer.Argument(metavar="ARGUMENTS", help="Its arguments.")] = None,
    module: Annotated[bool, typer.Option("--module", "-m", help=MODULE_HELP)] = False,
    host: Annotated[str | None, typer.Option(metavar="HOST", help=RUN["--host"].help)] = None,
    port: Annotated[int | None, typer.Option(metavar="PORT", help=RUN["--port"].help)] = None,
    capture: Annotated[Capture | None, typer.Option(help=RUN["--capture"].help)] = None,
    step_on: Annotated[StepOn | None, typer.Option(help=RUN["--step-on"].help)] = None,
    break_at_start: Annotated[bool | None, typer.Option("--break-at-start", help=RUN["--break-at-start"].help)] = None,
    recommended: Annotated[bool | None, typer.Option("--recommended", help=RUN["--recommended"].help)] = None,
    stop_on: Annotated[
        StopOn | None,
        typer.Option(help=RUN["--stop-on"].help),
    ] = None,
    findings: Annotated[Findings | None, typer.Option(help=RUN["--findings"].help)] = None,
    rules: Annotated[Path | None, typer.Option(metavar="FILE", help=RUN["--rules"].help)] = None,
    record: Annotated[str | None, typer.Option(metavar="ring:K|full", help=RUN["--record"].help)] = None,
    record_folder: Annotated[Path | None, typer.Option(metavar="DIR", help=RUN["--record-folder"].help)] = None,
    alone: Annotated[Path | None, typer.Option(metavar="DIR", help=RUN["--alone"].help)] = None,
    every: Annotated[int | None, typer.Option(metavar="N", min=1, help=RUN["--every"].help)] = None,
    against: Annotated[Path | None, typer.Option(metavar="TRACE", help=RUN["--against"].help)] = None,
    keep_going: Annotated[bool | None, typer.Option("--keep-going", help=RUN["--keep-going"].help)] = None,
    on_disconnect: Annotated[OnDisconnect | None, typer.Option(help=RUN["--on-disconnect"].help)] = None,
    memory_budget: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help=RUN["--memory-budget"].help),
    ] = None,
    partial_memory: Annotated[bool | None, typer.Option("--partial-memory", help=RUN["--partial-memory"].help)] = None,
    job: Annotated[str | None, typer.Option(metavar="NAME", help=RUN["--job"].help)] = None,
    quiet: Annotated[bool | None, typer.Option("--quiet", help=RUN["--quiet"].help)] = None,
) -> None:
    """Run a training script under the debugger, unchanged: everything after its name is its own."""
    chosen = {
        "host": host,
        "port": port,
        "capture": capture and capture.value,
        "step_on": step_on and step_on.value,
        "stop_on": stop_on and stop_on.value,
        "findings": findings and findings.value,
        "rules": rules and os.path.abspath(rules),
        "break_at_start": break_at_start,
        "recommended": recommended,
        "record": record,
        "record_folder": record_folder and os.path.abspath(record_folder),
        "alone": alone and os.path.abspath(alone),
        "alone_every": every,
        "against": against and os.path.abspath(against),
        "keep_going": keep_going,
        "on_disconnect": on_disconnect and on_disconnect.value,
        "memory_budget_bytes": None if memory_budget is None else size_bytes(memory_budget),
        "partial_memory": partial_memory,
        "job": job,
        "quiet": quiet,
    }
    start_training([script, *(arguments or ())], chosen, module=module)
