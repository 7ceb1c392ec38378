"""Traces: what is written is read, whatever happened to the file on the way."""

from __future__ import annotations

import json
import random
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest

from tensight.analysis import Analysis
from tensight.dumps import open_dump, open_tensor
from tensight.dumps.storage import LocalFile
from tensight.dumps.trace_files import (
    MARK,
    TRACE_ROW,
    TracedTensor,
    TraceHeader,
    TraceWriter,
    read_rows,
    read_trace,
)
from tensight.errors import DumpError, TensorFileError
from tensight.graph.ms_graph_pb2 import GraphProto, NodeProto, ParameterProto
from tensight.tensors import COUNTS, MEASURES, statistics
from tensight.tensors.elements import ELEMENT_NAMES

GRAPH = GraphProto(
    name=b"kernel_graph_0",
    root_name=b"0",
    parameters=[ParameterProto(name=b"weight")],
    node=[NodeProto(name=b"1", op_type=b"Add", scope=b"Default", full_name=b"Default/Add-op0")],
)
TENSORS = (TracedTensor("weight", "Parameter", "output", 0), TracedTensor("Default/Add-op0", "Add", "output", 0))
FIRST_MEASURES = ["min", "max", "mean", "abs_mean", "std", "l2_norm"]
VALUES = (np.arange(6, dtype=np.float32).reshape(2, 3), np.array([np.nan, -1.5, np.inf], np.float64))


def row_of(tensor: int, values: np.ndarray) -> np.ndarray:
    row = np.zeros(1, TRACE_ROW)
    found = statistics(values)
    row["tensor"], row["dtype"] = tensor, ELEMENT_NAMES.index(found.dtype)
    for name in (*COUNTS, *MEASURES, "content_hash"):
        row[name] = getattr(found, name)
    return row


def written(folder: Path, steps: int = 3, rank: int = 0) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / f"rank_{rank}.trace"
    writer = TraceWriter(path, TraceHeader("torch", "2.13", "CPU", rank=rank, world_size=2))
    writer.write_setup({"seed": 1})
    writer.write_graph(0, GRAPH.SerializeToString(), ["Default/Add-op0"])
    writer.add_tensors(TENSORS)
    writer.write_step(-1, 0, row_of(0, VALUES[0]), [VALUES[0].shape])
    for step in range(steps):
        rows = np.concatenate([row_of(1, VALUES[1] * (step + 1)), row_of(0, VALUES[0] + step)])
        writer.write_step(step, 0, rows, [VALUES[1].shape, VALUES[0].shape])
    writer.close()
    return path


def test_a_trace_opens_as_a_dump_with_exact_rows(tmp_path: Path) -> None:
    written(tmp_path / "run")
    written(tmp_path / "run", rank=3)
    dump = open_dump(tmp_path / "run")
    assert (dump.ranks, dump.iterations(), dump.setup, dump.problems) == ((0, 3), (0, 1, 2), {"seed": 1}, [])
    assert (dump.metadata.framework, dump.metadata.traces, dump.metadata.is_whole) == ("torch", "modules", True)
    assert [device.rank for device in dump.devices()] == [0, 3]
    assert dump.execution_order(0) == ("Default/Add-op0",)
    assert dump.history(0) == {0: (0, 1, 2)}
    files = dump.recorded_tensors(ranks=[0])
    assert [(file.node, file.iteration) for file in files] == [
        ("weight", -1),
        *((node, step) for step in range(3) for node in ("Default/Add-op0", "weight")),
    ]
    table = Analysis(dump, cache_dir=tmp_path / "cache").statistics()
    row = table.index[next(key for key, at in table.index.items() if table.files[at] is files[3])]
    expected = statistics(VALUES[1] * 2)
    assert (table.dtypes[row], table.shapes[row]) == (expected.dtype, expected.shape)
    for name in (*COUNTS, *MEASURES, "content_hash", "size_bytes"):
        assert table.rows[name][row] == getattr(expected, name), name
        if name in MEASURES:
            assert [bound[row] for bound in table.bounds(name)] == [getattr(expected, name)] * 2
    assert dump.tensor("3/kernel_graph_0/weight:0@2") is not None
    assert dump.previous(files[4]) is files[2]
    with pytest.raises(TensorFileError, match="trace"), open_tensor(files[0]):
        pass
    alone = open_dump(tmp_path / "run" / "rank_3.trace")
    assert (alone.ranks, alone.path) == ((3,), str(tmp_path / "run"))
    assert open_dump(tmp_path).ranks == (0, 3)


