"""Runs are called after what a person calls them: their script, their module, their notebook."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

SHOW = "from tensight.agents.core.connection.run_names import run_name\nprint(repr(run_name()))\n"
SPAWN = f"""
import multiprocessing
def show():
    {SHOW.replace(chr(10), "; ").removesuffix("; ")}
if __name__ == "__main__":
    child = multiprocessing.get_context("spawn").Process(target=show)
    child.start()
    child.join()
"""
CELL = f"import sys\nsys.modules['ipykernel'] = sys\n{SHOW}"


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (("nets/train.py", "--data", "other.py"), "train"),
        (("spawning.py",), "spawning"),
        (("-m", "nets.train"), "nets.train"),
        (("-m", "nets"), "nets"),
        (("nets",), "nets"),
        (("-c", SHOW), ""),
        (("-c", CELL), "notebook"),
        (("-c", f"__vsc_ipynb_file__ = '/home/anna/resnet.ipynb'\n{CELL}"), "resnet"),
    ],
)
def test_a_run_is_called_after_its_script(tmp_path: Path, arguments: tuple[str, ...], name: str) -> None:
    (tmp_path / "nets").mkdir()
    for file in ("train.py", "__main__.py"):
        (tmp_path / "nets" / file).write_text(SHOW)
    (tmp_path / "spawning.py").write_text(SPAWN)
    assert shown(arguments, tmp_path) == name


def test_jupyter_says_which_notebook_it_is(tmp_path: Path) -> None:
    assert shown(("-c", CELL), tmp_path, JPY_SESSION_NAME="/home/anna/loss curves.ipynb") == "loss curves"
    assert shown(("-c", CELL), tmp_path, JPY_SESSION_NAME="0b8e-console") == "notebook"


def shown(arguments: tuple[str, ...], folder: Path, **variables: str) -> str:
    inherited = {name: text for name, text in os.environ.items() if name != "JPY_SESSION_NAME"}
    command = [sys.executable, *arguments]
    return ast.literal_eval(subprocess.check_output(command, cwd=folder, text=True, env={**inherited, **variables}))
