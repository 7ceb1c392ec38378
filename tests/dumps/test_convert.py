from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from tensight.dumps import open_dump, read_tensor
from tensight.dumps.convert import ConversionFailure, ConversionReport, convert_dump, convert_in_place
from tensight.errors import DumpError, InputError
from tests.dumps import ascend_writer as device

CONV = "Conv2D.Default_network_conv1_Conv2D-op77.3.7.1630000000000000"
IMAGES = np.arange(2 * 3 * 4 * 5).reshape(2, 3, 4, 5).astype(np.float16)
WEIGHTS = np.arange(7 * 3 * 3 * 3).reshape(7, 3, 3, 3).astype(np.float16)
BIAS = np.arange(7, dtype=np.float32)
SCALES = np.arange(6).reshape(2, 3).astype(ml_dtypes.bfloat16)


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    """Two ranks; rank 0 has one operator, an npy file, an overflow record and metadata."""
    root = tmp_path / "dump"
    iteration = root / "rank_0/Net/0/2"
    for folder in (iteration, root / "rank_0/.dump_metadata", root / "rank_0/graphs", root / "rank_1/Net/0/2"):
        folder.mkdir(parents=True)
    (root / "rank_0/.dump_metadata/config.json").write_text('{"device_target": "Ascend", "ms_version": "2.0.0"}')
    (root / "rank_0/graphs/ms_output_trace_code_graph_0.pb").write_bytes(b"\n\x00")
    (iteration / CONV).write_bytes(
        device.dump_data(
            inputs=[device.device_tensor(IMAGES, "NC1HWC0", 16), device.device_tensor(WEIGHTS, "FRACTAL_Z", 16)],
            outputs=[device.host_tensor(BIAS), device.host_tensor(SCALES)],
        )
    )
    np.save(iteration / "Parameter.fc1.weight.0.0.1630000000000001.output.0.DefaultFormat.npy", BIAS)
    (iteration / "statistic.csv").write_text("Op Type\n")
    (iteration / "Opdebug.Node_OpDebug.1.2.1630000000000002").write_bytes(
        device.overflow_file(device.older_overflow_block())
    )
    (root / "rank_1/Net/0/2" / CONV).write_bytes(device.dump_data(outputs=[device.host_tensor(BIAS)]))
    return root


def test_every_tensor_becomes_an_npy_file_in_the_layout_of_the_host(dump, tmp_path):
    before = snapshot(dump)
    assert convert_dump(dump, tmp_path / "out") == ConversionReport(written=5, copied=1, failures=())
    assert snapshot(dump) == before
    folder = tmp_path / "out/rank_0/Net/0/2"
    assert {path.name for path in folder.iterdir()} == {
        f"{CONV}.input.0.NCHW.npy",
        f"{CONV}.input.1.NCHW.npy",
        f"{CONV}.output.0.ND.npy",
        f"{CONV}.output.1.ND.npy",
        "Parameter.fc1.weight.0.0.1630000000000001.output.0.DefaultFormat.npy",
        "statistic.csv",
        "Opdebug.Node_OpDebug.1.2.1630000000000002.output.0.json",
    }
    for name, expected in {"input.0.NCHW": IMAGES, "input.1.NCHW": WEIGHTS, "output.0.ND": BIAS}.items():
        loaded = np.load(folder / f"{CONV}.{name}.npy", allow_pickle=False)
        assert loaded.dtype == expected.dtype
        np.testing.assert_array_equal(loaded, expected)
    assert np.load(tmp_path / f"out/rank_1/Net/0/2/{CONV}.output.0.ND.npy").shape == (7,)


def test_bfloat16_is_stored_as_float32_as_mindspore_does(dump, tmp_path):
    convert_dump(dump, tmp_path / "out")
    loaded = np.load(tmp_path / f"out/rank_0/Net/0/2/{CONV}.output.1.ND.npy", allow_pickle=False)
    assert loaded.dtype == np.float32
    np.testing.assert_array_equal(loaded, SCALES.astype(np.float32))


def test_the_rest_of_the_dump_is_copied(dump, tmp_path):
    convert_dump(dump, tmp_path / "out")
    for name in (".dump_metadata/config.json", "graphs/ms_output_trace_code_graph_0.pb", "Net/0/2/statistic.csv"):
        assert (tmp_path / "out/rank_0" / name).read_bytes() == (dump / "rank_0" / name).read_bytes()


def test_overflow_records_become_json(dump, tmp_path):
    convert_dump(dump, tmp_path / "out")
    text = (tmp_path / "out/rank_0/Net/0/2/Opdebug.Node_OpDebug.1.2.1630000000000002.output.0.json").read_text()
    assert json.loads(text)["AI Core"]["task_id"] == 57


