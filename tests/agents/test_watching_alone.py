"""Ranks that watch themselves: what they append to their files, what survives a kill, and that nothing else happens."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tensight.agents.core.notices import LOGGER
from tensight.agents.core.settings import AgentSettings
from tensight.agents.core.watching.alone import MARK
from tensight.dumps import open_dump
from tensight.errors import InputError
from tensight.watchpoints.rank_hits import PATTERN, RankAccount, read_account
from tests.agents.agent_stage import until
from tests.agents.numpy_training import FORWARD, Network, NumpyDebugger

if TYPE_CHECKING:
    from collections.abc import Iterator

OVERFLOW = "unintended_overflow()"


def trained(folder: Path, steps: int, *, rank: int = 0, world_size: int = 1, nan_at: int = 0, **chosen: Any) -> None:
    """Train a network that watches itself to the end."""
    debugger = debugger_of(folder, rank=rank, world_size=world_size, nan_at=nan_at, **chosen)
    debugger.train(steps)
    debugger.agent.close()


def debugger_of(folder: Path, *, rank: int = 0, world_size: int = 1, nan_at: int = 0, **chosen: Any) -> NumpyDebugger:
    settings = AgentSettings(alone=str(folder), **chosen)
    debugger = NumpyDebugger(Network(nan_at=nan_at), settings, rank=rank, world_size=world_size)
    debugger.attach()
    return debugger


def account_of(folder: Path, rank: int = 0) -> RankAccount:
    (path,) = folder.glob(PATTERN.replace("*", f"{rank}-*"))
    return read_account(path)


@pytest.mark.parametrize("capture", ["modules", "ops"])
def test_a_hit_is_written_with_its_node_its_line_and_its_values(tmp_path: Path, capture: str) -> None:
    trained(tmp_path, 6, rank=3, world_size=8, nan_at=4, capture=capture)
    account = account_of(tmp_path, 3)
    assert (account.rank, account.world_size, account.last_step, account.is_over) == (3, 8, 6, True)
    first, *others = account.hits
    assert (first.step, first.node, first.slot, first.io, first.is_new) == (4, FORWARD[2], 0, "output", True)
    assert account.watchpoints[first.watchpoint].text == OVERFLOW
    assert first.values["nan_count"] == 1
    assert first.source is not None
    assert Path(first.source.file).name == "numpy_training.py"
    assert "FORWARD[2]" in first.source.code
    assert others
    assert not any(hit.is_new for hit in others)
    assert [hit.position for hit in account.hits if hit.step == 4] == sorted(
        hit.position for hit in account.hits if hit.step == 4
    )


def test_a_healthy_rank_says_only_who_it_is_and_how_far_it_came(tmp_path: Path) -> None:
    trained(tmp_path, 12)
    account = account_of(tmp_path)
    assert (account.hits, account.counts, account.last_step, account.is_over) == ([], {}, 12, True)
    assert {watchpoint.selection.kind.value for watchpoint in account.watchpoints.values()} >= {"all", "matrices"}


def test_only_some_steps_are_watched_on_request(tmp_path: Path) -> None:
    debugger = debugger_of(tmp_path, nan_at=10, alone_every=8)
    watched = []
    for step in range(1, 20):
        if debugger.agent.capturing:
            watched.append(step)
        debugger.step()
    debugger.agent.close()
    assert watched == [1, 8, 16]
    account = account_of(tmp_path)
    assert {hit.step for hit in account.hits} == {16}
    assert account.last_step == 19
    with pytest.raises(InputError, match="every 0th step"):
        AgentSettings(alone="run", alone_every=0)


def test_the_file_does_not_grow_with_the_steps_of_one_fault(tmp_path: Path) -> None:
    sizes = []
    for steps in (20, 200):
        folder = tmp_path / str(steps)
        trained(folder, steps, nan_at=2)
        (path,) = folder.glob(PATTERN)
        lines = path.read_text().splitlines()
        sizes.append(len(lines))
        account = account_of(folder)
        tensors = {(hit.watchpoint, hit.node, hit.slot, hit.io) for hit in account.hits}
        assert len(tensors) == len(account.hits)
        (counts,) = (value for number, value in account.counts.items() if account.watchpoints[number].text == OVERFLOW)
        assert counts[2] == steps
        assert counts[0] > 10 * steps
    # Counts are written after 1, 2, 4, 8 … steps.
    assert sizes[1] - sizes[0] <= 4


def test_a_step_in_which_the_script_gives_up_is_written(tmp_path: Path) -> None:
    debugger = debugger_of(tmp_path, nan_at=3)
    debugger.train(2)
    seen: list[str] = []

    def see(name: str, *arguments: Any) -> None:
        debugger._see(name, *arguments)
        seen.append(name)
        if name == FORWARD[3]:
            raise FloatingPointError("the loss is not finite")

    debugger.nodes = []
    with pytest.raises(FloatingPointError):
        debugger.network.step(see, debugger.reader.wrote)
    debugger.agent.close()
    account = account_of(tmp_path)
    assert next((hit.step, hit.node, hit.is_new) for hit in account.hits) == (3, FORWARD[2], True)
    assert {hit.node for hit in account.hits} <= set(seen)


def test_all_ranks_keep_their_last_steps_when_one_has_a_nan(tmp_path: Path) -> None:
    debuggers = [
        debugger_of(tmp_path, rank=rank, world_size=3, nan_at=5 if rank == 1 else 0, record="ring:3")
        for rank in range(3)
    ]
    for _ in range(12):
        for debugger in debuggers:
            debugger.step()
    for debugger in debuggers:
        debugger.agent.close()
    assert json.loads((tmp_path / MARK).read_text()) == {"rank": 1, "step": 5}
    dump = open_dump(tmp_path)
    # Rank 0 had done its fifth step before rank 1 asked.
    last = {rank: [iteration + 1 for iteration in dump.iterations(rank)] for rank in dump.ranks}
    assert last == {0: [4, 5, 6], 1: [3, 4, 5], 2: [3, 4, 5]}
    assert [account_of(tmp_path, rank).kept_step for rank in range(3)] == [6, 5, 5]


def test_without_a_hit_a_ring_goes_on_and_nothing_is_asked(tmp_path: Path) -> None:
    trained(tmp_path, 12, record="ring:3")
    assert not (tmp_path / MARK).exists()
    assert [iteration + 1 for iteration in open_dump(tmp_path).iterations()] == [10, 11, 12]


def test_a_folder_that_cannot_be_written_leaves_the_training_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    with caplog.at_level("INFO", LOGGER):
        debugger = debugger_of(tmp_path / "file" / "run")
        debugger.train(3)
        debugger.agent.close()
    assert debugger.network.steps == 3
    assert not debugger.agent.records.alone.is_on


def test_a_training_that_stops_nowhere_cannot_wait_at_its_start() -> None:
    with pytest.raises(InputError, match="stops nowhere"):
        AgentSettings.from_environment({"TENSIGHT_ALONE": "run", "TENSIGHT_BREAK_AT_START": "1"})
    settings = AgentSettings.from_environment({"TENSIGHT_ALONE": "run", "TENSIGHT_RECORD": "ring:4"})
    assert (settings.alone, settings.connects) == ("run", False)


# --- real processes ---

LONER = """
import sys
opened = []
sys.addaudithook(lambda event, arguments: opened.append(event) if event.startswith("socket.") else None)
from tests.agents import numpy_training
sys.argv[1:] = ["--steps", "6", "--nan-at", "3"]
numpy_training.main()
import threading
names = sorted(opened)
print(names, "grpc" in sys.modules, threading.active_count())
"""


def environment(folder: Path) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("TENSIGHT_")}
    return {**inherited, "TENSIGHT_ALONE": str(folder), "OMP_NUM_THREADS": "1"}


def test_nothing_is_opened_but_files(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LONER], env=environment(tmp_path), capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.splitlines() == ["trained 6", "[] False 1"]
    assert account_of(tmp_path).hits[0].step == 3


def test_a_killed_rank_loses_nothing_that_was_seen(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.agents.numpy_training", "--steps", "1000000000", "--nan-at", "30"]
    with subprocess.Popen(
        command, env=environment(tmp_path), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as process:

        def written() -> Any:
            return any(b'"counts"' in path.read_bytes() for path in tmp_path.glob(PATTERN))

        until(written, "a hit is written")
        os.kill(process.pid, signal.SIGKILL)
    account = account_of(tmp_path)
    assert not account.is_over
    assert (account.hits[0].step, account.hits[0].node) == (30, FORWARD[2])
    assert account.problems == []


@pytest.mark.long
def test_whenever_a_rank_is_killed_it_leaves_the_beginning_of_what_it_would_leave(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.agents.killed_ranks", str(tmp_path), "1000"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=True)
    nothing, some, every = map(int, done.stdout.split())
    assert nothing + some + every == 1000
    assert min(nothing, every) > 50


def prefixes(content: bytes) -> Iterator[bytes]:
    for end in range(content.index(b"\n") + 1, len(content), 7):
        yield content[:end]


def test_whatever_is_cut_off_the_lines_before_it_are_read(tmp_path: Path) -> None:
    trained(tmp_path, 10, nan_at=4)
    (path,) = tmp_path.glob(PATTERN)
    content = path.read_bytes()
    cut = tmp_path / "hits-9-9.jsonl"
    for prefix in prefixes(content):
        cut.write_bytes(prefix)
        account = read_account(cut)
        complete = prefix[: prefix.rindex(b"\n") + 1]
        assert len(account.hits) == complete.count(b'{"hit":')
        assert account.problems == []
