"""The statistics table of a dump: one row for each tensor, computed on first request, valid until its file changes.

The table is a NumPy structured array aligned with the dump's list of tensors, plus columns that only some checks need:
the number of elements in a range, or the change since the previous iteration. It is stored as Parquet.
"""

from __future__ import annotations

import sys
import threading
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from tensight import tensors
from tensight.analysis.recorded_statistics import (
    NOT_RECORDED,
    RecordedStatistics,
    recorded_statistics,
)
from tensight.dumps import OpenTensor, TensorFile, TracedRow, open_tensor
from tensight.dumps.small_files import is_small_file, scan_small_files
from tensight.errors import TensightError
from tensight.tensors.schema import COLUMNS, COUNTS, MEASURES, NON_FINITE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from tensight.dumps import Dump
    from tensight.watchpoints import UnitRule

ROW = np.dtype([("state", np.uint8), COLUMNS[0], ("size_bytes", np.int64), *COLUMNS[1:]])
"""A row: `TensorStatistics` without dtype and shape, which are stored separately as Python objects."""

STATISTICS = tuple(name for name in ROW.names or () if name != "state")
"""The fields of a row that are statistics."""

UNKNOWN, KNOWN, UNREADABLE, RECORDED = range(4)
"""Values of the row's `state`; `RECORDED`: only the statistics that a device recorded are available.

A row of a trace is `KNOWN`, although it has no values that could be read (`StatisticsTable.with_values`)."""

CHANGE = np.dtype(
    [
        ("state", np.uint8),
        ("complete", np.bool_),
        ("mean_abs_change", np.float64),
        ("mean_abs_previous", np.float64),
        ("max_abs_change", np.float64),
        ("l2_change", np.float64),
        ("required_rtol", np.float64),
    ]
)
"""Change of a tensor since the previous iteration: `tensight.tensors.ChangeStatistics`."""

Range = tuple[float, float]
FileKey = tuple[str, str, int]
NO_PREVIOUS = -1
DEFAULT_ATOL = 1e-8
MEASURES_OF_CHANGE = tuple(name for name in CHANGE.names or () if name != "state")
FIRST_COMPARED = 4096
"""Number of elements that are compared before the whole previous value is read."""


MOST_TOGETHER = 128
"""Maximum number of files that are scanned at once: an interrupt waits for them, and other threads have the rest."""
MOST_BYTES_TOGETHER = 4 * 2**20
"""Size of the files that are scanned at once from which no further one is added."""


@dataclass(frozen=True, slots=True)
class Visit:
    """What to compute in one read of a tensor.

    Attributes
    ----------
    index : int
        The row.
    ranges : tuple of (float, float)
        Ranges in which to count the elements.
    atols : tuple of float
        Absolute tolerances, for each of which the tensor is compared with the previous iteration.
    stop_above : float
        Stop comparing as soon as the required relative tolerance is above this; infinite: never stop.
    units : tuple of UnitRule
        Rules for which to count units.
    """

    index: int
    ranges: tuple[Range, ...] = ()
    atols: tuple[float, ...] = ()
    stop_above: float = np.inf
    units: tuple[UnitRule, ...] = ()


