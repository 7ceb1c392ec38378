"""The learning rates of an optimizer, read from what it keeps: having it compute them would be part of the training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mindspore import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


def rates_of(optimizer: nn.Optimizer, *, has_updated: bool) -> Iterator[float]:
    """Yield the learning rates of the groups of an optimizer, of its latest update or of the one that comes.

    Parameters
    ----------
    optimizer : Optimizer
    has_updated : bool
        Whether the update has been done for which they are asked.

    Yields
    ------
    float
        Without those that a schedule computes.
    """
    groups = getattr(optimizer, "param_groups", None)
    if groups is not None:
        yield from (float(group["lr"]) for group in groups if "lr" in group)
        return
    rates = optimizer.learning_rate
    # Where there are groups, one for each parameter.
    several = rates if getattr(optimizer, "is_group_lr", False) else [rates]
    yield from dict.fromkeys(_known(several, optimizer, has_updated))


def _known(rates: Iterable[Any], optimizer: nn.Optimizer, has_updated: bool) -> Iterator[float]:
    for rate in rates:
        # What is constant, or listed for each update, is kept in cells of MindSpore's own where another one changes.
        is_kept = type(rate).__module__ == nn.Optimizer.__module__
        kept = getattr(rate, "learning_rate", None) if is_kept else rate
        if not isinstance(kept, Tensor):
            continue
        values = kept.asnumpy().reshape(-1)
        at = int(optimizer.global_step.asnumpy().reshape(-1)[0]) - has_updated if len(values) > 1 else 0
        # Their shortest decimal form: 0.001, not what of it a float32 holds.
        yield float(str(values[min(max(at, 0), len(values) - 1)]))
