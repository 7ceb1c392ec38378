"""Detection of trials that break nothing but learn nothing, or too little to be of interest.

The recommended watchpoints find what breaks a training. Between wide bounds most bad trials break nothing: their
learning rate is so small that nothing moves, or the network has died and lets no gradient through. This module
defines the additional watchpoints of a search.

A training that makes no progress ends where it is, so such a trial is lost only if its target or loss is bad already.
`Study.rank` makes that comparison.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

WEIGHTS_STILL = "weight_change_too_small"
GRADIENTS_ZERO = "tensor_all_zero"

GETS_NOWHERE: Mapping[str, str] = {
    "weight_not_changed": "nothing moves",
    WEIGHTS_STILL: "weights stand still",
    GRADIENTS_ZERO: "gradients stay zero",
}
"""Conditions of a training that makes no progress, if they hit on all watched tensors, each with a description.

All of them are required: of two adversarial networks, the one that has won has no gradients for a while.
"""

LATE = 0.5
"""Share of the steps of a trial after which it no longer counts as lost: what it has reached by then counts."""

LEAST_MOVED = 0.03
"""The minimum distance that a weight matrix moves in a trial that learns, relative to its size, over all its updates.

Chosen on 360 trials of the scripts in `benchmarks/searched`, trained to their end and measured by a recorder that is
not in the repository: 15 moved less. Moving less does not prove that a trial is bad: a network that starts near its
optimum, as in fine-tuning, needs no more.
"""

BEGINNING = 0.1
"""Share of the steps of a trial after which a warm-up is usually over."""

LEAST_STEPS = 10
"""Steps in a row that a condition must hold, so that neither a single batch nor a warm-up from zero ends a trial."""


@dataclass(frozen=True)
class LostWatchpoint:
    """A watchpoint that a search sets in addition to the recommended ones.

    Attributes
    ----------
    name : str
        Shown to users.
    condition : str
    on : str
        The selected tensors.
    persistence : int
        Number of steps in a row in which it must hit.
    parameters : dict of str to float
        Thresholds.
    """

    name: str
    condition: str
    on: str
    persistence: int
    parameters: Mapping[str, float]


def gradients_zero() -> LostWatchpoint:
    """Return the watchpoint for networks without gradients: those of all matrices are zero."""
    return LostWatchpoint(
        "gradients stay zero", GRADIENTS_ZERO, "matrix_gradients", LEAST_STEPS, {"zero_percentage_ge": 100.0}
    )


def is_late(step: int, whole_steps: int | None) -> bool:
    """Whether a trial has done so many steps that it is not ended for making no progress.

    Parameters
    ----------
    step : int
    whole_steps : int or None
        Number of steps of the whole trial; None if unknown.
    """
    return whole_steps is not None and step > half_of(whole_steps)


def half_of(steps: int) -> int:
    """Return the last step at which a trial with this number of steps is not late."""
    return int(LATE * steps)


def beginning_of(steps: int) -> int:
    """Return how many steps of a trial are its beginning.

    Parameters
    ----------
    steps : int
        Number of steps of the whole trial.
    """
    return max(LEAST_STEPS, math.ceil(BEGINNING * steps))


def weights_still(steps: int) -> LostWatchpoint:
    """Return the watchpoint for trainings in which no weight matrix would move by `LEAST_MOVED` before the end.

    It hits if every matrix changes that little in each step of the beginning. Only the beginning is checked, because a
    learning rate that decays to zero at the end is intended.

    Parameters
    ----------
    steps : int
        Number of steps of the whole trial, as observed in other trials.
    """
    pace = {"abs_mean_update_ratio_lt": LEAST_MOVED / steps}
    return LostWatchpoint("weights stand still", WEIGHTS_STILL, "matrices", beginning_of(steps), pace)


def gets_on(condition: str, steps: int) -> LostWatchpoint:
    """Return the watchpoint that detects when a training makes progress again.

    Parameters
    ----------
    condition : str
        The condition of `GETS_NOWHERE` that had hit.
    steps : int
        Number of steps of the whole trial, as observed in other trials.
    """
    if condition == GRADIENTS_ZERO:
        return LostWatchpoint("gradients are back", "tensor_too_large", "matrix_gradients", 1, {"abs_mean_gt": 0.0})
    pace = {"abs_mean_update_ratio_gt": LEAST_MOVED / steps}
    return LostWatchpoint("weights move", "weight_change_too_large", "matrices", 1, pace)
