"""`tensight run`: a training under the debugger, its script unchanged."""

from __future__ import annotations

import os
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from tensight.cli.starting import size_bytes, start_training


class Capture(str, Enum):
    """`tensight.agents.settings.Capture`, for ``--help``."""

    MODULES = "modules"
    OPS = "ops"


class StepOn(str, Enum):
    """`tensight.agents.settings.StepOn` without what needs a call in the script."""

    OPTIMIZER = "optimizer"
    FORWARD = "forward"


class StopOn(str, Enum):
    """`tensight.agents.settings.StopOn`."""

    NEW = "new"
    EVERY = "every"


class OnDisconnect(str, Enum):
    """`tensight.agents.settings.OnDisconnect`."""

    CONTINUE = "continue"
    WAIT = "wait"


def run(
    script: Annotated[
        str, typer.Argument(metavar="SCRIPT", help="What `python` would run, or a command such as torchrun.")
    ],
    arguments: Annotated[list[str] | None, typer.Argument(metavar="ARGUMENTS", help="Its own, as they are.")] = None,
    module: Annotated[bool, typer.Option("--module", "-m", help="Run a module, as `python -m` does.")] = False,
    host: Annotated[str | None, typer.Option(metavar="HOST", help="Of the debug server. (default localhost)")] = None,
    port: Annotated[int | None, typer.Option(metavar="PORT", help="Of the debug server. (default 50051)")] = None,
    capture: Annotated[
        Capture | None, typer.Option(help="What is seen: calls of modules (default), or every operator.")
    ] = None,
    step_on: Annotated[
        StepOn | None, typer.Option(help="What ends a step: the optimizer (default), or the forward pass.")
    ] = None,
    break_at_start: Annotated[
        bool | None, typer.Option("--break-at-start", help="Wait for a person before the first step.")
    ] = None,
    recommended: Annotated[
        bool | None, typer.Option("--recommended", help="Set the recommended watchpoints before the first step.")
    ] = None,
    stop_on: Annotated[
        StopOn | None,
        typer.Option(help="Stop for hits that are new and follow from nothing reported (default), or for every one."),
    ] = None,
    record: Annotated[
        str | None, typer.Option(metavar="ring:K|full", help="Record the last K steps, or all, as a dump.")
    ] = None,
    record_folder: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where to. (default: a new folder in the current one)")
    ] = None,
    against: Annotated[
        Path | None, typer.Option(metavar="TRACE", help="Compare with a trace, and stop at the first difference.")
    ] = None,
    keep_going: Annotated[
        bool | None, typer.Option("--keep-going", help="With --against: report the first difference, and train on.")
    ] = None,
    on_disconnect: Annotated[
        OnDisconnect | None, typer.Option(help="While no server answers: train on (default), or wait.")
    ] = None,
    memory_budget: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="For values of two steps. (default: a tenth of free memory)"),
    ] = None,
    partial_memory: Annotated[
        bool | None, typer.Option("--partial-memory", help="Keep only values of what is watched.")
    ] = None,
    job: Annotated[
        str | None, typer.Option(metavar="NAME", help="Name of the run. (default: the script's name)")
    ] = None,
    quiet: Annotated[
        bool | None, typer.Option("--quiet", help="Say on stderr only what is wrong, not that it stops or goes on.")
    ] = None,
) -> None:
    """Run a training script under the debugger, unchanged: everything after its name is its own."""
    chosen = {
        "host": host,
        "port": port,
        "capture": capture and capture.value,
        "step_on": step_on and step_on.value,
        "stop_on": stop_on and stop_on.value,
        "break_at_start": break_at_start,
        "recommended": recommended,
        "record": record,
        "record_folder": record_folder and os.path.abspath(record_folder),
        "against": against and os.path.abspath(against),
        "keep_going": keep_going,
        "on_disconnect": on_disconnect and on_disconnect.value,
        "memory_budget_bytes": None if memory_budget is None else size_bytes(memory_budget),
        "partial_memory": partial_memory,
        "job": job,
        "quiet": quiet,
    }
    start_training([script, *(arguments or ())], chosen, module=module)
