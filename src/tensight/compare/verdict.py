"""The verdict of a comparison, with the exit code of the command that prints it."""

from __future__ import annotations

from enum import Enum


class Verdict(Enum):
    """The verdict of a comparison."""

    SAME = "same"
    DIFFERENT = "different"
    NOT_COMPARABLE = "not comparable"

    @property
    def severity(self) -> int:
        """Rank among the verdicts; 0 is the worst."""
        return (Verdict.DIFFERENT, Verdict.NOT_COMPARABLE, Verdict.SAME).index(self)

    @property
    def exit_code(self) -> int:
        """Exit code of ``tensight compare`` and ``tensight check checkpoint``: 0, 1 and 2."""
        return {Verdict.SAME: 0, Verdict.DIFFERENT: 1, Verdict.NOT_COMPARABLE: 2}[self]
