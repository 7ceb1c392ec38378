"""`tensight compare setups`: the differences between the set-ups of two trainings."""

from __future__ import annotations

import json as json_format
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tensight.cli.options import Html, Json
from tensight.cli.output import console, print_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tensight.compare.setups import SetupComparison

LARGEST_DESCRIPTION = 256 << 20
"""Maximum size of a file in bytes."""

Setup = Annotated[str, typer.Argument(help="A trace, a recording, or a JSON file with the description of a set-up.")]


def setups(
    a: Setup,
    b: Setup,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Differences that are listed of each part.")] = 10,
    html: Html = None,
    json: Json = False,
) -> None:
    """Compare what surrounds two trainings: weights, data, hyper-parameters, layers, seeds, flags, versions."""
    from tensight.compare.setups import compare_setups

    comparison = compare_setups(read_setup(a), read_setup(b))
    data = {"a": a, "b": b, **comparison.as_data()}
    if html is not None:
        from tensight.cli.reports import setups as report
        from tensight.cli.reports.parts import write_report

        write_report(html, report, data)
    if json:
        print_json(data)
    else:
        _print(comparison, limit)
    if comparison.verdict.exit_code:
        raise typer.Exit(comparison.verdict.exit_code)


def read_setup(path: str) -> Mapping[str, object]:
    """Read the description of a set-up from the path that the user named.

    Raises
    ------
    InputError
        There is no description of a set-up.
    DumpError
        The path is a folder, but not a trace or a recording.
    """
    from tensight.dumps import open_dump
    from tensight.errors import InputError

    file = Path(path)
    if "://" in path or file.is_dir():
        setup = open_dump(path).setup
        if setup is None:
            raise InputError(f"{path} has no description of its set-up; newer versions of Tensight record one")
        return setup
    try:
        with file.open("rb") as opened:
            data = opened.read(LARGEST_DESCRIPTION + 1) if file.is_file() else None
        if data is None or len(data) > LARGEST_DESCRIPTION:
            raise InputError(f"{path} is not a file of at most {LARGEST_DESCRIPTION >> 20} MiB")
        # NaN is not equal to itself.
        content = json_format.loads(data, parse_constant=str)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not JSON, a trace or a recording: {error}") from None
    if not isinstance(content, dict):
        raise InputError(f"{path} is not the description of a set-up: it is not a JSON object")
    return content


def _print(comparison: SetupComparison, limit: int) -> None:
    from itertools import groupby

    from rich.markup import escape

    from tensight.compare import Verdict
    from tensight.compare.setups import Importance

    out = console()
    colour = {Verdict.SAME: "green", Verdict.DIFFERENT: "red", Verdict.NOT_COMPARABLE: "yellow"}[comparison.verdict]
    out.print(f"[bold {colour}]● {escape(comparison.sentence)}[/]")
    headings = {
        Importance.RESULTS: "[bold red]Can change results[/]",
        Importance.ROUNDING: "[bold yellow]Can change rounding[/]",
        Importance.REST: "[bold]Changes no result by itself[/]",
    }
    for importance, of_importance in groupby(comparison.differences, lambda difference: difference.importance):
        out.print(headings[importance])
        for part, of_part in groupby(of_importance, lambda difference: difference.part):
            differences = list(of_part)
            out.print(f"  [bold]{escape(part)}[/]")
            for difference in differences[:limit]:
                out.print(f"    {escape(str(difference))}")
            if len(differences) > limit:
                out.print(f"    [dim]… {len(differences) - limit:,} more (--limit, --json)[/]")
    if comparison.equal:
        out.print(f"[green]✓[/] the same: {escape(', '.join(comparison.equal))}")
    if comparison.not_recorded:
        out.print(f"[dim]not recorded: {escape(', '.join(comparison.not_recorded))}[/]")
