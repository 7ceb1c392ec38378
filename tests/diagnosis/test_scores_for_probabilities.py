"""Loss functions that are given scores in place of probabilities or of their logarithms, and overlaps of both."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - as everybody calls it

from tests.diagnosis.diagnosed import each

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.diagnosis.diagnosed import Diagnosed

LETTERS, TIMES = 6, 12


def train_sequences(training: Diagnosed, activation: nn.Module, steps: int = 20) -> None:
    """Train a model that spells three letters, with the alignment of CTC."""
    model = nn.Sequential(nn.Linear(LETTERS, 16), nn.ReLU(), nn.Linear(16, LETTERS), activation)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(steps):
        letters = torch.randint(1, LETTERS, (8, 3))
        given = F.one_hot(letters.repeat_interleave(TIMES // 3, 1), LETTERS).float()
        optimizer.zero_grad()
        out = model(given).transpose(0, 1)
        F.ctc_loss(out, letters, torch.full((8,), TIMES), torch.full((8,), 3)).backward()
        optimizer.step()
    assert training.is_attached


def scores_for_ctc(training: Diagnosed) -> None:
    train_sequences(training, nn.Identity())


def scores_for_ctc_that_become_logarithms(training: Diagnosed) -> None:
    """Its gradients lead the sum of the exponentials to 1."""
    train_sequences(training, nn.Identity(), steps=100)


def probabilities_for_ctc(training: Diagnosed) -> None:
    train_sequences(training, nn.Softmax(-1))


def logarithms_for_ctc(training: Diagnosed) -> None:
    train_sequences(training, nn.LogSoftmax(-1))


def train_masks(
    training: Diagnosed, overlap: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], *last: nn.Module
) -> None:
    """Train a model that finds the bright half of a picture, by its overlap with that."""
    model = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 1, 1), *last)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(20):
        masks = (torch.rand(8, 1, 1, 8) > 0.5).float().expand(8, 1, 8, 8)
        optimizer.zero_grad()
        (1 - overlap(model(masks + 0.3 * torch.randn(8, 1, 8, 8)), masks)).backward()
        optimizer.step()
    assert training.is_attached


def dice(out: torch.Tensor, masks: torch.Tensor) -> torch.Tensor:
    together = (out * masks).sum((1, 2, 3))
    return ((2 * together + 1) / (out.sum((1, 2, 3)) + masks.sum((1, 2, 3)) + 1)).mean()


def union(out: torch.Tensor, masks: torch.Tensor) -> torch.Tensor:
    flat, target = out.reshape(-1), masks.reshape(-1)
    together = (flat * target).sum()
    return (together + 1) / (flat.sum() + target.sum() - together + 1)


def dice_of_scores(training: Diagnosed) -> None:
    train_masks(training, dice)


def union_of_scores(training: Diagnosed) -> None:
    train_masks(training, union)


def dice_of_probabilities(training: Diagnosed) -> None:
    train_masks(training, lambda out, masks: dice(out.sigmoid(), masks))


def dice_of_what_counts(training: Diagnosed) -> None:
    """Probabilities are multiplied by which pixels count."""
    train_masks(training, lambda out, masks: dice(out.sigmoid() * (torch.rand(masks.shape) < 0.9), masks))


def union_of_a_model_that_ends_with_a_sigmoid(training: Diagnosed) -> None:
    train_masks(training, union, nn.Sigmoid())


def fraction_of_positive_scores(training: Diagnosed) -> None:
    """Outputs of another kind that are bounded by themselves."""
    train_masks(training, lambda out, masks: dice(out.clamp(0, 1), masks))


@each(scores_for_ctc, scores_for_ctc_that_become_logarithms, probabilities_for_ctc, dice_of_scores, union_of_scores)
def test_scores_are_reported(diagnosed: Diagnosed, train: Callable[[Diagnosed], None]) -> None:
    train(diagnosed)
    assert diagnosed.found()[0][0] == "no-logarithm"


@each(
    logarithms_for_ctc,
    dice_of_probabilities,
    dice_of_what_counts,
    union_of_a_model_that_ends_with_a_sigmoid,
    fraction_of_positive_scores,
)
def test_what_is_expected_is_not(diagnosed: Diagnosed, train: Callable[[Diagnosed], None]) -> None:
    train(diagnosed)
    assert diagnosed.found() == []
    assert diagnosed.facts.last_step == 20
