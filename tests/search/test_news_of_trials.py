"""What a trial reports is noticed when it comes, and not only when all trials are looked at."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from agent_stage import until

from tensight.search.configuration import parse_configuration
from tensight.search.studies import Study
from tensight.search.targets import Reading
from tensight.search.trials import TrialProcess

SCRIPT = """
import json, sys
def report(step):
    print("step", step, "loss", 2.0 * step, flush=True)
    with open(sys.argv[2], "a") as file:
        file.write(json.dumps({"step": step, "loss": 2.0 * step}) + "\\n")
report(1)
open(sys.argv[1]).read()
report(2)
"""
CONFIGURATION = r"""
command: python train.py gate {summary_dir}/metrics.jsonl {x}
summary_base_dir: runs
watch: off
tuner: {name: random}
target: {name: loss, from: SOURCE}
parameters:
  x: {bounds: [0.0, 1.0], type: float}
"""


@pytest.mark.parametrize(
    "source", [r"{pattern: 'step (?P<step>\d+) loss (?P<value>\S+)'}", "{json_lines: '{summary_dir}/metrics.jsonl'}"]
)
def test_a_trial_has_news_when_it_reports_its_target_and_when_it_has_ended(tmp_path: Path, source: str) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    os.mkfifo(tmp_path / "gate")
    configuration = parse_configuration(CONFIGURATION.replace("SOURCE", source), "search.yaml")
    suggestion = Study(configuration, f"sqlite:///{tmp_path}/search.db").ask(1)
    assert suggestion is not None

    def resolve(words: list[str]) -> list[str]:
        return [sys.executable, str(tmp_path / "train.py"), str(tmp_path / "gate"), *words[3:]]

    trial = TrialProcess(suggestion, configuration, tmp_path / "runs", resolve, None)
    try:
        until(trial.has_news, "the first report")
        judged: list[Reading] = []

        def judge(readings: list[Reading]) -> str:
            judged.extend(readings)
            return ""

        assert trial.look(judge) is None
        assert judged == [Reading(1, 2.0)]
        assert not trial.has_news(), "what was judged is no news"

        (tmp_path / "gate").write_text("")
        outcome = None
        while outcome is None:
            until(trial.has_news, "the second report, or the end")
            outcome = trial.look(judge)
        assert outcome.values == (4.0,)
        assert judged == [Reading(1, 2.0), Reading(2, 4.0)], "each is judged once"
    finally:
        trial.end()
