"""Time `tensight info` in a fresh process: on the shipped dump, and twice on a dump of 100,000 files."""

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from importlib import resources
from pathlib import Path
from statistics import median


def run(dump: Path, cache: Path) -> float:
    """Return the seconds that one fresh process takes."""
    begin = time.perf_counter()
    environment = os.environ | {"TENSIGHT_CACHE_DIR": str(cache)}
    subprocess.run(
        [sys.executable, "-m", "tensight", "info", str(dump)], check=True, stdout=subprocess.DEVNULL, env=environment
    )
    return time.perf_counter() - begin


def enlarge(dump: Path, files: int) -> int:
    """Copy the iterations of a dump, as hard links, until it has that many files; return how many it has."""
    (net,) = [path for path in (dump / "rank_0").iterdir() if path.is_dir() and (path / "0" / "0").is_dir()]
    originals = sorted((net / "0" / "0").iterdir())
    iterations = files // len(originals) + 1
    present = sorted(int(path.name) for path in (net / "0").iterdir() if path.name.isdigit())
    for iteration in range(present[-1] + 1, iterations):
        folder = net / "0" / str(iteration)
        folder.mkdir()
        for path in originals:
            os.link(path, folder / path.name)
    history = dump / "rank_0" / "execution_order" / "ms_global_execution_order_graph_0.csv"
    history.write_text("".join(f"{iteration}\n" for iteration in range(iterations)))
    return sum(len(os.listdir(net / "0" / str(iteration))) for iteration in range(iterations))


def main() -> None:
    """Print the seconds of each case."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--files", type=int, default=100_000)
    arguments.add_argument("--repeats", type=int, default=5)
    options = arguments.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="tensight-bench-"))
    try:
        dump, cache = folder / "dump", folder / "cache"
        with resources.as_file(resources.files("tensight") / "demo_run" / "run.zip") as path:
            zipfile.ZipFile(path).extractall(dump)
        small = [run(dump, folder / f"cache{number}") for number in range(options.repeats)]
        print(f"small dump, nothing cached   median {median(small):.2f} s")
        files = enlarge(dump, options.files)
        first = [run(dump, folder / f"large{number}") for number in range(options.repeats)]
        print(f"{files:,} files, first time     median {median(first):.2f} s")
        run(dump, cache)
        second = [run(dump, cache) for _ in range(options.repeats)]
        print(f"{files:,} files, second time    median {median(second):.2f} s")
        print(f"peak memory of a process     {resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024:.0f} MB")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
