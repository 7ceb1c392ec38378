"""Traces: the statistics and content hashes of every step of a training, one append-only file for each rank.

A file is a mark of eight bytes followed by records: a head of twelve bytes (kind, size of the body, CRC-32 of both and
the body), and the body. Each record is written by one system call, so a killed process leaves at most one incomplete
record, at the end; readers use all records before it.

=======  ================================================================================================
kind     body
=======  ================================================================================================
``HEAD``  JSON: framework, rank, what was captured, the element types by number; the first record
``SETU``  JSON: the set-up of the training; the last one is used
``GRPH``  number of the graph, size of the message, serialized GraphProto, JSON list of operators as they ran; the
          last one of each number is used
``DICT``  JSON: tensors (name, type, io, slot) and shapes; numbers continue from earlier records
``STEP``  iteration, number of the graph, number of rows, rows (`TRACE_ROW`) in the order of execution
=======  ================================================================================================

Everything is little-endian. Files are untrusted: sizes are bounded, and numbers are checked before use.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from tensight.errors import DumpError, Problem
from tensight.tensors import COUNTS, MEASURES
from tensight.tensors.elements import ELEMENT_NAMES, element_named
from tensight.tensors.schema import FIRST_MEASURES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from tensight.dumps.storage import OpenFile

TRACE_SUFFIX = ".trace"


def _row_type(measures: Sequence[str]) -> np.dtype[np.void]:
    return np.dtype(
        [
            ("tensor", "<u4"),
            ("shape", "<u4"),
            ("dtype", "<u4"),
            ("repeats", "<u4"),
            *((name, "<i8") for name in COUNTS),
            *((name, "<f8") for name in measures),
            ("content_hash", "<u8"),
        ]
    )


TRACE_ROW = _row_type(MEASURES)
"""One tensor of a step: numbers of its name, shape and element type, whether it was seen several times in the step (the
row is then that of the last time), and the fields of `TensorStatistics`."""

MARK = b"TSTRACE1"
_HEAD = struct.Struct("<4sII")
_STEP = struct.Struct("<qII")
_GRAPH = struct.Struct("<II")

MOST_BODY_BYTES = 2**30
MOST_JSON_BYTES = 64 * 2**20
MOST_TENSORS = 2**20
MOST_SHAPES = 2**20
MOST_STEPS = 10_000_000
MOST_GRAPHS = 10_000
MOST_DIMENSIONS = 64
MOST_ELEMENTS = 2**53
_MOST_MEASURES = 64
_NO_MEASURES = frozenset(TRACE_ROW.names or ()) - frozenset(MEASURES)
_LARGEST_SLOT = 2**20
_LARGEST_RANK = 10**9


class TracedTensor(NamedTuple):
    """The tensor that a row describes.

    Attributes
    ----------
    node : str
        Full name of the node.
    type : str
        Type of the node.
    io : {"input", "output"}
    slot : int
    """

    node: str
    type: str
    io: Literal["input", "output"]
    slot: int


@dataclass(frozen=True, slots=True)
class TraceHeader:
    """The header of a trace.

    Attributes
    ----------
    framework, framework_version, device_target : str
        As in `DumpMetadata`.
    device : int
        Number of the device.
    rank, world_size : int
    capture : str
        ``modules`` or ``ops``.
    script : str
        Command line of the training.
    dtypes : tuple of str
        NumPy's names of the element types, indexed by the numbers in the rows.
    measures : tuple of str
        The measures in each row of the file. Those unknown to this version are not read, and missing ones are NaN.
    """

    framework: str
    framework_version: str = ""
    device_target: str = ""
    device: int = 0
    rank: int = 0
    world_size: int = 1
    capture: str = "modules"
    script: str = ""
    dtypes: tuple[str, ...] = ELEMENT_NAMES
    measures: tuple[str, ...] = MEASURES

    def rows_of(self, data: bytes, start: int = 0) -> NDArray[np.void]:
        """Return the rows in bytes of the file from an offset on, structured array `TRACE_ROW`, read-only."""
        written: NDArray[np.void] = np.frombuffer(data, _row_type(self.measures), offset=start)
        if self.measures == MEASURES:
            return written
        rows = np.empty(len(written), TRACE_ROW)
        for name in TRACE_ROW.names or ():
            rows[name] = written[name] if name in (written.dtype.names or ()) else np.nan
        rows.setflags(write=False)
        return rows

    @property
    def row_bytes(self) -> int:
        """Bytes of a row in the file."""
        return _row_type(self.measures).itemsize


class TraceWriter:
    """Write the trace of one rank; each method raises OSError if writing fails.

    Parameters
    ----------
    path : Path
        A file that does not exist yet.
    header : TraceHeader
    """

    def __init__(self, path: Path, header: TraceHeader) -> None:
        self.path = path
        self._tensors = 0
        self._shapes: dict[tuple[int, ...], int] = {}
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._write(MARK)
        self._add(b"HEAD", _json(asdict(header)))

    @property
    def tensors(self) -> int:
        """Number of tensors added so far."""
        return self._tensors

    def write_setup(self, setup: Mapping[str, Any]) -> None:
        """Write the set-up of the training: any JSON object."""
        self._add(b"SETU", _json(dict(setup)))

    def write_graph(self, number: int, message: bytes, order: Sequence[str]) -> None:
        """Write a graph, or a newer version of it under the same number.

        Parameters
        ----------
        number : int
            The number by which steps refer to it.
        message : bytes
            Serialized GraphProto.
        order : sequence of str
            Full names of its operators as they ran.
        """
        self._add(b"GRPH", _GRAPH.pack(number, len(message)), message, _json(list(order)))

    def add_tensors(self, tensors: Sequence[TracedTensor]) -> None:
        """Assign numbers to tensors, continuing from those added before."""
        if tensors:
            self._tensors += len(tensors)
            self._add(b"DICT", _json({"tensors": [list(tensor) for tensor in tensors], "shapes": []}))

    def write_step(self, iteration: int, graph: int, rows: NDArray[np.void], shapes: Sequence[tuple[int, ...]]) -> None:
        """Write a step.

        Parameters
        ----------
        iteration : int
            -1 for the values before the first step.
        graph : int
            Number of the graph that ran.
        rows : structured array `TRACE_ROW`, shape (n,)
            In the order of execution; the column ``shape`` is filled in here.
        shapes : sequence of tuple of int
            Shape of each row's tensor.
        """
        numbers_of_shapes = self._shapes
        new: list[tuple[int, ...]] = []
        numbers = []
        for shape in shapes:
            number = numbers_of_shapes.get(shape)
            if number is None:
                number = numbers_of_shapes[shape] = len(numbers_of_shapes)
                new.append(shape)
            numbers.append(number)
        if new:
            self._add(b"DICT", _json({"tensors": [], "shapes": [list(shape) for shape in new]}))
        rows["shape"] = numbers
        self._add(b"STEP", _STEP.pack(iteration, graph, len(rows)), rows.tobytes())

    def close(self) -> None:
        """Close the file."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _add(self, kind: bytes, *parts: bytes) -> None:
        size = sum(map(len, parts))
        checksum = zlib.crc32(struct.pack("<4sI", kind, size))
        for part in parts:
            checksum = zlib.crc32(part, checksum)
        self._write(b"".join((_HEAD.pack(kind, size, checksum), *parts)))

    def _write(self, data: bytes) -> None:
        left = memoryview(data)
        while left:
            left = left[os.write(self._file, left) :]


