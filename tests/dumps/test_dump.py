"""Whole dumps: the committed real ones, a generated one of 2,000 files, and damaged ones."""

from __future__ import annotations

import json
import os
import shutil
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tensight.dumps import Dump, TensorFile, open_dump, read_tensor, tensor_header
from tensight.dumps.names import joined
from tensight.errors import DumpError, InputError
from tests.dumps.dump_writer import DumpWriter, GraphWriter

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

REAL = ["sick-2.0.0", "sick-2.10.0", "healthy-2.0.0", "healthy-2.10.0"]


@pytest.fixture(params=REAL)
def real(request: pytest.FixtureRequest, unpacked: Callable[[str], Path]) -> Dump:
    return open_dump(unpacked(request.param))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", REAL)
def test_reads_the_metadata_of_real_dumps(name: str, unpacked: Callable[[str], Path], planted: dict[str, Any]) -> None:
    dump = open_dump(unpacked(name))
    meta = dump.metadata
    assert (meta.framework_version, meta.net_name) == (planted[name]["framework_version"], planted[name]["net_name"])
    assert (meta.device_target, meta.synchronous, meta.file_format, meta.input_output) == ("CPU", True, "npy", 0)
    assert dump.ranks == (0,)


def test_a_healthy_real_dump_has_no_problems(real: Dump) -> None:
    real.tensors()
    real.history(0)
    real.execution_order(0)
    assert real.devices()[0].server == "localhost"
    assert real.problems == []


@pytest.mark.parametrize("name", REAL)
def test_every_file_of_a_real_dump_is_matched_to_a_node(name: str, unpacked: Callable[[str], Path]) -> None:
    dump = open_dump(unpacked(name))
    without = [tensor for tensor in dump.tensors() if tensor.node is None]
    # MindSpore 2.0.0 dumps constants that its graph file no longer has.
    assert all(tensor.is_constant for tensor in without)
    assert not without or name.endswith("2.0.0")
    files = sum(1 for path in unpacked(name).rglob("*.npy") if path.is_file())
    summary = dump.summary()["ranks"][0]
    assert summary["files"] + summary["unwritten"] == files
    assert summary["unmatched"] == summary["constants_without_node"]


@pytest.mark.parametrize("name", REAL)
def test_files_under_another_operator_id_find_their_operator(
    name: str, unpacked: Callable[[str], Path], planted: dict[str, Any]
) -> None:
    expected = {
        (item["graph"], item["op_name"]): item["operator"] for item in planted[name]["files_under_another_operator_id"]
    }
    found = {
        (tensor.graph, tensor.op_name): tensor.node
        for tensor in open_dump(unpacked(name)).tensors()
        if tensor.node is not None
        and joined(tensor.node) != joined(tensor.op_name)
        and tensor.op_name not in tensor.node
    }
    assert found == expected


def test_values_of_real_dumps_are_what_numpy_reads(real: Dump) -> None:
    for tensor in real.tensors():
        for one in (tensor, *tensor.older):
            expected = np.load(one.path, allow_pickle=False)
            header = tensor_header(one)
            assert (header.dtype, header.shape) == (expected.dtype, expected.shape)
            np.testing.assert_array_equal(read_tensor(one), expected)


def test_element_types_of_real_dumps_agree_with_the_graph(real: Dump) -> None:
    for tensor in real.tensors():
        graph = real.graph_of(tensor)
        node = graph.get(tensor.node) if graph is not None and tensor.node is not None else None
        if node is None or tensor.io == "input" or tensor.slot >= len(node.outputs) or tensor.is_constant:
            continue
        slot = node.outputs[tensor.slot]
        assert tensor_header(tensor).dtype == slot.dtype, tensor.path


def test_repeated_operators_of_a_real_loop_are_listed_newest_first(unpacked: Callable[[str], Path]) -> None:
    repeated = [tensor for tensor in open_dump(unpacked("healthy-2.10.0")).tensors() if tensor.older]
    assert repeated
    for tensor in repeated:
        times = [tensor.timestamp, *(older.timestamp for older in tensor.older)]
        assert times == sorted(times, reverse=True)
        assert {older.node for older in tensor.older} == {tensor.node}


def test_an_unknown_rank_is_a_wrong_input(real: Dump) -> None:
    with pytest.raises(InputError, match="no rank 5; it has 0"):
        real.graphs(5)


def test_a_summary_is_json(real: Dump) -> None:
    summary = real.summary()
    assert json.loads(json.dumps(summary)) == summary


