"""`tensight stats`: the statistics table of a dump, sorted, filtered, or asked with SQL."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tensight.cli.exit_codes import WRONG_INPUT
from tensight.cli.opening import open_analysis
from tensight.cli.options import CacheDir, DumpArgument, Json, Quiet, Threads
from tensight.cli.output import (
    Format,
    console,
    count,
    number,
    print_csv,
    print_json,
    print_problems,
    progress,
    table,
    without_text,
)
from tensight.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

SHOWN = ("step", "node", "slot", "tensor", "min", "max", "zeros_percent", "non_finite")
_SHOWN_VIEW = """
    select * replace (case io when 'input' then 'input ' else '' end || slot as slot,
                      coalesce(node, op_name) as node),
           dtype || replace(shape::varchar, ' ', '') as tensor
    from tensors
"""
_VIEW = """
    select *, 100.0 * zero_count / nullif(count, 0) as zeros_percent,
           nan_count + neg_inf_count + pos_inf_count as non_finite
    from tensors
"""


def stats(
    dump: DumpArgument,
    sql: Annotated[
        str | None,
        typer.Option(
            "--sql", metavar="QUERY", help='SQL over the table "tensors", and those of facts (DuckDB\'s dialect).'
        ),
    ] = None,
    sort: Annotated[str, typer.Option("--sort", metavar="COLUMN", help="Sort by this column, largest first.")] = "max",
    ascending: Annotated[bool, typer.Option("--ascending", help="Smallest first.")] = False,
    top: Annotated[int, typer.Option("--top", min=1, help="How many rows.")] = 20,
    output: Annotated[Format, typer.Option("--format", help="How to print.")] = Format.TABLE,
    json: Json = False,
    quiet: Quiet = False,
    cache_dir: CacheDir = None,
    threads: Threads = None,
) -> None:
    """Show the statistics of all tensors: the largest, those with most zeros, or whatever a query asks."""
    import numpy as np

    from tensight.analysis import query
    from tensight.analysis.coverage import coverage
    from tensight.analysis.facts_tables import facts_tables
    from tensight.analysis.statistics_table import RECORDED

    analysis = open_analysis(dump, cache_dir, threads)
    with progress(analysis, quiet=quiet):
        everything = analysis.table()
    every_row = np.arange(len(everything))
    inspected = coverage(analysis.statistics_table, every_row, every_row)
    view = query(everything, _VIEW)
    sorted_by = sort if sql is None else None
    if sql is None:
        if sort not in view.column_names:
            raise InputError(f"--sort {sort!r}: there is no such column; there are {', '.join(view.column_names)}")
        direction = "asc" if ascending else "desc"
        sql = f'select * from tensors order by "{sort}" {direction} nulls last limit {top}'  # noqa: S608 - a column checked above
        result = query(view, sql)
    else:
        result = query(view, sql, facts_tables(Path(dump)))
    if json or output is Format.JSON:
        print_json(result.to_pylist())
    elif output is Format.CSV:
        print_csv(result.to_pylist(), result.column_names)
    else:
        if sorted_by is not None:
            result = query(result, _SHOWN_VIEW).select([*SHOWN, *(() if sorted_by in SHOWN else (sorted_by,))])
        _print_table(result)
        recorded = analysis.statistics_table.rows["state"] == RECORDED
        if recorded.any():
            text = (
                f"{count(int(recorded.sum()), 'tensor')} of the dump with recorded statistics only: – is not recorded"
            )
            console().print(f"[dim]{text}[/]")
        print_problems(analysis.problems)
    if not inspected.tensors:
        console(stderr=True).print(f"[red]There are no statistics:[/] {without_text(inspected)}.")
        raise typer.Exit(WRONG_INPUT)


def _print_table(result: pa.Table) -> None:
    from rich.markup import escape

    names = result.column_names
    right = [
        name for name in names if str(result.schema.field(name).type).startswith(("int", "uint", "double", "float"))
    ]
    rows = table(*names, right=right)
    for row in result.select(names).to_pylist():
        rows.add_row(*(escape(_cell(row[name])) for name in names))
    out = console()
    out.print(rows)
    out.print(count(result.num_rows, "row"))


def _cell(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(str, value))}]"
    return number(value) if value is None or isinstance(value, (int, float)) else str(value)
