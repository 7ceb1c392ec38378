"""Trainings that diverge, and others that swing, jump or stop at 0 for a good reason."""

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


def train_scaled(training: Diagnosed, factor: Callable[[int], float], steps: int, interval: int = 8) -> None:
    """Train with a loss scaler of float16; a factor of infinity makes the gradients of a step infinite."""
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=interval)
    for step in range(1, steps + 1):
        inputs, labels = training.batch()
        optimizer.zero_grad()
        scaler.scale(F.cross_entropy(model(inputs), labels)).backward()
        if factor(step) != 1:
            for parameter in model.parameters():
                parameter.grad = parameter.grad * factor(step)
        scaler.step(optimizer)
        scaler.update()


def amounts(training: Diagnosed) -> torch.Tensor:
    return training.inputs @ torch.ones(FEATURES) + 0.1 * training.labels


def regression(training: Diagnosed, rate: float, momentum: float = 0.0, steps: int = 60) -> None:
    """Train on all rows in each step, so that the loss is that of one function."""
    model = nn.Linear(FEATURES, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=momentum)
    for _ in range(steps):
        optimizer.zero_grad()
        F.mse_loss(model(training.inputs)[:, 0], amounts(training)).backward()
        optimizer.step()


def rate_of_a_million(training: Diagnosed) -> None:
    model = network()
    training.train(model, optimizer=torch.optim.SGD(model.parameters(), lr=1e30), steps=12)


def logarithm_of_nothing(training: Diagnosed) -> None:
    model = network(nn.ReLU())
    training.train(
        model, lambda out, labels: -out.gather(1, labels[:, None]).clamp(max=0).log().mul(0).mean(), steps=12
    )


def row_that_is_nan(training: Diagnosed) -> None:
    model = network()

    def spoil(step: int) -> None:
        if step == 10:
            training.inputs[:] = float("nan")

    training.train(model, after=spoil)


def batch_of_other_units(training: Diagnosed, at: int = 40, steps: int = 80) -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

    def spoil(step: int) -> None:
        training.inputs *= 1000.0 if step == at else 0.001 if step == at + 1 else 1.0

    training.train(model, optimizer=optimizer, steps=steps, after=spoil)


def batch_of_other_units_long_ago(training: Diagnosed) -> None:
    """The tables hold neither of the first nor of the last steps what happened."""
    batch_of_other_units(training, at=90, steps=240)


def rate_with_a_spike(training: Diagnosed) -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def raise_rate(step: int) -> None:
        optimizer.param_groups[0]["lr"] = 500.0 if step == 39 else 0.01

    training.train(model, optimizer=optimizer, steps=80, after=raise_rate)


def gradients_that_explode_once(training: Diagnosed) -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(80):
        inputs, labels = training.batch()
        optimizer.zero_grad()
        loss = F.cross_entropy(model(inputs), labels)
        loss.backward()
        if step == 40:
            for parameter in model.parameters():
                parameter.grad.mul_(50_000)
        optimizer.step()


def rate_at_which_a_regression_swings(training: Diagnosed) -> None:
    """Each step goes from one side of the minimum to the other."""
    training.inputs = torch.randn(256, 1) * torch.ones(FEATURES)
    curvature = torch.linalg.eigvalsh(2 * training.inputs.T @ training.inputs / len(training.inputs)).max()
    regression(training, rate=float(2 / curvature) * 0.9999)


def rate_that_is_larger_than_the_distance(training: Diagnosed) -> None:
    """Each step of Adam is as long as its rate."""
    model = nn.Linear(FEATURES, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=20.0, betas=(0.0, 0.0))
    for _ in range(60):
        optimizer.zero_grad()
        F.l1_loss(model(training.inputs)[:, 0], amounts(training)).backward()
        optimizer.step()


