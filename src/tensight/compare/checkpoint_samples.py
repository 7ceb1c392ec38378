"""Samples of tensors: whether two have the same values under other names, in another order or axis order."""

from __future__ import annotations

import hashlib
import math
from collections import Counter, defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from tensight.compare.checkpoint_matching import FUSED, SAME_NAME, Matching, Pair
from tensight.compare.checkpoint_roles import is_parameter
from tensight.compare.checkpoint_values import compare_values

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tensight.checkpoints import Checkpoint, Entry

MUCH_NEARER = 0.1
_ALIKE = 0.3
"""Difference of two tensors with the same values, beside how they vary: a correlation of more than 0.95."""

_SAMPLE = 4096
"""Number of elements that are compared first, to decide whether two tensors have the same values."""

SMALLEST_TIED = 16
"""Tensors with fewer elements may be equal by chance."""


def sample_of(entry: Entry) -> NDArray[np.float64]:
    """Return the first elements as float64; an empty array if any is not finite or all are the same."""
    values = entry.read(0, min(entry.size, _SAMPLE))
    if values.dtype.kind == "c":
        values = values.view(values.real.dtype)
    with np.errstate(invalid="ignore"):
        numbers = values.astype(np.float64)
    if not np.isfinite(numbers).all() or (numbers == numbers[:1]).all():
        return np.empty(0)
    return numbers


def _distance(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    if a.shape != b.shape or not a.size:
        return math.inf
    with np.errstate(over="ignore"):
        return float(np.sqrt(np.square(a - b).sum()))


def holds_another(pair: Pair, others: Sequence[Pair], samples: dict[int, NDArray[np.float64]]) -> Entry | None:
    """Return the tensor of A whose values a tensor of B contains instead of its own.

    Two tensors of small numbers are near to each other beside one of large numbers. So the values must be alike in
    themselves: their difference is small beside what they are, and beside how they vary.
    """

    def sample(entry: Entry) -> NDArray[np.float64]:
        numbers = samples.get(id(entry))
        if numbers is None:
            numbers = samples[id(entry)] = sample_of(entry)
        return numbers

    values = sample(pair.b)
    distance = _distance(values, sample(pair.a))
    if not math.isfinite(distance):
        return None
    nearest = min(
        (other.a for other in others if other is not pair),
        key=lambda entry: _distance(values, sample(entry)),
        default=None,
    )
    if nearest is None or not _distance(values, sample(nearest)) < MUCH_NEARER * distance:
        return None
    return nearest if _are_alike(values, sample(nearest)) else None


def _are_alike(values: NDArray[np.float64], others: NDArray[np.float64]) -> bool:
    centred = values - values.mean(), others - others.mean()
    smaller = min(float(np.linalg.norm(numbers)) for numbers in centred)
    return _distance(values, others) < _ALIKE * smaller


def correlation(a: Entry, b: Entry) -> float:
    """Return the correlation of the first elements of two tensors; NaN if one does not vary, or is not finite."""
    x, y = sample_of(a), sample_of(b)
    if x.shape != y.shape or not x.size:
        return math.nan
    x, y = x - x.mean(), y - y.mean()
    norms = float(np.linalg.norm(x)) * float(np.linalg.norm(y))
    return float(x @ y) / norms if norms else math.nan


def with_turned_squares(matching: Matching) -> Matching:
    """Transpose square matrices if other matrices were transposed and if their values then fit better.

    Unlike for other matrices, the shape does not tell.
    """
    if not any(pair.is_transposed and pair.rule != SAME_NAME for pair in matching.pairs):
        return matching
    return replace(matching, pairs=tuple(_with_turned_square(pair) for pair in matching.pairs))


def _with_turned_square(pair: Pair) -> Pair:
    shape = pair.a.shape
    if len(shape) != 2 or shape[0] != shape[1] or pair.rule == SAME_NAME:
        return pair
    # Of a fused matrix only some rows are read.
    is_of_a = pair.rule != FUSED or "[" not in pair.a.name
    turned = (pair.a if is_of_a else pair.b).transposed()
    if turned is None:
        return pair
    other = replace(pair, a=turned, is_transposed=True) if is_of_a else replace(pair, b=turned, is_transposed=True)
    before = _distance(sample_of(pair.a), sample_of(pair.b))
    return other if _distance(sample_of(other.a), sample_of(other.b)) < MUCH_NEARER * before else pair


def is_square(pair: Pair) -> bool:
    """Tell whether a pair is of square matrices, whose shape does not show that they are transposed."""
    shape = pair.a.shape
    return len(shape) == 2 and shape[0] == shape[1] and pair.rule != FUSED


def sample_is_nearer(turned: Entry, pair: Pair) -> bool:
    """Tell whether a tensor of B is far nearer to A's transposed than to A's."""
    values = sample_of(pair.b)
    return _distance(values, sample_of(turned)) < MUCH_NEARER * _distance(values, sample_of(pair.a))


def tied_groups(checkpoint: Checkpoint) -> list[tuple[str, ...]]:
    """Return groups of names whose tensors share memory or have equal values."""
    groups = list(checkpoint.tied)
    grouped = {name for group in groups for name in group}
    alike: dict[object, list[Entry]] = defaultdict(list)
    shapes = Counter(entry.shape for entry in checkpoint.entries.values())
    for entry in checkpoint.entries.values():
        if entry.size < SMALLEST_TIED or shapes[entry.shape] < 2 or entry.name in grouped or not is_parameter(entry):
            continue
        values = sample_of(entry)
        if values.size:
            alike[entry.shape, entry.dtype, values.tobytes()].append(entry)
    for entries in alike.values():
        if len(entries) > 1:
            same = compare_values([(entries[0], other) for other in entries[1:]], threads=1)
            equal = [entry.name for entry, row in zip(entries[1:], same, strict=True) if row.is_same]
            if equal:
                groups.append((entries[0].name, *equal))
    return groups


def digest(entry: Entry) -> bytes:
    """Return a digest of a tensor's first and last values, which identifies it under another name."""
    hashed = hashlib.blake2b(repr((entry.shape, entry.dtype.name)).encode(), digest_size=16)
    count = min(entry.size, _SAMPLE)
    for start in sorted({0, 0 if entry.content.is_sequential else entry.size - count}):
        hashed.update(entry.read(start, count).view(np.uint8).data)
    return hashed.digest()
