"""Statistics of tensors in messages.

MindSpore sends few numbers, in single precision, and not all of them are what they claim. Up to 2.1 extremes and mean
are those of the finite elements; later they include Inf, and a NaN makes all of them NaN. Newer versions also count
infinite elements as positive and negative ones. From 20,000 elements on the mean is that of the first piece. Numbers
that such a message does not determine are unknown here. Tensight's agents send everything, in double precision.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tensight.tensors import MEASURES, TensorStatistics
from tensight.tensors.narrow_types import dtype_name
from tensight.tensors.schema import FIRST_MEASURES, WORDS
from tensight.wire.data_types import data_type_of, numpy_dtype, shape_of
from tensight.wire.debugger_pb2 import Statistics, TensorBase, TensorSummary
from tensight.wire.errors import WireError
from tensight.wire.text import name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tensight.wire.telemetry_pb2 import StatisticsRow
    from tensight.wire.tensor_pieces import Io

MEAN_BELOW = 20_000
"""Number of elements below which MindSpore's mean is right in every version."""

_MOST_ELEMENTS = 2**63 - 1
_LARGEST_SINGLE = 3.4028234663852886e38


@dataclass(frozen=True, slots=True)
class ReceivedBase:
    """Type and size of a tensor.

    Attributes
    ----------
    data_type : int
        DataType number.
    dtype : str
        Its name; empty if it has none here.
    shape : tuple of int
    size_bytes : int
    """

    data_type: int
    dtype: str
    shape: tuple[int, ...]
    size_bytes: int


@dataclass(frozen=True, slots=True)
class ReceivedStatistics:
    """Statistics of a tensor as received from a process.

    Its counts and measures are also attributes, None if unknown.

    Attributes
    ----------
    dtype : str
    shape : tuple of int
    size_bytes : int
    numbers : mapping of str to number
        The known ones of `tensors.COUNTS` and `tensors.MEASURES`.
    content_hash : int or None
    partial : bool
        Whether anything is unknown.
    """

    dtype: str
    shape: tuple[int, ...]
    size_bytes: int
    numbers: Mapping[str, float]
    content_hash: int | None = None
    partial: bool = True

    def __getattr__(self, name: str) -> float | None:
        """Return a count or a measure."""
        if name not in WORDS:
            raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}", name=name, obj=self)
        return self.numbers.get(name)

    @property
    def whole(self) -> TensorStatistics | None:
        """The same as complete statistics; None if anything is missing."""
        if self.partial:
            return None
        numbers: dict[str, Any] = {**self.numbers, "content_hash": self.content_hash}
        return TensorStatistics(self.dtype, self.shape, self.size_bytes, **numbers)


@dataclass(frozen=True, slots=True)
class ReceivedRow:
    """Statistics that a process sent while it ran.

    Attributes
    ----------
    graph, node : str
    slot : int
    io : {"output", "input"}
    position : int
        Position in the execution order.
    statistics : ReceivedStatistics or None
        None if the process has no such tensor.
    """

    graph: str
    node: str
    slot: int
    io: Io
    position: int
    statistics: ReceivedStatistics | None


def base_of(dtype: str, shape: tuple[int, ...], size_bytes: int) -> TensorBase:
    """Return type and size of a tensor as a message; a dtype that the protocol lacks is omitted."""
    return TensorBase(data_type=data_type_of(dtype), shape=shape, data_size=size_bytes)


def received_base(message: TensorBase) -> ReceivedBase | None:
    """Read type and size of a tensor; None if the process has no such tensor.

    Raises
    ------
    WireError
        There cannot be such a tensor.
    """
    dtype = numpy_dtype(message.data_type)
    shape = shape_of(message.shape, dtype.itemsize if dtype else 1)
    if message.data_size < 0:
        raise WireError(f"a tensor has {message.data_size} bytes")
    # an empty tensor has no bytes either, but a type, and a dimension of length 0
    if not message.data_size and not (message.data_type and 0 in shape):
        return None
    return ReceivedBase(message.data_type, dtype_name(dtype) if dtype else "", shape, message.data_size)


def missing_base() -> TensorBase:
    """Return the message that there is no such tensor."""
    return TensorBase(shape=[0])


def missing_summary() -> TensorSummary:
    """Return the message that there is no such tensor."""
    nothing = Statistics(max_value=-math.inf, min_value=math.inf)
    return TensorSummary(tensor_base=TensorBase(), statistics=nothing)


def summary_of(statistics: TensorStatistics, complete: bool = True) -> TensorSummary:
    """Return statistics as a message.

    Parameters
    ----------
    statistics : TensorStatistics
    complete : bool
        Include fields that only Tensight reads; otherwise only what MindSpore would send.
    """
    row = statistics
    message = Statistics(
        is_bool=row.is_bool,
        max_value=_single(row.max),
        min_value=_single(row.min),
        avg_value=_single(row.mean),
        count=row.count,
        neg_zero_count=row.negative_count,
        pos_zero_count=row.positive_count,
        nan_count=row.nan_count,
        neg_inf_count=row.neg_inf_count,
        pos_inf_count=row.pos_inf_count,
        zero_count=row.zero_count,
    )
    if complete:
        message.complete = True
        for each in FIRST_MEASURES:
            setattr(message, each, getattr(row, each))
        message.measures.extend(getattr(row, each) for each in _WITHOUT_FIELD)
        message.content_hash = row.content_hash
    return TensorSummary(tensor_base=base_of(row.dtype, row.shape, row.size_bytes), statistics=message)


