"""A second copy of statistics in columns, for the overview: a few numbers of all tensors of a step.

The overview needs every tensor of every step. Reading rows takes about a second per million; a column of thousands of
tensors is read as a single blob.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np

from tensight.sessions.overview import marks_of, needed, percentages, statistic_of
from tensight.tensors import COUNTS, MEASURES
from tensight.tensors.schema import PERCENTAGES

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from tensight.sessions.live.reported_tensors import ReportedRow
    from tensight.sessions.records import OverviewStatistic

    Query = Callable[[str, Sequence[object]], list[tuple[Any, ...]]]

STORED = (*MEASURES, *PERCENTAGES)

SCHEMA = f"""
CREATE TABLE IF NOT EXISTS step_columns (
    number INTEGER PRIMARY KEY, rank INTEGER, iteration INTEGER, tensors BLOB, marks BLOB,
    {", ".join(f'"{name}" BLOB' for name in STORED)}
);
CREATE INDEX IF NOT EXISTS step_columns_of ON step_columns (rank, iteration);
"""

_COLUMNS = ("rank", "iteration", "tensors", "marks", *(f'"{name}"' for name in STORED))
_INSERT = (
    f"INSERT INTO step_columns ({', '.join(_COLUMNS)}) "  # noqa: S608 - names of our own columns
    f"VALUES ({', '.join('?' * len(_COLUMNS))})"
)
_ITERATIONS = "SELECT DISTINCT iteration FROM step_columns WHERE rank = ? ORDER BY iteration"

_READ_AT_ONCE = 64
"""Iterations read at once; between two reads, the training can add statistics."""

_LARGEST = float(np.finfo(np.float32).max)


def add_columns(
    database: sqlite3.Connection,
    rank: int,
    iteration: int,
    tensors: Sequence[int],
    counts: NDArray[np.float64],
    numbers: NDArray[np.float64],
) -> None:
    """Add the reported statistics of tensors at an iteration.

    Parameters
    ----------
    database : sqlite3.Connection
        In a transaction.
    rank, iteration : int
    tensors : sequence of int
        Ids of the tensors in the store.
    counts : array, shape (n, len(COUNTS))
        In the order of `COUNTS`; NaN where unknown.
    numbers : array, shape (n, len(MEASURES))
        In the order of `MEASURES`; NaN where unknown.
    """
    by_name = dict(zip(COUNTS, counts.T, strict=True))
    columns = {**dict(zip(MEASURES, numbers.T, strict=True)), **percentages(by_name)}
    blobs = (np.clip(columns[name], -_LARGEST, _LARGEST).astype("<f4").tobytes() for name in STORED)
    ids = np.asarray(tensors, "<i4").tobytes()
    database.execute(_INSERT, (rank, iteration, ids, marks_of(by_name).tobytes(), *blobs))


def add_rows(database: sqlite3.Connection, rows: Sequence[ReportedRow], ids: Sequence[int]) -> None:
    """Add rows of any ranks and iterations; `ids` contains the tensor id of each row."""
    ordered = sorted(zip(rows, ids, strict=True), key=lambda pair: _rank_and_iteration(pair[0]))
    for (rank, iteration), group in groupby(ordered, lambda pair: _rank_and_iteration(pair[0])):
        step_rows = list(group)
        counts = np.array([[getattr(row.statistics, name) for name in COUNTS] for row, _ in step_rows], np.float64)
        numbers = np.array([[getattr(row.statistics, name) for name in MEASURES] for row, _ in step_rows], np.float64)
        add_columns(database, rank, iteration, [number for _, number in step_rows], counts, numbers)


def _rank_and_iteration(row: ReportedRow) -> tuple[int, int]:
    return row.key.rank, row.iteration


def iterations_of(query: Query, rank: int) -> NDArray[np.int64]:
    """Return the iterations for which a rank reported statistics, in order."""
    return np.array([row[0] for row in query(_ITERATIONS, (rank,))], np.int64)


def read_columns(
    query: Query,
    rank: int,
    iterations: NDArray[np.int64],
    statistic: OverviewStatistic,
) -> Iterator[tuple[int, NDArray[np.int64], NDArray[np.float64], NDArray[np.uint8]]]:
    """Yield iteration, tensor ids, values and marks, in order; an iteration may occur several times."""
    names = needed(statistic)
    select = (
        f"SELECT iteration, tensors, marks, {', '.join(names)} FROM step_columns"  # noqa: S608 - names of our own columns
        " WHERE rank = ? AND iteration BETWEEN ? AND ? ORDER BY iteration, number"
    )
    for start in range(0, len(iterations), _READ_AT_ONCE):
        batch = iterations[start : start + _READ_AT_ONCE]
        for iteration, ids, marks, *columns in query(select, (rank, int(batch[0]), int(batch[-1]))):
            values = {
                # A file of an older version may not have the column.
                name: np.full(len(ids) // 4, np.nan) if column is None else np.frombuffer(column, "<f4").astype(float)
                for name, column in zip(names, columns, strict=True)
            }
            yield (
                iteration,
                np.frombuffer(ids, "<i4").astype(np.int64),
                statistic_of(statistic, values),
                np.frombuffer(marks, np.uint8),
            )
