"""The workspace: files as a whole, ids that never come back, and what happens when the disk says no."""

from __future__ import annotations

import json
import resource
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tensight.errors import InputError
from tensight.sessions.errors import NotFoundError, StorageError
from tensight.sessions.workspace import Workspace


@contextmanager
def disk_full() -> Iterator[None]:
    """No file may grow: every write fails as on a full disk, also for root."""
    import signal

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)


def test_a_new_workspace_belongs_to_its_owner_alone(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "deep" / "down")
    for folder in (workspace.folder, workspace.watchpoints, workspace.runs, workspace.tempdata):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    workspace.write_json("watchpoints/a.json", {})
    assert stat.S_IMODE((workspace.watchpoints / "a.json").stat().st_mode) == 0o600


def test_what_was_written_is_read_back(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    data = {"name": "网络\udcff", "numbers": [1, 2.5, None, True]}
    workspace.write_json("runs/1/session.json", data)
    assert Workspace(tmp_path).read_json("runs/1/session.json") == data


def test_a_file_that_is_not_there_is_nothing(tmp_path: Path) -> None:
    assert Workspace(tmp_path).read_json("watchpoints/none.json") is None


def test_a_damaged_file_is_named_and_can_be_set_aside(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    path = workspace.watchpoints / "a.json"
    path.write_bytes(b'{"watchpoints": [\xff')
    with pytest.raises(StorageError, match=r"a\.json is damaged"):
        workspace.read_json("watchpoints/a.json")
    assert workspace.set_aside("watchpoints/a.json") == path.with_name("a.json.damaged")
    assert workspace.read_json("watchpoints/a.json") is None


def test_what_is_no_file_of_ours_is_not_read(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    (workspace.runs / "folder.json").mkdir()
    with pytest.raises(StorageError, match="Is a directory"):
        workspace.read_json("runs/folder.json")
    with (workspace.runs / "huge.json").open("wb") as file:
        file.truncate(2**30)
    with pytest.raises(StorageError, match="larger than anything"):
        workspace.read_json("runs/huge.json")
    with pytest.raises(StorageError, match="cannot be renamed"):
        workspace.set_aside("runs/none.json")


@pytest.mark.parametrize("relative", ["../a.json", "/etc/passwd", "runs/../../a", "", "a\0b"])
def test_no_path_leads_out_of_the_workspace(tmp_path: Path, relative: str) -> None:
    workspace = Workspace(tmp_path / "w")
    with pytest.raises(InputError, match="not a path below the workspace"):
        workspace.write_json(relative, {})


def test_a_full_disk_is_reported_and_leaves_the_old_file(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    workspace.write_json("watchpoints/a.json", {"old": True})
    with disk_full(), pytest.raises(StorageError, match=r"a\.json cannot be written: File too large"):
        workspace.write_json("watchpoints/a.json", {"new": True})
    assert workspace.read_json("watchpoints/a.json") == {"old": True}
    assert [path.name for path in workspace.watchpoints.iterdir()] == ["a.json"]


def test_a_folder_that_cannot_be_created_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match=r"file.* cannot be created: .*choose another --workspace"):
        Workspace(tmp_path / "file" / "workspace")


def test_ids_of_sessions_count_on_after_a_restart(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    assert [workspace.next_session_id() for _ in range(3)] == ["1", "2", "3"]
    assert Workspace(tmp_path).next_session_id() == "4"


def test_an_id_whose_run_is_there_is_not_given_again(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    workspace.run_folder("17")
    (workspace.folder / "session-ids.json").write_text("garbage")
    assert Workspace(tmp_path).next_session_id() == "18"


def test_an_id_is_given_even_if_the_disk_is_full(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    with disk_full():
        assert [workspace.next_session_id(), workspace.next_session_id()] == ["1", "2"]


def test_many_threads_get_different_ids(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    ids: list[str] = []
    threads = [
        threading.Thread(target=lambda: ids.extend(workspace.next_session_id() for _ in range(10))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(map(int, ids)) == list(range(1, 41))


@pytest.mark.parametrize("session_id", ["", "..", "1/2", "a", "²", "-1", "9" * 40])
def test_the_folder_of_a_run_is_only_found_by_an_id(tmp_path: Path, session_id: str) -> None:
    with pytest.raises(NotFoundError, match="unknown session id"):
        Workspace(tmp_path).run_folder(session_id)


def test_tempdata_is_empty_at_the_start(tmp_path: Path) -> None:
    first = Workspace(tmp_path)
    (first.tempdata / "half").mkdir()
    (first.tempdata / "half" / "piece").write_bytes(b"1")
    assert list(Workspace(tmp_path).tempdata.iterdir()) == []


def test_a_link_in_place_of_tempdata_is_not_followed(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "thesis").write_text("text")
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / "tempdata").symlink_to(precious)
    workspace = Workspace(tmp_path / "w")
    assert (precious / "thesis").read_text() == "text"
    assert not workspace.tempdata.is_symlink()


def test_json_is_compact_and_readable_by_others(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    workspace.write_json("a.json", {"a": [1, "é"]})
    assert json.loads((tmp_path / "a.json").read_text(encoding="utf-8")) == {"a": [1, "é"]}
