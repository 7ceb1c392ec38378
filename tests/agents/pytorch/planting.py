"""Mistakes of people, planted into trainings: each with what must be found, and where.

The line where a mistake was made ends with ``# planted: NAME``. A mistake that is no operator (a weight that nobody
trains) is found at the line that reads the weight.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from tests.agents.pytorch import trainings
from tests.agents.pytorch.trainings import Training, batches_of, points, supervised

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn

MARK = "# planted:"

TOO_LARGE = frozenset({"gradient_imbalance", "gradient_growth", "weight_growth"})
UNTRAINED = frozenset({"weight_not_changed", "weight_change_too_small"})


@dataclass(frozen=True)
class Fault:
    """A training with a planted mistake.

    Attributes
    ----------
    name : str
        As in the comment in the source.
    build : callable
        Builds the training.
    conditions : frozenset of str
        The watchpoint that stops the training first has one of these.
    node : str
        Regular expression for the name of the operator or weight where it began, as ``capture="ops"`` names it.
    module : str
        The same for ``capture="modules"``; empty where modules cannot tell.
    step : int or None
        The step in which it shows for the first time, counted from 1; None where it builds up.
    within : int
        The steps after which it must have been found.
    """

    name: str
    build: Callable[[], Training]
    conditions: frozenset[str]
    node: str
    module: str = ""
    step: int | None = None
    within: int = 60

    @property
    def line(self) -> tuple[str, int]:
        """The file of the mistake, and the number of its line."""
        return planted_lines()[self.name]


@cache
def planted_lines() -> dict[str, tuple[str, int]]:
    """Return the files and numbers of the lines with a planted mistake, by its name."""
    found: dict[str, tuple[str, int]] = {}
    for file in Path(__file__).parent.glob("*_faults.py"):
        for number, line in enumerate(file.read_text().splitlines(), 1):
            _, marked, name = line.partition(f"  {MARK} ")
            if marked:
                found[name] = str(file), number
    return found


SICK_BATCH = 5
"""The number, from 0, of the step whose batch brings the mistake out where data does that."""


def sick(number: int) -> bool:
    """Whether a step is the one with the sick batch."""
    return number == SICK_BATCH


def classified_by(model_type: Callable[[], nn.Module], optimizer_type: Any = torch.optim.Adam) -> Training:
    """Classify points with a model."""
    torch.manual_seed(trainings.SEED)
    batch = batches_of(*points(), 32)
    model = model_type()
    optimizer = optimizer_type(model.parameters(), lr=1e-3)
    return supervised(model, optimizer, batch)
