"""The stored statistics: a Parquet file for each rank in the dump's cache, valid for files that have not changed."""

from __future__ import annotations

import atexit
import json
import threading
from functools import partial
from itertools import islice
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from tensight.analysis.statistics_table import (
    CHANGE,
    FILE_COLUMNS,
    KNOWN,
    NO_PREVIOUS,
    STATISTICS,
    UNKNOWN,
    StatisticsTable,
    to_arrow,
)

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa
    import pyarrow.parquet as pq
    from numpy.typing import NDArray

    from tensight.analysis.statistics_table import Range
    from tensight.cache import DumpCache

FORMAT = 3
"""Incremented when a column changes its meaning, so that older cache files are ignored."""

PART_ROWS = 16_384
"""Number of rows that are in memory as Arrow at a time."""

KEY_COLUMNS = ("path", "io", "slot")


def file_name(rank: int) -> str:
    """Return the name of the cached statistics of a rank."""
    return f"statistics-{rank}.parquet"


STORED_RANGES = 16
"""Number of stored ranges; the oldest ones are dropped, so that the file cannot grow without limit."""


WRITE_AFTER_S = 1.0
"""A table is written after this time without changes, so as not to use cores while a user tries thresholds."""


class _Writer:
    """Writes a table into its cache after a time without changes, at the latest when the process ends."""

    def __init__(self, cache: DumpCache) -> None:
        self._cache = cache
        self._table: StatisticsTable | None = None
        self._news = threading.Condition()
        self._hurry = False
        self._thread: threading.Thread | None = None

    def put(self, table: StatisticsTable) -> None:
        """Schedule a table to be written, in place of any that is pending."""
        with self._news:
            self._table = table
            self._hurry = False
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="tensight-cache", daemon=True)
                self._thread.start()
            self._news.notify()

    def finish(self) -> None:
        """Write a pending table immediately, and return when it is written."""
        with self._news:
            thread, self._hurry = self._thread, True
            self._news.notify()
        if thread is not None:
            thread.join()

    def _run(self) -> None:
        while True:
            with self._news:
                while not self._hurry and self._news.wait(WRITE_AFTER_S):
                    pass  # another table was put: restart the wait
                table, self._table = self._table, None
                if table is None:
                    self._thread = None
                    return
            save(table.snapshot(), self._cache)


_writers: dict[Path, _Writer] = {}


def save_later(table: StatisticsTable, cache: DumpCache) -> None:
    """Write the table into the cache in the background, slightly later; `load` waits for it.

    Parameters
    ----------
    table : StatisticsTable
        The table to write.
    cache : DumpCache
        The cache of its dump.
    """
    ranks = "-".join(map(str, (table.files[0].rank, table.files[-1].rank))) if table.files else ""
    _writers.setdefault(cache.path(ranks), _Writer(cache)).put(table)


@atexit.register
def finish_writing() -> None:
    """Write all pending tables, and return when they are written."""
    for writer in list(_writers.values()):
        writer.finish()


def save(table: StatisticsTable, cache: DumpCache) -> bool:
    """Write what has changed of the table into the cache, a rank at a time.

    Parameters
    ----------
    table : StatisticsTable
        The table to write.
    cache : DumpCache
        The cache of its dump.

    Returns
    -------
    bool
        Whether it could be written; a read-only cache is not an error.
    """
    # Recorded statistics are not cached: reading them again is faster than checking whether they changed.
    changed = [(rank, rows) for rank, rows in _rows_of_ranks(table).items() if rank in table.changed]
    written = [cache.write(file_name(rank), partial(_write, table, rows)) for rank, rows in changed]
    return all(written)


def _rows_of_ranks(table: StatisticsTable) -> dict[int, slice]:
    """Return the rows of each rank that have values."""
    ranks = np.fromiter((file.rank for file in islice(table.files, table.with_values)), np.int64, table.with_values)
    starts = np.flatnonzero(np.diff(ranks, prepend=-1)).tolist()
    ends = [*starts, table.with_values][1:]
    return {int(ranks[start]): slice(start, end) for start, end in zip(starts, ends, strict=True)}


def _write(table: StatisticsTable, rows: slice, file: IO[bytes]) -> None:
    import pyarrow.parquet as pq

    ranges = list(table.in_range)[-STORED_RANGES:]
    about = {"format": FORMAT, "ranges": [list(map(float.hex, key)) for key in ranges], "atols": list(table.changes)}
    writer = None
    try:
        for start in range(rows.start, rows.stop, PART_ROWS):
            part = _part(table, ranges, slice(start, min(start + PART_ROWS, rows.stop)), rows.start)
            part = part.replace_schema_metadata({"tensight": json.dumps(about)})
            writer = writer or pq.ParquetWriter(file, part.schema, compression="zstd", write_page_checksum=True)
            writer.write_table(part)
    finally:
        if writer is not None:
            writer.close()


