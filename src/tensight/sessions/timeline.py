"""The timeline: the steps of a rank, in as many columns as a screen can show."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from tensight.sessions.loss import loss_curve
from tensight.sessions.overview import group_starts
from tensight.sessions.records import Timeline, TimelineStep

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from tensight.sessions.hit_list import SessionHit


@dataclass(frozen=True, slots=True)
class KnownSteps:
    """The known steps of a rank.

    Attributes
    ----------
    rank : int
    last, present : int
        The last step, and the current step of the run.
    statistics, values : iterable of int
        The steps with statistics, and those with available values.
    hits : mapping of int to sequence of SessionHit
        Hits by step.
    graphs_at : callable
        Returns, for a sorted sequence of steps, the name of the graph that ran in each; empty if unknown.
    loss : (str, mapping of int to (float or None, int)) or None
        Address of the loss, and its value and marks by step.
    unchecked : iterable of int
        The steps that were not checked; that they have no hits means nothing.
    """

    rank: int
    last: int
    present: int
    statistics: Iterable[int]
    values: Iterable[int]
    hits: Mapping[int, Sequence[SessionHit]]
    graphs_at: Callable[[Sequence[int]], Sequence[str]]
    loss: tuple[str, Mapping[int, tuple[float | None, int]]] | None = field(default=None)
    unchecked: Iterable[int] = ()


def timeline(known_steps: KnownSteps, columns: int) -> Timeline:
    """Return the timeline of a rank with at most `columns` columns."""
    hits = {step: _tensors_with_hits(step_hits, known_steps.rank) for step, step_hits in known_steps.hits.items()}
    statistics, values = _steps(known_steps.statistics), _steps(known_steps.values)
    ends = [int(steps.max(initial=0)) for steps in (statistics, values, _steps(hits))]
    last = max(known_steps.last, known_steps.present, *ends)
    starts = group_starts(last + 1, columns)
    spans = list(zip(starts.tolist(), (np.append(starts[1:], last + 1) - 1).tolist(), strict=True))

    def column_of(steps: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.searchsorted(starts, steps, "right") - 1

    counted = np.zeros(len(spans), np.int64)
    np.add.at(counted, column_of(_steps(hits)), np.fromiter(hits.values(), np.int64, len(hits)))
    with_statistics, with_values = np.zeros(len(spans), np.bool_), np.zeros(len(spans), np.bool_)
    with_unchecked = np.zeros(len(spans), np.bool_)
    with_unchecked[column_of(_steps(known_steps.unchecked))] = True
    with_statistics[column_of(statistics)] = True
    with_values[column_of(values)] = True
    rows = zip(
        spans,
        counted.tolist(),
        with_unchecked.tolist(),
        with_statistics.tolist(),
        with_values.tolist(),
        known_steps.graphs_at([first for first, _ in spans]),
        strict=True,
    )
    return Timeline(
        first_step=0,
        last_step=last,
        present_step=known_steps.present,
        steps=tuple(
            TimelineStep(
                first=first, last=end, hits=amount, unchecked=unchecked, statistics=reported, values=kept, graph=graph
            )
            for (first, end), amount, unchecked, reported, kept, graph in rows
        ),
        loss=None if known_steps.loss is None else loss_curve(*known_steps.loss, spans),
    )


def _steps(steps: Iterable[int]) -> NDArray[np.int64]:
    numbers = np.array(list(steps), np.int64)
    return numbers[numbers >= 0]


def _tensors_with_hits(hits: Sequence[SessionHit], rank: int) -> int:
    return len({(hit.graph, hit.node, hit.io, hit.slot) for hit in hits if hit.hit.hit and hit.rank == rank})
