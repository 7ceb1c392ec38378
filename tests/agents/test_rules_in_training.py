"""Rules of the user inside of a training: what they have found is a line among its facts, sent when it has changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tensight.agents.core.user_rules import FIRST_STEP, UserRules
from tensight.diagnosis.facts import Facts
from tensight.diagnosis.findings import ReportedRule
from tensight.diagnosis.lines import take

RULES = """
import tensight
tensight.expression_rule("low", "losses.value < 5", message="{items} is low from step {step} on")
tensight.expression_rule("masked", "attentions.positions > 5", message="")
tensight.expression_rule("unread", "groups.rate > 5", message="")

@tensight.rule("fails", needs=["losses"])
def fails(facts):
    if facts.last_step < 10:
        raise ValueError("too early")
"""


@pytest.fixture
def rules(tmp_path: Path) -> UserRules:
    path = tmp_path / "rules.py"
    path.write_text(RULES)
    return UserRules(path, 0)


def train(rules: UserRules, first: int, last: int) -> list[bytes]:
    lines = []
    for step in range(first, last + 1):
        rules.add("steps", step, [{"name": "step"}])
        rules.add("losses", step, [{"name": "loss", "value": 10.0 - step}])
        lines += rules.lines_of(step)
    return lines


def reported(lines: list[bytes]) -> dict[str, ReportedRule]:
    (line,) = lines
    facts = Facts()
    take(facts, line)
    return {rule.id: rule for rule in facts.reported}


def test_what_has_changed_is_reported_at_the_end(rules: UserRules) -> None:
    rules.tell("torch", {"groups": "nothing reads them"})
    assert train(rules, 1, FIRST_STEP - 1) == []
    before = reported(rules.last_lines())
    assert list(before) == ["low", "fails"]
    assert [finding.values["sentence"] for finding in before["low"].findings] == ["loss is low from step 6 on"]
    assert before["fails"].failure == "rules.py:10: ValueError: too early"
    assert rules.last_lines() == []
    train(rules, FIRST_STEP, 12)
    after = reported(rules.last_lines())
    assert (after["fails"].failure, after["low"].findings[0].step) == ("", 6)
    assert rules.last_lines() == []


def test_what_was_forgotten_is_reported_anew(rules: UserRules) -> None:
    train(rules, 1, 7)
    assert rules.last_lines()
    rules.begin_again()
    assert rules.last_lines() == []
    train(rules, 1, 7)
    assert "low" in reported(rules.last_lines())


def test_a_file_that_cannot_be_used_is_said_once_and_finds_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "broken.py"
    path.write_text("1 / 0\n")
    for _ in range(2):
        rules = UserRules(path, 0)
        assert train(rules, 1, 20) == []
        assert rules.last_lines() == []
    assert len([record for record in caplog.records if "broken.py:1: ZeroDivisionError" in record.message]) == 1