def _part(table: StatisticsTable, ranges: list[Range], rows: slice, first: int) -> pa.Table:
    """Return rows as Arrow; the rows of previous iterations are counted from the first row of the rank."""
    import pyarrow as pa

    previous = table.previous[rows]
    previous = np.where(previous == NO_PREVIOUS, NO_PREVIOUS, previous - first)
    part = to_arrow(table, rows).append_column("previous_row", pa.array(previous))
    for number, key in enumerate(ranges):
        part = part.append_column(f"in_range_{number}", pa.array(table.in_range[key][rows]))
    for number, changes in enumerate(table.changes.values()):
        for name in CHANGE.names or ():
            part = part.append_column(f"change_{number}_{name}", pa.array(np.ascontiguousarray(changes[name][rows])))
    return part


def load(table: StatisticsTable, cache: DumpCache) -> None:
    """Load the cached statistics of files that have not changed since the cache was written.

    A missing, damaged or older cache file is ignored.

    Parameters
    ----------
    table : StatisticsTable
        An empty table of the dump in its current state; filled in place.
    cache : DumpCache
        The cache of the dump.
    """
    finish_writing()
    for rank, rows in _rows_of_ranks(table).items():
        path = cache.path(file_name(rank))
        if path.is_file():
            _load_rank(table, rows, path)


def _load_rank(table: StatisticsTable, rows: slice, path: Path) -> None:
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path, memory_map=True, page_checksum_verification=True) as stored:
            about = json.loads((stored.schema_arrow.metadata or {}).get(b"tensight", b"{}"))
            if about.get("format") == FORMAT:
                _take_over(table, rows, stored, about)
    except Exception:  # a damaged file, or a file of another program, can raise anything
        table.forget(rows)


def _take_over(table: StatisticsTable, rank_rows: slice, stored: pq.ParquetFile, about: dict[str, Any]) -> None:
    """Fill the rows of a rank from the stored table, a part at a time."""
    files = table.files[rank_rows]
    sizes = np.fromiter((file.size_bytes for file in files), np.int64, len(files))
    times = np.fromiter((file.mtime_ns for file in files), np.int64, len(files))
    ranges = [(float.fromhex(start), float.fromhex(end)) for start, end in about["ranges"]]
    # Both are counted from the first row of the rank: the row in the stored table, and that of the previous iteration.
    origin = np.full(len(files), -1, np.int64)
    previous = np.full(len(files), -1, np.int64)
    start = 0
    unused = {name for name, *_ in FILE_COLUMNS} - {*KEY_COLUMNS, "file_bytes", "file_mtime_ns"} | {"error"}
    columns = [name for name in stored.schema_arrow.names if name not in unused]
    for batch in stored.iter_batches(batch_size=PART_ROWS, columns=columns, use_threads=False):
        keys = zip(*(batch[name].to_pylist() for name in KEY_COLUMNS), strict=True)
        rows = np.fromiter((table.index.get(key, -1) for key in keys), np.int64, batch.num_rows) - rank_rows.start
        rows[(rows < 0) | (rows >= len(files))] = -1
        changed = (sizes[rows] != _column(batch, "file_bytes")) | (times[rows] != _column(batch, "file_mtime_ns"))
        rows[changed] = -1
        there = np.flatnonzero(rows >= 0)
        origin[rows[there]] = start + there
        previous[rows[there]] = _column(batch, "previous_row")[there]
        stored_rows = np.flatnonzero((rows >= 0) & batch["count"].is_valid().to_numpy(zero_copy_only=False))
        _copy_part(table, batch, rank_rows.start + rows[stored_rows], stored_rows, ranges, about["atols"])
        start += batch.num_rows
    _drop_stale_changes(table, rank_rows, origin, previous)


def _copy_part(
    table: StatisticsTable,
    batch: pa.RecordBatch,
    rows: NDArray[np.int64],
    stored: NDArray[np.int64],
    ranges: list[Range],
    atols: list[float],
) -> None:
    """Copy the stored rows of a batch to rows of the table."""
    table.rows["state"][rows] = KNOWN
    for name in STATISTICS:
        table.rows[name][rows] = _column(batch, name)[stored]
    dtypes, shapes = batch["dtype"].to_pylist(), batch["shape"].to_pylist()
    for row, origin in zip(rows.tolist(), stored.tolist(), strict=True):
        table.describe(row, dtypes[origin], tuple(shapes[origin]))
    for number, key in enumerate(ranges):
        table.range_counts(key)[rows] = _column(batch, f"in_range_{number}")[stored]
    for number, atol in enumerate(atols):
        changes = table.change_rows(atol)
        for name in CHANGE.names or ():
            changes[name][rows] = _column(batch, f"change_{number}_{name}")[stored]


def _drop_stale_changes(
    table: StatisticsTable, rank_rows: slice, origin: NDArray[np.int64], previous: NDArray[np.int64]
) -> None:
    """Drop comparisons if either tensor has changed, or if the previous tensor is a different one now."""
    is_known = table.rows["state"][rank_rows] == KNOWN
    before = table.previous[rank_rows]
    valid = is_known & (before != NO_PREVIOUS)
    before = before[valid] - rank_rows.start
    valid[valid] = is_known[before] & (origin[before] == previous[valid])
    for changes in table.changes.values():
        changes["state"][rank_rows][~valid] = UNKNOWN


def _column(batch: pa.RecordBatch, name: str) -> NDArray[Any]:
    """Return a column as a NumPy array; callers ignore nulls."""
    column = batch[name]
    return np.asarray(column.to_numpy(zero_copy_only=False))
