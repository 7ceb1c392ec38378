"""The overview: tensors in execution order by steps, in as many cells as a screen can show.

Sources yield a column of numbers for each step; everything here works on whole columns.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, get_args

import numpy as np

from tensight.errors import InputError
from tensight.graph import TensorAddress
from tensight.sessions.records import (
    Overview,
    OverviewPosition,
    OverviewRow,
    OverviewScale,
    OverviewStatistic,
    StepSpan,
)
from tensight.tensors.schema import DERIVED, PERCENTAGES, derived

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from tensight.sessions.hit_list import SessionHit

NAN, INFINITE, HIT, NOTHING = 1, 2, 4, 8
"""Marks of a cell, as bit flags."""

STATISTICS: tuple[OverviewStatistic, ...] = get_args(OverviewStatistic)

DIGITS = 5
"""Significant digits of values; colours cannot show more."""

Columns = dict[str, "NDArray[np.float64]"]


class ListedTensor(NamedTuple):
    """A tensor of a rank, in all graphs that have its node.

    Attributes
    ----------
    node, io, slot
    graph : str
        The newest of the graphs.
    graphs : tuple of str
    type : str
        Type of the operator.
    position : int or None
        Position of the node in execution order.
    """

    node: str
    io: Literal["input", "output"]
    slot: int
    graph: str
    graphs: tuple[str, ...] = ()
    type: str = ""
    position: int | None = None


def own_graph(graph: str, node: str) -> str:  # noqa: ARG001 - has the signature of `Program.first_of`
    """Return the graph itself; implements `OverviewSource.first_of` for a run with a single graph."""
    return graph


class StepColumn(NamedTuple):
    """Values and marks of some tensors at a step.

    Attributes
    ----------
    step : int
    tensors : int array, shape (n,)
        Indices in `OverviewSource.tensors`; the last entry of a repeated index counts.
    values : float array, shape (n,)
        NaN where unknown.
    marks : uint8 array, shape (n,)
    rows : int array, shape (n,)
        The source's own numbers of these values, for `OverviewSource.positions`.
    """

    step: int
    tensors: NDArray[np.int64]
    values: NDArray[np.float64]
    marks: NDArray[np.uint8]
    rows: NDArray[np.int64]


def ordinal(position: int | None) -> int:
    """Return a position in execution order; for a tensor without one, a number after all positions."""
    return 2**62 if position is None else position


class OverviewSource(Protocol):
    """Source of the numbers: a dump, or the reports of a training.

    Attributes
    ----------
    rank : int
    tensors : list of ListedTensor
    steps : int array
        Steps with statistics, in order.
    first_of : callable
        Returns the first graph in which a node, given by graph and name, is the same.
    """

    rank: int
    tensors: list[ListedTensor]
    steps: NDArray[np.int64]
    first_of: Callable[[str, str], str]

    def columns(self, statistic: OverviewStatistic) -> Iterator[StepColumn]:
        """Yield columns in the order of their steps; consecutive columns may belong to the same step."""

    def positions(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the positions of nodes in the execution order of the graph that ran, for `StepColumn.rows`."""


