"""The commands, gathered."""

from __future__ import annotations

from typing import Annotated

import typer

from tensight.cli import check, convert, demo, export, info, nodes, origin, show, stats

app = typer.Typer(
    name="tensight",
    help="Find the operator and the line of code where a tensor of a training run went wrong.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (
    demo.demo,
    info.info,
    check.check,
    origin.origin,
    nodes.nodes,
    stats.stats,
    show.show,
    show.compare_steps,
    export.export,
    convert.convert,
):
    app.command()(command)


def _version(wanted: bool) -> None:
    if wanted:
        from tensight import __version__

        typer.echo(f"tensight {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Find the operator and the line of code where a tensor of a training run went wrong."""
