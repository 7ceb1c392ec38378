"""`tensight demo`: run a training with a planted fault, and let the debugger find it."""

from __future__ import annotations

import importlib.util
import sys
from enum import Enum
from typing import Annotated

import typer

from tensight.cli.exit_codes import FOUND
from tensight.cli.options import CacheDir
from tensight.cli.output import console


class Scenario(str, Enum):
    """What goes wrong. All but the last are names of scripts in `tensight/scenarios`."""

    NAN_FROM_LOG = "nan-from-log"
    EXPLODING_GRADIENT = "exploding-gradient"
    VANISHING_GRADIENT = "vanishing-gradient"
    DYING_RELU = "dying-relu"
    FROZEN_WEIGHT = "frozen-weight"
    FP16_OVERFLOW = "fp16-overflow"
    DUMP = "dump"


def demo(
    scenario: Annotated[
        Scenario, typer.Option(help="What goes wrong; `dump`: a run of MindSpore that comes with the package.")
    ] = Scenario.NAN_FROM_LOG,
    exit_: Annotated[
        bool | None,
        typer.Option(
            "--exit/--stay",
            help="Exit at the end, or leave the session open until a key is pressed; the default at a terminal.",
            show_default=False,
        ),
    ] = None,
    cache_dir: CacheDir = None,
) -> None:
    """Train a small PyTorch network in which something goes wrong, and name the operator and the line of code."""
    from tensight.cli.demo_dump import show_dump

    problem = "" if scenario is Scenario.DUMP else "PyTorch is not installed here."
    if not problem or importlib.util.find_spec("torch") is None:
        _print_problem(problem)
        show_dump(cache_dir)
        return
    from tensight.cli.demo_training import TrainingFailedError, show_training

    stay = not exit_ if exit_ is not None else sys.stdin.isatty() and sys.stdout.isatty()
    try:
        has_hit = show_training(scenario.value, stay=stay)
    except TrainingFailedError as error:
        _print_problem(str(error))
        show_dump(cache_dir)
        return
    raise typer.Exit(0 if has_hit else FOUND)


def _print_problem(problem: str) -> None:
    from rich.markup import escape

    if problem:
        console().print(f"[yellow]{escape(problem)}[/] Here is a run that was recorded, instead of a live one:\n")
