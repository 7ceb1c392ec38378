"""`tensight check`: watchpoints over all tensors of a dump."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from tensight.cli.exit_codes import FOUND, WRONG_INPUT
from tensight.cli.opening import iterations, numbers, open_analysis
from tensight.cli.options import CacheDir, DumpArgument, Json, Quiet, Ranks, Steps, Threads
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
    progress,
    spans,
    table,
    unwritten_text,
    values_text,
    without_text,
)
from tensight.cli.watched_ranks import check_watched_run
from tensight.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from tensight.analysis import Analysis, CheckResult, Coverage
    from tensight.dumps import TensorFile
    from tensight.graph import SourceFrame
    from tensight.watchpoints import Hit, Watchpoint

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
) -> None:
    """Check watchpoints on every tensor; exit code 1 when something hits. See also: check checkpoint."""
    from tensight import analysis as engine
    from tensight.analysis.watched_ranks import is_watched_run

    if is_watched_run(dump) and not (recommended or watch or steps):
        shown = Format.JSON if json else output
        raise typer.Exit(check_watched_run(dump, numbers(ranks, "--ranks"), shown, limit, advise=advise))
    analysis = open_analysis(dump, cache_dir, threads)
    is_wanted, by_agent = recommended or not watch, analysis.dump.metadata.by_agent
    points = watchpoints_from(watch or [], on or [], recommended=is_wanted, live=by_agent)
    some_ranks, some_steps = numbers(ranks, "--ranks"), numbers(steps, "--steps")
    with progress(analysis, quiet=quiet):
        results = engine.check(analysis, points, ranks=some_ranks, steps=some_steps)
    unwritten = len(analysis.dump.unwritten_tensors(ranks=some_ranks, iterations=iterations(steps)))
    if json or output is Format.JSON:
        print_json({**results_data(analysis, results), "unwritten": unwritten})
    elif output is Format.CSV:
        print_csv((row for result in results for hit in result.hits for row in csv_rows(analysis, hit)), CSV_COLUMNS)
        print_problems(analysis.problems)
    else:
        print_results(analysis, results, limit, steps=advise)
        if unwritten:
            console().print(f"[dim]{unwritten_text(unwritten)}[/]")
        print_problems(analysis.problems)
    if any(result.hits for result in results):
        raise typer.Exit(FOUND)
    inspected = engine.coverage_of(analysis, results)
    if not inspected.tensors:
        console(stderr=True).print(f"[red]Nothing was checked:[/] {without_text(inspected)}.")
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


def print_results(analysis: Analysis, results: Sequence[CheckResult], limit: int, *, steps: bool = False) -> None:
    """Print hits as text: watchpoints by severity with a few tensors each, then the number without hits."""
    from rich.markup import escape

    from tensight.analysis import coverage_of
    from tensight.watchpoints import SelectorKind, Severity, advice, describe

    out = console()
    with_hits = [result for result in results if result.hits]
    dump = analysis.dump
    # Nodes in several graphs can have the same name.
    has_graphs = any(len(dump.graphs(rank)) > 1 for rank in dump.ranks)
    for result in sorted(with_hits, key=lambda result: result.watchpoint.severity is not Severity.ERROR):
        point = result.watchpoint
        colour = "red" if point.severity is Severity.ERROR else "yellow"
        groups = _by_tensor(result.hits)
        amount = f"{count(len(groups), 'tensor')}, {count(len(result.hits), 'hit')}"
        where = escape(str(point.selection))
        out.print(f"[bold {colour}]● {escape(point.text)}[/] on {where}: [bold]{amount}[/]")
        meaning = advice(point.check.condition.id)
        out.print(f"  {escape(meaning.summary)} [dim]({escape(describe(point.check))})[/]")
        for step in meaning.steps if steps else ():
            out.print(f"  • {escape(step)}")
        graph = ("graph",) if has_graphs else ()
        rows = table("steps", *graph, "node", "slot", "actual", "values", right=("steps", "slot"))
        for hits in groups[:limit]:
            steps_of_hits, *others = _cells(analysis, hits)
            cells = (steps_of_hits, *((hits[0].tensor.graph,) if has_graphs else ()), *others)
            rows.add_row(*map(escape, cells))
        out.print(rows)
        if len(groups) > limit:
            out.print(f"  [dim]… {count(len(groups) - limit, 'more tensor')} (--limit, or --format json)[/]")
            out.print()
    without_hits = sum(1 for result in results if result.checked and not result.hits)
    if without_hits:
        out.print(f"[green]✓[/] {count(without_hits, 'watchpoint')} without a hit")
    without_tensors = sum(1 for result in results if not result.checked and not result.hits)
    if without_tensors:
        out.print(f"[dim]– {count(without_tensors, 'watchpoint')} had no tensors that could be checked[/]")
    if without_hits and not with_hits:
        _print_nothing_hit(out, coverage_of(analysis, results))
    _print_not_decided(out, results)
    for result in results:
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


def _print_not_decided(out: Console, results: Sequence[CheckResult]) -> None:
    """Print which watchpoints could not be decided for which number of tensors, and why."""
    from rich.markup import escape

    from tensight.watchpoints import Status

    reasons = {
        Status.NOT_RECORDED: "Not decided by the statistics that were recorded:",
        Status.NOT_FINITE: "Not checked, because no element is finite:",
        Status.DIFFERENT_SIZE: "Not checked, because the step before has another number of elements:",
    }
    for status, reason in reasons.items():
        amounts = [(result, dict(result.not_checked).get(status, 0)) for result in results]
        if any(amount for _, amount in amounts):
            out.print(f"[yellow]? {reason}[/]")
        for result, amount in amounts:
            if amount:
                out.print(f"    {escape(result.watchpoint.text)}: {amount:,} of {count(result.tensors, 'tensor')}")


def _by_tensor(hits: Sequence[Hit]) -> list[list[Hit]]:
    """Return the hits of each tensor over all steps, sorted by the first step."""
    groups: dict[tuple[object, ...], list[Hit]] = {}
    for hit in hits:
        file: TensorFile = hit.tensor
        groups.setdefault((file.rank, file.graph, node_name(file), file.io, file.slot), []).append(hit)
    return sorted(groups.values(), key=lambda group: group[0].tensor.step)


def _cells(analysis: Analysis, hits: Sequence[Hit]) -> tuple[str, ...]:
    first, file = hits[0], hits[0].tensor
    rank = f"(rank {file.rank}) " if file.rank else ""
    slot = str(file.slot) if file.io == "output" else f"input {file.slot}"
    # Recorded bounds can decide a check without the exact value.
    actual_values = (first.actual[name] for name in first.parameters_hit if not math.isnan(first.actual[name]))
    actual = ", ".join(map(number, actual_values))
    values = values_text(analysis.statistics_table, int(analysis.rows_of([file])[0]))
    return (spans([hit.tensor.step for hit in hits]), rank + node_name(file), slot, actual or "–", values)


def node_name(file: TensorFile) -> str:
    """Return the node of a tensor, or the operator name in its file if no node matched."""
    return file.node if file.node is not None else f"{file.op_name} (no node)"


def user_frame(analysis: Analysis, file: TensorFile) -> SourceFrame | None:
    """Return the line of the user's code that created a tensor's operator."""
    from tensight.graph import user_frame as choose

    graph = analysis.dump.graph_of(file)
    node = graph.get(file.node) if graph is not None and file.node is not None else None
    return choose(node.frames) if node is not None else None


def results_data(analysis: Analysis, results: Sequence[CheckResult]) -> dict[str, object]:
    """Return results as JSON data."""
    from tensight.analysis import coverage_of

    return {
        "dump": analysis.dump.path,
        "inspected": asdict(coverage_of(analysis, results)),
        "hits": sum(len(result.hits) for result in results),
        "watchpoints": [
            {
                "id": result.watchpoint.id,
                "name": result.watchpoint.name,
                "check": result.watchpoint.text,
                "selection": str(result.watchpoint.selection),
                "severity": result.watchpoint.severity.value,
                "tensors": result.tensors,
                "checked": result.checked,
                "not_checked": {status.name.lower(): amount for status, amount in result.not_checked},
                "hits": [hit_data(analysis, hit) for hit in result.hits],
            }
            for result in results
        ],
        "problems": problem_data(analysis.problems),
    }


def hit_data(analysis: Analysis, hit: Hit) -> dict[str, object]:
    """Return one hit as JSON data."""
    file: TensorFile = hit.tensor
    frame = user_frame(analysis, file)
    return {
        "address": str(file.address) if file.address is not None else None,
        "rank": file.rank,
        "graph": file.graph,
        "node": file.node,
        "op_name": file.op_name,
        "io": file.io,
        "slot": file.slot,
        "step": file.step,
        "actual": dict(hit.actual),
        "parameters_hit": list(hit.parameters_hit),
        "error_code": hit.error_code,
        "notes": list(hit.error_words),
        "source": frame_data(frame) if frame is not None else None,
        "file": file.path,
    }


def csv_rows(analysis: Analysis, hit: Hit) -> list[dict[str, object]]:
    """Return one hit as CSV rows, one for each parameter that hit."""
    file: TensorFile = hit.tensor
    frame = user_frame(analysis, file)
    point = hit.watchpoint
    values = point.check.values
    row: dict[str, object] = {
        "rank": file.rank,
        "step": file.step,
        "graph": file.graph,
        "node": node_name(file),
        "slot": file.slot,
        "io": file.io,
        "watchpoint": point.name or point.id,
        "condition": point.check.text,
        "severity": point.severity.value,
        "non_finite": " ".join(hit.error_words),
        "source": frame_text(frame) if frame is not None else "",
    }
    return [
        row | {"parameter": name, "threshold": values.get(name), "actual": hit.actual.get(name)}
        for name in hit.parameters_hit or ("",)
    ]
