"""A few numbers of a training, watched or not: its loss, its learning rates, its gradient norms.

They are read in some steps only, so rarely that this costs no more than a hundredth of the training's time; the loss of
a step at which a watchpoint stops is always read.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tensight.agents.core.columns import StatisticsColumns
from tensight.wire.scalars import Scalar

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tensight.agents.core.reader import TensorReader
    from tensight.agents.core.rows import Rows

EVERY_S = 0.2
"""Minimum interval between readings while a training runs."""

_SHARE = 0.01
"""Maximum share of the training's time."""

_SPARSER = 500
"""In a longer training they are read less often: at intervals of its age divided by this."""

_ROUNDING = 1e-9
"""Share of the greatest loss, which is at most counted as 1, that is due to rounding."""

MOST_SLOTS = 8
"""Maximum number of backward passes of a step, or of parameter groups, that are distinguished."""

_SAME = 1e-6
"""Relative difference of two gradient norms between which nothing was clipped."""


class _Update(NamedTuple):
    """An update of an optimizer.

    Attributes
    ----------
    rates : list of float
    squares : float or None
        Sum of the squares of all gradients that it reads.
    before : float or None
        The same when the backward pass had ended, before gradients were clipped; None if unknown.
    """

    rates: list[float]
    squares: float | None
    before: float | None


