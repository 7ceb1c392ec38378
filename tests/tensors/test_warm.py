"""Nobody waits for a compiler: behaviour of fresh processes with an empty, a filled and an unwritable cache."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensight
from tensight.errors import InputError
from tensight.tensors import kernels_ready, native, statistics, warm

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
    fresh_process("from tensight.tensors.warm import main; main('scan'); main('change'); print(0)", cache)
    return cache


def test_importing_the_room_does_not_import_numba(tmp_path: Path) -> None:
    program = "import json, sys, tensight.tensors; print(json.dumps('numba' in sys.modules))"
    assert fresh_process(program, tmp_path) is False


def test_with_an_empty_cache_numpy_answers_at_once_with_the_same_row(tmp_path: Path, filled_cache: Path) -> None:
    cold, warmed = fresh_process(COLD, tmp_path), fresh_process(COLD, filled_cache)
    assert (cold["numba"], cold["ready"]) == (False, False)
    assert (warmed["numba"], warmed["ready"]) == (False, True)
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
    with warm._only_one(tmp_path / "lock") as first, warm._only_one(tmp_path / "lock") as second:
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


def test_a_process_that_finds_all_kernels_compiled_loads_them_without_numba(filled_cache: Path) -> None:
    program = """
import json, sys
import numpy as np
from tensight.tensors import changes, statistics, warm_up
warm_up()
numbers = [statistics(np.arange(5.0, dtype=kind)).mean for kind in ("float16", "float32", "float64", "int64")]
change = [changes(np.ones(5, kind), np.zeros(5, kind)).mean_abs_change for kind in ("float32", "float64")]
print(json.dumps([*numbers, *change, "numba" in sys.modules]))
"""
    assert fresh_process(program, filled_cache) == [2, 2, 2, 2, 1, 1, False]


def test_threads_wait_for_a_kernel_that_another_one_loads(filled_cache: Path) -> None:
    program = """
import json, threading
from concurrent.futures import ThreadPoolExecutor
from tensight.tensors import native, warm
start = threading.Barrier(8)
def first(_):
    start.wait()
    return warm.compiled(native.Kernel.SCAN_SINGLE) is not None
with ThreadPoolExecutor(8) as pool:
    print(json.dumps(list(pool.map(first, range(8)))))
"""
    assert fresh_process(program, filled_cache) == [True] * 8


def test_nobody_waits_for_a_kernel_that_another_thread_compiles(tmp_path: Path, filled_cache: Path) -> None:
    program = """
import json
import numpy as np
from tensight.tensors import statistics, warm
with warm._state.compiling:
    print(json.dumps(statistics(np.arange(5.0)).mean))
"""
    (tmp_path / "file").write_text("")
    assert fresh_process(program, filled_cache) == 2
    assert fresh_process(program, tmp_path / "file") == 2


@pytest.mark.parametrize(
    "damage", [lambda code: b"", lambda code: code[:-9], lambda code: code[:99] + b"?" + code[100:]]
)
@pytest.mark.parametrize("mode", ["auto", "compiled"])
def test_a_damaged_file_counts_as_absent_and_is_written_again(
    tmp_path: Path, filled_cache: Path, damage: Callable[[bytes], bytes], mode: str
) -> None:
    shutil.copytree(filled_cache, tmp_path / "cache")
    (file,) = (tmp_path / "cache").rglob("scan-single.code")
    whole = file.read_bytes()
    file.write_bytes(damage(whole))
    program = """
import json, threading
import numpy as np
from tensight.tensors import kernels_ready, statistics
before = kernels_ready("float32")
row = statistics(np.arange(5000, dtype=np.float32))
for thread in threading.enumerate():
    if thread.name == "tensight-kernels":
        thread.join()
