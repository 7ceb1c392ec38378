"""What a dump says about itself."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tensight.dumps import Device, DumpMetadata, open_dump
from tensight.dumps.metadata import read_devices, read_metadata
from tensight.dumps.storage import open_storage
from tests.dumps.dump_writer import DumpWriter, GraphWriter

if TYPE_CHECKING:
    from pathlib import Path

    from tensight.errors import Problem


def metadata_of(root: Path, settings_: Any, machine: Any) -> tuple[DumpMetadata, list[Problem]]:
    folder = root / "rank_0" / ".dump_metadata"
    folder.mkdir(parents=True, exist_ok=True)
    for name, value in (("data_dump.json", settings_), ("config.json", machine)):
        if value is not None:
            data = value if isinstance(value, bytes) else json.dumps(value).encode()
            (folder / name).write_bytes(data)
    problems: list[Problem] = []
    return read_metadata(open_storage(root), "rank_0", problems), problems


def test_reads_a_synchronous_dump(tmp_path: Path) -> None:
    common = {"net_name": "Net", "input_output": 2, "saved_data": "full", "iteration": "all"}
    config = {"common_dump_settings": common, "e2e_dump_settings": {"enable": True}}
    meta, problems = metadata_of(tmp_path, config, {"device_target": "CPU", "ms_version": "2.0.0"})
    assert problems == []
    expected = DumpMetadata("mindspore", False, "2.0.0", "CPU", "Net", True, "npy", 2, "full", meta.config)
    assert meta == expected
    assert meta.config == config


def test_an_ascend_dump_is_asynchronous_unless_it_says_otherwise(tmp_path: Path) -> None:
    machine = {"device_target": "Ascend", "ms_version": "2.2.0"}
    meta, _ = metadata_of(tmp_path, {"common_dump_settings": {"net_name": "Net"}}, machine)
    assert (meta.synchronous, meta.file_format) == (False, "bin")
    config = {"common_dump_settings": {"net_name": "Net", "file_format": "npy"}}
    assert metadata_of(tmp_path, config, machine)[0].file_format == "npy"
    config["e2e_dump_settings"] = {"enable": True}
    assert metadata_of(tmp_path, config, machine)[0].synchronous


@pytest.mark.parametrize(
    "data",
    [None, b"", b"\x00\x01garbage", b"[]", b'{"common', b"[" * 100_000, b"\xff\xfe", b"9" * 10_000],
    ids=["missing", "empty", "garbage", "list", "cut", "deep", "no utf-8", "huge number"],
)
def test_missing_and_broken_settings_become_defaults_and_one_problem_each(tmp_path: Path, data: bytes | None) -> None:
    meta, problems = metadata_of(tmp_path, data, data)
    assert (meta.net_name, meta.framework_version, meta.saved_data, meta.input_output) == ("", "", "tensor", 0)
    assert [problem.where for problem in problems] == [
        "rank_0/.dump_metadata/data_dump.json",
        "rank_0/.dump_metadata/config.json",
    ]


@pytest.mark.parametrize("value", [7, "0", True, None, [1]])
def test_a_wrong_input_output_is_taken_as_both(tmp_path: Path, value: object) -> None:
    config = {"common_dump_settings": {"net_name": "Net", "input_output": value}}
    meta, problems = metadata_of(tmp_path, config, {"device_target": "CPU", "ms_version": "2.0.0"})
    assert meta.input_output == 0
    assert "input_output" in str(problems[0])


@pytest.mark.parametrize("name", ["..", "../other", "/etc", "a\0b"])
def test_a_network_name_that_leads_elsewhere_is_not_used(tmp_path: Path, name: str) -> None:
    config = {"common_dump_settings": {"net_name": name}}
    meta, problems = metadata_of(tmp_path, config, {"device_target": "CPU", "ms_version": "2.0.0"})
    assert meta.net_name == ""
    assert "is not a folder name" in str(problems[0])


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.sampled_from(["net_name", "server_list"]), inner),
)
_NAMES = ["common_dump_settings", "e2e_dump_settings", "ms_version", "device_target", "server_list", "device"]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.sampled_from(_NAMES), _JSON) | st.binary())
def test_any_settings_give_metadata(tmp_path: Path, value: Any) -> None:
    meta, _ = metadata_of(tmp_path, value, value)
    assert meta.input_output in (0, 1, 2)
    assert isinstance(meta.net_name, str)
    (tmp_path / "rank_0" / ".dump_metadata" / "hccl.json").write_bytes(
        value if isinstance(value, bytes) else json.dumps(value).encode()
    )
    devices = read_devices(open_storage(tmp_path), "rank_0", [])
    assert all(device.rank == rank for rank, device in devices.items())


def run_with_table(root: Path, table: Any) -> tuple[tuple[Device, ...], list[Problem]]:
    writer = DumpWriter(root)
    for rank in (0, 1):
        writer.graph(GraphWriter().operator("Default/Add-op1"), rank=rank)
    if table is not None:
        text = table if isinstance(table, str) else json.dumps(table)
        (writer.rank(0) / ".dump_metadata" / "hccl.json").write_text(text)
    dump = open_dump(root)
    return dump.devices(), dump.problems


def test_reads_the_device_table(tmp_path: Path) -> None:
    device = {"device_id": "4", "device_ip": "10.0.0.4", "rank_id": "1"}
    table = {"server_list": [{"server_id": "host-a", "device": [device]}]}
    devices, problems = run_with_table(tmp_path, table)
    assert devices == (Device(0, "localhost", 0), Device(1, "host-a", 4, "10.0.0.4"))
    assert problems == []


def test_without_a_device_table_devices_are_numbered_like_ranks(tmp_path: Path) -> None:
    devices, problems = run_with_table(tmp_path, None)
    assert devices == (Device(0, "localhost", 0), Device(1, "localhost", 1))
    assert problems == []


@pytest.mark.parametrize(
    "table", ["", "[]", {}, {"server_list": [{}]}, {"server_list": [{"device": [{"rank_id": 1}]}]}]
)
def test_a_broken_device_table_is_a_problem(tmp_path: Path, table: Any) -> None:
    devices, problems = run_with_table(tmp_path, table)
    assert [device.device_id for device in devices] == [0, 1]
    assert "hccl.json: cannot be used" in str(problems[0])