class Scalars:
    """The numbers of the current step.

    Parameters
    ----------
    reader : TensorReader
    columns : StatisticsColumns
        Those of the training, whose rows devices may still compute when gradients are read here.
    losses_every_s : float or None
        Interval at which the loss alone is read, too; None to read it only with the others.

    Attributes
    ----------
    is_wanted : bool
        Whether they are read in this step.
    notes_losses : bool
        Whether losses must be noted, because they are read, or may be if the training stops.
    """

    def __init__(
        self, reader: TensorReader, columns: StatisticsColumns, *, losses_every_s: float | None = None
    ) -> None:
        self.is_wanted = self.notes_losses = self._wants_loss = False
        self._losses_every_s = losses_every_s
        self._reader = reader
        self._others = columns
        self._columns: StatisticsColumns | None = None
        self._losses: list[Any] = []
        self._highest = math.inf
        self._least, self._greatest = math.inf, -math.inf
        self._updates: dict[int, _Update] = {}
        self._backward: dict[int, float] = {}
        self._clips = False
        self._began_s = time.monotonic()
        self._next_s = self._next_loss_s = self._cost_s = 0.0

    def begin(self, *, is_reported: bool, is_shown: bool, are_noted: bool) -> None:
        """Decide whether they are read in the next step.

        Parameters
        ----------
        is_reported : bool
            Whether a server understands them.
        is_shown : bool
            Whether a user will inspect the step.
        are_noted : bool
            Whether losses are noted in any case: a user may inspect the step, or a watchpoint may need them.
        """
        self.is_wanted = is_reported and (is_shown or time.monotonic() >= self._next_s)
        is_loss_due = self._losses_every_s is not None and time.monotonic() >= self._next_loss_s
        self._wants_loss = self.is_wanted or (is_reported and is_loss_due)
        self.notes_losses = self._wants_loss or are_noted
        self._losses.clear()
        self._updates.clear()
        self._highest = math.inf
        self._backward.clear()
        self._cost_s = 0.0

    def loss(self, tensor: Any) -> None:
        """Note that a backward pass begins from a tensor with one element; it is read when the step has ended."""
        held = self._reader.hold(tensor) if len(self._losses) < MOST_SLOTS else None
        if held is not None:
            self._losses.append(held[0])

    def have_fallen_to_zero(self) -> bool:
        """Return whether each loss of this step is 0 up to rounding, after greater ones, and none was below 0."""
        if self._losses:
            self._highest = max(self._values_of_losses())
        return self._least >= 0 < self._greatest and self._highest <= _ROUNDING * min(self._greatest, 1)

    def _values_of_losses(self) -> list[float]:
        values = self._values(self._losses) if self._losses else []
        self._least, self._greatest = min([self._least, *values]), max([self._greatest, *values])
        return values

    def backward(self, optimizer: int, gradients: Iterable[Any], scale: float) -> None:
        """Note that a backward pass has ended.

        Parameters
        ----------
        optimizer : int
            Identity of an optimizer.
        gradients : iterable of object
            Of all its weights, read now.
        scale : float
            The factor of the loss scaler, by which they are divided before the update.
        """
        began = time.monotonic()
        self._backward[optimizer] = self._sum_of_squares(gradients) / scale**2
        self._cost_s += time.monotonic() - began

    def update(self, optimizer: int, rates: Iterable[float], gradients: Iterable[Any] | None) -> None:
        """Note that an optimizer is about to update; its earlier update in this step no longer counts.

        Parameters
        ----------
        optimizer : int
            Its identity.
        rates : iterable of float
            Learning rates of its groups, read now.
        gradients : iterable of object, or None
            Of all its weights, read now; None if they are not visible.
        """
        began = time.monotonic()
        squares = None if gradients is None else self._sum_of_squares(gradients)
        self._updates[optimizer] = _Update(list(rates), squares, self._backward.get(optimizer))
        self._cost_s += time.monotonic() - began

    def _sum_of_squares(self, gradients: Iterable[Any]) -> float:
        rows = self._scanned(gradients)
        counts = rows.counts
        if counts[:, 1].any():
            return math.nan
        if counts[:, 2:4].any():
            return math.inf
        norms = rows.numbers[:, -1]
        return float(np.square(norms[np.isfinite(norms)]).sum())

    def _values(self, tensors: Iterable[Any]) -> list[float]:
        """Return the values of tensors with one element each."""
        rows = self._scanned(tensors)
        values = []
        for counts, numbers in zip(rows.counts.tolist(), rows.numbers.tolist(), strict=True):
            infinite = math.inf if counts[3] else -math.inf if counts[2] else math.nan
            values.append(numbers[2] if math.isfinite(numbers[2]) else infinite)
        return values

    def _scanned(self, tensors: Iterable[Any]) -> Rows:
        self._reader.settle(self._others)
        columns = self._columns = self._columns or StatisticsColumns()
        columns.current_iteration += 1
        amount = 0
        for tensor in tensors:
            amount += self._reader.scan(tensor, columns, amount, hashed=False)
        self._reader.settle(columns)
        return columns.take(np.arange(amount))

    def take(self, *, stops: bool) -> list[Scalar]:
        """Return the numbers of the step, which has ended, and decide when the next ones are due.

        Parameters
        ----------
        stops : bool
            Whether the training stops after it.
        """
        if not (self._wants_loss or stops) or not (self._losses or self._updates):
            return []
        began = time.monotonic()
        scalars = [Scalar("loss", slot, value) for slot, value in enumerate(self._values_of_losses())]
        self._losses.clear()
        if self._losses_every_s is not None:
            now = time.monotonic()
            self._next_loss_s = now + max(self._losses_every_s, (now - began) * (1 / _SHARE - 1))
        if not self.is_wanted:
            return scalars
        rates = [rate for update in self._updates.values() for rate in update.rates]
        scalars += [Scalar("learning_rate", slot, rate) for slot, rate in enumerate(rates[:MOST_SLOTS])]
        scalars += self._gradient_norms()
        now = time.monotonic()
        cost_s = self._cost_s + now - began
        self._next_s = now + max(EVERY_S, (now - self._began_s) / _SPARSER, cost_s * (1 / _SHARE - 1))
        return scalars

    def _gradient_norms(self) -> list[Scalar]:
        """Return the norm of the gradients that the updates read; if the training clips, also the norm before."""
        after = [update.squares for update in self._updates.values() if update.squares is not None]
        before = [update.before for update in self._updates.values() if update.before is not None]
        if not after or len(after) < len(self._updates):
            return []
        norm = math.sqrt(sum(after))
        norms = [Scalar("gradient_norm", 0, norm)]
        if len(before) == len(after):
            unclipped = math.sqrt(sum(before))
            # A training that clips does not do so in every step: the curves of both must not have gaps.
            self._clips |= math.isfinite(unclipped) and not math.isclose(unclipped, norm, rel_tol=_SAME)
            if self._clips:
                norms.append(Scalar("gradient_norm_before_clipping", 0, unclipped))
        return norms
