"""The stages of a training: pre-training and fine-tuning in one script, for example."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tensight.diagnosis.facts import Facts

UPDATES = 3
"""Number of updates in a row after which something is said to be always so."""


def stage_of(facts: Facts) -> int:
    """Return the step at which the optimizers that update now began: what was before is another training."""
    by_step: dict[int, set[str]] = {}
    for step, optimizer in zip(facts["groups"]["step"].tolist(), facts["groups"]["optimizer"].tolist(), strict=True):
        by_step.setdefault(step, set()).add(optimizer)
    steps = sorted(by_step)
    # The first update of a framework such as Lightning may not be seen: what is before it belongs to it.
    first = steps[0] if steps and steps[0] > UPDATES else 0
    for earlier, later in pairwise(steps):
        if not by_step[earlier] & by_step[later]:
            first = later
    return first
