"""Trainings of plain tensors, without a module."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.nn import functional as F  # noqa: N812 - as everybody calls it

from tests.diagnosis.diagnosed import CLASSES, FEATURES, each

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.diagnosis.diagnosed import Diagnosed


def train_by_hand(training: Diagnosed, clear: Callable[[torch.Tensor], None], rate: float = 0.1) -> None:
    """Train a linear classifier as tutorials do, with updates by hand."""
    weight, bias = torch.zeros(FEATURES, CLASSES, requires_grad=True), torch.zeros(CLASSES, requires_grad=True)
    for _ in range(60):
        inputs, labels = training.batch()
        F.cross_entropy(inputs @ weight + bias, labels).backward()
        with torch.no_grad():
            for tensor in (weight, bias):
                tensor -= rate * tensor.grad
                clear(tensor)


def gradients_that_are_not_cleared(training: Diagnosed) -> None:
    train_by_hand(training, lambda _: None, rate=1e-3)


def gradients_that_are_halved(training: Diagnosed) -> None:
    train_by_hand(training, lambda tensor: tensor.grad.mul_(0.5), rate=1e-3)


def updates_that_are_forgotten(training: Diagnosed) -> None:
    """The result of each update is another variable."""
    weights = {"first": torch.randn(FEATURES, 8).requires_grad_(), "second": torch.randn(8, CLASSES).requires_grad_()}
    for _ in range(20):
        inputs, labels = training.batch()
        F.cross_entropy((inputs @ weights["first"]).relu() @ weights["second"], labels).backward()
        for tensor in weights.values():
            updated = tensor - 0.1 * tensor.grad
            assert updated is not tensor


@each(gradients_that_are_not_cleared, gradients_that_are_halved, updates_that_are_forgotten)
def test_updates_by_hand(diagnosed: Diagnosed, train: Callable[[Diagnosed], None]) -> None:
    train(diagnosed)
    assert [finding.rule for finding in diagnosed.findings()] == ["no-optimizer"]


def test_tensors_are_named_as_their_variables(diagnosed: Diagnosed) -> None:
    gradients_that_are_not_cleared(diagnosed)
    assert sorted(diagnosed.facts["parameters"].names) == ["bias", "weight"]


def updates_by_hand(training: Diagnosed) -> None:
    train_by_hand(training, lambda tensor: tensor.grad.zero_())


def gradients_set_to_none(training: Diagnosed) -> None:
    def clear(tensor: torch.Tensor) -> None:
        tensor.grad = None

    train_by_hand(training, clear)


def optimizer_of_tensors(training: Diagnosed) -> None:
    layers = [torch.randn(FEATURES, 16).requires_grad_(), torch.zeros(16, CLASSES, requires_grad=True)]
    optimizer = torch.optim.Adam(layers, lr=1e-2)
    for _ in range(80):
        inputs, labels = training.batch()
        optimizer.zero_grad()
        F.cross_entropy((inputs @ layers[0]).relu() @ layers[1], labels).backward()
        optimizer.step()


@each(updates_by_hand, gradients_set_to_none, optimizer_of_tensors)
def test_nothing_is_found(diagnosed: Diagnosed, train: Callable[[Diagnosed], None]) -> None:
    train(diagnosed)
    assert diagnosed.found() == []
    assert diagnosed.facts.last_step >= 50


def test_tensors_that_are_made_anew_are_not_followed(diagnosed: Diagnosed) -> None:
    """Nothing of a training can be read whose tensors are others in each step."""
    weight = torch.zeros(FEATURES, CLASSES)
    for _ in range(8):
        weight = weight.detach().requires_grad_()
        inputs, labels = diagnosed.batch()
        F.cross_entropy(inputs @ weight, labels).backward()
        assert weight.grad is not None
        weight = weight - 0.1 * weight.grad
    assert not diagnosed.is_attached


def test_the_rate_of_a_tensor_is_read(diagnosed: Diagnosed) -> None:
    weight = torch.zeros(FEATURES, CLASSES, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.0)
    for _ in range(8):
        inputs, labels = diagnosed.batch()
        optimizer.zero_grad()
        F.cross_entropy(inputs @ weight + 0.1 * torch.randn(CLASSES), labels).backward()
        optimizer.step()
    assert diagnosed.found() == [("learning-rate-zero", "never")]
