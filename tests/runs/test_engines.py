from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tensight.errors import InputError
from tensight.ranks import FEW_RANKS
from tensight.runs.engines import (
    Engine,
    Here,
    LostTaskError,
    Processes,
    engine_named,
)
from tests.runs.work import doubled, killed_once, killed_with, raising


@pytest.fixture(scope="module")
def dask_address() -> Iterator[str]:
    from distributed import LocalCluster

    options = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": None}
    with LocalCluster(**options) as cluster:  # type: ignore[no-untyped-call]
        yield cluster.scheduler_address.partition("://")[2]


@pytest.fixture(params=["threads", "processes", "dask"])
def engine(request: pytest.FixtureRequest) -> Engine:
    if request.param == "dask":
        return engine_named(f"dask://{request.getfixturevalue('dask_address')}", 10)
    return engine_named(request.param, 10)


@pytest.fixture(params=["processes", "dask"])
def engine_of_workers(request: pytest.FixtureRequest) -> Engine:
    if request.param == "dask":
        return engine_named(f"dask://{request.getfixturevalue('dask_address')}", 10)
    return engine_named(request.param, 10)


def results(engine: Engine, work: Callable[[Any], Any], tasks: list[Any]) -> dict[Any, Any]:
    return dict(engine.map(work, tasks))


def test_every_task_has_its_result(engine: Engine) -> None:
    assert results(engine, doubled, list(range(30))) == {number: 2 * number for number in range(30)}


def test_no_tasks_give_no_results(engine: Engine) -> None:
    assert results(engine, doubled, []) == {}


def test_an_error_of_the_work_reaches_the_caller(engine: Engine) -> None:
    with pytest.raises(InputError, match="task 3 is wrong"):
        results(engine, raising, [1, 2, 3])


def test_a_task_whose_worker_is_killed_is_tried_again(engine_of_workers: Engine, tmp_path: Path) -> None:
    work = partial(killed_once, tmp_path)
    assert results(engine_of_workers, work, list(range(12))) == {number: 2 * number for number in range(12)}
    assert len(list(tmp_path.iterdir())) == 1


def test_a_task_that_kills_every_worker_is_lost_and_no_other(engine_of_workers: Engine) -> None:
    found = results(engine_of_workers, partial(killed_with, 5), list(range(8)))
    assert isinstance(found.pop(5), LostTaskError)
    assert found == {number: 2 * number for number in range(8) if number != 5}


def test_few_ranks_are_read_by_threads_and_many_by_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tensight.runs.engines.available_cores", lambda: 2)
    assert isinstance(engine_named(None, FEW_RANKS), Here)
    assert isinstance(engine_named(None, FEW_RANKS + 1), Processes)


@pytest.mark.parametrize(
    ("name", "message"),
    [("spark", "there is no engine 'spark'"), ("dask://127.0.0.1:9", "no Dask scheduler at tcp://127.0.0.1:9")],
)
def test_an_engine_that_cannot_be_had_is_named(name: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        engine_named(name, 1)


def test_ctrl_c_ends_the_processes(tmp_path: Path) -> None:
    script = "from tests.runs.work import slow; from tensight.runs.engines import Processes\n" + (
        f"if __name__ == '__main__':\n    list(Processes(2).map(slow, [r'{tmp_path}'] * 8))\n"
    )
    driver = tmp_path / "driver.py"
    driver.write_text(script)
    environment = os.environ | {"PYTHONPATH": os.getcwd()}
    with subprocess.Popen([sys.executable, driver], env=environment, stderr=subprocess.PIPE, text=True) as process:
        started = tmp_path / "started"
        while not started.exists():
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=60)
    assert "KeyboardInterrupt" in error
    for worker in started.read_text().split():
        with pytest.raises(ProcessLookupError):
            os.kill(int(worker), 0)
