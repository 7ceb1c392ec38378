"""What `tensight diagnose` prints for people, programs and CI systems, of facts whose names come from anywhere."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from markdown_it import MarkdownIt

from tensight.cli.diagnosis.words import WORDS
from tensight.diagnosis.catalogue import RULES
from tensight.diagnosis.findings import SHOWN_FACTS
from tensight.diagnosis.lines import KIND, line_of
from tensight.ranks import RankFile

Run = Callable[..., Any]

HOSTILE = (
    "x\n::error::owned\r\n##[add-mask]y <script>alert(1)</script> **b** `c` [l](http://e.vil) @octocat #1 | ]]>"
    " & \"'\x1b[31m\u202e\ud800" + "z" * 9_000
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Facts of a training whose rate is 0, and whose loss ends as NaN."""
    here = tmp_path / "here"
    (here / "jobs").mkdir(parents=True)
    (here / "jobs" / "train.py").write_text("import torch\nloss.backward()  # <b>\n")
    monkeypatch.chdir(here)
    return _write(here / "facts", "AdamW group 0", "AdamW")


def _write(folder: Path, group: str, optimizer: str) -> Path:
    folder.mkdir()
    lines = []
    for step in range(1, 31):
        loss = float("nan") if step > 25 else 1 / step
        lines += [
            line_of("steps", step, [{"name": "step", "updates": 1, "backward_passes": 1}]),
            line_of("losses", step, [{"name": "loss", "value": loss, "line": "train.py:2", "is_connected": True}]),
            line_of("rates", step, [{"name": group, "optimizer": optimizer, "rate": 0.0, "initial_rate": 0.0}]),
            line_of("groups", step, [{"name": group, "optimizer": optimizer, "rate": 0.0, "made_line": "train.py:1"}]),
        ]
    RankFile(folder, KIND, 0, 1).write(lines)
    return folder


def test_all_formats_have_the_same_findings(tensight: Run, folder: Path) -> None:
    full = tensight("diagnose", "--format", "json", folder)
    assert full.code == 1, full.err
    data = json.loads(full.out)
    rules = [finding["rule"] for finding in data["findings"]]
    assert rules[0] == "learning-rate-zero"
    assert "loss-not-finite" in rules
    for name, pattern in (
        ("text", r"· ([a-z-]+)$"),
        ("markdown", r"· `([a-z-]+)`$"),
        ("github", r"title=([a-z-]+) "),
        ("sarif", r'"ruleId": "([a-z-]+)"'),
        ("junit", r'name="([a-z-]+)"><failure'),
    ):
        shown = tensight("diagnose", "--format", name, folder)
        assert shown.code == 1, shown.err
        assert re.findall(pattern, shown.out, re.MULTILINE) == rules, name
    assert json.loads(tensight("diagnose", "--json", folder).out) == data
    assert data["setup"]["optimizers"] == ["AdamW group 0 (train.py:1), learning rate 0"]
    losses = data["curves"][0]
    assert (losses["fact"], losses["names"], losses["steps"]) == ("losses.value", ["loss"], list(range(1, 31)))
    assert losses["values"][-1] == "NaN"
    looked = {*rules, *data["passed"], *(each["rule"] for each in data["undecided"])}
    assert len(looked) == len(rules) + len(data["passed"]) + len(data["undecided"])
    assert looked <= RULES.keys()


def test_annotations_have_levels_by_certainty_and_paths_from_the_current_folder(tensight: Run, folder: Path) -> None:
    commands = tensight("diagnose", "--format", "github", folder).out.splitlines()
    assert commands[0].startswith("::error file=jobs/train.py,line=1,title=learning-rate-zero (certain)::")
    assert "%0A→ " in commands[0]
    assert commands[-1] == f"{len(commands) - 1} findings. 30 steps looked at."


