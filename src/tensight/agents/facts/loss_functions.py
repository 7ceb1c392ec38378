"""Rows of ``loss_functions``, from the arrays that a loss function was given."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tensight.agents.facts.padding import filled, within
from tensight.agents.facts.samples import MOST_ELEMENTS, distinct, shape_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

MOST_CLASSES = 4096
"""Number of classes of a batch whose targets are counted."""

LEAST_COPIED, _LEAST_FEATURES, MOST_COPIED = 8, 3, 64
"""Minimum number of samples and of features with which targets are looked for among inputs; of those that are named."""

_ROUNDING = 1e-6
"""Difference of a correlation from 1 that float32 explains."""

OF_CLASSES = ("cross_entropy", "nll_loss")
_WITH_REACH = ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "bce")
_SQUASHING = frozenset(("softmax", "log_softmax", "sigmoid", "logsigmoid", "tanh", "relu"))
_DISTINCT = 4096


class Activation(NamedTuple):
    """A function on the way from the model's last layer to a loss function.

    Attributes
    ----------
    name : str
    axis : int
        Of a softmax, from the front; otherwise -1.
    size : int
        Number of elements along that axis; otherwise -1.
    """

    name: str
    axis: int = -1
    size: int = -1


def before_facts(before: Sequence[Activation], line: Callable[[str], str]) -> dict[str, Any]:
    """Return the facts of what made the input of a loss function.

    Parameters
    ----------
    before : sequence of Activation
        The last one first.
    line : callable (function) -> str
        Returns where a function was called.
    """
    softmax = next((each for each in before if each.axis >= 0), None)
    activations = [each.name for each in before if each.name in _SQUASHING]
    return {
        "before": " ".join(each.name for each in before),
        "before_axis": -1 if softmax is None else softmax.axis,
        "before_size": -1 if softmax is None else softmax.size,
        "before_line": line(activations[0]) if activations else "",
    }


def input_facts(function: str, shape: Sequence[int], values: NDArray[Any]) -> dict[str, Any]:
    """Return the facts of the input of a loss function.

    Parameters
    ----------
    function : str
    shape : sequence of int
    values : ndarray
        All of it, or the rows of a large one that `rows_read` chooses.
    """
    facts: dict[str, Any] = {"input_shape": shape_text(shape)}
    numbers = values.astype(np.float64)
    if not numbers.size:
        return facts
    facts |= {
        "input_min": float(numbers.min()),
        "input_max": float(numbers.max()),
        "input_deviation": float(numbers.std()),
        "input_spread": _between_samples(numbers),
    }
    if function in (*OF_CLASSES, "ctc_loss") and numbers.ndim:
        axis = numbers.ndim - 1 if function == "ctc_loss" else min(numbers.ndim - 1, 1)
        with np.errstate(over="ignore"):
            mass = float(np.exp(numbers).sum(axis).mean())
        facts |= {"classes": int(shape[axis]), "class_axis": axis, "row_mass": mass}
    return facts


def _between_samples(values: NDArray[np.float64]) -> float:
    """Return the standard deviation between samples, over all elements of one; NaN if there is one sample or none."""
    return float(np.sqrt(values.var(0).mean())) if values.ndim and len(values) > 1 else math.nan


def target_facts(
    function: str,
    shape: Sequence[int],
    values: NDArray[Any],
    before: Sequence[Activation],
    *,
    ids: NDArray[Any] | None = None,
    mask: NDArray[Any] | None = None,
    ignored_index: int = -100,
    class_weights: NDArray[Any] | None = None,
    padding_index: int = -1,
    decoder_ids: NDArray[Any] | None = None,
) -> dict[str, Any]:
    """Return the facts of the target of a loss function.

    Parameters
    ----------
    function : str
    shape : sequence of int
    values : ndarray
        All of it, or the rows of a large one that `rows_read` chooses.
    before : sequence of Activation
        What made the input.
    ids : ndarray, shape (sequences, positions), optional
        The ids of words that the model read in this step.
    mask : ndarray, shape (sequences, positions), optional
        Which of them count: 0 for padding.
    ignored_index : int
        The class that does not count.
    class_weights : ndarray, shape (classes,), optional
    padding_index : int
        The id that the embedding of these words takes for padding; -1 if it takes none.
    decoder_ids : ndarray, shape (sequences, positions), optional
        Those that a decoder read, which has a target for each.
    """
    facts: dict[str, Any] = {"target_shape": shape_text(shape)}
    if not values.size or np.iscomplexobj(values):
        return facts
    if function in OF_CLASSES:
        kept = values != ignored_index
        facts |= {
            "ignored": 1 - float(kept.mean()),
            "ignored_index": ignored_index if ignored_index >= 0 else -1,
            "offset": -1 if ids is None else _offset(values, ids, ignored_index),
            "padding": math.nan if ids is None else _padding(values, ids, ignored_index),
        }
        if decoder_ids is not None and math.isnan(facts["padding"]) and values.size <= MOST_ELEMENTS:
            facts["padding"] = _padding(values, decoder_ids, ignored_index)
        if ids is not None and padding_index >= 0:
            facts["padding_index"] = padding_index
            facts["padding_words"] = _padding_words(values, ids, ignored_index, padding_index)
        if ids is not None and mask is not None and ids.shape == mask.shape and facts["offset"] >= 0:
            facts["ends_ignored"] = _ends_ignored(values, ids, mask, facts["offset"], ignored_index)
            facts["padding"] = _padding_by_mask(kept, mask, facts["offset"])
        if ids is not None and facts["offset"] >= 0 and values.size <= MOST_ELEMENTS:
            facts["later_ignored"] = _later_ignored(kept, ids, mask, facts["offset"])
        if ids is not None and facts["offset"] == 0:
            facts["hidden_ignored"] = _hidden_ignored(values, ids, ignored_index)
        values = values[kept]
        if not values.size:
            return facts
        classes, counts = distinct(values)
        facts |= {
            "target_classes": " ".join(map(str, classes[:MOST_CLASSES].tolist())),
            "target_counts": " ".join(map(str, counts[:MOST_CLASSES].tolist())),
        }
        if class_weights is not None:
            facts["weightless"] = float((class_weights[values.astype(np.int64)] == 0).mean())
            facts["class_weights"] = " ".join(
                f"{each:.4g}" for each in class_weights[classes[:MOST_CLASSES].astype(np.int64)]
            )
    numbers = values.astype(np.float64)
    if numbers.ndim == 2:
        facts["target_row_sum"] = float(numbers.sum(1).mean())
    facts |= {
        "target_min": float(numbers.min()),
        "target_max": float(numbers.max()),
        "target_mean": float(numbers.mean()),
        "target_variance": float(numbers.var()),
        "target_spread": _between_samples(numbers),
        "target_distinct": min(len(distinct(numbers)[0]), _DISTINCT) if numbers.size <= 1 << 16 else _DISTINCT,
        "target_is_whole": bool((numbers == np.round(numbers)).all()),
    }
    lowest, highest = _reach([each.name for each in before] if function in _WITH_REACH else [])
    if math.isfinite(lowest) or math.isfinite(highest):
        facts["outside"] = float(((numbers < lowest - 1e-6) | (numbers > highest + 1e-6)).mean())
    return facts


def copied_facts(target: NDArray[Any], given: NDArray[Any]) -> dict[str, Any]:
    """Return of which features the targets are a multiple plus a constant, up to rounding.

    Parameters
    ----------
    target : ndarray, shape (samples,) or (samples, 1)
    given : ndarray, shape (samples, features) or (samples, times, features)
        What the model was given; of a sequence, its last time is looked at.
    """
    values = target.reshape(-1).astype(np.float64)
    features = (given if given.ndim == 2 else given[:, -1]).astype(np.float64)
    if len(values) != len(features) or len(values) < LEAST_COPIED or features.shape[1] < _LEAST_FEATURES:
        return {}
    values = values - values.mean()
    scale = float(np.sqrt(values @ values))
    if not scale or not math.isfinite(scale):
        return {}
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        centred = features - features.mean(0)
        cosines = (values @ centred) / (scale * np.sqrt((centred**2).sum(0)))
    is_equal = np.abs(cosines) > 1 - _ROUNDING
    equal = np.flatnonzero(is_equal)
    others = cosines[~is_equal & np.isfinite(cosines)]
    related = len(values) * float((others**2).mean()) if others.size else math.nan
    return {
        "features": features.shape[1],
        "copied": " ".join(map(str, equal[:MOST_COPIED].tolist())),
        "related": related,
    }


def empty_facts(target: NDArray[Any], empty: NDArray[np.bool_]) -> dict[str, Any]:
    """Return the share of the samples without content, and that of the most usual target among these.

    Parameters
    ----------
    target : ndarray, shape (samples,) or (samples, numbers)
    empty : ndarray of bool, shape (samples,)
        Which of the samples have one value everywhere.
    """
    usual = Counter(row.tobytes() for row in target[empty]).most_common(1)
    facts = {"empty": float(empty.mean())}
    return facts | {"empty_usual": usual[0][1] / int(empty.sum())} if usual else facts


def _reach(before: list[str]) -> tuple[float, float]:
    """Return the least and the greatest value that the functions before a loss function let through."""
    if not before:
        return -math.inf, math.inf
    if before[0] in ("softmax", "sigmoid", "hardsigmoid"):
        return 0.0, 1.0
    if before[0] == "tanh":
        return -1.0, 1.0
    if before[0] in ("relu", "softplus", "exp"):
        return 0.0, math.inf
    return -math.inf, math.inf


def _padding(target: NDArray[Any], ids: NDArray[Any], ignored_index: int) -> float:
    """Return the share of the targets that count although they are padding.

    NaN if the ids are not filled up, or if the targets are not in the order of the ids.

    Parameters
    ----------
    target : ndarray
    ids : ndarray, shape (sequences, positions)
    ignored_index : int
    """
    rows, is_filled = _rows_of(target, ids), filled(ids)
    if rows is None or is_filled is None:
        return math.nan
    pad = ids[is_filled][0]
    is_counted = rows != ignored_index
    at_filled = is_counted & is_filled[:, : rows.shape[1]]
    if not is_counted.any() or (rows[at_filled] != pad).any():
        return math.nan
    return float(at_filled.sum() / is_counted.sum())


def _padding_words(target: NDArray[Any], ids: NDArray[Any], ignored_index: int, padding_index: int) -> float:
    """Return the share of the targets that count at ids of padding that are between others; NaN if that is unknown."""
    rows = _rows_of(target, ids)
    if rows is None:
        return math.nan
    is_counted = rows != ignored_index
    count = int(is_counted.sum())
    given = ids[:, : rows.shape[1]]
    others = is_counted & (given != padding_index)
    if others.any() and (rows == given)[others].mean() > 0.5:
        # Words are restored, and this id may be in place of those that are to be.
        return math.nan
    return float((within(ids, padding_index)[:, : rows.shape[1]] & is_counted).sum() / count) if count else math.nan


def _padding_by_mask(kept: NDArray[np.bool_], mask: NDArray[Any], offset: int) -> float:
    """Return the share of the targets that count at positions of padding; NaN if there is none."""
    rows = kept.reshape(len(mask), -1)
    overlap = min(rows.shape[1], mask.shape[1] - offset)
    counted, is_padding = rows[:, :overlap], mask[:, offset : offset + overlap] == 0
    return float(is_padding[counted].mean()) if is_padding.any() and counted.any() else math.nan


def _later_ignored(kept: NDArray[np.bool_], ids: NDArray[Any], mask: NDArray[Any] | None, offset: int) -> float:
    """Return the share of the words that are ignored after the last target that counts.

    NaN unless all sequences begin with a target that counts.
    """
    rows = kept.reshape(len(ids), -1)
    overlap = min(rows.shape[1], ids.shape[1] - offset)
    if overlap < 4:
        return math.nan
    counted = rows[:, :overlap]
    if mask is not None and mask.shape == ids.shape:
        are_words = mask[:, offset : offset + overlap] != 0
    else:
        is_filled = filled(ids)
        are_words = np.ones_like(counted) if is_filled is None else ~is_filled[:, offset : offset + overlap]
    is_later = ~np.logical_or.accumulate(counted[:, ::-1], 1)[:, ::-1] & are_words
    return float(is_later.sum() / are_words.sum()) if counted[:, 0].all() and is_later.any(1).all() else math.nan


def _ends_ignored(
    targets: NDArray[Any], ids: NDArray[Any], mask: NDArray[Any], offset: int, ignored_index: int
) -> float:
    """Return the share of the sequences whose last id is that of padding, and ignored as a target; NaN if unknown."""
    counts = mask != 0
    lengths = counts.sum(1)
    is_at_front = (counts == (np.arange(counts.shape[1]) < lengths[:, None])).all(1)
    chosen = np.flatnonzero(is_at_front & (lengths > offset) & (lengths < counts.shape[1]))
    pads, _ = distinct(ids[~counts])
    rows = targets.reshape(len(ids), -1)
    if not len(chosen) or len(pads) != 1 or (lengths[chosen] - offset > rows.shape[1]).any():
        return math.nan
    ends, predicted = ids[chosen, lengths[chosen] - 1], rows[chosen, lengths[chosen] - 1 - offset]
    return float(((ends == pads[0]) & (predicted == ignored_index)).mean())


def _hidden_ignored(targets: NDArray[Any], ids: NDArray[Any], ignored_index: int) -> float:
    """Return the share of the targets that are ignored at a mask token between words: one id that is never a target."""
    rows = _rows_of(targets, ids)
    given = ids if rows is None else ids[:, : rows.shape[1]]
    if rows is None or not (rows == ignored_index).any():
        return math.nan
    is_ignored = rows == ignored_index
    followed = np.logical_or.accumulate(~is_ignored[:, ::-1], 1)[:, ::-1]
    between = is_ignored & followed & np.logical_or.accumulate(~is_ignored, 1)
    inner, _ = distinct(given[between])
    is_hidden = len(inner) == 1 and not (given[~is_ignored] == inner[0]).any()
    return float(between.mean()) if is_hidden else 0.0


def _rows_of(target: NDArray[Any], ids: NDArray[Any]) -> NDArray[Any] | None:
    """Return targets by sequence, if they are in the order of the ids: one for each position, or for all but some."""
    sequences, positions = ids.shape
    count = target.size
    if not sequences or count % sequences or not positions // 2 < count // sequences <= positions or count > 1 << 20:
        return None
    return target.reshape(sequences, -1)


def _offset(target: NDArray[Any], ids: NDArray[Any], ignored_index: int) -> int:
    """Return how many positions targets are ahead of the ids that a model read; -1 if they are not those ids.

    Parameters
    ----------
    target : ndarray
        Targets in the order of the ids: all positions of a sequence, or all but some at its end.
    ids : ndarray, shape (sequences, positions)
    ignored_index : int
    """
    rows = _rows_of(target, ids)
    if rows is None:
        return -1
    for offset in range(4):
        overlap = min(rows.shape[1], ids.shape[1] - offset)
        if overlap < 3:
            break
        ours, read_ids = rows[:, :overlap], ids[:, offset : offset + overlap]
        counts = ours != ignored_index
        if counts.sum() >= 16 and bool((ours[counts] == read_ids[counts]).all()):
            return offset
    return -1