class TracedStep(NamedTuple):
    """The position of a step in the file.

    Attributes
    ----------
    iteration : int
    graph : int
        Number of the graph that ran.
    offset : int
        Offset of the rows in bytes.
    row_count : int
        Number of rows.
    """

    iteration: int
    graph: int
    offset: int
    row_count: int


@dataclass(slots=True)
class Trace:
    """The content of a trace file without its rows, which `read_rows` reads.

    Attributes
    ----------
    header : TraceHeader
    setup : dict or None
        The set-up of the training; None if not recorded.
    graphs : dict of int to (bytes, tuple of str)
        Serialized GraphProto and the order of execution, by number.
    tensors : list of TracedTensor
    shapes : list of tuple of int
    steps : dict of int to TracedStep
        By iteration, in increasing order.
    problems : list of Problem
    """

    header: TraceHeader
    setup: dict[str, Any] | None = None
    graphs: dict[int, tuple[bytes, tuple[str, ...]]] = field(default_factory=dict)
    tensors: list[TracedTensor] = field(default_factory=list)
    shapes: list[tuple[int, ...]] = field(default_factory=list)
    steps: dict[int, TracedStep] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)


def read_trace(file: OpenFile, where: str) -> Trace:
    """Read a trace without its rows, of which only the checksums are verified.

    A file that ends within a record, or is damaged, is read up to that record.

    Parameters
    ----------
    file : OpenFile
    where : str
        For messages.

    Returns
    -------
    Trace

    Raises
    ------
    DumpError
        It is not a trace, or of another version.
    """
    if file.read(0, len(MARK)) != MARK:
        raise DumpError(f"{where}: is not a trace that this version of Tensight reads.")
    reader = _Reader(where)
    offset = len(MARK)
    while offset < file.size_bytes:
        try:
            kind, body = _record(file, offset)
            reader.take(kind, body, offset + _HEAD.size)
        except _CutError as error:
            reader.problem(str(error), "the steps before that are read")
            break
        except (ValueError, KeyError, TypeError, RecursionError, struct.error) as error:
            reader.problem(f"the record at byte {offset:,} cannot be used: {error}", "the steps before that are read")
            break
        offset += _HEAD.size + len(body)
    return reader.result()


