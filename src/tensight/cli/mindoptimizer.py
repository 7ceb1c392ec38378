"""`mindoptimizer`: `tensight search` with MindInsight's name and options."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from tensight.cli import stoppable_main
from tensight.cli.app import PlainCommand, stoppable, version

ITERATIONS = 1
"""MindInsight's default."""


def main() -> None:
    """Run the command; Tensight's errors are printed as one line on stderr, without a traceback."""
    stoppable_main(_run)


def _run() -> None:
    app = typer.Typer(
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    @app.command(name="mindoptimizer", cls=PlainCommand)
    @stoppable
    def mindoptimizer(
        config: Annotated[Path, typer.Option(metavar="FILE", help="What is searched: YAML.")],
        iterations: Annotated[
            int, typer.Option("--iter", min=1, metavar="N", help="Further trials.", show_default=True)
        ] = ITERATIONS,
        _version: Annotated[
            bool, typer.Option("--version", callback=version, is_eager=True, help="Print the version.")
        ] = False,
    ) -> None:
        """Search hyper-parameters, as `tensight search` does; a trial that fails does not end the search."""
        from tensight.cli.search import open_study, read, report, run_trials

        configuration = read(config)
        study = open_study(configuration, None)
        run_trials(configuration, study, study.counted() + iterations, jobs=1, quiet=False)
        report(configuration, study, json=False)

    app(prog_name="mindoptimizer", args=sys.argv[1:])