@pytest.fixture
def many(tmp_path: Path) -> DumpWriter:
    """A dump of 2,000 files: two ranks, five iterations, a hundred operators of two slots each."""
    writer = DumpWriter(tmp_path / "many", "2.10.0")
    graph = GraphWriter("kernel_graph0")
    for number in range(100):
        graph.operator(f"Default/net-Net/{number}-Cell/Add-op{number % 3}")
    for rank in (0, 1):
        writer.graph(graph, rank=rank)
        writer.history(*range(5), rank=rank)
        for iteration in range(5):
            for name in graph.order:
                head = f"Add.{name.replace('/', '_')}"
                for io in ("input", "output"):
                    writer.tensor(iteration, head, io=io, dtype="Float32", rank=rank)
    return writer


def test_indexes_thousands_of_files_in_order(many: DumpWriter) -> None:
    dump = open_dump(many.root)
    tensors = dump.tensors()
    assert len(tensors) == 2000
    assert all(tensor.node is not None for tensor in tensors)
    keys = [(t.rank, t.graph_id, t.iteration, dump.execution_position(t), t.io, t.slot) for t in tensors]
    assert keys == sorted(keys)
    assert len({tensor.address for tensor in tensors}) == 2000
    assert dump.problems == []
    chosen = dump.tensors(ranks=[1], iterations=[2, 4])
    assert [(t.rank, t.iteration) for t in chosen] == [(1, 2)] * 200 + [(1, 4)] * 200


def test_only_the_iterations_asked_for_are_listed(many: DumpWriter) -> None:
    dump = open_dump(many.root)
    shutil.rmtree(many.folder(3))
    (many.folder(3)).rmdir()
    assert len(dump.tensors(ranks=[0], iterations=[2])) == 200
    assert len(open_dump(many.root).tensors(ranks=[0])) == 800


def test_a_folder_that_vanishes_is_a_problem(many: DumpWriter) -> None:
    dump = open_dump(many.root)
    assert dump.iterations(0) == (0, 1, 2, 3, 4)
    shutil.rmtree(many.root / "rank_0" / "Net" / "0" / "3")
    assert len(dump.tensors(ranks=[0])) == 800
    assert any("no such folder" in str(problem) for problem in dump.problems)


def test_the_fingerprint_changes_with_the_files_and_only_then(many: DumpWriter) -> None:
    first = open_dump(many.root).fingerprint()
    assert open_dump(many.root).fingerprint() == first
    os.utime(many.folder(2), ns=(1, 1))
    touched = open_dump(many.root).fingerprint()
    assert touched != first
    many.history(*range(6))
    assert open_dump(many.root).fingerprint() != touched


DAMAGES: dict[str, Callable[[Path], object]] = {
    "removed": lambda path: path.unlink(),
    "empty": lambda path: path.write_bytes(b""),
    "cut": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "garbage": lambda path: path.write_bytes(b"\xfe\x01garbage\x00" * 50),
    "folder": lambda path: (path.unlink(), path.mkdir()),
    "renamed": lambda path: path.rename(path.with_name("renamed" + path.suffix)),
}
FILES = [
    ".dump_metadata/data_dump.json",
    ".dump_metadata/config.json",
    "graphs/ms_output_trace_code_graph_0.pb",
    "execution_order/ms_execution_order_graph_0.csv",
    "execution_order/ms_global_execution_order_graph_0.csv",
]


@pytest.mark.sampled(8)
@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("file", FILES)
def test_the_rest_of_a_dump_is_read_whatever_happens_to_one_file(
    file: str, damage: str, dump_copy: Callable[[str], Path]
) -> None:
    root = dump_copy("sick-2.10.0")
    DAMAGES[damage](root / "rank_0" / file)
    dump = open_dump(root)
    assert len(dump.tensors()) == 1220
    dump.summary()
    assert dump.iterations() == (0, 1, 2, 3)
    assert all(dump.previous(tensor) is None for tensor in dump.tensors(iterations=[0]))
    assert all(tensor_header(tensor).count for tensor in dump.tensors()[:20])
    harmless = "execution_order" in file and damage in {"removed", "empty", "cut", "renamed", "folder"}
    assert harmless or dump.problems, "nothing was said"


def why_unreadable(tensor: TensorFile) -> str:
    try:
        read_tensor(tensor)
    except DumpError as error:
        return str(error)
    return ""


