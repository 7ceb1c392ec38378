"""A condition with thresholds: validated, printable as one line of text, with the statistics that it needs."""

from __future__ import annotations

import difflib
import math
import numbers
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from tensight.errors import InputError
from tensight.watchpoints.catalogue import condition as find_condition
from tensight.watchpoints.conditions import Comparator, Condition, ParameterKind
from tensight.watchpoints.quantities import DEFAULT_ATOL, OF_ZEROS, REFERENCES, Quantity, Source
from tensight.watchpoints.ranges import value_range
from tensight.watchpoints.units import dead_rule, saturated_rule

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tensight.watchpoints.columns import UnitRule

_UNIT_RULES = {"dead_unit_percentage": dead_rule, "saturated_unit_percentage": saturated_rule}


@dataclass(frozen=True, slots=True)
class Needs:
    """The facts about a tensor that a check needs.

    Attributes
    ----------
    statistics : bool
        The row of statistics.
    ranges : tuple of (start, end)
        Value ranges, both ends inclusive, in which elements are counted. Rows that determine the count need no read.
    changes : bool
        The change since the previous step.
    atol : float
        The absolute tolerance with which the required relative tolerance must be computed.
    rtol : float or None
        The scan for changes may stop once its lower bound of the required relative tolerance exceeds this; None if it
        must visit every element (or if there is no scan).
    overflow : bool
        Whether the device reported an overflow of the operator.
    units : tuple of UnitRule
        Rules for counting units. Rows that determine the percentage of units need no read.
    references : tuple of str
        References to compare norms with; see `tensight.watchpoints.references`.
    masks : bool
        Whether -Inf was written on purpose.
    zero_provenance : bool
        Whether the zeros of an all-zero tensor were propagated from its inputs.
    ranks : bool
        Whether all ranks have the same values.
    """

    statistics: bool = False
    ranges: tuple[tuple[float, float], ...] = ()
    changes: bool = False
    atol: float = DEFAULT_ATOL
    rtol: float | None = None
    overflow: bool = False
    units: tuple[UnitRule, ...] = ()
    references: tuple[str, ...] = ()
    masks: bool = False
    zero_provenance: bool = False
    ranks: bool = False


@dataclass(frozen=True, slots=True)
class Threshold:
    """A parameter that can hit, with its value: ``quantity comparator value``.

    Parameters
    ----------
    name : str
        Name of the parameter.
    quantity : Quantity
        The quantity to compare.
    comparator : Comparator
        How to compare it.
    value : float
        The value to compare it with, in the unit of the quantity.
    """

    name: str
    quantity: Quantity
    comparator: Comparator
    value: float


@dataclass(frozen=True, slots=True, init=False)
class ConditionCheck:
    """A condition with validated values; it hits when any of its thresholds hits.

    Parameters
    ----------
    condition : Condition or str
        The condition, its id or its abbreviation.
    values : mapping of str to number or bool
        Values of its parameters. Hidden parameters take their defaults. If no threshold is given, those with a default
        take it.
    strict : bool
        False skips the tests of ranges and of companion parameters, as the original's Python API does. Names and types
        are always checked.

    Attributes
    ----------
    condition : Condition
        The condition.
    arguments : tuple of (str, float or bool)
        Every value in effect, in the declared order.

    Raises
    ------
    InputError
        A parameter is unknown, of the wrong type or out of its range, a threshold lacks its companions, the range is
        reversed, or there is no threshold at all.
    """

    condition: Condition
    arguments: tuple[tuple[str, float | bool], ...]

    def __init__(
        self,
        condition: Condition | str,
        values: Mapping[str, float | bool] | None = None,
        *,
        strict: bool = True,
    ) -> None:
        declared = find_condition(condition) if isinstance(condition, str) else condition
        object.__setattr__(self, "condition", declared)
        object.__setattr__(self, "arguments", _resolve(declared, values or {}, strict))

    @property
    def values(self) -> Mapping[str, float | bool]:
        """Every value in effect, by parameter name, in the declared order."""
        return MappingProxyType(dict(self.arguments))

    @property
    def thresholds(self) -> tuple[Threshold, ...]:
        """The thresholds in effect, in the declared order."""
        values = self.values
        return tuple(
            Threshold(p.name, p.quantity, p.comparator, float(values[p.name]))
            for p in self.condition.checks
            if p.name in values and p.quantity is not None and p.comparator is not None
        )

    @property
    def text(self) -> str:
        """The check as a line that ``parse_check`` reads back, without hidden parameters that have their default."""
        shown = []
        for name, value in self.arguments:
            parameter = self.condition.parameter(name)
            if parameter is None or parameter.kind is not ParameterKind.HIDDEN or value != parameter.default:
                shown.append(f"{name}={format_value(value)}")
        return f"{self.condition.id}({', '.join(shown)})"

    @property
    def needs(self) -> Needs:
        """The facts about a tensor that this check needs."""
        quantities = self.quantities
        sources = {quantity.source for quantity in quantities}
        values = self.values
        only_tolerance = [q.name for q in quantities if q.source is Source.CHANGE] == ["required_rtol"]
        return Needs(
            statistics=not sources <= {Source.OVERFLOW, Source.RANKS},
            ranges=(value_range(values),) if Source.RANGE in sources else (),
            changes=Source.CHANGE in sources,
            atol=float(values.get("atol", DEFAULT_ATOL)),
            rtol=float(values["rtol"]) if only_tolerance and "rtol" in values else None,
            overflow=Source.OVERFLOW in sources,
            units=tuple(_UNIT_RULES[quantity.name](values) for quantity in quantities if quantity.name in _UNIT_RULES),
            references=tuple(REFERENCES[quantity.name] for quantity in quantities if quantity.name in REFERENCES),
            masks=Source.MASKS in sources,
            zero_provenance=any(quantity.name in OF_ZEROS for quantity in quantities),
            ranks=Source.RANKS in sources,
        )

    @property
    def quantities(self) -> tuple[Quantity, ...]:
        """The quantities that this check uses."""
        if self.condition.flag is not None:
            return (self.condition.flag,)
        return tuple(threshold.quantity for threshold in self.thresholds)

    def __str__(self) -> str:
        return self.text


