"""Terms of a loss: divergences with the wrong sign, losses that cannot be negative, and means over nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - as everybody calls it

from tests.diagnosis.diagnosed import FEATURES, each, network

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.diagnosis.diagnosed import Diagnosed


def train_vae(
    training: Diagnosed, divergence: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], sign: float
) -> None:
    """Train a variational autoencoder; the divergence is given a mean and the logarithm of a variance."""
    encoder, decoder = nn.Linear(FEATURES, 8), nn.Linear(4, FEATURES)
    optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=1e-3)
    for _ in range(20):
        inputs, _ = training.batch()
        mean, logarithm = encoder(inputs).chunk(2, 1)
        out = decoder(mean + (0.5 * logarithm).exp() * torch.randn_like(mean))
        loss = (out - inputs).pow(2).sum(1).mean() + sign * divergence(mean, logarithm)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def as_in_the_paper(mean: torch.Tensor, logarithm: torch.Tensor) -> torch.Tensor:
    return -0.5 * (1 + logarithm - mean**2 - logarithm.exp()).sum(1).mean()


def without_minus(mean: torch.Tensor, logarithm: torch.Tensor) -> torch.Tensor:
    return (mean.pow(2) + logarithm.exp() - 1 - logarithm).mul(0.5).sum(1).mean()


def of_deviations(mean: torch.Tensor, logarithm: torch.Tensor) -> torch.Tensor:
    variance = logarithm.exp()
    return 0.5 * (variance + mean * mean - 1 - torch.log(variance)).sum(1).mean()


def of_distributions(mean: torch.Tensor, logarithm: torch.Tensor) -> torch.Tensor:
    normal = torch.distributions.Normal
    standard = normal(torch.zeros_like(mean), torch.ones_like(mean))
    result: torch.Tensor = (
        torch.distributions.kl_divergence(normal(mean, (0.5 * logarithm).exp()), standard).sum(1).mean()
    )
    return result


DIVERGENCES = (as_in_the_paper, without_minus, of_deviations, of_distributions)


@pytest.mark.parametrize("divergence", DIVERGENCES, ids=[each_.__name__ for each_ in DIVERGENCES])
def test_a_divergence_that_is_subtracted(
    diagnosed: Diagnosed, divergence: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
) -> None:
    train_vae(diagnosed, divergence, -1.0)
    assert diagnosed.found() == [("divergence-maximized", "subtracted")]


@pytest.mark.parametrize("divergence", DIVERGENCES, ids=[each_.__name__ for each_ in DIVERGENCES])
def test_a_divergence_that_is_added(
    diagnosed: Diagnosed, divergence: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
) -> None:
    train_vae(diagnosed, divergence, 1.0)
    assert diagnosed.found() == []
    assert "gaussian_kl" in diagnosed.facts["loss_functions"]["function"]


def test_other_squares_may_be_subtracted(diagnosed: Diagnosed) -> None:
    """A bonus for large outputs, and a likelihood with a variance."""

    def loss(out: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        squares = (out[:, 0] - labels.float()) ** 2
        return (0.5 * squares * (-out[:, 1]).exp() + 0.5 * out[:, 1] - 0.001 * out[:, 2] ** 2).mean()

    diagnosed.train(network(), loss)
    assert "gaussian_kl" not in diagnosed.facts["loss_functions"]["function"]


def scores_for_a_divergence(training: Diagnosed) -> None:
    def loss(out: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return F.kl_div(out + 3, 0.9 * F.one_hot(labels, 4) + 0.025, reduction="batchmean")

    training.train(network(), loss)


def targets_that_sum_to_less(training: Diagnosed) -> None:
    def loss(out: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return F.kl_div(F.log_softmax(out, 1), 0.01 + 0.01 * F.one_hot(labels, 4).float(), reduction="batchmean")

    training.train(network(), loss)


@each(scores_for_a_divergence, targets_that_sum_to_less)
def test_a_divergence_below_0(diagnosed: Diagnosed, train: Callable[[Diagnosed], None]) -> None:
    train(diagnosed)
    assert diagnosed.found()[:1] == [("loss-negative", "negative")]


def rows_that_no_mask_chooses(training: Diagnosed) -> None:
    training.train(network(out=1), lambda out, labels: (out[:, 0] - 1)[labels > 9].pow(2).mean())


def sum_over_a_count_of_0(training: Diagnosed) -> None:
    def loss(out: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        mask = (labels > 9).float()
        return (((out[:, 0] - 1) ** 2) * mask).sum() / mask.sum()

    training.train(network(out=1), loss)


def single_batch_without_a_row(training: Diagnosed) -> None:
    steps = iter(range(100))

    def loss(out: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return (out[:, 0] - 0.3)[labels > (9 if next(steps) == 10 else 0)].pow(2).mean()

    training.train(network(out=1), loss)


@each(rows_that_no_mask_chooses, sum_over_a_count_of_0, single_batch_without_a_row)
def test_a_mean_over_nothing(diagnosed: Diagnosed, train: Callable[[Diagnosed], None]) -> None:
    train(diagnosed)
    assert diagnosed.found()[:1] == [("mean-over-nothing", "empty")]


def divergence_with_an_entropy(training: Diagnosed) -> None:
    """A loss may be negative that has another term."""

    def loss(out: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        logarithms = F.log_softmax(out, 1)
        target = 0.9 * F.one_hot(labels, 4) + 0.025
        entropy = -(logarithms.exp() * logarithms).sum(1).mean()
        return F.kl_div(logarithms, target, reduction="batchmean") - 2 * entropy

    training.train(network(), loss)


def mean_of_a_mask(training: Diagnosed) -> None:
    training.train(network(out=1), lambda out, labels: (out[:, 0] - 0.3)[labels > 0].pow(2).mean())


def count_of_at_least_1(training: Diagnosed) -> None:
    def loss(out: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        mask = (labels > 2).float()
        return (((out[:, 0] - 1) ** 2) * mask).sum() / mask.sum().clamp(min=1)

    training.train(network(out=1), loss)


@each(divergence_with_an_entropy, mean_of_a_mask, count_of_at_least_1)
def test_nothing_is_found(diagnosed: Diagnosed, train: Callable[[Diagnosed], None]) -> None:
    train(diagnosed)
    assert diagnosed.found() == []
