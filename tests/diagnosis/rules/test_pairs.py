"""Losses that compare outputs with each other, and trainings that look like their faults."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - as everybody calls it

from tests.diagnosis.diagnosed import CLASSES, FEATURES, Faulty, Healthy, network, table_tests

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.diagnosis.diagnosed import Diagnosed

# --- views-are-equal ---


def of_pairs(scores: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
    """What is of the same row is to be alike, and all else not."""
    scores, others = F.normalize(scores, dim=1), F.normalize(others, dim=1)
    return F.cross_entropy(scores @ others.T / 0.1, torch.arange(len(scores)))


def contrast(training: Diagnosed, model: nn.Module, loss_of: Callable[[nn.Module, torch.Tensor], torch.Tensor]) -> None:
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(12):
        optimizer.zero_grad()
        loss_of(model, training.batch()[0]).backward()
        optimizer.step()


def noisy(inputs: torch.Tensor) -> torch.Tensor:
    return inputs + 0.3 * torch.randn_like(inputs)


def of_both(model: nn.Module, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    return of_pairs(*model(torch.cat((first, second))).chunk(2))


def augmented_once_for_both(training: Diagnosed) -> None:
    def loss(model: nn.Module, inputs: torch.Tensor) -> torch.Tensor:
        view = noisy(inputs)
        return of_pairs(model(view), model(view))

    contrast(training, network(), loss)


def halves_that_are_the_same(training: Diagnosed) -> None:
    def loss(model: nn.Module, inputs: torch.Tensor) -> torch.Tensor:
        view = noisy(inputs)
        return of_both(model, view, view)

    contrast(training, network(), loss)


def neighbours_that_are_the_same(training: Diagnosed) -> None:
    def loss(model: nn.Module, inputs: torch.Tensor) -> torch.Tensor:
        out = model(noisy(inputs).repeat_interleave(2, 0))
        return F.mse_loss(out[::2], out[1::2]) + F.relu(1 - out.std(0)).mean()

    contrast(training, network(), loss)


def views_that_differ(training: Diagnosed) -> None:
    contrast(training, network(), lambda model, inputs: of_pairs(model(noisy(inputs)), model(noisy(inputs))))


def halves_that_differ(training: Diagnosed) -> None:
    contrast(training, network(), lambda model, inputs: of_both(model, noisy(inputs), noisy(inputs)))


def views_by_dropout(training: Diagnosed) -> None:
    """The same sentence twice, with other elements dropped."""
    model = nn.Sequential(nn.Linear(FEATURES, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, CLASSES))
    contrast(training, model, lambda model, inputs: of_pairs(model(inputs), model(inputs)))


def output_that_is_computed_twice(training: Diagnosed) -> None:
    """For each of two losses the model is called anew."""

    def loss(model: nn.Module, inputs: torch.Tensor) -> torch.Tensor:
        labels = (inputs[:, 0] > 0).long()
        return F.cross_entropy(model(inputs), labels) + F.mse_loss(model(inputs)[:, 0], inputs[:, 1])

    contrast(training, network(), loss)


# --- similarities-confined ---


class Towers(nn.Module):
    """Two towers whose outputs have length 1, and the cosines of all pairs of them."""

    def __init__(self, temperature: float) -> None:
        super().__init__()
        self.left, self.right = network(out=8), network(out=8)
        self.temperature = nn.Parameter(torch.tensor(temperature))

    def forward(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        return F.normalize(self.left(left), dim=-1) @ F.normalize(self.right(right), dim=-1).T


def match(
    training: Diagnosed, scores_of: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], temperature: float = 1.0
) -> None:
    """Train two towers on pairs of noisy features; a function makes scores of cosines and a temperature."""
    model = Towers(temperature)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(12):
        inputs, _ = training.batch()
        optimizer.zero_grad()
        scores, targets = scores_of(model(noisy(inputs), noisy(inputs)), model.temperature), torch.arange(len(inputs))
        loss = (F.cross_entropy(scores, targets) + F.cross_entropy(scores.T, targets)) / 2
        (loss + 1e-3 * model.temperature**2).backward()
        optimizer.step()


def prototypes(training: Diagnosed, classes: int) -> None:
    """Train cosines with a vector for each class."""
    body, vectors = network(out=8), nn.Parameter(torch.randn(classes, 8))
    optimizer = torch.optim.Adam((*body.parameters(), vectors), lr=1e-3)
    for _ in range(12):
        inputs, labels = training.batch()
        optimizer.zero_grad()
        scores = F.normalize(body(inputs), dim=1) @ F.normalize(vectors, dim=1).T
        F.cross_entropy(scores, labels * (classes // CLASSES)).backward()
        optimizer.step()


def multiplied_by_the_temperature(training: Diagnosed) -> None:
    match(training, lambda cosines, _: cosines * 0.07)


def divided_by_the_scale(training: Diagnosed) -> None:
    match(training, lambda cosines, _: cosines / 14.3)


def logarithm_of_the_temperature(training: Diagnosed) -> None:
    """The logarithm of the temperature in place of that of its inverse."""
    match(training, lambda cosines, temperature: cosines * temperature.exp(), -2.66)


def many_classes_without_a_scale(training: Diagnosed) -> None:
    prototypes(training, 200)


def divided_by_the_temperature(training: Diagnosed) -> None:
    match(training, lambda cosines, _: cosines / 0.07)


def logarithm_of_the_inverse(training: Diagnosed) -> None:
    match(training, lambda cosines, temperature: cosines * temperature.exp(), 2.66)


def few_classes_without_a_scale(training: Diagnosed) -> None:
    """Cosines of four classes go far enough down by themselves."""
    prototypes(training, CLASSES)


def products_that_are_not_normalised(training: Diagnosed) -> None:
    """Divided by the root of their width, as scores of attention are."""
    left, right = network(out=8), network(out=8)
    optimizer = torch.optim.Adam((*left.parameters(), *right.parameters()), lr=1e-3)
    for _ in range(12):
        inputs, _ = training.batch()
        optimizer.zero_grad()
        F.cross_entropy(left(inputs) @ right(noisy(inputs)).T / 8**0.5, torch.arange(len(inputs))).backward()
        optimizer.step()


FAULTY: tuple[Faulty, ...] = (
    (augmented_once_for_both, "views-are-equal", "cross_entropy"),
    (halves_that_are_the_same, "views-are-equal", "cross_entropy"),
    (neighbours_that_are_the_same, "views-are-equal", "mse_loss"),
    (multiplied_by_the_temperature, "similarities-confined", "0.07"),
    (divided_by_the_scale, "similarities-confined", "0.0699"),
    (logarithm_of_the_temperature, "similarities-confined", "0.07"),
    (many_classes_without_a_scale, "similarities-confined", "without a temperature"),
)
HEALTHY: tuple[Healthy, ...] = (
    (views_that_differ, "views-are-equal"),
    (halves_that_differ, "views-are-equal"),
    (views_by_dropout, "views-are-equal"),
    (output_that_is_computed_twice, "views-are-equal"),
    (divided_by_the_temperature, "similarities-confined"),
    (logarithm_of_the_inverse, "similarities-confined"),
    (few_classes_without_a_scale, "similarities-confined"),
    (products_that_are_not_normalised, "similarities-confined"),
)

test_the_fault_comes_first, test_nothing_is_found = table_tests(FAULTY, HEALTHY)
