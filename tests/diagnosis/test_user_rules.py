"""Rules that users write: what expressions mean, and that no mistake in a file of rules hurts anything."""

from __future__ import annotations

import json
import math
import textwrap
import threading
from pathlib import Path
from typing import Any

import pytest

import tensight
from tensight.diagnosis.catalogue import RULES, diagnose, load_user_rules
from tensight.diagnosis.expressions import FUNCTIONS, parse_expression
from tensight.diagnosis.facts import Facts
from tensight.diagnosis.findings import ReportedRule
from tensight.diagnosis.lines import AGAIN, line_of_rules, take
from tensight.errors import InputError
from tensight.sessions.diagnosis import diagnosis_record

LOSSES = (4.0, 3.0, math.nan, 2.0, 1.0, 8.0)


def training() -> Facts:
    """Six steps of a training; parameters were not read in the third."""
    facts = Facts()
    for step, loss in enumerate(LOSSES, start=1):
        facts.add("steps", step, [{"name": "step", "updates": 1}])
        facts.add("losses", step, [{"name": "loss", "value": loss, "line": "train.py:7"}])
        if step != 3:
            rows = [
                {"name": "a", "norm": step, "dtype": "float32", "elements": 4, "is_trainable": True},
                {"name": "b", "norm": 10.0, "dtype": "bfloat16", "is_trainable": False},
            ]
            # An item that comes later is unknown before.
            facts.add("parameters", step, [*rows, {"name": "c", "norm": 1.0}] if step > 4 else rows)
    return facts


@pytest.mark.parametrize(
    ("expression", "holds"),
    [
        ("losses.value < 2.5", {4, 5}),
        ("1 < losses.value <= 3", {2, 4}),
        ("not losses.value > 2.5", {4, 5}),
        ("losses.value != 3", {1, 4, 5, 6}),
        ("is_nan(losses.value)", {3}),
        ("not is_finite(losses.value)", {3}),
        ("losses.value > 2 * lowest(losses.value)", {6}),
        ("losses.value > mean(losses.value, 2)", {6}),
        ("losses.value < previous(losses.value)", {2, 5}),
        ("losses.value < previous(losses.value, 3)", {4, 5}),
        ("losses.value >= highest(losses.value)", {6}),
        ("losses.value == first(losses.value) - 1", {2}),
        ("median(losses.value) == 3 and step > 3", {5}),
        ("step == 2 or step == 5", set()),
        ("losses.value > 0 and (step == 2 or step == 5)", {2, 5}),
        ("losses.value > 5 or step == 3", {3, 6}),
        ("abs(-losses.value) ** 2 % 5 == log10(10) + sqrt(0)", {1, 5}),
        ("losses.line == 'train.py:7' and losses.value / 2 == 4", {6}),
        ("losses['loss'].value > 7", {6}),
        ("losses['none'].value > 7", set()),
        ("largest(parameters.norm) == 10 and total(parameters.norm) > 16", {6}),
        ("smallest(parameters.norm) > 2", {4}),
        ("parameters['a'].norm > 4 and losses.value > 7", {6}),
    ],
)
def test_an_expression_about_one_item_or_the_step_holds_in_these_steps(expression: str, holds: set[int]) -> None:
    if "." not in expression:
        with pytest.raises(InputError):
            parse_expression(expression)
        return
    hits = parse_expression(expression).hits(training())
    assert set(hits.steps[hits.holds[:, 0]].tolist()) == holds


@pytest.mark.parametrize(
    ("expression", "holds"),
    [
        ("parameters.norm > 4", {"a": {5, 6}, "b": {1, 2, 4, 5, 6}, "c": set()}),
        ("parameters.norm < 4", {"a": {1, 2}, "b": set(), "c": {5, 6}}),
        ("not parameters.norm > 4", {"a": {1, 2, 4}, "b": set(), "c": {5, 6}}),
        ("parameters.dtype == 'bfloat16'", {"a": set(), "b": {1, 2, 4, 5, 6}, "c": set()}),
        ("parameters.dtype != 'bfloat16'", {"a": {1, 2, 4, 5, 6}, "b": set(), "c": {5, 6}}),
        ("parameters.elements < 5", {"a": {1, 2, 4, 5, 6}, "b": set(), "c": set()}),
        ("parameters.is_trainable", {"a": {1, 2, 4, 5, 6}, "b": set(), "c": set()}),
        ("parameters.norm > parameters['a'].norm and losses.value < 2", {"a": set(), "b": {5}, "c": set()}),
        ("parameters.norm == largest(parameters.norm)", {"a": set(), "b": {1, 2, 4, 5, 6}, "c": set()}),
        ("parameters.norm == previous(parameters.norm)", {"a": set(), "b": {2, 4, 5, 6}, "c": {6}}),
    ],
)
def test_an_expression_about_several_items_holds_for_each(expression: str, holds: dict[str, set[int]]) -> None:
    hits = parse_expression(expression).hits(training())
    of_items = {
        name: set(hits.steps[hits.holds[:, item]].tolist()) if hits.holds.shape[1] > 1 else set()
        for item, name in enumerate(hits.names)
    }
    assert of_items == holds


