"""The output of a search in the terminal: its progress, and its results."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.markup import escape

from tensight.cli.output import console, count, number, table

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

    from tensight.search.configuration import Configuration, Value
    from tensight.search.running import Ended
    from tensight.search.studies import Study
    from tensight.sessions.records import SearchResult, TrialResult

MOST_ROWS = 20
"""Maximum number of trials in the table: the best ones, then the latest without a value."""

_COLOURS = {"complete": "green", "pruned": "yellow", "failed": "red", "running": "cyan", "waiting": "dim"}
_LONGEST_REASON = 500
"""The remedy is at the end of a reason."""


class SearchProgress:
    """Print the result of each trial, with the best value so far and the remaining time.

    Parameters
    ----------
    out : Console or None
        None prints nothing.
    study : Study
    most : int
        Total number of trials.
    jobs : int
        Number of concurrent trials.
    targets : list of str
        Names of the targets.
    """

    def __init__(self, out: Console | None, study: Study, most: int, jobs: int, targets: list[str]) -> None:
        self._out = out
        self._study = study
        self._most = most
        self._jobs = jobs
        self._targets = targets
        self._durations_s: list[float] = []
        self.bar: tuple[Progress, Any] | None = None

    def notify(self, notice: str) -> None:
        """Print a notice for the user."""
        if self._out is not None:
            self._out.print(f"[yellow]{escape(notice)}[/]")

    def ended(self, ended: Ended) -> None:
        """Print the result of a trial."""
        self._durations_s.append(ended.duration_s)
        if self._out is None:
            return
        outcome = ended.outcome
        state = "complete" if outcome.values else "pruned" if outcome.is_pruned else "failed"
        result = values_text(self._targets, outcome.values) or _one_line(outcome.reason)
        done = self._study.ended()
        trial = f"[{_COLOURS[state]}]trial {ended.suggestion.number} {state}[/]: {escape(result)}"
        self._out.print(f"{trial}  [dim]{escape(params_text(ended.suggestion.values))}[/]")
        status = f"{done} of {self._most}; {self._best()}{self._left(done)}"
        if self.bar is None:
            self._out.print(f"  [dim]{escape(status)}[/]")
        else:
            progress, task = self.bar
            progress.update(task, completed=done, description=escape(status))

    def _best(self) -> str:
        best = self._study.best()
        if not best:
            return "none has reached a value yet"
        if len(best) > 1:
            return f"{len(best)} best ones"
        return f"best {values_text(self._targets, tuple(best[0].values))} in trial {best[0].number}"

    def _left(self, done: int) -> str:
        """Return the remaining time, estimated from the median duration of the trials so far."""
        rest = max(self._most - done, 0)
        if not rest or not self._durations_s:
            return ""
        left_s = statistics.median(self._durations_s) * -(-rest // self._jobs)
        return f"; about {duration(left_s)} left"


@contextmanager
def search_progress(
    configuration: Configuration, study: Study, most: int, *, jobs: int, quiet: bool
) -> Iterator[SearchProgress]:
    """Show the progress of a search on stderr: lines, and a bar if stderr is a terminal."""
    names = [target.name for target in configuration.all_targets]
    out = None if quiet else console(stderr=True)
    shown = SearchProgress(out, study, most, jobs, names)
    if out is None or not sys.stderr.isatty():
        yield shown
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (BarColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=out, transient=True) as bars:
        done = study.ended()
        shown.bar = bars, bars.add_task(f"{done} of {most}", total=most, completed=done)
        yield shown


def print_result(result: SearchResult) -> None:
    """Print the best trials, the anomalies, the importance of parameters, and how to run the best trial."""
    out = console()
    names = [target.name for target in result.targets]
    ordered = _in_order(result)
    rows = table("trial", "state", *names, "parameters", "remarks", right=("trial", *names))
    for trial in ordered[:MOST_ROWS]:
        best = "[bold]" if trial.number in result.best else ""
        end = "[/]" if best else ""
        values = [number(value) for value in trial.values] or [""] * len(names)
        state = f"[{_COLOURS[trial.state]}]{trial.state}[/]"
        cells = [escape(params_text(trial.params)), escape(_remark(trial))]
        rows.add_row(f"{best}{trial.number}{end}", state, *[f"{best}{value}{end}" for value in values], *cells)
    out.print(rows)
    if len(ordered) > MOST_ROWS:
        out.print(f"[dim]… {count(len(ordered) - MOST_ROWS, 'more trial')} (--json lists all)[/]\n")
    _print_causes(out, result)
    if result.importance:
        out.print("[bold]What matters[/] [dim](importance, Optuna)[/]")
        for name, share in result.importance.items():
            out.print(f"  {share:6.1%}  {escape(name)}")
        out.print()
    _print_best(out, result)


def _print_causes(out: Console, result: SearchResult) -> None:
    """Print the anomalies for which the debugger ended trials, with their numbers."""
    ill = [trial for trial in result.trials if trial.illness is not None]
    conditions: dict[str, list[TrialResult]] = {}
    for trial in ill:
        assert trial.illness is not None  # noqa: S101 - chosen so
        conditions.setdefault(trial.illness.condition, []).append(trial)
    if not conditions:
        return
    out.print(f"[bold]What fell ill[/] [dim]({count(len(ill), 'trial')} ended by the debugger)[/]")
    for condition, trials in sorted(conditions.items(), key=lambda item: -len(item[1])):
        first = trials[0].illness
        assert first is not None  # noqa: S101 - chosen so
        where = f"{first.node} at step {first.step}" + (f" ({first.line})" if first.line else "")
        out.print(f"  {count(len(trials), 'trial')}: [red]{escape(condition)}[/], first {escape(where)}")
    out.print()


def _print_best(out: Console, result: SearchResult) -> None:
    if not result.best:
        out.print("[yellow]No trial has reached a value.[/]")
        return
    if len(result.best) > 1:
        out.print(f"[bold]None is better in all targets than trials {', '.join(map(str, result.best))}.[/] The first:")
    best = result.trial(result.best[0])
    out.print(f"[bold]Best: trial {best.number}[/]")
    out.print(escape(result.best_yaml), soft_wrap=True)
    out.print(escape(result.best_command), soft_wrap=True)


def _in_order(result: SearchResult) -> list[TrialResult]:
    """Return the trials with a value, the best first, then the others, the newest first."""
    sign = -1 if result.targets[0].goal == "maximize" else 1
    complete = [trial for trial in result.trials if trial.values]
    others = [trial for trial in result.trials if not trial.values]
    return [
        *sorted(complete, key=lambda trial: (trial.number not in result.best, sign * trial.values[0])),
        *reversed(others),
    ]


def _remark(trial: TrialResult) -> str:
    """Return why a trial ended, or the debugger's warnings."""
    if trial.reason:
        return _one_line(trial.reason)
    return ", ".join(dict.fromkeys(warning.condition for warning in trial.warnings))


def _one_line(reason: str) -> str:
    """Return the first line of a reason, and the last one, which in a traceback is the error."""
    lines = reason.splitlines() or [""]
    text = lines[0] if len(lines) == 1 else f"{lines[0].split(':')[0]}: {lines[-1]}"
    return text if len(text) <= _LONGEST_REASON else f"{text[: _LONGEST_REASON - 1]}…"


def values_text(names: list[str], values: tuple[float, ...]) -> str:
    """Return the values of targets with their names."""
    return ", ".join(f"{name} {number(value)}" for name, value in zip(names, values, strict=False))


def params_text(params: dict[str, Value]) -> str:
    """Return parameters in one line."""
    return " ".join(f"{name}={number(v) if type(v) is float else v}" for name, v in params.items())


def duration(time_s: float) -> str:
    """Return a duration as readable text."""
    if time_s < 60:
        return f"{time_s:.0f} s"
    return f"{time_s / 60:.0f} min" if time_s < 5400 else f"{time_s / 3600:.1f} h"
