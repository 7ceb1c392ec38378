"""Searches in processes of their own, as a person runs them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

PATIENCE_S = 300.0

QUADRATIC = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--x", type=float)
parser.add_argument("--kind", default="plain")
parser.add_argument("--extra", type=float, default=0.0)
arguments = parser.parse_args()
print("loss", (arguments.x - 1) ** 2 + arguments.extra)
"""
"""A training of one number."""

CONFIGURATION = """
command: train.py --x {x}
summary_base_dir: runs
watch: off
tuner: {name: random, args: {seed: 1}}
target: {name: loss, goal: minimize, from: {pattern: 'loss (\\S+)'}}
parameters:
  x: {bounds: [-2.0, 3.0], type: float}
"""

BLOCKING = """
import os, sys
number, x = sys.argv[1:]
with open("begun", "a") as begun:
    begun.write(f"{number} {x} {os.getpid()}\\n")
if number == "1" and os.path.exists("gate"):
    with open("ready", "w") as ready:
        ready.write("here")
    open("gate").read()
print("loss", float(x) ** 2)
"""
"""The second trial waits for a pipe that nobody writes to, while there is one."""

BLOCKED = CONFIGURATION.replace("train.py --x {x}", "train.py {trial} {x}")


def prepare(folder: Path, script: str = QUADRATIC, configuration: str = CONFIGURATION) -> None:
    """Write the training and the configuration of a search."""
    folder.mkdir(exist_ok=True)
    (folder / "train.py").write_text(textwrap.dedent(script))
    (folder / "search.yaml").write_text(textwrap.dedent(configuration))


def start(
    folder: Path, *options: str, name: str = "search.yaml", python: str | Path = sys.executable
) -> subprocess.Popen[str]:
    """Start a search."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("TENSIGHT_")}
    return subprocess.Popen(
        [python, "-m", "tensight", "search", "--config", name, *options],
        cwd=folder,
        env={**inherited, "OMP_NUM_THREADS": "1", "TENSIGHT_CACHE_DIR": str(folder / "cache")},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def outcome_of(search: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Return exit code, stdout and stderr of a search, when it has ended."""
    try:
        out, err = search.communicate(timeout=PATIENCE_S)
    except subprocess.TimeoutExpired:
        search.kill()
        out, err = search.communicate()
        raise AssertionError(f"the search did not end:\n{err}") from None
    return search.returncode, out, err


def search(folder: Path, *options: str, python: str | Path = sys.executable) -> dict[str, Any]:
    """Run a search, and return what `--json` prints."""
    code, out, err = outcome_of(start(folder, "--json", *options, python=python))
    assert code in (0, 1), err
    result: dict[str, Any] = json.loads(out)
    return result
