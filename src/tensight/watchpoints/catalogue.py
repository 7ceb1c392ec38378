"""The catalogue of conditions: the original's seventeen, its legacy ones, Tensight's own, and those of users.

Ids, abbreviations, wire numbers, parameters, ranges and defaults are the original's, so a watchpoint set there means
the same here. Two declarations differ on purpose: every condition except ``operator_overflow`` is also available on a
CPU, and ``epsilon`` is used (the original accepts it but computes with 1e-9).
"""

from __future__ import annotations

import difflib
from types import MappingProxyType
from typing import TYPE_CHECKING

from tensight.errors import InputError
from tensight.watchpoints.conditions import (
    ALL_PLATFORMS,
    Comparator,
    Condition,
    Parameter,
    ParameterKind,
    Platform,
    Target,
    ValueRange,
)
from tensight.watchpoints.quantities import DEFAULT_ATOL, DEFAULT_EPSILON, QUANTITIES
from tensight.watchpoints.units import ALL_OF_UNIT, MOST_OF_UNIT, UNIT_SIZE

if TYPE_CHECKING:
    from collections.abc import Mapping

_COMPARATORS = {
    "gt": Comparator.GREATER,
    "lt": Comparator.LESS,
    "ge": Comparator.AT_LEAST,
    "le": Comparator.AT_MOST,
}


def _threshold(
    name: str,
    values: ValueRange = ValueRange.FINITE,
    default: float | None = None,
    requires: tuple[str, ...] = (),
) -> Parameter:
    """Declare a threshold whose name contains the quantity and the comparison: ``abs_mean_gt``."""
    quantity, _, suffix = name.rpartition("_")
    return Parameter(
        name,
        values=values,
        default=default,
        quantity=QUANTITIES[quantity],
        comparator=_COMPARATORS[suffix],
        requires=requires,
    )


_RANGE = ("range_start_inclusive", "range_end_inclusive")
_ZERO_PERCENTAGE = _threshold("zero_percentage_ge", ValueRange.PERCENTAGE, 100.0)
_TOO_LARGE = (
    _threshold("abs_mean_gt", ValueRange.NOT_NEGATIVE),
    _threshold("max_gt"),
    _threshold("min_gt"),
    _threshold("mean_gt"),
)
_TOO_SMALL = (
    _threshold("abs_mean_lt", ValueRange.NOT_NEGATIVE),
    _threshold("max_lt"),
    _threshold("min_lt"),
    _threshold("mean_lt"),
)
_VALUE_RANGE = (
    Parameter("range_start_inclusive", ParameterKind.SUPPORT),
    Parameter("range_end_inclusive", ParameterKind.SUPPORT),
    _threshold("range_percentage_lt", ValueRange.PERCENTAGE, requires=_RANGE),
    _threshold("range_percentage_gt", ValueRange.PERCENTAGE, requires=_RANGE),
    _threshold("max_min_lt", ValueRange.POSITIVE),
    _threshold("max_min_gt", ValueRange.NOT_NEGATIVE),
)
_EPSILON = Parameter(
    "epsilon", ParameterKind.HIDDEN, ValueRange.NOT_NEGATIVE, DEFAULT_EPSILON, ignored_by_original=True
)
_UNCHANGED = (
    # The order rtol, atol matters: the original's client reads the two by position.
    Parameter(
        "rtol",
        values=ValueRange.NOT_NEGATIVE,
        default=1e-5,
        quantity=QUANTITIES["required_rtol"],
        comparator=Comparator.AT_MOST,
    ),
    Parameter("atol", ParameterKind.HIDDEN, ValueRange.NOT_NEGATIVE, DEFAULT_ATOL),
    Parameter("equal_nan", ParameterKind.HIDDEN, ValueRange.FALSE, False),
)
_CHANGE_TOO_LARGE = (_threshold("abs_mean_update_ratio_gt", ValueRange.NOT_NEGATIVE, 0.1), _EPSILON)
_CHANGE_TOO_SMALL = (_threshold("abs_mean_update_ratio_lt", ValueRange.NOT_NEGATIVE, 1e-4), _EPSILON)
_INITIALIZATION = (_ZERO_PERCENTAGE, _threshold("max_gt"), _threshold("min_lt"))