def format_value(value: float | bool) -> str:
    """Return the shortest text that reads back as the same value."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value).removesuffix(".0")


def _excerpt(value: object) -> str:
    """Return a given value for a message, truncated."""
    return (format_value(float(value)) if isinstance(value, float) else str(value))[:80]


def _resolve(
    condition: Condition, given: Mapping[str, float | bool], strict: bool
) -> tuple[tuple[str, float | bool], ...]:
    """Validate the given values and add the defaults."""
    values = {name: _value(condition, name, value, strict) for name, value in given.items()}
    some_threshold = any(p.name in values for p in condition.checks)
    for parameter in condition.parameters:
        needs_default = parameter.kind is ParameterKind.HIDDEN or (
            parameter.kind is ParameterKind.CHECK and not some_threshold
        )
        if needs_default and parameter.default is not None:
            values.setdefault(parameter.name, parameter.default)
    if condition.checks and not any(p.name in values for p in condition.checks):
        names = ", ".join(p.name for p in condition.checks)
        raise InputError(f"{condition.id} needs at least one threshold: {names}")
    if strict:
        _check_companions(condition, values)
    return tuple((p.name, values[p.name]) for p in condition.parameters if p.name in values)


def _value(condition: Condition, name: str, value: object, strict: bool) -> float | bool:
    """Return a value as float or bool; InputError if it cannot be used."""
    parameter = condition.parameter(name)
    if parameter is None:
        raise InputError(_unknown_parameter(condition, name))
    refusal = f"{condition.id}: {name} must be {parameter.values.value}; got {_excerpt(value)}"
    if parameter.values.is_boolean:
        if not isinstance(value, (bool, np.bool_)):
            raise InputError(f"{refusal} ({type(value).__name__})")
        converted: float | bool = bool(value)
    else:
        if isinstance(value, (bool, np.bool_)) or not isinstance(value, numbers.Real):
            raise InputError(f"{refusal} ({type(value).__name__})")
        try:
            converted = float(value)
        except OverflowError:
            raise InputError(
                f"{condition.id}: {name} must fit a 64-bit float; the given integer is too large"
            ) from None
    if strict and not parameter.values.contains(converted):
        raise InputError(refusal)
    return converted


def _unknown_parameter(condition: Condition, name: str) -> str:
    names = [p.name for p in condition.parameters]
    if not names:
        return f"{condition.id} has no parameters; got {name[:80]!r}"
    close = difflib.get_close_matches(name[:80], names, n=1)
    advice = f"did you mean {close[0]}?" if close else f"it has {', '.join(names)}"
    return f"{condition.id} has no parameter {name[:80]!r}; {advice}"


def _check_companions(condition: Condition, values: Mapping[str, float | bool]) -> None:
    """Check that SUPPORT parameters are given where a threshold needs them, only there, and in order."""
    needed = {companion: p.name for p in condition.checks if p.name in values for companion in p.requires}
    for companion, threshold in needed.items():
        if companion not in values:
            raise InputError(f"{condition.id}: {threshold} needs {companion} beside it")
    for parameter in condition.parameters:
        if parameter.kind is ParameterKind.SUPPORT and parameter.name in values and parameter.name not in needed:
            users = [p.name for p in condition.checks if parameter.name in p.requires]
            raise InputError(f"{condition.id}: {parameter.name} only has an effect beside {' or '.join(users)}")
    start, end = value_range(values)
    if not start <= end and not (math.isnan(start) or math.isnan(end)):
        raise InputError(
            f"{condition.id}: range_start_inclusive ({format_value(start)}) must not be greater than"
            f" range_end_inclusive ({format_value(end)})"
        )