@pytest.mark.parametrize(
    ("expression", "named"),
    [
        ("losses.valu < 1", "did you mean value?"),
        ("loss.value < 1", "did you mean losses?"),
        ("loss < 1", "unknown name 'loss'"),
        ("1 < 2", "names no fact"),
        ("losses.value <", "is no expression"),
        ("losses.value.real < 1", "cannot be used"),
        ("losses.__class__ == 1", "no fact"),
        ("__import__('os').system('true')", "no function"),
        ("(lambda: losses.value)()", "no function"),
        ("[losses.value]", "cannot be used"),
        ("losses[0].value", "named as"),
        ("medain(losses.value)", "no function"),
        ("previous(losses.value, -1)", "whole number"),
        ("abs(losses.value, 2)", "takes a fact"),
        ("losses.value in (1, 2)", "cannot be used"),
        ("losses.value == b'x'", "cannot be used"),
        ("losses.value < 1" + " + 1" * 1000, "at most"),
    ],
)
def test_what_is_no_expression_is_refused_with_the_reason(expression: str, named: str) -> None:
    with pytest.raises(InputError, match=named):
        parse_expression(expression)


def test_tables_with_different_items_and_texts_as_numbers_are_refused() -> None:
    facts = training()
    facts.add("losses", 6, [{"name": "loss 2", "value": 1.0}])
    for expression, named in (
        ("parameters.norm > losses.value", "name one item"),
        ("losses.line > 2", "texts can only be equal"),
        ("-losses.line == 2", "used as a number"),
    ):
        with pytest.raises(InputError, match=named):
            parse_expression(expression).hits(facts)


def test_every_function_is_documented() -> None:
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "write-your-own-rules.md").read_text()
    assert [name for name in FUNCTIONS if f"`{name}(" not in page] == []


def rules_of(folder: Path, text: str, **how: Any) -> Any:
    path = folder / "rules.py"
    path.write_text("import tensight\n" + textwrap.dedent(text))
    return load_user_rules(path, **how)