_UNIT_SIZE = Parameter("unit_size", ParameterKind.HIDDEN, ValueRange.NOT_NEGATIVE, float(UNIT_SIZE))
_DEAD_UNITS = (
    _threshold("dead_unit_percentage_gt", ValueRange.PERCENTAGE, 50.0),
    Parameter("zeros_of_unit", ParameterKind.HIDDEN, ValueRange.PERCENTAGE, ALL_OF_UNIT),
    _UNIT_SIZE,
)
_SATURATED_UNITS = (
    *_VALUE_RANGE[:2],
    _threshold("saturated_unit_percentage_gt", ValueRange.PERCENTAGE, 50.0, _RANGE),
    Parameter("outside_of_unit", ParameterKind.HIDDEN, ValueRange.PERCENTAGE, MOST_OF_UNIT),
    _UNIT_SIZE,
)
_UNINTENDED_ZEROS = (_threshold("unintended_zero_percentage_ge", ValueRange.PERCENTAGE, 100.0),)
_WEIGHT_GROWTH = (_threshold("norm_growth_gt", ValueRange.POSITIVE, 10.0),)
_GRADIENT_GROWTH = (_threshold("norm_surge_gt", ValueRange.POSITIVE, 100.0),)
_GRADIENT_IMBALANCE = (
    _threshold("depth_ratio_gt", ValueRange.POSITIVE, 1e3),
    _threshold("depth_ratio_lt", ValueRange.NOT_NEGATIVE, 1e-5),
)

_WIRE_NAMES = {
    0: "nan",
    1: "inf",
    2: "overflow",
    13: "tensor_general_overflow",
    14: "tensor_initialization",
    15: "tensor_too_large",
    16: "tensor_too_small",
    17: "tensor_all_zero",
    18: "tensor_change_too_large",
    19: "tensor_change_too_small",
    20: "tensor_not_changed",
    21: "tensor_range",
}


def _named(
    condition_id: str, abbreviation: str, number: int, target: Target, parameters: tuple[Parameter, ...] = ()
) -> Condition:
    """Declare one of the seventeen conditions."""
    flags = {2: "overflowed", 13: "non_finite_count"}
    return Condition(
        condition_id,
        abbreviation,
        target,
        parameters,
        flag=QUANTITIES[flags[number]] if number in flags else None,
        wire_number=number,
        wire_name=_WIRE_NAMES[number],
        platforms=frozenset({Platform.ASCEND}) if number == 2 else ALL_PLATFORMS,
        initial_only=number == 14,
    )


def _own(
    number: int,
    condition_id: str,
    abbreviation: str,
    target: Target,
    parameters: tuple[Parameter, ...] = (),
    flag: str = "",
) -> Condition:
    """Declare a condition that the original does not have."""
    return Condition(
        condition_id,
        abbreviation,
        target,
        parameters,
        flag=QUANTITIES[flag] if flag else None,
        wire_number=number,
        wire_name=condition_id,
    )


def _legacy_threshold(number: int, name: str) -> Condition:
    """Declare a legacy condition: one threshold, always called ``param``."""
    quantity, _, suffix = name.rpartition("_")
    parameter = Parameter("param", quantity=QUANTITIES[quantity], comparator=_COMPARATORS[suffix])
    return Condition(name, "", Target.TENSOR, (parameter,), wire_number=number, wire_name=name, legacy=True)


def _legacy_flag(number: int, name: str, quantity: str) -> Condition:
    flag = QUANTITIES[quantity]
    return Condition(name, "", Target.TENSOR, flag=flag, wire_number=number, wire_name=name, legacy=True)


