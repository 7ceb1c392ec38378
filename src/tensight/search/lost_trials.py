"""Which trials may be lost, though nothing in them is wrong by itself: they train nothing, or less than anybody wants.

The recommended watchpoints find what breaks a training. Between wide bounds most bad trials break nothing: their
learning rate is so small that nothing moves, or the network has died and lets no gradient through. Here stands what a
search watches for in addition to the recommended set.

A training that gets nowhere ends where it is. So such a trial is lost only if where it is, is bad: what it is compared
with is in `Study.rank`.
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
"""Conditions of a training that gets nowhere, each in words, if they hit on all tensors that are watched for them.

All of them: of two networks against each other, the one that has won has no gradients for a while.
"""

LATE = 0.5
"""Share of the steps of a trial after which nothing is a loss any more: what it has reached by then counts."""

LEAST_MOVED = 0.03
"""Of its own size, what a weight matrix moves at least in a trial that trains, all its updates taken together.

Chosen on 360 trials of the scripts in `benchmarks/searched`, trained to their end by a recorder that is not kept: 15
moved less. That is no proof of being bad: a network that is near its goal when it begins, as one that is fine-tuned,
needs no more.
"""

BEGINNING = 0.1
"""Share of the steps of a trial after which a warm-up is over as a rule."""

LEAST_STEPS = 10
"""That something lasts before it counts, so that no single batch and no warm-up from zero ends a trial."""


@dataclass(frozen=True)
class LostWatchpoint:
    """A watchpoint that a search sets beside the recommended ones.

    Attributes
    ----------
    name : str
        For people.
    condition : str
    on : str
        Which tensors.
    persistence : int
        In how many steps in a row it must hold.
    parameters : dict of str to float
        Thresholds.
    """

    name: str
    condition: str
    on: str
    persistence: int
    parameters: Mapping[str, float]


def gradients_zero() -> LostWatchpoint:
    """Return what finds networks through which no gradient gets: those of all matrices are nothing but zeros."""
    return LostWatchpoint(
        "gradients stay zero", GRADIENTS_ZERO, "matrix_gradients", LEAST_STEPS, {"zero_percentage_ge": 100.0}
    )


def is_late(step: int, whole_steps: int | None) -> bool:
    """Whether a trial has done so much that it is not ended for getting nowhere.

    Parameters
    ----------
    step : int
    whole_steps : int or None
        Of the whole trial; None if that is not known.
    """
    return whole_steps is not None and step > half_of(whole_steps)


def half_of(steps: int) -> int:
    """Return the last step of a trial that is not late, of so many in all."""
    return int(LATE * steps)


def beginning_of(steps: int) -> int:
    """Return how many steps of a trial are its beginning.

    Parameters
    ----------
    steps : int
        Of the whole trial.
    """
    return max(LEAST_STEPS, math.ceil(BEGINNING * steps))


def weights_still(steps: int) -> LostWatchpoint:
    """Return what finds trainings in which no weight matrix would move by `LEAST_MOVED` to the end.

    In each step of the beginning every matrix changes so little that at this pace it never gets anywhere. Only the
    beginning is judged: a learning rate that falls to zero at the end is meant to.

    Parameters
    ----------
    steps : int
        Of the whole trial, as others had them.
    """
    pace = {"abs_mean_update_ratio_lt": LEAST_MOVED / steps}
    return LostWatchpoint("weights stand still", WEIGHTS_STILL, "matrices", beginning_of(steps), pace)


def gets_on(condition: str, steps: int) -> LostWatchpoint:
    """Return what finds that a training gets somewhere again, of which a condition said that it gets nowhere.

    Parameters
    ----------
    condition : str
        One of `GETS_NOWHERE`.
    steps : int
        Of the whole trial, as others had them.
    """
    if condition == GRADIENTS_ZERO:
        return LostWatchpoint("gradients are back", "tensor_too_large", "matrix_gradients", 1, {"abs_mean_gt": 0.0})
    pace = {"abs_mean_update_ratio_gt": LEAST_MOVED / steps}
    return LostWatchpoint("weights move", "weight_change_too_large", "matrices", 1, pace)
