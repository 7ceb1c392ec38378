"""All tensors over all steps as one picture, and the steps of a run on one line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from tensight.sessions.records.base import Io, Record, StepSpan
from tensight.tensors import MEASURES

if TYPE_CHECKING:
    OverviewStatistic = str
else:
    OverviewStatistic = Literal[(*MEASURES, "abs_max", "zero_percent", "negative_percent", "non_finite_percent")]
"""What an overview can be coloured by; percentages are of all elements, everything else is of the finite ones."""


class OverviewRow(Record):
    """A row of an overview: a tensor, or neighbours in the order of execution."""

    address: str
    """Of the (first) tensor, ``rank/graph/node:slot`` without a step."""
    node: str
    slot: int
    io: Io
    graph: str
    """The newest one that has it; see `graphs`."""
    graphs: tuple[str, ...] = ()
    """All in which the same node was seen: a training that changes is recorded as several graphs."""
    type: str = ""
    position: int | None = None
    """Position in the order of execution of its step, from 1. Parameters come after the operators, constants have
    none."""
    tensors: int = 1
    """How many are merged into this row."""


class OverviewPosition(Record):
    """Where a picture shows a tensor, by itself or merged with its neighbours."""

    address: str
    """``rank/graph/node:slot`` without a step."""
    node: str
    row: int
    step: int | None = None


class Overview(Record):
    """A statistic of tensors in execution order (rows) over the steps (columns); neighbours merge where they must."""

    statistic: OverviewStatistic
    total: int
    """Tensors that match the query, in all."""
    offset: int = 0
    tensors: int = 0
    """How many of them are pictured, from `offset` on."""
    steps: tuple[StepSpan, ...] = ()
    """One for each column. Steps of which nothing is known have none."""
    rows: tuple[OverviewRow, ...] = ()
    values: tuple[tuple[float | None, ...], ...] = ()
    """For each row its cells, to five digits; of merged tensors and steps the value of largest magnitude, None where
    there is none."""
    marks: tuple[tuple[int, ...], ...] = ()
    """For each row its cells, as the sum of: 1 NaN, 2 infinite elements, 4 a hit, 8 nothing recorded."""
    first: OverviewPosition | None = None
    """The first tensor with a hit, else the first that is not finite: at the first such step the first one that is not
    finite, or else that hit. None if the picture shows none."""
    located: tuple[OverviewPosition, ...] = ()
    """The tensors that were asked for, as far as they are pictured."""
    unread: int = 0
    """Of a dump: tensors that have not been read yet, and are missing here; ask to read them."""
    unread_bytes: int = 0


class TimelineStep(Record):
    """Steps that follow each other, as one place on the line."""

    first: int
    last: int
    hits: int = 0
    """Tensors with a hit, added up over the steps."""
    unchecked: bool = False
    """One of them was not checked yet: go there and recheck."""
    statistics: bool = False
    """Statistics are known of one of them."""
    values: bool = False
    """Values can be seen of one of them."""
    graph: str = ""
    """That ran in the first of them; empty if it is not known."""


class LossCurve(Record):
    """The loss at each place of a timeline."""

    address: str
    """Of its tensor, without a step; empty where the training told it by itself, and no tensor is known to be it."""
    values: tuple[float | None, ...]
    """At the last step of each place of which it is known; None where it is not, or is not finite."""
    marks: tuple[int, ...]
    """As in `Overview.marks`: 1 NaN, 2 infinite, 8 nothing recorded."""


class Timeline(Record):
    """The steps of a rank."""

    first_step: int
    last_step: int
    present_step: int
    """Where the run stands; the step that is shown may be an earlier one."""
    steps: tuple[TimelineStep, ...] = ()
    loss: LossCurve | None = None


class Curve(Record):
    """A number of a training over its steps."""

    name: str
    """``loss``, ``learning_rate``, ``gradient_norm``."""
    slot: int = 0
    """Which of several: backward passes of a step, groups of parameters."""
    address: str = ""
    """Of the tensor that it is, without a step; empty if it is none of a graph."""
    steps: tuple[int, ...] = ()
    """Those of which it is known, in order; of very many some."""
    values: tuple[float | None, ...] = ()
    """At these steps; None where it is not finite."""
    marks: tuple[int, ...] = ()
    """As in `Overview.marks`: 1 NaN, 2 infinite."""


class Curves(Record):
    """What is known of a rank's training over its steps, whatever is watched."""

    rank: int
    last_step: int
    """The last step there is."""
    curves: tuple[Curve, ...] = ()
