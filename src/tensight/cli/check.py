"""`tensight check`: watchpoints over all tensors of a dump."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tensight.cli.exit_codes import FOUND, WRONG_INPUT
from tensight.cli.opening import numbers, open_run
from tensight.cli.options import CacheDir, DumpArgument, Engine, Json, Quiet, Ranks, Steps, Threads
from tensight.cli.output import (
    Format,
    console,
    count,
    coverage_text,
    frame_data,
    frame_text,
    number,
    print_csv,
    print_json,
    print_problems,
    problem_data,
    run_progress,
    spans,
    table,
    unwritten_text,
    values_text,
    without_text,
)
from tensight.cli.watched_ranks import check_watched_run
from tensight.errors import InputError
from tensight.ranks import ranks_text

if TYPE_CHECKING:
    from rich.console import Console

    from tensight.analysis import Coverage
    from tensight.runs.checking import RunCheck, WatchpointResult
    from tensight.runs.hits import TensorHits
    from tensight.watchpoints import Watchpoint

CSV_COLUMNS = (
    "rank", "step", "graph", "node", "slot", "io", "watchpoint", "condition", "severity", "parameter", "threshold",
    "actual", "non_finite", "source",
)  # fmt: skip


def check(
    dump: DumpArgument,
    recommended: Annotated[
        bool, typer.Option("--recommended", help="The recommended watchpoints (default without --watch).")
    ] = False,
    watch: Annotated[
        list[str] | None,
        typer.Option(
            "--watch",
            metavar="CONDITION",
            help='A condition, such as "tensor_too_large(max_gt=1e3)", "TO persist=3". Repeatable.',
        ),
    ] = None,
    on: Annotated[
        list[str] | None,
        typer.Option(
            "--on", metavar="REGEX", help="Nodes for the --watch at the same place. Default: what the condition is for."
        ),
    ] = None,
    ranks: Ranks = None,
    steps: Steps = None,
    output: Annotated[Format, typer.Option("--format", help="How to print the hits.")] = Format.TABLE,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Rows for each watchpoint in the table.")] = 5,
    advise: Annotated[bool, typer.Option("--advice", help="What to do next, for each watchpoint that hits.")] = False,
    json: Json = False,
    quiet: Quiet = False,
    cache_dir: CacheDir = None,
    threads: Threads = None,
    engine: Engine = None,
) -> None:
    """Check watchpoints on every tensor; exit code 1 when something hits. See also: check checkpoint."""
    from tensight.runs.checking import RunCheck
    from tensight.runs.watched_ranks import is_watched_run

    if is_watched_run(dump) and not (recommended or watch or steps):
        shown = Format.JSON if json else output
        some_ranks = numbers(ranks, "--ranks")
        raise typer.Exit(check_watched_run(dump, some_ranks, shown, limit, advise=advise, quiet=quiet, engine=engine))
    run = open_run(dump, cache_dir, threads, engine)
    is_wanted, by_agent = recommended or not watch, run.dump.metadata.by_agent
    points = watchpoints_from(watch or [], on or [], recommended=is_wanted, live=by_agent)
    with run_progress(run, quiet=quiet):
        checked = RunCheck(run, points, ranks=numbers(ranks, "--ranks"), steps=numbers(steps, "--steps"))
    if json or output is Format.JSON:
        print_json(results_data(checked))
    elif output is Format.CSV:
        rows = (row for result in checked.results for hit in checked.hits(result) for row in csv_rows(result, hit))
        print_csv(rows, CSV_COLUMNS)
        print_problems(checked.problems)
    else:
        print_results(checked, limit, steps=advise)
        if checked.unwritten:
            console().print(f"[dim]{unwritten_text(checked.unwritten)}[/]")
        print_problems(checked.problems)
    if any(result.hits for result in checked.results):
        raise typer.Exit(FOUND)
    if not checked.inspected.tensors:
        console(stderr=True).print(f"[red]Nothing was checked:[/] {without_text(checked.inspected)}.")
        raise typer.Exit(WRONG_INPUT)


def watchpoints_from(
    watch: Sequence[str], on: Sequence[str], *, recommended: bool, live: bool = False
) -> list[Watchpoint]:
    """Return the watchpoints that the options select.

    Parameters
    ----------
    watch, on : sequence of str
        The options.
    recommended : bool
        Whether to include the recommended watchpoints.
    live : bool
        Use the recommended watchpoints for trainings with Tensight's agent, as recordings are.

    Raises
    ------
    InputError
        If a condition cannot be read, or there are more --on than --watch.
    """
    from tensight.analysis import natural_selector
    from tensight.watchpoints import Selector, SelectorKind, Watchpoint, parse_watch, recommended_watchpoints

    if len(on) > len(watch):
        raise InputError(f"--on is given {len(on)} times, --watch {len(watch)} times; each --on belongs to one --watch")
    points = list(recommended_watchpoints(live=live, initial=live)) if recommended else []
    for number_, text in enumerate(watch):
        parsed, persistence = parse_watch(text)
        selector = Selector(SelectorKind.NAME, on[number_]) if number_ < len(on) else natural_selector(parsed)
        points.append(Watchpoint(len(points) + 1, "", parsed, selector, persistence=persistence))
    return points


def print_results(checked: RunCheck, limit: int, *, steps: bool = False) -> None:
    """Print hits as text: watchpoints by severity with a few tensors each, then the number without hits."""
    from rich.markup import escape

    from tensight.watchpoints import SelectorKind, Severity, advice, describe

    out = console()
    with_hits = [result for result in checked.results if result.hits]
    for result in sorted(with_hits, key=lambda result: result.watchpoint.severity is not Severity.ERROR):
        point = result.watchpoint
        colour = "red" if point.severity is Severity.ERROR else "yellow"
        amount = f"{count(result.hit_tensors, 'tensor')}, {count(result.hits, 'hit')}"
        where = escape(str(point.selection))
        out.print(f"[bold {colour}]● {escape(point.text)}[/] on {where}: [bold]{amount}[/]")
        meaning = advice(point.check.condition.id)
        out.print(f"  {escape(meaning.summary)} [dim]({escape(describe(point.check))})[/]")
        for step in meaning.steps if steps else ():
            out.print(f"  • {escape(step)}")
        # Nodes in several graphs can have the same name.
        graph = ("graph",) if checked.has_graphs else ()
        ranks = ("ranks",) if len(checked.run.ranks) > 1 else ()
        rows = table("steps", *graph, "node", "slot", "actual", "values", *ranks, right=("steps", "slot"))
        for hits in checked.tensor_hits(result, limit):
            rows.add_row(*map(escape, _cells(checked, hits)))
        out.print(rows)
        if result.hit_tensors > limit:
            out.print(f"  [dim]… {count(result.hit_tensors - limit, 'more tensor')} (--limit, or --format json)[/]")
            out.print()
    without_hits = sum(1 for result in checked.results if result.checked and not result.hits)
    if without_hits:
        out.print(f"[green]✓[/] {count(without_hits, 'watchpoint')} without a hit")
    without_tensors = sum(1 for result in checked.results if not result.checked and not result.hits)
    if without_tensors:
        out.print(f"[dim]– {count(without_tensors, 'watchpoint')} had no tensors that could be checked[/]")
    if without_hits and not with_hits:
        _print_nothing_hit(out, checked.inspected)
    _print_not_decided(out, checked.results)
    for result in checked.results:
        if not result.tensors and result.watchpoint.selection.kind is SelectorKind.NAME:
            named = escape(repr(result.watchpoint.selection.argument))
            out.print(f"[yellow]? {escape(result.watchpoint.text)} looked at nothing: no tensor's node has {named}[/]")


def _print_nothing_hit(out: Console, inspected: Coverage) -> None:
    """Print that nothing hit, and in what."""
    if inspected.unreadable:
        out.print(f"[yellow]Nothing hit in what could be read:[/] {coverage_text(inspected)}")
        out.print(f"[yellow]? {count(inspected.unreadable, 'tensor')} could not be read.[/]")
    else:
        out.print(f"[green]Nothing hit[/] in {coverage_text(inspected)}.")


def _print_not_decided(out: Console, results: Sequence[WatchpointResult]) -> None:
    """Print which watchpoints could not be decided for which number of tensors, and why."""
    from rich.markup import escape

    from tensight.watchpoints import Status

    reasons = {
        Status.NOT_RECORDED: "Not decided by the statistics that were recorded:",
        Status.NOT_FINITE: "Not checked, because no element is finite:",
        Status.DIFFERENT_SIZE: "Not checked, because the step before has another number of elements:",
    }
    for status, reason in reasons.items():
        amounts = [(result, result.not_checked.get(status, 0)) for result in results]
        if any(amount for _, amount in amounts):
            out.print(f"[yellow]? {reason}[/]")
        for result, amount in amounts:
            if amount:
                out.print(f"    {escape(result.watchpoint.text)}: {amount:,} of {count(result.tensors, 'tensor')}")


def _cells(checked: RunCheck, hits: TensorHits) -> tuple[str, ...]:
    first = hits.first
    slot = str(first["slot"]) if first["io"] == "output" else f"input {first['slot']}"
    # Recorded bounds can decide a check without the exact value.
    values = (first["actual"][name] for name in first["parameters_hit"])
    actual = ", ".join(number(value) for value in values if not math.isnan(value))
    graph = (first["graph"],) if checked.has_graphs else ()
    cells = (spans(list(hits.steps)), *graph, node_name(first["node"], first["op_name"]), slot, actual or "–")
    ranks: tuple[str, ...] = ()
    if len(checked.run.ranks) > 1:
        ranks = (ranks_text(hits.ranks, checked.ranks_with(hits)),)
    return (*cells, values_text(first), *ranks)


def node_name(node: str | None, op_name: str) -> str:
    """Return the node of a tensor, or the operator name in its file if no node matched."""
    return node if node is not None else f"{op_name} (no node)"


def results_data(checked: RunCheck) -> dict[str, object]:
    """Return results as JSON data; hits are read while they are printed."""
    return {
        "dump": checked.run.path,
        "inspected": asdict(checked.inspected),
        "hits": sum(result.hits for result in checked.results),
        "watchpoints": [
            {
                "id": result.watchpoint.id,
                "name": result.watchpoint.name,
                "check": result.watchpoint.text,
                "selection": str(result.watchpoint.selection),
                "severity": result.watchpoint.severity.value,
                "tensors": result.tensors,
                "checked": result.checked,
                "not_checked": {status.name.lower(): amount for status, amount in result.not_checked.items()},
                "hits": (hit_data(hit) for hit in checked.hits(result)),
            }
            for result in checked.results
        ],
        "problems": problem_data(checked.problems),
        "unwritten": checked.unwritten,
    }


def hit_data(hit: Mapping[str, Any]) -> dict[str, object]:
    """Return one hit as JSON data."""
    from tensight.graph import TensorAddress, iteration_of
    from tensight.watchpoints import error_words

    where = (hit["rank"], hit["graph"], hit["node"], hit["slot"], iteration_of(hit["step"]), hit["io"])
    return {
        "address": None if hit["node"] is None else str(TensorAddress(*where)),
        "rank": hit["rank"],
        "graph": hit["graph"],
        "node": hit["node"],
        "op_name": hit["op_name"],
        "io": hit["io"],
        "slot": hit["slot"],
        "step": hit["step"],
        "actual": hit["actual"],
        "parameters_hit": list(hit["parameters_hit"]),
        "error_code": hit["error_code"],
        "notes": list(error_words(hit["error_code"])),
        "source": None if hit["source"] is None else frame_data(hit["source"]),
        "file": hit["file"],
    }


def csv_rows(result: WatchpointResult, hit: Mapping[str, Any]) -> list[dict[str, object]]:
    """Return one hit as CSV rows, one for each parameter that hit."""
    from tensight.watchpoints import error_words

    point = result.watchpoint
    values = point.check.values
    row: dict[str, object] = {
        "rank": hit["rank"],
        "step": hit["step"],
        "graph": hit["graph"],
        "node": node_name(hit["node"], hit["op_name"]),
        "slot": hit["slot"],
        "io": hit["io"],
        "watchpoint": point.name or point.id,
        "condition": point.check.text,
        "severity": point.severity.value,
        "non_finite": " ".join(error_words(hit["error_code"])),
        "source": "" if hit["source"] is None else frame_text(hit["source"]),
    }
    return [
        row | {"parameter": name, "threshold": values.get(name), "actual": hit["actual"].get(name)}
        for name in hit["parameters_hit"] or ("",)
    ]