def read_rows(file: OpenFile, trace: Trace, step: TracedStep) -> NDArray[np.void]:
    """Return the rows of a step, structured array `TRACE_ROW`, read-only.

    Raises
    ------
    DumpError
        The file has changed since it was read.
    """
    data = file.read(step.offset, step.row_count * trace.header.row_bytes)
    if len(data) == step.row_count * trace.header.row_bytes:
        rows = trace.header.rows_of(data)
        if not _wrong(rows, trace):
            return rows
    raise DumpError(f"{file.path}: has changed while it was read.")


class _CutError(Exception):
    """A record is incomplete or damaged."""


def _record(file: OpenFile, offset: int) -> tuple[bytes, bytes]:
    head = file.read(offset, _HEAD.size)
    if len(head) < _HEAD.size:
        raise _CutError("the file ends within a record, as after a kill")
    kind, size, checksum = _HEAD.unpack(head)
    if size > MOST_BODY_BYTES:
        raise _CutError(f"it is damaged at byte {offset:,}")
    if offset + _HEAD.size + size > file.size_bytes:
        raise _CutError("the file ends within a record, as after a kill")
    body = file.read(offset + _HEAD.size, size)
    if len(body) < size or zlib.crc32(body, zlib.crc32(head[:8])) != checksum:
        raise _CutError(f"it is damaged at byte {offset:,}")
    return kind, body


