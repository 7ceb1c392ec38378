"""Compare two checkpoints from the page cache with `tensight compare checkpoints`, and subtract them with NumPy.

The same files in one run: two that are bit-equal, and two of which every element moved. Bytes are those of both.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np

ROWS = 1024


def write(path: Path, gigabytes: float, change: float) -> None:
    """Write a safetensors file of float32 matrices with the values of every path, moved by a share of themselves."""
    matrices = max(1, round(gigabytes * 1e9 / (ROWS * 4096 * 4)))
    size = ROWS * 4096 * 4
    header = json.dumps(
        {
            f"layers.{number}.weight": {
                "dtype": "F32",
                "shape": [ROWS, 4096],
                "data_offsets": [number * size, (number + 1) * size],
            }
            for number in range(matrices)
        }
    ).encode()
    header += b" " * (-len(header) % 8)
    generator = np.random.default_rng(0)
    values = generator.standard_normal(ROWS * 4096, np.float32)
    with path.open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        for number in range(matrices):
            np.multiply(np.roll(values, number), np.float32(1 + change)).tofile(file)


def read(path: Path) -> None:
    """Bring a file into the page cache."""
    with path.open("rb") as file:
        while file.read(2**24):
            pass


TENSIGHT = (
    "import sys; sys.argv = ['tensight', 'compare', 'checkpoints', *sys.argv[1:], '--quiet']\n"
    "from tensight.cli import main; main()"
)
NUMPY = (
    "import sys, numpy as np\n"
    "from safetensors.numpy import safe_open\n"
    "with safe_open(sys.argv[1], 'np') as a, safe_open(sys.argv[2], 'np') as b:\n"
    "    for name in a.keys():\n"
    "        x, y = a.get_tensor(name), b.get_tensor(name)\n"
    "        change = y - x\n"
    "        print(np.linalg.norm(change) / np.linalg.norm(x), np.abs(change).max(), np.count_nonzero(change))\n"
)
"""Norm of the difference against the norm, the largest, and how many elements differ, matrix by matrix."""


def run(program: str, a: Path, b: Path) -> tuple[float, float, float]:
    """Return seconds, seconds of all cores, and peak memory in MB of a program in a process of its own."""
    begin = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-c", program, a, b], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode in (0, 1)
    return time.perf_counter() - begin, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1e3


def main() -> None:
    """Print seconds, GB/s of both files together, seconds of all cores and peak memory of each case, in turns."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--gigabytes", type=float, default=2.0, help="of each file")
    arguments.add_argument("--repeats", type=int, default=5)
    arguments.add_argument("--folder", type=Path, default=None)
    options = arguments.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="tensight-bench-", dir=options.folder))
    try:
        paths = {name: folder / f"{name}.safetensors" for name in ("a", "same", "moved")}
        for name, path in paths.items():
            write(path, options.gigabytes, 0.01 if name == "moved" else 0.0)
        total = 2 * paths["a"].stat().st_size
        for other in ("same", "moved"):
            results: dict[str, list[tuple[float, float, float]]] = {"tensight": [], "NumPy": []}
            for _ in range(options.repeats):
                for who, program in (("tensight", TENSIGHT), ("NumPy", NUMPY)):
                    read(paths["a"])
                    read(paths[other])
                    results[who].append(run(program, paths["a"], paths[other]))
            for who, runs in results.items():
                seconds, all_cores, memory = (median(column) for column in zip(*runs, strict=True))
                print(
                    f"{other:6} {who:9} {seconds:6.2f} s  {total / seconds / 1e9:5.2f} GB/s"
                    f"  {all_cores:6.2f} s of all cores  {memory:6.0f} MB"
                    f"  ({total / 1e9:.1f} GB of both, {len(os.sched_getaffinity(0))} cores)",
                    flush=True,
                )
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
