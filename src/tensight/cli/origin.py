"""`tensight origin`: the operator and the line where an anomaly began."""

from __future__ import annotations

import linecache
import os
from collections.abc import Sequence
from dataclasses import asdict
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tensight.cli.exit_codes import WRONG_INPUT
from tensight.cli.opening import numbers, open_run
from tensight.cli.options import CacheDir, DumpArgument, Engine, Json, Quiet, Ranks, Threads
from tensight.cli.output import (
    console,
    count,
    coverage_text,
    frame_data,
    frame_text,
    print_json,
    print_problems,
    problem_data,
    run_progress,
    values_text,
    without_text,
)
from tensight.ranks import ranks_text

if TYPE_CHECKING:
    from rich.console import Console

    from tensight.analysis import Anomaly, Coverage
    from tensight.graph import SourceFrame
    from tensight.runs.origins import OriginGroup, RunOrigins
    from tensight.sessions.records import Frame

CONTEXT_LINES = 2

_UNSEEN = "targets or another tensor without gradients, or a number"
"""Description of inputs that no node produces."""


class Kind(str, Enum):
    """The anomalies to look for; `tensight.analysis.Anomaly`, without importing it for ``--help``."""

    NAN = "nan"
    INF = "inf"
    OVERFLOW = "overflow"
    EXPLOSION = "explosion"
    ALL_ZERO = "all_zero"


