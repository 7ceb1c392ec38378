"""The report of a comparison of two loss curves: the verdict, both curves, and their difference."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tensight.cli.reports.parts import RED, Picture, bullets, folded, number, table, verdict

TITLE = "Two loss curves compared"

_A, _B = "#3b76c4", "#d9822b"
_MOST_POINTS = 2_000
_MOST_ROWS = 1_000
_FINEST = 1e-9
"""Relative difference at the lower edge of the picture."""


def body(data: Mapping[str, Any]) -> Iterable[str]:
    """Yield the parts of the report.

    Parameters
    ----------
    data : mapping
        As ``tensight compare losses --json`` prints.
    """
    curves = [(side.upper(), data[side]["source"], data[side]["name"], data[side]["entries"]) for side in ("a", "b")]
    yield table(("", "log", "loss", "entries"), curves, numbers=(3,))
    yield verdict(data["verdict"], data["sentence"])
    if data["meaning"]:
        yield bullets([data["meaning"]])
    points = data["points"]
    if points:
        shown = points[:: max(1, math.ceil(len(points) / _MOST_POINTS))]
        marks = [data["departs_at"], data["leaves_at"]]
        yield f"<h2>Loss by {data['unit']}</h2>" + _curves(shown, marks)
        yield "<h2>Relative difference, and what is allowed (dashed)</h2>" + _differences(shown, marks)
        rows = points[:: max(1, math.ceil(len(points) / _MOST_ROWS))]
        yield folded(f"{len(rows):,} of {data['compared']:,} compared losses", _table(rows, data["unit"]))
    notes = [*data["notes"]] + [f"{side.upper()}: {note}" for side in ("a", "b") for note in data[side]["notes"]]
    yield bullets(notes)


def _curves(points: Sequence[Mapping[str, Any]], marks: Sequence[int | None]) -> str:
    losses = [point[side] for point in points for side in ("a", "b") if math.isfinite(point[side])]
    low, high = (min(losses), max(losses)) if losses else (0.0, 1.0)
    picture = Picture("Loss of both", low, high, is_logarithmic=False)
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        value = low + share * (high - low)
        picture.ruler(value, f"{value:.4g}")
    _mark(picture, points, marks)
    for side, colour in (("a", _A), ("b", _B)):
        picture.line(
            [(_position(points, at), point[side]) for at, point in enumerate(points)], colour, dashed=side == "b"
        )
    picture.legend((("A", _A), ("B", _B)))
    return picture.html()


def _differences(points: Sequence[Mapping[str, Any]], marks: Sequence[int | None]) -> str:
    largest = max(
        (point["relative_difference"] for point in points if point["relative_difference"] < math.inf), default=0.0
    )
    highest = math.ceil(math.log10(max(largest, 1e-3)))
    lowest = math.log10(_FINEST)
    picture = Picture("Relative difference of the losses", lowest, highest, is_logarithmic=True)
    for power in range(int(lowest), highest + 1, 2):
        picture.ruler(power, f"1e{power}" if power > lowest else f"≤ 1e{power}")
    _mark(picture, points, marks)
    for at, point in enumerate(points):
        colour = RED if point["is_outside"] else _A
        title = f"{point['step']:,}: {_difference(point['relative_difference'])}"
        picture.point(_position(points, at), point["relative_difference"], title, colour)
    allowed = [
        (_position(points, at), point["allowed_difference"] / abs(point["a"]) if point["a"] else math.nan)
        for at, point in enumerate(points)
    ]
    picture.line(allowed, "#888", dashed=True)
    return picture.html()


def _position(points: Sequence[Mapping[str, Any]], at: int) -> float:
    return (at + 0.5) / len(points)


def _mark(picture: Picture, points: Sequence[Mapping[str, Any]], marks: Sequence[int | None]) -> None:
    for step in marks:
        at = next((at for at, point in enumerate(points) if step is not None and point["step"] >= step), None)
        if at is not None:
            picture.mark(_position(points, at))


def _difference(relative: float) -> str:
    return "NaN or Inf in one only" if relative == math.inf else number(relative)


def _table(points: Sequence[Mapping[str, Any]], unit: str) -> str:
    rows = [
        (f"{point['step']:,}", point["a"], point["b"], _difference(point["relative_difference"])) for point in points
    ]
    outside = [at for at, point in enumerate(points) if point["is_outside"]]
    return table((unit, "A", "B", "relative difference"), rows, numbers=(0, 1, 2, 3), marked=outside)
