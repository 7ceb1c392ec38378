"""Runs a command with a PyTorch training that was recorded whole: its folder is appended.

python with_recorded_run.py COMMAND...
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

SCRIPT = Path(__file__).with_name("pytorch_training.py")


def record(folder: Path) -> Path:
    """Run the training with ``record="full"``, without any server; return the folder of the dump."""
    recorded = folder / "recorded"
    options = ["--record", "full", "--record-folder", str(recorded), "--port", "9"]
    command = [sys.executable, "-m", "tensight", "run", *options, str(SCRIPT)]
    subprocess.run(command, check=True, capture_output=True)
    return recorded


def main() -> int:
    """Record, and ask."""
    with tempfile.TemporaryDirectory() as folder:
        recorded = record(Path(folder))
        return subprocess.run([*sys.argv[1:], str(recorded)], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