def test_a_file_is_only_named_if_it_is_the_only_one_of_that_name(tensight: Run, folder: Path) -> None:
    (folder.parent / "other").mkdir()
    (folder.parent / "other" / "train.py").write_text("")
    (command, *_) = tensight("diagnose", "--format", "github", folder).out.splitlines()
    assert command.startswith("::error file=train.py,line=1,")
    log = json.loads(tensight("diagnose", "--format", "sarif", folder).out)
    location = log["runs"][0]["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]
    assert location == {"uri": "train.py"}


def test_a_log_of_sarif_has_what_code_scanners_need(tensight: Run, folder: Path) -> None:
    log = json.loads(tensight("diagnose", "--format", "sarif", folder).out)
    assert (log["version"], log["$schema"].rpartition("/")[2]) == ("2.1.0", "sarif-schema-2.1.0.json")
    (run,) = log["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert len({rule["id"] for rule in rules}) == len(rules)
    assert all(len(rule["properties"]["tags"]) == 1 for rule in rules)
    assert all(rule["help"]["text"] and rule["shortDescription"]["text"] for rule in rules)
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert (
            result["level"]
            == {"certain": "error", "likely": "warning", "possible": "note"}[result["properties"]["certainty"]]
        )
        assert result["message"]["text"]
    (invocation,) = run["invocations"]
    assert invocation["executionSuccessful"] is True
    assert {note["associatedRule"]["id"] for note in invocation["toolExecutionNotifications"]} == {
        rules[note["associatedRule"]["index"]]["id"] for note in invocation["toolExecutionNotifications"]
    }
    physical = run["results"][0]["locations"][0]["physicalLocation"]
    assert physical == {
        "artifactLocation": {"uri": "jobs/train.py", "uriBaseId": "%SRCROOT%"},
        "region": {"startLine": 1},
    }


def test_findings_are_failures_of_tests_and_rules_that_could_not_judge_are_skipped(tensight: Run, folder: Path) -> None:
    suites = ET.fromstring(tensight("diagnose", "--format", "junit", folder).out)  # noqa: S314 - our own
    (suite,) = suites
    data = json.loads(tensight("diagnose", "--json", folder).out)
    cases = {case.attrib["name"]: [child.tag for child in case] for case in suite}
    assert {name for name, tags in cases.items() if tags == ["failure"]} == {
        finding["rule"] for finding in data["findings"]
    }
    assert {name for name, tags in cases.items() if tags == ["skipped"]} == {each["rule"] for each in data["undecided"]}
    assert {name for name, tags in cases.items() if tags == []} == set(data["passed"])
    counts = {"tests": len(suite), "failures": len(data["findings"]), "skipped": len(data["undecided"]), "errors": 0}
    assert {name: int(suite.attrib[name]) for name in counts} == counts


@pytest.mark.parametrize("size", [1_000, 1_500, 3_000, 10_000, 64_000])
@pytest.mark.parametrize("group", ["AdamW group 0", HOSTILE], ids=["plain", "hostile"])
def test_a_budget_is_kept_and_what_was_left_out_is_counted(
    tensight: Run, folder: Path, tmp_path: Path, size: int, group: str
) -> None:
    facts = _write(tmp_path / "others", group, group.replace(" group 0", ""))
    full = json.loads(tensight("diagnose", "--json", facts).out)
    shown = tensight("diagnose", "--json", "--budget", f"{size}B", facts)
    assert shown.code == 1, shown.err
    assert len(shown.out.encode()) <= size
    data = json.loads(shown.out)
    left_out = data["left_out"]
    assert len(data["findings"]) + left_out.get("findings", 0) == len(full["findings"])
    assert len(data["passed"]) + left_out.get("passed", 0) == len(full["passed"])
    assert len(data["undecided"]) + left_out.get("undecided", 0) == len(full["undecided"])
    assert [finding["rule"] for finding in data["findings"]] == [
        finding["rule"] for finding in full["findings"][: len(data["findings"])]
    ]
    if size >= 64_000:
        assert left_out == {}
    if group != HOSTILE:
        assert data["findings"]


def test_a_budget_that_is_too_small_or_not_of_json_is_refused_before_anything_runs(tensight: Run) -> None:
    for options, named in (
        (("--json", "--budget", "10B"), "too small"),
        (("--budget", "64KB"), "--json"),
        (("--json", "--budget", "much"), "500MB"),
        (("--json", "--format", "sarif"), "exclude"),
    ):
        ended = tensight("diagnose", *options, "no-such-script.py")
        assert ended.code == 2
        assert named in ended.err


def test_names_of_a_training_do_nothing_in_any_format(tensight: Run, folder: Path, tmp_path: Path) -> None:
    facts = _write(tmp_path / "others", HOSTILE, HOSTILE)
    commands = tensight("diagnose", "--format", "github", facts).out.splitlines()
    assert all(line.startswith(("::error ", "::warning ", "::notice ")) for line in commands[:-1])
    assert all(len(line) < 20_000 for line in commands)
    assert "\x1b" not in "".join(commands)
    ET.fromstring(tensight("diagnose", "--format", "junit", facts).out)  # noqa: S314 - our own
    assert json.loads(tensight("diagnose", "--format", "sarif", facts).out)["runs"][0]["results"]
    page = MarkdownIt("gfm-like", {"html": False, "linkify": False}).render(
        tensight("diagnose", "--format", "markdown", facts).out
    )
    assert "<script" not in page
    assert "<a " not in page
    assert "<strong>b" not in page
    assert "@octocat" not in page
    report = tmp_path / "report.html"
    tensight("diagnose", "--html", report, facts)
    text = report.read_text()
    assert "<script" not in text
    assert "&lt;script&gt;" in text
    assert not re.search(r"(src|href)=", text)
    assert len(text) < 200_000


@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_page_has_findings_curves_the_setup_and_the_rules(tensight: Run, folder: Path, language: str) -> None:
    report = folder.parent / "report.html"
    ended = tensight("diagnose", "--html", report, "--language", language, folder)
    assert ended.code == 1
    text = report.read_text()
    data = json.loads(tensight("diagnose", "--json", folder).out)
    for finding in data["findings"]:
        words = finding["chinese"] if language == "zh" else finding
        assert words["title"] in text
        assert words["title"] in ended.out
        assert words["advice"] in re.sub("</?code>", "`", text)
    assert text.count("<svg") >= 2
    assert "jobs/train.py:1" in text
    assert "<pre>import torch</pre>" in text
    assert ("学习率 0" if language == "zh" else "learning rate 0") in text
    assert all(each["why"] in text for each in data["undecided"])
    assert f'<html lang="{"zh-CN" if language == "zh" else "en"}">' in text
    failed = tensight("diagnose", "--html", folder / "none" / "report.html", folder)
    assert failed.code == 2


def test_the_text_of_a_line_that_may_have_changed_since_is_not_shown(tensight: Run, folder: Path) -> None:
    script, report = folder.parent / "jobs" / "train.py", folder.parent / "report.html"
    written_s = max(path.stat().st_mtime for path in folder.iterdir())
    for changed_s, is_shown in ((written_s - 1, True), (written_s + 1, False)):
        os.utime(script, (changed_s, changed_s))
        tensight("diagnose", "--html", report, folder)
        assert ("<pre>import torch</pre>" in report.read_text()) is is_shown
        assert "jobs/train.py:1" in report.read_text()


def test_a_finding_of_an_expression_shows_the_course_of_its_fact(tensight: Run, folder: Path, tmp_path: Path) -> None:
    rules = tmp_path / "rules.py"
    rules.write_text(
        "import tensight\ntensight.expression_rule('still', 'rates.initial_rate < 1', message='{items}')\n"
    )
    report = tmp_path / "report.html"
    data = json.loads(tensight("diagnose", "--json", "--html", report, "--rules", rules, folder).out)
    (finding,) = (each for each in data["findings"] if each["rule"] == "still")
    assert (finding["fact"], finding["title"]) == ("rates.initial_rate", "AdamW group 0")
    assert "rates.initial_rate" in {curve["fact"] for curve in data["curves"]}
    assert "<figcaption>rates.initial_rate" in report.read_text()


@pytest.mark.parametrize("fact", sorted(set(SHOWN_FACTS.values())))
def test_facts_that_are_shown_have_names_in_both_languages(fact: str) -> None:
    assert all(WORDS[fact])


def test_where_no_step_is_seen_no_format_says_that_nothing_was_found(tensight: Run, tmp_path: Path) -> None:
    facts = tmp_path / "facts"
    facts.mkdir()
    RankFile(facts, KIND, 0, 1).write([line_of("losses", 1, [{"name": "loss", "value": 1.0}])])
    for name in ("text", "markdown", "github", "sarif", "junit", "json"):
        ended = tensight("diagnose", "--format", name, "--html", tmp_path / "report.html", facts)
        assert ended.code == 2
        assert "othing found" not in ended.out
    assert "<h1>Nothing could be judged</h1>" in (tmp_path / "report.html").read_text()
    suites = ET.fromstring(tensight("diagnose", "--format", "junit", facts).out)  # noqa: S314 - our own
    assert int(suites.attrib["errors"]) == 1
    log = json.loads(tensight("diagnose", "--format", "sarif", facts).out)
    assert log["runs"][0]["invocations"][0]["executionSuccessful"] is False


def test_probes_are_in_reports_for_people(tensight: Run, tmp_path: Path) -> None:
    facts = tmp_path / "facts"
    facts.mkdir()
    row = {"name": "order", "probe": "order", "model": "Net <b>", "outcome": "untried", "why": "<i>"}
    steps = [line_of("steps", step, [{"name": "step"}]) for step in range(1, 4)]
    RankFile(facts, KIND, 0, 1).write([*steps, line_of("probes", 3, [row])])
    report = tmp_path / "report.html"
    markdown = tensight("diagnose", "--format", "markdown", "--html", report, facts).out
    assert "- not tried: later words do not change earlier outputs (\\<i\\>)" in markdown
    assert "later words do not change earlier outputs (&lt;i&gt;)" in report.read_text()


def test_a_healthy_training_passes_in_all_formats(tensight: Run, tmp_path: Path) -> None:
    facts = tmp_path / "facts"
    facts.mkdir()
    RankFile(facts, KIND, 0, 1).write([line_of("steps", step, [{"name": "step"}]) for step in range(1, 4)])
    said = {
        name: tensight("diagnose", "--format", name, "--html", tmp_path / "report.html", facts)
        for name in ("text", "markdown", "github", "sarif", "junit")
    }
    assert {name: ended.code for name, ended in said.items()} == dict.fromkeys(said, 0)
    assert said["github"].out == "Nothing found. 3 steps looked at.\n"
    assert json.loads(said["sarif"].out)["runs"][0]["results"] == []
    assert 'failures="0"' in said["junit"].out
    assert "Nothing was found" in (tmp_path / "report.html").read_text()