def test_rules_of_users_are_ordered_and_explained_as_ours(tmp_path: Path) -> None:
    rules = rules_of(
        tmp_path,
        """
        tensight.expression_rule(
            "low", "losses.value < 2.5", message="{items} is {losses.value:.1f} in step {step}", for_steps=2
        )
        tensight.expression_rule("of-both", "parameters.norm > 4", message="large: {items}", certainty="possible")

        @tensight.rule("all", needs=["losses"], certainty="certain", explains=["low"], category="loss")
        def all_losses(facts):
            '''Find everything.'''
            return [tensight.finding("everything", 2, evidence="6 losses", module=["m", "n"], line="train.py:3"), "too"]

        @tensight.rule("nothing", needs=["attentions"])
        def nothing(facts):
            raise AssertionError
        """,
    )
    diagnosis = diagnosis_record(diagnose([training()], rules))
    findings = [finding for finding in diagnosis.findings if finding.rule not in RULES]
    everything, too, both = findings
    assert (everything.rule, everything.title, everything.step) == ("all", "everything", 2)
    assert (everything.evidence, everything.explains) == (("6 losses",), ("loss is 2.0 in step 4",))
    assert (everything.where, everything.fact) == ({"module": "m, n", "line": "train.py:3"}, "losses.value")
    assert (too.title, too.step) == ("too", 6)
    assert (both.title, both.where["parameter"], both.certainty) == ("large: a, b", "a, b", "possible")
    assert both.evidence == ("`parameters.norm > 4` holds for b in 5 of 5 steps that were read",)
    assert both.chinese.evidence == ("`parameters.norm > 4` 在读取的 5 步中有 5 步对 b 成立",)
    assert "nothing" not in {*diagnosis.passed, *(each.rule for each in diagnosis.undecided)}
    assert [rule.summary for rule in rules] == [
        "Steps in which `losses.value < 2.5` holds, 2 in a row.",
        "Steps in which `parameters.norm > 4` holds.",
        "Everything.",
        "Nothing",
    ]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("tensight.expression_rule('no-gradient', 'losses.value < 1', message='')", "is the id of a rule of Tensight"),
        ("x = 1", "declares no rule"),
        ("def f(:", "rules.py:2: SyntaxError"),
        ("\n1 / 0", "rules.py:3: ZeroDivisionError"),
        ("raise SystemExit(3)", "rules.py:2: SystemExit"),
        ("tensight.rule('Loss Floor')(print)", "rules.py:2: 'Loss Floor' is no id"),
        ("tensight.rule('a', needs=['loss'])(print)", "did you mean losses"),
        ("tensight.rule('a', category='losses')(print)", "no category"),
        ("tensight.rule('a', certainty='sure')(print)", "choose one of certain"),
        ("tensight.rule('a')(print); tensight.rule('a')(print)", "declared twice"),
        ("tensight.expression_rule('a', 'losses.value <', message='')", "rules.py:2: 'losses.value <' is no"),
        ("tensight.expression_rule('a', 'losses.value < 1', message='{losses.valu}')", "cannot be filled in"),
        ("tensight.expression_rule('a', 'losses.value < 1', message='{losses.__class__}')", "may name"),
        ("tensight.expression_rule('a', 'losses.value < 1', message='', for_steps=0)", "from 1"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_with_its_line(tmp_path: Path, text: str, named: str) -> None:
    with pytest.raises(InputError, match=named):
        rules_of(tmp_path, text)
    with pytest.raises(InputError, match="cannot be read"):
        load_user_rules(tmp_path / "none.py")


def test_mistakes_in_a_rule_are_its_reason_and_hurt_nothing(tmp_path: Path) -> None:
    rules = rules_of(
        tmp_path,
        """
        def helper():
            return {}["none"]

        @tensight.rule("raises")
        def raises(facts):
            yield "before"
            helper()

        @tensight.rule("exits")
        def exits(facts):
            raise SystemExit

        @tensight.rule("yields")
        def yields(facts):
            yield 3

        @tensight.rule("endless")
        def endless(facts):
            while True:
                pass

        tensight.expression_rule("mixes", "losses.line > 1", message="")
        """,
        most_s=0.2,
    )
    before = threading.active_count()
    for _ in range(2):
        diagnosis = diagnose([training()], rules)
        assert {rule: why for rule, why in diagnosis.undecided.items() if rule not in RULES} == {
            "raises": "rules.py:4: KeyError: 'none'",
            "exits": "rules.py:13: SystemExit: ",
            "yields": "rules.py:15: TypeError: a rule yields tensight.finding(…) or a sentence, not int",
            "endless": "rules.py:19: it took longer than 0.2 s, and is not called again",
            "mixes": "rules.py:24: texts can only be equal (==) or differ (!=)",
        }
        assert [each.finding for each in diagnosis.findings if each.finding.rule not in RULES] == []
    for thread in threading.enumerate():
        if thread.name == "tensight-rule":
            thread.join(30)
    assert threading.active_count() == before


def test_functions_can_be_called_by_a_test_of_the_user() -> None:
    @tensight.rule("mine", needs=["losses"])
    def mine(facts: Facts) -> Any:
        yield len(facts["losses"])

    assert list(mine(training())) == [6]


def test_what_was_found_in_the_training_is_judged_without_the_file(tmp_path: Path) -> None:
    rules = rules_of(
        tmp_path,
        """
        tensight.expression_rule("low", "losses.value < 2.5", message="{items} is low", advice="Look")
        tensight.expression_rule("large", "losses.value > 100", message="large")
        """,
    )
    facts = training()
    reported = [
        ReportedRule(rule.id, rule.category, rule.advice[0], rule.fact, "", tuple(rule.judge(facts))) for rule in rules
    ]
    reported.append(ReportedRule("no-gradient", "loss", "not ours", "", "hidden", ()))
    reported.append(ReportedRule("broken", "no such category", "", "nothing", "rules.py:3: KeyError: 1", ()))
    others = training()
    for rank in (facts, others):
        take(rank, line_of_rules(reported))
    with_lines = diagnosis_record(diagnose([facts, others]))
    with_file = diagnosis_record(diagnose([training()], rules))

    def own(record: Any) -> Any:
        return [finding.model_copy(update={"values": {}}) for finding in record.findings if finding.rule not in RULES]

    assert own(with_lines) == own(with_file) != []
    assert "large" in with_lines.passed
    assert "no-gradient" not in {finding.rule for finding in with_lines.findings}
    assert ("broken", "rules.py:3: KeyError: 1") in [(each.rule, each.why) for each in with_lines.undecided]
    # A file that is named now is applied instead.
    assert own(diagnosis_record(diagnose([facts], rules))) == own(with_file)
    take(facts, AGAIN)
    assert facts.reported == ()


FINDING = {"certainty": "likely", "step": 1, "message": "said", "values": {"sentence": "x"}, "where": {}, "covers": []}
RULE = {"id": "a", "category": "custom", "advice": "", "fact": "", "failure": "", "findings": [FINDING]}


@pytest.mark.parametrize(
    "rules",
    [
        3,
        [3],
        [RULE] * 101,
        [{**RULE, "id": 3}],
        [{**RULE, "id": "a\nb"}],
        [{**RULE, "fact": 3}],
        [{**RULE, "findings": [3]}],
        [{**RULE, "findings": [{**FINDING, "certainty": "sure"}]}],
        [{**RULE, "findings": [{**FINDING, "message": "gone"}]}],
        [{**RULE, "findings": [{**FINDING, "step": -1}]}],
        [{**RULE, "findings": [{**FINDING, "values": {"sentence": 3}}]}],
        [{**RULE, "findings": [{**FINDING, "where": {"line": []}}]}],
        [{**RULE, "findings": [{**FINDING, "covers": [3]}]}],
    ],
)
def test_lines_that_are_none_of_rules_are_refused(rules: Any) -> None:
    facts = Facts()
    take(facts, json.dumps({"rules": [RULE]}).encode())
    assert facts.reported[0].findings[0].values["sentence"] == "x"
    with pytest.raises(InputError):
        take(facts, json.dumps({"rules": rules}).encode())
