"""The ring of dumped files: its folder, which files are a launch, and that nothing is left behind."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from tensight.agents.mindspore import ring_folder
from tensight.agents.mindspore.dumped import DumpedTensor
from tensight.agents.mindspore.removal import LARGE_BYTES
from tensight.agents.mindspore.ring import DumpRing, Launch, remove_stale
from tensight.dumps.names import parse_name
from tensight.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator

ENVIRONMENTS = Path(__file__).resolve().parents[3] / ".venvs"
VARIABLE = "MINDSPORE_DUMP_CONFIG"
TIME = 1795261378520830
REST = "output.0.DefaultFormat.Float32.npy"


@pytest.fixture
def environment() -> dict[str, str]:
    return {}


@pytest.fixture
def ring(environment: dict[str, str]) -> Iterator[DumpRing]:
    ring = DumpRing.create(environment, name="LeNet 5")
    yield ring
    ring.close()


def iteration(ring: DumpRing, graph: int = 0, number: int = 0, rank: int = 0) -> Path:
    folder = Path(ring.folder, f"rank_{rank}", "LeNet-5", str(graph), str(number))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def dump(folder: Path, head: str, moment: int, value: float = 1.0, rest: str = REST) -> str:
    name = f"{head}.0.0.{TIME + moment}.{rest}"
    np.save(folder / name, np.full((2, 3), value, np.float32))
    return name


def only(launches: list[Launch]) -> Launch:
    assert len(launches) == 1
    return launches[0]


# --- the folder ---


def test_a_ring_is_a_private_folder_with_the_configuration_that_the_environment_names(
    environment: dict[str, str], ring: DumpRing
) -> None:
    folder = Path(ring.folder)
    assert ring.is_private
    assert folder.stat().st_mode & 0o777 == 0o700
    settings = json.loads(Path(environment[VARIABLE]).read_text())
    common = settings["common_dump_settings"]
    assert Path(common["path"]) == folder
    assert (common["net_name"], common["dump_mode"], common["kernels"]) == ("LeNet-5", 0, [])
    assert common["support_device"][:8] == [*range(8)]
    assert settings["e2e_dump_settings"]["enable"]


def test_only_some_operators_are_dumped_when_that_is_asked_for(environment: dict[str, str]) -> None:
    ring = DumpRing.create(environment, operators=["Conv2D", "name-regex(.*loss.*)"])
    common = json.loads(Path(environment[VARIABLE]).read_text())["common_dump_settings"]
    ring.close()
    assert (common["dump_mode"], common["kernels"]) == (1, ["Conv2D", "name-regex(.*loss.*)"])


def test_closing_removes_the_folder_and_the_variable(environment: dict[str, str]) -> None:
    ring = DumpRing.create(environment)
    ring.close()
    ring.close()
    assert not Path(ring.folder).exists()
    assert environment == {}
    assert ring.launches() == []


def test_the_ring_lies_on_disk_where_memory_has_little_room_and_says_so(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ring_folder, "LEAST_FREE_BYTES", 2**60)
    ring = DumpRing.create(environment, name="LeNet-5")
    try:
        assert ring.folder.startswith(os.path.realpath(tempfile.gettempdir()))
        assert "has only" in ring.notice
        assert "--shm-size" in ring.notice
        assert ring.free_bytes() > 0
        for moment in range(3):
            # Disks note the times of folders less precisely than files can follow each other.
            dump(folder := iteration(ring, number=0), "ReLU.op", moment)
            assert only(ring.launches()).files == (f"ReLU.op.0.0.{TIME + moment}.{REST}",)
        assert len(list(folder.iterdir())) == 3
    finally:
        ring.close()


def test_a_temporary_folder_whose_name_mindspore_does_not_allow_is_passed_over(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    odd = tmp_path / "mit Leerzeichen"
    odd.mkdir()
    monkeypatch.setattr(ring_folder, "MEMORY_BACKED", str(tmp_path / "absent"))
    monkeypatch.setattr(tempfile, "tempdir", str(odd))
    ring = DumpRing.create(environment)
    ring.close()
    assert not ring.folder.startswith(str(odd))
    assert "is not there" in ring.notice
    monkeypatch.setattr(ring_folder, "_ELSEWHERE", ())
    with pytest.raises(InputError, match="Set TMPDIR"):
        DumpRing.create(environment)


# --- what is left behind ---

_HOLDER = """
import os, signal, sys
from tensight.agents.mindspore.removal import LARGE_BYTES
from tensight.agents.mindspore.ring import DumpRing
ring = DumpRing.create(os.environ)
{more}
print(ring.folder, flush=True)
sys.stdin.read()
"""


def holder(more: str = "") -> tuple[subprocess.Popen[str], str]:
    command = [sys.executable, "-c", _HOLDER.format(more=more)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


def ended(process: subprocess.Popen[str], how: int | None = None) -> None:
    if how is not None:
        process.send_signal(how)
    process.communicate()


def test_the_ring_of_a_living_process_stays_and_that_of_a_killed_one_goes() -> None:
    process, folder = holder()
    remove_stale()
    assert Path(folder).is_dir()
    ended(process, signal.SIGKILL)
    assert Path(folder).is_dir()
    assert remove_stale() >= 1
    assert not Path(folder).exists()


def test_a_process_that_ends_by_itself_leaves_nothing() -> None:
    process, folder = holder()
    ended(process)
    assert not Path(folder).exists()


_WORKER = """
reading, writing = os.pipe()
worker = os.fork()
if worker == 0:
    ring.close()
    os.write(writing, b".")
    signal.pause()