def as_another_version_wrote(path: Path, measures: list[str] | None) -> None:
    """Write a trace anew with other measures in its rows; None: as the first version, which did not name them."""
    data, offset, records = path.read_bytes(), len(MARK), [MARK]
    names = FIRST_MEASURES if measures is None else measures
    kept = [TRACE_ROW.descr[: -1 - len(MEASURES)], [(name, "<f8") for name in names], TRACE_ROW.descr[-1:]]
    other = np.dtype([part for parts in kept for part in parts])
    while offset < len(data):
        kind, size, _ = struct.unpack_from("<4sII", data, offset)
        body = data[offset + 12 : offset + 12 + size]
        offset += 12 + size
        if kind == b"HEAD":
            header = json.loads(body)
            header.pop("measures")
            body = json.dumps(header if measures is None else {**header, "measures": measures}).encode()
        elif kind == b"STEP":
            rows = np.frombuffer(body, TRACE_ROW, offset=16)
            written = np.full(len(rows), 7, other)
            for name in set(other.names or ()) & set(TRACE_ROW.names or ()):
                written[name] = rows[name]
            body = body[:16] + written.tobytes()
        head = struct.pack("<4sI", kind, len(body))
        records.append(head + struct.pack("<I", zlib.crc32(body, zlib.crc32(head))) + body)
    path.write_bytes(b"".join(records))


@pytest.mark.parametrize("measures", [None, ["min", "of_another", "mean", "max"], [*MEASURES, "of_another"], []])
def test_traces_of_versions_with_other_measures_are_read(tmp_path: Path, measures: list[str] | None) -> None:
    as_another_version_wrote(written(tmp_path / "run"), measures)
    dump = open_dump(tmp_path / "run")
    assert (dump.iterations(), dump.problems) == ((0, 1, 2), [])
    table = Analysis(dump, cache_dir=tmp_path / "cache").statistics()
    assert len(table.files) == 7
    for row, file in enumerate(table.files):
        step = max(file.iteration, 0)
        expected = statistics(VALUES[0] + step if file.node == "weight" else VALUES[1] * (step + 1))
        for name in (*COUNTS, *MEASURES, "content_hash"):
            is_known = name not in MEASURES or name in (FIRST_MEASURES if measures is None else measures)
            bounds = [bound[row] for bound in table.bounds(name)] if name != "content_hash" else []
            if is_known:
                assert table.rows[name][row] == getattr(expected, name), name
                assert set(bounds) <= {getattr(expected, name)}
            else:
                assert np.isnan(table.rows[name][row])
                assert bounds == [-np.inf, np.inf]


@pytest.mark.parametrize("measures", ["min", ["min", "min"], ["count"], [3], ["a b"], [f"m{n}" for n in range(65)]])
def test_measures_that_none_can_be_are_refused(tmp_path: Path, measures: object) -> None:
    path = written(tmp_path / "run")
    path.write_bytes(
        MARK + record(b"HEAD", json.dumps({"framework": "torch", "dtypes": [], "measures": measures}).encode())
    )
    with LocalFile(str(path)) as file, pytest.raises(DumpError):
        read_trace(file, "")


