"""Batches whose outputs no update uses."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.nn import functional as F  # noqa: N812 - as everybody calls it

from tests.diagnosis.diagnosed import each, network

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.diagnosis.diagnosed import Diagnosed


def train_in_epochs(
    training: Diagnosed, combined: Callable[[list[torch.Tensor]], torch.Tensor], loss: Callable[..., torch.Tensor]
) -> None:
    """Update once after several batches, by a loss made of those of the batches."""
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(10):
        losses = []
        for _ in range(8):
            inputs, labels = training.batch()
            losses.append(loss(model(inputs), labels))
        optimizer.zero_grad()
        combined(losses).backward()
        optimizer.step()


def last(losses: list[torch.Tensor]) -> torch.Tensor:
    return losses[-1]


def last_of_each_epoch(training: Diagnosed) -> None:
    train_in_epochs(training, last, F.cross_entropy)


def last_of_each_epoch_with_another_loss(training: Diagnosed) -> None:
    train_in_epochs(training, last, lambda out, labels: F.mse_loss(out[:, 0], labels + 0.3))


def last_of_two_models(training: Diagnosed) -> None:
    first = network()
    train_in_epochs(
        training, last, lambda out, labels: F.cross_entropy(out + first(training.inputs[:1]).detach(), labels)
    )


@each(last_of_each_epoch, last_of_each_epoch_with_another_loss, last_of_two_models)
def test_a_single_batch_is_used(diagnosed: Diagnosed, train: Callable[[Diagnosed], None]) -> None:
    train(diagnosed)
    assert diagnosed.found() == [("batches-unused", "last")]


def sum_of_each_epoch(training: Diagnosed) -> None:
    train_in_epochs(training, lambda losses: torch.stack(losses).mean(), F.cross_entropy)


def worst_of_each_epoch(training: Diagnosed) -> None:
    """As if it were chosen: it need not be the last."""
    train_in_epochs(training, lambda losses: max(losses, key=lambda loss: loss.item()), F.cross_entropy)


def actions_chosen_with_gradients(training: Diagnosed) -> None:
    """The network is asked for single states, and updated by a batch."""
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(20):
        for row in range(6):
            model(training.inputs[row])
        inputs, labels = training.batch()
        optimizer.zero_grad()
        F.cross_entropy(model(inputs), labels).backward()
        optimizer.step()


@each(sum_of_each_epoch, worst_of_each_epoch, actions_chosen_with_gradients)
def test_nothing_is_found(diagnosed: Diagnosed, train: Callable[[Diagnosed], None]) -> None:
    train(diagnosed)
    assert diagnosed.found() == []
