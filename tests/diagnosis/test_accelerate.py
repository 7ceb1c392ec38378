"""Trainings with an Accelerator of Hugging Face."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

import torch
from torch.nn import functional as F  # noqa: N812 - as everybody calls it

from tests.diagnosis.diagnosed import each, network

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.diagnosis.diagnosed import Diagnosed

BATCHES = 48


def train_accelerated(training: Diagnosed, passes: int, *, is_prepared: bool, is_within: bool = True) -> None:
    # Importing it takes seconds.
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=passes)
    model = network()
    optimizer: torch.optim.Optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model = accelerator.prepare(model)
    if is_prepared:
        optimizer = accelerator.prepare(optimizer)
    for _ in range(BATCHES):
        inputs, labels = training.batch()
        with accelerator.accumulate(model) if is_within else nullcontext():
            accelerator.backward(F.cross_entropy(model(inputs), labels))
            optimizer.step()
            optimizer.zero_grad()
    accelerator.free_memory()


def optimizer_that_was_not_prepared(training: Diagnosed) -> None:
    train_accelerated(training, 4, is_prepared=False)


def optimizer_that_was_prepared(training: Diagnosed) -> None:
    train_accelerated(training, 4, is_prepared=True)


def optimizer_without_anything_to_accumulate(training: Diagnosed) -> None:
    """Updates with each batch are what is meant."""
    train_accelerated(training, 1, is_prepared=False)


def test_an_optimizer_that_was_not_prepared_comes_first(diagnosed: Diagnosed) -> None:
    optimizer_that_was_not_prepared(diagnosed)
    first = diagnosed.findings()[0]
    assert (first.rule, first.certainty) == ("optimizer-not-prepared", "certain")
    assert (first.values["passes"], first.values["expected"]) == (1, 4)


def test_batches_outside_of_what_accumulates_come_first(diagnosed: Diagnosed) -> None:
    train_accelerated(diagnosed, 4, is_prepared=True, is_within=False)
    first = diagnosed.findings()[0]
    assert (first.rule, first.message) == ("optimizer-not-prepared", "apart")
    assert (first.values["passes"], first.values["expected"]) == (1, 4)


@each(optimizer_that_was_prepared, optimizer_without_anything_to_accumulate)
def test_others_are_not_reported(diagnosed: Diagnosed, train: Callable[[Diagnosed], None]) -> None:
    train(diagnosed)
    assert diagnosed.found() == []
    assert diagnosed.facts.last_step >= BATCHES // 4
