"""Targets whose shape or meaning is another one than the loss or the layers expect; heads that are frozen as made."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - as everybody calls it

from tests.diagnosis.diagnosed import BATCH, CLASSES, FEATURES, each, network

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.diagnosis.diagnosed import Diagnosed

TIMES = 6


class Recurrent(nn.Module):
    """A recurrent layer and a head that reads the last step, or all."""

    def __init__(self, layer: nn.RNNBase, read: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.layer, self.head, self.read = layer, nn.Linear(8, 1), read

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.head(self.read(self.layer(given)[0]))
        return result


def train_recurrent(model: nn.Module, *, is_time_first: bool = False, has_target_for_each: bool = False) -> None:
    """Train on sequences whose mean is to be predicted, or their numbers."""
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(20):
        inputs = torch.randn(BATCH, TIMES, FEATURES)
        target = inputs.mean(2, keepdim=True) if has_target_for_each else inputs.mean((1, 2))[:, None]
        optimizer.zero_grad()
        if is_time_first:
            inputs, target = inputs.transpose(0, 1), target.transpose(0, 1) if has_target_for_each else target
        F.mse_loss(model(inputs), target).backward()
        optimizer.step()


def last_of_axis_1(out: torch.Tensor) -> torch.Tensor:
    return out[:, -1]


def lstm_without_batch_first(training: Diagnosed) -> None:
    assert not training.is_attached
    train_recurrent(Recurrent(nn.LSTM(FEATURES, 8), last_of_axis_1))


def gru_without_batch_first(training: Diagnosed) -> None:
    assert not training.is_attached
    train_recurrent(Recurrent(nn.GRU(FEATURES, 8), last_of_axis_1))


def mean_over_the_samples(training: Diagnosed) -> None:
    assert not training.is_attached
    train_recurrent(Recurrent(nn.RNN(FEATURES, 8), lambda out: out.mean(1)))


@each(lstm_without_batch_first, gru_without_batch_first, mean_over_the_samples)
def test_samples_that_are_taken_for_time(diagnosed: Diagnosed, train: Callable[[Diagnosed], None]) -> None:
    train(diagnosed)
    assert diagnosed.found()[:1] == [("recurrent-axes", "swapped")]


def samples_first(training: Diagnosed) -> None:
    assert not training.is_attached
    train_recurrent(Recurrent(nn.LSTM(FEATURES, 8, batch_first=True), last_of_axis_1))


def time_first(training: Diagnosed) -> None:
    assert not training.is_attached
    train_recurrent(Recurrent(nn.LSTM(FEATURES, 8), lambda out: out[-1]), is_time_first=True)


def target_for_each_time(training: Diagnosed) -> None:
    assert not training.is_attached
    model = Recurrent(nn.LSTM(FEATURES, 8), lambda out: out)
    train_recurrent(model, is_time_first=True, has_target_for_each=True)


def several_true_classes(training: Diagnosed) -> None:
    training.train(network(), lambda out, labels: F.cross_entropy(out, 1.0 - F.one_hot(labels, CLASSES).float()))


def bits_of_labels(training: Diagnosed) -> None:
    def loss(out: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        rows = torch.stack([labels % 2, labels // 2, 1 - labels % 2, torch.ones_like(labels)], 1)
        return F.cross_entropy(out, rows.float())

    training.train(network(), loss)


def several_true_classes_by_hand(training: Diagnosed) -> None:
    def loss(out: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return -(F.log_softmax(out, 1) * (1.0 - F.one_hot(labels, CLASSES))).sum(1).mean()

    training.train(network(), loss)


@each(several_true_classes, bits_of_labels, several_true_classes_by_hand)
def test_several_true_classes(diagnosed: Diagnosed, train: Callable[[Diagnosed], None]) -> None:
    train(diagnosed)
    assert diagnosed.found()[:1] == [("targets-several", "several")]


def test_a_softmax_before_a_cross_entropy_of_shares(diagnosed: Diagnosed) -> None:
    diagnosed.train(
        network(nn.Softmax(1)), lambda out, labels: F.cross_entropy(out, 0.9 * F.one_hot(labels, CLASSES) + 0.025)
    )
    assert diagnosed.found()[:1] == [("activation-twice", "cross_entropy")]


def mixture_of_labels(training: Diagnosed) -> None:
    def loss(out: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        rows = F.one_hot(labels, CLASSES).float()
        return F.cross_entropy(out, 0.7 * rows + 0.3 * rows.roll(1, 0))

    training.train(network(), loss)


def labels_of_some_rows(training: Diagnosed) -> None:
    def loss(out: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        rows = F.one_hot(labels, CLASSES) * (labels > 0)[:, None].float()
        return -(F.log_softmax(out, 1) * rows).sum(1).mean()

    training.train(network(), loss)


def speech(out: torch.Tensor) -> torch.Tensor:
    count = torch.full((BATCH,), 3)
    return F.ctc_loss(out, torch.randint(1, CLASSES, (BATCH, 3)), torch.full((BATCH,), TIMES), count)


def train_speech(last: Callable[[torch.Tensor], torch.Tensor]) -> None:
    model = nn.Linear(FEATURES, CLASSES)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-1)
    for _ in range(40):
        optimizer.zero_grad()
        speech(last(model(torch.randn(TIMES, BATCH, FEATURES)))).backward()
        optimizer.step()


def test_scores_for_ctc(diagnosed: Diagnosed) -> None:
    train_speech(lambda out: out + 4)
    assert diagnosed.found()[:1] == [("no-logarithm", "alignment")]


def logarithms_for_ctc(training: Diagnosed) -> None:
    assert not training.is_attached
    train_speech(lambda out: out.log_softmax(2))


def new_head_that_is_frozen(training: Diagnosed) -> None:
    model = network()
    nn.init.zeros_(model[2].bias)
    model[2].requires_grad_(False)
    training.train(model, optimizer=torch.optim.Adam(model[0].parameters(), lr=1e-2))


def all_but_the_body_frozen(training: Diagnosed) -> None:
    model = nn.Sequential(network(out=16), nn.Linear(16, 16), nn.Linear(16, CLASSES))
    nn.init.zeros_(model[2].bias)
    for name, weight in model.named_parameters():
        weight.requires_grad_(name.startswith("0."))
    training.train(model, optimizer=torch.optim.Adam(model[0].parameters(), lr=1e-2))


@each(new_head_that_is_frozen, all_but_the_body_frozen)
def test_a_head_that_is_frozen_as_it_was_made(diagnosed: Diagnosed, train: Callable[[Diagnosed], None]) -> None:
    train(diagnosed)
    assert diagnosed.found()[:1] == [("head-frozen", "head")]


def trained_head_that_is_frozen(training: Diagnosed) -> None:
    model = network()
    model[2].requires_grad_(False)
    training.train(model, optimizer=torch.optim.Adam(model[0].parameters(), lr=1e-2))


def test_weights_that_are_rounded(diagnosed: Diagnosed) -> None:
    """The bias has a gradient, but what is rounded has none."""

    class Rounded(nn.Linear):
        def forward(self, given: torch.Tensor) -> torch.Tensor:
            return F.linear(given, torch.round(self.weight * 8) / 8, self.bias)

    model = nn.Sequential(Rounded(FEATURES, 16), nn.ReLU(), Rounded(16, CLASSES))
    diagnosed.train(model)
    assert diagnosed.found()[:1] == [("zero-gradient", "some")]


@each(
    samples_first,
    time_first,
    target_for_each_time,
    mixture_of_labels,
    labels_of_some_rows,
    logarithms_for_ctc,
    trained_head_that_is_frozen,
)
def test_nothing_is_found(diagnosed: Diagnosed, train: Callable[[Diagnosed], None]) -> None:
    train(diagnosed)
    assert diagnosed.found() == []
