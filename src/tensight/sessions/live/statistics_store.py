"""The statistics that a run has reported so far, in a database file: millions of rows in little memory."""

from __future__ import annotations

import json
import math
import sqlite3
import threading
from contextlib import closing
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tensight.graph import TensorAddress
from tensight.graph.node import CONSTANT
from tensight.sessions.errors import StorageError
from tensight.sessions.live import step_columns
from tensight.sessions.live.reported_tensors import ReportedRow, ReportedTensor, TensorKey
from tensight.sessions.records import Statistics, StatisticsPage, StatisticsRow
from tensight.sessions.records.tensors import address_fields
from tensight.sessions.statistics_pages import MOST_ORDERS, needed, ordered, require_page
from tensight.tensors import COUNTS, EXPLOSION_LIMIT, MEASURES, NUMBERS
from tensight.wire import ReceivedStatistics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from tensight.sessions.programs import Program
    from tensight.sessions.records import OverviewStatistic
    from tensight.tensors import TensorStatistics
    from tensight.wire import ReceivedBlock
    from tensight.wire.scalars import Scalar

FILE = "statistics.sqlite"

MOST_TENSORS = 2_000_000
"""Maximum number of different tensors of a run with statistics."""

_LARGEST = 2**63 - 1

_SICK = {
    "nan": "nan_count > 0",
    "inf": "neg_inf_count + pos_inf_count > 0",
    "explosion": f'"max" > {EXPLOSION_LIMIT} OR "min" < -{EXPLOSION_LIMIT}',
    "all_zero": "zero_count = count AND count > 1",
}
"""Conditions for rows that show an anomaly, by its name; partial indices find the first such iteration quickly."""

_SCHEMA = (
    f"""
CREATE TABLE IF NOT EXISTS tensors (
    id INTEGER PRIMARY KEY, rank INTEGER, graph TEXT, node TEXT, io TEXT, slot INTEGER, type TEXT, position INTEGER,
    UNIQUE (rank, graph, node, io, slot)
);
CREATE TABLE IF NOT EXISTS statistics (
    iteration INTEGER, tensor INTEGER, dtype TEXT, shape TEXT, hash TEXT, partial INTEGER,
    {", ".join(f'"{name}"' for name in NUMBERS)},
    PRIMARY KEY (iteration, tensor)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS by_tensor ON statistics (tensor, iteration);
"""
    + "".join(
        f"CREATE INDEX IF NOT EXISTS sick_{name} ON statistics (iteration) WHERE {rows};\n"
        for name, rows in _SICK.items()
    )
    + step_columns.SCHEMA
    + """
CREATE TABLE IF NOT EXISTS scalars (
    rank INTEGER, name TEXT, slot INTEGER, iteration INTEGER, value REAL, PRIMARY KEY (rank, name, slot, iteration)
) WITHOUT ROWID;
"""
)
_COLUMNS = ("iteration", "tensor", "dtype", "shape", "hash", "partial", *(f'"{name}"' for name in NUMBERS))
_INSERT = (
    f"INSERT OR REPLACE INTO statistics ({', '.join(_COLUMNS)}) "  # noqa: S608 - names of our own columns
    f"VALUES ({', '.join('?' * len(_COLUMNS))})"
)
_SELECT = (
    "SELECT rank, graph, node, io, slot, type, position, iteration, dtype, shape, hash, partial, "  # noqa: S608 - names of our own columns
    + ", ".join(f'"{name}"' for name in NUMBERS)
    + " FROM statistics JOIN tensors ON tensors.id = statistics.tensor"
)
_SELECT_PAGE = _SELECT.replace("SELECT ", "SELECT tensors.id, ", 1)
_SELECT_REPORTED = (
    "SELECT iteration, graph, node, io, slot, dtype, hash, partial, "  # noqa: S608 - names of our own columns
    + ", ".join(f'"{name}"' for name in NUMBERS)
    + " FROM statistics JOIN tensors ON tensors.id = statistics.tensor"
)
_IDENTITY = ("id", "rank", "graph", "node", "io", "slot")

