"""The facts of a run, and what rules find in them, for clients."""

from __future__ import annotations

import math
import re
import threading
from typing import TYPE_CHECKING, Any

from tensight.diagnosis.catalogue import diagnose, words_of
from tensight.diagnosis.facts import SCHEMA, Facts
from tensight.diagnosis.findings import SHOWN_FACTS
from tensight.diagnosis.lines import read_folder, take
from tensight.diagnosis.script_lines import SCRIPT_LINES
from tensight.sessions.errors import NotFoundError
from tensight.sessions.records.diagnosis import (
    DiagnosisRecord,
    FactsRecord,
    FindingRecord,
    FindingWords,
    UndecidedRule,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from tensight.diagnosis.catalogue import Diagnosis, Explained
    from tensight.diagnosis.findings import Finding
    from tensight.diagnosis.rule import Rule

MOST_ROWS = 10_000
"""Maximum number of rows of a table for a client: the last ones."""


_NOUNS = "weights|parameters|modules|calls|updates|steps|others|times|positions|batches"
_ONE = re.compile(rf"(?<![\d.,])\b1 ({_NOUNS})( are| have| get)?\b")
_VERBS = {" are": " is", " have": " has", " get": " gets"}


def _texts(finding: Finding, rules: Mapping[str, Rule], language: int) -> tuple[str, tuple[str, ...], str]:
    """Return the sentence of a finding, its evidence and the advice.

    Parameters
    ----------
    finding : Finding
    rules : mapping of str to Rule
    language : int
        0 for English, 1 for Chinese.
    """
    message, evidence, advice = words_of(finding, rules)
    measured = [_ONE.sub(_singular, evidence[language].format(**finding.values))] if evidence else []
    measured += [
        words[language].format(**finding.where) for key, words in SCRIPT_LINES.items() if finding.where.get(key)
    ]
    return _ONE.sub(_singular, message[language].format(**finding.values)), tuple(measured), advice[language]


def _singular(plural: re.Match[str]) -> str:
    """Return the words about one thing."""
    noun, verb = plural.groups()
    end = 2 if noun.endswith("ches") else 1
    return f"1 {noun[:-end]}{_VERBS.get(verb, verb) or ''}"


def diagnosis_record(diagnosis: Diagnosis) -> DiagnosisRecord:
    """Return a diagnosis as a record."""
    return DiagnosisRecord(
        steps=diagnosis.steps,
        findings=tuple(_finding_record(each, diagnosis.rules) for each in diagnosis.findings),
        undecided=tuple(UndecidedRule(rule=rule, why=why) for rule, why in diagnosis.undecided.items()),
        passed=tuple(diagnosis.passed),
    )


def _finding_record(explained: Explained, rules: Mapping[str, Rule]) -> FindingRecord:
    finding = explained.finding
    rule = rules[finding.rule]
    return FindingRecord(
        rule=finding.rule,
        category=rule.category,
        certainty=finding.certainty,
        step=finding.step,
        where={name: value for name, value in finding.where.items() if value},
        values=_finite(finding.values),
        fact=rule.fact or SHOWN_FACTS.get(rule.category, ""),
        chinese=FindingWords(**_words(explained, rules, 1)),
        **_words(explained, rules, 0),
    )


def _words(explained: Explained, rules: Mapping[str, Rule], language: int) -> dict[str, Any]:
    title, evidence, advice = _texts(explained.finding, rules, language)
    follow = tuple(_texts(other, rules, language)[0] for other in explained.explains)
    return {"title": title, "evidence": evidence, "advice": advice, "explains": follow}


def _finite(value: Any) -> Any:
    """Return data without NaN and infinities, which JSON does not have."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: _finite(inner) for name, inner in value.items()}
    return [_finite(inner) for inner in value] if isinstance(value, (list, tuple)) else value


class RunFacts:
    """The facts of a run, by rank. Threads may use it at the same time.

    Parameters
    ----------
    user_rules : sequence of Rule
        The user's rules, beside ours.
    """

    def __init__(self, user_rules: Sequence[Rule] = ()) -> None:
        self._user_rules = user_rules
        self._runs: dict[int, Facts] = {}
        self._using = threading.Lock()

    def read(self, folder: Path) -> None:
        """Add the facts that a training has written to a folder. InputError if they are damaged."""
        runs = read_folder(folder)
        with self._using:
            self._runs = {facts.rank: facts for facts in runs} | self._runs

    def take(self, rank: int, lines: Iterable[bytes]) -> None:
        """Add lines of a rank. InputError if one is no line of facts."""
        with self._using:
            facts = self._runs.setdefault(rank, Facts(rank))
            for line in lines:
                take(facts, line)

    def diagnose(self) -> Diagnosis:
        """Apply all rules."""
        with self._using:
            return diagnose([facts for _, facts in sorted(self._runs.items())], self._user_rules)

    def table(self, rank: int, subject: str) -> FactsRecord:
        """Return the last rows of a table. NotFoundError for an unknown subject."""
        if subject not in SCHEMA:
            raise NotFoundError(f"there are no facts of {subject[:80]!r}; there are those of {', '.join(SCHEMA)}")
        with self._using:
            table = self._runs.get(rank, Facts(rank))[subject]
            columns = {name: table[name] for name in ("step", *(fact.name for fact in SCHEMA[subject]))}
        return FactsRecord(
            subject=subject,
            rank=rank,
            columns={name: _finite(column[-MOST_ROWS:].tolist()) for name, column in columns.items()},
        )
