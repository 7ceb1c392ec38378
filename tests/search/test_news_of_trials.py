"""What a trial reports is noticed when it comes, and not only when all trials are looked at."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tensight.search.configuration import parse_configuration
from tensight.search.studies import Study
from tensight.search.targets import Reading
from tensight.search.trials import TrialProcess
from tests.agents.agent_stage import until

SCRIPT = """
import json, signal, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
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


PATTERN = r"{pattern: 'step (?P<step>\d+) loss (?P<value>\S+)'}"


def begin(folder: Path, text: str) -> TrialProcess:
    """Start a trial, which waits at its gate after its first report."""
    (folder / "train.py").write_text(SCRIPT)
    os.mkfifo(folder / "gate")
    configuration = parse_configuration(text, "search.yaml")
    suggestion = Study(configuration, f"sqlite:///{folder}/search.db").ask(1)
    assert suggestion is not None

    def resolve(words: list[str]) -> list[str]:
        return [sys.executable, str(folder / "train.py"), str(folder / "gate"), *words[3:]]

    return TrialProcess(suggestion, configuration, folder / "runs", resolve, None)


@pytest.mark.parametrize("source", [PATTERN, "{json_lines: '{summary_dir}/metrics.jsonl'}"])
def test_a_trial_has_news_when_it_reports_its_target_and_when_it_has_ended(tmp_path: Path, source: str) -> None:
    trial = begin(tmp_path, CONFIGURATION.replace("SOURCE", source))
    try:
        until(trial.has_news, "the first report")
        judged: list[Reading] = []

        def judge(readings: list[Reading]) -> str:
            judged.extend(readings)
            return ""

        assert trial.poll(judge) is None
        assert judged == [Reading(1, 2.0)]
        assert not trial.has_news(), "what was judged is no news"

        (tmp_path / "gate").write_text("")
        outcome = None
        while outcome is None:
            until(trial.has_news, "the second report, or the end")
            outcome = trial.poll(judge)
        assert outcome.values == (4.0,)
        assert judged == [Reading(1, 2.0), Reading(2, 4.0)], "each is judged once"
    finally:
        trial.end()


def test_what_a_trial_has_reported_is_no_news_once_it_is_to_end(tmp_path: Path) -> None:
    trial = begin(tmp_path, CONFIGURATION.replace("SOURCE", PATTERN) + "timeout_s: 0.001\n")
    try:
        until(trial.has_news, "the first report")
        assert trial.poll(lambda _: "") is None
        assert not trial.has_news(), "nobody waits for its end without a pause"
        (tmp_path / "gate").write_text("")
    finally:
        trial.end()
