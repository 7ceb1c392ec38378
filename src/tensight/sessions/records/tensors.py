"""Tensors, their statistics, and the origins of anomalies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from tensight.sessions.records.base import Io, Number, Record
from tensight.sessions.records.graphs import Frame

if TYPE_CHECKING:
    from tensight.graph import TensorAddress


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
    """Only some of the numbers are known, because an older process, or a device, recorded no others."""
    unknown: tuple[str, ...] = ()
    """If partial: the unknown counts, which are 0 here."""


def address_fields(address: TensorAddress) -> dict[str, Any]:
    """Return the fields of a record that say of which tensor at which step it is."""
    names = ("rank", "graph", "node", "slot", "io", "step")
    return {"address": str(address), **{name: getattr(address, name) for name in names}}


TensorStatus = Literal["available", "at_source", "statistics_only", "not_kept"]
"""``available``: the value can be read immediately; ``at_source``: it must come from the training process, which must
be paused; ``statistics_only``; ``not_kept``: there is neither a value nor statistics at this step."""


class TensorRecord(Record):
    """A tensor at a step."""

    address: str
    """``rank/graph/node:slot@step``."""
    rank: int
    graph: str
    node: str
    slot: int
    io: Io
    """Whether it is an input or an output of the requested node."""
    step: int
    """From 1; 0 is the state before the first step, and the step of constants."""
    type: str = ""
    """Type of the operator that produces it."""
    status: TensorStatus
    dtype: str = ""
    shape: tuple[int, ...] | None = None
    size_bytes: int = 0
    has_previous: bool = False
    scalar: str = ""
    """The value of a tensor with a single element, as text (including ``nan`` and ``inf``); empty otherwise."""
    statistics: Statistics | None = None
    abbreviations: tuple[str, ...] = ()
    """Abbreviations of the conditions that hit on it in this step."""


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
    """Position in the execution order of its step, from 1; parameters come after the operators, constants have none."""
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
    """An element of a tensor found by a search."""

    address: str
    index: tuple[int, ...] | None = None
    """Index of the element in each dimension; null if there is no such element."""
    value: str = ""
    """As text (including ``nan`` and ``inf``)."""


class Execution(Record):
    """Graphs that ran in a step of a rank."""

    step: int
    graph: str
    graphs: tuple[str, ...] = ()
    """The graph and its sub-graphs."""
    has_data: bool = False


class ExecutionPage(Record):
    """The graphs that ran in each step."""

    total: int
    offset: int = 0
    executions: tuple[Execution, ...]


class CodeLine(Record):
    """A line of a source file."""

    line: int
    code: str


class OriginRecord(Record):
    """The origin of an anomaly."""

    anomaly: str
    sentence: str
    address: str
    """The first tensor that shows it."""
    node: str = ""
    """The operator that produced it, or the parameter if it came from outside the step."""
    type: str
    step: int
    certain: bool
    arrived: bool
    unseen: tuple[int, int] | None = None
    """First and last of the directly preceding steps without data, in which it may have begun."""
    is_older: bool = False
    """Whether it is known to have existed before the step."""
    changed: bool = False
    """Whether it came in with a parameter that was written to after the last update, other than by the optimizer."""
    is_left_out: bool = False
    """Whether it went no further, because every operator that reads its NaN or Inf leaves them out."""
    stack: tuple[Frame, ...] = ()
    line: Frame | None = None
    excerpt: tuple[CodeLine, ...] = ()
    """The code around `line`, if the training process sent the text of its file."""
    candidates: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
