"""Finding a dump, and refusing what is none."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from tensight.dumps import open_dump, read_tensor
from tensight.errors import DumpError
from tests.dumps.dump_writer import DumpWriter, GraphWriter

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def written(root: Path, *ranks: int) -> Path:
    writer = DumpWriter(root)
    for rank in ranks or (0,):
        writer.graph(GraphWriter().operator("Default/Add-op1"), rank=rank)
        writer.tensor(0, "Add.Add-op1", rank=rank)
    return root


def test_opens_the_folder_of_the_dump_with_all_ranks_in_order(tmp_path: Path) -> None:
    dump = open_dump(written(tmp_path / "run", 10, 0, 2))
    assert dump.ranks == (0, 2, 10)
    assert [tensor.rank for tensor in dump.tensors()] == [0, 2, 10]
    assert [tensor.rank for tensor in dump.tensors(ranks=[2])] == [2]


def test_opens_the_folder_of_one_rank_alone(tmp_path: Path) -> None:
    dump = open_dump(written(tmp_path / "run", 0, 3) / "rank_3")
    assert dump.ranks == (3,)
    assert [tensor.node for tensor in dump.tensors()] == ["Default/Add-op1"]
    assert dump.metadata.net_name == "Net"


def test_opens_a_rank_that_was_renamed_as_rank_0(tmp_path: Path) -> None:
    written(tmp_path / "run")
    (tmp_path / "run" / "rank_0").rename(tmp_path / "copy")
    dump = open_dump(tmp_path / "copy")
    assert dump.ranks == (0,)
    assert "not called rank_N" in str(dump.problems[0])
    assert len(dump.tensors()) == 1


@pytest.mark.parametrize("between", ["", "inner"])
def test_finds_the_only_dump_one_or_two_levels_below(tmp_path: Path, between: str) -> None:
    root = tmp_path / "summaries" / between / "run"
    root.parent.mkdir(parents=True)
    written(root)
    (tmp_path / "summaries" / "other").mkdir()
    dump = open_dump(tmp_path / "summaries")
    assert dump.path == str(root)
    assert len(dump.tensors()) == 1


def test_several_dumps_below_are_listed(tmp_path: Path) -> None:
    written(tmp_path / "a")
    (tmp_path / "more").mkdir()
    written(tmp_path / "more" / "b")
    with pytest.raises(DumpError, match="holds 2 dumps; name one of them") as error:
        open_dump(tmp_path)
    assert f"{tmp_path}/a\n" in str(error.value)
    assert f"{tmp_path}/more/b" in str(error.value)


def make_ge(root: Path) -> None:
    (root / "20240102030405" / "0" / "model" / "1" / "0").mkdir(parents=True)


def make_ge_with_settings(root: Path) -> None:
    (root / "0").mkdir(parents=True)
    (root / "acl_dump_0.json").write_text("{}")


def make_old_asynchronous(root: Path) -> None:
    (root / "0" / "Net_graph_0" / "0" / "1").mkdir(parents=True)


def make_first(root: Path) -> None:
    (root / "Net" / "iteration_1").mkdir(parents=True)


def make_empty_rank(root: Path) -> None:
    (root / "rank_0").mkdir(parents=True)


def make_unrelated(root: Path) -> None:
    (root / "src").mkdir(parents=True)
    (root / "readme.txt").write_text("hello")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (make_ge, "graph engine of Ascend"),
        (make_ge_with_settings, "graph engine of Ascend"),
        (make_old_asynchronous, "before 1.3"),
        (make_first, "up to 1.1"),
        (make_empty_rank, "is not a dump"),
        (make_unrelated, "is not a dump"),
        (lambda root: root.mkdir(), "is not a dump"),
    ],
)
def test_what_cannot_be_read_is_refused_with_one_clear_error(
    tmp_path: Path, make: Callable[[Path], None], message: str
) -> None:
    make(tmp_path / "run")
    with pytest.raises(DumpError, match=message) as error:
        open_dump(tmp_path / "run")
    assert str(tmp_path / "run") in str(error.value)


def test_a_missing_folder_and_a_file_are_clear_errors(tmp_path: Path) -> None:
    with pytest.raises(DumpError, match="no such folder"):
        open_dump(tmp_path / "nowhere")
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(DumpError, match="is a file"):
        open_dump(tmp_path / "file")


def test_only_all_digit_folders_count_as_graphs_and_iterations(tmp_path: Path) -> None:
    root = written(tmp_path / "run")
    for name in ("0/init", "0/-1", "0/1e3", "0/٣", "latest", "0/7"):
        (root / "rank_0" / "Net" / name).mkdir(parents=True)
    dump = open_dump(root)
    assert dump.graph_ids(0) == (0,)
    assert dump.iterations() == (0, 7)
    assert len(dump.tensors()) == 1


def test_two_spellings_of_one_number_are_reported_and_the_usual_read(tmp_path: Path) -> None:
    root = written(tmp_path / "run")
    shutil.copytree(root / "rank_0" / "Net" / "0" / "0", root / "rank_0" / "Net" / "0" / "000")
    dump = open_dump(root)
    assert [tensor.path.split("/")[-2] for tensor in dump.tensors()] == ["0"]
    assert any("000: is numbered like" in str(problem) for problem in dump.problems)


def test_another_network_folder_is_read_if_the_named_one_is_missing(tmp_path: Path) -> None:
    root = written(tmp_path / "run")
    (root / "rank_0" / "Net").rename(root / "rank_0" / "Renamed")
    dump = open_dump(root)
    assert len(dump.tensors()) == 1
    assert any("'Renamed' is read instead" in str(problem) for problem in dump.problems)


def test_a_rank_without_tensors_is_a_problem(tmp_path: Path) -> None:
    root = written(tmp_path / "run")
    shutil.rmtree(root / "rank_0" / "Net")
    dump = open_dump(root)
    assert list(dump.tensors()) == []
    assert dump.iterations() == ()
    assert any("no folder 'Net' with tensors" in str(problem) for problem in dump.problems)


def test_links_that_lead_out_of_the_dump_are_not_followed(tmp_path: Path) -> None:
    root = written(tmp_path / "run")
    outside = written(tmp_path / "outside")
    (root / "rank_1").symlink_to(outside / "rank_0")
    (root / "rank_0" / "Net" / "0" / "5").symlink_to(outside / "rank_0" / "Net" / "0" / "0")
    secret = next((outside / "rank_0" / "Net" / "0" / "0").iterdir())
    (root / "rank_0" / "Net" / "0" / "0" / "Add.Add-op1.0.0.9.input.0.ND.npy").symlink_to(secret)
    dump = open_dump(root)
    assert dump.ranks == (0,)
    assert dump.iterations() == (0,)
    assert len(dump.tensors()) == 1
    text = "\n".join(map(str, dump.problems))
    assert "rank_1: leads out of the dump" in text
    assert "input.0.ND.npy: leads out of the dump" in text


def test_opens_a_dump_through_fsspec(tmp_path: Path) -> None:
    import fsspec

    root = written(tmp_path / "run", 0, 1)
    memory = fsspec.filesystem("memory")
    memory.put(str(root), "/tensight-layout", recursive=True)
    try:
        dump = open_dump("memory://tensight-layout")
        local = open_dump(root)
        assert dump.ranks == (0, 1)
        assert [tensor.address for tensor in dump.tensors()] == [tensor.address for tensor in local.tensors()]
        assert read_tensor(dump.tensors()[0]).tolist() == [1.0, 2.0]
        assert dump.problems == []
        assert dump.fingerprint() == open_dump("memory://tensight-layout").fingerprint()
    finally:
        memory.rm("/tensight-layout", recursive=True)


def test_nothing_is_written_into_a_dump(tmp_path: Path) -> None:
    root = written(tmp_path / "run")
    before = {path: path.stat().st_mtime_ns for path in [root, *root.rglob("*")]}
    dump = open_dump(root)
    dump.summary()
    dump.fingerprint()
    for tensor in dump.tensors():
        read_tensor(tensor)
    assert {path: path.stat().st_mtime_ns for path in [root, *root.rglob("*")]} == before
