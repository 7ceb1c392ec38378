"""The original's example as its documentation has it: LeNet on MindSpore 2.10, with one import changed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.agents.mindspore.mindspore_stage import python_of
from tests.search.searches import outcome_of, start

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SCRIPT, CONFIGURATION = "lenet_search_mindspore.py", "lenet_search.yaml"
ORIGINAL_IMPORT = "from mindinsight.optimizer import HyperConfig"
ORIGINAL_KEYS = {
    "": {"command", "summary_base_dir", "tuner", "target", "parameters"},
    "target": {"group", "name", "goal"},
    "tuner": {"name", "args"},
    "parameter": {"bounds", "choice", "type", "source"},
}
TRIALS = 3


def test_the_example_is_the_originals_but_for_one_import() -> None:
    script = (EXAMPLES / SCRIPT).read_text()
    configuration: dict[str, Any] = yaml.safe_load((EXAMPLES / CONFIGURATION).read_text())

    code = script.partition('"""\n\n')[2]
    (changed,) = [line for line in code.splitlines() if "tensight" in line]
    assert changed == f"from tensight.search import HyperConfig  # was: {ORIGINAL_IMPORT}"
    assert set(configuration) == ORIGINAL_KEYS[""]
    assert set(configuration["target"]) <= ORIGINAL_KEYS["target"]
    assert set(configuration["tuner"]) <= ORIGINAL_KEYS["tuner"]
    for parameter in configuration["parameters"].values():
        assert set(parameter) <= ORIGINAL_KEYS["parameter"]


@pytest.mark.long
def test_the_original_example_runs_on_mindspore(tmp_path: Path) -> None:
    for name in (SCRIPT, CONFIGURATION, "lenet_mindspore.py"):
        shutil.copy(EXAMPLES / name, tmp_path)
    # The environment with MindSpore has no Optuna, and the one that searches no MindSpore.
    python = python_of("2.10")
    text = (tmp_path / CONFIGURATION).read_text()
    (tmp_path / CONFIGURATION).write_text(text.replace("command: python ", f"command: {python} "))
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("TENSIGHT_")}

    searched = subprocess.run(
        [
            *(sys.executable, "-c", "from tensight.cli.mindoptimizer import main; main()"),
            *("--config", CONFIGURATION, "--iter", str(TRIALS)),
        ],
        cwd=tmp_path,
        env={**inherited, "GLOG_v": "3", "TENSIGHT_CACHE_DIR": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        timeout=390,
        check=False,
    )

    assert searched.returncode == 0, searched.stderr
    assert "tuner.args.method: ucb changes nothing" in searched.stderr
    assert f"{TRIALS} of {TRIALS}; best Accuracy" in searched.stderr
    assert "Accuracy" in searched.stdout
    assert "Best: trial" in searched.stdout
    code, out, err = outcome_of(start(tmp_path, "--results", "--json", name=CONFIGURATION))
    assert code == 0, err
    result = json.loads(out)
    assert [trial["state"] for trial in result["trials"]] == ["complete"] * TRIALS
    for trial in result["trials"]:
        folder = Path(trial["summary_dir"])
        assert trial["values"] == [_printed_accuracy(folder)]
        assert trial["session"], "it was not under the debugger"
        assert trial["illness"] is None
        noted = b"".join(path.read_bytes() for path in folder.glob("*_lineage"))
        assert b"momentum" in noted
    (best,) = result["best"]
    assert result["trials"][best]["values"][0] == max(trial["values"][0] for trial in result["trials"])


def _printed_accuracy(folder: Path) -> float:
    """Return the accuracy that a trial printed."""
    *_, last = (folder / "output.log").read_text().splitlines()
    return float(json.loads(last.replace("'", '"'))["Accuracy"])
