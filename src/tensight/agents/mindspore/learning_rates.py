"""The learning rates of an optimizer, read from its attributes: computing them would be part of the training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mindspore import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


def rates_of(optimizer: nn.Optimizer, *, has_updated: bool) -> Iterator[float]:
    """Yield the learning rates of the groups of an optimizer, of its latest update or of the next one.

    Parameters
    ----------
    optimizer : Optimizer
    has_updated : bool
        Whether to yield those of the latest update.

    Yields
    ------
    float
        Rates that a schedule computes are left out.
    """
    groups = getattr(optimizer, "param_groups", None)
    if groups is not None:
        yield from (float(group["lr"]) for group in groups if "lr" in group)
        return
    rates = optimizer.learning_rate
    # With groups, one for each parameter.
    several = rates if getattr(optimizer, "is_group_lr", False) else [rates]
    yield from dict.fromkeys(_kept_rates(several, optimizer, has_updated))


def _kept_rates(rates: Iterable[Any], optimizer: nn.Optimizer, has_updated: bool) -> Iterator[float]:
    for rate in rates:
        # If some rates change, MindSpore keeps constant and listed rates in cells of its own.
        is_kept = type(rate).__module__ == nn.Optimizer.__module__
        kept = getattr(rate, "learning_rate", None) if is_kept else rate
        if not isinstance(kept, Tensor):
            continue
        values = kept.asnumpy().reshape(-1)
        at = int(optimizer.global_step.asnumpy().reshape(-1)[0]) - has_updated if len(values) > 1 else 0
        # Their shortest decimal form: 0.001, not its value as a float32.
        yield float(str(values[min(max(at, 0), len(values) - 1)]))
