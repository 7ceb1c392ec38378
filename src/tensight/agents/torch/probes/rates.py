"""The probe of the learning rate: how the loss of a batch falls from the first weights on, with it and others."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from tensight.agents.torch.probes.batch import LATE, UntriedError
from tensight.agents.torch.probes.forks import in_child
from tensight.agents.torch.probes.loss import LossProbes

if TYPE_CHECKING:
    import torch

    from tensight.agents.torch.probes.resuming import Beginnings
    from tensight.agents.torch.probes.states import Rows

_UPDATES, _SOON = 5, 2
"""Number of updates of the optimizer on the batch with a learning rate, and after how many it must move the loss."""

_SLOW, _FURTHER = 0.01, 0.2
"""Share of the loss that they take away at most if the rate may be too small, and at least with a better one."""


class RateProbe(LossProbes):
    """Tries learning rates on one batch.

    Parameters
    ----------
    beginnings : Beginnings
    samples : int
        Their number in the batch.
    arguments, named : object
        As for `LossProbes`.
    """

    def __init__(self, beginnings: Beginnings, samples: int, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._beginnings = beginnings
        self._samples = samples

    def rows(self) -> Rows:
        """Run the probe; return its row.

        Raises
        ------
        GoingOn
            In a process that is to go on with the training.
        """
        row = {"name": "rates", "probe": "rates", "model": self.model}
        try:
            return [row | self._courses()]
        except UntriedError as reason:
            return [row | {"outcome": "untried", "why": str(reason)}]

    def _courses(self) -> dict[str, Any]:
        if len(self._optimizers) != 1:
            raise UntriedError("there are several optimizers")
        self._beginnings.put_back(self._samples)
        first, gradients = self._first()
        change = self._after_updates(1.0, first, gradients)
        course = f"from {first:.4g} to {change:.4g} in {_UPDATES} updates"
        numbers = {"scale": first, "change": change, "count": _UPDATES}
        # A rate that is too small is so by orders of magnitude: half of them are tried first.
        factors: tuple[float, ...] = ()
        if not change <= first:
            factors = (0.1, 0.01)
        elif change >= first - _SLOW * abs(first):
            factors = (100.0, 1e4, 1e5, 10.0)
        for factor in factors:
            other = self._after_updates(factor, first, gradients)
            if other <= first - _FURTHER * abs(first):
                course += f", with {factor:g} times the learning rate to {other:.4g}"
                numbers |= {"factor": factor, "other": other}
                break
        return {"outcome": "pass", "why": course, **numbers}

    def _after_updates(self, factor: float, first: float, gradients: list[torch.Tensor]) -> float:
        """Return the loss after some updates with a multiple of the learning rate, which are made in a fork."""
        if self._clock.left_s <= (_UPDATES + 3) * self._longest_s:
            raise UntriedError(LATE)
        results = in_child(lambda: [{"loss": self._updated(factor, first, gradients)}], self._clock)
        if isinstance(results, str):
            raise UntriedError(results)
        return float(results[0]["loss"])

    def _updated(self, factor: float, first: float, gradients: list[torch.Tensor]) -> float:
        (optimizer,) = self._optimizers
        for group in optimizer.param_groups:
            group["lr"] = group["lr"] * factor
        # Neither the debugger nor a scheduler is to see these updates.
        step = type(optimizer).step
        step = getattr(step, "__wrapped__", step)
        loss = math.nan
        for number in range(1, _UPDATES + 1):
            for weight, gradient in zip(self._weights, gradients, strict=True):
                weight.grad = gradient
            step(optimizer)
            loss, gradients = self._tried()
            is_idle = factor > 1 and number == _SOON and abs(loss - first) < _SLOW * abs(first)
            if is_idle or not math.isfinite(loss):
                break
        return loss
