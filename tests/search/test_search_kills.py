"""A search that is killed with SIGKILL at any moment: nothing is left running, and it goes on where it was."""

from __future__ import annotations

import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.agents.agent_stage import until
from tests.processes.process_end import ProcessEnd
from tests.search.searches import PATIENCE_S, outcome_of, prepare, search, start

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.long

GRID = """
command: train.py {trial} {x}
summary_base_dir: runs
watch: off
tuner: {name: grid}
target: {name: loss, from: {pattern: 'loss (\\S+)'}}
parameters:
  x: {bounds: [0, 8], type: int}
"""
TRIAL = """
import os, sys
with open("begun", "a") as begun:
    begun.write(f"{sys.argv[1]} {sys.argv[2]} {os.getpid()}\\n")
print("loss", sys.argv[2])
"""
SERVED = "--ready-fd"
"""On the command line of the debug server, while it starts and afterwards."""


def children(process: int) -> list[int]:
    """Return the ids of the processes that a process has started."""
    with suppress(FileNotFoundError):
        return [int(child) for child in Path(f"/proc/{process}/task/{process}/children").read_text().split()]
    return []


def command_of(process: int) -> list[str]:
    """Return the command line of a process; empty if it has gone."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{process}/cmdline").read_text().split("\0")
    return []


def assert_gone(process: int) -> None:
    """Wait until a process has ended."""
    assert ProcessEnd(process).comes_within(PATIENCE_S), f"{command_of(process)} outlived the search"


def kill(running: subprocess.Popen[str]) -> None:
    running.send_signal(signal.SIGKILL)
    outcome_of(running)


def kill_at(moment: Callable[[], bool], running: subprocess.Popen[str]) -> None:
    """Kill a search as soon as it gets so far."""
    until(lambda: moment() or running.poll() is not None, "it gets so far", PATIENCE_S)
    assert not running.poll(), outcome_of(running)
    kill(running)


def test_a_search_that_is_killed_again_and_again_tries_each_combination_once(tmp_path: Path) -> None:
    prepare(tmp_path, TRIAL, GRID)
    begun = tmp_path / "begun"

    def lines() -> list[list[str]]:
        return [line.split() for line in begun.read_text().splitlines()] if begun.exists() else []

    moments = (
        (tmp_path / "runs").exists,
        lambda: any((tmp_path / "runs").glob(".search.db-*/search.db")),
        (tmp_path / "runs" / "search.db").exists,
        lambda: len(lines()) >= 1,
        lambda: len(lines()) >= 3,
        lambda: len(lines()) >= 4,
    )
    for moment in moments:
        running = start(tmp_path, "--jobs", "2")
        kill_at(moment, running)
    result = search(tmp_path, "--jobs", "2")

    assert sorted(trial["params"]["x"] for trial in result["trials"]) == list(range(8))
    assert {trial["state"] for trial in result["trials"]} == {"complete"}
    numbers = [number for number, _, _ in lines()]
    assert len(set(numbers)) == len(numbers), "a trial was run twice"
    for _, _, process in lines():
        assert_gone(int(process))


@pytest.mark.parametrize("is_ready", [False, True])
def test_no_debug_server_is_left_of_a_search_that_is_killed(is_ready: bool, tmp_path: Path) -> None:
    prepare(tmp_path, TRIAL, GRID.replace("watch: off", "watch: prune"))
    running = start(tmp_path)
    server = until(
        lambda: next((child for child in children(running.pid) if SERVED in command_of(child)), None),
        "the server is started",
        PATIENCE_S,
    )
    workspace = Path(next(word for word in command_of(server) if "workspace" in word).partition("=")[2])
    if is_ready:
        until((tmp_path / "begun").exists, "a trial begins", PATIENCE_S)
    kill(running)

    assert_gone(server)
    until(lambda: not workspace.exists(), "its folder is removed", PATIENCE_S)
