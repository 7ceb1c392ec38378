"""Large tensors are scanned while MindSpore still dumps: the same statistics, whoever comes first."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tensight.agents.core.columns import StatisticsColumns
from tensight.agents.core.slots import Need
from tensight.agents.mindspore.dumped import DumpedReader, DumpedTensor
from tensight.agents.mindspore.ring import DumpRing
from tensight.agents.mindspore.scans_ahead import LARGE_BYTES, ScansAhead, are_worth_waking
from tensight.tensors import statistics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tensight.agents.mindspore.ring import Launch

OPERATORS = ("MatMul", "ReLU", "Mul", "Sub")
NEEDED = int(Need.ROW | Need.VALUE | Need.HASH)


class Stage:
    """A graph that is launched again and again, and the thread that scans what it leaves."""

    def __init__(self, ring: DumpRing) -> None:
        self.needs = bytearray([NEEDED] * len(OPERATORS))
        self.ahead = ScansAhead(self.needs)
        self.ahead.start()
        self.reader = DumpedReader()
        self.columns = StatisticsColumns()
        self._ring = ring
        self._moment = 1795261378520830

    def dump(self, iteration: int, arrays: list[Any]) -> Launch:
        """Write a launch as MindSpore does: the folder first, then one file after another."""
        folder = Path(self._ring.folder, "rank_0", "N", "0", str(iteration))
        folder.mkdir(parents=True, exist_ok=True)
        for operator, array in zip(OPERATORS, arrays, strict=False):
            self._moment += 1
            name = f"{operator}.Default_{operator}-op0.0.0.{self._moment}.output.0.DefaultFormat.Float32.npy"
            np.save(folder / name, array)
        (launch,) = self._ring.launches()
        self.ahead.expect(launch, {key: OPERATORS.index(key.partition(".")[0]) for key in launch.keys})
        return launch

    def in_known_folder(self) -> Launch:
        """Launch until the folder of iteration 1 is known: what comes first into a new one nobody may be told of."""
        self.dump(0, arrays(0))
        launch = self.dump(1, arrays(1))
        deadline = time.monotonic() + 60
        while not self.has_scanned(launch, 3):
            assert time.monotonic() < deadline, "nothing is scanned"
            launch = self.dump(1, arrays(1))
        return launch

    def skip(self) -> None:
        """Leave out what was dumped since."""
        self._ring.launches()

    def observe(self, launch: Launch) -> list[Any]:
        """Return the statistics of what was dumped, as they are when a step ends."""
        tensors = [
            (OPERATORS.index(key.partition(".")[0]), DumpedTensor(launch, n)) for n, key in enumerate(launch.keys)
        ]
        self.columns.current_iteration += 1
        self.ahead.begin(tensors)
        assert all(self.reader.scan(tensor, self.columns, slot_id) for slot_id, tensor in tensors)
        self.ahead.forget()
        return [self.columns.statistics(slot_id) for slot_id, _ in tensors]

    def has_scanned(self, launch: Launch, number: int) -> bool:
        """Whether a file was scanned; to ask for its row would take it away from the thread."""
        return self.ahead._scanned.get(number) == (launch.folder, launch.files[number])

    def row(self, launch: Launch, number: int) -> StatisticsColumns | None:
        return self.ahead.row(number, DumpedTensor(launch, number))


@pytest.fixture
def stage() -> Iterator[Stage]:
    ring = DumpRing.create({}, name="N")
    stage = Stage(ring)
    yield stage
    stage.ahead.close()
    ring.close()


def arrays(seed: int, size: int = 200_000) -> list[Any]:
    random = np.random.default_rng(seed)
    return [random.standard_normal(size, np.float32) for _ in OPERATORS]


def wait_until(holds: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline, "it never came"
        os.sched_yield()


def test_statistics_are_those_of_the_files_whoever_scanned_them(stage: Stage) -> None:
    for iteration in range(6):
        written = arrays(iteration)
        assert stage.observe(stage.dump(iteration, written)) == [statistics(array) for array in written]


def test_files_are_scanned_before_anybody_asks(stage: Stage) -> None:
    stage.in_known_folder()
    written = arrays(1)
    launch = stage.dump(1, written)
    wait_until(lambda: all(stage.has_scanned(launch, number) for number in range(len(OPERATORS))))
    rows = stage.row(launch, 2)
    assert rows is not None
    assert rows.statistics(2) == statistics(written[2])


def test_a_launch_in_the_same_folder_is_not_taken_for_the_one_before(stage: Stage) -> None:
    before = stage.in_known_folder()
    written = arrays(2)
    after = stage.dump(1, written)
    assert stage.observe(after) == [statistics(array) for array in written]
    assert stage.row(before, 3) is None


def test_what_nobody_needs_is_left_alone(stage: Stage) -> None:
    stage.in_known_folder()
    stage.needs[0] = stage.needs[1] = int(Need.VALUE)
    launch = stage.dump(1, arrays(1))
    wait_until(lambda: stage.has_scanned(launch, 2) and stage.has_scanned(launch, 3))
    assert stage.row(launch, 0) is None
    assert stage.row(launch, 1) is None


def test_nan_is_found_without_a_second_look(stage: Stage) -> None:
    stage.in_known_folder()
    written = arrays(1)
    written[1][77] = np.nan
    launch = stage.dump(1, written)
    tensors = [(number, DumpedTensor(launch, number)) for number in range(len(OPERATORS))]
    stage.ahead.begin(tensors)
    assert [stage.reader.has_non_finite(tensor) for _, tensor in tensors] == [False, True, False, False]


def test_a_hash_is_there_when_it_is_asked_for(stage: Stage) -> None:
    stage.in_known_folder()
    stage.needs[:] = bytes([int(Need.ROW)] * len(OPERATORS))
    written = arrays(1)
    launch = stage.dump(1, written)
    wait_until(lambda: stage.has_scanned(launch, 3))
    # Somebody has asked to see everything since.
    stage.needs[:] = bytes([NEEDED] * len(OPERATORS))
    assert stage.observe(launch) == [statistics(array) for array in written]


def test_a_file_that_is_no_tensor_harms_nobody(stage: Stage) -> None:
    folder = Path(stage.in_known_folder().folder)
    (folder / "ReLU.Default_ReLU-op0.0.0.1795261378999999.output.0.DefaultFormat.Float32.npy").write_bytes(b"?" * 999)
    (folder / "x").write_bytes(b"")
    (folder.parent / "no number").mkdir()
    stage.skip()
    written = arrays(2)
    assert stage.observe(stage.dump(2, written)) == [statistics(array) for array in written]


def test_without_news_of_files_the_step_is_shared_at_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: Any) -> None:
        raise OSError("too many")

    monkeypatch.setattr("tensight.agents.mindspore.scans_ahead.Arrivals.__init__", refuse)
    ring = DumpRing.create({}, name="N")
    stage = Stage(ring)
    try:
        for iteration in range(3):
            written = arrays(iteration)
            assert stage.observe(stage.dump(iteration, written)) == [statistics(array) for array in written]
    finally:
        stage.ahead.close()
        ring.close()


@pytest.mark.parametrize(
    ("sizes", "told"),
    [
        ([LARGE_BYTES] * 3, True),
        ([40 * LARGE_BYTES, *[1000] * 20], True),
        # A small network with some large activations.
        ([2 * LARGE_BYTES, 2 * LARGE_BYTES, *[1000] * 20], False),
    ],
)
def test_the_thread_is_told_of_files_that_make_up_for_waking_it(sizes: list[int], told: bool) -> None:
    assert are_worth_waking(sizes) is told


def test_nothing_stays_open(stage: Stage) -> None:
    before = len(os.listdir("/proc/self/fd"))
    ring = DumpRing.create({}, name="N")
    other = Stage(ring)
    for iteration in range(40):
        launch = other.dump(iteration, arrays(iteration, 1000))
        other.observe(launch)
        ring.release(launch)
    other.ahead.close()
    ring.close()
    assert len(os.listdir("/proc/self/fd")) == before
    assert not other.ahead.is_alive()
    assert not stage.columns.iteration[0] >= 0
