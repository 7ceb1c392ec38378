"""The recommended watchpoints: a set with thresholds that suit most trainings.

It is the original's set, in its order, with two watchpoints that the original declares but never creates, because it
cannot tell which weights are trainable: ``weight_not_changed`` and ``weight_change_too_small``.

A training process with Tensight's agent gets a different set. It checks hidden layers unit by unit, compares norms with
each other instead of with fixed numbers, and requires that a problem persists, so that it can be left on in a healthy
training.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tensight.watchpoints.catalogue import condition
from tensight.watchpoints.checks import ConditionCheck
from tensight.watchpoints.watchpoint import Selector, Severity, Watchpoint

if TYPE_CHECKING:
    from tensight.watchpoints.conditions import Platform


NAMES_BEGIN = "recommend_"
"""What the names of recommended watchpoints begin with."""


@dataclass(frozen=True, slots=True)
class Recommendation:
    """A recommended watchpoint before it has an id.

    Attributes
    ----------
    name : str
        The display name of its hits, as in the original.
    check : ConditionCheck
        The check.
    selection : Selector
        The watched tensors.
    severity : Severity
        ERROR if a hit breaks the training, WARNING if it may have a harmless cause.
    in_original : bool
        False for watchpoints that the original declares but never creates.
    persistence : int
        Number of steps in a row in which the check must hit.
    harmless : str
        When a hit is expected and harmless; empty if never.
    """

    name: str
    check: ConditionCheck
    selection: Selector
    severity: Severity = Severity.WARNING
    in_original: bool = True
    harmless: str = ""
    persistence: int = 1

    @property
    def initial_only(self) -> bool:
        """Whether it checks only the state before the first step."""
        return self.check.condition.initial_only


def _sigmoid(value: float) -> float:
    return 1.0 / (1.0 + math.exp(-value))


def _range(start: float, end: float, **threshold: float) -> ConditionCheck:
    return ConditionCheck("activation_range", {"range_start_inclusive": start, "range_end_inclusive": end, **threshold})


RECOMMENDED: tuple[Recommendation, ...] = (
    Recommendation(
        "recommend_weight_initialization_watchpoint",
        ConditionCheck("weight_initialization", {"zero_percentage_ge": 100}),
        Selector.parse("weights"),
        harmless="biases, and the shift of a normalisation layer, usually start at zero",
    ),
    Recommendation(
        "recommend_weight_change_too_large_watchpoint",
        ConditionCheck("weight_change_too_large", {"abs_mean_update_ratio_gt": 1}),
        Selector.parse("weights"),
        harmless="a weight that starts at zero, such as a bias, changes by far more than its size in its first update",
    ),
    Recommendation(
        "recommend_weight_not_changed_watchpoint",
        ConditionCheck("weight_not_changed", {"rtol": 1e-5, "atol": 1e-8}),
        Selector.parse("trainable_weights"),
        in_original=False,
        harmless="a step that loss scaling skips, gradient accumulation between two updates, and a warm-up that starts"
        " at a learning rate of zero leave every weight as it was",
    ),
    Recommendation(
        "recommend_weight_change_too_small_watchpoint",
        ConditionCheck("weight_change_too_small", {"abs_mean_update_ratio_lt": 1e-4}),
        Selector.parse("trainable_weights"),
        in_original=False,
        harmless="late in a training, with a decayed learning rate, and while fine-tuning, small updates are intended",
    ),
    Recommendation(
        "recommend_gradient_vanishing_watchpoint",
        ConditionCheck("gradient_vanishing", {"abs_mean_lt": 1e-9}),
        Selector.parse("gradients"),
        harmless="masks and integer tensors in the backward pass, and the gradient of a branch that the batch does not"
        " reach, are zero by construction",
    ),
    Recommendation(
        "recommend_operator_overflow_watchpoint",
        ConditionCheck("operator_overflow"),
        Selector.parse("all"),
        severity=Severity.ERROR,
        harmless="dynamic loss scaling provokes an overflow now and then, and skips that step",
    ),
    Recommendation(
        "recommend_tensor_overflow_watchpoint",
        ConditionCheck("tensor_overflow"),
        Selector.parse("all"),
        severity=Severity.ERROR,
        harmless="attention masks may hold -Inf on purpose, and dynamic loss scaling provokes an overflow now and then",
    ),
    Recommendation(
        "recommend_tensor_all_zero_watchpoint",
        ConditionCheck("tensor_all_zero", {"zero_percentage_ge": 100}),
        Selector.parse("all"),
        harmless="biases and optimizer moments before their first update, masks, labels of one class, step counters and"
        " status flags of operators are zero without being wrong",
    ),
    Recommendation(
        "recommend_tanh_activation_range_watchpoint",
        _range(math.tanh(-8.8), math.tanh(8.8), range_percentage_lt=0.1),
        Selector.parse("activation:tanh"),
    ),
    Recommendation(
        "recommend_sigmoid_activation_range_watchpoint",
        _range(_sigmoid(-16.2), _sigmoid(16.2), range_percentage_lt=0.1),
        Selector.parse("activation:sigmoid"),
    ),
    Recommendation(
        "recommend_relu_activation_range_watchpoint",
        _range(-1, 0, range_percentage_gt=99.9),
        Selector.parse("activation:relu,reluv2"),
        harmless="a ReLU whose input is one value, or a gate meant to stay closed, may be off in a whole batch",
    ),
)
"""The recommended set, in the original's order."""

_LASTS = 5
"""Steps after which a state of the network is not an accident of one batch or of the first updates."""

_STAYS = 10
"""Steps after which an unchanged weight is not trained: longer than a warm-up from zero leaves weights unchanged."""

