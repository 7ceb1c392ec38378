"""`tensight selftest`: measure what the debugger changes in a training."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from tensight.cli.exit_codes import FOUND, WRONG_INPUT
from tensight.cli.options import Json, Quiet
from tensight.cli.output import console, count, number, print_json, size, table
from tensight.cli.run import Capture
from tensight.frameworks import FRAMEWORKS

if TYPE_CHECKING:
    from rich.console import Console

    from tensight.cli.trials import Measured, Verdict

NAMES_SHOWN = 5
PLAIN, AGAIN, DEBUGGED = "without the debugger", "without it, once more", "with the debugger"


def selftest(
    script: Annotated[str, typer.Argument(metavar="SCRIPT", help="What `python` would run.")],
    arguments: Annotated[list[str] | None, typer.Argument(metavar="ARGUMENTS", help="Its arguments.")] = None,
    module: Annotated[bool, typer.Option("--module", "-m", help="Run a module, as `python -m` does.")] = False,
    steps: Annotated[int, typer.Option(min=2, max=1_000_000, metavar="N", help="Steps of the optimizer.")] = 50,
    capture: Annotated[
        Capture, typer.Option(help="What the debugger sees: calls of modules, or every operator.")
    ] = Capture.MODULES,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run a training with and without the debugger, and tell whether the result is the same and what it costs."""
    from tensight.cli.trials import judge, measure, measure_debugged, require_framework

    require_framework()
    command = [*(["-m"] if module else []), script, *(arguments or ())]
    with _progress(steps, quiet=quiet) as showing:
        plain = measure(command, steps, showing(PLAIN))
        again = measure(command, steps, showing(AGAIN))
        debugged, stops = measure_debugged(command, steps, capture.value, showing(DEBUGGED))
    runs = {PLAIN: plain, AGAIN: again, DEBUGGED: debugged}
    verdict = judge(plain, again, debugged)
    if json:
        measured = {name: asdict(run) for name, run in runs.items()}
        print_json({"passed": verdict.passed, **asdict(verdict), "stops": stops, "runs": measured})
    else:
        _print(console(), runs, verdict, stops)
    if verdict.attached and not verdict.compared:
        raise typer.Exit(WRONG_INPUT)
    raise typer.Exit(0 if verdict.passed else FOUND)


def _print(out: Console, runs: dict[str, Measured], verdict: Verdict, stops: int) -> None:
    from rich.markup import escape

    rows = table("run", "steps", "median step", "peak memory", right=("steps", "median step", "peak memory"))
    for name, run in runs.items():
        step = "–" if math.isnan(run.step_s) else f"{number(run.step_s * 1000, 3)} ms"
        rows.add_row(name, str(run.steps), step, size(run.peak_bytes))
    out.print(rows)
    steps = count(runs[PLAIN].steps, "step")
    if not verdict.attached:
        run = runs[DEBUGGED]
        out.print(f"[bold red]✗ The debugger saw {run.debugged_steps} of {count(run.steps, 'step')}[/]; its messages:")
        out.print(f"  {escape(run.messages) or 'nothing'}")
        return
    if not verdict.compared:
        out.print(f"[bold yellow]? Nothing was compared:[/] no optimizer has a tensor after {steps}")
    elif verdict.unstable:
        which = f"{len(verdict.unstable)} of {count(verdict.compared, 'tensor')}"
        out.print(
            f"[bold yellow]? The script is not deterministic:[/] {which} differ between two runs without the debugger"
        )
        out.print(f"  {escape(_some(verdict.unstable))}")
        seed = next(framework.seeding for framework in FRAMEWORKS if framework.module == runs[PLAIN].framework)
        out.print(f"  Set its seeds ({seed}) to tell changes by the debugger from random ones.")
    elif verdict.changed:
        which = f"{len(verdict.changed)} of {count(verdict.compared, 'tensor')}"
        out.print(f"[bold red]✗ The debugger changed the training:[/] {which} differ after {steps}")
        out.print(f"  {escape(_some(verdict.changed))}")
    else:
        what = f"all {count(verdict.compared, 'tensor')} of parameters, buffers and optimizer states"
        out.print(f"[bold green]✓ Bit-identical after {steps}:[/] {what}")
    slower = f"{verdict.slowdown:.2f} times as long a step"
    if verdict.slowdown < 1:
        slower += " (less is noise of the machine)"
    watched = f"with the recommended watchpoints on everything ({count(stops, 'stop') if stops else 'no stop'})"
    out.print(f"  {slower}, {_signed(verdict.added_bytes)} memory, {watched}")


def _signed(size_bytes: int) -> str:
    return f"{'+' if size_bytes >= 0 else '−'} {size(abs(size_bytes))}"


def _some(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
    return ", ".join(names[:NAMES_SHOWN]) + more


@contextmanager
def _progress(steps: int, *, quiet: bool) -> Iterator[Callable[[str], Callable[[], None]]]:
    """Yield a function that takes the name of a run and returns a callback for each of its steps."""
    if quiet or not sys.stderr.isatty():
        yield lambda _: lambda: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description:<21}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console(stderr=True), transient=True) as bars:

        def showing(name: str) -> Callable[[], None]:
            task = bars.add_task(name, total=steps)
            return lambda: bars.advance(task)

        yield showing
