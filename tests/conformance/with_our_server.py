"""Runs a command with a debug server of ours: its options ``--url`` and ``--debugger`` are appended.

python with_our_server.py COMMAND...
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.server.running import running_server


def main() -> int:
    with tempfile.TemporaryDirectory() as folder, running_server(Path(folder) / "workspace") as server:
        addresses = ["--url", server.url, "--debugger", server.debugger]
        return subprocess.run([*sys.argv[1:], *addresses], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
