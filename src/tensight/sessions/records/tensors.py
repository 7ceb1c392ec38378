"""Tensors, their statistics, and where anomalies began."""

from __future__ import annotations

from typing import Literal

from tensight.sessions.records.base import Io, Number, Record
from tensight.sessions.records.graphs import Frame


class Statistics(Record):
    """The statistics of a tensor; numbers from `min` on are over the finite elements."""

    dtype: str = ""
    shape: tuple[int, ...] = ()
    size_bytes: int = 0
    count: int = 0
    nan_count: int = 0
    neg_inf_count: int = 0
    pos_inf_count: int = 0
    zero_count: int = 0
    negative_count: int = 0
    positive_count: int = 0
    min: Number = None
    max: Number = None
    mean: Number = None
    abs_mean: Number = None
    std: Number = None
    l2_norm: Number = None
    content_hash: str = ""
    """16 hexadecimal digits; empty if unknown."""
    partial: bool = False
    """Only some of the numbers are known: an older process, or a device, recorded no more."""
    unknown: tuple[str, ...] = ()
    """Of a partial one the counts that are not known, and are 0 here for want of a number."""


TensorStatus = Literal["available", "at_source", "statistics_only", "not_kept"]
"""``available``: the value can be read at once; ``at_source``: it has to come from the training process, which must
stand still; ``statistics_only``; ``not_kept``: there is neither value nor statistics at this step."""


class TensorRecord(Record):
    """One tensor at one step."""

    address: str
    """``rank/graph/node:slot@step``."""
    rank: int
    graph: str
    node: str
    slot: int
    io: Io
    """Of the node that was asked about: whether this is one of its inputs or outputs."""
    step: int
    """From 1; 0 is the state before the first step, and that of constants."""
    type: str = ""
    """Type of the operator that produces it."""
    status: TensorStatus
    dtype: str = ""
    shape: tuple[int, ...] | None = None
    size_bytes: int = 0
    has_previous: bool = False
    scalar: str = ""
    """The value of a tensor with one element, as text (``nan`` and ``inf`` included); empty otherwise."""
    statistics: Statistics | None = None
    abbreviations: tuple[str, ...] = ()
    """Of the conditions that hit on it in this step."""


class StatisticsRow(Record):
    """A tensor with its statistics, for tables and curves."""

    address: str
    rank: int
    graph: str
    node: str
    slot: int
    io: Io
    step: int
    type: str = ""
    position: int | None = None
    """Place in the order of execution of its step, from 1; parameters come after the operators, constants have none."""
    statistics: Statistics


class StatisticsPage(Record):
    """Statistics of many tensors."""

    total: int
    offset: int = 0
    rows: tuple[StatisticsRow, ...]


class HistogramRecord(Record):
    """Counts in bins of equal width."""

    counts: tuple[int, ...]
    edges: tuple[float, ...]


class ElementRecord(Record):
    """One element of a tensor that was searched for."""

    address: str
    index: tuple[int, ...] | None = None
    """Of the element, one number for each dimension; null if there is none such."""
    value: str = ""
    """As text (``nan`` and ``inf`` included)."""


class Execution(Record):
    """Graphs that ran in one step of a rank."""

    step: int
    graph: str
    graphs: tuple[str, ...] = ()
    """The graph and its sub-graphs."""
    has_data: bool = False


class ExecutionPage(Record):
    """What ran in each step."""

    total: int
    offset: int = 0
    executions: tuple[Execution, ...]


class CodeLine(Record):
    """A line of a file of code."""

    line: int
    code: str


class OriginRecord(Record):
    """Where an anomaly began."""

    anomaly: str
    sentence: str
    address: str
    """The first tensor that shows it."""
    node: str = ""
    """The operator that made it; of what came from outside the step, the parameter."""
    type: str
    step: int
    certain: bool
    arrived: bool
    unseen: tuple[int, int] | None = None
    """First and last of the steps that ran directly before, and of which nothing is known: it may have begun there."""
    is_older: bool = False
    """Whether it is known to have been there before the step."""
    stack: tuple[Frame, ...] = ()
    line: Frame | None = None
    excerpt: tuple[CodeLine, ...] = ()
    """The code around `line`, where the training process sent the text of its file."""
    candidates: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
