"""What a configuration asks of its trials beyond values: an end in time, event files, and what is not installed."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import venv
from pathlib import Path

import pytest

from tests.search.searches import CONFIGURATION, PATIENCE_S, prepare, search

FIXTURES = Path(__file__).parents[1] / "fixtures" / "curves"


@pytest.mark.long
def test_a_trial_that_takes_too_long_has_failed(tmp_path: Path) -> None:
    prepare(tmp_path, "open('gate').read()", CONFIGURATION.replace("--x {x}", "{x}") + "timeout_s: 0.5\n")
    os.mkfifo(tmp_path / "gate")

    (trial,) = search(tmp_path, "--trials", "1")["trials"]

    assert (trial["state"], trial["reason"]) == ("failed", "it ran longer than timeout_s, 0.5 s")
    assert trial["duration_s"] >= 0.5


@pytest.mark.long
def test_a_target_is_read_from_event_files(tmp_path: Path) -> None:
    script = f"""
    import shutil, sys
    from tensight.search import HyperConfig
    config = HyperConfig()
    shutil.copytree({str(FIXTURES)!r}, config.summary_dir + "/logs-" + config.params.framework,
        ignore=shutil.ignore_patterns("*MS" if config.params.framework == "torch" else "*tensorboard*"))
    """
    prepare(
        tmp_path,
        script,
        """
        command: train.py
        summary_base_dir: runs
        watch: off
        tuner: {name: grid}
        targets:
          - {name: loss, from: {events: "logs-{framework}"}}
          - {name: best, goal: minimize, take: best, from: {events: "logs-{framework}", key: loss}}
        parameters:
          framework: {choice: [torch, mindspore]}
        """.replace("key: loss", "key: train/loss"),
    )

    trials = {trial["params"]["framework"]: trial for trial in search(tmp_path)["trials"]}

    assert trials["torch"]["values"] == [0.5, 0.5]
    assert trials["mindspore"]["state"] == "failed"
    assert trials["mindspore"]["reason"].startswith("no value of best: ")
    assert "train/loss" in trials["mindspore"]["reason"]


def environment_without(folder: Path, *names: str) -> Path:
    """Return the Python of an environment with all that this one has, but for some packages."""
    venv.create(folder, with_pip=False, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    (present,) = {Path(path) for path in sys.path if path.endswith("site-packages") and path.startswith(sys.prefix)}
    for path in present.iterdir():
        if path.name.partition("-")[0].lower() not in names:
            (packages / path.name).symlink_to(path)
    return folder / "bin" / "python"


def run(python: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [python, "-m", "tensight", "search", "--config", "search.yaml", "--trials", "2"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def test_without_the_extra_one_line_says_what_to_install(tmp_path: Path) -> None:
    prepare(tmp_path)

    searched = run(environment_without(tmp_path / "environment", "optuna", "cmaes"), tmp_path)

    assert (searched.returncode, searched.stdout) == (2, "")
    (line,) = searched.stderr.splitlines()
    assert line == "tensight: optuna and cmaes are not installed; run pip install optuna cmaes [package-missing]"


@pytest.mark.long
def test_without_torch_another_tuner_is_used_and_that_is_said(tmp_path: Path) -> None:
    prepare(tmp_path, configuration=CONFIGURATION.replace("name: random", "name: gp"))

    searched = run(environment_without(tmp_path / "environment", "torch"), tmp_path)

    assert searched.returncode == 0, searched.stderr
    assert searched.stderr.startswith(
        "tuner.name: gp of Optuna needs PyTorch, which is not installed here; tpe is used"
    )
    assert "2 of 2; best loss" in searched.stderr


@pytest.mark.long
def test_the_server_runs_without_the_extra_and_says_why_it_shows_no_search(tmp_path: Path) -> None:
    (tmp_path / "search.db").touch()
    script = f"""
    from pathlib import Path
    import tensight.server.app
    from tensight.search.recorded import list_studies
    (search,) = list_studies(Path({str(tmp_path)!r}), "here")
    print(search.problem)
    """
    environment = environment_without(tmp_path / "environment", "optuna", "cmaes", "yaml", "_yaml", "scipy")

    ran = subprocess.run(
        [environment, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )

    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == "optuna and yaml are not installed; run pip install optuna PyYAML\n"
