"""A PostgreSQL server of this machine, for searches that share a database other than a file."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.agents.agent_stage import until
from tests.processes.ports import kept_port

if TYPE_CHECKING:
    from collections.abc import Iterator

ENDS_WITHIN_S = 30.0


def program(name: str) -> str:
    """Return a program of PostgreSQL; without one the test is skipped."""
    folders = sorted(map(str, Path("/usr/lib/postgresql").glob("*/bin")), reverse=True)
    path = shutil.which(name, path=os.pathsep.join([*folders, os.environ.get("PATH", "")]))
    if path is None:
        pytest.skip(f"there is no {name} of PostgreSQL on this machine: its package `postgresql` has it")
    return path


@contextmanager
def postgresql() -> Iterator[str]:
    """Run a server; give the URL of a database of it."""
    initdb, server = program("initdb"), program("postgres")
    # It refuses to be run by root.
    account: dict[str, Any] = {"user": "postgres", "group": "postgres", "extra_groups": []} if os.getuid() == 0 else {}
    with tempfile.TemporaryDirectory(prefix="tensight-postgresql-", ignore_cleanup_errors=True) as folder:
        if account:
            postgres = pwd.getpwnam("postgres")
            os.chown(folder, postgres.pw_uid, postgres.pw_gid)
        data = Path(folder) / "data"
        command = [initdb, "-D", str(data), "-A", "trust", "-U", "search", "-E", "UTF8", "--no-sync"]
        subprocess.run(command, check=True, capture_output=True, cwd=folder, **account)
        port = kept_port()
        command = [server, "-D", str(data), "-h", "127.0.0.1", "-p", str(port), "-k", folder, "-c", "fsync=off"]
        running = subprocess.Popen(command, cwd=folder, stderr=subprocess.DEVNULL, **account)
        try:
            until(lambda: "ready" in _state(data), "PostgreSQL answers")
            yield f"postgresql+pg8000://search:secret@127.0.0.1:{port}/postgres"
        finally:
            running.terminate()
            running.wait(ENDS_WITHIN_S)


def _state(data: Path) -> str:
    """Return what the server says of itself: "starting", "ready"."""
    try:
        return (data / "postmaster.pid").read_text().splitlines()[-1]
    except (OSError, IndexError):
        return ""
