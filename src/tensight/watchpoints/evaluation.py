"""Evaluates a check on many tensors at once, from their statistics."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Literal

import numpy as np

from tensight.errors import InputError
from tensight.watchpoints.columns import Arguments, BoolColumn, Columns, FloatColumn, column, finite_counts
from tensight.watchpoints.error_codes import ErrorCode
from tensight.watchpoints.quantities import Quantity, Source, compares_non_finite
from tensight.watchpoints.recorded import RECORDED, at_most, may_be_without_value, recorded_bounds

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from tensight.watchpoints.checks import ConditionCheck, Threshold

NonFinite = Literal["evaluate", "report"]


class Status(IntEnum):
    """Whether a check could be made on a tensor, and if not, why."""

    EVALUATED = 0
    """The check was made."""
    EMPTY = 1
    """The tensor has no elements; there is nothing to check."""
    NOT_FINITE = 2
    """Thresholds were not evaluated: the tensor has non-finite elements ("report"), or no finite ones ("evaluate")."""
    NO_PREVIOUS = 3
    """There is no value of the previous step to compare with."""
    DIFFERENT_SIZE = 4
    """The value of the previous step has another number of elements."""
    NOT_RECORDED = 5
    """Only some statistics of the tensor were recorded, and they do not decide it."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The verdicts of one check on many tensors; every array has shape (rows,).

    Attributes
    ----------
    hit : ndarray of bool
        Whether the check hits.
    error_code : ndarray of int32
        ``ErrorCode`` bits. With ``non_finite="evaluate"`` the bits for NaN and Inf are information beside the verdict.
    actual : mapping of str to ndarray of float64
        The value that was compared, for each threshold in effect. Without a value it is NaN, or 0 with
        ``non_finite="report"``, as the original reports it. Also NaN for a hit that recorded statistics decided without
        determining the value.
    parameter_hit : mapping of str to ndarray of bool
        Whether each threshold in effect hit.
    status : ndarray of int8
        ``Status`` of each row.
    undecided : ndarray of bool
        The columns give only bounds that leave the verdict, or the actual value of a hit, open: read the tensor for
        ``check.needs`` and evaluate again. ``hit`` is False there unless it is certain. Recorded tensors cannot be
        read; if they leave a verdict open, ``status`` is ``NOT_RECORDED``.
    non_finite : {"evaluate", "report"}
        The rule for non-finite elements that was applied.
    """

    hit: BoolColumn
    error_code: NDArray[np.int32]
    actual: Mapping[str, FloatColumn]
    parameter_hit: Mapping[str, BoolColumn]
    status: NDArray[np.int8]
    undecided: BoolColumn
    non_finite: NonFinite

    @property
    def reported(self) -> BoolColumn:
        """The rows that become hits: those that hit and, with ``non_finite="report"``, those with an error code."""
        if self.non_finite == "report":
            with_error: BoolColumn = self.hit | (self.error_code != 0)
            return with_error
        return self.hit

    @property
    def not_checked(self) -> BoolColumn:
        """The non-empty rows on which the check could not be made; ``status`` gives the reason."""
        skipped: BoolColumn = (self.status != Status.EVALUATED) & (self.status != Status.EMPTY)
        return skipped


def evaluate(check: ConditionCheck, columns: Columns, *, non_finite: NonFinite = "evaluate") -> Evaluation:
    """Evaluate a check on all rows of a table of statistics.

    Parameters
    ----------
    check : ConditionCheck
        The condition and its thresholds.
    columns : Columns
        One array per statistic, one element per tensor; ``check.needs`` names the needed ones. A count in a value range
        may be missing or negative ("not counted"); then the other statistics decide where they can.
    non_finite : {"evaluate", "report"}
        "evaluate": thresholds see the finite elements, and percentages refer to them; NaN and Inf are noted in the
        error code. "report" is the original's rule: a tensor with NaN or Inf, or without a previous value where one is
        needed, is reported with error bits and its thresholds are not evaluated, except by conditions on NaN and Inf;
        parameters that the original ignores are ignored.

    Returns
    -------
    Evaluation
        The verdicts, in the order of the rows.

    Raises
    ------
    InputError
        A column is missing, or its length differs from that of the others.
    """
    if non_finite not in ("evaluate", "report"):
        raise InputError(f'non_finite must be "evaluate" or "report"; got {non_finite!r}')
    with np.errstate(all="ignore"):
        return _Rows(check, columns, report=non_finite == "report").evaluation()


class _Rows:
    """The rows under evaluation, and their verdicts."""

    def __init__(self, check: ConditionCheck, columns: Columns, *, report: bool) -> None:
        self._check = check
        self._columns = columns
        self._report = report
        self._length = self._common_length()
        self._compares_steps = any(q.source is Source.CHANGE for q in check.quantities)
        self._empty = self._where("count", "==")
        self._recorded = self._flags(RECORDED) if RECORDED in columns else self._none()
        self._missing_previous = ~self._flags("has_previous") if self._compares_steps else self._none()
        self._missing_previous &= ~self._recorded
        self._error_code = self._error_codes()
        self._evaluable = ~self._empty
        self._open = self._none()
        if report:
            self._evaluable = self._evaluable & (self._error_code == 0)
            if RECORDED in columns and check.condition.flag is None:
                self._open = self._recorded & self._evaluable & (at_most(columns, "non_finite_count") > 0)
                self._evaluable = self._evaluable & ~self._open

    def evaluation(self) -> Evaluation:
        hit, undecided = self._flag_hit(), self._none()
        actual: dict[str, FloatColumn] = {}
        parameter_hit: dict[str, BoolColumn] = {}
        unknown = self._none()
        for threshold in self._check.thresholds:
            low, high = self._bounds(threshold.quantity)
            certain, possible = _verdicts(threshold, low, high)
            certain, possible = certain & self._evaluable, possible & self._evaluable
            open_value = self._evaluable & (low < high)
            if RECORDED in self._columns:
                unsure = self._recorded & may_be_without_value(threshold.quantity, self._columns)
                certain, open_value = certain & ~unsure, open_value | (self._evaluable & unsure)
            value = np.where(self._evaluable & (low == high), low, np.nan)
            unknown |= open_value
            undecided |= open_value & possible
            hit |= certain
            actual[threshold.name], parameter_hit[threshold.name] = self._shown(threshold.quantity, value, certain)
        return Evaluation(
            hit=hit,
            error_code=self._error_code,
            actual=actual,
            parameter_hit=parameter_hit,
            status=self._status((undecided | self._open) & ~hit),
            # A hit shows the actual value of every threshold, so it needs also those that did not decide the verdict.
            undecided=(undecided | (unknown & hit)) & ~self._recorded,
            non_finite="report" if self._report else "evaluate",
        )

    def _bounds(self, quantity: Quantity) -> tuple[FloatColumn, FloatColumn]:
        low, high = quantity.bounds(self._columns, self._arguments())
        if self._report and quantity.source is Source.CHANGE:
            # In the original's arithmetic one NaN or Inf in the previous value leaves no number to compare.
            lost = compares_non_finite(self._columns)
            low, high = np.where(lost, np.nan, low), np.where(lost, np.nan, high)
        if self._recorded.any():
            return recorded_bounds(quantity, self._columns, self._arguments(), (low, high))
        return low, high

    def _arguments(self) -> Arguments:
        """Return the values in effect, without those that the original ignores if its rule applies."""
        values = dict(self._check.values)
        if self._report:
            for parameter in self._check.condition.parameters:
                if parameter.ignored_by_original and parameter.default is not None:
                    values[parameter.name] = parameter.default
        return values

    def _shown(self, quantity: Quantity, value: FloatColumn, hit: BoolColumn) -> tuple[FloatColumn, BoolColumn]:
        """Return the actual value and the threshold's verdict as they are reported."""
        if not self._report:
            return value, hit
        if not quantity.shown_by_original:
            return np.zeros(self._length), self._none()
        return np.where(np.isnan(value), 0.0, value), hit

    def _flag_hit(self) -> BoolColumn:
        flag = self._check.condition.flag
        if flag is None:
            return self._none()
        certain, possible = self._bounds(flag)
        hit = (certain > 0) & ~self._empty
        self._open = self._open | (self._recorded & (possible > 0) & ~hit)
        return hit

    def _error_codes(self) -> NDArray[np.int32]:
        code = np.zeros(self._length, dtype=np.int32)
        if not self._report or self._check.condition.flag is None:
            code |= self._where("nan_count", ">") * np.int32(ErrorCode.NAN)
            infinite = self._where("neg_inf_count", ">") | self._where("pos_inf_count", ">")
            code |= infinite * np.int32(ErrorCode.INF)
        code |= self._missing_previous * np.int32(ErrorCode.NO_PREVIOUS)
        code[self._empty] = 0
        return code

    def _status(self, undecided: BoolColumn) -> NDArray[np.int8]:
        status = np.full(self._length, Status.EVALUATED, dtype=np.int8)
        if self._compares_steps and "changes_comparable" in self._columns:
            status[~self._flags("changes_comparable")] = Status.DIFFERENT_SIZE
        status[self._missing_previous] = Status.NO_PREVIOUS
        if self._check.condition.flag is None:
            if self._report:
                blocked = (self._error_code & (ErrorCode.NAN | ErrorCode.INF)) != 0
            else:
                blocked = finite_counts(self._columns) <= 0
            status[blocked] = Status.NOT_FINITE
        status[undecided & self._recorded] = Status.NOT_RECORDED
        status[self._empty] = Status.EMPTY
        return status

    def _where(self, name: str, comparison: Literal[">", "=="]) -> BoolColumn:
        """Compare a column with 0; a column that this check does not need may be missing, and counts as false."""
        if name not in self._columns and not self._check.needs.statistics:
            return self._none()
        values = column(self._columns, name)
        is_met: BoolColumn = values > 0 if comparison == ">" else values == 0
        return is_met

    def _flags(self, name: str) -> BoolColumn:
        return column(self._columns, name).astype(np.bool_)

    def _none(self) -> BoolColumn:
        return np.zeros(self._length, dtype=np.bool_)

    def _common_length(self) -> int:
        needed = {name for quantity in self._check.quantities for name in quantity.columns}
        if self._check.needs.statistics:
            needed |= {"count", "nan_count", "neg_inf_count", "pos_inf_count"}
        lengths = {name: len(column(self._columns, name)) for name in sorted(needed)}
        if len(set(lengths.values())) != 1:
            raise InputError(f"the columns differ in length: {lengths}")
        return next(iter(lengths.values()))


def _verdicts(threshold: Threshold, low: FloatColumn, high: FloatColumn) -> tuple[BoolColumn, BoolColumn]:
    """Return whether a quantity between two bounds certainly hits, and whether it may hit."""
    at_low = threshold.comparator.compare(low, threshold.value)
    at_high = threshold.comparator.compare(high, threshold.value)
    return (at_low, at_high) if threshold.comparator.grows else (at_high, at_low)
