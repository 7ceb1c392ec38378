"""One server for each workspace, however the one before it ended."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tensight.server.occupancy import (
    Announcement,
    OccupiedError,
    WorkspaceLock,
    in_use,
    running_server,
    wait_until_free,
)
from tensight.sessions.errors import StorageError

RECORD = Announcement(
    pid=os.getpid(),
    machine=socket.gethostname(),
    http="http://127.0.0.1:8080",
    debugger="127.0.0.1:50051",
    started=time.time(),
    version="1",
    workspace="/w",
)


@pytest.fixture
def lock(tmp_path: Path) -> Iterator[WorkspaceLock]:
    made = WorkspaceLock(tmp_path / "w")
    yield made
    made.release()


def test_a_workspace_is_served_once(tmp_path: Path, lock: WorkspaceLock) -> None:
    with pytest.raises(OccupiedError, match=r"is in use by a server that is starting or stopping; stop it with"):
        WorkspaceLock(tmp_path / "w")
    lock.announce(RECORD)
    with pytest.raises(
        OccupiedError, match=rf"in use by the server at http://127.0.0.1:8080 \(process {os.getpid()}\)"
    ):
        WorkspaceLock(tmp_path / "w")
    WorkspaceLock(tmp_path / "other").release()


def test_a_server_is_found_from_when_it_is_ready_until_it_ends(tmp_path: Path, lock: WorkspaceLock) -> None:
    assert (running_server(tmp_path / "w"), in_use(tmp_path / "w")) == (None, True)
    lock.announce(RECORD)
    assert running_server(tmp_path / "w") == RECORD
    lock.withdraw()
    assert (running_server(tmp_path / "w"), in_use(tmp_path / "w")) == (None, True)


def test_what_a_killed_server_left_behind_does_not_count(tmp_path: Path) -> None:
    script = (
        "import sys, os, signal\n"
        "from pathlib import Path\n"
        "from tensight.server.occupancy import Announcement, WorkspaceLock\n"
        "lock = WorkspaceLock(Path(sys.argv[1]))\n"
        "lock.announce(Announcement(os.getpid(), 'm', 'http://h', None, 0.0, '1', 'w'))\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=False)
    assert (tmp_path / "server.json").exists()
    assert (running_server(tmp_path), in_use(tmp_path)) == (None, False)
    lock = WorkspaceLock(tmp_path)
    assert not (tmp_path / "server.json").exists()
    lock.release()


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"pid": 1}', "null", "\x00"])
def test_a_damaged_record_is_none(tmp_path: Path, lock: WorkspaceLock, content: str) -> None:
    (tmp_path / "w" / "server.json").write_text(content)
    assert running_server(tmp_path / "w") is None


def test_the_record_is_for_its_owner_only(tmp_path: Path, lock: WorkspaceLock) -> None:
    lock.announce(RECORD)
    assert (tmp_path / "w" / "server.json").stat().st_mode & 0o777 == 0o600
    assert json.loads((tmp_path / "w" / "server.json").read_text())["debugger"] == "127.0.0.1:50051"
    assert sorted(path.name for path in (tmp_path / "w").iterdir()) == ["lock", "server.json"]


def test_a_workspace_that_cannot_be_is_explained(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot be used: Not a directory"):
        WorkspaceLock(tmp_path / "file" / "w")


def test_waiting_ends_when_the_lock_is_free_or_the_time_is_over(tmp_path: Path) -> None:
    lock = WorkspaceLock(tmp_path)
    assert not wait_until_free(tmp_path, 0.01)
    lock.release()
    assert wait_until_free(tmp_path, 10)


def test_a_server_of_another_machine_is_told_apart() -> None:
    assert RECORD.here
    assert not replace(RECORD, machine="elsewhere").here
