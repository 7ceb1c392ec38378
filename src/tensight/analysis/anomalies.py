"""Kinds of anomalies that spread from operator to operator, and the tensors that show them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Protocol

import numpy as np

from tensight.analysis.statistics_table import KNOWN, RECORDED

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Anomaly(Enum):
    """A kind of anomaly that spreads from operator to operator."""

    NAN = "nan"
    INF = "inf"
    OVERFLOW = "overflow"
    ALL_ZERO = "all_zero"
    EXPLOSION = "explosion"

    @property
    def words(self) -> str:
        """The name of the anomaly in a sentence."""
        return {
            "nan": "NaN",
            "inf": "Inf",
            "overflow": "Overflow",
            "all_zero": "All-zero output",
            "explosion": "Explosion",
        }[self.value]

    @property
    def absent(self) -> str:
        """The words for its absence in one tensor."""
        return {
            "nan": "no NaN",
            "inf": "no Inf",
            "overflow": "no overflow",
            "all_zero": "does not explain it",
            "explosion": "not that large",
        }[self.value]

    @property
    def absent_from_inputs(self) -> str:
        """The words for its absence in all inputs of an operator, in a sentence."""
        return {
            "nan": "no NaN in its inputs",
            "inf": "no Inf in its inputs",
            "overflow": "no overflow in its inputs",
            "all_zero": "its inputs do not explain it",
            "explosion": "no input was that large",
        }[self.value]


NON_FINITE = (Anomaly.NAN, Anomaly.INF, Anomaly.OVERFLOW)


class InputState(Enum):
    """Whether an input of an operator shows an anomaly, or why that is unknown."""

    CLEAN = "clean"
    SHOWS_IT = "shows it"
    NOT_DUMPED = "not dumped"
    NOT_RECORDED = "not recorded"


@dataclass(frozen=True, slots=True)
class Shown:
    """The rows of the table that show an anomaly; arrays have the shape (n,).

    Attributes
    ----------
    certainly : array of bool
        Whether the row shows it.
    perhaps : array of bool
        Whether recorded statistics leave open if the row shows it.
    masks : array of bool
        Whether the row may be an intended mask: all its infinities or large values are negative.
    passes : array of bool
        Whether the row is not an anomaly but explains one in the outputs computed from it: a single number that is
        zero, or a mask that marks nothing.
    zeros : float64 array
        Maximum number of zeros in the row.
    anomaly : Anomaly
    explosion_limit : float
        Finite values whose magnitude is above this count as an explosion.
    """

    certainly: NDArray[np.bool_]
    perhaps: NDArray[np.bool_]
    masks: NDArray[np.bool_]
    passes: NDArray[np.bool_]
    zeros: NDArray[np.float64]
    anomaly: Anomaly
    explosion_limit: float

    def state(self, row: int) -> InputState:
        """Return whether a row shows the anomaly, as the state of an input."""
        if self.certainly[row]:
            return InputState.SHOWS_IT
        return InputState.NOT_RECORDED if self.perhaps[row] else InputState.CLEAN


class Measured(Protocol):
    """Statistics of tensors, in columns."""

    @property
    def rows(self) -> NDArray[np.void]:
        """Structured array `ROW`."""

    @property
    def dtypes(self) -> Sequence[str]:
        """Name of the element type of each row."""

    def bounds(self, name: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the smallest and the largest value that a statistic of each row can have."""


Predicate = Callable[[Measured, float], "tuple[NDArray[np.bool_], NDArray[np.bool_]]"]
"""Returns the rows that certainly show an anomaly, and those that may show it."""


def _any(name: str) -> Predicate:
    """Return a predicate for rows in which a count is not zero."""

    def counted(table: Measured, _: float) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        low, high = table.bounds(name)
        return low > 0, high > 0

    return counted


def _infinite(table: Measured, _: float) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    negative, positive = table.bounds("neg_inf_count"), table.bounds("pos_inf_count")
    return negative[0] + positive[0] > 0, negative[1] + positive[1] > 0


def _only_zeros(table: Measured, _: float) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    count, (fewest, most) = table.rows["count"], table.bounds("zero_count")
    some = (count > 1) & _is_float(table)
    return some & (fewest == count), some & (most == count)


def _huge(table: Measured, limit: float) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    smallest, largest = table.bounds("min"), table.bounds("max")
    certainly = (largest[0] > limit) | (smallest[1] < -limit)
    return certainly & _is_float(table), ((largest[1] > limit) | (smallest[0] < -limit)) & _is_float(table)


def _is_float(table: Measured) -> NDArray[np.bool_]:
    return _of_dtype(table, lambda dtype: dtype.startswith(("float", "bfloat", "complex")))


def _is_truth(table: Measured) -> NDArray[np.bool_]:
    return _of_dtype(table, lambda dtype: dtype == "bool")


def _of_dtype(table: Measured, applies: Callable[[str], bool]) -> NDArray[np.bool_]:
    by_dtype = {dtype: applies(dtype) for dtype in set(table.dtypes)}
    return np.fromiter(map(by_dtype.__getitem__, table.dtypes), np.bool_, len(table.dtypes))


PREDICATES: Mapping[Anomaly, Predicate] = {
    Anomaly.NAN: _any("nan_count"),
    Anomaly.INF: _infinite,
    Anomaly.OVERFLOW: _any("non_finite_count"),
    Anomaly.ALL_ZERO: _only_zeros,
    Anomaly.EXPLOSION: _huge,
}
"""For each anomaly, the predicate of rows that show it, from the statistics alone."""


def shown(anomaly: Anomaly, table: Measured, explosion_limit: float) -> Shown:
    """Return the tensors that show an anomaly.

    Parameters
    ----------
    anomaly : Anomaly
    table : Measured
        A completely filled table.
    explosion_limit : float
        Finite values whose magnitude is above this count as an explosion.
    """
    certainly, perhaps = PREDICATES[anomaly](table, explosion_limit)
    state = table.rows["state"]
    seen = (state == KNOWN) | (state == RECORDED)
    masks = np.zeros(len(seen), np.bool_)
    if anomaly is Anomaly.INF:
        masks = (table.bounds("pos_inf_count")[1] == 0) & (table.bounds("neg_inf_count")[0] > 0)
    elif anomaly is Anomaly.EXPLOSION:
        masks = table.bounds("max")[1] <= explosion_limit
    passes = np.zeros(len(seen), np.bool_)
    fewest_zeros, most_zeros = table.bounds("zero_count")
    if anomaly is Anomaly.ALL_ZERO:
        count = table.rows["count"]
        passes = (((count == 1) & _is_float(table)) | _is_truth(table)) & (count > 0) & (fewest_zeros == count) & seen
    undecided = perhaps & ~certainly & (state == RECORDED)
    return Shown(certainly & seen, undecided, masks, passes, most_zeros, anomaly, explosion_limit)
