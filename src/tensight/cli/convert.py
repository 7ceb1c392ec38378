"""`tensight convert`: Ascend's binary files as npy files in host layout."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tensight.cli.options import DumpArgument, Json
from tensight.cli.output import console, count, print_json, print_problems, problem_data


def convert(
    dump: DumpArgument,
    out: Annotated[
        Path, typer.Argument(metavar="OUT", help="Folder for the converted dump; must not exist or be empty.")
    ],
    json: Json = False,
) -> None:
    """Write a dump anew with every binary tensor as an npy file that NumPy opens."""
    from rich.markup import escape

    from tensight.dumps import open_dump
    from tensight.dumps.convert import convert_dump

    opened = open_dump(dump)
    report = convert_dump(opened, out)
    problems = [*opened.problems, *report.problems]
    if json:
        amounts = {"written": report.written, "copied": report.copied}
        print_json({"folder": str(out), **amounts, "problems": problem_data(problems)})
        return
    copied = f" and copied {count(report.copied, 'npy file')}" if report.copied else ""
    console().print(f"Converted {count(report.written, 'tensor')}{copied} to [bold]{escape(str(out))}[/]")
    print_problems(problems)
