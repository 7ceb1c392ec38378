"""Speed of the statistics kernels beside `numpy.sum`, over the same memory-mapped files with the same threads.

    python benchmarks/kernels.py [--size-mb 1024] [--threads 2] [--repeat 7] [--accuracy]

Every repetition times numpy.sum over the float32 files and then each kernel over its own files (the files of one
element type hold `--size-mb` together), so that both suffer the same disturbances; the figures are medians, and the
ratio is to numpy.sum on float32. Files are in the page cache. Touching a mapped page for the first time costs a page
fault, which both sides pay: mapping is part of what is timed. "read" takes the same segments with `os.preadv` into one
buffer per thread instead of mapping.
"""

from __future__ import annotations

import argparse
import mmap
import os
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from tensight.tensors import SEGMENT_ELEMENTS, merge, native, scan_segment, statistics

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

TYPES: dict[str, np.dtype[Any]] = {
    "float32": np.dtype(np.float32),
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "float8_e4m3fn": np.dtype(ml_dtypes.float8_e4m3fn),
    "float8_e5m2": np.dtype(ml_dtypes.float8_e5m2),
    "float64": np.dtype(np.float64),
    "int32": np.dtype(np.int32),
    "int8": np.dtype(np.int8),
    "bool": np.dtype(np.bool_),
}
FILES = 16


def write_files(folder: Path, size_mb: int) -> dict[str, list[Path]]:
    random = np.random.default_rng(0)
    values = random.standard_normal(SEGMENT_ELEMENTS) * 3
    files: dict[str, list[Path]] = {}
    for name, dtype in TYPES.items():
        piece = values.astype(dtype).view(np.uint8)
        repeats = max(1, size_mb * 2**20 // FILES // piece.size)
        files[name] = [folder / f"{name}.{number}.npy" for number in range(FILES)]
        for file in files[name]:
            np.save(file, np.tile(piece, repeats))
    return files


def mapped(file: Path, dtype: np.dtype[Any]) -> NDArray[Any]:
    return np.asarray(np.load(file, mmap_mode="r")).view(dtype)


def numpy_sum(file: Path, dtype: np.dtype[Any]) -> None:
    np.sum(mapped(file, dtype))


def kernel(file: Path, dtype: np.dtype[Any]) -> None:
    statistics(mapped(file, dtype))


def kernel_populated(file: Path, dtype: np.dtype[Any]) -> None:
    """Map with MAP_POPULATE: the kernel enters all pages at once."""
    with file.open("rb") as source:
        flags = mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0)
        with mmap.mmap(source.fileno(), 0, flags=flags, prot=mmap.PROT_READ) as area:
            statistics(np.frombuffer(area, np.uint8, offset=128).view(dtype))


_buffers = threading.local()


def kernel_read(file: Path, dtype: np.dtype[Any]) -> None:
    """Read segment by segment into a buffer that the thread keeps."""
    segment_bytes = SEGMENT_ELEMENTS * dtype.itemsize
    if getattr(_buffers, "size", 0) != segment_bytes:
        _buffers.size, _buffers.raw = segment_bytes, np.empty(segment_bytes, np.uint8)
    size = file.stat().st_size - 128
    descriptor = os.open(file, os.O_RDONLY)
    try:
        parts = []
        for index, start in enumerate(range(0, size, segment_bytes)):
            view = _buffers.raw[: min(segment_bytes, size - start)]
            os.preadv(descriptor, [memoryview(view)], 128 + start)
            parts.append(scan_segment(view.view(dtype), index))
    finally:
        os.close(descriptor)
    merge(parts, dtype=dtype, shape=(size // dtype.itemsize,))


def measure(files: dict[str, list[Path]], threads: int, repeat: int) -> dict[str, float]:
    """Return bytes per second of each contestant."""
    contestants: list[tuple[str, str, Callable[[Path, np.dtype[Any]], None]]] = [("numpy.sum", "float32", numpy_sum)]
    contestants += [(f"kernel {name}", name, kernel) for name in TYPES]
    contestants += [(f"kernel {name}, read", name, kernel_read) for name in ("float32", "float16")]
    contestants += [("kernel float32, populated", "float32", kernel_populated)]
    seconds: dict[str, list[float]] = {label: [] for label, _, _ in contestants}
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(repeat + 1):
            for label, name, run in contestants:
                begin = time.perf_counter()
                list(pool.map(run, files[name], [TYPES[name]] * len(files[name])))
                seconds[label].append(time.perf_counter() - begin)
    sizes = {name: sum(file.stat().st_size for file in paths) for name, paths in files.items()}
    return {label: sizes[name] / median(seconds[label][1:]) for label, name, _ in contestants}


def first_use() -> None:
    """Print what the first use in a process costs, with the kernels and in the NumPy way."""
    program = """
import time
begin = time.perf_counter()
import numpy as np
from tensight.tensors import statistics
imported = time.perf_counter()
statistics(np.ones(1000, np.float32))
print(f"{imported - begin:5.2f} s import, {time.perf_counter() - imported:7.4f} s first tensor")
"""
    for mode in ("compiled", "numpy"):
        environment = {**os.environ, "TENSIGHT_KERNELS": mode}
        command = [sys.executable, "-c", program]
        output = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
        print(f"{mode:28} {output.strip()}")


def accuracy() -> None:
    """Print the relative errors of mean and standard deviation for 10**8 elements."""
    random = np.random.default_rng(1)
    for centre in (0.0, 1.0, 1e4):
        values = random.standard_normal(10**8, dtype=np.float32)
        values += np.float32(centre)
        found = statistics(values, threads=2)
        pieces = np.array_split(values, 1000)
        mean = float(sum(piece.sum(dtype=np.longdouble) for piece in pieces) / values.size)
        square = sum(np.square(piece.astype(np.longdouble) - mean).sum() for piece in pieces)
        std = float(np.sqrt(square / (values.size - 1)))
        error = abs(found.mean - mean) / abs(mean)
        print(f"1e8 float32, {centre:g} ± 1: mean {error:.1e}, std {abs(found.std - std) / std:.1e} relative error")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size-mb", type=int, default=1024)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--instructions", help="a set of instructions, as TENSIGHT_KERNELS takes it; default: the best")
    parser.add_argument("--accuracy", action="store_true", help="only the accuracy for 10**8 elements")
    arguments = parser.parse_args()
    if arguments.accuracy:
        accuracy()
        return
    if arguments.instructions:
        os.environ["TENSIGHT_KERNELS"] = arguments.instructions
    print(f"kernels: {native.description()}")
    with tempfile.TemporaryDirectory() as folder:
        files = write_files(Path(folder), arguments.size_mb)
        speeds = measure(files, arguments.threads, arguments.repeat)
    for label, speed in speeds.items():
        print(f"{label:28} {speed / 1e9:6.2f} GB/s   {speed / speeds['numpy.sum']:5.2f} of numpy.sum")
    first_use()


if __name__ == "__main__":
    main()
