"""The commands, gathered."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Annotated, Any

import typer
import typer.core

from tensight.cli import (
    Stopped,
    check,
    compare_checkpoints,
    compare_losses,
    compare_runs,
    compare_setups,
    convert,
    demo,
    doctor,
    export,
    info,
    nodes,
    origin,
    run,
    search,
    selftest,
    show,
    start,
    stats,
    status,
    stop,
    trace,
)


def stoppable(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command that says so when Ctrl-C stops it."""

    @functools.wraps(command)
    def run(*arguments: Any, **options: Any) -> None:
        try:
            command(*arguments, **options)
        except KeyboardInterrupt:
            raise Stopped from None

    return run


class _Commands(typer.core.TyperGroup):
    """The commands; of `check checkpoint`, which is two words, `check` by itself is one, too."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that the words begin with; a dump called "checkpoint" is checked as ./checkpoint."""
        if args[:2] == ["check", "checkpoint"]:
            return "check checkpoint", check_checkpoint, args[2:]
        return super().resolve_command(ctx, args)


app = typer.Typer(
    name="tensight",
    cls=_Commands,
    help="Find the operator and the line of code where a tensor of a training run went wrong.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
# What follows the script's name is the script's, whatever it looks like.
SCRIPT_LAST = {"allow_interspersed_args": False}
for command, context in (
    (demo.demo, {}),
    (run.run, SCRIPT_LAST),
    (trace.trace, SCRIPT_LAST),
    (selftest.selftest, SCRIPT_LAST),
    (search.search, {}),
    (doctor.doctor, SCRIPT_LAST),
    (start.start, {}),
    (stop.stop, {}),
    (status.status, {}),
    (info.info, {}),
    (check.check, {}),
    (origin.origin, {}),
    (nodes.nodes, {}),
    (stats.stats, {}),
    (show.show, {}),
    (show.compare_steps, {}),
    (export.export, {}),
    (convert.convert, {}),
):
    app.command(context_settings=context)(stoppable(command))

COMPARISONS: tuple[Callable[..., None], ...] = (
    compare_checkpoints.checkpoints,
    compare_losses.losses,
    compare_runs.runs,
    compare_setups.setups,
)
compare = typer.Typer(
    name="compare", help="Compare two runs, checkpoints, loss curves or set-ups.", no_args_is_help=True
)
for command in COMPARISONS:
    compare.command()(stoppable(command))
app.add_typer(compare)


def version(wanted: bool) -> None:
    """Print the version if it is wanted, and end."""
    if wanted:
        from tensight import __version__

        typer.echo(f"tensight {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Find the operator and the line of code where a tensor of a training run went wrong."""


_single = typer.Typer(
    add_completion=False, rich_markup_mode="rich", context_settings={"help_option_names": ["-h", "--help"]}
)
_single.command()(stoppable(compare_checkpoints.checkpoint))
check_checkpoint = typer.main.get_command(_single)

command_line = typer.main.get_command(app)
"""Parses the words of a command line and runs the command. Calling `app` would build it anew each time, which takes as
long as a small command."""
