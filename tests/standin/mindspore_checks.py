"""Watchpoints as an old MindSpore process checks them: plain NumPy, straight from the table of conditions."""

from __future__ import annotations

import operator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tests.standin.mindspore_messages import CONDITION, CONDITION_NAME

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Array = NDArray[Any]

ERROR_NAN, ERROR_INF, ERROR_NO_PREVIOUS = 1, 2, 4
COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "gt": operator.gt,
    "lt": operator.lt,
    "ge": operator.ge,
    "le": operator.le,
}
CHANGES = frozenset(
    CONDITION[name] for name in ("tensor_change_too_large", "tensor_change_too_small", "tensor_not_changed")
)


@dataclass
class Parameter:
    """A parameter of a watchpoint, and what came out."""

    name: str
    disabled: bool
    value: float
    hit: bool = False
    actual: float = 0.0


@dataclass(frozen=True)
class Watchpoint:
    """What a SetCMD asked for; nodes by the names that the server gave."""

    id: int
    condition: int
    parameters: tuple[Parameter, ...]
    nodes: tuple[str, ...]

    def node_of(self, key: str) -> str | None:
        """Return the watched node that a tensor of the loader belongs to, by the server's name."""
        name = key.rpartition(":")[0]
        return next((node for node in self.nodes if name in (node, node.rpartition("/")[2])), None)


@dataclass(frozen=True)
class Outcome:
    """What one check of one tensor gave."""

    hit: bool
    error_code: int = 0
    parameters: tuple[Parameter, ...] = field(default=())

    @property
    def reported(self) -> bool:
        return self.hit or self.error_code != 0


def quantity(name: str, given: dict[str, float], x: Array, p: Array | None) -> float:
    """Return what a threshold is compared with; `name` comes without its comparator."""
    if name == "max":
        return float(x.max())
    if name == "min":
        return float(x.min())
    if name == "mean":
        return float(x.mean())
    if name == "abs_mean":
        return float(np.abs(x).mean())
    if name == "max_min":
        return float(x.max() - x.min())
    if name == "zero_percentage":
        return 100.0 * float((x == 0).sum()) / x.size
    if name == "range_percentage":
        start = given.get("range_start_inclusive", -np.inf)
        end = given.get("range_end_inclusive", np.inf)
        return 100.0 * float(((x >= start) & (x <= end)).sum()) / x.size
    assert name == "abs_mean_update_ratio", name
    assert p is not None
    return float(np.abs(x - p).mean() / (np.abs(p).mean() + 1e-9))


def _not_changed(parameters: Sequence[Parameter], x: Array, p: Array) -> bool:
    # The two are read by position: rtol, atol.
    rtol, atol = parameters[0].value, parameters[1].value
    return bool((np.abs(x - p) <= atol + rtol * np.abs(p)).all())


def check(watchpoint: Watchpoint, current: Array, previous: Array | None, *, overflowed: bool = False) -> Outcome:
    """Check one tensor."""
    name = CONDITION_NAME[watchpoint.condition]
    parameters = tuple(Parameter(each.name, each.disabled, each.value) for each in watchpoint.parameters)
    if current.size == 0:
        return Outcome(False)
    if name == "overflow":
        return Outcome(overflowed, 0, parameters)
    x = current.astype(np.float64)
    nan, inf = bool(np.isnan(x).any()), bool(np.isinf(x).any())
    if name == "tensor_general_overflow":
        return Outcome(nan or inf, 0, parameters)
    if nan or inf:
        return Outcome(False, ERROR_NAN * nan + ERROR_INF * inf, parameters)
    if watchpoint.condition in CHANGES and previous is None:
        return Outcome(False, ERROR_NO_PREVIOUS, parameters)
    p = None if previous is None else previous.astype(np.float64)
    if name == "tensor_not_changed":
        assert p is not None
        parameters[0].hit = _not_changed(parameters, x, p)
        return Outcome(parameters[0].hit, 0, parameters)
    given = {each.name: each.value for each in parameters if not each.disabled}
    for each in parameters:
        what, _, comparison = each.name.rpartition("_")
        if each.disabled or comparison not in COMPARISONS:
            continue
        each.actual = quantity(what, given, x, p)
        each.hit = COMPARISONS[comparison](each.actual, each.value)
    return Outcome(any(each.hit for each in parameters), 0, parameters)


def statistics(array: Array) -> dict[str, float]:
    """Return the statistics as MindSpore 2.0 computes them: maximum, minimum and mean over the finite elements."""
    x = array.astype(np.float64)
    finite = x[np.isfinite(x)]
    return {
        "max_value": float(finite.max()) if finite.size else 0.0,
        "min_value": float(finite.min()) if finite.size else 0.0,
        "avg_value": float(finite.mean()) if finite.size else 0.0,
        "count": x.size,
        "neg_zero_count": int((x < 0).sum()),
        "pos_zero_count": int((x > 0).sum()),
        "zero_count": int((x == 0).sum()),
        "nan_count": int(np.isnan(x).sum()),
        "neg_inf_count": int((x == -np.inf).sum()),
        "pos_inf_count": int((x == np.inf).sum()),
    }