def rate_at_which_momentum_swings(training: Diagnosed) -> None:
    """With momentum the limit is 2 (1 + momentum) over the curvature."""
    training.inputs = torch.randn(256, 1) * torch.ones(FEATURES)
    curvature = torch.linalg.eigvalsh(2 * training.inputs.T @ training.inputs / len(training.inputs)).max()
    regression(training, rate=float(2 * 1.5 / curvature) * 0.9999, momentum=0.5)


def scale_that_collapses(training: Diagnosed) -> None:
    train_scaled(training, lambda step: 1.0 if step < 5 else float("inf"), steps=30)


def updates_that_are_skipped_often(training: Diagnosed) -> None:
    train_scaled(training, lambda step: float("inf") if step % 3 == 0 else 1.0, steps=80, interval=2)


def targets_of_pixels(training: Diagnosed) -> None:
    training.train(
        network(out=1), lambda out, labels: F.binary_cross_entropy_with_logits(out[:, 0], 85.0 * labels.float())
    )


def targets_of_minus_one(training: Diagnosed) -> None:
    training.train(
        network(out=1),
        lambda out, labels: F.binary_cross_entropy_with_logits(out[:, 0], 2.0 * (labels > 1).float() - 1),
    )


def classes_counted_from_one(training: Diagnosed) -> None:
    training.train(
        network(out=1), lambda out, labels: F.binary_cross_entropy_with_logits(out[:, 0], (labels > 1).float() + 1)
    )


def large_first_outputs(training: Diagnosed, loss: str) -> None:
    model = network(out=CLASSES if loss == "classes" else 1)
    nn.init.normal_(model[2].weight, std=100.0)
    functions = {
        "classes": F.cross_entropy,
        "labels": lambda out, labels: F.binary_cross_entropy_with_logits(out[:, 0], (labels > 1).float()),
        "numbers": lambda out, labels: F.mse_loss(out[:, 0], labels + 0.3),
    }
    training.train(model, functions[loss], steps=8)


def margin_that_is_reached_at_once(training: Diagnosed) -> None:
    model = network(out=2)
    optimizer = torch.optim.SGD(model.parameters(), lr=10.0)
    training.train(model, lambda out, _: F.relu(out[:, 0] - out[:, 1] + 0.01).mean(), optimizer=optimizer, steps=80)


