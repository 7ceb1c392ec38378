from __future__ import annotations

from pathlib import Path

import pytest

from tensight.cache import CACHE_VARIABLE, DumpCache, cache_for, cache_root
from tensight.errors import InputError


def test_the_cache_folder_can_be_chosen_by_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "mine"))
    assert cache_root() == tmp_path / "mine"
    assert not (tmp_path / "mine").exists()


def test_two_dumps_do_not_share_a_cache_and_one_dump_by_two_paths_does(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "a")
    root = tmp_path / "cache"
    assert DumpCache(str(tmp_path / "a"), root).folder != DumpCache(str(tmp_path / "b"), root).folder
    assert DumpCache(str(tmp_path / "a"), root).folder == DumpCache(str(tmp_path / "link"), root).folder


def test_stored_data_is_returned_only_for_the_same_fingerprint(tmp_path: Path) -> None:
    cache = cache_for("dump", tmp_path)
    assert cache.write_json("x.json", (1, "a"), {"n": 2})
    assert cache.read_json("x.json", (1, "a")) == {"n": 2}
    assert cache.read_json("x.json", (2, "a")) is None


def test_damaged_stored_data_counts_as_absent(tmp_path: Path) -> None:
    cache = cache_for("dump", tmp_path)
    cache.write_json("x.json", 1, 2)
    for damage in (b"", b"{", b"[]", b"\xff\xfe", b"{}"):
        cache.path("x.json").write_bytes(damage)
        assert cache.read_json("x.json", 1) is None


def test_a_write_that_fails_half_way_leaves_the_old_file_and_no_part(tmp_path: Path) -> None:
    cache = cache_for("dump", tmp_path)
    cache.write("x", lambda file: file.write(b"old"))

    def fail(file: object) -> None:
        file.write(b"half")  # type: ignore[attr-defined]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cache.write("x", fail)
    assert cache.path("x").read_bytes() == b"old"
    assert [path.name for path in cache.folder.iterdir()] == ["x"]


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    cache = DumpCache("dump", tmp_path / "file" / "below")
    assert not cache.write("x", lambda file: file.write(b""))


def test_a_file_in_place_of_the_cache_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="is not a folder"):
        cache_for("dump", tmp_path / "file")
