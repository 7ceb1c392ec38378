"""Columns of statistics for conditions: one number for each tensor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tensight.errors import InputError


class UnitRule(NamedTuple):
    """Whether a unit of a tensor (a channel, a feature) counts: by how many of its elements lie in a range.

    Attributes
    ----------
    start, end : float
        The range, both ends inclusive.
    outside : bool
        Whether to count the elements outside of the range instead.
    percentage : float
        Minimum percentage of the unit's elements that must be inside, or outside.
    """

    start: float
    end: float
    outside: bool
    percentage: float


ColumnKey = str | tuple[str, float, float] | tuple[str, str] | UnitRule
Columns = Mapping[ColumnKey, NDArray[Any]]
"""One array per statistic, one element per tensor.

Keys are the field names of ``TensorStatistics`` and, where a check needs them, those of ``ChangeStatistics`` (computed
with the check's ``needs.atol``), ``has_previous``, ``changes_comparable`` (false if the previous value has another
number of elements; missing means all true), ``("in_range", start, end)``, ``overflowed``, ``unit_size`` (elements of a
unit) and the percentage of units under a `UnitRule` (NaN if not counted), ``masked`` (-Inf was written on purpose),
``propagated`` (the zeros of an all-zero tensor were), ``("reference", name)`` (the norm that a norm is compared with)
and ``differs`` (from another rank).

For some tensors only a few statistics may have been recorded. ``recorded`` is true for them (and ``exact`` if all
statistics were recorded, and only the values are missing); ``("low", name)`` and ``("high", name)`` are the smallest
and the largest value that each field (and ``non_finite_count``) can have there.
"""

Arguments = Mapping[str, float | bool]
FloatColumn = NDArray[np.float64]
BoolColumn = NDArray[np.bool_]
Bounds = tuple[FloatColumn, FloatColumn]


def column(columns: Columns, key: ColumnKey) -> NDArray[Any]:
    """Return a column.

    Raises
    ------
    InputError
        The column is missing, or is not a one-dimensional array of numbers.
    """
    values = columns.get(key)
    if values is None:
        raise InputError(f"column {key!r} is needed to evaluate this condition; compute it first")
    if values.ndim != 1 or values.dtype.kind not in "biuf":
        raise InputError(f"column {key!r} must be one number per tensor; got {values.dtype} of shape {values.shape}")
    return values


def float_column(columns: Columns, key: ColumnKey) -> FloatColumn:
    """Return a column as float64."""
    return column(columns, key).astype(np.float64, copy=False)


def finite_counts(columns: Columns) -> FloatColumn:
    """Return the number of elements that are neither NaN nor infinite, shape (rows,)."""
    return float_column(columns, "count") - non_finite_counts(columns)


def non_finite_counts(columns: Columns) -> FloatColumn:
    """Return the number of NaN and infinite elements, shape (rows,)."""
    infinite = float_column(columns, "neg_inf_count") + float_column(columns, "pos_inf_count")
    return float_column(columns, "nan_count") + infinite


def unless_propagated(columns: Columns, percentage: FloatColumn) -> FloatColumn:
    """Return a percentage of zeros, with NaN for tensors whose zeros were propagated from their inputs."""
    if "propagated" not in columns:
        return percentage
    kept: FloatColumn = np.where(column(columns, "propagated"), np.nan, percentage)
    return kept
