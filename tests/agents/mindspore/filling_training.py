"""`graph_training.py` while something else takes the room of the dump after some steps.

    python filling_training.py --fill-after STEP …

At the end it says how many files are left where MindSpore dumps, and after how many of the steps since something else
was there.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import graph_training

LEFT_BYTES = 2**17
DUMPED = "tensight-ring-*/rank_0/network/*"


def fill(folder: Path) -> None:
    """Leave next to nothing of a disk."""
    system = os.statvfs(folder)
    with (folder / "filling").open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, system.f_bavail * system.f_frsize - LEFT_BYTES)


def main() -> None:
    """Train, fill the disk, and train on."""
    at = sys.argv.index("--fill-after")
    last = int(sys.argv[at + 1])
    del sys.argv[at : at + 2]
    folder = Path(tempfile.gettempdir())
    original = graph_training.step_of
    taken = 0
    states: list[list[int]] = []

    def step_of(*arguments: Any) -> Any:
        step = original(*arguments)

        def filling(*batch: Any) -> Any:
            nonlocal taken
            result = step(*batch)
            taken += 1
            if taken == last:
                fill(folder)
            elif taken > last:
                states.append([path.stat().st_mtime_ns for path in sorted(folder.glob(DUMPED))])
            return result

        return filling

    graph_training.step_of = step_of
    graph_training.main()
    left = len(list(folder.glob(f"{DUMPED}/*/*")))
    print(f"left {left} files, written into {sum(state != states[0] for state in states)} times")


if __name__ == "__main__":
    main()
