"""What an interpreter does when it starts: nothing, unless the environment asks for the debugger."""

from __future__ import annotations

import importlib.metadata
import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tensight.agents.core.settings import _YES, wants_original_debugger
from tensight.agents.launch import START_FILE

SHOW = "import sys; print(sorted(name for name in sys.modules if name.startswith('tensight')))"
HEAVY = ("numpy", "grpc", "google.protobuf", "torch", "typer", "rich", "pydantic", "pyarrow", "fastapi", "logging")


def python(
    *arguments: str, folder: Path | None = None, **variables: str | os.PathLike[str]
) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("TENSIGHT_", "ENABLE_MS"))}
    environment = {**inherited, **{name: str(value) for name, value in variables.items()}}
    command = [sys.executable, *arguments]
    return subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, timeout=60, check=False)


def test_installing_the_package_puts_the_line_into_site_packages() -> None:
    files = importlib.metadata.files("tensight")
    assert files is not None
    (file,) = (file for file in files if file.name == START_FILE)
    assert file.parent == Path()
    (line,) = Path(str(file.locate())).read_text().splitlines()
    assert line.startswith("import ")


def test_without_the_variables_nothing_of_ours_is_imported() -> None:
    assert python("-c", SHOW).stdout == "[]\n"
    assert python("-c", SHOW, TENSIGHT_DEBUG="0", ENABLE_MS_DEBUGGER="0").stdout == "[]\n"


def test_with_them_it_is_four_modules_and_nothing_heavy() -> None:
    ours = ["tensight", "tensight.agents", "tensight.agents.launch", "tensight.frameworks"]
    for variables in ({"TENSIGHT_DEBUG": "1"}, {"ENABLE_MS_DEBUGGER": "1"}):
        assert python("-c", SHOW, **variables).stdout == f"{ours}\n"
    heavy = python("-c", f"import sys; print([name for name in {HEAVY} if name in sys.modules])", TENSIGHT_DEBUG="1")
    assert heavy.stdout == "[]\n"


def test_the_line_and_the_agent_agree_on_what_asks_for_the_debugger(monkeypatch: pytest.MonkeyPatch) -> None:
    line = _line()
    said = ("", "0", "1", "true", " TRUE ", "yes", "on", "off", "2")
    for ours, originals in itertools.product(said, said):
        monkeypatch.setenv("TENSIGHT_DEBUG", ours)
        monkeypatch.setenv("ENABLE_MS_DEBUGGER", originals)
        called: list[str] = []
        exec(line, {"exec": called.append})  # noqa: S102 - the line that the interpreter runs
        asks = ours.strip().lower() in _YES or wants_original_debugger(os.environ)
        assert bool(called) == asks, (ours, originals)


def test_a_broken_installation_is_one_line_and_the_interpreter_starts(tmp_path: Path) -> None:
    (tmp_path / "tensight").mkdir()
    (tmp_path / "tensight" / "__init__.py").write_text("1 / 0\n")
    outcome = python("-c", "print('started')", PYTHONPATH=tmp_path, TENSIGHT_DEBUG="1")
    assert (outcome.returncode, outcome.stdout) == (0, "started\n")
    assert set(outcome.stderr.splitlines()) == {
        "tensight: not debugged, its start-up failed: ZeroDivisionError: division by zero"
    }


def test_a_setting_that_cannot_be_used_is_said_and_the_script_goes_on(tmp_path: Path) -> None:
    script = "import torch; print(float(torch.ones(2).sum()))"
    outcome = python("-c", script, folder=tmp_path, TENSIGHT_DEBUG="1", TENSIGHT_DEBUGGER_PORT="many")
    assert (outcome.returncode, outcome.stdout) == (0, "2.0\n")
    assert outcome.stderr == (
        "tensight: the training goes on without the debugger: TENSIGHT_DEBUGGER_PORT is 'many'; give a whole number\n"
    )


def _line() -> str:
    (file,) = (file for file in importlib.metadata.files("tensight") or () if file.name == START_FILE)
    return Path(str(file.locate())).read_text()
