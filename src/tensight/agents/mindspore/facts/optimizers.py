"""The groups of MindSpore's optimizers: learning rates, also of schedules, and weight decay."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from mindspore import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_OPTIMIZER = nn.Optimizer.__module__


class Group(NamedTuple):
    """The parameters of an optimizer with the same rate and decay.

    Attributes
    ----------
    rate : float
        Of the next update; NaN if a schedule of the script computes it.
    decay : float
        NaN if a schedule computes it.
    initial_rate : float
        NaN if none is known.
    parameters : tuple of Parameter
    maximizes : bool
    """

    rate: float
    decay: float
    initial_rate: float
    parameters: tuple[Any, ...]
    maximizes: bool = False


def groups_of(optimizer: nn.Optimizer) -> list[Group]:
    """Return the groups of an optimizer, in the order of their first parameters."""
    groups = getattr(optimizer, "param_groups", None)
    if groups is not None:
        return [
            Group(
                _number(group.get("lr")),
                _number(group.get("weight_decay")),
                _number(group.get("initial_lr")),
                tuple(group["params"]),
                bool(group.get("maximize", False)),
            )
            for group in groups
        ]
    parameters = tuple(optimizer.parameters)
    rates = _each(optimizer.learning_rate, len(parameters), bool(getattr(optimizer, "is_group_lr", False)))
    decays = _each(optimizer.weight_decay, len(parameters), bool(getattr(optimizer, "is_group", False)))
    step = _step_of(optimizer)
    by_numbers: dict[tuple[int, int], list[Any]] = {}
    numbers: dict[tuple[int, int], tuple[float, float]] = {}
    values: dict[int, float] = {}
    for parameter, rate, decay in zip(parameters, rates, decays, strict=True):
        for value in (rate, decay):
            if id(value) not in values:
                values[id(value)] = _rate_at(value, step)
        pair = values[id(rate)], values[id(decay)]
        # Groups have values of their own, even if these are equal.
        key = next((key for key, other in numbers.items() if _same(other, pair)), (id(rate), id(decay)))
        numbers[key] = pair
        by_numbers.setdefault(key, []).append(parameter)
    return [Group(*numbers[key], math.nan, tuple(of_group)) for key, of_group in by_numbers.items()]


def has_scale(optimizer: nn.Optimizer) -> bool:
    """Whether an optimizer itself divides the gradients by a loss scale."""
    return bool(getattr(optimizer, "need_scale", False))


def _same(first: tuple[float, float], second: tuple[float, float]) -> bool:
    return all(a == b or (math.isnan(a) and math.isnan(b)) for a, b in zip(first, second, strict=True))


def _each(values: Any, count: int, is_several: bool) -> Sequence[Any]:
    return list(values) if is_several else [values] * count


def _step_of(optimizer: nn.Optimizer) -> int:
    return int(optimizer.global_step.asnumpy().reshape(-1)[0])


def _rate_at(rate: Any, step: int) -> float:
    """Return the rate of a step, from 0; NaN if it is computed in a way that is unknown here."""
    if isinstance(rate, nn.Cell):
        if type(rate).__module__ == _OPTIMIZER:
            # Constant and listed rates, if others of the same optimizer change.
            return _rate_at(getattr(rate, "learning_rate", None), step)
        formula = _SCHEDULES.get(type(rate).__name__)
        is_own = type(rate).__module__ == nn.learning_rate_schedule.__name__
        return formula(vars(rate), step) if formula is not None and is_own else math.nan
    if isinstance(rate, Tensor) and rate.size > 1:
        values = rate.asnumpy().reshape(-1)
        return _decimal(values[min(max(step, 0), len(values) - 1)])
    return _number(rate)


def _number(value: Any) -> float:
    if isinstance(value, Tensor):
        return _decimal(value.asnumpy().reshape(-1)[0]) if value.size else math.nan
    return float(value) if isinstance(value, (int, float)) else math.nan


def _decimal(value: Any) -> float:
    """Return the shortest decimal form of a number: 0.001, not its value as a float32."""
    return float(str(value))


# --- the schedules of MindSpore, by the formulas in its documentation ---


def _exponential(held: Mapping[str, Any], step: int) -> float:
    position = step / held["decay_steps"]
    return float(held["learning_rate"] * held["decay_rate"] ** _stairs(held, position))


def _natural(held: Mapping[str, Any], step: int) -> float:
    position = step // held["decay_steps"] * held["decay_steps"] if held["is_stair"] else step
    return float(held["learning_rate"]) * math.exp(-held["decay_rate"] * position)


def _inverse(held: Mapping[str, Any], step: int) -> float:
    return float(held["learning_rate"] / (1 + held["decay_rate"] * _stairs(held, step / held["decay_steps"])))


def _cosine(held: Mapping[str, Any], step: int) -> float:
    position = min(step, held["decay_steps"]) / held["decay_steps"]
    return float(held["min_lr"]) + float(held["delta"]) * (1 + math.cos(math.pi * position))


def _polynomial(held: Mapping[str, Any], step: int) -> float:
    length = held["decay_steps"]
    if held["update_decay_steps"]:
        length *= max(math.ceil(step / length), 1)
    position = min(step, length) / length
    return float(held["diff_learning_rate"] * (1 - position) ** held["power"] + held["end_learning_rate"])


def _warm_up(held: Mapping[str, Any], step: int) -> float:
    return float(held["learning_rate"] * min(step, held["warmup_steps"]) / held["warmup_steps"])


def _stairs(held: Mapping[str, Any], position: float) -> float:
    return float(math.floor(position)) if held["is_stair"] else position


_SCHEDULES: Mapping[str, Callable[[Mapping[str, Any], int], float]] = {
    "ExponentialDecayLR": _exponential,
    "NaturalExpDecayLR": _natural,
    "InverseDecayLR": _inverse,
    "CosineDecayLR": _cosine,
    "PolynomialDecayLR": _polynomial,
    "WarmUpLR": _warm_up,
}
