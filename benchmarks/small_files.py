"""What a dump of many small tensors costs: listed with and without kernels, and read one by one and together.

    python benchmarks/small_files.py [--tensors 1475] [--repeats 7]

The dump has one rank and one step, and its npy files have a few hundred elements each. All figures are processor time
of one process, the median of the repeats, with the files in the page cache.
"""

from __future__ import annotations

import argparse
import os
import platform
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from tensight.analysis.statistics_table import StatisticsTable, Visit
from tensight.dumps import open_dump
from tensight.dumps.storage import LocalStorage

if TYPE_CHECKING:
    from collections.abc import Callable

STEP = "rank_0/Net/0/0"


def write(root: Path, tensors: int) -> None:
    """Write a dump without a graph."""
    folder = root / STEP
    folder.mkdir(parents=True)
    rng = np.random.default_rng(7)
    for number in range(tensors):
        values = rng.normal(size=(8, number % 64)).astype(np.float32)
        np.save(folder / f"Add.Add-op{number}.0.0.{10**15 + number}.output.0.DefaultFormat.npy", values)


def seconds(work: Callable[[], object]) -> float:
    """Return the processor time of a call."""
    begin_s = time.process_time()
    work()
    return time.process_time() - begin_s


def listed_s(root: Path, kernels: str) -> float:
    """Return the time that it takes to list the folder of the step."""
    os.environ["TENSIGHT_KERNELS"] = kernels
    storage = LocalStorage(str(root))
    took_s = seconds(lambda: storage.list_folder(STEP))
    os.environ["TENSIGHT_KERNELS"] = "auto"
    return took_s


def read_s(root: Path, *, together: bool) -> float:
    """Return the time that it takes to compute the statistics of all tensors."""
    table = StatisticsTable.empty(open_dump(root))
    visits = [Visit(row) for row in range(len(table.files))]

    def read() -> None:
        for group in table.together(visits) if together else [[visit] for visit in visits]:
            table.fill(group)

    return seconds(read)


def main() -> None:
    """Print the figures."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--tensors", type=int, default=1475)
    arguments.add_argument("--repeats", type=int, default=7)
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory(prefix="tensight-bench-") as folder:
        root = Path(folder)
        write(root, options.tensors)
        rows: dict[str, list[float]] = {"list, NumPy": [], "list": [], "read one by one": [], "read together": []}
        for _ in range(options.repeats):
            rows["list, NumPy"].append(listed_s(root, "numpy"))
            rows["list"].append(listed_s(root, "auto"))
            rows["read one by one"].append(read_s(root, together=False))
            rows["read together"].append(read_s(root, together=True))
    print(f"{platform.processor() or platform.machine()}, {options.tensors:,} tensors")
    for name, each_s in rows.items():
        print(f"{name:>16}: {1e3 * median(each_s):8.2f} ms, {1e6 * median(each_s) / options.tensors:6.2f} us a tensor")
    ratio = median(one / other for one, other in zip(rows["read one by one"], rows["read together"], strict=True))
    print(f"{'ratio of reading':>16}: {ratio:8.1f}")


if __name__ == "__main__":
    main()
