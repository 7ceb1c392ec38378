"""Trainings in which no tensor looks ill, and what is found of each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - as everybody calls it

from tests.diagnosis.diagnosed import CLASSES, FEATURES, network

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.diagnosis.diagnosed import Diagnosed


def softmax_before_cross_entropy(training: Diagnosed) -> None:
    training.train(network(nn.Softmax(dim=1)))


def sigmoid_before_logits(training: Diagnosed) -> None:
    def loss(out: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return F.binary_cross_entropy_with_logits(out[:, 0], (labels > 1).float())

    training.train(network(nn.Sigmoid(), out=1), loss)


def scores_for_nll(training: Diagnosed) -> None:
    training.train(network(), F.nll_loss)


def softmax_over_the_batch(training: Diagnosed) -> None:
    training.train(network(), lambda out, labels: F.nll_loss(F.log_softmax(out, 0), labels))


def softmax_of_one_unit(training: Diagnosed) -> None:
    training.train(
        network(nn.Softmax(1), out=1),
        lambda out, labels: F.binary_cross_entropy(out[:, 0], labels.clamp(max=1).float()),
    )


def column_against_row(training: Diagnosed) -> None:
    training.train(network(out=1), lambda out, labels: ((out - labels.float()) ** 2).mean())


def targets_that_tanh_cannot_reach(training: Diagnosed) -> None:
    training.train(network(nn.Tanh(), out=1), lambda out, labels: F.mse_loss(out[:, 0], 2.0 * labels.float()))


def classes_by_regression(training: Diagnosed) -> None:
    training.labels = training.labels * 2 + (training.inputs[:, 2] > 0).long()
    training.train(network(out=1), lambda out, labels: F.mse_loss(out[:, 0], labels.float()))


def loss_that_is_maximised(training: Diagnosed) -> None:
    training.train(network(), lambda out, labels: -F.cross_entropy(out, labels))


def optimizer_that_maximises(training: Diagnosed) -> None:
    model = network()
    training.train(model, optimizer=torch.optim.SGD(model.parameters(), lr=0.01, maximize=True))


def targets_times_probabilities(training: Diagnosed) -> None:
    def divergence(out: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return F.kl_div(out.softmax(1), F.one_hot(labels, CLASSES) * 0.9 + 0.025, reduction="batchmean")

    training.train(network(), divergence)


def dropout_in_evaluation_mode(training: Diagnosed) -> None:
    model = nn.Sequential(network(out=16), nn.Dropout(0.2), nn.Linear(16, CLASSES)).eval()
    training.train(model)


def momentum_of_keras(training: Diagnosed) -> None:
    training.train(
        nn.Sequential(nn.Linear(FEATURES, 16), nn.BatchNorm1d(16, momentum=0.99), nn.ReLU(), nn.Linear(16, CLASSES))
    )


def embedding_that_was_cloned(training: Diagnosed) -> None:
    class TinyLM(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding, self.head = nn.Embedding(12, 8), nn.Linear(8, 12, bias=False)
            self.head.weight = nn.Parameter(self.embedding.weight.detach().clone())

        def forward(self, given: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = self.head(self.embedding(given))
            return result

    words(training, TinyLM(), lambda out, ids: F.cross_entropy(out[:, :-1].reshape(-1, 12), ids[:, 1:].reshape(-1)))


def words(training: Diagnosed, model: nn.Module, loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> None:
    """Train a model on sequences in which each word follows from the one before."""
    first = torch.randint(0, 12, (256, 1))
    ids = (first + torch.arange(10)) % 12
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(20):
        given = ids[torch.randint(0, 256, (32,))]
        optimizer.zero_grad()
        loss(model(given), given).backward()
        optimizer.step()


def language_model() -> nn.Sequential:
    return nn.Sequential(nn.Embedding(12, 8), nn.Linear(8, 12))


def labels_shifted_twice(training: Diagnosed) -> None:
    words(
        training,
        language_model(),
        lambda out, ids: F.cross_entropy(out[:, :-2].reshape(-1, 12), ids[:, 2:].reshape(-1)),
    )


def padding_as_targets(training: Diagnosed) -> None:
    ids = torch.randint(1, 12, (32, 10))
    ids[torch.arange(10) >= torch.randint(3, 9, (32, 1))] = 0
    model = language_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(20):
        optimizer.zero_grad()
        F.cross_entropy(model(ids)[:, :-1].reshape(-1, 12), ids[:, 1:].reshape(-1)).backward()
        optimizer.step()


def norm_over_one_unit(training: Diagnosed) -> None:
    training.train(nn.Sequential(nn.Linear(FEATURES, 1), nn.LayerNorm(1), nn.Linear(1, CLASSES)))


def inputs_that_are_lost(training: Diagnosed) -> None:
    training.inputs = training.inputs.mul(0)
    training.train(network())


def inputs_in_pascals(training: Diagnosed) -> None:
    training.inputs = training.inputs * 1e5
    training.train(network())


def sorted_rows(training: Diagnosed) -> None:
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    order = training.labels.argsort()
    for epoch in range(8):
        for rows in order.split(16)[epoch % 2 :: 2]:
            optimizer.zero_grad()
            F.cross_entropy(model(training.inputs[rows]), training.labels[rows]).backward()
            optimizer.step()


def dropout_that_keeps_little(training: Diagnosed) -> None:
    model = nn.Sequential(network(out=16), nn.Dropout(0.95), nn.Linear(16, CLASSES))
    training.train(model)


def prices_that_are_not_scaled(training: Diagnosed) -> None:
    def loss(out: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return F.mse_loss(out[:, 0], 300_000.0 + 100_000.0 * torch.randn(len(labels)))

    training.train(network(out=1), loss, steps=80)


def squares_that_are_subtracted(training: Diagnosed) -> None:
    model = nn.Linear(FEATURES, CLASSES)
    training.train(
        model,
        lambda out, labels: F.cross_entropy(out, labels) - out.pow(2).mean(),
        torch.optim.SGD(model.parameters(), lr=0.1),
        steps=120,
    )


FAULTY: tuple[tuple[Callable[[Diagnosed], None], str], ...] = (
    (softmax_before_cross_entropy, "activation-twice"),
    (sigmoid_before_logits, "activation-twice"),
    (scores_for_nll, "no-logarithm"),
    (softmax_over_the_batch, "softmax-axis"),
    (softmax_of_one_unit, "one-class"),
    (column_against_row, "broadcast-in-loss"),
    (targets_that_tanh_cannot_reach, "targets-out-of-reach"),
    (classes_by_regression, "classes-by-regression"),
    (loss_that_is_maximised, "loss-sign"),
    (optimizer_that_maximises, "loss-sign"),
    (targets_times_probabilities, "no-logarithm"),
    (dropout_in_evaluation_mode, "evaluation-mode"),
    (momentum_of_keras, "norm-momentum"),
    (embedding_that_was_cloned, "tied-apart"),
    (labels_shifted_twice, "targets-shifted"),
    (padding_as_targets, "padding-counted"),
    (norm_over_one_unit, "norm-of-one"),
    (inputs_that_are_lost, "input-constant"),
    (inputs_in_pascals, "input-scale"),
    (sorted_rows, "batch-of-one-class"),
    (dropout_that_keeps_little, "dropout-rate"),
    (prices_that_are_not_scaled, "targets-not-scaled"),
    (squares_that_are_subtracted, "loss-unbounded"),
)


@pytest.mark.parametrize(("train", "rule"), FAULTY, ids=lambda each: getattr(each, "__name__", ""))
def test_the_cause_comes_first(diagnosed: Diagnosed, train: Callable[[Diagnosed], None], rule: str) -> None:
    train(diagnosed)
    found = diagnosed.findings()
    assert [finding.rule for finding in found][:1] == [rule]
    assert len(found) == 1, found