def train_offset(training: Diagnosed, offset: float, target: float, rate: float) -> None:
    """Train a trend with an offset towards targets near another one."""

    class Trend(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.slope, self.offset = nn.Linear(FEATURES, 1, bias=False), nn.Parameter(torch.tensor([offset]))

        def forward(self, given: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = self.slope(given) + self.offset
            return result

    model = Trend()
    training.train(
        model,
        lambda out, labels: F.mse_loss(out[:, 0], target + labels.float()),
        torch.optim.Adam(model.parameters(), lr=rate),
    )


def offset_that_is_too_large(training: Diagnosed) -> None:
    train_offset(training, 16_800_100.0, 16_800_000.0, rate=0.4)


@pytest.mark.parametrize(
    ("train", "expected"),
    [
        (rate_of_a_million, ("loss-not-finite", "since")),
        (logarithm_of_nothing, ("loss-not-finite", "start")),
        (row_that_is_nan, ("loss-not-finite", "since")),
        (batch_of_other_units, ("loss-jumps", "batch")),
        (batch_of_other_units_long_ago, ("loss-jumps", "batch")),
        (rate_with_a_spike, ("loss-jumps", "rate")),
        (gradients_that_explode_once, ("loss-jumps", "update")),
        (rate_at_which_a_regression_swings, ("learning-rate-too-large", "swings")),
        (rate_that_is_larger_than_the_distance, ("learning-rate-too-large", "swings")),
        (rate_at_which_momentum_swings, ("learning-rate-too-large", "swings")),
        (scale_that_collapses, ("scale-collapsed", "collapsed")),
        (updates_that_are_skipped_often, ("updates-skipped", "often")),
        (targets_of_pixels, ("targets-out-of-reach", "labels")),
        (targets_of_minus_one, ("targets-out-of-reach", "labels")),
        (classes_counted_from_one, ("targets-out-of-reach", "labels")),
        (lambda training: large_first_outputs(training, "classes"), ("loss-start", "large")),
        (lambda training: large_first_outputs(training, "labels"), ("loss-start", "labels")),
        (lambda training: large_first_outputs(training, "numbers"), ("loss-start", "numbers")),
        (margin_that_is_reached_at_once, ("loss-zero", "at_once")),
        (offset_that_is_too_large, ("update-lost", "coarse")),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_the_cause_comes_first(
    diagnosed: Diagnosed, train: Callable[[Diagnosed], None], expected: tuple[str, str]
) -> None:
    train(diagnosed)
    assert diagnosed.found()[:1] == [expected]


def bad_batch_that_changes_nothing(training: Diagnosed, at: int = 40, steps: int = 80) -> None:
    """A single loss that is far too large, after which the training goes on as before."""
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for step in range(steps):
        inputs, labels = training.batch()
        optimizer.zero_grad()
        loss = F.cross_entropy(model(inputs) * (100.0 if step == at else 1.0), labels)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


def bad_batch_long_ago(training: Diagnosed) -> None:
    bad_batch_that_changes_nothing(training, at=90, steps=240)


def another_task(training: Diagnosed) -> None:
    """The loss jumps because the task is another one; nothing exceptional precedes it."""
    model = network()

    def change(step: int) -> None:
        if step == 50:
            training.labels = (training.labels + 1) % CLASSES

    training.train(model, steps=90, after=change)


def loss_that_is_not_finite_once(training: Diagnosed) -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(20):
        inputs, labels = training.batch()
        optimizer.zero_grad()
        loss = F.cross_entropy(model(inputs), labels) * (float("nan") if step == 10 else 1.0)
        if not loss.isfinite():
            continue
        loss.backward()
        optimizer.step()


def regression_that_settles(training: Diagnosed) -> None:
    regression(training, rate=0.2)


def two_batches_in_turns(training: Diagnosed) -> None:
    """The loss goes up and down in turns, because the batches do."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(60):
        rows = slice(0, 32) if step % 2 else slice(32, 64)
        scale = 1.0 if step % 2 else 5.0
        optimizer.zero_grad()
        (F.cross_entropy(model(training.inputs[rows]), training.labels[rows]) * scale).backward()
        optimizer.step()


def scale_that_is_found(training: Diagnosed) -> None:
    train_scaled(training, lambda step: float("inf") if step <= 6 or step % 20 == 0 else 1.0, steps=110)


def soft_labels(training: Diagnosed) -> None:
    """The labels of a GAN's discriminator are often a little above 1."""

    def loss(out: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        noise = 0.2 * torch.rand(len(labels))
        return F.binary_cross_entropy_with_logits(out[:, 0], (labels > 1) * 1.0 + noise)

    training.train(network(out=1), loss)


def margin_that_is_reached(training: Diagnosed) -> None:
    """The loss is 0 at last, because everything is learnt."""
    model = network(out=2)
    training.train(
        model,
        lambda out, labels: F.relu(0.1 - (out[:, 0] - out[:, 1]) * (2.0 * (labels > 1) - 1)).mean(),
        optimizer=torch.optim.Adam(model.parameters(), lr=3e-3),
        steps=120,
    )


def large_offset_that_moves(training: Diagnosed) -> None:
    train_offset(training, 1000.0, 1000.0, rate=0.01)


@pytest.mark.parametrize(
    "train",
    [
        bad_batch_that_changes_nothing,
        bad_batch_long_ago,
        another_task,
        loss_that_is_not_finite_once,
        regression_that_settles,
        two_batches_in_turns,
        scale_that_is_found,
        soft_labels,
        margin_that_is_reached,
        large_offset_that_moves,
    ],
    ids=lambda train: train.__name__,
)
def test_nothing_is_found(diagnosed: Diagnosed, train: Callable[[Diagnosed], None]) -> None:
    train(diagnosed)
    assert diagnosed.found() == []
    assert diagnosed.facts.last_step >= 8