@dataclass(frozen=True, slots=True)
class OverviewChoice:
    """Selection of what the overview shows.

    Attributes
    ----------
    statistic : OverviewStatistic
    query : str
        Words, each part of the node's name or the operator's type, case-insensitive; all must match.
    offset, limit : int
        Index of the first tensor, and the maximum number of tensors.
    rows, columns : int
        Maximum number of cells.
    first_step, last_step : int
        Range of steps, inclusive.
    locate : tuple of str
        Addresses of tensors whose rows are returned; their steps are ignored.
    """

    statistic: OverviewStatistic = "abs_mean"
    query: str = ""
    offset: int = 0
    limit: int = 2**31 - 1
    rows: int = 400
    columns: int = 400
    first_step: int = 0
    last_step: int = 2**31 - 1
    locate: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Validate the choice. InputError."""
        if self.statistic not in STATISTICS:
            raise InputError(f"there is no overview of {self.statistic[:80]!r}; choose one of {', '.join(STATISTICS)}")
        if self.offset < 0 or min(self.limit, self.rows, self.columns) < 1:
            raise InputError("offset must not be negative; limit, rows and columns must be positive")


def overview(
    source: OverviewSource, hits: Mapping[int, Sequence[SessionHit]], choice: OverviewChoice, **unread: int
) -> Overview:
    """Return the overview of a rank.

    Parameters
    ----------
    source : OverviewSource
    hits : mapping of int to sequence of SessionHit
        Hits by step. Tensors known only from hits are shown as well.
    choice : OverviewChoice
    **unread
        `unread` and `unread_bytes` of the record.
    """
    hits_by_step = {
        step: rank_hits
        for step, step_hits in hits.items()
        if (rank_hits := [hit for hit in step_hits if _is_of(hit, source.rank)])
    }
    keys = (
        {_key(tensor, source): index for index, tensor in enumerate(source.tensors)}
        if hits_by_step or choice.locate
        else {}
    )
    tensors = [*source.tensors, *_only_hit(keys, hits_by_step, source)]
    chosen = _in_order(tensors, choice.query)
    magnitudes = _Magnitudes(len(tensors), chosen)
    total = len(chosen)
    chosen = chosen[choice.offset : choice.offset + choice.limit]
    steps = np.union1d(source.steps, np.fromiter(hits_by_step, np.int64, len(hits_by_step)))
    everything = np.array(_in_order(tensors, ""), np.int64)
    # Where something began does not depend on the part that is shown: one cell for everything finds it.
    whole = _Picture(len(tensors), everything, steps, 1, 1, positions_of=source.positions)
    steps = steps[(choice.first_step <= steps) & (steps <= choice.last_step)]
    picture = _Picture(
        len(tensors), np.array(chosen, np.int64), steps, choice.rows, choice.columns, positions_of=source.positions
    )
    for step in sorted(hits_by_step):
        hit_tensors = [(keys[_key(hit, source)], hit.position) for hit in hits_by_step[step]]
        whole.hit(step, hit_tensors)
        if choice.first_step <= step <= choice.last_step:
            picture.hit(step, hit_tensors)
    for column in source.columns(choice.statistic):
        whole.add(column)
        magnitudes.add(column)
        if choice.first_step <= column.step <= choice.last_step:
            picture.add(column)
    whole.flush()
    picture.flush()
    first = whole.first
    return Overview(
        statistic=choice.statistic,
        total=total,
        offset=choice.offset,
        tensors=len(chosen),
        steps=tuple(StepSpan(first=first, last=last) for first, last in picture.spans()),
        rows=tuple(_row(tensors[chosen[first]], source.rank, amount) for first, amount in picture.groups()),
        values=picture.values(),
        marks=picture.marks(),
        scale=None if choice.statistic in PERCENTAGES else magnitudes.scale(),
        first=None
        if first is None
        else OverviewPosition(
            address=_address(tensors[everything[first[0]]], source.rank),
            node=tensors[everything[first[0]]].node,
            row=picture.row(int(everything[first[0]])),
            step=first[1],
        ),
        located=tuple(_located(tensors, picture, keys, source, choice.locate)),
        **unread,
    )


def _is_of(hit: SessionHit, rank: int) -> bool:
    return hit.hit.hit and hit.rank == rank


_Key = tuple[str, str, str, int]
"""Identity of a tensor in a rank: the first graph in which its node is the same, node, io and slot."""


def _key(tensor: ListedTensor | SessionHit | TensorAddress, source: OverviewSource) -> _Key:
    return source.first_of(tensor.graph, tensor.node), tensor.node, tensor.io, tensor.slot


def _only_hit(
    keys: dict[_Key, int], hits: Mapping[int, Sequence[SessionHit]], source: OverviewSource
) -> list[ListedTensor]:
    """Return the tensors with hits but without statistics, and add their indices to `keys`."""
    listed_count = len(keys)
    further: list[ListedTensor] = []
    for step in sorted(hits):
        for hit in hits[step]:
            index = keys.setdefault(_key(hit, source), listed_count + len(further)) - listed_count
            if index == len(further):
                further.append(ListedTensor(hit.node, hit.io, hit.slot, hit.graph, (), hit.type, hit.position))
            if index >= 0:
                graphs = tuple(dict.fromkeys((*further[index].graphs, hit.graph)))
                further[index] = further[index]._replace(graphs=graphs)
    return further


def _in_order(tensors: Sequence[ListedTensor], query: str) -> list[int]:
    """Return the indices of the matching tensors in execution order; inputs before outputs."""
    words = query.lower().split()[:20]
    chosen = [
        index
        for index, tensor in enumerate(tensors)
        if not words or all(word in f"{tensor.node} {tensor.type}".lower() for word in words)
    ]

    def sort_key(index: int) -> tuple[bool, int, str, bool, int]:
        tensor = tensors[index]
        return tensor.position is None, tensor.position or 0, tensor.node, tensor.io == "output", tensor.slot

    return sorted(chosen, key=sort_key)


def _located(
    tensors: Sequence[ListedTensor],
    picture: _Picture,
    keys: Mapping[_Key, int],
    source: OverviewSource,
    addresses: Sequence[str],
) -> Iterator[OverviewPosition]:
    """Yield the positions of the requested tensors, as far as the overview has them."""
    for text in addresses:
        address = TensorAddress.parse(text)
        index = keys.get(_key(address, source)) if address.rank == source.rank else None
        if index is not None:
            yield OverviewPosition(address=text.rpartition("@")[0], node=tensors[index].node, row=picture.row(index))


def _address(tensor: ListedTensor, rank: int) -> str:
    return str(TensorAddress(rank, tensor.graph, tensor.node, tensor.slot, 0, tensor.io)).rpartition("@")[0]


def _row(tensor: ListedTensor, rank: int, amount: int) -> OverviewRow:
    return OverviewRow(
        address=_address(tensor, rank),
        node=tensor.node,
        slot=tensor.slot,
        io=tensor.io,
        graph=tensor.graph,
        graphs=tensor.graphs or (tensor.graph,),
        type=tensor.type,
        position=tensor.position,
        tensors=amount,
    )


def group_starts(amount: int, most: int) -> NDArray[np.int64]:
    """Return the start indices of at most `most` contiguous groups of nearly equal size."""
    groups = min(amount, most)
    return np.arange(groups, dtype=np.int64) * amount // max(groups, 1)


_PER_DECADE = 32
_DECADES = (-330, 310)
"""Powers of ten of all doubles."""
_MOST_DECADES = 6
"""Decades that colours can distinguish, on each side of the median."""
_WITHIN = 0.98
"""Share of the values within the scale: a few enormous ones must not make all others look alike."""


class _Magnitudes:
    """The magnitudes of the matching tensors in all steps, whatever part of them is shown, and however merged.

    Parameters
    ----------
    tensors : int
        Number of tensors.
    chosen : sequence of int
        Indices of the matching ones.
    """

    def __init__(self, tensors: int, chosen: Sequence[int]) -> None:
        self._matches = np.zeros(tensors, bool)
        self._matches[list(chosen)] = True
        self._counts = np.zeros((_DECADES[1] - _DECADES[0]) * _PER_DECADE, np.int64)
        self._smallest, self._largest = np.inf, 0.0

    def add(self, column: StepColumn) -> None:
        """Add the values of a step."""
        sizes = np.abs(column.values[self._matches[column.tensors]])
        sizes = sizes[np.isfinite(sizes) & (sizes > 0)]
        if not sizes.size:
            return
        self._smallest, self._largest = min(self._smallest, sizes.min()), max(self._largest, sizes.max())
        bins = ((np.log10(sizes) - _DECADES[0]) * _PER_DECADE).astype(np.int64)
        self._counts += np.bincount(bins, minlength=self._counts.size)

    def scale(self) -> OverviewScale | None:
        """Return the scale of the colours; None if no value has a magnitude."""
        total = self._counts.sum()
        if not total:
            return None
        ends = np.cumsum(self._counts)

        def at(share: float) -> float:
            position = int(np.searchsorted(ends, share * (total - 1), "right"))
            return float(np.clip(10 ** ((position + 0.5) / _PER_DECADE + _DECADES[0]), self._smallest, self._largest))

        middle = at(0.5)
        high = min(at(_WITHIN), middle * 10**_MOST_DECADES)
        low = max(at(1 - _WITHIN), middle / 10**_MOST_DECADES)
        low, high = rounded(np.array([low if low < high else high / 10, high])).tolist()
        return OverviewScale(low=low, high=high, is_cut=bool(high < self._largest or low > self._smallest))


@dataclass(slots=True)
class _Picture:
    """The cells, filled step by step; only they and the current step are in memory.

    Attributes
    ----------
    tensors : int
        Number of tensors.
    chosen : int array
        Indices of the shown tensors, in order.
    steps : int array
    most_rows, most_columns : int
    positions_of : callable
        `OverviewSource.positions`.
    first : tuple of (int, int) or None
        Of the first step with a hit, else of the first with a NaN or an Inf: the index of the first shown tensor with
        such a value, else with a hit, in the order in which that step ran; and the step.
    """

    tensors: int
    chosen: NDArray[np.int64]
    steps: NDArray[np.int64]
    most_rows: int
    most_columns: int
    positions_of: Callable[[NDArray[np.int64]], NDArray[np.int64]]
    first: tuple[int, int] | None = field(init=False, default=None)
    _row_of: NDArray[np.int64] = field(init=False)
    _tops: NDArray[np.int64] = field(init=False)
    _lefts: NDArray[np.int64] = field(init=False)
    _high: NDArray[np.float64] = field(init=False)
    _low: NDArray[np.float64] = field(init=False)
    _marks: NDArray[np.uint8] = field(init=False)
    _step: int | None = field(init=False, default=None)
    _values_now: NDArray[np.float64] = field(init=False)
    _marks_now: NDArray[np.uint8] = field(init=False)
    _rows_now: NDArray[np.int64] = field(init=False)

    def __post_init__(self) -> None:
        amount = len(self.chosen)
        # Tensors that are not shown have the position behind the last.
        self._row_of = np.full(self.tensors, amount, np.int64)
        self._row_of[self.chosen] = np.arange(amount)
        self._tops = group_starts(amount, self.most_rows)
        self._lefts = group_starts(len(self.steps), self.most_columns)
        shape = (len(self._tops), len(self._lefts))
        self._high, self._low = np.full(shape, np.nan), np.full(shape, np.nan)
        self._marks = np.zeros(shape, np.uint8)
        self._values_now, self._marks_now = np.empty(amount + 1), np.empty(amount + 1, np.uint8)
        self._rows_now = np.empty(amount + 1, np.int64)

    def add(self, column: StepColumn) -> None:
        """Add values of tensors at a step; later values of the same tensor and step replace earlier ones."""
        if column.step != self._step:
            self.flush()
            self._step = column.step
            self._values_now[:], self._marks_now[:] = np.nan, NOTHING
        positions = self._row_of[column.tensors]
        self._values_now[positions] = column.values
        self._marks_now[positions] = column.marks
        self._rows_now[positions] = column.rows

    def flush(self) -> None:
        """Merge the current step into its cells."""
        if self._step is None or not self._high.size:
            return
        at = self._column(self._step)
        values = self._values_now[:-1]
        self._high[:, at] = np.fmax(self._high[:, at], np.fmax.reduceat(values, self._tops))
        self._low[:, at] = np.fmin(self._low[:, at], np.fmin.reduceat(values, self._tops))
        sick = self._marks_now[:-1] & (NAN | INFINITE)
        if sick.any() and (self.first is None or self.first[1] == self._step):
            # Rows of graphs that ran in different steps have no common order.
            indices = np.flatnonzero(sick)
            self.first = int(indices[np.argmin(self.positions_of(self._rows_now[indices]))]), self._step
        # In here, a set bit means that there are values, so that it can be combined by OR like the others.
        self._marks[:, at] |= np.bitwise_or.reduceat(self._marks_now[:-1] ^ NOTHING, self._tops)
        self._step = None

    def hit(self, step: int, tensors: Sequence[tuple[int, int | None]]) -> None:
        """Mark tensors that hit at a step, each given with its position in the step's execution order."""
        indices = self._row_of[np.array([tensor for tensor, _ in tensors], np.int64)]
        positions = np.array([ordinal(position) for _, position in tensors], np.int64)
        is_shown = indices < len(self.chosen)
        indices, positions = indices[is_shown], positions[is_shown]
        if not indices.size:
            return
        self._marks[np.searchsorted(self._tops, indices, "right") - 1, self._column(step)] |= HIT
        if self.first is None:
            self.first = int(indices[np.lexsort((indices, positions))[0]]), step

    def row(self, tensor: int) -> int | None:
        """Return the row of a tensor; None if it is not shown."""
        index = self._row_of[tensor]
        return int(np.searchsorted(self._tops, index, "right")) - 1 if index < len(self.chosen) else None

    def _column(self, step: int) -> int:
        return int(np.searchsorted(self._lefts, np.searchsorted(self.steps, step), "right")) - 1

    def spans(self) -> list[tuple[int, int]]:
        """Return the first and the last step of each column."""
        ends = np.append(self._lefts[1:], len(self.steps))[: len(self._lefts)] - 1
        return list(zip(self.steps[self._lefts].tolist(), self.steps[ends].tolist(), strict=True))

    def groups(self) -> list[tuple[int, int]]:
        """Return for each row the index of its first tensor among those chosen, and the number of its tensors."""
        amounts = np.diff(np.append(self._tops, len(self.chosen)))
        return list(zip(self._tops.tolist(), amounts.tolist(), strict=True))

    def values(self) -> tuple[tuple[float | None, ...], ...]:
        """Return the value of each cell."""
        values = rounded(np.where(np.abs(self._low) > np.abs(self._high), self._low, self._high))
        shown = values.astype(object)
        shown[~np.isfinite(values)] = None
        return tuple(map(tuple, shown.tolist()))

    def marks(self) -> tuple[tuple[int, ...], ...]:
        """Return the marks of each cell."""
        return tuple(map(tuple, (self._marks ^ NOTHING).tolist()))


