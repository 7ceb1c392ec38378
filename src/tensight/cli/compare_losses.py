"""`tensight compare losses`: whether two trainings have the same loss, and where they diverge."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tensight.cli.options import Html, Json
from tensight.cli.output import console, print_json, table

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from rich.console import Console

    from tensight.compare.losses import LossComparison
    from tensight.curves import Curve

_AROUND = 3
"""Rows of the table on each side of the divergence."""

_BARS = "▁▂▃▄▅▆▇█"
_PLOT_WIDTH = 60
_DIGITS = 9

Losses = Annotated[
    str,
    typer.Argument(
        help="A log (text, JSON, CSV), an event file, trainer_state.json, a folder of these, a dump or a run."
    ),
]


def losses(
    a: Losses,
    b: Losses,
    noise: Annotated[
        list[str] | None,
        typer.Option(
            "--noise", metavar="C", help="A repeated run of A, whose difference is the tolerance. Repeatable."
        ),
    ] = None,
    rtol: Annotated[
        float | None, typer.Option("--rtol", min=0, help="Relative tolerance. Default: 1e-3; 0 with --noise.")
    ] = None,
    atol: Annotated[float | None, typer.Option("--atol", min=0, help="Absolute tolerance. Default: 0.")] = None,
    column: Annotated[
        str | None, typer.Option("--column", metavar="NAME", help="Which scalar. Default: the one called loss.")
    ] = None,
    pattern: Annotated[
        str | None,
        typer.Option(
            "--pattern", metavar="REGEX", help="Finds the loss in a line of text: groups (?P<loss>…) and (?P<step>…)."
        ),
    ] = None,
    decimal_comma: Annotated[
        bool | None,
        typer.Option(
            "--decimal-comma/--decimal-point",
            help="What 10,047 is: 10.047, or 10047. Default: as the other numbers of the file show.",
        ),
    ] = None,
    rank: Annotated[int | None, typer.Option("--rank", help="Of dumps and runs. Default: the first.")] = None,
    html: Html = None,
    json: Json = False,
) -> None:
    """Compare two loss curves: the same, or different from which step on, and what that points to."""
    from tensight.compare.losses import compare_losses

    read = partial(read_losses, column=column, pattern=pattern, rank=rank, decimal_comma=decimal_comma)
    curves = [read(path) for path in (a, b, *(noise or ()))]
    comparison = compare_losses(curves[0], curves[1], noise=curves[2:], rtol=rtol, atol=atol)
    data = {"a": _about(curves[0]), "b": _about(curves[1]), **comparison.as_data()}
    if html is not None:
        from tensight.cli.reports import losses as report
        from tensight.cli.reports.parts import write_report

        write_report(html, report, data)
    if json:
        print_json(data)
    else:
        _print(console(), curves, comparison)
    if comparison.verdict.exit_code:
        raise typer.Exit(comparison.verdict.exit_code)


def read_losses(
    path: str, *, column: str | None, pattern: str | None, rank: int | None, decimal_comma: bool | None = None
) -> Curve:
    """Read the loss curve from the path that the user named: a log or a dump.

    Raises
    ------
    CurveError
        It cannot be read, or contains no loss.
    DumpError
        It is a folder, but not a dump or a folder of logs.
    """
    from tensight.curves import Decimal, is_curve_folder, read_curve
    from tensight.dumps import open_dump
    from tensight.errors import CurveError, DumpError

    local = Path(path)
    if "://" not in path and (not local.is_dir() or is_curve_folder(local)):
        decimal = None if decimal_comma is None else Decimal.COMMA if decimal_comma else Decimal.POINT
        return read_curve(path, column=column, pattern=pattern, decimal=decimal)
    from tensight.sessions.recorded_losses import recorded_losses

    try:
        dump = open_dump(path)
    except DumpError as error:
        raise CurveError(
            f"{path}: no event files, no trainer_state.json and no metrics.csv in this folder, and no dump ({error}); "
            "name the log itself"
        ) from None
    return recorded_losses(dump, path, rank=rank, folder=local)


def _about(curve: Curve) -> dict[str, object]:
    return {
        "source": curve.source,
        "name": curve.name,
        "unit": curve.unit.value,
        "entries": len(curve),
        "first": int(curve.steps[0]) if len(curve) else None,
        "last": int(curve.steps[-1]) if len(curve) else None,
        "others": list(curve.others[:1000]),
        "notes": list(curve.notes),
    }


def _print(out: Console, curves: list[Curve], comparison: LossComparison) -> None:
    from rich.markup import escape

    from tensight.compare import Verdict
    from tensight.curves import StepUnit

    colour = {Verdict.SAME: "green", Verdict.DIFFERENT: "red", Verdict.NOT_COMPARABLE: "yellow"}[comparison.verdict]
    out.print(f"[bold {colour}]● {escape(comparison.sentence)}[/]")
    if comparison.meaning:
        out.print(f"  {escape(comparison.meaning)}")
    for name, curve in zip(("A", "B"), curves, strict=False):
        unit = "entries" if curve.unit is StepUnit.ENTRY else f"{curve.unit.value}s"
        out.print(f"  [dim]{name}[/] {escape(curve.source)}: {escape(curve.name)}, {len(curve):,} {unit}")
    if len(comparison.pairs):
        out.print()
        _print_plot(out, comparison)
        _print_table(out, comparison)
    letters = ["A", "B", *(f"C{number}" for number in range(1, len(curves) - 1))]
    notes = [f"{letter}: {note}" for letter, curve in zip(letters, curves, strict=True) for note in curve.notes]
    for note in (*comparison.notes, *notes):
        out.print(f"  [dim]•[/] {escape(note)}")


def _print_plot(out: Console, comparison: LossComparison) -> None:
    """Print the relative difference over the steps, on a logarithmic scale, as a line of bars."""
    from tensight.compare.losses import relative_text

    relative, steps = comparison.relative, comparison.pairs.steps
    if not (relative > 0).any():
        return
    label = "  relative difference  "
    bars, low, high = sparkline(relative, min(_PLOT_WIDTH, out.width - len(label)))
    out.print(f"{label}[cyan]{bars}[/]", soft_wrap=True)
    unit = comparison.pairs.unit.value
    out.print(
        f"  [dim]{unit} {steps[0]:,} to {steps[-1]:,}; low {relative_text(low)}, high {relative_text(high)}, "
        "logarithmic; a blank is no difference, ! NaN or infinity in one only[/]"
    )
    out.print()


def sparkline(values: NDArray[np.float64], width: int = _PLOT_WIDTH) -> tuple[str, float, float]:
    """Return a line of bars with the largest value of each part, and the values of the lowest and the highest bar.

    Parameters
    ----------
    values : ndarray of float64, shape (n,)
        Not negative; infinite values become exclamation marks.
    width : int
        Maximum number of characters.
    """
    import numpy as np

    parts = [float(part.max()) for part in np.array_split(values, min(width, len(values)))]
    finite = [value for value in parts if 0 < value < math.inf]
    low, high = (min(finite), max(finite)) if finite else (0.0, 0.0)
    span = math.log(high / low) if low < high else 0.0
    bars = []
    for value in parts:
        if value == 0:
            bars.append(" ")
        elif math.isinf(value):
            bars.append("!")
        else:
            share = math.log(value / low) / span if span else 1.0
            bars.append(_BARS[min(int(share * len(_BARS)), len(_BARS) - 1)])
    return "".join(bars), low, high


def _print_table(out: Console, comparison: LossComparison) -> None:
    """Print the losses around the point where the curves diverge, and those of the first and the last steps."""
    import numpy as np

    from tensight.compare.losses import relative_text

    pairs = comparison.pairs
    marked = {
        int(np.searchsorted(pairs.steps, step)): words
        for step, words in ((comparison.leaves_at, "outside"), (comparison.departs_at, "departs"))
        if step is not None
    }
    centres = [0, *marked] if marked else [0, int(np.argmax(comparison.relative))]
    shown = {at for centre in centres for at in range(centre - _AROUND, centre + _AROUND + 1)} | {len(pairs) - 1}
    rows = table(pairs.unit.value, "A", "B", "difference", "", right=(pairs.unit.value, "A", "B", "difference"))
    last = -1
    for at in sorted(at for at in shown if 0 <= at < len(pairs)):
        if at > last + 1:
            rows.add_row("…", "", "", "", "")
        cells = (f"{pairs.steps[at]:,}", _loss(pairs.a[at]), _loss(pairs.b[at]), relative_text(comparison.relative[at]))
        rows.add_row(*cells, f"[red]{marked[at]}[/]" if at in marked else "")
        last = at
    out.print(rows)


def _loss(value: float) -> str:
    return f"{value:.{_DIGITS}g}"