def test_of_a_process_that_was_killed_all_whole_records_are_read(tmp_path: Path) -> None:
    path = written(tmp_path / "run")
    whole = path.read_bytes()
    with LocalFile(str(path)) as file:
        ends = [step.offset + step.row_count * TRACE_ROW.itemsize for step in read_trace(file, "").steps.values()]
    seen = set()
    for length in range(len(MARK), len(whole), 7):
        path.write_bytes(whole[:length])
        steps = sum(end <= length for end in ends)
        try:
            dump = open_dump(tmp_path / "run")
            found = len(dump.recorded_tensors())
        except DumpError:
            assert not steps
            continue
        assert found == max(2 * steps - 1, 0)
        assert len(dump.iterations()) == max(steps - 1, 0)
        seen.add(steps)
        if length not in ends:
            assert [
                problem.advice for problem in dump.problems if "within a record" in problem.what
            ] != [] or steps == 0
    assert seen == {0, 1, 2, 3, 4} - ({4} if len(whole) == ends[-1] else set())


def record(kind: bytes, body: bytes) -> bytes:
    head = struct.pack("<4sI", kind, len(body))
    return head + struct.pack("<I", zlib.crc32(body, zlib.crc32(head))) + body


@pytest.mark.parametrize(
    "extra",
    [
        record(b"STEP", struct.pack("<qII", 9, 0, 1) + row_of(7, VALUES[0]).tobytes()),
        record(b"STEP", struct.pack("<qII", 9, 0, 2**31)),
        record(b"STEP", struct.pack("<qII", 2**62, 0, 0)),
        record(b"STEP", struct.pack("<qII", 9, 0, 2) + 2 * row_of(0, VALUES[0]).tobytes()),
        record(b"STEP", struct.pack("<qII", 1, 0, 0)),
        record(b"STEP", b""),
        record(b"GRPH", struct.pack("<II", 0, 2**31)),
        record(b"GRPH", struct.pack("<II", 5, 3) + b"\xff\xff\xff[]"),
        record(b"GRPH", struct.pack("<II", 5, 0) + b"[1]"),
        record(b"DICT", json.dumps({"tensors": [["a", "b", "output", -1]], "shapes": []}).encode()),
        record(b"DICT", json.dumps({"tensors": [["a"]], "shapes": []}).encode()),
        record(b"DICT", json.dumps({"tensors": 7}).encode()),
        record(b"DICT", json.dumps({"shapes": [[2**60]]}).encode()),
        record(b"DICT", b"[" * 100_000),
        record(b"SETU", b"[]"),
        struct.pack("<4sII", b"STEP", 2**32 - 1, 0),
        record(b"SETU", b"{}")[:-1] + b"!",
    ],
)
def test_a_record_that_lies_is_a_problem_and_what_came_before_is_there(tmp_path: Path, extra: bytes) -> None:
    path = written(tmp_path / "run")
    path.write_bytes(path.read_bytes() + extra)
    dump = open_dump(tmp_path / "run")
    assert len(dump.graphs(0)) == 1
    assert len(dump.recorded_tensors()) == 7
    assert dump.problems


@pytest.mark.parametrize("data", [b"", b"TSTRACE", MARK, b"TSTRACE9" + bytes(40), MARK + record(b"STEP", b"")])
def test_what_is_no_trace_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "rank_0.trace").write_bytes(data)
    with pytest.raises(DumpError, match=r"rank_0\.trace"):
        open_dump(tmp_path).iterations()


def test_damaged_files_are_read_or_refused_and_never_believed_more_than_they_hold(tmp_path: Path) -> None:
    path = written(tmp_path / "run", steps=2)
    whole = path.read_bytes()
    chance = random.Random(15)  # noqa: S311 - the same damage every time
    for _ in range(400):
        data = bytearray(whole)
        for _ in range(chance.randint(1, 4)):
            at = chance.randrange(len(data))
            data[at : at + chance.choice((1, 1, 4))] = chance.randbytes(chance.choice((0, 1, 4)))
        path.write_bytes(data)
        try:
            with LocalFile(str(path)) as file:
                trace = read_trace(file, "x")
                for step in trace.steps.values():
                    assert len(read_rows(file, trace, step)) == step.row_count
        except DumpError:
            continue
        assert set(trace.steps) <= {-1, 0, 1}
