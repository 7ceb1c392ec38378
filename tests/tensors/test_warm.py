"""Nobody waits for a compiler: behaviour of fresh processes with an empty, a filled and an unwritable cache."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensight
from tensight.errors import InputError
from tensight.tensors import kernels_ready, statistics, warm

ROOT = Path(tensight.__file__).parents[1]
COLD = """
import json, sys, time
import numpy as np
from tensight.tensors import kernels_ready, statistics, warm
begin = time.perf_counter()
row = statistics(np.arange(5000, dtype=np.float32)).as_row()
seconds = time.perf_counter() - begin
print(json.dumps({"row": row, "seconds": seconds, "numba": "numba" in sys.modules, "ready": kernels_ready("float32")}))
"""


def fresh_process(program: str, cache: Path, **environment: str) -> Any:
    values = {**os.environ, "PYTHONPATH": str(ROOT), "TENSIGHT_CACHE_DIR": str(cache), "NUMBA_CACHE_DIR": ""}
    command = [sys.executable, "-W", "error", "-c", program]
    done = subprocess.run(command, env=values | environment, capture_output=True, text=True, check=True, timeout=100)
    assert done.stderr == ""
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def filled_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    cache = tmp_path_factory.mktemp("cache")
    fresh_process("from tensight.tensors.warm import main; main(); print(0)", cache)
    return cache


def test_importing_the_room_does_not_import_numba(tmp_path: Path) -> None:
    program = "import json, sys, tensight.tensors; print(json.dumps('numba' in sys.modules))"
    assert fresh_process(program, tmp_path) is False


def test_with_an_empty_cache_numpy_answers_at_once_with_the_same_row(tmp_path: Path, filled_cache: Path) -> None:
    cold, warmed = fresh_process(COLD, tmp_path), fresh_process(COLD, filled_cache)
    assert (cold["numba"], cold["ready"]) == (False, False)
    assert (warmed["numba"], warmed["ready"]) == (True, True)
    assert cold["seconds"] < 2
    exact = [name for name in cold["row"] if name not in ("mean", "abs_mean", "std", "l2_norm")]
    assert [cold["row"][name] for name in exact] == [warmed["row"][name] for name in exact]
    assert cold["row"]["std"] == pytest.approx(warmed["row"]["std"], rel=1e-13)


def test_the_background_process_fills_the_cache_of_the_process_that_started_it(tmp_path: Path) -> None:
    program = """
import json, os, threading, warnings
import numpy as np
from tensight.tensors import kernels_ready, statistics
array = np.arange(5000, dtype=np.float32)
first = statistics(array)
reaper = next(thread for thread in threading.enumerate() if thread.name == "tensight-kernels")
reaper.join()
second = statistics(array)
try:
    os.waitpid(-1, os.WNOHANG)
    zombies = True
except ChildProcessError:
    zombies = False
ready = kernels_ready("float32"), kernels_ready("int64")
print(json.dumps([*ready, first.content_hash == second.content_hash, zombies]))
"""
    assert fresh_process(program, tmp_path) == [True, True, True, False]


def test_two_background_processes_do_not_compile_twice(tmp_path: Path) -> None:
    with warm._only_one(tmp_path) as first, warm._only_one(tmp_path) as second:
        assert (first, second) == (True, False)


def test_where_no_cache_can_be_written_this_process_compiles_for_itself(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    program = """
import json, threading
import numpy as np
from tensight.tensors import kernels_ready, statistics
first = statistics(np.arange(5000.0))
next(thread for thread in threading.enumerate() if thread.name == "tensight-kernels").join()
print(json.dumps([kernels_ready("float64"), statistics(np.arange(5000.0)).content_hash == first.content_hash]))
"""
    assert fresh_process(program, tmp_path / "file") == [True, True]


def test_numba_keeps_its_own_cache_setting(filled_cache: Path) -> None:
    program = """
import json, numba
from tensight.tensors import warm_up
warm_up(["float32"])
print(json.dumps(numba.config.CACHE_DIR))
"""
    assert fresh_process(program, filled_cache) == ""


def test_the_cache_lies_where_numba_was_told_to_put_it(tmp_path: Path) -> None:
    program = "import json; from tensight.tensors.warm import cache_folder; print(json.dumps(str(cache_folder())))"
    found = fresh_process(program, tmp_path / "a", NUMBA_CACHE_DIR=str(tmp_path / "b"))
    assert Path(found).is_relative_to(tmp_path / "b")


def test_an_unknown_setting_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSIGHT_KERNELS", "fast")
    with pytest.raises(InputError, match="TENSIGHT_KERNELS is 'fast'"):
        statistics(np.zeros(3))


def test_readiness_of_what_has_no_statistics_is_refused() -> None:
    with pytest.raises(InputError, match="has no statistics"):
        kernels_ready("U3")