_BUILT_IN: tuple[Condition, ...] = (
    _named("weight_initialization", "WI", 14, Target.WEIGHT, _INITIALIZATION),
    _named("weight_overflow", "WO", 13, Target.WEIGHT),
    _named("weight_too_large", "WL", 15, Target.WEIGHT, _TOO_LARGE),
    _named("weight_too_small", "WS", 16, Target.WEIGHT, _TOO_SMALL),
    _named("weight_not_changed", "WNC", 20, Target.WEIGHT, _UNCHANGED),
    _named("weight_change_too_large", "WCL", 18, Target.WEIGHT, _CHANGE_TOO_LARGE),
    _named("weight_change_too_small", "WCS", 19, Target.WEIGHT, _CHANGE_TOO_SMALL),
    _named("gradient_exploding", "GE", 13, Target.GRADIENT),
    _named("gradient_too_large", "GL", 15, Target.GRADIENT, _TOO_LARGE),
    _named("gradient_vanishing", "GV", 16, Target.GRADIENT, _TOO_SMALL),
    _named("activation_range", "AR", 21, Target.ACTIVATION, _VALUE_RANGE),
    _named("tensor_overflow", "TO", 13, Target.TENSOR),
    _named("operator_overflow", "OO", 2, Target.TENSOR),
    _named("tensor_too_large", "TL", 15, Target.TENSOR, _TOO_LARGE),
    _named("tensor_too_small", "TS", 16, Target.TENSOR, _TOO_SMALL),
    _named("tensor_all_zero", "TZ", 17, Target.TENSOR, (_ZERO_PERCENTAGE,)),
    _named("tensor_range", "TR", 21, Target.TENSOR, _VALUE_RANGE),
    _legacy_flag(0, "nan", "nan_count"),
    _legacy_flag(1, "inf", "inf_count"),
    _legacy_threshold(3, "max_gt"),
    _legacy_threshold(4, "max_lt"),
    _legacy_threshold(5, "min_gt"),
    _legacy_threshold(6, "min_lt"),
    _legacy_threshold(7, "max_min_gt"),
    _legacy_threshold(8, "max_min_lt"),
    _legacy_threshold(9, "mean_gt"),
    _legacy_threshold(10, "mean_lt"),
    _legacy_threshold(11, "sd_gt"),
    _legacy_threshold(12, "sd_lt"),
    _own(1000, "dead_units", "DU", Target.ACTIVATION, _DEAD_UNITS),
    _own(1001, "saturated_units", "SU", Target.ACTIVATION, _SATURATED_UNITS),
    _own(1002, "weights_differ", "WD", Target.WEIGHT, flag="differs"),
    _own(1003, "unintended_overflow", "UO", Target.TENSOR, flag="unmasked_non_finite_count"),
    _own(1004, "weight_growth", "WG", Target.WEIGHT, _WEIGHT_GROWTH),
    _own(1005, "gradient_growth", "GG", Target.GRADIENT, _GRADIENT_GROWTH),
    _own(1006, "gradient_imbalance", "GI", Target.GRADIENT, _GRADIENT_IMBALANCE),
    _own(1007, "unintended_zeros", "UZ", Target.TENSOR, _UNINTENDED_ZEROS),
)

_registry: dict[str, Condition] = {condition.id: condition for condition in _BUILT_IN}
_names: dict[str, str] = {}
"""The condition id for every lower-case id and abbreviation."""

for _condition in _BUILT_IN:
    _names[_condition.id] = _condition.id
    if _condition.abbreviation:
        _names[_condition.abbreviation.lower()] = _condition.id

CONDITIONS: Mapping[str, Condition] = MappingProxyType(_registry)
"""All conditions by id, a live view: built-in ones first, then registered ones in order of registration."""


def condition(name: str) -> Condition:
    """Return the condition with this id or abbreviation, in any case ("TL", "tensor_too_large").

    Parameters
    ----------
    name : str
        Id or abbreviation.

    Raises
    ------
    InputError
        There is no such condition; the message names close matches.
    """
    condition_id = _names.get(name.strip().lower())
    if condition_id is None:
        close = difflib.get_close_matches(name.strip().lower()[:80], _names, n=3)
        advice = f"did you mean {' or '.join(close)}?" if close else f"known ones: {', '.join(_registry)}"
        raise InputError(f"there is no condition {name[:80]!r}; {advice}", code="condition-unknown")
    return _registry[condition_id]


def conditions_by_wire_number(number: int) -> tuple[Condition, ...]:
    """Return the conditions with a wire number, the one for tensors of every kind first; empty if unknown.

    Parameters
    ----------
    number : int
        As in `WatchCondition.Condition` of MindSpore's protocol, or ours from 1000.
    """
    conditions = [c for c in _registry.values() if c.wire_number == number]
    return tuple(sorted(conditions, key=lambda c: c.target is not Target.TENSOR))


def register(condition: Condition) -> Condition:
    """Add a condition to the catalogue, so that checks can name it.

    Parameters
    ----------
    condition : Condition
        The declaration; its quantities may be those of ``QUANTITIES`` or new ones over the same columns.

    Returns
    -------
    Condition
        The same object.

    Raises
    ------
    InputError
        Its id or abbreviation already names a condition.
    """
    names = [condition.id] + ([condition.abbreviation.lower()] if condition.abbreviation else [])
    for name in names:
        if name in _names:
            raise InputError(f"the name {name!r} already names the condition {_names[name]}; choose another")
    _registry[condition.id] = condition
    _names.update(dict.fromkeys(names, condition.id))
    return condition


def unregister(condition_id: str) -> None:
    """Remove a registered condition from the catalogue.

    Parameters
    ----------
    condition_id : str
        As given to `register`.

    Raises
    ------
    InputError
        There is no such id, or the condition is built in.
    """
    if condition_id not in _registry:
        raise InputError(f"there is no condition {condition_id!r} to unregister")
    if any(built_in.id == condition_id for built_in in _BUILT_IN):
        raise InputError(f"{condition_id} is built in and stays")
    removed = _registry.pop(condition_id)
    for name in (removed.id, removed.abbreviation.lower()):
        _names.pop(name, None)
