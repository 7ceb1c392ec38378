"""What MindSpore dumps needs room: a training is never ended because there is none, and says nothing while there is."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tensight.agents.core.program import TracedNode
from tensight.agents.mindspore.dump_settings import EVERYTHING, is_dumped
from tensight.agents.mindspore.ring_room import NoRoomError, RingRoom
from tensight.graph import OutputSlot
from tensight.graph.data_types import data_type_number
from tests.agents.mindspore.mindspore_stage import MEMORY_BACKED, NOT_INHERITED, PATIENCE_S, VERSIONS, python_of
from tests.agents.training_process import Outcome, TrainingProcess

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

pytestmark = pytest.mark.long

MIB = 2**20
DISK = "/disk/ring"
SCRIPT = Path(__file__).with_name("filling_training.py")

SMALL_DISKS = 'mount -t tmpfs -o size=$SIZE none "$TMPDIR" && mount -t tmpfs -o size=64k none /dev/shm && exec "$@"'
"""Has a process see a small disk of temporary files, and no memory-backed one to speak of."""

NAMESPACE = ("unshare", "--user", "--map-root-user", "--mount")


def node(name: str, *shapes: tuple[int, ...]) -> TracedNode:
    number = data_type_number("DT_FLOAT32") or 0
    return TracedNode(name, "Add", outputs=tuple(OutputSlot.of_tensor(number, shape) for shape in shapes))


# --- how much is needed ---


def test_before_a_graph_has_run_its_nodes_tell_what_it_will_write() -> None:
    room = RingRoom(DISK, lambda _: 10 * MIB)
    room.guess(0, [node("first", (MIB,), (MIB // 2, -1))])
    room.check()
    room.guess(1, [node("second", (MIB,))])
    with pytest.raises(
        NoRoomError, match=r"about to dump up to 12\.0 MiB a step, and /disk/ring has room for 10\.0 MiB"
    ):
        room.check()


def test_what_was_written_counts_more_than_what_was_guessed() -> None:
    room = RingRoom(DISK, lambda _: 4 * MIB)
    room.guess(0, [node("first", (8 * MIB,))])
    room.note(0, 10, MIB)
    room.check()
    room.note(0, 12, 4 * MIB)
    # One that takes another way, and writes less, says nothing of the next.
    room.note(0, 3, MIB)
    with pytest.raises(NoRoomError, match="set TMPDIR to a folder that has more"):
        room.check()


def test_files_in_memory_need_room_on_their_disk_and_in_memory() -> None:
    on_disk, in_memory = 100 * MIB, 1 * MIB
    room = RingRoom(f"{MEMORY_BACKED}/ring", lambda _: on_disk, lambda: in_memory)
    room.note(0, 1, 2 * MIB)
    with pytest.raises(NoRoomError, match="--shm-size"):
        room.check()
    room = RingRoom(f"{MEMORY_BACKED}/ring", lambda _: on_disk, lambda: 100 * MIB)
    room.note(0, 1, 2 * MIB)
    room.check()
    on_disk = 1 * MIB
    with pytest.raises(NoRoomError, match="--shm-size"):
        room.check()


@pytest.mark.parametrize(
    ("operators", "dumped"),
    [
        ((), ["Default/Add-op0", "Gradients/Default/Mul-op1", "weight"]),
        (("name-regex(Gradients/.+)",), ["Gradients/Default/Mul-op1"]),
        (("Add", "weight"), ["Default/Add-op0", "weight"]),
        (EVERYTHING, ["Default/Add-op0", "Gradients/Default/Mul-op1", "weight"]),
    ],
)
def test_only_what_is_chosen_is_expected(operators: Sequence[str], dumped: list[str]) -> None:
    nodes = (("Default/Add-op0", "Add"), ("Gradients/Default/Mul-op1", "Mul"), ("weight", "Parameter"))
    if operators:
        nodes += (("Default/optimizer-Momentum/ApplyMomentum-op12", "ApplyMomentum"),)
    assert [name for name, kind in nodes if is_dumped(name, kind, operators)] == dumped


# --- a training ---


@pytest.fixture(scope="module")
def may_mount() -> None:
    """A small disk can be made; containers can forbid that."""
    if subprocess.run([*NAMESPACE, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this machine lets nobody mount a small disk, not even for a process of one's own")


class Cramped(TrainingProcess):
    """A training that sees little room."""

    def __enter__(self) -> Cramped:
        return self


def trained(version: str, folder: Path, size: str, *before: str) -> Outcome:
    """Train where little can be written, and fill the disk after the fourth step."""
    disk = folder / "disk"
    disk.mkdir(parents=True)
    inherited = {name: text for name, text in os.environ.items() if not name.startswith(NOT_INHERITED)}
    variables = {"GLOG_v": "3", "TMPDIR": str(disk), "SIZE": size, "TENSIGHT_CONNECT_WITHIN_S": "0.2"}
    python = str(python_of(version))
    command = [*NAMESPACE, "sh", "-c", SMALL_DISKS, "sh", python, *before, str(SCRIPT), "--fill-after", "4"]
    with Cramped(command, folder, environment={**inherited, **variables}, patience_s=PATIENCE_S) as run:
        return run.outcome()


DEBUGGED = ("-m", "tensight", "run", "--host", "127.0.0.1", "--port", "9", "--record", "ring:2")
"""Recording looks at every step, whether or not a server is there."""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that lies on a disk: what is mounted for a training hides the folders of tests that lie in memory."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        yield Path(folder)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.usefixtures("may_mount")
def test_a_disk_that_is_full_ends_debugging_and_not_the_training(folder: Path, version: str) -> None:
    alone = trained(version, folder / "alone", "8m")
    assert alone.code == 0, alone.errors
    debugged = trained(version, folder / "debugged", "8m", *DEBUGGED)
    assert (debugged.code, debugged.output[:-1]) == (0, alone.output[:-1]), debugged.errors + debugged.notices
    (notice,) = (notice for notice in debugged.notices if "has room for" in notice)
    assert notice.startswith("tensight: debugging ends here and the training goes on: MindSpore is about to dump up to")
    # Nothing was dumped any more, and what had been is gone.
    assert debugged.output[-1] == "left 0 files, written into 0 times"
