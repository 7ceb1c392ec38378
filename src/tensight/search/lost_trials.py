"""Which trials are lost, though nothing in them is wrong by itself: they train nothing, or less than anybody wants.

The recommended watchpoints find what breaks a training. Between wide bounds most bad trials break nothing: their
learning rate is so small that nothing moves, or the network has died and lets no gradient through. What a
search watches for beside the recommended set stands here, and of how many tensors it must be true.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

STANDS_STILL = "weight_change_too_small"
GRADIENTS_ZERO = "tensor_all_zero"

LOST_WHERE: Mapping[str, float] = {"weight_not_changed": 1.0, STANDS_STILL: 1.0, GRADIENTS_ZERO: 1.0}
"""Share of the watched tensors on which a warning must hit in one step for a trial to be lost.

All of them: of two networks against each other, the one that has won has no gradients for a while.
"""

LATE = 0.5
"""Share of the steps of a trial after which nothing is a loss any more: what it has reached by then counts."""

LEAST_MOVED = 0.03
"""Of its own size, what a weight matrix moves at least in a trial that trains, all its updates taken together.

Of 360 recorded trials of the problems of `benchmarks/search.py` 15 moved less, none of them better than the median of
its problem. With 0.05 there would have been three: networks that were near their goal when they began. So are those
that are fine-tuned.
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


def lost_where(step: int, whole_steps: int | None) -> Mapping[str, float]:
    """Return on what share of the watched tensors each condition must hit at a step for a trial to be lost.

    Parameters
    ----------
    step : int
    whole_steps : int or None
        Of the whole trial; None if that is not known.
    """
    is_late = whole_steps is not None and step > LATE * whole_steps
    return {} if is_late else LOST_WHERE


def beginning_of(steps: int) -> int:
    """Return how many steps of a trial are its beginning.

    Parameters
    ----------
    steps : int
        Of the whole trial.
    """
    return max(LEAST_STEPS, math.ceil(BEGINNING * steps))


def stands_still(steps: int) -> LostWatchpoint:
    """Return what finds trainings in which no weight matrix would move by `LEAST_MOVED` to the end.

    In each step of the beginning every matrix changes so little that at this pace it never gets anywhere. Only the
    beginning is judged: a learning rate that falls to zero at the end is meant to.

    Parameters
    ----------
    steps : int
        Of the whole trial, as others had them.
    """
    pace = {"abs_mean_update_ratio_lt": LEAST_MOVED / steps}
    return LostWatchpoint("weights stand still", STANDS_STILL, "matrices", beginning_of(steps), pace)
