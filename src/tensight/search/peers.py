"""Comparison of a trial with the others of its study, as they were read at one moment."""

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
"""Minimum number of other trials for the comparison of one without progress, and of those that must be better.

Of two or three, all must be better. A trial from the better half of a search is worse than two others picked at random
in one case of twelve, than three in one of thirty-two, and than three of four in one of eleven.
"""


class Peers:
    """All trials of a study, compared with one of them.

    Parameters
    ----------
    configuration : Configuration
    number : int
        Number of the trial to compare.
    trials : sequence of FrozenTrial
        All trials of the study.
    """

    def __init__(self, configuration: Configuration, number: int, trials: Sequence[FrozenTrial]) -> None:
        self._configuration = configuration
        self._trials = trials
        self._others = [trial for trial in trials if trial.number != number and not trial.user_attrs.get(SET_ASIDE)]

    @cached_property
    def complete(self) -> list[FrozenTrial]:
        """Trials that have completed."""
        from optuna.trial import TrialState

        return [trial for trial in self._trials if trial.state == TrialState.COMPLETE]

    def is_before_end(self, step: int) -> bool:
        """Return whether a trial at this step has more steps to do, according to the complete trials."""
        return any(trial.last_step is not None and trial.last_step > step for trial in self.complete)

    def is_spared(self, step: int, value: float, loss: float | None) -> bool:
        """Return whether the trial goes on although Optuna's median pruner would end it.

        That pruner compares with complete trials only, which it has let through itself: the more it prunes, the better
        those are. So the trial must also be worse than half of all trials that came this far. Targets of the first
        steps say little, so the loss, if the debugger sees it, must also be worse.

        Parameters
        ----------
        step : int
        value : float
            Value of the target at that step.
        loss : float or None
            The loss that the debugger sees at that time.
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
        """Return how many other trials are better if this trial, which makes no progress, is lost; else None.

        It is lost if its target is worse than that of half of all trials that came this far, and those are enough.

        Parameters
        ----------
        step : int
            As the target is reported; no trial is ended at the last step of complete trials.
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
            The loss that the debugger saw in the middle of the trial.
        """
        reports = any(len(trial.intermediate_values) > 1 for trial in self.complete)
        if reports or self._needs_not_move():
            return None
        kept = [trial.user_attrs.get(HALF_LOSS) for trial in self.complete]
        return _rank(loss, [other for other in kept if other is not None])

    def _needs_not_move(self) -> bool:
        """Whether a trial has made no progress, and ended better than half of the complete ones.

        Pretrained weights need not move, and the good trials may be those in which they hardly move.
        """
        goodness = [-self._signed(trial.values[0]) for trial in self.complete]
        for index, trial in enumerate(self.complete):
            others = goodness[:index] + goodness[index + 1 :]
            if trial.user_attrs.get(NOWHERE) and _rank(goodness[index], others) is not None:
                return True
        return False

    def _signed(self, value: float) -> float:
        """Return a value of the first target with the sign that makes small values good; NaN becomes bad."""
        if not math.isfinite(value):
            return math.inf
        return value if self._configuration.all_targets[0].direction == "minimize" else -value

    def _signed_values(self, step: int) -> list[float]:
        """Return the targets of other trials that came to a step: at that step, or the last one before it."""
        values = []
        for trial in self._others:
            if trial.last_step is not None and trial.last_step >= step:
                reported = [at for at in trial.intermediate_values if at <= step]
                if reported:
                    values.append(self._signed(trial.intermediate_values[max(reported)]))
        return values


def _is_worse_than_half(value: float, others: Sequence[float]) -> bool:
    """Whether a value is larger than half of the others, or NaN."""
    return not value <= median(others)


def _rank(value: float, others: Sequence[float]) -> str | None:
    """Return how many others a value is larger than, if these are at least half and enough; else None."""
    better = sum(other < value for other in others)
    are_enough = len(others) >= LEAST_OTHERS and better >= min(LEAST_BETTER, len(others))
    if not are_enough or not _is_worse_than_half(value, others):
        return None
    return f"{better} of {len(others)} other trials"
