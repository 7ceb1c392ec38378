"""Stored results: one Parquet file for each query, with the rows of all ranks.

What is known of each rank is JSON in the metadata of the file, beside the fingerprint of the files that they read.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import os
import shutil
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tensight.version import __version__

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from tensight.cache import DumpCache
    from tensight.runs.rank import PartialResult, Query

FORMAT = 1
"""Incremented when rows or what is known of each rank change their meaning, so that older files are ignored."""

ROWS_AT_ONCE = 65_536
"""Number of rows that are in memory before they are written."""


@dataclass(frozen=True, slots=True)
class StoredResults:
    """The results of a query.

    Attributes
    ----------
    path : Path
        Parquet file with the rows.
    fingerprints : dict of int to str
        Of the files of each rank when its result was computed.
    about : dict of int to dict
        What is known of each rank.
    """

    path: Path
    fingerprints: dict[int, str] = field(default_factory=dict)
    about: dict[int, dict[str, Any]] = field(default_factory=dict)

    def without(self, ranks: Collection[int]) -> StoredResults:
        """Return the results of the other ranks; the file is the same."""
        return StoredResults(
            self.path,
            {rank: text for rank, text in self.fingerprints.items() if rank not in ranks},
            {rank: about for rank, about in self.about.items() if rank not in ranks},
        )

    @property
    def where(self) -> str:
        """The condition on rows of the file, in SQL, that their rank is one of these."""
        return f"rank in ({', '.join(map(str, sorted(self.fingerprints)))})"


def file_name(query: Query) -> str:
    """Return the name of the file with the results of a query."""
    key = f"{FORMAT} {__version__} {query.key}"
    return f"results-{hashlib.sha256(key.encode()).hexdigest()[:24]}.parquet"


def load(cache: DumpCache, query: Query) -> StoredResults:
    """Return the stored results of a query; none if there are none, or if the file is damaged."""
    path = cache.path(file_name(query))
    try:
        metadata = pq.read_metadata(path).metadata or {}
        stored = json.loads(metadata[b"tensight"])
        ranks = {int(rank): (text, about) for rank, (text, about) in stored.items()}
    except (OSError, pa.ArrowException, ValueError, KeyError, TypeError, AttributeError):
        return StoredResults(path)
    fingerprints = {rank: str(text) for rank, (text, _) in ranks.items()}
    return StoredResults(path, fingerprints, {rank: about for rank, (_, about) in ranks.items()})


class ResultWriter:
    """Writes the results of a query; see `writing`.

    Parameters
    ----------
    path : Path
        The file to write.
    valid : StoredResults
        Results from before that are still valid; their rows are copied.
    """

    def __init__(self, path: Path, valid: StoredResults) -> None:
        self._path = path
        self._fingerprints, self._about = dict(valid.fingerprints), dict(valid.about)
        self._waiting: list[pa.Table] = []
        self._waiting_rows = 0
        self._writer: pq.ParquetWriter | None = None
        for rows in _rows_of(valid):
            self._add_rows(rows)

    def add(self, rank: int, fingerprint: str, result: PartialResult) -> None:
        """Add the result of a rank."""
        self._fingerprints[rank] = fingerprint
        self._about[rank] = result.about
        self._add_rows(result.rows)

    def close(self) -> None:
        """Complete the file."""
        self._flush()
        if self._writer is not None:
            stored = {rank: (text, self._about[rank]) for rank, text in self._fingerprints.items()}
            self._writer.add_key_value_metadata({"tensight": json.dumps(stored)})
            self._writer.close()

    def results(self, path: Path) -> StoredResults:
        """Return all results, given the final path of the file."""
        return StoredResults(path, self._fingerprints, self._about)

    def _add_rows(self, rows: pa.Table) -> None:
        self._waiting.append(rows)
        self._waiting_rows += rows.num_rows
        if self._waiting_rows >= ROWS_AT_ONCE:
            self._flush()

    def _flush(self) -> None:
        if not self._waiting:
            return
        rows = pa.concat_tables(self._waiting)
        if self._writer is None:
            self._writer = pq.ParquetWriter(self._path, rows.schema, compression="zstd")
        self._writer.write_table(rows)
        self._waiting, self._waiting_rows = [], 0


def _rows_of(valid: StoredResults) -> Iterator[pa.Table]:
    """Yield the stored rows of the ranks whose results are valid."""
    if not valid.fingerprints:
        return
    ranks = pa.array(sorted(valid.fingerprints), pa.int32())
    with pq.ParquetFile(valid.path) as stored:
        for group in range(stored.num_row_groups):
            rows = stored.read_row_group(group)
            yield rows.filter(pc.is_in(rows["rank"], ranks))


@contextmanager
def writing(cache: DumpCache, name: str, valid: StoredResults) -> Iterator[tuple[ResultWriter, Path]]:
    """Write results, so that readers see the old file or the new one; what was added before an error is kept.

    Parameters
    ----------
    cache : DumpCache
        The cache of the dump.
    name : str
        From `file_name`.
    valid : StoredResults
        Results from before that are still valid.

    Yields
    ------
    ResultWriter
    Path
        The final path of the file.
    """
    final = cache.path(name)
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        handle, part = tempfile.mkstemp(".part", name, final.parent)
    except OSError:
        final = _temporary_folder() / name
        handle, part = tempfile.mkstemp(".part", name, final.parent)
    os.close(handle)
    writer = ResultWriter(Path(part), valid)
    try:
        yield writer, final
    finally:
        writer.close()
        os.replace(part, final)


@lru_cache(maxsize=1)
def _temporary_folder() -> Path:
    """Return the folder for results if the cache cannot be written; it is removed when the process ends."""
    folder = tempfile.mkdtemp(prefix="tensight-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)
