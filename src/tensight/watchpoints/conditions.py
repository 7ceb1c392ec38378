"""Conditions as data: a name, a target, and thresholds on quantities of a tensor."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from tensight.errors import InputError

if TYPE_CHECKING:
    from tensight.watchpoints.columns import BoolColumn, FloatColumn
    from tensight.watchpoints.quantities import Quantity

FIRST_OWN_NUMBER = 1000
"""From here on, numbers of conditions in the protocol are Tensight's; the original does not know them."""

_IDENTIFIER = re.compile(r"[a-z][a-z0-9_]{0,63}", re.ASCII)
_ABBREVIATION = re.compile(r"[A-Za-z][A-Za-z0-9]{0,7}", re.ASCII)


class Target(Enum):
    """The kind of tensor that a condition is meant for."""

    TENSOR = "tensor"
    WEIGHT = "weight"
    ACTIVATION = "activation"
    GRADIENT = "gradient"


class Platform(Enum):
    """A kind of device on which a condition can be checked."""

    ASCEND = "Ascend"
    GPU = "GPU"
    CPU = "CPU"


ALL_PLATFORMS: frozenset[Platform] = frozenset(Platform)


class ParameterKind(Enum):
    """The role of a parameter in its condition."""

    CHECK = "check"
    """A threshold that can hit."""
    SUPPORT = "support"
    """A value that a threshold also needs."""
    HIDDEN = "hidden"
    """A value with a default that users rarely change."""


class ValueRange(Enum):
    """The values a parameter accepts; the value of each member completes "must be …"."""

    FINITE = "a finite number"
    NOT_NEGATIVE = "a finite number, 0 or greater"
    POSITIVE = "a finite number greater than 0"
    PERCENTAGE = "a percentage from 0 to 100"
    FALSE = "false"

    @property
    def is_boolean(self) -> bool:
        """Whether the parameter is a switch instead of a number."""
        return self is ValueRange.FALSE

    def contains(self, value: float | bool) -> bool:
        """Return whether a value of the right type lies in the range; False for NaN."""
        if self is ValueRange.FALSE:
            return value is False
        if self is ValueRange.PERCENTAGE:
            return 0 <= value <= 100
        if self is ValueRange.NOT_NEGATIVE:
            return 0 <= value < math.inf
        if self is ValueRange.POSITIVE:
            return 0 < value < math.inf
        return math.isfinite(value)