_TENSORS = "SELECT id, graph, node, io, slot, type, position FROM tensors WHERE rank = ? ORDER BY id"

# DISTINCT would scan every row.
_ITERATIONS = """
WITH RECURSIVE found (iteration) AS (
    SELECT min(iteration) FROM statistics UNION ALL
    SELECT (SELECT min(iteration) FROM statistics WHERE iteration > found.iteration) FROM found WHERE iteration NOT NULL
) SELECT iteration FROM found WHERE iteration NOT NULL
"""


class StatisticsStore:
    """The statistics of a run. Thread-safe.

    Parameters
    ----------
    path : Path
        The file; extended if it exists.
    most_rows : int
        Maximum number of rows; the oldest iterations are dropped first.

    Raises
    ------
    StorageError
        It cannot be opened.
    """

    def __init__(self, path: Path, most_rows: int) -> None:
        self._path = path
        self._most_rows = most_rows
        self._lock = threading.Lock()
        self._ids: dict[TensorKey, int] = {}
        self._listed: dict[TensorKey, ReportedTensor] = {}
        self._orders: dict[tuple[object, ...], NDArray[np.int64]] = {}
        self._version = 0
        try:
            self._database = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        except sqlite3.Error as error:
            raise self._storage_error(error) from error
        try:
            # Losing the latest rows in a crash of the machine is acceptable; a flush for every step is not.
            self._database.executescript("PRAGMA journal_mode=WAL; PRAGMA synchronous=OFF;" + _SCHEMA)
            self._add_newer_columns()
            self._rows = int(self._database.execute("SELECT count(*) FROM statistics").fetchone()[0])
        except sqlite3.Error as error:
            self._database.close()
            raise self._storage_error(error) from error
        self.is_empty = not self._rows

    def _add_newer_columns(self) -> None:
        """Add columns for statistics that a file of an older version does not have; they are unknown in its rows."""
        for table, kind, names in (("statistics", "", NUMBERS), ("step_columns", "BLOB", step_columns.STORED)):
            columns = {row[1] for row in self._database.execute(f"PRAGMA table_info({table})")}
            for name in names:
                if name not in columns:
                    self._database.execute(f'ALTER TABLE {table} ADD COLUMN "{name}" {kind}')

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._database.close()

    def add(self, rows: Sequence[ReportedRow]) -> None:
        """Add statistics; those of the same tensor and iteration are replaced.

        Raises
        ------
        StorageError
            The disk is full, or there are too many different tensors.
        """
        with self._lock:
            tensors = [ReportedTensor(row.key, row.type, row.position) for row in rows]
            self._insert(tensors, lambda: map(self._values, rows), lambda: self._add_rows(rows))

    def add_block(self, tensors: Sequence[ReportedTensor], block: ReceivedBlock) -> None:
        """Add a block of statistics in columns.

        Parameters
        ----------
        tensors : sequence of ReportedTensor
            The tensor of each row of the block.
        block : ReceivedBlock

        Raises
        ------
        StorageError
            The disk is full, or there are too many different tensors.
        """
        with self._lock:
            self._insert(
                tensors, lambda: self._values_of_block(tensors, block), lambda: self._add_columns(tensors, block)
            )

    def add_scalars(self, rank: int, iteration: int, scalars: Sequence[Scalar]) -> None:
        """Add scalars of an iteration that are not tensors; scalars with the same name are replaced.

        Raises
        ------
        StorageError
            The disk is full.
        """
        # SQLite does not store NaN and infinities as numbers.
        rows = [(rank, scalar.name, scalar.slot, iteration, repr(scalar.value)) for scalar in scalars]
        with self._lock:
            try:
                self._database.execute("BEGIN")
                with self._database:
                    self._database.executemany("INSERT OR REPLACE INTO scalars VALUES (?, ?, ?, ?, ?)", rows)
            except sqlite3.Error as error:
                raise self._storage_error(error) from error

    def scalars(self, rank: int) -> dict[tuple[str, int], list[tuple[int, float]]]:
        """Return the scalars that a rank reported, by name and slot: iteration and value, in order."""
        by_name: dict[tuple[str, int], list[tuple[int, float]]] = {}
        rows = self._query(
            "SELECT name, slot, iteration, value FROM scalars WHERE rank = ? ORDER BY name, slot, iteration", (rank,)
        )
        for name, slot, iteration, value in rows:
            by_name.setdefault((name, slot), []).append((iteration, float(value)))
        return by_name

    def _insert(
        self,
        tensors: Sequence[ReportedTensor],
        values: Callable[[], Iterable[tuple[Any, ...]]],
        add_columns: Callable[[], None],
    ) -> None:
        try:
            self._version += 1
            self._database.execute("BEGIN")
            with self._database:
                self._add_tensors(tensors)
                self._database.executemany(_INSERT, values())
                add_columns()
                # An upper bound, since replaced rows are included; `_drop_oldest` counts exactly.
                self._rows += len(tensors)
                if self._rows > self._most_rows:
                    self._drop_oldest()
        except sqlite3.Error as error:
            # Tensors that were just added have been rolled back.
            self._ids.clear()
            self._listed.clear()
            raise self._storage_error(error) from error
        self.is_empty = not self._rows

    def of(self, key: TensorKey, iteration: int) -> Statistics | None:
        """Return the statistics of a tensor in an iteration; None if unknown."""
        rows = self._select("WHERE statistics.tensor = ? AND iteration = ?", (self._id(key), iteration))
        return rows[0].statistics if rows else None

    def history(self, key: TensorKey) -> list[StatisticsRow]:
        """Return the statistics of a tensor in all iterations, in order."""
        return self._select("WHERE statistics.tensor = ? ORDER BY iteration", (self._id(key),))

    def page(
        self,
        iteration: int,
        *,
        rank: int | None = None,
        query: str = "",
        sort: str = "position",
        descending: bool = False,
        offset: int = 0,
        limit: int = 100,
        programs: Mapping[int, tuple[Program, frozenset[str]]] = MappingProxyType({}),
    ) -> StatisticsPage:
        """Return a sorted page of the statistics of an iteration.

        Parameters
        ----------
        iteration : int
        rank : int or None
            Only tensors of this rank; None for all.
        query : str
            Words, each part of the node's name or the operator's type, case-insensitive; all must match.
        sort : str
            One of `statistics_pages.SORT_COLUMNS`. Tensors without a value come last either way.
        descending : bool
        offset, limit : int
            Index of the first row, and the maximum number of rows.
        programs : mapping of int to (Program, frozenset of str)
            For ranks with several graphs: the program, and the graphs that ran. A tensor that was reported for several
            graphs is a single row.

        Raises
        ------
        InputError
            There is no such column, or `offset` or `limit` is negative.
        """
        require_page(sort, offset, limit)
        ids = self._ordered(iteration, rank, query, sort, descending, programs)
        page_ids = ids[offset : offset + limit].tolist()
        rows = self._query(
            f"{_SELECT_PAGE} WHERE iteration = ? AND tensor IN (SELECT value FROM json_each(?))",  # noqa: S608 - our own
            (iteration, json.dumps(page_ids)),
        )
        by_id = {row[0]: _row(row[1:]) for row in rows}
        # Tensors that were dropped meanwhile have no row.
        return StatisticsPage(
            total=len(ids), offset=offset, rows=tuple(by_id[number] for number in page_ids if number in by_id)
        )

    def _ordered(
        self,
        iteration: int,
        rank: int | None,
        query: str,
        sort: str,
        descending: bool,
        programs: Mapping[int, tuple[Program, frozenset[str]]],
    ) -> NDArray[np.int64]:
        """Return the sorted ids of tensors; cached for further pages until more statistics arrive."""
        key = (self._version, iteration, rank, query, sort, descending, tuple(programs.items()))
        ids = self._orders.get(key)
        if ids is None:
            rows = self._rows_of(iteration, rank, needed(sort), programs)
            ids = rows.ids[ordered(rows, query, sort, descending=descending)]
            with self._lock:
                self._orders[key] = ids
                while len(self._orders) > MOST_ORDERS:
                    del self._orders[next(iter(self._orders))]
        return ids

    def _rows_of(
        self,
        iteration: int,
        rank: int | None,
        names: tuple[str, ...],
        programs: Mapping[int, tuple[Program, frozenset[str]]],
    ) -> _StoredRows:
        """Return columns of the statistics of an iteration, in execution order."""
        columns = (*_IDENTITY, *(name for name in names if name not in _IDENTITY))
        where, values = ("", (iteration,)) if rank is None else (" AND rank = ?", (iteration, rank))
        rows = self._query(
            f"SELECT {', '.join(map(_quoted, columns))} FROM statistics"  # noqa: S608 - names of our own columns
            f" JOIN tensors ON tensors.id = statistics.tensor WHERE iteration = ?{where}"
            " ORDER BY rank, position IS NULL, position, io, slot, id",
            values,
        )
        return _StoredRows(columns, _each_once(rows, programs) if programs else rows)

    def iterations(self) -> list[int]:
        """Return the iterations with statistics, in order."""
        return [row[0] for row in self._query(_ITERATIONS, ())]

    def of_iteration(self, iteration: int) -> Iterator[StatisticsRow]:
        """Return all statistics of an iteration, in execution order."""
        return iter(self._select("WHERE iteration = ? ORDER BY rank, position, io, slot", (iteration,)))

    def tensors_of(self, rank: int) -> list[tuple[int, str, str, Literal["input", "output"], int, str, int | None]]:
        """Return id, graph, node, io, slot, type and position of the tensors of a rank, the newest last."""
        return self._query(_TENSORS, (rank,))

    def iterations_of(self, rank: int) -> NDArray[np.int64]:
        """Return the iterations for which a rank reported statistics, in order."""
        return step_columns.iterations_of(self._query, rank)

    def columns(
        self, rank: int, statistic: OverviewStatistic
    ) -> Iterator[tuple[int, NDArray[np.int64], NDArray[np.float64], NDArray[np.uint8]]]:
        """Yield iteration, ids of tensors, a statistic and marks; see `step_columns.read_columns`."""
        return step_columns.read_columns(self._query, rank, self.iterations_of(rank), statistic)

    def first_with(self, anomaly: str, rank: int, after: int) -> int | None:
        """Return the first iteration after another in which a tensor of a rank shows an anomaly."""
        rows = self._query(
            f"SELECT iteration FROM statistics INDEXED BY sick_{anomaly} CROSS JOIN tensors"  # noqa: S608 - our own
            f" ON tensors.id = statistics.tensor WHERE ({_SICK[anomaly]}) AND iteration > ? AND rank = ?"
            " ORDER BY iteration LIMIT 1",
            (after, rank),
        )
        return int(rows[0][0]) if rows else None

    def reported(self, rank: int, iteration: int, *, only_parameters: bool = False) -> list[tuple[Any, ...]]:
        """Return the statistics of an iteration of a rank, a tuple for each tensor; see `reported_steps`."""
        which = " AND type = 'Parameter'" if only_parameters else ""
        return self._query(f"{_SELECT_REPORTED} WHERE iteration = ? AND rank = ?{which}", (iteration, rank))

    def _add_tensors(self, tensors: Iterable[ReportedTensor]) -> None:
        for tensor in tensors:
            # The position changes when the graph has grown.
            key, kind, position = tensor
            if self._listed.get(key) == tensor:
                continue
            if key not in self._ids and len(self._ids) >= MOST_TENSORS:
                raise StorageError(f"statistics of more than {MOST_TENSORS:,} different tensors are not kept")
            cursor = self._database.execute(
                "INSERT INTO tensors (rank, graph, node, io, slot, type, position) VALUES (?, ?, ?, ?, ?, ?, ?)"
                " ON CONFLICT DO UPDATE SET type = excluded.type, position = excluded.position RETURNING id",
                (*key, kind, position),
            )
            self._ids[key] = int(cursor.fetchone()[0])
            self._listed[key] = tensor

    def _add_rows(self, rows: Sequence[ReportedRow]) -> None:
        # Constants do not belong to a step.
        step_rows = [row for row in rows if row.type != CONSTANT]
        step_columns.add_rows(self._database, step_rows, [self._ids[row.key] for row in step_rows])

    def _add_columns(self, tensors: Sequence[ReportedTensor], block: ReceivedBlock) -> None:
        if tensors:
            ids = [self._ids[tensor.key] for tensor in tensors]
            counts = block.counts.astype(np.float64)
            step_columns.add_columns(self._database, tensors[0].key.rank, block.iteration, ids, counts, block.numbers)

    def _values(self, row: ReportedRow) -> tuple[Any, ...]:
        statistics = row.statistics
        return (
            row.iteration,
            self._ids[row.key],
            statistics.dtype,
            json.dumps(statistics.shape),
            _hash_text(statistics.content_hash),
            statistics.partial,
            *(_number(getattr(statistics, name)) for name in NUMBERS),
        )

    def _values_of_block(self, tensors: Sequence[ReportedTensor], block: ReceivedBlock) -> Iterator[tuple[Any, ...]]:
        shapes = {shape: json.dumps(shape) for shape in set(block.shapes)}
        columns = zip(
            *(tensors, block.dtypes, block.shapes, block.hashes.tolist()),
            *(block.sizes.tolist(), block.counts.tolist(), block.numbers.tolist()),
            strict=True,
        )
        for (key, *_), dtype, shape, content_hash, size, counts, numbers in columns:
            named = (block.iteration, self._ids[key], dtype, shapes[shape], _hash_text(content_hash), False)
            # NaN in a column means unknown.
            yield (*named, size, *counts, *numbers)

    def _drop_oldest(self) -> None:
        self._rows = int(self._database.execute("SELECT count(*) FROM statistics").fetchone()[0])
        if self._rows <= self._most_rows:
            return
        # Some more, because counting takes as long as there are rows.
        while self._rows > self._most_rows - self._most_rows // 20:
            ends = self._database.execute("SELECT min(iteration), max(iteration) FROM statistics").fetchone()
            if ends[0] == ends[1]:
                return
            self._rows -= self._database.execute("DELETE FROM statistics WHERE iteration = ?", ends[:1]).rowcount
            self._database.execute("DELETE FROM step_columns WHERE iteration = ?", ends[:1])

    def _id(self, key: TensorKey) -> int:
        tensor_id = self._ids.get(key)
        if tensor_id is not None:
            return tensor_id
        rows = self._query("SELECT id FROM tensors WHERE (rank, graph, node, io, slot) = (?, ?, ?, ?, ?)", key)
        return int(rows[0][0]) if rows else -1

    def _select(self, rest: str, values: Sequence[object]) -> list[StatisticsRow]:
        return [_row(row) for row in self._query(f"{_SELECT} {rest}", values)]

    def _query(self, text: str, values: Sequence[object]) -> list[tuple[Any, ...]]:
        with self._lock:
            try:
                with closing(self._database.execute(text, tuple(map(_storable, values)))) as cursor:
                    return cursor.fetchall()
            except sqlite3.Error as error:
                raise self._storage_error(error) from error

    def _storage_error(self, error: sqlite3.Error) -> StorageError:
        return StorageError(f"{self._path}: statistics cannot be kept or read: {error}. Is there space on the disk?")


