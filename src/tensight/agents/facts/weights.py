"""What updates do to parameters, from samples of their elements before and after."""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, Any

import numpy as np

from tensight.agents.facts.samples import fingerprint

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

MOST_PARAMETERS = 4000
"""Number of parameters that are followed; of a larger model the first and last ones."""

_HISTORY = 128
"""Number of earlier steps whose values are recognised."""

_UNITS = 8
"""Number of rows of a matrix that are compared."""


_EVEN, _FEWEST = 0.06, 200
"""Relative deviation from a uniform distribution, and the number of elements from which it can be told."""


def is_evenly_spread(values: NDArray[Any]) -> bool:
    """Return whether a sample is of a uniform distribution around 0, as many initializations draw it.

    What was trained is not: its greatest value is further from the others. In a uniform distribution that is the square
    root of 3 standard deviations from 0, and the kurtosis is 1.8.

    Parameters
    ----------
    values : ndarray, one axis
    """
    numbers = values.astype(np.float64)
    deviation = float(numbers.std())
    if len(numbers) < _FEWEST or not deviation > 0:
        return False
    kurtosis = float((((numbers - numbers.mean()) / deviation) ** 4).mean())
    greatest = float(np.abs(numbers).max()) / deviation
    return abs(kurtosis / 1.8 - 1) < _EVEN and abs(greatest / 3**0.5 - 1) < _EVEN


class WeightSamples:
    """The samples of a training's parameters, by their names."""

    def __init__(self) -> None:
        self._before: dict[str, NDArray[Any]] = {}
        self._after: dict[str, NDArray[Any]] = {}
        self._at_last: dict[str, NDArray[Any]] = {}
        self._gradients: dict[str, NDArray[Any]] = {}
        self._outside: dict[str, dict[str, Any]] = {}
        self._history: dict[str, deque[int]] = {}
        self._changes: dict[str, NDArray[Any]] = {}

    def is_due(self, name: str) -> bool:
        """Whether a parameter is still to be compared in this step with what its last update has left."""
        return name in self._after and name not in self._outside

    def compare_outside(self, name: str, values: NDArray[Any]) -> None:
        """Compare a parameter with what its last update has left.

        Parameters
        ----------
        name : str
        values : ndarray, one axis
            Its sample now, before the next update.
        """
        after, earlier = self._after[name], self._at_last.get(name)
        outside: dict[str, Any] = {"is_moved_outside": False}
        self._outside[name] = outside
        history = self._history.setdefault(name, deque(maxlen=_HISTORY))
        mark = fingerprint([values])
        if after.shape == values.shape and not np.array_equal(after, values, equal_nan=True):
            outside["is_moved_outside"] = True
            outside["restored"] = mark if mark in history else 0
            outside["at_limit"] = float(((values == values.min()) | (values == values.max())).mean())
            if earlier is not None and earlier.shape == values.shape:
                moved = after != earlier
                outside["undone"] = float((values == earlier)[moved].mean()) if moved.any() else 0.0
        history.append(mark)

    @property
    def has_moved_outside(self) -> bool:
        """Whether any parameter was written to since its last update."""
        return any(outside["is_moved_outside"] for outside in self._outside.values())

    def before_update(self, name: str, values: NDArray[Any]) -> dict[str, Any]:
        """Keep a parameter as an optimizer is about to read it, and return what was written since its last update.

        Parameters
        ----------
        name : str
        values : ndarray, one axis
            Its sample.
        """
        self._before[name] = values
        return self._outside.get(name, {})

    def keep_gradient(self, name: str, values: NDArray[Any]) -> None:
        """Keep the gradient of a parameter, as an optimizer reads it.

        Parameters
        ----------
        name : str
        values : ndarray, one axis
            The elements at the same positions as those of the parameter's samples.
        """
        self._gradients[name] = values

    def has(self, name: str) -> bool:
        """Whether a parameter is about to be updated."""
        return name in self._before

    def after_update(self, name: str, values: NDArray[Any]) -> dict[str, Any]:
        """Return what an update has done to a parameter: ``moved``, ``change``, ``turn``, ``lost``, as far as known.

        Parameters
        ----------
        name : str
        values : ndarray, one axis
            Its sample after the update.
        """
        before = self._before[name]
        self._after[name] = values
        if values.shape != before.shape or not values.size:
            return {}
        moved = values != before
        wide = np.complex128 if np.iscomplexobj(values) else np.float64
        way = values.astype(wide) - before.astype(wide)
        change = float(np.linalg.norm(way))
        size = float(np.linalg.norm(before.astype(wide)))
        facts: dict[str, Any] = {
            "moved": float(moved.mean()),
            "change": change / size if size else math.inf if change else 0.0,
            "turn": _cosine(way, self._changes.get(name)),
        }
        self._changes[name] = way
        gradient = self._gradients.get(name)
        if gradient is not None and gradient.shape == moved.shape:
            has_gradient = gradient != 0
            if has_gradient.any():
                facts["lost"] = float((has_gradient & ~moved).sum() / has_gradient.sum())
        return facts

    def skip_update(self) -> None:
        """Forget what updates have left, because one was not read."""
        self._after.clear()
        self._changes.clear()

    def end_step(self) -> None:
        """Begin the next step."""
        self._at_last = self._before
        self._before, self._gradients = {}, {}
        self._outside.clear()


