"""Which dumps a person can open, and under which names only."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tensight.sessions import discovery
from tensight.sessions.discovery import Discovery, FoundDump
from tensight.sessions.errors import NotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable


def found(base: Path | None, runs: Path | None = None) -> dict[str, FoundDump]:
    return {dump.name: dump for dump in asyncio.run(Discovery(base, runs).dumps())}


def write_rank(folder: Path, rank: int = 0) -> Path:
    """A rank folder as small as a dump can have."""
    (folder / f"rank_{rank}" / ".dump_metadata").mkdir(parents=True)
    return folder


def test_finds_dumps_up_to_two_levels_below_the_base_directory(tmp_path: Path, dump_210: Path) -> None:
    shutil.copytree(dump_210, tmp_path / "lenet")
    write_rank(tmp_path / "project" / "monday", rank=0)
    write_rank(tmp_path / "project" / "monday", rank=12)
    write_rank(tmp_path / "too" / "deep" / "down")
    (tmp_path / "notes.txt").write_text("no dump")
    dumps = found(tmp_path)
    assert list(dumps) == ["lenet", "project/monday"]
    assert dumps["lenet"].framework_version == "2.10.0"
    assert dumps["lenet"].ranks == (0,)
    assert dumps["lenet"].modified is not None
    assert dumps["project/monday"].ranks == (0, 12)
    assert not any(dump.problem for dump in dumps.values())


def test_the_base_directory_may_be_a_dump_itself(dump_200: Path) -> None:
    (dump,) = found(dump_200).values()
    assert (dump.name, dump.title) == (".", dump_200.name)


def test_without_a_base_directory_or_with_a_missing_one_there_are_only_runs(tmp_path: Path, dump_200: Path) -> None:
    shutil.copytree(dump_200, tmp_path / "runs" / "7" / "dump")
    (tmp_path / "runs" / "8" / "dump").mkdir(parents=True)
    (tmp_path / "runs" / "notes").mkdir()
    for base in (None, tmp_path / "missing"):
        dumps = found(base, tmp_path / "runs")
        assert list(dumps) == ["runs/7"]
        assert dumps["runs/7"].run == "7"


def test_a_dump_in_a_folder_called_runs_is_told_from_a_recorded_run(tmp_path: Path) -> None:
    write_rank(tmp_path / "base" / "runs" / "7")
    write_rank(tmp_path / "workspace" / "7" / "dump")
    dumps = found(tmp_path / "base", tmp_path / "workspace")
    assert {name: dump.path.parent.parent.name for name, dump in dumps.items()} == {
        "./runs/7": "base",
        "runs/7": "workspace",
    }


def test_rank_folders_of_other_programs_are_no_dump(tmp_path: Path) -> None:
    (tmp_path / "checkpoints" / "rank_0" / "om").mkdir(parents=True)
    assert found(tmp_path) == {}


def test_a_dump_whose_ranks_were_linked_together_says_why_it_cannot_be_opened(tmp_path: Path) -> None:
    write_rank(tmp_path / "node0")
    (tmp_path / "gathered").mkdir()
    (tmp_path / "gathered" / "rank_0").symlink_to(tmp_path / "node0" / "rank_0")
    dumps = found(tmp_path)
    assert list(dumps) == ["gathered", "node0"]
    assert "rank_0: leads out of the dump" in dumps["gathered"].problem
    assert dumps["gathered"].ranks == ()


def test_links_out_of_the_base_directory_are_not_followed(tmp_path: Path) -> None:
    base = tmp_path / "base"
    write_rank(tmp_path / "secret")
    write_rank(base / "own")
    (base / "out").symlink_to(tmp_path / "secret")
    (base / "above").symlink_to("..")
    (base / "loop").symlink_to("loop")
    (base / "half").mkdir()
    (base / "half" / "rank_0").symlink_to(tmp_path / "secret" / "rank_0")
    assert list(found(base)) == ["own"]


def test_links_within_the_base_directory_are_another_name_of_the_same_dump(tmp_path: Path) -> None:
    write_rank(tmp_path / "real")
    (tmp_path / "latest").symlink_to("real")
    assert list(found(tmp_path)) == ["latest"]


def test_a_folder_whose_name_is_no_text_is_left_out(tmp_path: Path) -> None:
    os.makedirs(os.fsencode(tmp_path) + b"/bad\xff/rank_0/.dump_metadata")
    write_rank(tmp_path / "good")
    write_rank(tmp_path / ".hidden")
    assert list(found(tmp_path)) == ["good"]


@pytest.mark.parametrize(
    "name",
    [
        "..",
        "../secret",
        "own/../../secret",
        "own/",
        "./own",
        "own/.",
        "/etc",
        "%2e%2e/secret",
        "..%2fsecret",
        "own\0",
        "runs/1",
        "runs/../own",
        "own/rank_0",
        "C:\\own",
        "file://own",
        "x" * 10_000,
        "",
    ],
)
def test_only_the_listed_names_open_something(tmp_path: Path, name: str) -> None:
    base = tmp_path / "base"
    write_rank(base / "own")
    write_rank(tmp_path / "secret")
    absolute = str(tmp_path / "secret")

    async def ask() -> None:
        place = Discovery(base, tmp_path / "workspace")
        assert (await place.find("own")).path == base / "own"
        for wanted in (name, absolute):
            with pytest.raises(NotFoundError, match="there is no dump"):
                await place.find(wanted)

    asyncio.run(ask())


def test_a_dump_that_was_replaced_by_a_link_is_not_opened(tmp_path: Path) -> None:
    base = tmp_path / "base"
    write_rank(base / "own")
    write_rank(tmp_path / "secret")

    async def ask() -> None:
        place = Discovery(base, reload_interval_s=300)
        await place.dumps()
        shutil.rmtree(base / "own")
        (base / "own").symlink_to(tmp_path / "secret")
        with pytest.raises(NotFoundError):
            await place.find("own")

    asyncio.run(ask())


def test_the_disk_is_looked_at_again_after_the_interval_on_demand_and_for_an_unknown_name(tmp_path: Path) -> None:
    async def ask(interval_s: float, refresh: bool) -> list[str]:
        place = Discovery(tmp_path, reload_interval_s=interval_s)
        write_rank(tmp_path / "first")
        await place.dumps()
        write_rank(tmp_path / "second")
        names = [dump.name for dump in await place.dumps(refresh)]
        assert (await place.find("second")).ranks == (0,)
        shutil.rmtree(tmp_path / "first")
        shutil.rmtree(tmp_path / "second")
        return names

    assert asyncio.run(ask(interval_s=300, refresh=False)) == ["first"]
    assert asyncio.run(ask(interval_s=300, refresh=True)) == ["first", "second"]
    assert asyncio.run(ask(interval_s=0, refresh=False)) == ["first", "second"]


def test_a_search_stops_at_its_bound_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "MOST_ENTRIES", 50)
    write_rank(tmp_path / "a")
    for number in range(100):
        (tmp_path / "b" / f"folder{number}").mkdir(parents=True)

    async def ask() -> None:
        place = Discovery(tmp_path)
        assert [dump.name for dump in await place.dumps()] == ["a"]
        with pytest.raises(NotFoundError, match="only the first 50 entries were looked at"):
            await place.find("zzz")

    asyncio.run(ask())


def test_a_committed_dump_is_found_under_its_folder_name(unpacked: Callable[[str], Path]) -> None:
    folder = unpacked("healthy-2.10.0")
    dump = found(folder.parent)[folder.name]
    assert (dump.ranks, dump.framework_version, dump.problem) == ((0,), "2.10.0", "")


def test_dumps_of_msprobe_are_listed(dumps_of_msprobe: Path) -> None:
    found = asyncio.run(Discovery(dumps_of_msprobe).dumps())
    assert [(one.name, one.ranks, one.framework, one.problem) for one in found] == [
        (name, (0, 1) if name == "ranks" else (0,), "torch", "")
        for name in ("L0", "L0-xor", "L1-statistics", "mix", "mix-md5", "ranks")
    ]