def test_progress_is_told_for_every_folder(dump, tmp_path):
    steps: list[tuple[int, int]] = []
    convert_dump(dump, tmp_path / "out", progress=lambda done, total: steps.append((done, total)))
    assert [done for done, _ in steps] == list(range(steps[-1][1] + 1))


def test_what_cannot_be_converted_is_listed_and_the_rest_is_there(dump, tmp_path):
    iteration = dump / "rank_0/Net/0/2"
    bad = device.Tensor(bytes(4), 13, 2, (1,), (1,))
    (iteration / "Add.a.1.1.5").write_bytes(device.dump_data(inputs=[bad, bad], outputs=[device.host_tensor(BIAS)]))
    (iteration / "Sub.a.1.1.6").write_bytes(b"garbage")
    (iteration / "Opdebug.Node_OpDebug.1.2.9").write_bytes(b"garbage")
    (iteration / "link").symlink_to("/etc/passwd")
    report = convert_dump(dump, tmp_path / "out")
    failures = report.failures
    assert report.written == 6
    assert [problem.where for problem in report.problems] == [failure.line for failure in failures]
    assert sorted((Path(f.path).name, f.tensors) for f in failures) == [
        ("Add.a.1.1.5", ("input:0", "input:1")),
        ("Opdebug.Node_OpDebug.1.2.9", ()),
        ("Sub.a.1.1.6", ()),
        ("link", ()),
    ]
    assert (tmp_path / "out/rank_0/Net/0/2/Add.a.1.1.5.output.0.ND.npy").exists()
    assert not list((tmp_path / "out").rglob("*.part"))
    assert "STRING" in str(next(f for f in failures if f.tensors))


def test_names_without_a_stream_get_one(dump, tmp_path):
    (dump / "rank_0/Net/0/2/Add.a.4.1630000000000009").write_bytes(device.dump_data(outputs=[device.host_tensor(BIAS)]))
    assert convert_dump(dump, tmp_path / "out").failures == ()
    assert (tmp_path / "out/rank_0/Net/0/2/Add.a.4.0.1630000000000009.output.0.ND.npy").exists()


def test_two_files_of_one_name_are_not_written_over_each_other(dump, tmp_path):
    for extra in ("4.0.0.0", "4.1.0.0"):
        (dump / f"rank_0/Net/0/2/Add.a.1.1.5.{extra}").write_bytes(device.dump_data(outputs=[device.host_tensor(BIAS)]))
    (failure,) = convert_dump(dump, tmp_path / "out").failures
    assert failure.tensors == ("output:0",)
    assert "another file" in failure.reason


def test_long_names_are_mapped_on_the_way_in_and_out(dump, tmp_path):
    folder = dump / "rank_0/Net/0/2"
    long_name = f"Add.{'Default_' * 30}Add-op1.1.1.5"
    (folder / "1234567890").write_bytes(device.dump_data(outputs=[device.host_tensor(BIAS)]))
    np.save(folder / "42.npy", BIAS)
    (folder / "mapping.csv").write_text(f"1234567890,{long_name}\n42,Mul.{'x' * 250}.0.0.1.output.0.ND.npy\n")
    assert convert_dump(dump, tmp_path / "out").failures == ()
    out = tmp_path / "out/rank_0/Net/0/2"
    mapping = dict(line.split(",") for line in (out / "mapping.csv").read_text().splitlines())
    assert mapping.pop("42").startswith("Mul.")
    ((digits, name),) = mapping.items()
    assert name == f"{long_name}.output.0.ND.npy"
    np.testing.assert_array_equal(np.load(out / f"{digits}.npy"), BIAS)


def test_npy_files_of_an_earlier_conversion_are_not_copied_twice(dump, tmp_path):
    convert_in_place(dump)
    assert convert_dump(dump, tmp_path / "out").failures == ()
    names = [path.name for path in (tmp_path / "out/rank_0/Net/0/2").glob("Conv2D.*")]
    assert sorted(names) == sorted(
        f"{CONV}.{end}.npy" for end in ("input.0.NCHW", "input.1.NCHW", "output.0.ND", "output.1.ND")
    )


@pytest.mark.parametrize("place", ["dump", "dump/out", "dump/rank_0/out", "full", "file"])
def test_only_an_empty_folder_outside_of_the_dump_is_written_to(dump, tmp_path, place):
    (tmp_path / "full").mkdir()
    (tmp_path / "full/precious").write_text("")
    (tmp_path / "file").write_text("")
    before = snapshot(tmp_path)
    with pytest.raises(InputError, match=r"is in the dump|not an empty folder"):
        convert_dump(dump, tmp_path / place)
    assert snapshot(tmp_path) == before


def test_a_folder_that_is_no_dump_is_refused(tmp_path):
    with pytest.raises(DumpError):
        convert_dump(tmp_path, tmp_path / "out")


