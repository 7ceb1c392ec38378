"""Outputs that are drawn together until they are all the same, and others that are compared without that."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - as everybody calls it

from tests.diagnosis.diagnosed import FEATURES, each, network

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.diagnosis.diagnosed import Diagnosed


def train_views(
    training: Diagnosed, models: tuple[nn.Module, nn.Module], loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
) -> None:
    """Train two models, or one twice, on two noisy views of each sample."""
    weights = dict.fromkeys(weight for model in models for weight in model.parameters())
    optimizer = torch.optim.Adam(weights, lr=1e-2)
    for _ in range(80):
        inputs, _ = training.batch()
        first, second = (model(inputs + 0.1 * torch.randn_like(inputs)) for model in models)
        optimizer.zero_grad()
        loss(first, second).backward()
        optimizer.step()


def squares_of_one_encoder(training: Diagnosed) -> None:
    model = network()
    train_views(training, (model, model), lambda a, b: (a - b).pow(2).sum(1).mean())


def mean_squares_of_a_deep_encoder(training: Diagnosed) -> None:
    model = nn.Sequential(nn.Linear(FEATURES, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 16), nn.Tanh())
    train_views(training, (model, model), F.mse_loss)


def absolute_distances_of_normalised_outputs(training: Diagnosed) -> None:
    model = network(nn.Tanh(), out=2)
    train_views(training, (model, model), lambda a, b: (a - b).abs().mean())


def cosines_of_one_encoder(training: Diagnosed) -> None:
    """No side is without a gradient, and nothing pushes samples apart."""
    model = network(out=8)
    train_views(training, (model, model), lambda a, b: -F.cosine_similarity(a, b).mean())


def cosines_by_hand(training: Diagnosed) -> None:
    model = network(out=8)
    train_views(
        training,
        (model, model),
        lambda a, b: 2 - 2 * (F.normalize(a, dim=1) * F.normalize(b, dim=1)).sum(1).mean(),
    )


@each(cosines_of_one_encoder, cosines_by_hand)
def test_a_collapse_of_directions_comes_first(diagnosed: Diagnosed, train: Callable[[Diagnosed], None]) -> None:
    train(diagnosed)
    assert diagnosed.found()[:1] == [("outputs-collapse", "directions")]


def cosines_with_a_teacher(training: Diagnosed) -> None:
    """The directions of a teacher that stays as it is, and differ between samples."""
    teacher = network(out=8).requires_grad_(False)
    train_views(training, (network(out=8), teacher), lambda a, b: -F.cosine_similarity(a, b).mean())


def cosines_to_one_direction(training: Diagnosed) -> None:
    """All samples are to lie in one direction, as of one class alone."""
    centre = F.normalize(torch.ones(1, 8), dim=1)
    model = network(out=8)
    train_views(training, (model, model), lambda a, _: -(F.normalize(a, dim=1) * centre.expand_as(a)).sum(1).mean())


@each(squares_of_one_encoder, mean_squares_of_a_deep_encoder, absolute_distances_of_normalised_outputs)
def test_a_collapse_comes_first(diagnosed: Diagnosed, train: Callable[[Diagnosed], None]) -> None:
    train(diagnosed)
    assert diagnosed.found()[:1] == [("outputs-collapse", "distance")]


def one_side_without_gradients(training: Diagnosed) -> None:
    """A student follows a teacher that stays as it is."""
    teacher = network().requires_grad_(False)
    train_views(training, (network(), teacher), F.mse_loss)


def variance_that_is_kept(training: Diagnosed) -> None:
    def loss(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return F.mse_loss(a, b) + F.relu(1 - a.std(0)).mean() + F.relu(1 - b.std(0)).mean()

    model = network()
    train_views(training, (model, model), loss)


def outputs_of_small_targets(training: Diagnosed) -> None:
    """What is learnt differs less between samples than the first outputs."""
    model = network(out=1)
    training.train(model, lambda out, labels: F.mse_loss(3 * out[:, 0], 0.3 * labels), steps=80)


def autoencoder(training: Diagnosed) -> None:
    model = nn.Sequential(nn.Linear(FEATURES, FEATURES), nn.Linear(FEATURES, FEATURES))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(80):
        inputs, _ = training.batch()
        optimizer.zero_grad()
        F.mse_loss(model(inputs), inputs).backward()
        optimizer.step()


def derivative_of_an_output(training: Diagnosed) -> None:
    """Both sides of an equation depend on the model, and the first value is another term."""
    model = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(80):
        times = torch.rand(32, 1, requires_grad=True)
        values = model(times)
        (slopes,) = torch.autograd.grad(values.sum(), times, create_graph=True)
        optimizer.zero_grad()
        (F.mse_loss(slopes, -values) + (model(torch.zeros(2, 1)) - 1).pow(2).mean()).backward()
        optimizer.step()
    assert training.is_attached


@each(
    cosines_with_a_teacher,
    cosines_to_one_direction,
    one_side_without_gradients,
    variance_that_is_kept,
    outputs_of_small_targets,
    autoencoder,
    derivative_of_an_output,
)
def test_nothing_is_found(diagnosed: Diagnosed, train: Callable[[Diagnosed], None]) -> None:
    train(diagnosed)
    assert diagnosed.found() == []
    assert diagnosed.facts.last_step == 80
