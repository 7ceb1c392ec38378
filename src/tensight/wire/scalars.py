"""Scalars of a training that are not tensors of its graphs: loss, learning rates, gradient norm.

They are sent as tensors with one element, of a graph with a reserved name, so no new message is needed.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tensight.wire.blocks import BlockTensor, block_message
from tensight.wire.data_types import data_type_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tensight.wire.blocks import ReceivedBlock
    from tensight.wire.telemetry_pb2 import StatisticsRows

GRAPH = "tensight.scalars"
_FIRST_NUMBER = 2**24
"""Above all slot ids of tensors."""

_FLOAT64 = data_type_of("float64")


class Scalar(NamedTuple):
    """A scalar of a training at a step.

    Attributes
    ----------
    name : str
        ``loss``, ``learning_rate``, ``gradient_norm``, ``gradient_norm_before_clipping``.
    slot : int
        Index among several: backward passes of a step, parameter groups.
    value : float
    """

    name: str
    slot: int
    value: float


def scalars_message(iteration: int, scalars: Sequence[Scalar]) -> StatisticsRows:
    """Return scalars of an iteration as a message."""
    declared = [BlockTensor(_FIRST_NUMBER + at, GRAPH, scalar.name, scalar.slot) for at, scalar in enumerate(scalars)]
    values = np.array([scalar.value for scalar in scalars], np.float64)
    return block_message(
        iteration,
        declared,
        np.array([tensor.number for tensor in declared], np.int64),
        np.full(len(scalars), _FLOAT64, np.int64),
        [()] * len(scalars),
        _counts(values),
        _numbers(values),
        np.zeros(len(scalars), np.uint64),
    )


def split_scalars(block: ReceivedBlock) -> tuple[list[Scalar], list[int]]:
    """Return the scalars among the rows of a block, and the rows that are tensors."""
    scalars: list[Scalar] = []
    tensors: list[int] = []
    for row, tensor in enumerate(block.tensors):
        if tensor.graph == GRAPH:
            scalars.append(Scalar(tensor.node, tensor.slot, _value(block.counts[row], block.numbers[row])))
        else:
            tensors.append(row)
    return scalars, tensors


def _counts(values: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the counts of tensors with one element each: all, NaN, -Inf, +Inf, zero, negative, positive."""
    finite = np.isfinite(values)
    kinds = (
        np.ones_like(finite),
        np.isnan(values),
        values == -np.inf,
        values == np.inf,
        values == 0,
        finite & (values < 0),
        finite & (values > 0),
    )
    return np.stack(kinds, axis=1).astype(np.int64)


def _numbers(values: NDArray[np.float64]) -> NDArray[np.float64]:
    finite = np.where(np.isfinite(values), values, np.nan)
    size = np.abs(finite)
    return np.stack([finite, finite, finite, size, np.where(np.isnan(finite), np.nan, 0.0), size], axis=1)


def _value(counts: NDArray[np.int64], numbers: NDArray[np.float64]) -> float:
    if counts[1]:
        return math.nan
    if counts[2] or counts[3]:
        return math.inf if counts[3] else -math.inf
    return float(numbers[2])