def _single(value: float) -> float:
    """Clip a number to the range of single precision, so that a finite one stays finite."""
    return max(-_LARGEST_SINGLE, min(_LARGEST_SINGLE, value)) if math.isfinite(value) else value


def received_statistics(message: TensorSummary) -> ReceivedStatistics | None:
    """Read statistics; None if the process has no such tensor.

    Raises
    ------
    WireError
        There cannot be such a tensor, or its numbers contradict each other.
    """
    base = received_base(message.tensor_base)
    if base is None:
        return None
    numbers = message.statistics
    if numbers.count > _MOST_ELEMENTS:
        raise WireError(f"statistics of {numbers.count:,} elements; no tensor has as many")
    return _complete(base, numbers) if numbers.complete else _partial(base, numbers)


def received_row(message: StatisticsRow) -> ReceivedRow:
    """Read a row of statistics.

    Raises
    ------
    WireError
        There cannot be such a slot, name or tensor, or its numbers contradict each other.
    """
    if message.slot < 0:
        raise WireError(f"a row of statistics is of slot {message.slot}; slots count from 0")
    return ReceivedRow(
        graph=name(message.graph),
        node=name(message.node),
        slot=message.slot,
        io="input" if message.input else "output",
        position=message.position,
        statistics=received_statistics(message.summary),
    )


def _complete(base: ReceivedBase, numbers: Statistics) -> ReceivedStatistics:
    counts = _counts(numbers)
    total = sum(counts.values())
    if total != numbers.count or numbers.count != math.prod(base.shape):
        raise WireError(
            f"statistics of a tensor of shape {list(base.shape)} count {numbers.count:,} elements, {total:,} by kind"
        )
    some = counts["zero_count"] + counts["negative_count"] + counts["positive_count"] > 0
    # An older process does not send the newest measures.
    newer = {**dict.fromkeys(_WITHOUT_FIELD, math.nan), **dict(zip(_WITHOUT_FIELD, numbers.measures, strict=False))}
    sent = {**{each: float(getattr(numbers, each)) for each in FIRST_MEASURES}, **newer}
    return ReceivedStatistics(
        base.dtype,
        base.shape,
        base.size_bytes,
        {"count": numbers.count, **counts, **(sent if some else dict.fromkeys(sent, math.nan))},
        content_hash=numbers.content_hash or None,
        partial=False,
    )


_WITHOUT_FIELD = tuple(name for name in MEASURES if name not in FIRST_MEASURES)
"""Measures without a field in the message, in the order of its ``measures``; the first ones have a field."""


def _counts(numbers: Statistics) -> dict[str, Any]:
    """Return the counts under correct names: the two called "zero" are of elements below and above zero."""
    return {
        "nan_count": numbers.nan_count,
        "neg_inf_count": numbers.neg_inf_count,
        "pos_inf_count": numbers.pos_inf_count,
        "zero_count": numbers.zero_count,
        "negative_count": numbers.neg_zero_count,
        "positive_count": numbers.pos_zero_count,
    }


def _partial(base: ReceivedBase, numbers: Statistics) -> ReceivedStatistics:
    values: dict[str, float] = {"count": numbers.count}
    counts = _finite_counts(numbers)
    if counts is not None:
        extremes_and_mean = zip(("min", "max", "mean"), _extremes_and_mean(numbers, counts), strict=True)
        values |= {**counts, **{each: value for each, value in extremes_and_mean if value is not None}}
    return ReceivedStatistics(base.dtype, base.shape, base.size_bytes, values)


def _finite_counts(numbers: Statistics) -> dict[str, Any] | None:
    """Return the counts with those below and above zero without infinite elements; None if they are inconsistent."""
    counts = _counts(numbers)
    infinite = counts["neg_inf_count"] + counts["pos_inf_count"]
    surplus = sum(counts.values()) - numbers.count
    if surplus and surplus == infinite:
        counts["negative_count"] -= counts["neg_inf_count"]
        counts["positive_count"] -= counts["pos_inf_count"]
    elif surplus:
        return None
    return counts if min(counts.values()) >= 0 else None


def _extremes_and_mean(numbers: Statistics, counts: dict[str, int]) -> tuple[float | None, float | None, float | None]:
    """Return min, max and mean of the finite elements: NaN if there are none, None if unknown."""
    zeros, negative, positive = counts["zero_count"], counts["negative_count"], counts["positive_count"]
    finite = zeros + negative + positive
    if not finite:
        return (math.nan,) * 3
    if numbers.is_bool:
        return float(zeros == 0), float(positive > 0), positive / finite
    low, high, mean = (
        value if math.isfinite(value) else None for value in (numbers.min_value, numbers.max_value, numbers.avg_value)
    )
    return low, high, mean if numbers.count < MEAN_BELOW else None
