"""Debugs a PyTorch training with the original's server, as a person does over its HTTP API; its answers are golden.

    python with_original_server.py .venvs/original --golden tests/conformance/golden

The first argument is the environment with mindinsight 2.0.0; this runs in ours, in which the training runs, too.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from pytorch_conversation import OriginalPerson, converse

if TYPE_CHECKING:
    from collections.abc import Iterator

GOLDEN = "pytorch.json"


def free_port() -> int:
    """Return a port that nobody uses."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def original_server(environment: Path) -> Iterator[tuple[str, str]]:
    """Start the original's server; give the address of its HTTP API, and that for trainings."""
    port, debugger = str(free_port()), str(free_port())
    binaries = environment.resolve() / "bin"
    command = str(binaries / "mindinsight")
    with tempfile.TemporaryDirectory() as home:
        variables = {**os.environ, "HOME": home, "PATH": f"{binaries}:{os.environ['PATH']}"}
        options = ["--port", port, "--debugger-port", debugger, "--workspace", f"{home}/workspace"]
        options += ["--summary-base-dir", home, "--enable-debugger", "True"]
        subprocess.run([command, "start", *options], env=variables, check=True, stdout=subprocess.DEVNULL)
        try:
            yield f"http://127.0.0.1:{port}", f"127.0.0.1:{debugger}"
        finally:
            stop = [command, "stop", "--port", port]
            subprocess.run(stop, env=variables, check=False, stdout=subprocess.DEVNULL)


def main() -> None:
    """Record the answers."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("environment", type=Path)
    parser.add_argument("--golden", type=Path, required=True)
    options = parser.parse_args()
    with original_server(options.environment) as (url, debugger):
        said = converse(OriginalPerson(url), debugger)
    lines = ",\n".join(f"{json.dumps(what)}: {json.dumps(answer)}" for what, answer in said.items())
    (options.golden / GOLDEN).write_text("{\n" + lines + "\n}\n")
    print("recorded", len(said), "answers of the original's server about a PyTorch training")


if __name__ == "__main__":
    main()
