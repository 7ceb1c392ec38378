"""`tensight stats`: the statistics table of a dump, sorted, filtered, or asked with SQL."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tensight.cli.exit_codes import WRONG_INPUT
from tensight.cli.opening import open_run
from tensight.cli.options import CacheDir, DumpArgument, Engine, Json, Quiet, Threads
from tensight.cli.output import (
    Format,
    console,
    count,
    number,
    print_csv,
    print_json,
    print_problems,
    run_progress,
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
_VIEW_WITH_ROW = """
    select *, 100.0 * zero_count / nullif(count, 0) as zeros_percent,
           nan_count + neg_inf_count + pos_inf_count as non_finite
    from stored where {where}
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
    engine: Engine = None,
) -> None:
    """Show the statistics of all tensors: the largest, those with most zeros, or whatever a query asks."""
    from tensight.analysis import query
    from tensight.analysis.facts_tables import facts_tables
    from tensight.runs.statistics import RunStatistics

    run = open_run(dump, cache_dir, threads, engine)
    with run_progress(run, quiet=quiet):
        statistics = RunStatistics(run)
    sorted_by = sort if sql is None else None
    with_row = _VIEW_WITH_ROW.format(where=statistics.where)
    view = f'select * exclude ("row") from ({with_row})'  # noqa: S608 - numbers
    if sql is None:
        columns = query(statistics.table, "select * from tensors limit 0", view=view).column_names
        if sort not in columns:
            raise InputError(f"--sort {sort!r}: there is no such column; there are {', '.join(columns)}")
        order = f'"{sort}" {"asc" if ascending else "desc"} nulls last, rank, "row"'
        largest = f'select * exclude ("row") from tensors order by {order} limit {top}'  # noqa: S608 - a column checked above
        result = query(statistics.table, largest, view=with_row)
    else:
        result = query(statistics.table, sql, facts_tables(Path(dump)), view=view)
    if json or output is Format.JSON:
        print_json(result.to_pylist())
    elif output is Format.CSV:
        print_csv(result.to_pylist(), result.column_names)
    else:
        if sorted_by is not None:
            rank = ("rank",) if len(run.ranks) > 1 else ()
            shown = dict.fromkeys((*rank, *SHOWN, sorted_by))
            result = query(result, _SHOWN_VIEW).select(list(shown))
        _print_table(result)
        if statistics.recorded:
            text = (
                f"{count(statistics.recorded, 'tensor')} of the dump with recorded statistics only: – is not recorded"
            )
            console().print(f"[dim]{text}[/]")
        print_problems(statistics.problems)
    if not statistics.inspected.tensors:
        console(stderr=True).print(f"[red]There are no statistics:[/] {without_text(statistics.inspected)}.")
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
