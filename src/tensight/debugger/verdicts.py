"""The verdicts of checks, corrected where the original's arithmetic decides differently than exact arithmetic."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from tensight.analysis import Analysis
    from tensight.dumps import TensorFile
    from tensight.watchpoints import ConditionCheck, Evaluation

NO_PREVIOUS = 4
"""The error code of a tensor whose value in the previous iteration is missing."""

MOST_SUMMED_ONE_BY_ONE = 20_000
"""The original sums larger tensors in parts, whose rounding cannot be reproduced."""

_ROUNDING = 8 * np.finfo(np.float64).eps


@dataclass(slots=True)
class Verdicts:
    """The verdicts of a check on several tensors; every array has shape (tensors,).

    Attributes
    ----------
    reported : ndarray of bool
        Whether the tensor becomes a hit.
    empty : ndarray of bool
        Whether the tensor has no elements or cannot be read.
    error_code : ndarray of int
        Why it could not be checked.
    actual : dict of str to ndarray of float64
        Actual values by parameter.
    parameter_hit : dict of str to ndarray of bool
        Whether each parameter hit.
    """

    reported: NDArray[np.bool_]
    empty: NDArray[np.bool_]
    error_code: NDArray[np.int32]
    actual: dict[str, NDArray[np.float64]]
    parameter_hit: dict[str, NDArray[np.bool_]]


def has_unusual_tolerances(parameters: Mapping[str, float]) -> bool:
    """Return whether a tolerance is not valid for our statistics: negative, infinite or NaN.

    Parameters
    ----------
    parameters : mapping of str to float
        Parameters of a condition of the drop-in API.
    """
    tolerances = [parameters[name] for name in ("rtol", "atol") if name in parameters]
    return not all(0 <= tolerance < math.inf for tolerance in tolerances)


def verdicts(
    analysis: Analysis,
    parameters: Mapping[str, float],
    check: ConditionCheck,
    files: Sequence[TensorFile],
    evaluation: Evaluation,
) -> Verdicts:
    """Return the verdicts of the original, given those of exact arithmetic.

    Parameters
    ----------
    analysis : Analysis
        The analysis that evaluated the check.
    parameters : mapping of str to float
        Parameters of the condition, as given.
    check : ConditionCheck
        The check.
    files : sequence of TensorFile
        The tensors.
    evaluation : Evaluation
        Its verdicts, with ``non_finite="report"``.
    """
    from tensight.watchpoints import Status

    result = Verdicts(
        reported=evaluation.reported.copy(),
        empty=evaluation.status == Status.EMPTY,
        error_code=evaluation.error_code.astype(np.int32),
        actual={name: np.array(values, np.float64) for name, values in evaluation.actual.items()},
        parameter_hit={name: np.array(values, np.bool_) for name, values in evaluation.parameter_hit.items()},
    )
    rows = analysis.rows_of(files)
    _sum_one_by_one(analysis, check, files, rows, result)
    different = np.flatnonzero(evaluation.status == Status.DIFFERENT_SIZE).tolist()
    _miss_empty_previous(analysis, files, different, result)
    if "rtol" in parameters:
        _compare_elements(analysis, parameters, files, rows, result)
    return result


def has_elements(file: TensorFile | None) -> bool:
    """Return whether a tensor can be read and is not empty; the original treats all others as not dumped."""
    from tensight.dumps import tensor_header
    from tensight.errors import TensorFileError

    if file is None:
        return False
    try:
        return 0 not in tensor_header(file).shape
    except TensorFileError:
        return False


def running_mean(values: NDArray[np.float64]) -> float:
    """Return a mean as the original computes it, element after element, with its rounding."""
    mean = 0.0
    for count, value in enumerate(values.ravel().tolist(), 1):
        mean += (value - mean) / count
    return mean


def _sum_one_by_one(
    analysis: Analysis, check: ConditionCheck, files: Sequence[TensorFile], rows: NDArray[np.int64], result: Verdicts
) -> None:
    """Reproduce the original's rounding of means that are so near a threshold that rounding decides."""
    from tensight.dumps import read_tensor

    thresholds = {t.name: t for t in check.thresholds if t.quantity.name in ("mean", "abs_mean")}
    if not thresholds:
        return
    table = analysis.statistics_table.rows[rows]
    magnitude = np.maximum(np.abs(table["min"]), np.abs(table["max"]))
    # For equal elements every rounding gives the same mean.
    open_rows = (table["min"] < table["max"]) & (table["count"] <= MOST_SUMMED_ONE_BY_ONE) & (result.error_code == 0)
    near = np.zeros(len(rows), np.bool_)
    with np.errstate(over="ignore", invalid="ignore"):
        bound = _ROUNDING * table["count"] * magnitude
        for name, threshold in thresholds.items():
            near |= np.abs(result.actual[name] - threshold.value) <= bound
    for row in np.flatnonzero(open_rows & near).tolist():
        values = read_tensor(files[row]).astype(np.float64)
        for name, threshold in thresholds.items():
            mean = running_mean(np.abs(values) if threshold.quantity.name == "abs_mean" else values)
            result.actual[name][row] = 0.0 if math.isnan(mean) else mean
            result.parameter_hit[name][row] = threshold.comparator.compare(np.array([mean]), threshold.value)[0]
        result.reported[row] = any(hits[row] for hits in result.parameter_hit.values())


def _miss_empty_previous(
    analysis: Analysis, files: Sequence[TensorFile], different: Sequence[int], result: Verdicts
) -> None:
    """Report a missing previous value where it is empty or cannot be read."""
    for row in different:
        if not has_elements(analysis.dump.previous(files[row])):
            result.reported[row] = True
            result.error_code[row] |= NO_PREVIOUS


def _compare_elements(
    analysis: Analysis,
    parameters: Mapping[str, float],
    files: Sequence[TensorFile],
    rows: NDArray[np.int64],
    result: Verdicts,
) -> None:
    """Compare element by element where statistics do not determine the result of the original's arithmetic.

    Every finite element counts as unchanged where the previous one is infinite. Negative, infinite and NaN tolerances
    are also used as they are.
    """
    from tensight import tensors
    from tensight.dumps import read_segments

    rtol, atol = parameters["rtol"], parameters["atol"]
    open_rows = (analysis.statistics_table.previous[rows] >= 0) & (result.error_code == 0) & ~result.empty
    if not has_unusual_tolerances(parameters):
        open_rows &= np.isnan(analysis.statistics_table.change_rows(atol)[rows]["required_rtol"])
    for row in np.flatnonzero(open_rows).tolist():
        before = analysis.dump.previous(files[row])
        if before is None or not has_elements(before):
            continue
        segments = read_segments(files[row], tensors.SEGMENT_ELEMENTS)
        old_segments = read_segments(before, tensors.SEGMENT_ELEMENTS)
        result.reported[row] = all(
            _unchanged(segment, old, rtol, atol) for segment, old in zip(segments, old_segments, strict=False)
        )


def _unchanged(segment: NDArray[Any], before: NDArray[Any], rtol: float, atol: float) -> bool:
    if segment.size != before.size:
        return False
    with np.errstate(invalid="ignore", over="ignore"):
        new, old = segment.astype(np.float64), before.astype(np.float64)
        return bool(np.all(np.abs(new - old) <= atol + rtol * np.abs(old)))
