"""`--rules FILE`, as a person runs it: of a training that is run, recorded or debugged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.test_diagnose_command import TRAINING, debugged, recorded_findings, tensight
from tests.processes.ports import kept_port

RULES = """
import tensight

tensight.expression_rule("below-10", "losses.value < 10", message="{items} is below 10", certainty="certain",
    advice="Wait")

@tensight.rule("fails", needs=["losses"])
def fails(facts):
    raise ValueError("a mistake")

@tensight.rule("endless", needs=["losses"])
def endless(facts):
    while True:
        pass
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(TRAINING)
    return path


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    path = tmp_path / "rules.py"
    path.write_text(RULES)
    return path


def test_rules_are_applied_to_a_recording_in_the_training_and_again_from_the_file(
    script: Path, rules: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "recording"
    options = ("--port", kept_port(), "--record", "ring:2", "--record-folder", folder, "--rules", rules)
    done = tensight("run", *options, script, 40)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("fails could not judge: rules.py:9: ValueError: a mistake") == 1
    assert done.stderr.count("endless could not judge: rules.py:11: it took longer than 1 s") == 1
    plain = tensight("run", "--port", kept_port(), script, 40)
    assert done.stdout == plain.stdout
    recorded = json.loads(tensight("diagnose", "--json", folder).stdout)
    (finding,) = recorded["findings"]
    assert (finding["rule"], finding["title"], finding["certainty"]) == ("below-10", "loss is below 10", "certain")
    undecided = {each["rule"]: each["why"] for each in recorded["undecided"]}
    assert undecided["fails"] == "rules.py:9: ValueError: a mistake"
    rules.write_text(RULES.replace("below-10", "below-ten").partition("@")[0])
    again = json.loads(tensight("diagnose", "--json", "--rules", rules, folder).stdout)
    assert {each["rule"] for each in again["findings"]} == {"below-ten", "below-10"}


def test_a_file_that_cannot_be_used_ends_a_diagnosis_before_it_begins_and_no_training(
    script: Path, rules: Path
) -> None:
    rules.write_text("import tensight\n1 / 0\n")
    for command in (("diagnose", "--rules", rules, script, 40), ("explain", "--rules", rules)):
        done = tensight(*command)
        assert done.returncode == 2
        assert "rules.py:2: ZeroDivisionError" in done.stderr
    done = tensight("run", "--port", kept_port(), "--rules", rules, script, 40)
    assert done.returncode == 0
    assert "your rules are not applied" in done.stderr
    assert "parameters" in done.stdout
    missing = tensight("run", "--rules", rules.parent / "none.py", script, 40)
    assert missing.returncode == 2
    assert "no such file of rules" in missing.stderr


def test_a_debugged_training_is_stopped_by_a_certain_finding_of_a_rule_of_the_user(
    script: Path, rules: Path, tmp_path: Path
) -> None:
    options = ("--findings", "certain", "--rules", str(rules))
    with debugged(script, tmp_path, *options, twice=False) as (_, session, training):
        assert training.stderr is not None
        assert any("loss is below 10" in line for line in training.stderr)
        session.wait(60)
        (finding,) = session.findings()
        assert (finding.rule, finding.advice, finding.where["line"]) == ("below-10", "Wait", "train.py:15")
        undecided = {each.rule for each in session.diagnosis().undecided}
        assert {"fails", "endless"} <= undecided


def test_a_server_applies_its_rules_to_trainings_and_runs_before_those_of_the_training(
    script: Path, rules: Path, tmp_path: Path
) -> None:
    rules.write_text(RULES.replace("is below 10", "is below 10 for the server").partition("@")[0])
    others = tmp_path / "others.py"
    others.write_text(RULES.partition("@")[0])
    server_options = ("--rules", str(rules))
    with debugged(script, tmp_path, "--rules", str(others), twice=False, server_options=server_options) as opened:
        client, session, training = opened
        assert training.stderr is not None
        assert any("loss is below 10 for the server" in line for line in training.stderr)
        assert [finding.title for finding in recorded_findings(client, session, training)] == [
            "loss is below 10 for the server"
        ]


def test_explain_says_what_a_rule_of_the_user_finds(rules: Path) -> None:
    text = tensight("explain", "--rules", rules, "below-10").stdout
    assert "rule of yours" in text
    assert "steps in which `losses.value < 10` holds" in text
    assert "What to do: Wait" in text
    listed = json.loads(tensight("explain", "--rules", rules, "--json").stdout)
    assert [each["rule"] for each in listed][-3:] == ["below-10", "fails", "endless"]