class Comparator(Enum):
    """How a quantity is compared with its threshold; the value of each member is its sign in a formula."""

    GREATER = ">"
    LESS = "<"
    AT_LEAST = "≥"
    AT_MOST = "≤"

    @property
    def words(self) -> str:
        """The comparison in words."""
        return {">": "greater than", "<": "less than", "≥": "at least", "≤": "at most"}[self.value]

    @property
    def grows(self) -> bool:
        """Whether a larger quantity is closer to a hit."""
        return self in (Comparator.GREATER, Comparator.AT_LEAST)

    def compare(self, quantity: FloatColumn, threshold: float) -> BoolColumn:
        """Compare each element of a column with a threshold; NaN compares false."""
        if self is Comparator.GREATER:
            return quantity > threshold
        if self is Comparator.LESS:
            return quantity < threshold
        if self is Comparator.AT_LEAST:
            return quantity >= threshold
        return quantity <= threshold


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a condition.

    Attributes
    ----------
    name : str
        The name, as in the protocol.
    kind : ParameterKind
        Threshold, companion of a threshold, or hidden.
    values : ValueRange
        The accepted values.
    default : float, bool or None
        The value if none is given; None if the parameter is then off.
    quantity, comparator : Quantity and Comparator, or None
        The quantity and comparison of a threshold; None unless ``kind`` is CHECK.
    requires : tuple of str
        The SUPPORT parameters that must be given with it.
    ignored_by_original : bool
        The original accepts a value but uses the default.
    """

    name: str
    kind: ParameterKind = ParameterKind.CHECK
    values: ValueRange = ValueRange.FINITE
    default: float | bool | None = None
    quantity: Quantity | None = None
    comparator: Comparator | None = None
    requires: tuple[str, ...] = ()
    ignored_by_original: bool = False

    def __post_init__(self) -> None:
        """Refuse a declaration that could not be evaluated."""
        if not _IDENTIFIER.fullmatch(self.name):
            raise InputError(f"parameter name {self.name!r} must be lower-case letters, digits and underscores")
        compares = self.quantity is not None and self.comparator is not None
        if compares != (self.kind is ParameterKind.CHECK):
            raise InputError(f"parameter {self.name}: exactly the CHECK parameters have a quantity and a comparator")
        if self.default is not None and not self.values.contains(self.default):
            raise InputError(f"parameter {self.name}: its default {self.default!r} is not {self.values.value}")


@dataclass(frozen=True, slots=True)
class Condition:
    """A rule that decides when a tensor is wrong.

    Attributes
    ----------
    id : str
        The name in checks, for example ``tensor_too_large``.
    abbreviation : str
        The short name, for example ``TL``; empty if there is none.
    target : Target
        The kind of tensor it is meant for.
    parameters : tuple of Parameter
        In protocol order.
    flag : Quantity or None
        For a condition without thresholds: it hits when this quantity is greater than 0.
    wire_number, wire_name : int or None, str
        The value of ``WatchCondition.Condition`` in the original's protocol; None for users' own conditions.
    platforms : frozenset of Platform
        The devices on which it can be checked.
    initial_only : bool
        Only the state before the first step is checked.
    legacy : bool
        One of the original's oldest conditions, kept for its protocol; users are offered the newer ones.
    meaning : str
        One sentence on what a hit means, for users' own conditions; the built-in ones have theirs in ``advice``.
    """

    id: str
    abbreviation: str
    target: Target
    parameters: tuple[Parameter, ...] = ()
    flag: Quantity | None = None
    wire_number: int | None = None
    wire_name: str = ""
    platforms: frozenset[Platform] = ALL_PLATFORMS
    initial_only: bool = False
    legacy: bool = False
    meaning: str = ""

    def __post_init__(self) -> None:
        """Refuse a declaration that could not be named or evaluated."""
        if not _IDENTIFIER.fullmatch(self.id):
            raise InputError(f"condition id {self.id!r} must be lower-case letters, digits and underscores")
        if self.abbreviation and not _ABBREVIATION.fullmatch(self.abbreviation):
            raise InputError(
                f"condition {self.id}: abbreviation {self.abbreviation!r} must be 1 to 8 letters and digits"
            )
        names = [parameter.name for parameter in self.parameters]
        if len(set(names)) != len(names):
            raise InputError(f"condition {self.id}: a parameter name occurs twice in {', '.join(names)}")
        if (self.flag is None) == (not self.checks):
            raise InputError(f"condition {self.id} needs either thresholds (CHECK parameters) or a flag, not both")
        supports = {p.name for p in self.parameters if p.kind is ParameterKind.SUPPORT}
        for parameter in self.parameters:
            if unknown := set(parameter.requires) - supports:
                raise InputError(
                    f"condition {self.id}: {parameter.name} requires undeclared {', '.join(sorted(unknown))}"
                )

    @property
    def checks(self) -> tuple[Parameter, ...]:
        """The parameters that are thresholds."""
        return tuple(p for p in self.parameters if p.kind is ParameterKind.CHECK)

    @property
    def is_own(self) -> bool:
        """Whether it is one of Tensight's, which the original's processes cannot check."""
        return self.wire_number is not None and self.wire_number >= FIRST_OWN_NUMBER

    def parameter(self, name: str) -> Parameter | None:
        """Return the parameter with this name, or None.

        Parameters
        ----------
        name : str
            For example ``max_gt``.
        """
        return next((p for p in self.parameters if p.name == name), None)
