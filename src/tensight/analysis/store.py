"""The statistics table at rest: a Parquet file in the dump's cache folder, used for the files that have not changed."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any

import numpy as np

from tensight.analysis.statistics_table import CHANGE, KNOWN, NO_PREVIOUS, ROW, UNKNOWN, StatisticsTable, to_arrow
from tensight.errors import TensightError

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa
    from numpy.typing import NDArray

    from tensight.cache import DumpCache

FILE_NAME = "statistics.parquet"
FORMAT = 1
"""Raised when a column changes its meaning: older files are then computed anew."""

STORED_RANGES = 16
"""Ranges kept at rest; beyond that the oldest are dropped, so that the file cannot grow without end."""


_writers: dict[Path, threading.Thread] = {}
"""Writes under way, by file; a process does not end before they have."""


def save_in_background(table: StatisticsTable, cache: DumpCache) -> None:
    """Write what the table holds now, while the caller goes on; `load` of the same cache waits for it.

    Parameters
    ----------
    table : StatisticsTable
        What is known.
    cache : DumpCache
        Where to keep it.
    """
    wait_for_writer(cache)
    writer = threading.Thread(target=save, args=(table.snapshot(), cache), name="tensight-cache", daemon=False)
    _writers[cache.path(FILE_NAME)] = writer
    writer.start()


def wait_for_writer(cache: DumpCache) -> None:
    """Return when no write into this cache is under way."""
    writer = _writers.pop(cache.path(FILE_NAME), None)
    if writer is not None:
        writer.join()


def save(table: StatisticsTable, cache: DumpCache) -> bool:
    """Write the table into the cache.

    Parameters
    ----------
    table : StatisticsTable
        What is known.
    cache : DumpCache
        Where to keep it.

    Returns
    -------
    bool
        Whether it could be written; a read-only cache is no error.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    arrow = to_arrow(table)
    ranges = list(table.in_range.items())[-STORED_RANGES:]
    for number, (_, counts) in enumerate(ranges):
        arrow = arrow.append_column(f"in_range_{number}", pa.array(counts))
    arrow = arrow.append_column("previous_row", pa.array(table.previous))
    atols = list(table.changes)
    for number, atol in enumerate(atols):
        for name in CHANGE.names:  # type: ignore[union-attr]
            column = np.ascontiguousarray(table.changes[atol][name])
            arrow = arrow.append_column(f"change_{number}_{name}", pa.array(column))
    about = {"format": FORMAT, "ranges": [list(map(float.hex, key)) for key, _ in ranges], "atols": atols}
    arrow = arrow.replace_schema_metadata({"tensight": json.dumps(about)})
    return cache.write(FILE_NAME, lambda file: pq.write_table(arrow, file, compression="zstd"))


def load(table: StatisticsTable, cache: DumpCache) -> int:
    """Take over what is known of files that have not changed since the cache was written.

    Parameters
    ----------
    table : StatisticsTable
        A table of the dump as it is now; filled in place.
    cache : DumpCache
        Where an earlier run kept what it found.

    Returns
    -------
    int
        How many rows were taken over. A missing, damaged or older cache file counts as empty.
    """
    wait_for_writer(cache)
    path = cache.path(FILE_NAME)
    if not path.is_file():
        return 0
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        arrow = pq.read_table(path, memory_map=True)
        about = json.loads((arrow.schema.metadata or {}).get(b"tensight", b"{}"))
        if about.get("format") != FORMAT:
            return 0
        return _take_over(table, arrow, about)
    except (pa.ArrowException, OSError, KeyError, TypeError, ValueError, TensightError):
        return 0


def _take_over(table: StatisticsTable, arrow: pa.Table, about: dict[str, Any]) -> int:
    source = _unchanged_rows(table, arrow)
    known = np.zeros(len(source), bool)
    valid = arrow["count"].is_valid().to_numpy()
    known[source >= 0] = valid[source[source >= 0]]
    rows = source[known]
    table.rows["state"][known] = KNOWN
    for name in ROW.names[1:]:  # type: ignore[index]
        table.rows[name][known] = _numpy(arrow, name)[rows]
    dtypes, shapes = arrow["dtype"].to_pylist(), arrow["shape"].to_pylist()
    for row, origin in zip(np.flatnonzero(known).tolist(), rows.tolist(), strict=True):
        table.dtypes[row], table.shapes[row] = dtypes[origin], tuple(shapes[origin])
    for number, key in enumerate(about["ranges"]):
        start, end = map(float.fromhex, key)
        table.range_counts((start, end))[known] = _numpy(arrow, f"in_range_{number}")[rows]
    # A comparison holds while both tensors are as they were, and are still each other's neighbours in time.
    pairs = known & (table.previous != NO_PREVIOUS)
    before = table.previous[pairs]
    pairs[pairs] = known[before] & (source[before] == _numpy(arrow, "previous_row")[source[pairs]])
    for number, atol in enumerate(about["atols"]):
        column = table.change_rows(atol)
        for name in CHANGE.names:  # type: ignore[union-attr]
            column[name][pairs] = _numpy(arrow, f"change_{number}_{name}")[source[pairs]]
        column["state"][~pairs] = UNKNOWN
    return int(known.sum())


def _unchanged_rows(table: StatisticsTable, arrow: pa.Table) -> NDArray[np.int64]:
    """Return for each row of the table the row of the stored one with the same file, size and time, else -1."""
    keys = zip(
        *(arrow[name].to_pylist() for name in ("path", "io", "slot", "file_bytes", "file_mtime_ns")), strict=True
    )
    stored = {key: row for row, key in enumerate(keys)}
    found = (stored.get((f.path, f.io, f.slot, f.size_bytes, f.mtime_ns), -1) for f in table.files)
    return np.fromiter(found, np.int64, len(table.files))


def _numpy(arrow: pa.Table, name: str) -> NDArray[Any]:
    column = arrow[name]
    return column.to_numpy() if column.null_count == 0 else column.fill_null(0).to_numpy()
