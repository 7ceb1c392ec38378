"""The verdict of a comparison, and the exit code of the command that printed it."""

from __future__ import annotations

from enum import Enum


class Verdict(Enum):
    """What a comparison found."""

    SAME = "same"
    DIFFERENT = "different"
    NOT_COMPARABLE = "not comparable"

    @property
    def severity(self) -> int:
        """Place among the verdicts, the worst first."""
        return (Verdict.DIFFERENT, Verdict.NOT_COMPARABLE, Verdict.SAME).index(self)

    @property
    def exit_code(self) -> int:
        """Exit code of ``tensight compare`` and ``tensight check checkpoint``: 0, 1 and 2."""
        return {Verdict.SAME: 0, Verdict.DIFFERENT: 1, Verdict.NOT_COMPARABLE: 2}[self]
