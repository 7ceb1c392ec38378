"""All rules, and what they find in the facts of a run."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tensight.diagnosis import mindspore_words
from tensight.diagnosis.facts import NUMBERS, OPTIONAL
from tensight.diagnosis.findings import CATEGORIES
from tensight.diagnosis.rule import RuleFailure
from tensight.diagnosis.rules import (
    activations,
    averages,
    batches,
    checkpoints,
    class_weights,
    derivatives,
    divergence,
    evaluations,
    experts,
    frozen,
    gradients,
    initialization,
    logs,
    losses,
    no_gradient,
    optimizers,
    outputs,
    pairs,
    probes,
    ranks,
    rates,
    rivals,
    schedules,
    sequences,
    shapes,
    structure,
    targets,
    updates,
)
from tensight.diagnosis.script_lines import with_script_lines
from tensight.diagnosis.user_rules import CATEGORY as CUSTOM
from tensight.diagnosis.user_rules import MOST_S, load_rules, user_rule
from tensight.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from tensight.diagnosis.facts import Facts
    from tensight.diagnosis.findings import Finding, ReportedRule
    from tensight.diagnosis.rule import Rule, Words

RULES: Mapping[str, Rule] = {
    rule.id: rule
    for rule in (
        *no_gradient.RULES,
        *derivatives.RULES,
        *optimizers.RULES,
        *frozen.RULES,
        *updates.RULES,
        *initialization.RULES,
        *gradients.RULES,
        *schedules.RULES,
        *outputs.RULES,
        *targets.RULES,
        *losses.RULES,
        *divergence.RULES,
        *evaluations.RULES,
        *logs.RULES,
        *checkpoints.RULES,
        *activations.RULES,
        *sequences.RULES,
        *structure.RULES,
        *experts.RULES,
        *averages.RULES,
        *batches.RULES,
        *class_weights.RULES,
        *shapes.RULES,
        *pairs.RULES,
        *rivals.RULES,
        *ranks.RULES,
        *probes.RULES,
        *rates.RULES,
    )
}
"""By id."""

_NAMES = {
    "groups": "optimizers",
    "rates": "updates of these models",
    "loss_functions": "loss functions that the rules know",
    "calls": "calls of models",
}
"""What subjects are called where they are missing."""

LOGGED = ("logs", "losses", "evaluations", "rates", "groups", "steps", "checkpoints", "saved")
"""Subjects that logs and checkpoints may have."""

_NOT_IN_LOGS = "as logs and checkpoints do not have its facts"
_SENSELESS = "its facts make no sense"
_MOST_REASON = 200
_CERTAINTIES: Mapping[str, int] = {"certain": 0, "likely": 1, "possible": 2}


class Explained(NamedTuple):
    """A finding, and those that follow from it.

    Attributes
    ----------
    finding : Finding
    explains : tuple of Finding
    """

    finding: Finding
    explains: tuple[Finding, ...] = ()


class Diagnosis(NamedTuple):
    """What rules say of a run.

    Attributes
    ----------
    findings : list of Explained
        Causes first.
    undecided : dict of str to str
        Rules that could not look, and why.
    steps : int
        Number of steps that were looked at.
    passed : list of str
        Rules that looked and found nothing.
    rules : mapping of str to Rule
        All rules by id, with those of the user.
    """

    findings: list[Explained]
    undecided: dict[str, str]
    steps: int
    passed: list[str]
    rules: Mapping[str, Rule] = RULES


def load_user_rules(path: Path, *, most_s: float = MOST_S) -> tuple[Rule, ...]:
    """Run a file of rules that the user has named, and return them.

    Parameters
    ----------
    path : Path
    most_s : float
        Maximum time in seconds of a call of one of them.

    Raises
    ------
    InputError
        As for `tensight.diagnosis.user_rules.load_rules`, or a rule has the id of one of ours.
    """
    rules = load_rules(path, most_s=most_s)
    for rule in rules:
        if rule.id in RULES:
            raise InputError(f"{path}: {rule.id} is the id of a rule of Tensight; choose another one")
    return rules


def diagnose(runs: Sequence[Facts], user_rules: Sequence[Rule] = ()) -> Diagnosis:
    """Apply all rules to the facts of a run.

    Parameters
    ----------
    runs : sequence of Facts
        One for each rank.
    user_rules : sequence of Rule
        Those of the user. What rules of the user have found in the training is there, too, unless they are given.
    """
    rules = {**RULES, **{rule.id: rule for rule in user_rules}}
    findings: list[Finding] = []
    undecided: dict[str, str] = {}
    failed: dict[str, str] = {}
    applied: list[str] = []
    same_steps = ranks.SameSteps()
    for facts in runs:
        same_steps.add(facts.rank, facts["ranks"].rows())
    for rule in rules.values():
        if rule.over_ranks:
            if any(facts.is_log for facts in runs):
                undecided[rule.id] = _NOT_IN_LOGS
            elif runs:
                applied.append(rule.id)
                findings += _judgement(rule, same_steps.facts(), runs[0].framework, failed)
            continue
        is_applied = False
        for facts in runs:
            is_lacking, why = lacking(rule, facts)
            if is_lacking:
                if why:
                    undecided.setdefault(rule.id, why)
                continue
            is_applied = True
            for finding in _judgement(rule, facts, facts.framework, failed):
                _add(findings, finding, is_first_rank=facts is runs[0])
        if is_applied:
            applied.append(rule.id)
            undecided.pop(rule.id, None)
    for facts in runs:
        for reported in facts.reported:
            if reported.id in RULES or any(reported.id == rule.id for rule in user_rules):
                continue
            rules[reported.id] = reported_rule(reported)
            applied.append(reported.id)
            if reported.failure:
                failed[reported.id] = reported.failure
            for finding in reported.findings:
                _add(findings, with_script_lines(finding, facts), is_first_rank=facts is runs[0])
    undecided |= failed
    hit = {finding.rule for finding in findings}
    passed = [rule for rule in dict.fromkeys(applied) if rule not in hit and rule not in undecided]
    steps = max((facts.last_step for facts in runs), default=0)
    return Diagnosis(ordered(findings, rules), undecided, steps, passed, rules)


def compare_ranks(same_steps: ranks.SameSteps, framework: str) -> list[Finding]:
    """Apply the rules that compare the ranks of a run with each other.

    Parameters
    ----------
    same_steps : SameSteps
    framework : str
        With which the ranks train.
    """
    facts = same_steps.facts()
    failed: dict[str, str] = {}
    return [
        finding for rule in RULES.values() if rule.over_ranks for finding in _judgement(rule, facts, framework, failed)
    ]


def _add(findings: list[Finding], finding: Finding, *, is_first_rank: bool) -> None:
    """Add a finding of a rank; the ranks of a run train alike: what one shows is not repeated for the others."""
    is_known = any((finding.rule, finding.message) == (other.rule, other.message) for other in findings)
    if is_first_rank or not is_known:
        findings.append(finding)


def reported_rule(reported: ReportedRule) -> Rule:
    """Return a rule that was applied in the training."""
    category = reported.category if reported.category in CATEGORIES else CUSTOM
    fact = reported.fact if reported.fact in NUMBERS else ""
    return user_rule(reported.id, (), category, lambda _: (), reported.advice, fact=fact)


def _judgement(rule: Rule, facts: Facts, framework: str, failed: dict[str, str]) -> list[Finding]:
    """Return what a rule finds; if facts make no sense, such as a shape that is none, note that it could not judge."""
    read = len(facts[rule.needs[0].partition(".")[0]].steps) if rule.needs else 0
    judge = rule.of_log if facts.is_log and rule.of_log is not None else rule.judge
    try:
        with np.errstate(all="ignore"):
            findings = [
                replace(with_script_lines(finding, facts), framework=framework, values={"read": read, **finding.values})
                for finding in judge(facts)
            ]
        for finding in findings:
            for words in filter(None, words_of(finding, {rule.id: rule})):
                words[0].format(**finding.values)
    except RuleFailure as failure:
        failed[rule.id] = str(failure)
        return []
    except Exception as error:
        # They come from files and other processes.
        failed[rule.id] = f"{_SENSELESS}: {type(error).__name__}: {error}"[:_MOST_REASON]
        return []
    return findings


def lacking(rule: Rule, facts: Facts) -> tuple[bool, str]:
    """Return whether facts are missing that a rule needs, and why; the reason is empty if many trainings have none."""
    needs = rule.needs
    if facts.is_log and rule.id in RULES:
        if rule.of_log is None:
            return True, _NOT_IN_LOGS
        needs = tuple(need for need in needs if need in LOGGED)
    for need in needs:
        subject = need.partition(".")[0]
        why = facts.absent.get(need) or facts.absent.get(subject, "")
        if why:
            return True, why
        if not len(facts[subject]):
            return True, "" if subject in OPTIONAL else f"no {_NAMES.get(subject, subject)} were seen"
    return False, ""


def words_of(finding: Finding, rules: Mapping[str, Rule] = RULES) -> tuple[Words, Words | None, Words]:
    """Return the sentence of a finding, its evidence if there is any, and the advice, with values in braces."""
    rule = rules[finding.rule]
    message, evidence = rule.messages[finding.message], rule.evidence.get(finding.message)
    advice = rule.advice_on.get(finding.message, rule.advice)
    if finding.framework != "mindspore":
        return message, evidence, advice
    key = finding.rule, finding.message
    return (
        mindspore_words.MESSAGES.get(key, message),
        mindspore_words.EVIDENCE.get(key, evidence),
        mindspore_words.ADVICE.get(finding.rule, advice),
    )


def ordered(findings: Iterable[Finding], rules: Mapping[str, Rule] = RULES) -> list[Explained]:
    """Put causes before what follows from them, and what is certain first.

    Parameters
    ----------
    findings : iterable of Finding
    rules : mapping of str to Rule
        Their rules.

    Returns
    -------
    list of Explained
        A finding that another one explains is under that one only.
    """
    rest = sorted(
        findings, key=lambda finding: (_CERTAINTIES[finding.certainty], rules[finding.rule].rank, finding.step)
    )
    causes: dict[int, list[Finding]] = {}
    under: set[int] = set()
    for cause in rest:
        explained = rules[cause.rule].explains
        for other in rest:
            if other is cause or id(other) in under or id(cause) in under or other.rule not in explained:
                continue
            if _fits(cause, other):
                causes.setdefault(id(cause), []).append(other)
                under.add(id(other))
    return [Explained(finding, tuple(causes.get(id(finding), ()))) for finding in rest if id(finding) not in under]


def _fits(cause: Finding, other: Finding) -> bool:
    """Whether a finding is about what another one explains."""
    return not cause.covers or not other.covers or bool(set(cause.covers) & set(other.covers))
