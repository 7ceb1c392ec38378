"""`tensight check` of a run whose ranks watched themselves: what they have seen, each thing once with its ranks."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from tensight.cli.exit_codes import FOUND
from tensight.cli.output import (
    Format,
    console,
    count,
    number,
    print_csv,
    print_json,
    ranks_progress,
    table,
    values_text,
)
from tensight.ranks import ranks_text

if TYPE_CHECKING:
    from collections.abc import Collection

    from rich.console import Console

    from tensight.runs.watched_ranks import SharedHit, WatchedRun
    from tensight.sessions.records import FindingRecord
    from tensight.watchpoints import Watchpoint

CSV_COLUMNS = (
    "step", "rank", "ranks", "node", "type", "slot", "io", "watchpoint", "condition", "severity", "is_new", "actual",
    "values", "source",
)  # fmt: skip
_MOST_PROBLEMS = 8


def check_watched_run(
    folder: str,
    ranks: Collection[int] | None,
    output: Format,
    limit: int,
    *,
    advise: bool,
    quiet: bool,
    engine: str | None,
) -> int:
    """Print what the ranks of a run have seen, and return the exit code.

    Parameters
    ----------
    folder : str
    ranks : collection of int, optional
        Those to read; all by default.
    output : Format
    limit : int
        Rows for each watchpoint in the table.
    advise : bool
        Whether to print what to do next.
    quiet : bool
        Whether to show no progress.
    engine : str, optional
        Where ranks are read, see `tensight.runs.engines.engine_named`.
    """
    from tensight.runs.watched_ranks import read_watched_run

    with ranks_progress(quiet=quiet) as show:
        run = read_watched_run(Path(folder), ranks, engine=engine, progress=show)
    if output is Format.JSON:
        print_json(_run_data(folder, run))
    elif output is Format.CSV:
        print_csv(map(_row, run.hits), CSV_COLUMNS)
    else:
        _print_run(console(), run, limit, advise=advise)
    if output is not Format.JSON and run.problems:
        out = console(stderr=True)
        out.print(f"[yellow]{count(len(run.problems), 'problem')} with the files of this run; the rest was read:[/]")
        for problem in run.problems[:_MOST_PROBLEMS]:
            out.print(f"  • {problem}", markup=False)
    return FOUND if run.hits or run.findings else 0


def _print_run(out: Console, run: WatchedRun, limit: int, *, advise: bool) -> None:
    _print_ranks(out, run)
    by_watchpoint: dict[Watchpoint, list[SharedHit]] = {}
    for shared in run.hits:
        by_watchpoint.setdefault(shared.watchpoint, []).append(shared)
    # What came first is most likely the cause of the others.
    for watchpoint, hits in by_watchpoint.items():
        _print_watchpoint(out, run, watchpoint, hits, limit, advise=advise)
    without = sum(watchpoint not in by_watchpoint for watchpoint in run.watchpoints)
    if without:
        out.print(f"[green]✓[/] {count(without, 'watchpoint')} without a hit on any rank")
    if run.findings:
        out.print()
    _print_findings(out, run)
    if run.left_out:
        out.print(f"[yellow]? {count(run.left_out, 'more distinct hit or finding')} left out[/]")
    for step, ranks in sorted(run.kept.items()):
        text = ranks_text(ranks, run.ranks)
        out.print(f"The steps recorded up to step {step} are kept {text}; `tensight origin` and `show` open them.")


def _print_ranks(out: Console, run: WatchedRun) -> None:
    """Print which ranks there are, how far they have come, and which have not ended."""
    last_steps = sorted(set(run.steps.values()))
    steps = count(last_steps[-1], "step")
    if len(last_steps) > 1:
        steps = f"{last_steps[0]:,} to {steps}"
    out.print(f"[bold]{count(len(run.steps), 'rank')}[/], {steps}")
    silent = run.silent
    if silent and len(silent) < len(run.ranks):
        out.print(f"[yellow]? Nothing was left {ranks_text(silent, range(run.world_size))}[/]")
    elif silent:
        out.print(f"[yellow]? Files were left only {ranks_text(run.ranks, range(run.world_size))}[/]")
    if run.not_over:
        steps_of = [run.steps[rank] for rank in run.not_over]
        where = f"step {max(steps_of):,} is the last that was noted" if max(steps_of) else "no step was noted"
        out.print(f"[yellow]? Not ended by itself {ranks_text(run.not_over, run.ranks)}: {where}[/]")
    if run.restarted:
        out.print(f"[yellow]? Started more than once {ranks_text(run.restarted, run.ranks)}[/]")
    out.print()


def _print_watchpoint(
    out: Console, run: WatchedRun, watchpoint: Watchpoint, hits: list[SharedHit], limit: int, *, advise: bool
) -> None:
    from rich.markup import escape

    from tensight.watchpoints import Severity, advice, describe

    colour = "red" if watchpoint.severity is Severity.ERROR else "yellow"
    amount, tensors = run.counts.get(watchpoint, (0, 0))
    tensors = max(tensors, len(hits))
    counts = f"{count(tensors, 'tensor')}, {count(max(amount, len(hits)), 'hit')} on {_ranks_with_hits(hits, run)}"
    out.print(
        f"[bold {colour}]● {escape(watchpoint.text)}[/] on {escape(str(watchpoint.selection))}: [bold]{counts}[/]"
    )
    meaning = advice(watchpoint.check.condition.id)
    out.print(f"  {escape(meaning.summary)} [dim]({escape(describe(watchpoint.check))})[/]")
    for step in meaning.steps if advise else ():
        out.print(f"  • {escape(step)}")
    causes = [shared for shared in hits if shared.is_cause] or hits
    rows = table("first at", "node", "slot", "actual", "values", "ranks", right=("slot",))
    for shared in causes[:limit]:
        rows.add_row(*map(escape, _cells(shared, run)))
    out.print(rows)
    if len(causes) > limit:
        out.print(f"  [dim]… {count(len(causes) - limit, 'more tensor')} (--limit, or --format json)[/]")
    if tensors > len(causes):
        follow = count(tensors - len(causes), "other tensor")
        out.print(f"  [dim]{follow} later, computed from these or received from another rank (--format json)[/]")
    source = next((shared.hit.source for shared in hits if shared.hit.source is not None), None)
    if source is not None:
        out.print(f"  [bold cyan]{escape(source.file)}:{source.line}[/]")
        out.print(f"  [bold]→ {escape(source.code.strip())}[/]")
    out.print()


def _ranks_with_hits(hits: list[SharedHit], run: WatchedRun) -> str:
    ranks = {rank for shared in hits for rank in shared.ranks}
    return ranks_text(ranks, run.ranks).removeprefix("on ")


def _cells(shared: SharedHit, run: WatchedRun) -> tuple[str, ...]:
    hit = shared.hit
    slot = str(hit.slot) if hit.io == "output" else f"input {hit.slot}"
    actual = ", ".join(number(hit.actual[name]) for name in hit.parameters_hit if name in hit.actual)
    ranks = ranks_text(shared.ranks, run.ranks)
    if len(shared.steps) > 1:
        first, last = min(shared.steps), max(shared.steps)
        ranks += f"; at first {ranks_text(shared.steps[first], run.ranks)}, by step {last} on all of these"
    return f"step {hit.step}", hit.node, slot, actual or "–", values_text(hit.values), ranks


def _print_findings(out: Console, run: WatchedRun) -> None:
    from tensight.cli.diagnosis.text import print_finding

    for shared, record in zip(run.findings, _finding_records(run), strict=True):
        out.print(f"[bold]{ranks_text(shared.ranks, run.ranks).capitalize()}:[/]")
        print_finding(out, record)


def _finding_records(run: WatchedRun) -> tuple[FindingRecord, ...]:
    from tensight.diagnosis.catalogue import Diagnosis
    from tensight.sessions.diagnosis import diagnosis_record

    explained = [shared.explained for shared in run.findings]
    return diagnosis_record(Diagnosis(explained, {}, max(run.steps.values()), [], run.rules)).findings


def _row(shared: SharedHit) -> dict[str, object]:
    hit, watchpoint = shared.hit, shared.watchpoint
    return {
        "step": hit.step,
        "rank": shared.rank,
        "ranks": " ".join(map(str, shared.ranks)),
        "node": hit.node,
        "type": hit.type,
        "slot": hit.slot,
        "io": hit.io,
        "watchpoint": watchpoint.name or watchpoint.id,
        "condition": watchpoint.text,
        "severity": watchpoint.severity.value,
        "is_new": bool(shared.new),
        "actual": " ".join(f"{name}={hit.actual[name]}" for name in hit.parameters_hit if name in hit.actual),
        "values": values_text(hit.values),
        "source": "" if hit.source is None else f"{hit.source.file}:{hit.source.line}",
    }


def _run_data(folder: str, run: WatchedRun) -> dict[str, object]:
    return {
        "run": folder,
        "ranks": len(run.steps),
        "world_size": run.world_size,
        "silent": run.silent,
        "not_over": run.not_over,
        "restarted": run.restarted,
        "steps": {"least": min(run.steps.values()), "most": max(run.steps.values())},
        "kept": {str(step): ranks for step, ranks in sorted(run.kept.items())},
        "hits": [_hit_data(shared) for shared in run.hits],
        "findings": [
            {"ranks": shared.ranks, **record.model_dump(mode="json")}
            for shared, record in zip(run.findings, _finding_records(run), strict=True)
        ],
        "left_out": run.left_out,
        "problems": run.problems,
    }


def _hit_data(shared: SharedHit) -> dict[str, object]:
    return {
        **asdict(shared.hit),
        "watchpoint": shared.watchpoint.name or shared.watchpoint.id,
        "check": shared.watchpoint.text,
        "selection": str(shared.watchpoint.selection),
        "severity": shared.watchpoint.severity.value,
        "rank": shared.rank,
        "ranks": shared.ranks,
        "steps": {str(step): ranks for step, ranks in sorted(shared.steps.items())},
        "new": shared.new,
    }