def rounded(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return numbers rounded to `DIGITS` significant digits."""
    with np.errstate(all="ignore"):
        magnitude = np.floor(np.log10(np.abs(values)))
        scale = 10.0 ** np.clip(DIGITS - 1 - magnitude, -290, 290)
        short: NDArray[np.float64] = np.round(values * scale) / scale
    return np.where(np.isfinite(short), short, values)


def needed(statistic: OverviewStatistic) -> tuple[str, ...]:
    """Return the columns that a statistic is derived from: measures of a tensor, and percentages of its elements."""
    return DERIVED[statistic].of if statistic in DERIVED and statistic not in PERCENTAGES else (statistic,)


def statistic_of(statistic: OverviewStatistic, columns: Columns) -> NDArray[np.float64]:
    """Return a statistic, derived from the columns that it needs."""
    return columns[statistic] if statistic in columns else derived(statistic, columns)


def percentages(counts: Mapping[str, NDArray[np.float64]]) -> Columns:
    """Return the percentages of zero, negative and non-finite elements.

    Parameters
    ----------
    counts : mapping of str to array
        Counts of tensors by name; NaN where unknown.
    """
    return {name: derived(name, counts) for name in PERCENTAGES}


def marks_of(counts: Mapping[str, NDArray[np.float64]]) -> NDArray[np.uint8]:
    """Return the marks of tensors with these counts; unknown counts set no mark."""
    infinite = (counts["neg_inf_count"] > 0) | (counts["pos_inf_count"] > 0)
    marks: NDArray[np.uint8] = np.where(counts["nan_count"] > 0, NAN, 0).astype(np.uint8)
    return marks | np.where(infinite, INFINITE, 0).astype(np.uint8)
