"""The loss curve of a dump, a recording or a recorded run, as its session shows it, without opening a session."""

from __future__ import annotations

import math
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import numpy as np

from tensight.curves import Curve
from tensight.errors import CurveError
from tensight.graph import step_of
from tensight.sessions.live.statistics_store import FILE
from tensight.sessions.offline.opened_dump import OpenedDump
from tensight.sessions.offline.overview import MOST_LOSSES
from tensight.sessions.programs import Programs

if TYPE_CHECKING:
    from pathlib import Path

    from tensight.dumps import Dump

_POINTS = 1_000_000
_NAN, _INFINITE = 1, 2


def recorded_losses(dump: Dump, source: str, *, rank: int | None = None, folder: Path | None = None) -> Curve:
    """Return the loss of a rank.

    Parameters
    ----------
    dump : Dump
    source : str
        The name that the user gave.
    rank : int, optional
        By default the first.
    folder : Path, optional
        Folder of a run in a workspace, which contains the losses that its training reported.

    Returns
    -------
    Curve

    Raises
    ------
    CurveError
        There is no such rank, or none of its tensors looks like a loss.
    """
    ranks = dump.ranks
    if not ranks or (rank is not None and rank not in ranks):
        raise CurveError(f"{source} has no rank {rank}; it has {', '.join(map(str, ranks[:20])) or 'none'}")
    chosen = ranks[0] if rank is None else rank
    notes = [] if len(ranks) == 1 or rank is not None else [f"rank {chosen} of {len(ranks):,} ranks was used (--rank)"]
    reported = _reported(folder, chosen) if folder is not None else {}
    if reported:
        return _curve("loss", reported, source, notes)
    opened = OpenedDump(
        dump,
        report=lambda what, done, total: None,  # noqa: ARG005 - no progress is shown
        progress=lambda done, total: None,  # noqa: ARG005
        first_of=lambda of_rank: programs.of(opened.graphs[of_rank]).first_of,
    )
    programs = Programs(are_parts=lambda graph, other: opened.are_parts(chosen, graph, other))
    losses = [curve for curve in opened.curves(chosen, {}, _POINTS).curves if curve.name == "loss"]
    if not losses or not losses[0].steps:
        raise CurveError(
            f"{source}: no tensor that looks like a loss was recorded in it; give a log of the training instead",
            code="loss-not-found",
        )
    loss = losses[0]
    values: dict[int, float] = {}
    for step, value, mark in zip(loss.steps, loss.values, loss.marks, strict=True):
        # The marks keep that the value was infinite, not its sign.
        values[step] = value if value is not None else math.nan if mark & _NAN else math.inf
    if len(values) >= MOST_LOSSES / 2 and len(values) < len(opened.steps_of[chosen]):
        notes.append(f"{len(values):,} of {len(opened.steps_of[chosen]):,} steps were read")
    return _curve(loss.address, values, source, notes)


def _curve(name: str, values: dict[int, float], source: str, notes: list[str]) -> Curve:
    steps = sorted(values)
    return Curve(
        name=name,
        steps=np.array(steps, np.int64),
        values=np.array([values[step] for step in steps], np.float64),
        source=source,
        rounding=np.zeros(len(steps)),
        notes=tuple(notes),
    )


def _reported(folder: Path, rank: int) -> dict[int, float]:
    """Return the losses that a training reported, by step; empty if there are none or the file is damaged.

    The file is opened read-only, because the server that records the run may be writing to it.
    """
    path = folder / FILE
    if not path.is_file():
        return {}
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as database:
            rows = database.execute(
                "SELECT iteration, value FROM scalars WHERE rank = ? AND name = 'loss' AND slot = 0 ORDER BY iteration",
                (rank,),
            ).fetchall()
        return {step_of(int(iteration)): float(value) for iteration, value in rows}
    except (sqlite3.Error, TypeError, ValueError):
        return {}