os.read(reading, 1)
print(worker, flush=True)
"""


def test_workers_that_outlive_a_killed_training_neither_remove_nor_keep_its_ring() -> None:
    process, worker = holder(_WORKER)
    try:
        assert process.stdout is not None
        folder = process.stdout.readline().strip()
        assert Path(folder).is_dir()
        process.kill()
        process.wait()
        remove_stale()
        assert not Path(folder).exists()
    finally:
        os.kill(int(worker), signal.SIGKILL)
        ended(process)


def test_only_folders_of_this_user_that_are_none_of_a_link_are_removed(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").touch()
    base = Path(tempfile.gettempdir())
    link = base / f"{ring_folder.PREFIX}link-{os.getpid()}"
    shared = base / f"{ring_folder.PREFIX}shared-{os.getpid()}"
    link.symlink_to(kept)
    shared.mkdir()
    shared.chmod(0o777)
    try:
        remove_stale()
        assert (kept / "file").exists()
        assert shared.is_dir()
    finally:
        link.unlink()
        shared.rmdir()


def test_a_folder_that_was_taken_for_left_behind_before_it_was_locked_is_made_anew(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made: list[str] = []
    make = tempfile.mkdtemp

    def make_and_lose(prefix: str, dir: str) -> str:  # noqa: A002 - as it is called
        made.append(make(prefix=prefix, dir=dir))
        return made[-1]

    lock = fcntl.flock

    def removed_meanwhile(file: int, how: int) -> None:
        if len(made) == 1:
            Path(made[0]).rmdir()
        lock(file, how)

    monkeypatch.setattr(tempfile, "mkdtemp", make_and_lose)
    monkeypatch.setattr(fcntl, "flock", removed_meanwhile)
    folder = ring_folder.RingFolder(str(tmp_path))
    assert [Path(path).exists() for path in made] == [False, True]
    assert folder.path == made[1]
    folder.remove()


# --- launches ---


def test_a_launch_has_the_files_in_order_of_time_and_names_that_stay(ring: DumpRing) -> None:
    assert ring.launches() == []
    folder = iteration(ring, 3, 7)
    late = dump(folder, "ReLU.Default_ReLU-op0", 50)
    early = dump(folder, "MatMul.Default_MatMul-op0", 10)
    dotted = dump(folder, "Parameter.fc1.weight", 70)
    launch = only(ring.launches())
    assert (launch.graph, launch.iteration, launch.folder) == (3, 7, str(folder))
    assert launch.files == (early, late, dotted)
    assert launch.keys == tuple(name.replace(name.split(".")[-6], "0") for name in launch.files)
    parsed = parse_name(launch.keys[2])
    assert parsed is not None
    assert (parsed.op_type, parsed.op_name, parsed.timestamp) == ("Parameter", "fc1.weight", 0)
    assert ring.launches() == []


def test_what_comes_into_a_folder_later_is_another_launch(ring: DumpRing) -> None:
    folder = iteration(ring)
    dump(folder, "ReLU.op", 1)
    first = only(ring.launches())
    second_file = dump(folder, "ReLU.op", 2)
    second = only(ring.launches())
    assert second.files == (second_file,)
    assert second.keys == first.keys
    ring.release(first)
    assert [path.name for path in folder.iterdir()] == [second_file]
    third_file = dump(folder, "ReLU.op", 3)
    ring.release(second)
    assert only(ring.launches()).files == (third_file,)


def test_of_a_graph_that_ran_twice_the_last_run_counts_and_both_are_removed(ring: DumpRing) -> None:
    folder = iteration(ring)
    for moment in (1, 11):
        dump(folder, "MatMul.op", moment)
        dump(folder, "ReLU.op", moment + 1)
    dump(folder, "Once.op", 5)
    launch = only(ring.launches())
    assert [int(name.split(".")[4]) - TIME for name in launch.files] == [5, 11, 12]
    ring.release(launch)
    assert not folder.exists()


def test_launches_come_in_the_order_in_which_they_ended(ring: DumpRing) -> None:
    dump(iteration(ring, 0, 5), "ReLU.op", 30)
    dump(iteration(ring, 1, 2), "ReLU.op", 10)
    dump(iteration(ring, 0, 6), "ReLU.op", 20)
    assert [(one.graph, one.iteration) for one in ring.launches()] == [(1, 2), (0, 6), (0, 5)]


def test_a_released_launch_is_gone_with_its_folder_which_mindspore_may_make_again(ring: DumpRing) -> None:
    folder = iteration(ring)
    dump(folder, "ReLU.op", 1)
    launch = only(ring.launches())
    tensor = DumpedTensor(launch, 0)
    assert not tensor.is_gone
    ring.release(launch)
    ring.release(launch)
    assert tensor.is_gone
    assert not folder.exists()
    again = dump(iteration(ring), "ReLU.op", 2)
    assert only(ring.launches()).files == (again,)


def test_long_names_are_looked_up_and_removed_with_the_last_file(ring: DumpRing) -> None:
    folder = iteration(ring)
    long = "MatMul." + "Default_deep_" * 40 + "MatMul-op0"
    (folder / dump(folder, "ReLU.op", 9)).rename(folder / "762878206.npy")
    (folder / "mapping.csv").write_text(f"762878206.npy,{long}.0.0.{TIME + 9}.{REST}\n")
    dump(folder, "ReLU.op", 3)
    launch = only(ring.launches())
    assert launch.files[1] == "762878206.npy"
    assert launch.keys == (f"ReLU.op.0.0.0.{REST}", f"{long}.0.0.0.{REST}")
    assert Path(DumpedTensor(launch, 1).path).exists()
    (folder / dump(folder, "ReLU.op", 19)).rename(folder / "17.npy")
    with open(folder / "mapping.csv", "a") as file:
        file.write(f"17.npy,{long}.0.0.{TIME + 19}.{REST}\n")
    ring.release(launch)
    later = only(ring.launches())
    assert later.keys == (f"{long}.0.0.0.{REST}",)
    ring.release(later)
    assert not folder.exists()


def test_unusual_time_stamps_and_strange_files_do_no_harm(ring: DumpRing) -> None:
    folder = iteration(ring)
    for name in (f"ReLU.op.0.0.77.{REST}", f"ReLU.op.0.0.{TIME}.input.1.ND.npy", "what.npy", "notes.txt", "12.npy"):
        np.save(folder / "x.npy", np.zeros(1))
        (folder / "x.npy").rename(folder / name)
    (folder.parent / "constants").mkdir()
    (folder.parent / "file").touch()
    launch = only(ring.launches())
    assert set(launch.keys) == {f"ReLU.op.0.0.0.{REST}", "ReLU.op.0.0.0.input.1.ND.npy", "what.npy", "12.npy"}
    ring.release(launch)
    assert [path.name for path in folder.iterdir()] == ["notes.txt"]
    assert ring.launches() == []


def test_a_discarded_dump_is_gone_unread_but_what_was_returned_stays(ring: DumpRing) -> None:
    kept = dump(iteration(ring, 0, 0), "ReLU.op", 1)
    launch = only(ring.launches())
    dump(iteration(ring, 0, 0), "ReLU.op", 2)
    dump(other := iteration(ring, 1, 0), "ReLU.op", 3)
    ring.discard()
    assert not other.exists()
    assert os.listdir(launch.folder) == [kept]
    assert ring.launches() == []
    ring.release(launch)
    assert not Path(launch.folder).exists()


def test_a_thousand_steps_leave_neither_files_nor_handles(ring: DumpRing) -> None:
    def open_files() -> int:
        return len(os.listdir("/proc/self/fd"))

    before: tuple[int, int] | None = None
    previous: Launch | None = None
    for step in range(1000):
        folder = iteration(ring, step % 3, step)
        for moment in range(3):
            dump(folder, f"ReLU.op{moment}", 10 * step + moment)
        launch = only(ring.launches())
        if previous is not None:
            ring.release(previous)
        previous = launch
        if step == 10:
            before = open_files(), ring.used_bytes()
    assert before == (open_files(), ring.used_bytes())


def large(ring: DumpRing, number: int, files: int = 3, moment: int = 0) -> Path:
    folder = iteration(ring, 0, number)
    for at in range(files):
        name = f"MatMul.op{at}.0.0.{TIME + moment + at}.{REST}"
        np.save(folder / name, np.zeros(LARGE_BYTES // 8, np.float32))
    return folder


def test_large_launches_are_removed_while_the_training_goes_on(ring: DumpRing) -> None:
    folders = []
    for number in range(10):
        folders.append(large(ring, number))
        launch = only(ring.launches())
        ring.release(launch)
        assert DumpedTensor(launch, 0).is_gone
    deadline = time.monotonic() + 60
    while any(folder.exists() for folder in folders):
        assert ring.launches() == []
        assert time.monotonic() < deadline


def test_a_folder_is_used_again_while_its_large_files_are_removed(ring: DumpRing) -> None:
    for number in range(20):
        folder = large(ring, 0, files=5, moment=10 * number)
        again = dump(folder, "ReLU.op", 10 * number + 5)
        launch = only(ring.launches())
        assert launch.files[-1] == again
        assert len(launch.files) == 6
        ring.release(launch)
        ring.discard()


def test_closing_waits_for_what_is_being_removed(environment: dict[str, str]) -> None:
    ring = DumpRing.create(environment, name="LeNet-5")
    for number in range(3):
        large(ring, number)
    ring.discard()
    threads = threading.active_count()
    ring.close()
    assert threading.active_count() == threads - 1
    assert not Path(ring.folder).exists()


# --- graphs and ranks ---


def test_graph_files_and_orders_are_found_by_number(ring: DumpRing) -> None:
    assert ring.graphs() == {}
    assert ring.order_of(0) == ()
    rank = Path(ring.folder, "rank_0")
    (rank / "graphs").mkdir(parents=True)
    for name in ("ms_output_trace_code_graph_0.pb", "ms_output_trace_code_graph_12.pb", "ms_output_x_0.pb"):
        (rank / "graphs" / name).touch()
    (rank / "execution_order").mkdir()
    order = rank / "execution_order" / "ms_execution_order_graph_12.csv"
    order.write_text("NodeExecutionOrder-FullNameWithScope\nDefault/MatMul-op0\nDefault/ReLU-op0\n")
    assert ring.graphs() == {
        number: str(rank / "graphs" / f"ms_output_trace_code_graph_{number}.pb") for number in (0, 12)
    }
    assert ring.order_of(12) == ("Default/MatMul-op0", "Default/ReLU-op0")


def test_the_rank_is_the_one_that_mindspore_writes(environment: dict[str, str]) -> None:
    environment["RANK_ID"] = "9"
    ring = DumpRing.create(environment, name="LeNet-5")
    assert ring.rank == 0
    # What MindSpore writes before it knows its rank.
    Path(ring.folder, "rank_0", ".dump_metadata").mkdir(parents=True)
    assert ring.rank == 0
    dump(iteration(ring, rank=3), "ReLU.op", 1)
    assert (ring.rank, len(ring.launches())) == (3, 1)
    ring.close()


def test_a_child_process_does_not_dump_into_the_ring_of_its_parent(ring: DumpRing, environment: dict[str, str]) -> None:
    inherited = dict(environment)
    own = DumpRing.create(inherited)
    try:
        assert own.is_private
        assert own.folder != ring.folder
        assert inherited[VARIABLE].startswith(own.folder)
    finally:
        own.close()
    assert Path(ring.folder).is_dir()


# --- a dump that a person asked for ---


@pytest.fixture
def chosen(tmp_path: Path) -> Path:
    path = tmp_path / "dump.json"
    common = {"path": str(tmp_path / "dumped"), "net_name": "LeNet-5"}
    path.write_text(json.dumps({"common_dump_settings": common, "e2e_dump_settings": {"enable": True}}))
    return path


def now_us(moment: int) -> int:
    return time.time_ns() // 1000 - TIME + moment


def test_of_the_dump_of_a_person_a_process_reads_what_is_its_own(chosen: Path, tmp_path: Path) -> None:
    ring = DumpRing.create({VARIABLE: str(chosen)})
    ring.number = 1
    dump(iteration(ring, 0, 0, rank=0), "ReLU.other", now_us(0))
    assert ring.launches() == []
    name = dump(iteration(ring, 0, 0, rank=1), "ReLU.own", now_us(0))
    assert only(ring.launches()).files == (name,)
    assert ring.rank == 1
    ring.close()


def test_the_dump_of_a_person_is_read_and_nothing_of_it_is_removed(chosen: Path, tmp_path: Path) -> None:
    environment = {VARIABLE: str(chosen), "RANK_ID": "1"}
    old = tmp_path / "dumped" / "rank_1" / "LeNet-5" / "0" / "1"
    old.mkdir(parents=True)
    dump(old, "ReLU.op", 0)
    (tmp_path / "dumped" / "rank_0").mkdir()
    open_before = len(os.listdir("/proc/self/fd"))
    ring = DumpRing.create(environment)
    assert not ring.is_private
    assert str(chosen) in ring.notice
    assert (ring.folder, ring.rank) == (str(tmp_path / "dumped"), 1)
    assert ring.launches() == []
    seen: list[str] = []
    # An evaluation between the steps has MindSpore skip iterations, and come back to them.
    for number in (0, 1, 3, 3, 6, 5, 9, 7, 8, 9, 10, *range(11, 40)):
        name = dump(iteration(ring, 0, number, rank=1), "ReLU.op", now_us(number))
        launch = only(ring.launches())
        assert launch.files == (name,)
        assert ring.launches() == []
        ring.release(launch)
        seen.append(name)
    dump(iteration(ring, 0, 40, rank=1), "ReLU.op", now_us(0))
    ring.discard()
    assert ring.launches() == []
    assert len(os.listdir("/proc/self/fd")) < open_before + len(seen) // 2
    ring.close()
    assert environment[VARIABLE] == str(chosen)
    assert sum(len(files) for _, _, files in os.walk(tmp_path / "dumped")) == len(seen) + 2


def test_the_default_folder_of_a_dump_is_mindspores(chosen: Path, tmp_path: Path) -> None:
    chosen.write_text('{"common_dump_settings": {"net_name": "N", "saved_data": "statistic"}}')
    ring = DumpRing.create({VARIABLE: str(chosen), "MS_DIAGNOSTIC_DATA_PATH": str(tmp_path)})
    ring.close()
    assert ring.folder == f"{tmp_path}/debug_dump"
    assert "statistics instead of tensors" in ring.notice


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"common_dump_settings": {"net_name": "N"}}', "{"])
def test_a_configuration_that_cannot_be_used_is_named(chosen: Path, text: str) -> None:
    chosen.write_text(text)
    with pytest.raises(InputError, match=r"[Uu]nset") as caught:
        DumpRing.create({VARIABLE: str(chosen)})
    assert str(chosen) in str(caught.value)
