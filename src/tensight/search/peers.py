"""How a trial compares with the others of its study, as they were read at one moment."""

from __future__ import annotations

import math
from functools import cached_property
from statistics import median
from typing import TYPE_CHECKING

from tensight.search.attributes import HALF_LOSS, LOSSES, NOWHERE, SET_ASIDE
from tensight.search.samplers import STARTUP_WITHOUT_LOSS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from optuna.trial import FrozenTrial

    from tensight.search.configuration import Configuration

LEAST_OTHERS, LEAST_BETTER = 2, 3
"""Other trials with which one that gets nowhere is compared, and that must be better before it counts as bad.

Of two or three, all must be. A trial from the better half of a search is worse than two others picked at random in one
case of twelve, than three in one of thirty-two, and than three of four in one of eleven.
"""


class Peers:
    """All trials of a study, for one that is compared with them.

    Parameters
    ----------
    configuration : Configuration
    number : int
        Of the trial that is compared.
    trials : sequence of FrozenTrial
        All of the study.
    """

    def __init__(self, configuration: Configuration, number: int, trials: Sequence[FrozenTrial]) -> None:
        self._configuration = configuration
        self._trials = trials
        self._others = [trial for trial in trials if trial.number != number and not trial.user_attrs.get(SET_ASIDE)]

    @cached_property
    def complete(self) -> list[FrozenTrial]:
        """Those that came to their end."""
        from optuna.trial import TrialState

        return [trial for trial in self._trials if trial.state == TrialState.COMPLETE]

    def is_before_end(self, step: int) -> bool:
        """Return whether a trial that has come to a step has more to do, as far as complete ones tell."""
        return any(trial.last_step is not None and trial.last_step > step for trial in self.complete)

    def is_spared(self, step: int, value: float, loss: float | None) -> bool:
        """Return whether the trial goes on although Optuna's median pruner would end it.

        That pruner compares with complete trials only, which it has let through itself: the more it ends, the better
        they are. So a trial must be worse than half of all that came as far, too. Targets of the first steps say
        little: its loss, if the debugger sees one, must say the same.

        Parameters
        ----------
        step : int
        value : float
            Of the target at that step.
        loss : float or None
            What the debugger sees in the training at that time.
        """
        pruner = self._configuration.effective_pruner
        if pruner.name != "median" or not math.isfinite(value):
            return False
        if loss is None and pruner.startup_trials is None and len(self.complete) < STARTUP_WITHOUT_LOSS:
            return True
        if not _is_worse_than_half(self._signed(value), self._signed_values(step)):
            return True
        if loss is None:
            return False
        kept = [trial.user_attrs.get(LOSSES, {}) for trial in self._others]
        losses = [losses[str(step)] for losses in kept if str(step) in losses]
        return not losses or not _is_worse_than_half(loss, losses)

    def rank(self, step: int, value: float) -> str | None:
        """Return how many others are better, if the trial, which gets nowhere, is lost; else None.

        It is lost if its target is worse than half of those of all trials that came as far, and these are not too few.

        Parameters
        ----------
        step : int
            As the target is reported; the last one of complete trials ends none.
        value : float
        """
        if not self.is_before_end(step) or self._needs_not_move():
            return None
        return _rank(self._signed(value), self._signed_values(step))

    def rank_of_loss(self, loss: float) -> str | None:
        """Return the same as `rank` where no trial reports a target before its end.

        Parameters
        ----------
        loss : float
            That the debugger has seen in the middle of the trial.
        """
        reports = any(len(trial.intermediate_values) > 1 for trial in self.complete)
        if reports or self._needs_not_move():
            return None
        kept = [trial.user_attrs.get(HALF_LOSS) for trial in self.complete]
        return _rank(loss, [other for other in kept if other is not None])

    def _needs_not_move(self) -> bool:
        """Whether a trial has got nowhere, and come out better than half of the complete ones.

        Weights that were trained before need not move, and the good trials may be those in which they hardly do.
        """
        goodness = [-self._signed(trial.values[0]) for trial in self.complete]
        for index, trial in enumerate(self.complete):
            others = goodness[:index] + goodness[index + 1 :]
            if trial.user_attrs.get(NOWHERE) and _rank(goodness[index], others) is not None:
                return True
        return False

    def _signed(self, value: float) -> float:
        """Return a value of the first target so that small ones are good, and what is no number is bad."""
        if not math.isfinite(value):
            return math.inf
        return value if self._configuration.all_targets[0].direction == "minimize" else -value

    def _signed_values(self, step: int) -> list[float]:
        """Return the targets that other trials which came to a step had there, or before if none was reported there."""
        values = []
        for trial in self._others:
            if trial.last_step is not None and trial.last_step >= step:
                reported = [at for at in trial.intermediate_values if at <= step]
                if reported:
                    values.append(self._signed(trial.intermediate_values[max(reported)]))
        return values


def _is_worse_than_half(value: float, others: Sequence[float]) -> bool:
    """Whether a value is larger than half of others, or no number."""
    return not value <= median(others)


def _rank(value: float, others: Sequence[float]) -> str | None:
    """Return than how many others a value is larger, if those are half and not too few; else None."""
    better = sum(other < value for other in others)
    are_enough = len(others) >= LEAST_OTHERS and better >= min(LEAST_BETTER, len(others))
    if not are_enough or not _is_worse_than_half(value, others):
        return None
    return f"{better} of {len(others)} other trials"
