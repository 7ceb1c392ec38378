"""`tensight trace`: a training whose every step leaves a fingerprint, its script unchanged."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Annotated

import typer

from tensight.cli.run import Capture, StepOn
from tensight.cli.starting import start_training


def trace(
    script: Annotated[
        str, typer.Argument(metavar="SCRIPT", help="What `python` would run, or a command such as torchrun.")
    ],
    arguments: Annotated[list[str] | None, typer.Argument(metavar="ARGUMENTS", help="Its own, as they are.")] = None,
    module: Annotated[bool, typer.Option("--module", "-m", help="Run a module, as `python -m` does.")] = False,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where to. (default: a new folder in the current one)")
    ] = None,
    capture: Annotated[
        Capture | None, typer.Option(help="What is traced: calls of modules (default), or every operator.")
    ] = None,
    step_on: Annotated[
        StepOn | None, typer.Option(help="What ends a step: the optimizer (default), or the forward pass.")
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Trace the first N steps; the training goes on. (default all)"),
    ] = None,
    perturb: Annotated[
        bool | None,
        typer.Option(
            "--perturb", help="Move all initial weights by one unit in the last place, for `compare runs --noise`."
        ),
    ] = None,
    quiet: Annotated[bool | None, typer.Option("--quiet", help="Say on stderr only what is wrong.")] = None,
) -> None:
    """Run a training script and write statistics and content hashes of everything it computes, for each rank."""
    chosen = {
        "trace": os.path.abspath(out or time.strftime("tensight-trace-%Y%m%d-%H%M%S")),
        "trace_steps": steps,
        "perturb": perturb,
        "capture": capture and capture.value,
        "step_on": step_on and step_on.value,
        "quiet": quiet,
    }
    start_training([script, *(arguments or ())], chosen, module=module)