print(json.dumps([before, kernels_ready("float32"), row.mean]))
"""
    assert fresh_process(program, tmp_path / "cache", TENSIGHT_KERNELS=mode) == [False, True, 2499.5]
    assert len(file.read_bytes()) == len(whole)
    assert sorted(found.name for found in file.parent.iterdir()) == sorted(
        ["change.lock", "scan.lock", *(f"{kernel.value}.code" for kernel in native.Kernel)]
    )


def test_two_processes_with_an_empty_cache_both_compile_and_both_answer(tmp_path: Path) -> None:
    with ThreadPoolExecutor(2) as pool:
        rows = list(pool.map(lambda _: fresh_process(COLD, tmp_path, TENSIGHT_KERNELS="compiled"), range(2)))
    assert rows[0]["row"] == rows[1]["row"]
    (file,) = tmp_path.rglob("*.code")
    loaded = fresh_process(COLD, tmp_path)
    assert (file.name, loaded["numba"], loaded["row"]) == ("scan-single.code", False, rows[0]["row"])


def test_a_cache_that_others_can_write_is_not_used(tmp_path: Path) -> None:
    program = "import json; from tensight.tensors.warm import cache_folder; print(json.dumps(str(cache_folder())))"
    folder = Path(fresh_process(program, tmp_path))
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o770)
    assert fresh_process(program, tmp_path) == "None"


def test_code_that_calls_something_outside_of_itself_is_refused() -> None:
    assembly = "declare void @puts()\ndefine i32 @entry() {\n call void @puts()\n ret i32 0\n}"
    with pytest.raises(RuntimeError, match="needs puts from outside"):
        native.object_code(assembly, "entry")


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


def test_who_has_much_to_scan_waits_until_the_kernels_are_compiled(tmp_path: Path) -> None:
    program = """
import json
from tensight.tensors import kernels_ready, wait_for_kernels
from tensight.tensors import warm
warm.PATIENCE_S = 90
print(json.dumps([kernels_ready("float32"), wait_for_kernels(), kernels_ready("float32")]))
"""
    assert fresh_process(program, tmp_path / "cache") == [False, True, True]


def test_nobody_waits_for_kernels_that_are_not_wanted(tmp_path: Path) -> None:
    program = "from tensight.tensors import wait_for_kernels; print(str(wait_for_kernels()).lower())"
    assert fresh_process(program, tmp_path / "cache", TENSIGHT_KERNELS="numpy") is False


def test_without_a_compiler_numpy_does_it_all(tmp_path: Path) -> None:
    program = """
import json, sys, threading
sys.modules["numba"] = None
import numpy as np
from tensight.tensors import kernels_ready, statistics, warm
mean = statistics(np.arange(5.0, dtype=np.float32)).mean
print(json.dumps([mean, kernels_ready("float32"), warm.cache_folder(), threading.active_count()]))
"""
    assert fresh_process(program, tmp_path / "cache") == [2.0, False, None, 1]


def test_somebody_elses_process_compiles_nothing_even_without_a_cache() -> None:
    program = """
import json, sys, threading
from tensight.tensors import warm
from tensight.tensors.native import Kernel
found = [warm.compiled(kernel, here=False) for kernel in Kernel]
print(json.dumps([found, threading.active_count(), "numba" in sys.modules]))
"""
    found, threads, numba = fresh_process(program, Path("/proc/no-such-folder"))
    assert (set(found), threads, numba) == ({None}, 1, False)


def test_compilers_are_not_debugged_themselves(tmp_path: Path) -> None:
    program = """
import json, subprocess
from tensight.tensors import warm
started = []
class Popen(subprocess.Popen):
    def __init__(self, command, **options):
        started.append(options["env"])
        super().__init__(command, **options)
subprocess.Popen = Popen
warm.start_background_compile()
print(json.dumps([sorted({"TENSIGHT_DEBUG", "ENABLE_MS_DEBUGGER", "PATH"} & set(env)) for env in started]))
"""
    debugged = {"TENSIGHT_DEBUG": "1", "ENABLE_MS_DEBUGGER": "1"}
    # the process itself is not to be debugged either: the words are there only once it runs
    program = f"import os; os.environ.update({debugged!r})\n{program}"
    assert fresh_process(program, tmp_path / "cache") == [["PATH"], ["PATH"]]
