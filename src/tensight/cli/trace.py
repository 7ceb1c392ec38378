"""`tensight trace`: run an unchanged training script, and record a fingerprint of every step."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tensight.cli.plain_run import MODULE_HELP, TRACE, trace_folder
from tensight.cli.run import Capture, StepOn
from tensight.cli.starting import start_training


def trace(
    script: Annotated[
        str, typer.Argument(metavar="SCRIPT", help="What `python` would run, or a command such as torchrun.")
    ],
    arguments: Annotated[list[str] | None, typer.Argument(metavar="ARGUMENTS", help="Its arguments.")] = None,
    module: Annotated[bool, typer.Option("--module", "-m", help=MODULE_HELP)] = False,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help=TRACE["--out"].help)] = None,
    capture: Annotated[Capture | None, typer.Option(help=TRACE["--capture"].help)] = None,
    step_on: Annotated[StepOn | None, typer.Option(help=TRACE["--step-on"].help)] = None,
    steps: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help=TRACE["--steps"].help),
    ] = None,
    perturb: Annotated[
        bool | None,
        typer.Option("--perturb", help=TRACE["--perturb"].help),
    ] = None,
    quiet: Annotated[bool | None, typer.Option("--quiet", help=TRACE["--quiet"].help)] = None,
) -> None:
    """Run a training script and write statistics and content hashes of everything it computes, for each rank."""
    chosen = {
        "trace": trace_folder(out),
        "trace_steps": steps,
        "perturb": perturb,
        "capture": capture and capture.value,
        "step_on": step_on and step_on.value,
        "quiet": quiet,
    }
    start_training([script, *(arguments or ())], chosen, module=module)