def origin(
    dump: DumpArgument,
    kind: Annotated[list[Kind] | None, typer.Option("--kind", help="Only this kind of anomaly. Repeatable.")] = None,
    ranks: Ranks = None,
    explosion_limit: Annotated[
        float,
        typer.Option("--explosion-limit", metavar="X", help="Finite values above this magnitude are an explosion."),
    ] = 1e6,
    source_root: Annotated[
        str | None, typer.Option("--source-root", metavar="DIR", help="Where the scripts are, if not where they ran.")
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
    cache_dir: CacheDir = None,
    threads: Threads = None,
    engine: Engine = None,
) -> None:
    """Name the operator and the line of code where NaN, Inf, an explosion or all-zero values began."""
    from tensight.analysis import Anomaly
    from tensight.runs.origins import RunOrigins

    run = open_run(dump, cache_dir, threads, engine)
    kinds, chosen = None if kind is None else [Anomaly(each.value) for each in kind], numbers(ranks, "--ranks")
    with run_progress(run, quiet=quiet):
        searched = RunOrigins(run, kinds, ranks=chosen, explosion_limit=explosion_limit)
    unknown, elsewhere = searched.undecided, searched.unlocated
    if json:
        print_json(origins_data(searched))
    else:
        out = console()
        for group in searched.groups:
            print_origin(out, searched, group, source_root)
        if not searched.groups and searched.inspected.tensors:
            _print_none_found(out, searched.kinds, searched.inspected, is_certain=not (unknown or elsewhere))
        for anomaly, amount in unknown.items():
            out.print(f"[yellow]? {anomaly.words}: what was recorded of {count(amount, 'tensor')} does not tell.[/]")
        for anomaly, amount in elsewhere.items():
            where = f"in {count(amount, 'tensor')} without a node of a graph, so its origin is unknown"
            out.print(f"[yellow]? {anomaly.words} {where}.[/]")
        print_problems(searched.problems)
    if not searched.inspected.tensors:
        advice = "; tensight check needs no graph" if searched.inspected.undecided else ""
        why = without_text(searched.inspected, "belong to no node of a graph")
        console(stderr=True).print(f"[red]No origin was looked for:[/] {why}{advice}.")
        raise typer.Exit(WRONG_INPUT)


def _print_none_found(out: Console, kinds: Sequence[Anomaly], inspected: Coverage, *, is_certain: bool) -> None:
    """Print that none of some kinds of anomalies begins in what was looked at."""
    where = f"in {coverage_text(inspected)}"
    names = [kind.words if kind.value in (Kind.NAN, Kind.INF) else kind.words.lower() for kind in kinds]
    listed = " or ".join(filter(None, (", ".join(names[:-1]), names[-1])))
    if inspected.unreadable:
        where += f"; {count(inspected.unreadable, 'tensor')} could not be read"
    if is_certain and not inspected.unreadable:
        out.print(f"[green]No anomaly found:[/] no {listed} begins {where}.")
    else:
        where = f"no {listed} certainly begins {where}"
        out.print(f"[yellow]No anomaly found in what was recorded, which does not tell everything:[/] {where}.")


def print_origin(out: Console, searched: RunOrigins, group: OriginGroup, source_root: str | None = None) -> None:
    """Print where one anomaly began: the sentence, the values around it, the line of code, and on which ranks."""
    from rich.markup import escape

    from tensight.graph.layer_node import OUTSIDE

    origin = group.origin
    ranks = ""
    if len(searched.run.ranks) > 1:
        ranks = f" – {ranks_text(group.ranks, searched.ranks_with(origin))}"
    colour = "yellow" if origin.anomaly.value == Kind.ALL_ZERO.value or origin.is_left_out else "red"
    out.print(f"[bold {colour}]● {escape(origin.sentence)}[/]{ranks}")
    for entry in origin.inputs:
        clean = entry.state.value == "clean"
        # The state is "not dumped", which is wrong for a recording.
        unknown = "not known" if entry.state.value == "not dumped" else entry.state.value
        mark = f"[green]✓ {origin.anomaly.absent}[/]" if clean else f"[yellow]? {unknown}[/]"
        values = f"  {values_text(group.values[entry.row])}" if entry.row >= 0 else ""
        source = _UNSEEN if entry.source == OUTSIDE else entry.source
        out.print(f"    input {entry.index}  {mark}  {escape(source)}[dim]{escape(values)}[/]")
    out.print(f"    output {origin.address.slot}  [bold]{escape(values_text(group.values[origin.row]))}[/]")
    if origin.candidates:
        out.print("    [yellow]It may have begun in any of:[/]")
        for name in origin.candidates:
            out.print(f"      {escape(name)}")
    if origin.user_frame is not None:
        print_source(out, origin.user_frame, source_root)
    elif not origin.arrived:
        out.print("    [dim]The framework made this operator; it has no line of code.[/]")
    if origin.also:
        others = f"{count(len(origin.also), 'more place')}: {', '.join(origin.also[:3])}"
        out.print(f"    [dim]It also began, from inputs without it, in {escape(others)}[/]")
    out.print()


def print_source(out: Console, frame: SourceFrame | Frame, source_root: str | None = None) -> None:
    """Print lines of code with their context if the file can be read, else the line recorded in the dump."""
    from rich.markup import escape

    out.print(f"    [bold cyan]{escape(frame_text(frame))}[/]")
    lines = _source_lines(frame, source_root)
    if frame.line is None or not lines:
        out.print(f"    [bold]→ {escape(frame.code.strip())}[/]")
        if source_root:
            name = os.path.basename(frame.file)
            out.print(f"    [yellow]{escape(name)} with this line is not in {escape(source_root)}.[/]")
        return
    last = max(frame.end_line or frame.line, frame.line)
    for line in range(max(1, frame.line - CONTEXT_LINES), min(len(lines), last + CONTEXT_LINES) + 1):
        text = escape(lines[line - 1].rstrip())
        is_meant = frame.line <= line <= last
        out.print(f"    [bold]→ {line:4d}  {text}[/]" if is_meant else f"    [dim]  {line:4d}  {text}[/]")


def _source_lines(frame: SourceFrame | Frame, source_root: str | None) -> list[str]:
    """Return the lines of the first file that contains the frame's line: below `source_root`, or at its own path."""
    written = Path(frame.file)
    parts = written.relative_to(written.anchor).parts
    below = [os.path.join(source_root, *parts[start:]) for start in range(len(parts))] if source_root else []
    for path in (*below, frame.file):
        lines = linecache.getlines(path) if os.path.isfile(path) else []
        if frame.line is not None and frame.line <= len(lines) and frame.code.strip() in lines[frame.line - 1]:
            return lines
    return []


def origins_data(searched: RunOrigins) -> dict[str, object]:
    """Return origins as JSON data."""
    from tensight.graph import step_of

    return {
        "dump": searched.run.path,
        "origins": [
            {
                "anomaly": entry.anomaly.value,
                "address": str(entry.address),
                "rank": entry.address.rank,
                "graph": entry.address.graph,
                "node": entry.address.node,
                "operator": entry.operator,
                "op_type": entry.op_type,
                "step": entry.address.step,
                "certain": entry.certain,
                "arrived": entry.arrived,
                "unseen": None if entry.unseen is None else [step_of(iteration) for iteration in entry.unseen],
                "is_older": entry.is_older,
                "candidates": list(entry.candidates),
                "inputs": [
                    {"index": item.index, "source": item.source, "state": item.state.value} for item in entry.inputs
                ],
                "also": list(entry.also),
                "source": frame_data(entry.user_frame) if entry.user_frame is not None else None,
                "stack": [frame_data(frame) for frame in entry.frames],
                "sentence": entry.sentence,
            }
            for entry in searched.origins
        ],
        "inspected": asdict(searched.inspected),
        "not_recorded": {anomaly.value: amount for anomaly, amount in searched.undecided.items()},
        "without_node": {anomaly.value: amount for anomaly, amount in searched.unlocated.items()},
        "problems": problem_data(searched.problems),
    }