_WHERE_LITTLE_IS_LEFT = 0.01
"""A unit is saturated where the slope of its function is less than this share of the maximum."""

_DEAD = 75
"""Percentage of dead units that cannot be due to chance.

If all samples still look alike to a layer, as they do to the last layers of a network that has just started training,
each of its units is either on for all samples or off for all of them. About half of the units are off then, and
occasionally two thirds in a narrow layer.
"""

_TANH_LIMIT = math.sqrt(1 - _WHERE_LITTLE_IS_LEFT)
_SIGMOID_LIMIT = (1 + _TANH_LIMIT) / 2


def _saturated(start: float, end: float) -> ConditionCheck:
    values = {"range_start_inclusive": start, "range_end_inclusive": end, "saturated_unit_percentage_gt": 50}
    return ConditionCheck("saturated_units", values)


LIVE_RECOMMENDED: tuple[Recommendation, ...] = (
    Recommendation(
        "recommend_weight_initialization_watchpoint",
        ConditionCheck("weight_initialization", {"zero_percentage_ge": 100}),
        Selector.parse("inner_matrices"),
    ),
    Recommendation(
        "recommend_unintended_overflow_watchpoint",
        ConditionCheck("unintended_overflow"),
        Selector.parse("all"),
        severity=Severity.ERROR,
        in_original=False,
    ),
    Recommendation(
        "recommend_weight_growth_watchpoint",
        ConditionCheck("weight_growth", {"norm_growth_gt": 10}),
        Selector.parse("matrices"),
        severity=Severity.ERROR,
        in_original=False,
    ),
    Recommendation(
        "recommend_weight_not_changed_watchpoint",
        # Vectors may be constant by construction: the gradient of a bias before a normalisation is zero.
        ConditionCheck("weight_not_changed", {"rtol": 0, "atol": 0}),
        Selector.parse("matrices"),
        in_original=False,
        persistence=_STAYS,
        harmless="a part of the network that only some batches use",
    ),
    Recommendation(
        "recommend_gradient_growth_watchpoint",
        ConditionCheck("gradient_growth", {"norm_surge_gt": 100}),
        Selector.parse("matrix_gradients"),
        in_original=False,
    ),
    Recommendation(
        "recommend_gradient_imbalance_watchpoint",
        ConditionCheck("gradient_imbalance", {"depth_ratio_gt": 1e3, "depth_ratio_lt": 1e-5}),
        Selector.parse("matrix_gradients"),
        in_original=False,
        persistence=_LASTS,
        harmless="a last layer that begins at zero, during a long warm-up",
    ),
    Recommendation(
        "recommend_unintended_zeros_watchpoint",
        ConditionCheck("unintended_zeros", {"unintended_zero_percentage_ge": 100}),
        Selector.parse("hidden"),
        in_original=False,
        persistence=_LASTS,
        harmless="a branch that is switched off without another one beside it",
    ),
    Recommendation(
        "recommend_dead_units_watchpoint",
        ConditionCheck("dead_units", {"dead_unit_percentage_gt": _DEAD}),
        Selector.parse("hidden_activation:relu,relu6"),
        in_original=False,
        persistence=_LASTS,
    ),
    Recommendation(
        "recommend_saturated_tanh_watchpoint",
        _saturated(-_TANH_LIMIT, _TANH_LIMIT),
        Selector.parse("hidden_activation:tanh"),
        in_original=False,
        persistence=_LASTS,
    ),
    Recommendation(
        "recommend_saturated_sigmoid_watchpoint",
        _saturated(1 - _SIGMOID_LIMIT, _SIGMOID_LIMIT),
        Selector.parse("hidden_activation:sigmoid"),
        in_original=False,
        persistence=_LASTS,
        harmless="gates that a network has learnt to keep open or closed",
    ),
)
"""The recommended set for a running training with Tensight's agent."""


def recommended(*conditions: str, as_original: bool = False) -> tuple[Recommendation, ...]:
    """Return the recommended set, or the part of it that uses certain conditions.

    Parameters
    ----------
    *conditions : str
        Ids or abbreviations of conditions; all if none is given.
    as_original : bool
        Leave out the watchpoints that the original never creates.

    Returns
    -------
    tuple of Recommendation
        In the original's order.

    Raises
    ------
    InputError
        There is no such condition.
    """
    condition_ids = {condition(name).id for name in conditions}
    return tuple(
        spec
        for spec in RECOMMENDED
        if (not condition_ids or spec.check.condition.id in condition_ids) and (spec.in_original or not as_original)
    )


def recommended_watchpoints(
    *,
    first_id: int = 1,
    initial: bool = False,
    platform: Platform | None = None,
    as_original: bool = False,
    live: bool = False,
) -> tuple[Watchpoint, ...]:
    """Return the recommended set as watchpoints with consecutive ids.

    Parameters
    ----------
    first_id : int
        The id of the first watchpoint.
    initial : bool
        Include watchpoints that check only the state before the first step.
    platform : Platform or None
        Leave out what cannot be checked on this kind of device; None leaves out nothing.
    as_original : bool
        Leave out the watchpoints that the original never creates.
    live : bool
        Return the set for a running training with Tensight's agent.

    Returns
    -------
    tuple of Watchpoint
        In the original's order.
    """
    specs = [
        spec
        for spec in (LIVE_RECOMMENDED if live else recommended(as_original=as_original))
        if (initial or not spec.initial_only) and (platform is None or platform in spec.check.condition.platforms)
    ]
    return tuple(
        Watchpoint(number, spec.name, spec.check, spec.selection, spec.severity, spec.persistence)
        for number, spec in enumerate(specs, first_id)
    )
