"""Rules of the user inside of a training: they are run here, and what they find is sent and written with its facts.

The debug server runs no code that a training names, and may be on another machine.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from tensight.agents.core.notices import log_once
from tensight.diagnosis.facts import Facts
from tensight.diagnosis.findings import ReportedRule
from tensight.diagnosis.lines import line_of_rules
from tensight.diagnosis.rule import RuleFailure
from tensight.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tensight.diagnosis.rule import Rule

FIRST_STEP = 8
"""Rules are not applied before this step: much is only so at the beginning."""

SHARE = 0.005
"""Maximum share of the training's time for the rules, beside a call now and then that takes longer."""

EVERY_S = 1.0
"""Minimum interval between two calls of all rules."""


class UserRules:
    """The rules of a file, and the facts of this process to which they are applied.

    Parameters
    ----------
    path : Path
        The file that the user has named.
    rank : int
    """

    def __init__(self, path: Path, rank: int) -> None:
        self._facts = Facts(rank)
        self._rules = _loaded(path)
        self._cost_s = 0.0
        self._began_s = self._last_s = time.monotonic()
        self._is_changed = False
        self._reported: list[ReportedRule] = []

    def add(self, subject: str, step: int, rows: Sequence[Mapping[str, Any]]) -> None:
        """Add what was read of a subject in a step."""
        if self._rules:
            self._facts.add(subject, step, rows)
            self._is_changed = True

    def tell(self, framework: str, absent: Mapping[str, str]) -> None:
        """Tell which framework trains, and which facts are not known of it, each with the reason."""
        self._facts.framework = framework
        self._facts.absent |= absent

    def begin_again(self) -> None:
        """Forget what was read before the first step of an optimizer."""
        self._facts.begin_again()
        self._reported, self._is_changed = [], False

    def lines_of(self, step: int) -> list[bytes]:
        """Return a line with what the rules have found, if they are due and it has changed."""
        now = time.monotonic()
        is_due = now - self._last_s >= EVERY_S and self._cost_s <= SHARE * (now - self._began_s)
        return self._applied() if self._is_changed and step >= FIRST_STEP and is_due else []

    def last_lines(self) -> list[bytes]:
        """Return what the rules have found in the whole training, if that has changed."""
        self._facts.is_over = True
        return self._applied() if self._is_changed else []

    def _applied(self) -> list[bytes]:
        reported = [each for each in map(self._result, self._rules) if each is not None]
        self._last_s, self._is_changed = time.monotonic(), False
        if reported == self._reported:
            return []
        self._reported = reported
        return [line_of_rules(reported)]

    def _result(self, rule: Rule) -> ReportedRule | None:
        """Return what a rule has found; None if it has nothing to look at."""
        from tensight.diagnosis.catalogue import lacking

        if lacking(rule, self._facts)[0]:
            return None
        began_s = time.monotonic()
        try:
            findings = tuple(rule.judge(self._facts))
            # One that takes too long is not called again, and others need not wait for that.
            self._cost_s += time.monotonic() - began_s
            return ReportedRule(rule.id, rule.category, rule.advice[0], rule.fact, "", findings)
        except RuleFailure as error:
            log_once(f"your rule {rule.id} could not judge: {error}")
            return ReportedRule(rule.id, rule.category, rule.advice[0], rule.fact, str(error), ())


def _loaded(path: Path) -> tuple[Rule, ...]:
    """Return the rules of a file; none, with a notice, if it cannot be used: the training goes on."""
    from tensight.diagnosis.catalogue import load_user_rules
    from tensight.diagnosis.user_rules import MOST_LIVE_S

    try:
        return load_user_rules(path, most_s=MOST_LIVE_S)
    except InputError as error:
        log_once(f"your rules are not applied: {error}")
        return ()