def received_statistics(whole: TensorStatistics) -> ReceivedStatistics:
    """Convert statistics that the server computed to the type of reported ones."""
    numbers = {name: getattr(whole, name) for name in (*COUNTS, *MEASURES)}
    return ReceivedStatistics(whole.dtype, whole.shape, whole.size_bytes, numbers, whole.content_hash, partial=False)


def statistics_of(received: ReceivedStatistics) -> Statistics:
    """Return the record of statistics that a process reported."""
    counts: dict[str, Any] = {name: received.numbers.get(name) for name in COUNTS}
    measures: dict[str, Any] = {
        name: value for name in MEASURES if math.isfinite(value := received.numbers.get(name, math.nan))
    }
    return Statistics(
        dtype=received.dtype,
        shape=received.shape,
        size_bytes=received.size_bytes,
        content_hash=_hash_text(received.content_hash),
        partial=received.partial,
        unknown=tuple(name for name, count in counts.items() if count is None),
        **{name: count or 0 for name, count in counts.items()},
        **measures,
    )


class _StoredRows:
    """Columns of the tensors of an iteration; implements `StepRows`."""

    def __init__(self, columns: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> None:
        self._columns = dict(zip(columns, zip(*rows, strict=True), strict=True)) if rows else {}
        self.ids = self.numbers("id").astype(np.int64)

    def texts(self, name: str) -> Sequence[str]:
        """Return a column of texts."""
        return self._columns.get(name, ())

    def numbers(self, name: str) -> NDArray[np.float64]:
        """Return a column of numbers; NaN where unknown."""
        return np.array(self._columns.get(name, ()), np.float64)


def _quoted(name: str) -> str:
    return f'"{name}"'


def _each_once(
    rows: Sequence[tuple[Any, ...]], programs: Mapping[int, tuple[Program, frozenset[str]]]
) -> list[tuple[Any, ...]]:
    """Return the rows with a single row for each tensor that was reported for several graphs of the program.

    A row for a graph that ran is preferred, then the row with the smallest id, whose graph arrived first. The order of
    the rows is kept.
    """
    chosen: dict[tuple[Any, ...], tuple[bool, int]] = {}
    for number, rank, graph, node, io, slot, *_ in rows:
        program, ran = programs.get(rank, (None, frozenset()))
        key = (rank, graph if program is None else program.first_of(graph, node), node, io, slot)
        candidate = graph not in ran, number
        chosen[key] = min(chosen.get(key, candidate), candidate)
    ids = {number for _, number in chosen.values()}
    return [row for row in rows if row[0] in ids]


def _storable(value: object) -> object:
    """Make a value valid as a parameter of a query; lone surrogates, and integers beyond 64 bits, match nothing."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    return min(value, _LARGEST) if isinstance(value, int) else value


def _hash_text(content_hash: int | None) -> str:
    """Return a hash as text; empty if there is none."""
    return f"{content_hash:016x}" if content_hash else ""


def _number(value: float | None) -> float | None:
    """Return a value for a column: integers are limited to 64 bits, NaN becomes NULL."""
    if isinstance(value, int):
        return min(value, _LARGEST)
    return None if value is None or math.isnan(value) else value


def _row(row: tuple[Any, ...]) -> StatisticsRow:
    rank, graph, node, io, slot, kind, position, iteration, dtype, shape, content_hash, partial, *numbers = row
    values = dict(zip(NUMBERS, numbers, strict=True))
    unknown = tuple(name for name in COUNTS if values[name] is None)
    for name in unknown:
        values[name] = 0
    measures = {name: value for name in MEASURES if (value := values[name]) is not None and math.isfinite(value)}
    return StatisticsRow(
        **address_fields(TensorAddress(rank, graph, node, slot, iteration, io)),
        type=kind,
        position=position,
        statistics=Statistics(
            dtype=dtype,
            shape=tuple(json.loads(shape)),
            content_hash=content_hash,
            partial=bool(partial),
            unknown=unknown,
            **{name: values[name] for name in ("size_bytes", *COUNTS)},
            **measures,
        ),
    )
