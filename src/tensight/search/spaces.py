"""The search space: the values of a trial, and every combination of a grid."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tensight.errors import InputError
from tensight.search.configuration import as_values, type_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import optuna

    from tensight.search.configuration import Parameter, Value

MOST_COMBINATIONS = 100_000


def suggest(trial: optuna.Trial, parameters: Mapping[str, Parameter]) -> dict[str, Value]:
    """Return the values of a trial without parameters whose condition is not met."""
    values: dict[str, Value] = {}
    for name in in_order(parameters):
        if is_met(parameters[name], values):
            values[name] = _value(trial, name, parameters[name])
    return values


def _value(trial: optuna.Trial, name: str, parameter: Parameter) -> Value:
    if parameter.choice is not None:
        # Optuna also accepts None, which a configuration never contains.
        value: Value = trial.suggest_categorical(name, parameter.choice)  # type: ignore[assignment]
        return value
    low, high = parameter.bounds or (0, 1)
    if type_of(name, parameter) == "int":
        first, last = integers(parameter)
        return trial.suggest_int(name, first, last, log=parameter.log)
    # The upper bound is excluded, as in the original.
    return trial.suggest_float(name, low, math.nextafter(high, low), log=parameter.log)


def integers(parameter: Parameter) -> tuple[int, int]:
    """Return the first and the last integer within the bounds; the upper bound is excluded."""
    low, high = parameter.bounds or (0, 1)
    return math.ceil(low), math.ceil(high) - 1


def is_met(parameter: Parameter, values: Mapping[str, Value]) -> bool:
    """Whether the values of other parameters meet the condition of a parameter."""
    return all(
        other in values and any(_same(values[other], value) for value in as_values(values_needed))
        for other, values_needed in parameter.when.items()
    )


def _same(a: object, b: object) -> bool:
    return type(a) is type(b) and a == b


def in_order(parameters: Mapping[str, Parameter]) -> list[str]:
    """Return the names of all parameters, each after those that its condition depends on."""
    ordered: list[str] = []
    while len(ordered) < len(parameters):
        ordered += [
            name
            for name, parameter in parameters.items()
            if name not in ordered and all(other in ordered for other in parameter.when)
        ]
    return ordered


def combinations(parameters: Mapping[str, Parameter]) -> list[dict[str, Value]]:
    """Return every combination of values of a grid; parameters excluded by a condition are not varied.

    Raises
    ------
    InputError
        There are too many combinations.
    """
    every: list[dict[str, Value]] = [{}]
    for name in in_order(parameters):
        every = [longer for values in every for longer in _with(values, name, parameters[name])]
        if len(every) > MOST_COMBINATIONS:
            raise InputError(f"the grid has more than {MOST_COMBINATIONS:,} combinations; leave values out")
    return every


def _with(values: dict[str, Value], name: str, parameter: Parameter) -> Iterator[dict[str, Value]]:
    if not is_met(parameter, values):
        yield values
        return
    if parameter.choice is not None:
        possible: tuple[Value, ...] = parameter.choice
    else:
        first, last = integers(parameter)
        possible = tuple(range(first, min(last, first + MOST_COMBINATIONS) + 1))
    for value in possible:
        yield {**values, name: value}