@pytest.mark.sampled(5)
@pytest.mark.parametrize("damage", ["empty", "cut", "garbage", "folder", "renamed"])
def test_a_damaged_tensor_is_an_error_of_its_own(damage: str, dump_copy: Callable[[str], Path]) -> None:
    root = dump_copy("sick-2.10.0")
    victim = sorted((root / "rank_0" / "Sick" / "0" / "1").iterdir())[7]
    DAMAGES[damage](victim)
    dump = open_dump(root)
    failed = [message for message in map(why_unreadable, dump.tensors()) if message]
    assert len(failed) == (0 if damage in {"folder", "renamed"} else 1)
    assert all(str(victim) in message for message in failed)
    assert failed or len(dump.tensors()) == 1219


@settings(
    max_examples=settings().max_examples // 2,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.sampled_from(FILES), st.binary(max_size=300), st.integers(0, 5000))
def test_no_bytes_in_any_file_crash_the_reader(many_small: DumpWriter, file: str, data: bytes, place: int) -> None:
    path = many_small.root / "rank_0" / file
    original = path.read_bytes()
    path.write_bytes(original[:place] + data + original[place + len(data) :])
    try:
        dump = open_dump(many_small.root)
        dump.summary()
        dump.fingerprint()
        assert len(dump.tensors()) == 2
    finally:
        path.write_bytes(original)


@pytest.fixture
def many_small(tmp_path: Path) -> DumpWriter:
    writer = DumpWriter(tmp_path / "small")
    writer.graph(GraphWriter().parameter("w").operator("Default/Add-op1", inputs=("w",)))
    writer.history(0)
    writer.tensor(0, "Add.Add-op1")
    writer.tensor(0, "Parameter.w")
    return writer


def test_opening_reads_no_graph_and_lists_no_iteration(many: DumpWriter) -> None:
    before = open_dump(many.root)
    for graph in (many.root / "rank_0" / "graphs").iterdir():
        graph.write_bytes(b"broken")
    shutil.rmtree(many.root / "rank_0" / "Net")
    assert before.ranks == (0, 1)
    assert before.metadata.net_name == "Net"
    assert before.problems == []


def test_gives_overflow_records_and_device_statistics(many_small: DumpWriter) -> None:
    (many_small.folder(0) / "statistic.csv").write_text(
        "Op Type,Op Name,Task ID,Stream ID,Timestamp,IO,Slot,Data Size,Data Type,Shape,Max Value\n"
        'Add,Add-op1,1,2,5,output,0,16,float32,"(4,)",7.5\n'
        "not a line\n"
    )
    record = many_small.root / "rank_0" / "debug_files" / "0" / "Opdebug.Node_OpDebug.1.2.5.output.0.json"
    record.parent.mkdir(parents=True)
    unit = {"model_id": 0, "stream_id": 2, "task_id": 1, "task_type": 0, "pc_start": "0x0", "para_base": "0x0"}
    record.write_text(json.dumps({"AI Core": {**unit, "status": 32, "kernel_code": "0x0", "block_idx": 0}}))
    dump = open_dump(many_small.root)
    assert [row.values["max"] for row in dump.statistic_rows()] == [7.5]
    assert list(dump.statistic_rows(iterations=[3])) == []
    assert [(record.rank, record.iteration) for record in dump.overflows()] == [(0, 0)]
    assert dump.overflows(0, 3) == ()
    assert any("statistic.csv:3" in str(problem) for problem in dump.problems)


def test_a_pynative_dump_of_overflows_alone_opens(tmp_path: Path) -> None:
    (tmp_path / "run" / "rank_0" / "debug_files").mkdir(parents=True)
    dump = open_dump(tmp_path / "run")
    assert list(dump.tensors()) == []
    assert dump.overflows() == ()
    assert dump.problems


@pytest.mark.parametrize("folder", [".dump_metadata", "graphs", "execution_order", "Net", "Net/0", "Net/0/0"])
def test_a_file_in_place_of_a_folder_is_a_problem_at_most(folder: str, many_small: DumpWriter) -> None:
    path = many_small.root / "rank_0" / folder
    shutil.rmtree(path)
    path.write_bytes(b"not a folder")
    dump = open_dump(many_small.root)
    dump.summary()
    assert len(dump.tensors()) == (0 if folder.startswith("Net") else 2)
    assert dump.history(0) == (None if folder == "execution_order" else {0: (0,)})
    # An order that is missing is taken from the graph.
    assert dump.problems or folder == "execution_order"


@pytest.mark.parametrize("name", ["statistic.csv", "mapping.csv"])
def test_a_folder_in_place_of_a_table_is_left_alone(name: str, many_small: DumpWriter) -> None:
    (many_small.folder(0) / name).mkdir()
    dump = open_dump(many_small.root)
    assert len(dump.tensors()) == 2
    assert list(dump.statistic_rows()) == []
