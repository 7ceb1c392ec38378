"""What rules find in the facts of a run, and the facts."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from tensight.sessions.records.base import Record


class FindingWords(Record):
    """The words of a finding in a language."""

    title: str
    evidence: tuple[str, ...] = ()
    """The measured facts."""
    advice: str = ""
    """What to do, or to try next."""
    explains: tuple[str, ...] = ()
    """Findings that follow from it."""


class FindingRecord(FindingWords):
    """Why a training does not learn."""

    rule: str
    """Stable id of the rule; `tensight explain` explains it."""
    category: str
    certainty: Literal["certain", "likely", "possible"]
    step: int
    """The first step in which it is seen."""
    where: dict[str, str] = Field(default_factory=dict)
    """The place: ``parameter``, ``module``, ``optimizer``, ``operator``, ``line``, ``rank``, ``model`` (how the script
    calls it); where the script makes the optimizer (``made``), the ``scheduler`` and the ``loader``, and sets the
    ``mode``."""
    values: dict[str, Any] = Field(default_factory=dict)
    """What its words name."""
    fact: str = ""
    """The fact whose course shows most of it, as ``losses.value``; empty if none does."""
    chinese: FindingWords


class UndecidedRule(Record):
    """A rule that could not judge."""

    rule: str
    why: str


class DiagnosisRecord(Record):
    """What rules find in the facts of a run."""

    steps: int = 0
    """Number of steps that were looked at; 0 if there are no facts."""
    findings: tuple[FindingRecord, ...] = ()
    """Causes before what follows from them, and what is certain first."""
    undecided: tuple[UndecidedRule, ...] = ()
    passed: tuple[str, ...] = ()
    """Ids of rules that looked and found nothing."""


class FactsRecord(Record):
    """A table of the facts of a run: one row for each item of each step in which it was read."""

    subject: str
    rank: int
    columns: dict[str, list[Any]]
    """Values by fact, and the steps as ``step``; a number that is unknown is None."""
