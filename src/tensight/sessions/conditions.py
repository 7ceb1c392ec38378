"""The conditions as a session offers them: with help, and with whether they can be checked in it now."""

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
    *, platform: Platform | None = None, live: bool = False, step: int = 0, own: bool = True
) -> tuple[ConditionRecord, ...]:
    """Return all conditions but the original's oldest, for tensors first, then weights, activations, gradients.

    Parameters
    ----------
    platform : Platform or None
        The kind of device; None if it is unknown, and then nothing is missing for it.
    live : bool
        Whether a training process is attached.
    step : int
        Steps done.
    own : bool
        Whether Tensight's own conditions can be checked.
    """
    found = sorted(
        (one for one in CONDITIONS.values() if not one.legacy), key=lambda one: (_ORDER.index(one.target), one.id)
    )
    return tuple(
        _record(one, unavailable_because(one, platform=platform, live=live, step=step, own=own)) for one in found
    )


def unavailable_because(
    condition: Condition, *, platform: Platform | None, live: bool, step: int, own: bool = True
) -> str:
    """Say why a condition cannot be checked; empty if it can."""
    if condition.legacy:
        return "it is one of the oldest conditions, which newer ones replace"
    if platform is not None and platform not in condition.platforms:
        known = ", ".join(sorted(one.value for one in condition.platforms))
        return f"it can be checked on {known}; this run is on {platform.value}"
    if condition.is_own and not own:
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
