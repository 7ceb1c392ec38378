"""The overview of all tensors over all steps, the timeline, and curves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from tensight.sessions.records.base import Io, Record, StepSpan
from tensight.tensors import MEASURES

if TYPE_CHECKING:
    OverviewStatistic = str
else:
    OverviewStatistic = Literal[(*MEASURES, "abs_max", "zero_percent", "negative_percent", "non_finite_percent")]
"""Statistics for colours of an overview; percentages are of all elements, others are of the finite elements."""


class OverviewRow(Record):
    """A row of an overview: a tensor, or several that are adjacent in execution order."""

    address: str
    """Address of the first tensor, ``rank/graph/node:slot`` without a step."""
    node: str
    slot: int
    io: Io
    graph: str
    """The newest graph that has it; see `graphs`."""
    graphs: tuple[str, ...] = ()
    """All graphs with the same node: a training that changes is recorded as several graphs."""
    type: str = ""
    position: int | None = None
    """Position in the execution order of its step, from 1. Parameters come after the operators, constants have
    none."""
    tensors: int = 1
    """Number of tensors merged into this row."""


class OverviewPosition(Record):
    """Position of a tensor in an overview, where its row may be merged with neighbours."""

    address: str
    """``rank/graph/node:slot`` without a step."""
    node: str
    row: int | None
    """None if it is not in the part that is shown."""
    step: int | None = None


class OverviewScale(Record):
    """The magnitudes at the ends of the colours: of all tensors that match the query, in all steps.

    They depend neither on the part that is shown, nor on the size to which it is merged.
    """

    low: float
    high: float
    is_cut: bool = False
    """Some values are beyond the ends."""


class Overview(Record):
    """A statistic of tensors in execution order (rows) over steps (columns), merged to the requested size."""

    statistic: OverviewStatistic
    total: int
    """Number of tensors that match the query."""
    offset: int = 0
    tensors: int = 0
    """Number of shown tensors, from `offset` on."""
    steps: tuple[StepSpan, ...] = ()
    """The steps of each column. Steps without data have no column."""
    rows: tuple[OverviewRow, ...] = ()
    values: tuple[tuple[float | None, ...], ...] = ()
    """Cells of each row, to five digits; for merged tensors and steps, the value of largest magnitude. None if
    unknown."""
    marks: tuple[tuple[int, ...], ...] = ()
    """Cells of each row, as the sum of: 1 NaN, 2 infinite elements, 4 a hit, 8 nothing recorded."""
    scale: OverviewScale | None = None
    """None for percentages, and if no value has a magnitude."""
    first: OverviewPosition | None = None
    """The first mark of the rank, also outside of the part that is shown: at the first step with a hit (without hits,
    with non-finite tensors), the first tensor that is not finite, or else that hit. None if there is none."""
    located: tuple[OverviewPosition, ...] = ()
    """Positions of the requested tensors."""
    unread: int = 0
    """For a dump: number of tensors that have not been read yet, and are missing here; request to read them."""
    unread_bytes: int = 0


class TimelineStep(Record):
    """A column of the timeline, with one or more consecutive steps."""

    first: int
    last: int
    hits: int = 0
    """Tensors with a hit, summed over the steps."""
    unchecked: bool = False
    """Whether a step was not checked yet: go there and recheck."""
    statistics: bool = False
    """Whether a step has statistics."""
    values: bool = False
    """Whether a step has values."""
    graph: str = ""
    """The graph that ran in the first step; empty if unknown."""


class LossCurve(Record):
    """The loss in each column of a timeline."""

    address: str
    """Address of the loss tensor, without a step; empty if the training reported the loss and no tensor is known."""
    values: tuple[float | None, ...]
    """The loss at the last step of each column for which it is known; None if unknown or not finite."""
    marks: tuple[int, ...]
    """As in `Overview.marks`: 1 NaN, 2 infinite, 8 nothing recorded."""


class Timeline(Record):
    """The steps of a rank."""

    first_step: int
    last_step: int
    present_step: int
    """The current step of the run; the shown step may be an earlier one."""
    steps: tuple[TimelineStep, ...] = ()
    loss: LossCurve | None = None


class Curve(Record):
    """A scalar of a training over its steps."""

    name: str
    """``loss``, ``learning_rate``, ``gradient_norm``: of the gradients that updates read; for a training that clips
    them also ``gradient_norm_before_clipping``: as the backward pass left them, without the factor of a loss scaler."""
    slot: int = 0
    """Index of several: backward passes of a step, groups of parameters."""
    address: str = ""
    """Address of the tensor, without a step; empty if it is not a tensor of a graph."""
    steps: tuple[int, ...] = ()
    """Steps with a known value, in order; a sample if there are very many."""
    values: tuple[float | None, ...] = ()
    """Values at these steps; None if not finite."""
    marks: tuple[int, ...] = ()
    """As in `Overview.marks`: 1 NaN, 2 infinite."""


class Curves(Record):
    """Scalars of a rank's training over its steps, independent of watchpoints."""

    rank: int
    last_step: int
    """The last step of the run."""
    curves: tuple[Curve, ...] = ()
