"""Curves of a training over its steps: loss, learning rates, gradient norm."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tensight.sessions.loss import mark_of
from tensight.sessions.overview import group_starts
from tensight.sessions.records import Curve, Curves

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_ORDER = ("loss", "learning_rate", "gradient_norm_before_clipping", "gradient_norm")


def curves(
    rank: int,
    last_step: int,
    reported: Mapping[tuple[str, int], Sequence[tuple[int, float]]],
    loss: tuple[str, Mapping[int, tuple[float | None, int]]] | None,
    points: int,
) -> Curves:
    """Return the curves of a rank.

    Parameters
    ----------
    rank, last_step : int
    reported : mapping of (str, int) to sequence of (int, float)
        Values that the training reported, by name and slot: step and value, in order.
    loss : (str, mapping of int to (float or None, int)) or None
        Address of the loss tensor, and its value and marks by step; used if the training reported no loss.
    points : int
        Maximum number of points of a curve.
    """
    all_curves = [
        _curve(name, slot, "", [(step, value, mark_of(value)) for step, value in pairs], points)
        for (name, slot), pairs in reported.items()
    ]
    if loss is not None and ("loss", 0) not in reported:
        address, loss_values = loss
        rows = [
            (step, math.nan if value is None else value, marks) for step, (value, marks) in sorted(loss_values.items())
        ]
        all_curves.append(_curve("loss", 0, address, rows, points))
    all_curves.sort(
        key=lambda curve: (_ORDER.index(curve.name) if curve.name in _ORDER else len(_ORDER), curve.name, curve.slot)
    )
    return Curves(rank=rank, last_step=last_step, curves=tuple(all_curves))


def _curve(name: str, slot: int, address: str, rows: Sequence[tuple[int, float, int]], points: int) -> Curve:
    """Return a curve; a point for several steps shows the first non-finite value, or else the last value."""
    starts = group_starts(len(rows), points).tolist()
    groups = (rows[start:end] for start, end in zip(starts, [*starts[1:], len(rows)], strict=True))
    chosen = [next((row for row in group if row[2]), group[-1]) for group in groups]
    return Curve(
        name=name,
        slot=slot,
        address=address,
        steps=tuple(step for step, _, _ in chosen),
        values=tuple(value if math.isfinite(value) else None for _, value, _ in chosen),
        marks=tuple(marks for _, _, marks in chosen),
    )