class _Reader:
    """Collect the records of a trace."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._trace: Trace | None = None
        self._problems: list[Problem] = []
        self.steps: dict[int, TracedStep] = {}

    def problem(self, what: str, advice: str = "") -> None:
        """Add a problem."""
        self._problems.append(Problem(self._where, what, advice))

    def result(self) -> Trace:
        """Return the trace that was read."""
        if self._trace is None:
            why = f": {self._problems[0].what}" if self._problems else ""
            raise DumpError(f"{self._where}: the trace has no header{why}.")
        self._trace.steps = dict(sorted(self.steps.items()))
        self._trace.problems = self._problems
        return self._trace

    def take(self, kind: bytes, body: bytes, offset: int) -> None:
        """Process a record; unknown kinds are skipped."""
        if self._trace is None:
            if kind != b"HEAD":
                raise ValueError("the first record is not a header")
            self._trace = Trace(_header(_parsed(body)))
        elif kind == b"SETU":
            self._trace.setup = _mapping(_parsed(body))
        elif kind == b"GRPH":
            self._take_graph(self._trace, body)
        elif kind == b"DICT":
            self._take_names(self._trace, _mapping(_parsed(body)))
        elif kind == b"STEP":
            self._take_step(self._trace, body, offset)

    @staticmethod
    def _take_graph(trace: Trace, body: bytes) -> None:
        number, size = _GRAPH.unpack_from(body)
        if size > len(body) - _GRAPH.size:
            raise ValueError("its graph is longer than the record")
        if number not in trace.graphs and len(trace.graphs) >= MOST_GRAPHS:
            raise ValueError(f"it is the graph after {MOST_GRAPHS:,}")
        order = _parsed(body[_GRAPH.size + size :])
        if not isinstance(order, list) or not all(isinstance(name, str) for name in order):
            raise ValueError("its order of execution is not a list of names")
        trace.graphs[number] = body[_GRAPH.size : _GRAPH.size + size], tuple(order)

    @staticmethod
    def _take_names(trace: Trace, names: dict[str, Any]) -> None:
        tensors, shapes = names.get("tensors", []), names.get("shapes", [])
        if len(trace.tensors) + len(tensors) > MOST_TENSORS or len(trace.shapes) + len(shapes) > MOST_SHAPES:
            raise ValueError(f"there are more than {MOST_TENSORS:,} tensors or {MOST_SHAPES:,} shapes")
        trace.tensors += [_tensor(*tensor) for tensor in tensors]
        trace.shapes += map(_shape, shapes)

    def _take_step(self, trace: Trace, body: bytes, offset: int) -> None:
        iteration, graph, count = _STEP.unpack_from(body)
        if len(body) != _STEP.size + count * trace.header.row_bytes:
            raise ValueError("the number of its rows does not match its size")
        if not -1 <= iteration < MOST_STEPS or len(self.steps) >= MOST_STEPS:
            raise ValueError(f"it is iteration {iteration:,}")
        if iteration in self.steps:
            self.problem(f"has iteration {iteration} twice", "the first is used")
            return
        wrong = _wrong(trace.header.rows_of(body, _STEP.size), trace)
        if wrong:
            self.problem(f"iteration {iteration} {wrong}", "it is left out")
            return
        self.steps[iteration] = TracedStep(iteration, graph, offset + _STEP.size, count)


def _wrong(rows: NDArray[np.void], trace: Trace) -> str:
    """Return why rows cannot be used; empty if they can."""
    if not len(rows):
        return ""
    limits = (("tensor", trace.tensors), ("shape", trace.shapes), ("dtype", trace.header.dtypes))
    for name, named in limits:
        if int(rows[name].max()) >= len(named):
            return f"has a row with a {name} that has no name"
    if len(np.unique(rows["tensor"])) != len(rows):
        return "has a tensor twice"
    counts = np.stack([rows[name] for name in COUNTS])
    if int(counts.min()) < 0 or int(counts.max()) > MOST_ELEMENTS:
        return "has an impossible count"
    if (counts[1:].sum(axis=0) != counts[0]).any():
        return "has counts that do not add up"
    return ""


def _header(data: Any) -> TraceHeader:
    header = _mapping(data)
    texts = ("framework", "framework_version", "device_target", "capture", "script")
    numbers = ("device", "rank", "world_size")
    chosen: dict[str, Any] = {name: header[name] for name in (*texts, *numbers) if name in header}
    if not all(isinstance(chosen.get(name, ""), str) for name in texts) or "framework" not in chosen:
        raise ValueError("its header names no framework")
    if not all(_is_whole(chosen.get(name, 0), _LARGEST_RANK) for name in numbers):
        raise ValueError("its header has an impossible rank")
    dtypes = header.get("dtypes")
    if not isinstance(dtypes, list) or not set(map(str, dtypes)) <= set(ELEMENT_NAMES):
        raise ValueError("its header has element types that this version of Tensight does not know")
    # The first version did not name them.
    measures = header.get("measures", list(FIRST_MEASURES))
    is_list = isinstance(measures, list) and len(measures) <= _MOST_MEASURES and all(map(_is_name, measures))
    if not is_list or len(set(measures)) < len(measures):
        raise ValueError("its header has impossible measures")
    return TraceHeader(**chosen, dtypes=tuple(map(str, dtypes)), measures=tuple(measures))


def _is_name(name: Any) -> bool:
    return isinstance(name, str) and name.isidentifier() and name.isascii() and name not in _NO_MEASURES


def _tensor(node: Any, type_: Any, io: Any, slot: Any) -> TracedTensor:
    if not (isinstance(node, str) and isinstance(type_, str)) or io not in ("input", "output"):
        raise ValueError("a tensor in it has no name")
    if not _is_whole(slot, _LARGEST_SLOT):
        raise ValueError("a tensor in it has no slot")
    return TracedTensor(node, type_, io, slot)


def _shape(lengths: Any) -> tuple[int, ...]:
    if not isinstance(lengths, list) or len(lengths) > MOST_DIMENSIONS:
        raise ValueError("a shape in it is not a list of lengths")
    if not all(_is_whole(length, MOST_ELEMENTS) for length in lengths):
        raise ValueError("a shape in it has an impossible length")
    return tuple(lengths)


def _is_whole(number: Any, largest: int) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and 0 <= number <= largest


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), default=str).encode("utf-8", "backslashreplace")


def _parsed(body: bytes) -> Any:
    if len(body) > MOST_JSON_BYTES:
        raise ValueError(f"its text is longer than {MOST_JSON_BYTES:,} bytes")
    return json.loads(body)


def _mapping(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError("its text is not a JSON object")
    return value


class TracedRow:
    """The statistics of one tensor in one step of a trace: exact, with the hash of its content.

    It has the attributes of `StatisticRow` with recorded data, so that both can be displayed by the same code.

    Parameters
    ----------
    rows : structured array `TRACE_ROW`
        Rows of the step.
    index : int
        Index of the row.
    dtype : str
        Element type, such as ``float32``.
    shape : tuple of int
        Length of each dimension.
    """

    __slots__ = ("_index", "_rows", "data_type", "shape")

    def __init__(self, rows: NDArray[np.void], index: int, dtype: str, shape: tuple[int, ...]) -> None:
        self._rows = rows
        self._index = index
        self.data_type = dtype
        self.shape = shape

    @property
    def row(self) -> np.void:
        """The row, of dtype `TRACE_ROW`."""
        row: np.void = self._rows[self._index]
        return row

    @property
    def data_size(self) -> int:
        """Size of the elements in bytes."""
        return int(self.row["count"]) * element_named(self.data_type).native.itemsize

    @property
    def values(self) -> dict[str, float | int | str]:
        """The statistics by name."""
        row = self.row
        statistics: dict[str, float | int | str] = {name: row[name].item() for name in (*COUNTS, *MEASURES)}
        return {**statistics, "content_hash": f"{int(row['content_hash']):016x}"}