def test_a_target_that_cannot_be_written_stops_with_one_error(dump, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DumpError, match="cannot be written"):
        convert_dump(dump, tmp_path / "file/out")


def test_the_converted_dump_holds_the_same_tensors(dump, tmp_path):
    opened = open_dump(dump)
    assert convert_dump(opened, tmp_path / "out").failures == ()
    converted = open_dump(tmp_path / "out")
    described = [(t.rank, t.iteration, t.op_type, t.op_name, t.io, t.slot, t.timestamp) for t in opened.tensors()]
    assert described == [
        (t.rank, t.iteration, t.op_type, t.op_name, t.io, t.slot, t.timestamp) for t in converted.tensors()
    ]
    for before, after in zip(opened.tensors(), converted.tensors(), strict=True):
        np.testing.assert_array_equal(read_tensor(after), read_tensor(before).astype(read_tensor(after).dtype))
    assert [record.executions for record in converted.overflows()] == [
        record.executions for record in opened.overflows()
    ]


def test_the_folder_of_one_rank_is_converted_under_its_number(dump, tmp_path):
    assert convert_dump(dump / "rank_1", tmp_path / "out").failures == ()
    assert (tmp_path / f"out/rank_1/Net/0/2/{CONV}.output.0.ND.npy").exists()


def test_converting_in_place_names_files_as_the_original_does(dump):
    assert convert_in_place(dump) == []
    names = {path.name for path in (dump / "rank_0/Net/0/2").glob("Conv2D*npy")}
    head = "Conv2D.Conv2D-op77.3.7.1630000000000000"
    assert names == {f"{head}.{end}.npy" for end in ("input.0.NCHW", "input.1.NCHW", "output.0.ND", "output.1.ND")}
    assert (dump / "rank_0/Net/0/2" / CONV).exists()
    assert (dump / "rank_0/Net/0/2/Opdebug.Node_OpDebug.1.2.1630000000000002.output.0.json").exists()
    assert not (dump / "convert_failed_files_summary.txt").exists()


def test_converting_in_place_again_replaces_its_own_files_and_no_others(dump):
    convert_in_place(dump)
    folder = dump / "rank_0/Net/0/2"
    stale = folder / "Conv2D.Conv2D-op77.3.7.1630000000000000.output.9.ND.npy"
    shutil.copy(folder / "Conv2D.Conv2D-op77.3.7.1630000000000000.output.0.ND.npy", stale)
    before = snapshot(dump)
    assert convert_in_place(dump) == []
    assert not stale.exists()
    before.pop(str(stale.relative_to(dump)))
    assert snapshot(dump) == before


def test_failures_of_converting_in_place_are_summarised_as_the_original_does(dump):
    folder = dump / "rank_0/Net/0/2"
    bad = device.Tensor(bytes(4), 13, 2, (1,), (1,))
    (folder / "Add.a.1.1.5").write_bytes(device.dump_data(inputs=[device.host_tensor(BIAS), bad], outputs=[bad]))
    lines = convert_in_place(dump)
    assert lines == [f"{folder}/Add.a.1.1.5,input:1,output:0"]
    summary = dump / "convert_failed_files_summary.txt"
    assert summary.read_text() == lines[0] + "\n"
    (folder / "Add.a.1.1.5").unlink()
    assert convert_in_place(dump) == []
    assert not summary.exists()


def test_a_remote_dump_is_converted_to_a_folder_but_not_in_place(dump, tmp_path):
    import fsspec

    memory = fsspec.filesystem("memory")
    memory.put(str(dump), "/remote-dump", recursive=True)
    with pytest.raises(InputError, match="only a local dump"):
        convert_in_place("memory://remote-dump")
    assert convert_dump("memory://remote-dump", tmp_path / "out").failures == ()
    assert np.load(tmp_path / f"out/rank_0/Net/0/2/{CONV}.input.1.NCHW.npy").shape == WEIGHTS.shape
    memory.rm("/remote-dump", recursive=True)


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is read-only for root")
def test_a_read_only_dump_is_not_half_converted_in_place(dump):
    folder = dump / "rank_0/Net/0/2"
    folder.chmod(0o500)
    try:
        with pytest.raises(DumpError, match="cannot be written"):
            convert_in_place(dump)
    finally:
        folder.chmod(0o700)


def test_a_failure_reads_as_one_line():
    failure = ConversionFailure("/d/Add.a.1.1.5", ("input:0", "output:1"), "too short")
    assert str(failure) == "/d/Add.a.1.1.5,input:0,output:1: too short"


def test_a_dump_of_another_layout_is_refused(unpacked: Callable[[str], Path], tmp_path: Path) -> None:
    out = tmp_path / "converted"
    with pytest.raises(InputError, match="not a dump of MindSpore"):
        convert_dump(unpacked("msprobe-26.2") / "msprobe" / "L0", out)
    assert not out.exists()
