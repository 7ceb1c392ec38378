"""Updates that are skipped or lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - as everybody calls it

from tests.diagnosis.diagnosed import FEATURES
from tests.diagnosis.models import train_scaled

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.diagnosis.diagnosed import Diagnosed


def updates_that_are_skipped_often(training: Diagnosed) -> None:
    train_scaled(training, lambda step: float("inf") if step % 3 == 0 else 1.0, steps=80, interval=2)


def train_offset(training: Diagnosed, offset: float, target: float, rate: float) -> None:
    """Train a trend with an offset towards targets near another one."""

    class Trend(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.slope, self.offset = nn.Linear(FEATURES, 1, bias=False), nn.Parameter(torch.tensor([offset]))

        def forward(self, given: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = self.slope(given) + self.offset
            return result

    model = Trend()
    training.train(
        model,
        lambda out, labels: F.mse_loss(out[:, 0], target + labels.float()),
        torch.optim.Adam(model.parameters(), lr=rate),
    )


def offset_that_is_too_large(training: Diagnosed) -> None:
    train_offset(training, 16_800_100.0, 16_800_000.0, rate=0.4)


@pytest.mark.parametrize(
    ("train", "expected"),
    [
        (updates_that_are_skipped_often, ("updates-skipped", "often")),
        (offset_that_is_too_large, ("update-lost", "coarse")),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_the_cause_comes_first(
    diagnosed: Diagnosed, train: Callable[[Diagnosed], None], expected: tuple[str, str]
) -> None:
    train(diagnosed)
    assert diagnosed.found()[:1] == [expected]


def test_a_large_offset_may_move(diagnosed: Diagnosed) -> None:
    train_offset(diagnosed, 1000.0, 1000.0, rate=0.01)
    assert diagnosed.found() == []