@dataclass(slots=True)
class StatisticsTable:
    """Statistics of all tensors of a dump, as far as they are known.

    Attributes
    ----------
    files : sequence of TensorFile
        The tensors in the dump's order, followed by those of which only statistics were recorded; all other columns
        are aligned with it.
    index : dict of file_key to int
        The row of each tensor.
    previous : int64 array, shape (n,)
        The row of the same tensor at the previous iteration, -1 if there is none.
    rows : structured array `ROW`, shape (n,)
        Statistics. For a recorded tensor, unknown counts are -1 and unknown measures NaN; see `bounds`.
    recorded : RecordedStatistics
        Bounds for the statistics of the recorded tensors, which are the last rows.
    dtypes, shapes, errors : list
        NumPy dtype name, shape, and the reason why a file could not be read (empty if it could).
    in_range : dict of (start, end) to int64 array
        Number of elements in the range, -1 where not counted.
    changes : dict of atol to structured array `CHANGE`
        Comparison with the previous iteration.
    units : dict of UnitRule to float64 array
        Percentage of units, NaN where not counted.
    changed : set of int
        The ranks of which tensors were read since the table was stored.
    """

    files: Sequence[TensorFile]
    index: dict[FileKey, int]
    previous: NDArray[np.int64]
    rows: NDArray[np.void]
    dtypes: list[str]
    shapes: list[tuple[int, ...]]
    errors: list[str]
    recorded: RecordedStatistics = field(default_factory=lambda: recorded_statistics(()))
    in_range: dict[Range, NDArray[np.int64]] = field(default_factory=dict)
    changes: dict[float, NDArray[np.void]] = field(default_factory=dict)
    units: dict[UnitRule, NDArray[np.float64]] = field(default_factory=dict)
    changed: set[int] = field(default_factory=set)

    @classmethod
    def empty(cls, dump: Dump) -> StatisticsTable:
        """Return a table of all tensors of a dump, without any computed statistics.

        Parameters
        ----------
        dump : Dump
            The dump with the tensors.
        """
        dumped, only_recorded = dump.tensors(), dump.recorded_tensors()
        files = [*dumped, *only_recorded] if only_recorded else dumped
        index = {file_key(file): row for row, file in enumerate(files)}
        previous = np.full(len(files), NO_PREVIOUS, np.int64)
        for row, file in enumerate(files):
            if file.recorded is not None and not isinstance(file.recorded, TracedRow):
                continue
            before = dump.previous(file)
            if before is not None:
                previous[row] = index.get(file_key(before), NO_PREVIOUS)
        n = len(files)
        recorded = recorded_statistics([file.recorded for file in only_recorded if file.recorded is not None])
        table = cls(files, index, previous, np.zeros(n, ROW), [""] * n, [()] * n, [""] * n, recorded)
        table._take_recorded()
        return table

    @property
    def with_values(self) -> int:
        """Number of tensors with values; the rows after them are those of recorded tensors."""
        return len(self.files) - len(self.recorded)

    def _take_recorded(self) -> None:
        """Fill the rows of the tensors of which only statistics were recorded."""
        start, recorded = self.with_values, self.recorded
        rows = self.rows[start:]
        for name in (*COUNTS, *MEASURES):
            rows[name] = recorded.exact(name)
        rows["content_hash"] = recorded.hashes
        for number, (file, dtype, error) in enumerate(
            zip(self.files[start:], recorded.dtypes, recorded.errors, strict=True), start
        ):
            record = file.recorded
            if record is not None:
                self.describe(number, dtype, record.shape)
                self.rows["size_bytes"][number] = max(record.data_size, 0)
            self.errors[number] = f"{file.address or file.op_name}: {error}" if error else ""
            is_exact = recorded.exact_records[number - start]
            self.rows["state"][number] = UNREADABLE if error else KNOWN if is_exact else RECORDED

    def bounds(self, name: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the smallest and the largest value that a statistic of each tensor can have, shape (n,).

        The two differ only for recorded tensors. Without a finite element, both bounds of a measure are NaN.

        Parameters
        ----------
        name : str
            A count (also "non_finite_count") or a measure.
        """
        if name == "non_finite_count":
            exact = sum((self.rows[kind] for kind in NON_FINITE), np.zeros(len(self.files))).astype(np.float64)
        else:
            exact = self.rows[name].astype(np.float64)
        if not len(self.recorded):
            return exact, exact
        low, high = exact.copy(), exact.copy()
        low[self.with_values :], high[self.with_values :] = self.recorded.low[name], self.recorded.high[name]
        return low, high

    def snapshot(self) -> StatisticsTable:
        """Return a copy that is independent of later reads; to be stored, so that nothing counts as changed here."""
        changed, self.changed = self.changed, set()
        return StatisticsTable(
            self.files,
            self.index,
            self.previous,
            self.rows.copy(),
            self.dtypes.copy(),
            self.shapes.copy(),
            self.errors.copy(),
            self.recorded,
            {key: counts.copy() for key, counts in self.in_range.items()},
            {atol: rows.copy() for atol, rows in self.changes.items()},
            {rule: percentages.copy() for rule, percentages in self.units.items()},
            changed,
        )

    def forget(self, rows: slice) -> None:
        """Reset computed statistics of some tensors with values to unknown.

        Parameters
        ----------
        rows : slice
            Their rows.
        """
        self.rows[rows] = np.zeros(1, ROW)
        for counts in self.in_range.values():
            counts[rows] = -1
        for changes in self.changes.values():
            changes[rows] = np.zeros(1, CHANGE)
        for percentages in self.units.values():
            percentages[rows] = np.nan

    def describe(self, row: int, dtype: str, shape: tuple[int, ...]) -> None:
        """Store dtype and shape of a readable tensor; equal shapes share one object.

        Parameters
        ----------
        row : int
            Row of the tensor.
        dtype : str
            Element type, such as ``float32``.
        shape : tuple of int
            Length of each dimension.
        """
        self.dtypes[row], self.shapes[row], self.errors[row] = sys.intern(dtype), _shape(shape), ""

    def range_counts(self, key: Range) -> NDArray[np.int64]:
        """Return the column of element counts in a range, and add it if it is missing.

        Parameters
        ----------
        key : Range
            Start and end of the range, both inclusive.
        """
        if key not in self.in_range:
            self.in_range[key] = np.full(len(self.files), -1, np.int64)
        return self.in_range[key]

    def change_rows(self, atol: float) -> NDArray[np.void]:
        """Return the column of comparisons for an absolute tolerance, and add it if it is missing.

        Parameters
        ----------
        atol : float
            Absolute tolerance, in the unit of the tensor.
        """
        if atol not in self.changes:
            self.changes[atol] = np.zeros(len(self.files), CHANGE)
        return self.changes[atol]

    def unit_percentages(self, rule: UnitRule) -> NDArray[np.float64]:
        """Return the column of unit percentages for a rule, and add it if it is missing.

        Parameters
        ----------
        rule : UnitRule
            Rule by which units are counted.
        """
        if rule not in self.units:
            self.units[rule] = np.full(len(self.files), np.nan)
        return self.units[rule]

    def prepare(self, visits: Sequence[Visit]) -> None:
        """Add the columns that visits will fill, before threads start to fill them.

        Parameters
        ----------
        visits : sequence of Visit
            The visits that will follow.
        """
        for visit in visits:
            for key in visit.ranges:
                self.range_counts(key)
            for atol in visit.atols:
                self.change_rows(atol)
            for rule in visit.units:
                self.unit_percentages(rule)

    def together(self, visits: Sequence[Visit]) -> list[list[Visit]]:
        """Group visits so that `fill` scans many small files at once; all others stay alone.

        Parameters
        ----------
        visits : sequence of Visit
            The visits to group.

        Returns
        -------
        list of list of Visit
            The visits of a group have the same ranges, and nothing else to compute.
        """
        groups: list[list[Visit]] = []
        growing: dict[tuple[Range, ...], list[Visit]] = {}
        sizes: dict[tuple[Range, ...], int] = {}
        for visit in visits:
            file = self.files[visit.index]
            if visit.atols or visit.units or not is_small_file(file):
                groups.append([visit])
                continue
            group = growing.get(visit.ranges)
            if group is None or len(group) == MOST_TOGETHER or sizes[visit.ranges] >= MOST_BYTES_TOGETHER:
                group = growing[visit.ranges] = []
                sizes[visit.ranges] = 0
                groups.append(group)
            group.append(visit)
            sizes[visit.ranges] += file.size_bytes
        return groups

    def fill(self, visits: Sequence[Visit]) -> None:
        """Read tensors and store everything that the visits ask for; an unreadable file becomes an error row.

        Parameters
        ----------
        visits : sequence of Visit
            One visit, or some that `together` grouped.
        """
        for visit in self._scan_together(visits) if len(visits) > 1 else visits:
            self._fill_one(visit)

    def _scan_together(self, visits: Sequence[Visit]) -> Sequence[Visit]:
        """Scan small files with one call of the kernels; return the visits of the files that need more than that."""
        ranges = visits[0].ranges
        scanned = scan_small_files([self.files[visit.index] for visit in visits], ranges)
        indices = np.fromiter((visit.index for visit in visits), np.int64, len(visits))[scanned.indices]
        for row, dtype, shape in zip(indices.tolist(), scanned.rows.dtypes, scanned.shapes, strict=True):
            self.describe(row, dtype, shape)
        rows = np.empty(len(indices), ROW)
        rows["state"], rows["size_bytes"] = KNOWN, scanned.rows.sizes
        rows["content_hash"] = scanned.rows.hashes
        for name, column in scanned.rows.columns().items():
            rows[name] = column
        self.rows[indices] = rows
        for number, key in enumerate(ranges):
            self.in_range[key][indices] = scanned.in_ranges[:, number]
        left = set(range(len(visits))).difference(scanned.indices.tolist())
        return [visits[number] for number in sorted(left)]

    def _fill_one(self, visit: Visit) -> None:
        row = visit.index
        try:
            self._read(visit)
        except TensightError as error:
            self.errors[row] = str(error)
            self.rows["state"][row] = UNREADABLE
            for atol in visit.atols:
                self.changes[atol]["state"][row] = UNREADABLE

    def _read(self, visit: Visit) -> None:
        row = visit.index
        scan = self.rows["state"][row] != KNOWN or bool(visit.ranges)
        with ExitStack() as opened:
            tensor = opened.enter_context(open_tensor(self.files[row]))
            comparison = self._compare_with_previous(visit, tensor, opened)
            partials = []
            whole: list[NDArray[Any]] = []
            for number, segment in enumerate(tensor.segments(tensors.SEGMENT_ELEMENTS, _buffers.current(tensor))):
                if scan:
                    partials.append(tensors.scan_segment(segment, number, visit.ranges))
                if comparison is not None:
                    comparison.add(segment)
                if visit.units:
                    whole.append(segment.copy())
                elif not scan and (comparison is None or comparison.stopped):
                    break
        if scan:
            statistics, counts = tensors.merge(partials, dtype=tensor.header.dtype, shape=tensor.header.shape)
            self._store_statistics(row, statistics)
            # An empty tensor has no segments, so no counts.
            for key, count in zip(visit.ranges, counts or (0,) * len(visit.ranges), strict=True):
                self.in_range[key][row] = count
        for rule in visit.units:
            array = np.concatenate(whole).reshape(tensor.header.shape) if whole else np.empty(0)
            self.units[rule][row] = tensors.unit_percentage(
                array, rule.start, rule.end, outside=rule.outside, percentage=rule.percentage
            )
        if comparison is not None:
            for atol, change in comparison.results():
                self.changes[atol][row] = (KNOWN, *(getattr(change, name) for name in MEASURES_OF_CHANGE))

    def _compare_with_previous(self, visit: Visit, tensor: OpenTensor, opened: ExitStack) -> _Comparison | None:
        """Open the previous value for a comparison; if the two cannot be compared, store that and return None."""
        row = visit.index
        if not visit.atols or self.previous[row] == NO_PREVIOUS:
            return None
        try:
            before = opened.enter_context(open_tensor(self.files[self.previous[row]]))
        except TensightError:
            before = None
        if before is not None and before.header.count == tensor.header.count:
            return _Comparison(before, visit.atols, visit.stop_above)
        for atol in visit.atols:
            self.changes[atol][row] = (UNREADABLE, True, np.nan, np.nan, np.nan, np.nan, np.nan)
        return None

    def _store_statistics(self, row: int, statistics: tensors.TensorStatistics) -> None:
        self.describe(row, statistics.dtype, statistics.shape)
        self.rows[row] = (KNOWN, *(getattr(statistics, name) for name in STATISTICS))


class _Buffers(threading.local):
    """Buffers of a thread for one segment of a tensor and one of its previous value."""

    def __init__(self) -> None:
        self._rooms: dict[str, NDArray[np.uint8]] = {}

    def current(self, tensor: OpenTensor) -> NDArray[np.uint8]:
        """Return the buffer for the tensor itself."""
        return self._room("current", tensor)

    def previous(self, tensor: OpenTensor) -> NDArray[np.uint8]:
        """Return the buffer for its previous value."""
        return self._room("previous", tensor)

    def _room(self, name: str, tensor: OpenTensor) -> NDArray[np.uint8]:
        size = tensors.SEGMENT_ELEMENTS * tensor.header.dtype.itemsize
        if name not in self._rooms or self._rooms[name].size < size:
            self._rooms[name] = np.empty(size, np.uint8)
        return self._rooms[name]


_buffers = _Buffers()


class _Comparison:
    """The running comparison of a tensor with its previous value, for each absolute tolerance.

    It is `stopped` as soon as all required relative tolerances are above `stop_above`, and reads no more of the
    previous value then; usually the first few elements suffice.
    """

    def __init__(self, previous: OpenTensor, atols: Sequence[float], stop_above: float) -> None:
        self._previous = previous
        self._segments = previous.segments(tensors.SEGMENT_ELEMENTS, _buffers.previous(previous))
        self._stop_above = stop_above
        self._partials: dict[float, list[tensors.ChangePartial]] = {atol: [] for atol in atols}
        self._started = False
        self.stopped = False

    def add(self, segment: NDArray[Any]) -> None:
        """Compare the next segment, unless the comparison is stopped."""
        if self.stopped:
            return
        if not self._started and self._stop_above < np.inf and len(segment) > FIRST_COMPARED:
            first = next(self._previous.segments(FIRST_COMPARED, _buffers.previous(self._previous)))
            partials = self._compare(segment[:FIRST_COMPARED], first)
            if not self._enough(partials):
                partials = self._compare(segment, next(self._segments))
        else:
            partials = self._compare(segment, next(self._segments))
        self._started = True
        self.stopped = self._enough(partials)
        for atol, partial in partials.items():
            self._partials[atol].append(partial)

    def _compare(self, segment: NDArray[Any], before: NDArray[Any]) -> dict[float, tensors.ChangePartial]:
        return {atol: tensors.scan_change_segment(segment, before, atol=atol) for atol in self._partials}

    def _enough(self, partials: dict[float, tensors.ChangePartial]) -> bool:
        return all(partial.required_rtol > self._stop_above for partial in partials.values())

    def results(self) -> Iterator[tuple[float, tensors.ChangeStatistics]]:
        """Yield the result for each absolute tolerance."""
        for atol, partials in self._partials.items():
            yield atol, tensors.merge_changes(partials, atol=atol, complete=not self.stopped)


@lru_cache(maxsize=4096)
def _shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    return shape


def file_key(file: TensorFile) -> FileKey:
    """Return the key that identifies a tensor on disk: its file and, in files with several tensors, its name there.

    Parameters
    ----------
    file : TensorFile
        A tensor of a dump.
    """
    if file.recorded is not None:
        # A trace stores all steps in one file.
        return (
            f"{_utf8(file.path)}\0{file.op_type}\0{file.op_name}\0{file.graph}\0{file.node}\0{file.iteration}",
            file.io,
            file.slot,
        )
    return (_utf8(file.path), file.io, file.slot)


def _utf8(text: str) -> str:
    """Return a text that Arrow accepts, because the name of a dump's folder may not be valid UTF-8."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


FILE_COLUMNS: tuple[tuple[str, str, Callable[[TensorFile], object]], ...] = (
    ("rank", "int32", lambda file: file.rank),
    ("graph", "string", lambda file: file.graph),
    ("graph_id", "int64", lambda file: file.graph_id),
    ("node", "string", lambda file: file.node),
    ("op_type", "string", lambda file: file.op_type),
    ("op_name", "string", lambda file: file.op_name),
    ("io", "string", lambda file: file.io),
    ("slot", "int32", lambda file: file.slot),
    ("iteration", "int64", lambda file: file.iteration),
    ("step", "int64", lambda file: file.step),
    ("timestamp", "int64", lambda file: file.timestamp),
    ("format", "string", lambda file: file.format),
    ("path", "string", lambda file: _utf8(file.path)),
    ("file_bytes", "int64", lambda file: file.size_bytes if file.recorded is None else None),
    ("file_mtime_ns", "int64", lambda file: file.mtime_ns),
)
"""Columns about the file: name, Arrow type, function that returns the value."""


def to_arrow(table: StatisticsTable, rows: slice = slice(None)) -> pa.Table:
    """Return the table as Arrow: the address of each tensor, its file, and its statistics (null if unknown).

    Parameters
    ----------
    table : StatisticsTable
        The table to convert.
    rows : slice
        The rows to return; all by default.

    Returns
    -------
    pyarrow.Table
        One row for each tensor; the columns are described on the reference page "statistics table".
    """
    import pyarrow as pa

    files, recorded = table.files[rows], table.rows["state"][rows] == RECORDED
    unknown = (table.rows["state"][rows] != KNOWN) & ~recorded
    columns: dict[str, pa.Array[Any]] = {
        name: pa.array([value(file) for file in files], _arrow_type(kind)) for name, kind, value in FILE_COLUMNS
    }
    columns["dtype"] = pa.array([dtype or None for dtype in table.dtypes[rows]], pa.string())
    shapes = zip(table.shapes[rows], unknown, strict=True)
    columns["shape"] = pa.array([None if missing else list(shape) for shape, missing in shapes], pa.list_(pa.int64()))
    for name in STATISTICS:
        values = np.ascontiguousarray(table.rows[name][rows])
        # Without finite elements, minimum, mean, … are null; NaN would sort as the largest value.
        absent = np.isnan(values) if name in MEASURES else recorded & _not_recorded(name, values)
        columns[name] = pa.array(values, mask=unknown | absent)
    columns["error"] = pa.array([_utf8(error) or None for error in table.errors[rows]], pa.string())
    return pa.table(columns)


def _not_recorded(name: str, values: NDArray[Any]) -> NDArray[np.bool_]:
    """Return which values of recorded tensors are null: unknown counts, and hashes, which are not of the content."""
    missing: NDArray[np.bool_] = np.ones(len(values), np.bool_) if name == "content_hash" else values == NOT_RECORDED
    return missing


def _arrow_type(kind: str) -> pa.DataType:
    import pyarrow as pa

    types: dict[str, pa.DataType] = {"int32": pa.int32(), "int64": pa.int64(), "string": pa.string()}
    return types[kind]
