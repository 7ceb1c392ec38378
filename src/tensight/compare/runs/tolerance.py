"""The error of an output that rounding and the errors of the inputs explain.

An operator rounds: its output may be wrong by a few units in the last place of the largest tensor it worked on. It also
propagates the errors of its inputs, some of them amplified. Any larger difference arises in the operator itself. The
bounds are those of a backward error analysis (Higham, Accuracy and Stability of Numerical Algorithms, chapter 3), in
norms and with a margin, because the number of summations in an operator is unknown.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from tensight.compare.runs.measures import UNIT_ROUNDOFF
from tensight.compare.runs.steps import Phase
from tensight.graph.operator_facts import ELEMENTWISE_PRODUCTS, LINEAR, comparable_type, is_rounded_once, normalizes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tensight.compare.runs.measures import TensorDifference
    from tensight.compare.runs.steps import Operation

ROUNDING = 16.0
"""Rounding error that an operator may add, in unit roundoffs of its largest tensor."""

ROUNDING_BACKWARD = 64.0
"""The same for operators of the backward pass, which add up several gradients."""

ROUNDING_ONCE = 4.0
"""The same for an operator that reads bit-equal inputs, and rounds to a narrower type what it computes in float32."""

_WIDE = UNIT_ROUNDOFF["float32"]
"""Unit roundoff of the type in which sums of narrower elements are added up."""

AMPLIFICATION = 8.0
"""Factor by which the error of an output may exceed that of the inputs."""

_SUMS = frozenset({"sum", "mean"})


@dataclass(frozen=True, slots=True)
class Tolerance:
    """The allowed errors.

    Attributes
    ----------
    rtol : float or None
        Allowed relative error of a norm, for all operators; None derives it from element types and inputs.
    atol : float
        Norm of a difference that is always allowed.
    overrides : mapping of str to float
        Relative tolerances by pattern of an operator's name (``*`` and ``?``); the first match applies.
    noise : mapping of str to float
        Relative error of each operator's output in repeated runs of A.
    """

    rtol: float | None = None
    atol: float = 0.0
    overrides: Mapping[str, float] = field(default_factory=dict)
    noise: Mapping[str, float] = field(default_factory=dict)

    def chosen(self, name: str) -> float | None:
        """Return the relative tolerance that the user chose for an operator; None if it is derived."""
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
    """Return the largest norm of an output's difference that is explained.

    Parameters
    ----------
    op : Operation
        Operator of A.
    output : TensorDifference
        Difference of the output.
    inputs : sequence of TensorDifference
        Differences of those inputs that could be compared.
    tolerance : Tolerance
        Errors that the user allows.
    is_mixed : bool
        Whether one run as a whole computes in a narrower element type.
    """
    chosen = tolerance.chosen(op.name)
    if chosen is not None:
        return (chosen * output.norm if output.norm else 0.0) + tolerance.atol
    unit = max([output.roundoff, *(given.roundoff for given in inputs)], default=0.0)
    are_inputs_alike = inputs and all(given.dtypes[0] == given.dtypes[1] for given in inputs)
    if output.dtypes[0] != output.dtypes[1] and are_inputs_alike and not is_mixed:
        # One run computes this operator in an element type other than that of its inputs.
        unit = min(UNIT_ROUNDOFF.get(dtype, 0.0) for dtype in output.dtypes)
    summed = _sum_scale(op, output, inputs)
    scale = output.norm
    if comparable_type(op.type) not in ELEMENTWISE_PRODUCTS:
        scale = max([scale, *(given.norm for given in inputs if given.count == output.count)])
    carried = max((_carried(op, given) for given in inputs), default=0.0)
    roundings = ROUNDING_BACKWARD if op.phase is Phase.BACKWARD else ROUNDING
    rounding = roundings * unit * max(scale, summed)
    if unit > _WIDE and inputs and all(given.is_bit_equal for given in inputs):
        if op.phase is Phase.BACKWARD:
            rounding = ROUNDING * unit * output.norm + roundings * _WIDE * max(scale, summed)
        elif is_rounded_once(op.type):
            rounding = ROUNDING_ONCE * unit * output.norm + roundings * _WIDE * max(scale, summed)
    noise = 4 * tolerance.noise.get(op.name, 0.0) * output.norm
    if comparable_type(op.type) in _SUMS or _is_normalisation(comparable_type(op.type)):
        scale = max(scale, summed)
    return rounding + AMPLIFICATION * carried * scale + noise + tolerance.atol


def _is_normalisation(kind: str) -> bool:
    return normalizes(kind) and not kind.endswith("grad")


def _carried(op: Operation, given: TensorDifference) -> float:
    """Return the relative error of the output that an input may cause."""
    if not given.is_comparable or math.isinf(given.relative):
        return math.inf
    error = max(given.relative, given.spread_relative)
    if given.from_values and comparable_type(op.type).removesuffix("grad") not in LINEAR:
        # The relative error of exp(x) is the absolute error of x.
        error = max(error, given.max_absolute if given.roundoff else 0.0)
    if not given.from_values and not given.is_bit_equal:
        # Statistics give only a lower bound.
        error = max(4 * error, ROUNDING * given.roundoff)
    return error


def _sum_scale(op: Operation, output: TensorDifference, inputs: Sequence[TensorDifference]) -> float:
    """Return the norm of the terms if the output is a sum, since terms of weight gradients cancel; otherwise 0.

    The gradient of a matrix is a product of two tensors, with ``‖Δ‖ ≤ u·‖dy‖·‖x‖``; that of a bias is a sum over rows,
    with ``‖Δ‖ ≤ u·√rows·‖dy‖``. The same holds for the operator ``sum``; for a mean, also as an output of a
    normalisation, it is divided by the number of rows.
    """
    larger = [given for given in inputs if given.count > output.count]
    if not larger:
        return 0.0
    kind = comparable_type(op.type)
    gradient = larger[0]
    rows = math.sqrt(gradient.count / max(output.count, 1))
    if kind in _SUMS or _is_normalisation(kind):
        return gradient.norm * (rows if kind == "sum" else 1 / rows)
    if not kind.endswith(("grad", "backward")):
        return 0.0
    others = [given.norm for given in larger[1:] if given.roundoff]
    if len(output.shapes[0]) >= 2 and others:
        return gradient.norm * min(others)
    return gradient.norm * rows
