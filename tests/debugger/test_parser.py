"""DumpParser: files by code, conversion, export."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tensight.debugger import DumpParser, RankDirNotFound

if TYPE_CHECKING:
    from pathlib import Path


def test_files_are_found_by_the_line_of_code(dump_200: Path, planted: dict[str, Any]) -> None:
    sick = planted["sick-2.0.0"]["planted"]["inf"]
    found = DumpParser(dump_200).get_tensor_files(f"{sick['file'].upper()}:{sick['line']} ")
    manager = found[sick["operator"]]
    rank = manager.rank(0)
    assert rank is not None
    path = rank.iteration(2)
    assert path is not None
    assert (manager.op_full_name, manager.devices, rank.rank_id) == (sick["operator"], [0], 0)
    assert (rank.iterations, path.iteration) == ([0, 1, 2, 3], 2)
    assert all("Log-op144" in file and ".output.0." in file for file in path.outputs)
    assert len(path.outputs) == 1
    assert path.inputs
    assert manager.to_dict()["rank_0"][2] == {"input": path.inputs, "output": path.outputs}
    assert (manager.rank(1), rank.iteration(9)) == (None, None)


def test_ranks_and_iterations_restrict_the_search(dump_210: Path) -> None:
    parser = DumpParser(dump_210)
    everything = parser.get_tensor_files("")
    assert parser.get_tensor_files("", rank_ids=[1]) == {}
    some = parser.get_tensor_files("", iterations=[1, 77])
    assert list(some) == list(everything)
    assert {tuple(manager.to_dict()["rank_0"]) for manager in some.values()} == {(1,)}
    assert parser.get_tensor_files("no such line") == {}


def test_every_file_of_every_graph_is_found(dump_200_second: Path) -> None:
    parser = DumpParser(dump_200_second)
    found = parser.get_tensor_files("")
    listed = [
        file
        for manager in found.values()
        for rank in manager.to_dict().values()
        for paths in rank.values()
        for file in (*paths["input"], *paths["output"])
    ]
    assert len(listed) == len(set(listed))
    folders = {file.split("/rank_0/")[1].split("/")[1] for file in listed}
    assert {"0", "1", "4", "5"} <= folders


def test_a_synchronous_dump_is_not_converted(dump_200: Path) -> None:
    with pytest.raises(ValueError, match="synchronous"):
        DumpParser(dump_200).convert_all_data_to_host()


def test_no_dump_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RankDirNotFound):
        DumpParser(tmp_path)


def test_the_workbook_is_exported(dump_200: Path, tmp_path: Path) -> None:
    path = DumpParser(dump_200).export_xlsx(tmp_path / "made")
    assert path.startswith(str(tmp_path / "made" / "dump_"))
    assert path.endswith(".xlsx")
