"""Narrow floats without ml_dtypes, as in a training that has the light agent: the same numbers, the same bytes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tensight.tensors.narrow_types import NARROW_NAMES, dtype_name, narrow_dtype, to_bfloat16

EVERYTHING = """
import json, sys
if sys.argv[1] == "without":
    sys.modules["ml_dtypes"] = None  # as if it were not installed
import numpy as np
from tensight.dumps.growing_files import npy_head
from tensight.dumps.npy_files import parse_header
from tensight.tensors.narrow_types import BFLOAT16, NARROW_NAMES, dtype_name, narrow_dtype, to_bfloat16
from tensight.tensors.statistics_row import statistics
from tensight.tensors.views import SEARCHES, View, compute_view
from tensight.wire.data_types import data_type_of, numpy_dtype

every = np.arange(2**16, dtype=np.uint16).view(BFLOAT16).reshape(2, 128, 256)
finite = np.tile(np.arange(0x3000, 0x4000, dtype=np.uint16), 4).view(BFLOAT16).reshape(4, 64, 64)
found = [BFLOAT16.names is None]

def add(result):
    array = result.array
    if array is not None:
        array = [dtype_name(array.dtype), array.shape, array.tobytes().hex()]
    rest = (result.slice, result.shape, result.dtype, result.statistics, result.previous_statistics, result.histogram)
    found.append([array, *map(repr, rest)])

for array in (every, finite, every[:, ::3, ::-2], finite.transpose(2, 0, 1)):
    found.append(repr(statistics(array)))
    for kind in ("values", "heat_map", "histogram", "statistics", "slices", *SEARCHES):
        add(compute_view(View(kind), "current", array))
        add(compute_view(View(kind), "difference", array, array[::-1]))
for name in ("float8_e4m3fn", "float8_e5m2"):
    bytes_ = np.tile(np.arange(256, dtype=np.uint8), 8).view(narrow_dtype(name)).reshape(2, 16, 64)
    for array in (bytes_, bytes_[:, ::3, ::-2], bytes_.transpose(2, 0, 1)):
        found.append(repr(statistics(array)))
        for kind in ("values", "heat_map", "histogram", "statistics", "slices", *SEARCHES):
            add(compute_view(View(kind), "current", array))
            add(compute_view(View(kind), "difference", array, array[::-1]))
    found += [npy_head(narrow_dtype(name), (3, 4)).hex(), data_type_of(name)]
    found += [numpy_dtype(data_type_of(name)) == narrow_dtype(name)]
found += [npy_head(BFLOAT16, (3, 4)).hex(), data_type_of(every.dtype)]
found += [numpy_dtype(data_type_of("bfloat16")) == BFLOAT16]
found += [parse_header(b"{'descr': '<E2', 'fortran_order': False, 'shape': (3,), }")[0] == BFLOAT16]
found += [[dtype_name(narrow_dtype(name)), narrow_dtype(name).itemsize] for name in sorted(NARROW_NAMES)]
singles = np.concatenate([np.arange(0, 2**32, 65_521, dtype=np.uint64).astype(np.uint32), np.arange(256) << 15])
found.append(to_bfloat16(singles.astype(np.uint32).view(np.float32)).tobytes().hex())
print(json.dumps(found))
"""


def outcome(way: str, kernels: str) -> list[Any]:
    environment = {**os.environ, "TENSIGHT_KERNELS": kernels}
    command = [sys.executable, "-W", "error", "-c", EVERYTHING, way]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    found: list[Any] = json.loads(done.stdout)
    return found


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kernels", ["numpy", "auto"])
def test_statistics_views_and_files_are_the_same_without_ml_dtypes(kernels: str) -> None:
    (is_real, *expected), (is_real_too, *found) = outcome("with", kernels), outcome("without", kernels)
    assert is_real
    assert not is_real_too
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert one == other


def test_the_types_of_ml_dtypes_are_taken_where_it_is_installed() -> None:
    for name in NARROW_NAMES:
        assert narrow_dtype(name) == np.dtype(getattr(ml_dtypes, name))
        assert dtype_name(narrow_dtype(name)) == name
    assert to_bfloat16(np.array([1.0], np.float32)).dtype == ml_dtypes.bfloat16


def test_a_stand_in_refuses_to_compute() -> None:
    script = (
        "import sys; sys.modules['ml_dtypes'] = None; import numpy as np\n"
        "from tensight.tensors.narrow_types import BFLOAT16\n"
        "array = np.zeros(3, np.uint16).view(BFLOAT16)\n"
        "for compute in (lambda: array + 1, lambda: array.astype(np.float32), lambda: np.isnan(array)):\n"
        "    try:\n        compute()\n    except (TypeError, ValueError):\n        continue\n    sys.exit(1)\n"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
