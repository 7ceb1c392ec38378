"""The values of a tensor that are shown in a line beside it, as columns that travel without the statistics table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tensight.analysis.recorded_statistics import NOT_RECORDED

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tensight.analysis.statistics_table import StatisticsTable

KINDS = ("nan_count", "pos_inf_count", "neg_inf_count", "zero_count")
"""Counts of elements that are named if there are any."""

SHOWN = ("min", "max", "count", *KINDS)

SOME = -2
"""A count that was not recorded, but is known not to be zero."""


def shown_values(table: StatisticsTable, rows: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
    """Return what is shown of some tensors.

    Parameters
    ----------
    table : StatisticsTable
        The statistics.
    rows : int64 array, shape (n,)
        Rows of the tensors.

    Returns
    -------
    dict of str to array, shape (n,)
        The columns `SHOWN`: NaN for an unknown minimum or maximum, `NOT_RECORDED` or `SOME` for an unknown count.
    """
    columns: dict[str, NDArray[Any]] = {name: table.rows[name][rows] for name in SHOWN}
    for name in KINDS:
        unknown = columns[name] == NOT_RECORDED
        if unknown.any():
            columns[name] = np.where(unknown & (table.bounds(name)[0][rows] > 0), SOME, columns[name])
    return columns
