"""Five conditions over all tensors of one large dump, beside the original debugger, in one run.

The dump is written by real MindSpore 2.0.0. Both tools run the same script (original_check.py) through the same Python
API in fresh processes, with the files in the page cache and nothing else; ours once more, with what the process before
has left in the folder for caches. `make conformance` sets up the original.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median

HERE = Path(__file__).resolve().parent
ORIGINAL = HERE.parent / ".venvs" / "original" / "bin" / "python"


def run(command: Sequence[object], environment: dict[str, str] | None = None) -> str:
    """Run a command and return what it prints."""
    done = subprocess.run([str(part) for part in command], check=True, capture_output=True, text=True, env=environment)
    return done.stdout


def measure(
    python: Path | str, package: str, dump: Path, repeats: int, environment: dict[str, str]
) -> dict[str, object]:
    """Return the figures of one fresh process."""
    output = run([python, HERE / "original_check.py", package, dump, repeats], environment)
    line = next(line for line in output.splitlines() if line.startswith("RESULT "))
    result: dict[str, object] = json.loads(line.removeprefix("RESULT "))
    return result


def main() -> None:
    """Print the ratios."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument(
        "--original", type=Path, default=ORIGINAL, help="Python with mindspore and mindinsight 2.0.0"
    )
    arguments.add_argument("--iterations", type=int, default=8, help="about 360 MB of dump each")
    arguments.add_argument("--repeats", type=int, default=3)
    arguments.add_argument("--dump", type=Path, help="an existing dump instead of a new one")
    options = arguments.parse_args()
    if not options.original.exists():
        sys.exit(f"{options.original} is missing: run `make conformance` once, or name a Python with --original")
    folder = Path(tempfile.mkdtemp(prefix="tensight-bench-"))
    try:
        dump = options.dump
        if dump is None:
            run([options.original, HERE / "big_dump.py", folder, options.iterations, 32])
            dump = folder / "dump"
        compare(options.original, dump, options.repeats, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def compare(original: Path, dump: Path, repeats: int, folder: Path) -> None:
    """Measure both tools in turn on one dump and print the ratios of the medians."""
    files = list(dump.rglob("*.npy"))
    size = sum(path.stat().st_size for path in files)
    print(f"dump: {len(files):,} files, {size / 1e9:.2f} GB; {os.cpu_count()} cores")
    for path in files:
        with path.open("rb") as file:
            while file.read(2**24):
                pass
    theirs, ours, second = [], [], []
    for number in range(repeats):
        theirs.append(measure(original, "mindinsight", dump, 1, dict(os.environ)))
        fresh = os.environ | {"TENSIGHT_CACHE_DIR": str(folder / f"cache{number}")}
        ours.append(measure(sys.executable, "tensight", dump, 1, fresh))
        second.append(measure(sys.executable, "tensight", dump, 1, fresh))
    for name, results in (("original", theirs), ("tensight, nothing cached", ours), ("tensight, again", second)):
        checks, again = ([result[key][0] for result in results] for key in ("check_s", "again_s"))
        print(
            f"{name:24s} {results[0]['tensors']:,} tensors, {results[0]['hits']:,} hits; "
            f"first check {median(checks):.3f} s, "
            f"other thresholds {median(again) * 1000:.1f} ms, peak memory {max(r['peak_mb'] for r in results):.0f} MB"
        )
    for name, results, key in (
        ("first check", ours, "check_s"),
        ("first check of the next process", second, "check_s"),
        ("other thresholds in the same process", ours, "again_s"),
    ):
        ratio = median(result[key][0] for result in theirs) / median(result[key][0] for result in results)
        print(f"{name}: {ratio:.1f} x faster")


if __name__ == "__main__":
    main()
