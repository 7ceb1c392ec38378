"""Which error of an output rounding explains, given the errors of what the operator read.

An operator rounds: its output may be wrong by a few units in the last place of the largest tensor it worked on. And it
passes the errors of its inputs on, some of them amplified. What is beyond both is a difference of the operator itself.
The bounds are those of a backward error analysis (Higham, Accuracy and Stability of Numerical Algorithms, chapter 3),
in norms and with a margin, because how often an operator sums is not known.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from tensight.compare.runs.measures import UNIT_ROUNDOFF
from tensight.compare.runs.steps import Phase
from tensight.graph.operator_facts import ELEMENTWISE_PRODUCTS, LINEAR, comparable_type

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tensight.compare.runs.measures import TensorDifference
    from tensight.compare.runs.steps import Operation

ROUNDING = 16.0
"""Roundings that an operator may add, in unit roundoffs of its largest tensor."""

ROUNDING_BACKWARD = 64.0
"""The same of an operator of the backward pass, which adds up several gradients."""

AMPLIFICATION = 8.0
"""How much larger than its inputs' error an output's may be."""

_SUMS = frozenset({"sum", "mean"})


@dataclass(frozen=True, slots=True)
class Tolerance:
    """What counts as equal.

    Attributes
    ----------
    rtol : float or None
        Relative error of a norm that is allowed everywhere; None derives it from element types and inputs.
    atol : float
        Norm of a difference that is always allowed.
    overrides : mapping of str to float
        Relative tolerances by pattern of an operator's name (``*`` and ``?``); the first that fits counts.
    noise : mapping of str to float
        Relative error of each operator's output in repeated runs of A.
    """

    rtol: float | None = None
    atol: float = 0.0
    overrides: Mapping[str, float] = field(default_factory=dict)
    noise: Mapping[str, float] = field(default_factory=dict)

    def chosen(self, name: str) -> float | None:
        """Return the relative tolerance that a person chose for an operator; None if it is derived."""
        for pattern, rtol in self.overrides.items():
            if fnmatchcase(name, pattern):
                return rtol
        return self.rtol


def allowed_error(
    op: Operation,
    output: TensorDifference,
    inputs: Sequence[TensorDifference],
    tolerance: Tolerance,
    *,
    is_mixed: bool = False,
) -> float:
    """Return which norm of the difference of an output is explained.

    Parameters
    ----------
    op : Operation
        Of A.
    output : TensorDifference
    inputs : sequence of TensorDifference
        Of everything that the operator read and of which something is known.
    tolerance : Tolerance
    is_mixed : bool
        Whether one run computes in a narrower element type as a whole.
    """
    chosen = tolerance.chosen(op.name)
    if chosen is not None:
        return (chosen * output.norm if output.norm else 0.0) + tolerance.atol
    unit = max([output.roundoff, *(given.roundoff for given in inputs)], default=0.0)
    are_inputs_alike = inputs and all(given.dtypes[0] == given.dtypes[1] for given in inputs)
    if output.dtypes[0] != output.dtypes[1] and are_inputs_alike and not is_mixed:
        # One run computes this operator in another element type than what it read.
        unit = min(UNIT_ROUNDOFF.get(dtype, 0.0) for dtype in output.dtypes)
    summed = _sum_scale(op, output, inputs)
    scale = output.norm
    if comparable_type(op.type) not in ELEMENTWISE_PRODUCTS:
        scale = max([scale, *(given.norm for given in inputs if given.count == output.count)])
    carried = max((_carried(op, given) for given in inputs), default=0.0)
    roundings = ROUNDING_BACKWARD if op.phase is Phase.BACKWARD else ROUNDING
    rounding = roundings * unit * max(scale, summed)
    noise = 4 * tolerance.noise.get(op.name, 0.0) * output.norm
    if comparable_type(op.type) in _SUMS or _is_normalisation(comparable_type(op.type)):
        scale = max(scale, summed)
    return rounding + AMPLIFICATION * carried * scale + noise + tolerance.atol


def _is_normalisation(kind: str) -> bool:
    return "norm" in kind and not kind.endswith("grad")


def _carried(op: Operation, given: TensorDifference) -> float:
    """Return the relative error that an input may cause."""
    if not given.is_comparable or math.isinf(given.relative):
        return math.inf
    error = max(given.relative, given.spread_relative)
    if given.from_values and comparable_type(op.type).removesuffix("grad") not in LINEAR:
        # exp(x) has the relative error that x has absolutely.
        error = max(error, given.max_absolute if given.roundoff else 0.0)
    if not given.from_values and not given.is_bit_equal:
        # Statistics show less than there is.
        error = max(4 * error, ROUNDING * given.roundoff)
    return error


def _sum_scale(op: Operation, output: TensorDifference, inputs: Sequence[TensorDifference]) -> float:
    """Return the size of the terms of a sum that the output may be: gradients of weights cancel.

    The gradient of a matrix is a product of two tensors, with ``‖Δ‖ ≤ u·‖dy‖·‖x‖``; that of a bias is a sum over rows,
    with ``‖Δ‖ ≤ u·√rows·‖dy‖``. So is a sum of its own, and a mean, such as that which a normalisation puts out, too,
    is that over the number of rows.
    """
    larger = [given for given in inputs if given.count > output.count]
    if not larger:
        return 0.0
    kind = comparable_type(op.type)
    gradient = larger[0]
    rows = math.sqrt(gradient.count / max(output.count, 1))
    if kind in _SUMS or _is_normalisation(kind):
        return gradient.norm * (rows if kind == "sum" else 1 / rows)
    if not kind.endswith("grad"):
        return 0.0
    others = [given.norm for given in larger[1:] if given.roundoff]
    if len(output.shapes[0]) >= 2 and others:
        return gradient.norm * min(others)
    return gradient.norm * rows
