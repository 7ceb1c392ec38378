"""Trainings that are given their targets, and others that resemble them."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - as everybody calls it

from tests.diagnosis.diagnosed import BATCH, FEATURES, Diagnosed, Faulty, Healthy, network, table_tests
from tests.diagnosis.tasks import Reader, give_sequences

# --- targets-copied ---


def amounts(training: Diagnosed) -> torch.Tensor:
    """Return what is to be predicted: float32, shape (256,)."""
    return training.inputs[:, 0] + 0.3 * training.inputs[:, 1] + 0.5 * torch.randn(256)


def regression(training: Diagnosed, model: nn.Module) -> None:
    training.train(model, lambda out, labels: F.mse_loss(out[:, 0], labels), steps=40)


def column_with_the_price(training: Diagnosed) -> None:
    training.labels = amounts(training)
    training.inputs[:, 5] = training.labels
    regression(training, network(out=1))


def column_with_the_standardized_class(training: Diagnosed) -> None:
    classes = training.labels.float()
    training.inputs[:, 6] = (classes - classes.mean()) / classes.std()
    training.train(network(), steps=40)


def window_that_ends_one_later(training: Diagnosed) -> None:
    """The last value of each window is the one that is to be predicted."""
    give_sequences(training)
    training.inputs[:, -1, 2] += training.inputs[:, -1, 4]
    training.labels = training.inputs[:, -1, 2].clone()
    regression(training, Reader(1))


def first_feature_alone(training: Diagnosed) -> None:
    """A first example: the target is one of many features, and the others are noise."""
    training.labels = training.inputs[:, 0].clone()
    regression(training, network(out=1))


def sum_of_some_columns(training: Diagnosed) -> None:
    training.labels = training.inputs[:, 0] + 0.2 * training.inputs[:, 1]
    regression(training, network(out=1))


def line_through_points(training: Diagnosed) -> None:
    """The usual first example: a single feature, and a multiple of it."""
    training.inputs = torch.randn(256, 1)
    training.labels = 3 * training.inputs[:, 0] + 1
    model = nn.Linear(1, 1)
    training.train(model, lambda out, labels: F.mse_loss(out[:, 0], labels), sgd(model), steps=40)


def autoencoder(training: Diagnosed) -> None:
    assert not training.is_attached
    model = nn.Sequential(nn.Linear(FEATURES, 6), nn.Linear(6, FEATURES))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(40):
        inputs = training.batch()[0]
        optimizer.zero_grad()
        F.mse_loss(model(inputs), inputs).backward()
        optimizer.step()


def first_of_a_sequence_is_remembered(training: Diagnosed) -> None:
    """A task for memories: the first value of a sequence is to be put out after the last one."""
    give_sequences(training)
    training.labels = training.inputs[:, 0, 2].clone()
    regression(training, Reader(1))


def labels_of_few_bits(training: Diagnosed) -> None:
    """With many binary features, a few samples may agree with one of them by chance."""
    assert not training.is_attached
    model = nn.Sequential(nn.Linear(200, 16), nn.ReLU(), nn.Linear(16, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(40):
        inputs = torch.randint(0, 2, (8, 200)).float()
        optimizer.zero_grad()
        F.cross_entropy(model(inputs), (inputs[:, :3].sum(1) > 1).long()).backward()
        optimizer.step()


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=1e-1)


FAULTY: tuple[Faulty, ...] = (
    (column_with_the_price, "targets-copied", f"feature 5 of {FEATURES}"),
    (column_with_the_standardized_class, "targets-copied", f"feature 6 of {FEATURES}"),
    (window_that_ends_one_later, "targets-copied", f"all {32 * BATCH} samples"),
)

HEALTHY: tuple[Healthy, ...] = (
    (first_feature_alone, "targets-copied"),
    (sum_of_some_columns, "targets-copied"),
    (line_through_points, "targets-copied"),
    (autoencoder, "targets-copied"),
    (first_of_a_sequence_is_remembered, "targets-copied"),
    (labels_of_few_bits, "targets-copied"),
)


test_the_fault_comes_first, test_nothing_is_found = table_tests(FAULTY, HEALTHY)