def _cosine(a: NDArray[Any], b: NDArray[Any] | None) -> float:
    if b is None or a.shape != b.shape:
        return math.nan
    sizes = float(np.linalg.norm(a)) * float(np.linalg.norm(b))
    return float(np.vdot(a, b).real) / sizes if sizes else math.nan


class Labels:
    """Names of optimizers: their classes, with a number if there are several."""

    def __init__(self) -> None:
        self._labels: dict[int, str] = {}
        self._kinds: dict[str, int] = {}

    def of(self, optimizer: Any) -> str:
        """Return the name of an optimizer."""
        kind = type(optimizer).__name__
        label = self._labels.get(id(optimizer))
        # The identity may have been that of another one, which is gone.
        if label is None or label.partition(" ")[0] != kind:
            self._kinds[kind] = number = self._kinds.get(kind, 0) + 1
            label = self._labels[id(optimizer)] = kind if number == 1 else f"{kind} {number}"
        return label


def gradient_state(norm: float | None) -> int:
    """Return the fact ``gradient`` of a parameter, by the norm of its gradient; None if it has none."""
    return 0 if norm is None else 1 if norm == 0 else 2


def root_of_squares(norms: Sequence[float]) -> float:
    """Return the norm of several tensors together, by that of each."""
    return math.sqrt(sum(value * value for value in norms))


def units_compared(count: int) -> slice:
    """Return which of the rows of a matrix are compared with each other."""
    return slice(None, None, -(-count // _UNITS))


def are_equal_units(rows: NDArray[Any]) -> bool:
    """Whether all rows of a matrix are the same, and not 0.

    Parameters
    ----------
    rows : ndarray
        Those that `units_compared` chooses.
    """
    if rows.ndim < 2 or rows.shape[0] < 2 or not rows[0].size:
        return False
    return bool((rows == rows[0]).all()) and bool(rows[0].any())


def rank_row(
    rank: int, world: int, parameters: Sequence[dict[str, Any]], calls: Sequence[dict[str, Any]], norm_backward: float
) -> dict[str, Any]:
    """Return the row of ``ranks``.

    Parameters
    ----------
    rank, world : int
        Number of this process, and of all.
    parameters, calls : sequence of dict
        Rows of this step.
    norm_backward : float
        Norm of all gradients after the backward pass.
    """
    weights = 0
    for row in parameters:
        weights = (weights * 1_000_003 + int(row.get("fingerprint", 0))) % (1 << 64)
    batches = [row["fingerprint"] for row in calls if row.get("fingerprint")]
    norms = [row.get("gradient_norm", 0.0) for row in parameters if row.get("optimizers")]
    return {
        "name": f"rank {rank}",
        "weights": weights,
        "batch": batches[0] if batches else 0,
        "norm_backward": norm_backward,
        "world": world,
        "norm": root_of_squares([value for value in norms if value == value]),
    }
