"""A rule, declared as data: what it needs, what it decides, and its words in English and Chinese."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from tensight.diagnosis.facts import Facts
    from tensight.diagnosis.findings import Finding

Words = tuple[str, str]
"""English and Chinese."""

DIVERGENCE = ("loss-rises", "loss-jumps", "loss-not-finite", "loss-unbounded", "learning-rate-too-large")
"""Ids of rules about the course of a loss that diverges, which follows from many faults."""


class RuleFailure(Exception):  # noqa: N818 - not an error of ours
    """A rule that a user wrote could not judge; the message has the file, the line and the reason."""


@dataclass(frozen=True)
class Rule:
    """A rule.

    Attributes
    ----------
    id : str
        Stable; users write it in ``--select``, ``--ignore`` and `tensight explain`.
    category : str
        A key of `CATEGORIES`.
    needs : tuple of str
        Facts without which it cannot judge: subjects, and columns that not all frameworks have, as
        ``groups.is_cleared``.
    judge : callable (Facts) -> iterable of Finding
        Pure: it reads facts, and nothing else.
    messages : mapping of str to Words
        Its sentences by key, with the names of a finding's values in braces.
    evidence : mapping of str to Words
        The measured facts below each sentence, by the same keys; for those without one, there is none.
    advice : Words
        What to do or to try next.
    silent : Words
        What it does not report, although it looks similar, and why.
    explains : frozenset of str
        Ids of rules whose findings follow from its own.
    rank : int
        Position among rules of the same certainty: causes come before effects.
    over_ranks : bool
        Whether it compares the ranks of a run.
    advice_on : mapping of str to Words
        Advice on single sentences by their keys, where that of the rule does not fit.
    fact : str
        The fact whose course shows most of what it finds; empty for that of its category.
    of_log : callable (Facts) -> iterable of Finding, or None
        How it judges the facts of a log, which are few, averaged and rounded; None if it cannot.
    """

    id: str
    category: str
    needs: tuple[str, ...]
    judge: Callable[[Facts], Iterable[Finding]]
    messages: Mapping[str, Words]
    evidence: Mapping[str, Words]
    advice: Words
    silent: Words
    explains: frozenset[str] = frozenset()
    rank: int = 50
    over_ranks: bool = False
    advice_on: Mapping[str, Words] = field(default_factory=dict)
    fact: str = ""
    of_log: Callable[[Facts], Iterable[Finding]] | None = None

    @property
    def summary(self) -> str:
        """What it finds: the first line of the docstring of `judge`."""
        text = (self.judge.__doc__ or "").partition("\n")[0].removeprefix("Find ")
        return text[:1].upper() + text[1:]
