"""Trainings that are evaluated now and then: what they learn holds for no other data, or it does."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - as everybody calls it

from tests.diagnosis.diagnosed import CLASSES, FEATURES, Diagnosed, Faulty, Healthy, table_tests
from tests.diagnosis.tasks import convolutional, give_pictures

if TYPE_CHECKING:
    from collections.abc import Callable


def large(out: int = CLASSES) -> nn.Module:
    return nn.Sequential(nn.Linear(FEATURES, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, out))


def train_and_evaluate(
    training: Diagnosed,
    model: nn.Module,
    given: tuple[torch.Tensor, torch.Tensor],
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] = F.cross_entropy,
    steps: int = 160,
    rate: float = 1e-2,
) -> None:
    """Train on all samples of a training, and evaluate with others every ten steps and at the end."""
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    inputs, targets = training.inputs, training.labels
    rights = []
    for step in range(steps):
        optimizer.zero_grad()
        loss(model(inputs), targets).backward()
        optimizer.step()
        if step % 10 == 9:
            model.eval()
            with torch.no_grad():
                out = model(given[0])
                loss(out, given[1]).item()
                rights.append((out.argmax(1) == given[1]).float().mean().item())
            model.train()


def other_rows() -> tuple[torch.Tensor, torch.Tensor]:
    inputs = torch.randn(256, FEATURES)
    return inputs, (inputs[:, 0] > 0).long() + 2 * (inputs[:, 1] > 0).long()


# --- evaluation-no-better ---


def labels_of_other_rows(training: Diagnosed) -> None:
    training.labels = training.labels[torch.randperm(256)]
    train_and_evaluate(training, large(), other_rows())


def amounts_of_other_rows(training: Diagnosed) -> None:
    training.labels = training.inputs[torch.randperm(256), :1] + 0.1 * torch.randn(256, 1)
    inputs, _ = other_rows()
    train_and_evaluate(training, large(1), (inputs, inputs[:, :1]), F.mse_loss, steps=400)


def pictures_that_are_evaluated_upside_down(training: Diagnosed) -> None:
    give_pictures(training)
    train_and_evaluate(training, convolutional(), (training.inputs.flip(2), training.labels))


def rows_that_go_together(training: Diagnosed) -> None:
    train_and_evaluate(training, large(), other_rows(), rate=1e-3)


def labels_a_part_of_which_is_wrong(training: Diagnosed) -> None:
    """The loss of others is higher than that of the training, but below that of a guess."""
    wrong = torch.rand(256) < 0.3
    training.labels[wrong] = torch.randint(0, CLASSES, (int(wrong.sum()),))
    train_and_evaluate(training, large(), other_rows(), steps=60, rate=1e-3)


def answers_that_are_right_but_too_certain(training: Diagnosed) -> None:
    def sharp(out: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(out if torch.is_grad_enabled() else 60 * out, labels)

    wrong = torch.rand(256) < 0.2
    training.labels[wrong] = torch.randint(0, CLASSES, (int(wrong.sum()),))
    train_and_evaluate(training, large(), other_rows(), sharp, steps=60, rate=1e-3)


# --- evaluation-inputs ---


def pictures_that_are_evaluated_as_bytes(training: Diagnosed) -> None:
    give_pictures(training)
    inputs, labels = training.inputs.clone(), training.labels
    training.inputs = (inputs - inputs.mean()) / inputs.std()
    train_and_evaluate(training, convolutional(), (127 + 60 * inputs, labels), steps=60)


def amounts_that_are_evaluated_as_they_are(training: Diagnosed) -> None:
    """The training's are standardised, the others are not."""
    inputs, labels = other_rows()
    train_and_evaluate(training, large(), (5 + 0.2 * inputs, labels), steps=60)


def pictures_that_are_divided_twice(training: Diagnosed) -> None:
    give_pictures(training)
    train_and_evaluate(training, convolutional(), (training.inputs / 255, training.labels), steps=60)


def pictures_that_are_noisy_in_the_training(training: Diagnosed) -> None:
    give_pictures(training)
    clean = training.inputs.clone()
    training.inputs = clean + 0.5 * torch.randn_like(clean)
    train_and_evaluate(training, convolutional(), (clean, training.labels), steps=60, rate=1e-3)


def pictures_of_all_exposures(training: Diagnosed) -> None:
    """Each step scales them otherwise, so that those of the evaluation are nothing new."""
    model = large()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(60):
        optimizer.zero_grad()
        exposure = 0.1 * 10.0 ** float(2 * torch.rand(()))
        F.cross_entropy(model(exposure * training.inputs), training.labels).backward()
        optimizer.step()
        if step % 10 == 9:
            with torch.no_grad():
                F.cross_entropy(model(0.2 * training.inputs), training.labels).item()


FAULTY: tuple[Faulty, ...] = (
    (labels_of_other_rows, "evaluation-no-better", "cross_entropy"),
    (amounts_of_other_rows, "evaluation-no-better", "mse_loss"),
    (pictures_that_are_evaluated_upside_down, "evaluation-no-better", "never comes below that of a guess (1.38"),
    (pictures_that_are_evaluated_as_bytes, "evaluation-inputs", "in the training 1"),
    (amounts_that_are_evaluated_as_they_are, "evaluation-inputs", "mean is 4.99"),
    (pictures_that_are_divided_twice, "evaluation-inputs", "deviation"),
)

HEALTHY: tuple[Healthy, ...] = (
    (rows_that_go_together, "evaluation-no-better"),
    (labels_a_part_of_which_is_wrong, "evaluation-no-better"),
    (answers_that_are_right_but_too_certain, "evaluation-no-better"),
    (pictures_that_are_noisy_in_the_training, "evaluation-inputs"),
    (pictures_of_all_exposures, "evaluation-inputs"),
)


test_the_fault_comes_first, test_nothing_is_found = table_tests(FAULTY, HEALTHY)


def test_evaluations_of_other_data_are_told_apart(diagnosed: Diagnosed) -> None:
    model = large()

    def evaluate(inputs: torch.Tensor, labels: torch.Tensor) -> tuple[float, float]:
        with torch.no_grad():
            out = model(inputs)
            right = (out.argmax(1) == labels).sum().item() / len(labels)
            return F.cross_entropy(out, labels, reduction="sum").item() / len(labels), right

    measured = []

    def after(step: int) -> None:
        if step % 5 == 0:
            measured.append((*evaluate(diagnosed.inputs, diagnosed.labels), *evaluate(*other_rows())))

    diagnosed.train(model, after=after)
    diagnosed.end()
    table = diagnosed.facts["evaluations"]
    names = ["cross_entropy", "accuracy", "cross_entropy 2", "accuracy 2"]
    assert sorted(table.names) == sorted(names)
    # What follows a step is known with the next one.
    assert table.steps.tolist() == [6, 11, 16, 21]
    for at, row in enumerate(measured):
        assert [table["value"][table["name"] == name][at] for name in names] == pytest.approx(row, rel=1e-5)
