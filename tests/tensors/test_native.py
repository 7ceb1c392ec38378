"""Which kernels a process uses, and what it says where it cannot have those that it was told to."""

from __future__ import annotations

import ctypes
import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tensight
from tensight.errors import InputError
from tensight.tensors import layout, native, statistics
from tensight.tensors.elements import ELEMENT_NAMES, element_named

ROOT = Path(__file__).parents[2]


def test_this_machine_has_compiled_kernels_and_the_best_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    known = native.instruction_sets()
    assert known, "the kernels were not built: python tools/build_kernels.py says why"
    monkeypatch.delenv("TENSIGHT_KERNELS", raising=False)
    assert native.description() == known[-1]
    monkeypatch.setenv("TENSIGHT_KERNELS", known[0])
    assert native.description() == known[0]


def test_numpy_does_it_when_it_is_told_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSIGHT_KERNELS", "numpy")
    assert native.kernels() is None
    assert "NumPy" in native.description()


def test_a_set_of_instructions_that_is_not_there_is_named_with_those_that_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSIGHT_KERNELS", "mmx")
    with pytest.raises(
        InputError, match=r"TENSIGHT_KERNELS is 'mmx'; on this machine it can be auto, numpy, compiled, \w"
    ):
        statistics(np.ones(3))


def test_without_the_extension_numpy_does_it_unless_it_is_required() -> None:
    program = """
import json, sys
sys.modules["tensight.tensors._kernels"] = None
import numpy as np
from tensight.errors import InputError
from tensight.tensors import native, statistics
try:
    mean = statistics(np.arange(5000.0)).mean
except InputError as error:
    mean = str(error)
print(json.dumps([mean]))
"""

    def run(mode: str) -> object:
        environment = {**os.environ, "TENSIGHT_KERNELS": mode}
        command = [sys.executable, "-c", program]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60)
        return json.loads(done.stdout)[0]

    assert run("auto") == 2499.5
    assert "has no compiled kernels" in str(run("compiled"))


def test_both_languages_mean_the_same_by_kinds_and_sizes() -> None:
    header = (ROOT / "kernels" / "interface.h").read_text()
    kinds = re.search(r"enum Kind : int64_t \{(.*?)KINDS", header, re.DOTALL)
    assert kinds is not None
    assert re.findall(r"\w+", kinds[1]) == [name.upper() for name in ELEMENT_NAMES]
    assert f"BLOCK = {layout.BLOCK};" in header
    assert layout.PART == 1 << 15
    assert "PART = 1 << 15;" in header
    assert f"MOST_AXES = {layout.MOST_AXES};" in header
    assert layout.SEGMENT_ELEMENTS == layout.PART << 5
    assert "MOST_PARTS = 1 << 5;" in header


@pytest.mark.parametrize("name", native.instruction_sets())
def test_wrong_arguments_are_refused_before_memory_is_touched(name: str) -> None:
    kernels = native.kernels()
    assert kernels is not None
    with pytest.raises(TypeError, match="2 arguments were given, 6 are needed"):
        kernels.scan(0, 0)  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="no kind of elements with the number 99"):
        kernels.scan(99, 0, 0, 0, 0, 0)
    with pytest.raises(TypeError):
        kernels.has_non_finite("float32", 0, 0, 0, 0, 0)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="10 arguments were given, 9 are needed, and 2 for each axis"):
        kernels.scan_shared(*[0] * 10)
    with pytest.raises(ValueError, match="1048577 elements cannot be shared out"):
        kernels.scan_shared(0, 0, 0, 1, 0, layout.SEGMENT_ELEMENTS + 1, 0, 0, 0)
    with pytest.raises(TypeError, match="shapes are a list"):
        kernels.Rows(0, 0, 0, 0, 0, ())  # type: ignore[arg-type]
    rows = kernels.Rows(0, 0, 0, 0, 0, [])
    with pytest.raises(TypeError, match="2 arguments were given, 6 are needed"):
        rows.write(0, 0)  # type: ignore[call-arg]
    assert not rows.write(0, 1, 0, 4, 0, (4,)), "there is no row"
    assert kernels.choose(name) == name
    assert kernels.choose(None) == native.instruction_sets()[-1]


def test_nothing_is_read_behind_the_last_element(way: str) -> None:
    """Elements lie at the end of a page that nobody may read beyond."""
    libc = ctypes.CDLL(None, use_errno=True)
    page = os.sysconf("SC_PAGESIZE")
    libc.mmap.restype = ctypes.c_void_p
    start = libc.mmap(None, ctypes.c_size_t(2 * page), 3, 0x22, -1, ctypes.c_long(0))
    assert libc.mprotect(ctypes.c_void_p(start + page), ctypes.c_size_t(page), 0) == 0
    memory = np.frombuffer((ctypes.c_char * page).from_address(start), np.uint8)
    for dtype in (element_named(name).native for name in ELEMENT_NAMES):
        for size in (1, 3, 17, 63, 65, 200):
            array = memory[page - size * dtype.itemsize :].view(dtype)
            array[:] = 1
            found = statistics(array)
            assert (found.count, found.mean, found.positive_count) == (size, 1.0, size), (dtype, size)
    assert libc.munmap(ctypes.c_void_p(start), ctypes.c_size_t(2 * page)) == 0
    assert math.isfinite(found.mean)


def test_the_extension_lies_beside_its_users() -> None:
    """Built in place it is found there; a wheel packs it from there."""
    assert (Path(tensight.__file__).parent / "tensors" / "_kernels.abi3.so").exists()
