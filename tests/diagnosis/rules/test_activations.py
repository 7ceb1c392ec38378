"""Trainings whose activation functions let nothing through, and others that resemble them."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - as everybody calls it

from tests.diagnosis.diagnosed import BATCH, CLASSES, FEATURES, Diagnosed, Faulty, Healthy, network, table_tests
from tests.diagnosis.tasks import convolutional, give_pictures


def sgd(model: nn.Module, rate: float = 1e-2) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=rate)


# --- units-silent ---


def biases_far_below_zero(training: Diagnosed) -> None:
    model = network()
    nn.init.constant_(model[0].bias, -20.0)
    training.train(model, optimizer=sgd(model), steps=40)


def every_weight_behind_them_is_named_as_an_effect(training: Diagnosed) -> None:
    """Without the units, the gradients of the layer before are exactly 0."""
    model = network()
    nn.init.constant_(model[0].bias, -100.0)
    training.train(model)


def filters_far_below_zero(training: Diagnosed) -> None:
    give_pictures(training)
    model = nn.Sequential(
        *(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.1)),
        *(nn.Conv2d(16, 8, 3, padding=1), nn.GELU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, CLASSES)),
    )
    nn.init.constant_(model[0].bias, -20.0)
    training.train(model, optimizer=sgd(model), steps=40)


def first_update_that_silences_them(training: Diagnosed) -> None:
    """A single update with a huge gradient; rows are far from their mean afterwards."""
    model = nn.Sequential(nn.Linear(FEATURES, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, CLASSES))
    optimizer = sgd(model, 1e-3)

    def silence(step: int) -> None:
        if step == 3:
            with torch.no_grad():
                model[2].bias -= 50.0

    training.train(model, optimizer=optimizer, steps=60, after=silence)


def features_of_few_words(training: Diagnosed) -> None:
    """Most units are silent in each batch, and the model learns: each speaks for a few samples."""
    assert not training.is_attached
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64))
    with torch.no_grad():
        model[0].weight.copy_(torch.eye(64) * 2)
        model[0].bias.fill_(-1.0)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-2)
    for _ in range(120):
        classes = torch.randint(0, 4, (BATCH,)) + 4 * torch.randint(0, 16, ())
        optimizer.zero_grad()
        F.cross_entropy(model(F.one_hot(classes, 64).float()), classes).backward()
        optimizer.step()


def half_of_the_units(training: Diagnosed) -> None:
    model = network()
    with torch.no_grad():
        model[0].bias[:8] = -20.0
    training.train(model, optimizer=sgd(model), steps=40)


# --- units-saturated ---


def inputs_that_are_not_scaled(training: Diagnosed) -> None:
    training.inputs = 500 * training.inputs
    model = nn.Sequential(nn.Linear(FEATURES, 16), nn.Tanh(), nn.Linear(16, CLASSES))
    training.train(model, optimizer=sgd(model, 1e-3), steps=40)


def weights_that_are_too_large(training: Diagnosed) -> None:
    model = nn.Sequential(
        *(nn.Linear(FEATURES, 16), nn.Sigmoid(), nn.Linear(16, 16), nn.Sigmoid(), nn.Linear(16, CLASSES))
    )
    with torch.no_grad():
        model[2].weight.mul_(1000)
    training.train(model, optimizer=sgd(model, 1e-3), steps=40)


def filters_that_are_too_large(training: Diagnosed) -> None:
    give_pictures(training)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.Tanh(), nn.Conv2d(8, 8, 3), nn.Flatten(), nn.Linear(288, CLASSES)
    )
    with torch.no_grad():
        model[0].weight.mul_(1000)
    training.train(model, optimizer=sgd(model, 1e-5), steps=40)


def codes_of_bits(training: Diagnosed) -> None:
    """Codes are to be -1 or 1, and the model learns."""
    model = nn.Sequential(nn.Linear(FEATURES, 16), nn.Tanh(), nn.Linear(16, CLASSES))
    with torch.no_grad():
        model[0].weight.mul_(300)
    training.train(model, steps=150)


def tanh_as_usual(training: Diagnosed) -> None:
    model = nn.Sequential(nn.Linear(FEATURES, 16), nn.Tanh(), nn.Linear(16, CLASSES))
    training.train(model, optimizer=sgd(model), steps=40)


def gates_of_a_network(training: Diagnosed) -> None:
    """Pictures whose filters are multiplied by sigmoids, of which most are next to 1."""
    give_pictures(training)
    training.train(convolutional(nn.Sigmoid()), lambda out, labels: F.mse_loss(out, F.one_hot(labels, 4).float()))


FAULTY: tuple[Faulty, ...] = (
    (biases_far_below_zero, "units-silent", "from the first step on"),
    (every_weight_behind_them_is_named_as_an_effect, "units-silent", "100% of the 16 units"),
    (filters_far_below_zero, "units-silent", "100% of the 16 units before layer 4"),
    (first_update_that_silences_them, "units-silent", "before layer 4"),
    (inputs_that_are_not_scaled, "units-saturated", "tanh gives layer 2"),
    (weights_that_are_too_large, "units-saturated", "sigmoid gives layer 4"),
    (filters_that_are_too_large, "units-saturated", "tanh gives layer 2"),
)

HEALTHY: tuple[Healthy, ...] = (
    (features_of_few_words, "units-silent"),
    (half_of_the_units, "units-silent"),
    (codes_of_bits, "units-saturated"),
    (tanh_as_usual, "units-saturated"),
    (gates_of_a_network, "units-saturated"),
)


test_the_fault_comes_first, test_nothing_is_found = table_tests(FAULTY, HEALTHY)
