"""Updates in which an optimizer amplifies rounding errors.

Optimizers such as Adam divide each element of a gradient by its own magnitude. An element that is zero up to rounding,
such as the gradient of a bias before a batch norm, or of the keys' bias in attention, then moves its weight by a full
step, in a direction that only rounding decides. Without elements, the optimizer's own magnitudes show whether there may
be such elements.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from tensight.compare.renaming import plain_name
from tensight.graph.operator_facts import plain_type

if TYPE_CHECKING:
    from tensight.compare.runs.steps import RunToCompare

_MAGNITUDES = {"exp_avg_sq": 0.5, "square_avg": 0.5, "mean_square": 0.5, "sum": 0.5, "exp_inf": 1.0}
"""States by which optimizers divide, in PyTorch's words, and the power of them that is a magnitude of the gradient."""

_SIGNS = re.compile("sign|lion|rprop")
"""Types of optimizers and operators that keep nothing but the sign of an element."""

_BY_CHANCE = 32
"""Of ``n`` elements of a gradient, the smallest is by chance about ``n`` times smaller than a typical one, and rarely
more than this times smaller than that."""


def keeps_signs_only(kind: str) -> bool:
    """Return whether an optimizer's operator makes equally large steps of all elements, and has no magnitudes of them.

    Parameters
    ----------
    kind : str
        Type of the operator: ``ApplyLion``, ``sign``.
    """
    return _SIGNS.search(plain_type(kind)) is not None


def divides_by_magnitude(run: RunToCompare, weight: str) -> bool:
    """Return whether the optimizer of a weight divides each element of its gradient by a magnitude of that element.

    Parameters
    ----------
    run : RunToCompare
    weight : str
    """
    return bool(_magnitudes(run, weight))


def may_hold_rounding_alone(run: RunToCompare, weight: str, iteration: int) -> bool:
    """Return whether some elements of a weight's gradient may be rounding errors alone.

    The magnitudes of such elements are much smaller than even the smallest would be by chance, in the first step in
    which all are known and not zero. Without such a step, it is assumed of biases and other vectors, whose gradients
    are sums that may cancel element by element.

    Parameters
    ----------
    run : RunToCompare
    weight : str
    iteration : int
        The last step that counts, from 0.
    """
    is_vector = False
    for name in _magnitudes(run, weight) or [weight]:
        for row in run.rows_of(name, iteration):
            statistics = run.statistics(row)
            is_vector |= len(run.shape(row)) <= 1
            power = _MAGNITUDES.get(_state(name))
            if power is None or statistics["min"] <= 0:
                continue
            smallest, typical = (math.pow(statistics[key], power) for key in ("min", "mean"))
            return smallest * _BY_CHANCE * statistics["count"] < typical
    return is_vector


def _magnitudes(run: RunToCompare, weight: str) -> list[str]:
    return [name for name in run.states_of.get(weight, ()) if _state(name) in _MAGNITUDES]


def _state(name: str) -> str:
    return plain_name(name.partition(".")[0])
