"""The conditions that a session offers, with advice, and with whether they can be checked in it now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensight.sessions.records import ConditionRecord, ParameterRecord
from tensight.watchpoints import CONDITIONS, Condition, Parameter, Platform, Target, advice

if TYPE_CHECKING:
    from typing import Literal

_TARGETS: dict[Target, Literal["tensor", "weight", "activation", "gradient"]] = {
    Target.TENSOR: "tensor",
    Target.WEIGHT: "weight",
    Target.ACTIVATION: "activation",
    Target.GRADIENT: "gradient",
}
_ORDER = list(_TARGETS)


def condition_records(
    *, platform: Platform | None = None, live: bool = False, step: int = 0, can_check_own: bool = True
) -> tuple[ConditionRecord, ...]:
    """Return all conditions except legacy ones: for tensors, then weights, activations, gradients.

    Parameters
    ----------
    platform : Platform or None
        The kind of device; None if unknown, which excludes no condition.
    live : bool
        Whether a training process is attached.
    step : int
        Number of completed steps.
    can_check_own : bool
        Whether Tensight's own conditions can be checked.
    """
    conditions = sorted(
        (condition for condition in CONDITIONS.values() if not condition.legacy),
        key=lambda condition: (_ORDER.index(condition.target), condition.id),
    )
    return tuple(
        _record(
            condition,
            unavailable_because(condition, platform=platform, live=live, step=step, can_check_own=can_check_own),
        )
        for condition in conditions
    )


def unavailable_because(
    condition: Condition, *, platform: Platform | None, live: bool, step: int, can_check_own: bool = True
) -> str:
    """Return why a condition cannot be checked; empty if it can."""
    if condition.legacy:
        return "it is one of the oldest conditions, which newer ones replace"
    if platform is not None and platform not in condition.platforms:
        platforms = ", ".join(sorted(other.value for other in condition.platforms))
        return f"it can be checked on {platforms}; this run is on {platform.value}"
    if condition.is_own and not can_check_own:
        return "it is one of Tensight's own, which trainings with Tensight's agent and dumps can be checked for"
    if condition.initial_only and live and step > 0:
        return "it looks at the weights before the first step, and the training is past it"
    return ""


def _record(condition: Condition, because: str) -> ConditionRecord:
    help_on_hit = advice(condition.id)
    return ConditionRecord(
        id=condition.id,
        abbreviation=condition.abbreviation,
        target=_TARGETS[condition.target],
        parameters=tuple(map(_parameter, condition.parameters)),
        platforms=tuple(sorted(platform.value for platform in condition.platforms)),
        initial_only=condition.initial_only,
        meaning=help_on_hit.summary,
        advice=help_on_hit.steps,
        available=not because,
        unavailable_because=because,
    )


def _parameter(parameter: Parameter) -> ParameterRecord:
    return ParameterRecord(
        name=parameter.name,
        kind=parameter.kind.value,
        values=parameter.values.value,
        boolean=parameter.values.is_boolean,
        default=parameter.default,
        requires=parameter.requires,
    )
