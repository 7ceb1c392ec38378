"""Trainings that diverge, and others that swing, jump or stop at 0 for a good reason."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - as everybody calls it

from tensight.agents.core.diagnosing import FOR_DIAGNOSIS
from tests.diagnosis.diagnosed import (
    CLASSES,
    FEATURES,
    Diagnosed,
    Faulty,
    Healthy,
    network,
    table_tests,
)
from tests.diagnosis.models import WORDS, Transformer, next_word, train_scaled
from tests.diagnosis.tasks import Reader, convolutional, give_pictures, give_sequences, give_texts

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pytest


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


# --- loss-not-finite ---


def rate_of_a_million(training: Diagnosed) -> None:
    model = network()
    training.train(model, optimizer=torch.optim.SGD(model.parameters(), lr=1e30), steps=12)


def logarithm_of_nothing(training: Diagnosed) -> None:
    give_pictures(training)
    training.train(
        convolutional(nn.ReLU()),
        lambda out, labels: -out.gather(1, labels[:, None]).clamp(max=0).log().mul(0).mean(),
        steps=12,
    )


def row_that_is_nan(training: Diagnosed) -> None:
    give_sequences(training)

    def spoil(step: int) -> None:
        if step == 10:
            training.inputs[:, 3] = float("nan")

    training.train(Reader(), after=spoil)


def root_of_a_variance_of_0(training: Diagnosed) -> None:
    """The derivative of a root is infinite at 0: a feature that is the same everywhere makes all weights NaN."""
    model = network()
    nn.init.zeros_(model[2].weight)

    def loss(out: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(out, labels) - 0.1 * out.var(0).sqrt().mean()

    training.train(model, loss)


def sentence_that_is_masked_altogether(training: Diagnosed) -> None:
    """A softmax over words none of which may be attended to."""
    embedding, last, head = nn.Embedding(WORDS, 8), nn.Linear(8, 8), nn.Linear(8, 2)
    optimizer = torch.optim.Adam([*embedding.parameters(), *last.parameters(), *head.parameters()], lr=1e-2)
    for step in range(20):
        ids = torch.randint(1, WORDS, (16, 6))
        ids[torch.arange(6) >= torch.randint(3, 6, (16, 1))] = 0
        if step == 7:
            ids[0] = 0
        hidden = embedding(ids)
        scores = (hidden @ hidden.transpose(1, 2)).masked_fill(ids[:, None] == 0, -torch.inf)
        mixed = last(scores.softmax(2) @ hidden)
        optimizer.zero_grad()
        F.cross_entropy(head(mixed.mean(1)), (ids == 3).any(1).long()).backward()
        optimizer.step()


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


def words_that_are_masked(training: Diagnosed) -> None:
    """Scores of -inf are as they should be, where each word sees another one."""
    give_texts(training)
    training.train(Transformer(), next_word, steps=40)


# --- loss-jumps ---


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
    give_texts(training)
    model = Transformer()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)

    def raise_rate(step: int) -> None:
        optimizer.param_groups[0]["lr"] = 3.0 if step == 39 else 0.01

    training.train(model, next_word, optimizer, steps=80, after=raise_rate)


def gradients_that_explode_once(training: Diagnosed) -> None:
    give_pictures(training)
    model = convolutional()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(80):
        inputs, labels = training.batch()
        optimizer.zero_grad()
        loss = F.cross_entropy(model(inputs), labels)
        loss.backward()
        if step == 40:
            for parameter in model.parameters():
                parameter.grad.mul_(50_000)
        optimizer.step()


def sequence_in_another_unit(training: Diagnosed) -> None:
    """A single batch of amounts in cents, which the targets follow."""
    give_sequences(training)
    model = Reader(1, nn.RNN(FEATURES, 16, batch_first=True))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

    def spoil(step: int) -> None:
        training.labels = 100.0 * training.labels if step == 40 else training.labels.clamp(max=3)

    training.train(model, lambda out, labels: F.mse_loss(out[:, 0], labels.float()), optimizer, steps=80, after=spoil)


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


def warm_restarts(training: Diagnosed) -> None:
    """The rate jumps to a hundred times itself, as it should."""
    give_pictures(training)
    model = convolutional()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
    schedule = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 30, eta_min=0.002)
    training.train(model, optimizer=optimizer, steps=90, after=lambda _: schedule.step())


# --- learning-rate-too-large ---


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


def recurrent_with_a_rate_of_one(training: Diagnosed, rate: float = 1.0) -> None:
    """Predict the next value of a wave; at such a rate the first update throws all gates to their ends."""

    class Waves(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm, self.out = nn.LSTM(1, 32, batch_first=True), nn.Linear(32, 1)

        def forward(self, given: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = self.out(self.lstm(given[..., None])[0][:, -1])[:, 0]
            return result

    phase = torch.rand(256, 1) * 6
    training.inputs, training.labels = (phase + torch.arange(12) / 2).sin(), (phase[:, 0] + 6).sin()
    model = Waves()
    training.train(model, F.mse_loss, torch.optim.Adam(model.parameters(), lr=rate), 80)


def recurrent_with_a_usual_rate(training: Diagnosed) -> None:
    recurrent_with_a_rate_of_one(training, 1e-2)


def first_update_that_is_taken_back(training: Diagnosed) -> None:
    """The loss is thrown up by the first update, and comes back below its start."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=50.0)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0 if step < 1 else 0.002)
    training.train(model, optimizer=optimizer, steps=80, after=lambda _: schedule.step())


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


# --- loss-unbounded ---


def squares_that_are_subtracted(training: Diagnosed) -> None:
    model = nn.Linear(FEATURES, CLASSES)
    training.train(
        model,
        lambda out, labels: F.cross_entropy(out, labels) - out.pow(2).mean(),
        torch.optim.SGD(model.parameters(), lr=0.1),
        steps=120,
    )


def energies_without_a_margin(training: Diagnosed) -> None:
    """The score of pictures is raised, and that of others lowered, for ever."""
    give_pictures(training)
    model = nn.Sequential(
        *(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(288, 32), nn.ReLU(), nn.Linear(32, 1))
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(120):
        pictures, _ = training.batch()
        others = pictures.flip(2) + torch.rand_like(pictures)
        optimizer.zero_grad()
        (model(others).mean() - model(pictures).mean()).backward()
        optimizer.step()


def distances_without_a_margin(training: Diagnosed) -> None:
    give_sequences(training)
    model = Reader(4, nn.RNN(FEATURES, 16, batch_first=True))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    def loss(out: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        apart = (out[:, None] - out).square().sum(2)
        same = labels[:, None] == labels
        return apart[same].mean() - apart[~same].mean()

    training.train(model, loss, optimizer, steps=120)


def likelihood_below_zero(training: Diagnosed) -> None:
    """The logarithm of a density goes below 0, and more and more slowly."""

    def likelihood(out: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        normal = torch.distributions.Normal(out[:, 0], 1e-3 + nn.functional.softplus(out[:, 1]))
        return -normal.log_prob(0.001 * labels.float()).mean()

    training.train(network(out=2), likelihood, steps=120)


def distances_of_units(training: Diagnosed) -> None:
    """The same on a sphere, where no distance is above 2."""
    give_sequences(training)
    model = Reader(4, nn.RNN(FEATURES, 16, batch_first=True))

    def loss(out: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        units = F.normalize(out, dim=1)
        apart = (units[:, None] - units).square().sum(2)
        same = labels[:, None] == labels
        return apart[same].mean() - apart[~same].mean()

    training.train(model, loss, steps=120)


# --- scale-collapsed ---


def scale_that_collapses(training: Diagnosed) -> None:
    train_scaled(training, lambda step: 1.0 if step < 5 else float("inf"), steps=30)


def train_with_a_scaler(training: Diagnosed, model: nn.Module, loss: Callable[..., torch.Tensor]) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16)
    for _ in range(30):
        inputs, labels = training.batch()
        optimizer.zero_grad()
        scaler.scale(loss(model(inputs), labels)).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()


def distance_of_each_to_itself(training: Diagnosed) -> None:
    """The loss is finite, but the root of 0 has no derivative."""
    give_sequences(training)

    def loss(out: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        apart = (out[:, None] - out).square().sum(2).sqrt()
        return F.mse_loss(apart, (labels[:, None] != labels).float())

    train_with_a_scaler(training, Reader(), loss)


def entropy_of_what_is_impossible(training: Diagnosed) -> None:
    """The logarithm of 0 is replaced, but its derivative is not."""
    give_pictures(training)

    def loss(out: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        shares = out.relu() / (out.relu().sum(1, keepdim=True) + 1)
        entropy = torch.where(shares > 0, -shares * shares.log(), 0.0).sum(1).mean()
        return F.cross_entropy(out, labels) + 0.1 * entropy

    train_with_a_scaler(training, convolutional(), loss)


def scale_that_is_found(training: Diagnosed) -> None:
    train_scaled(training, lambda step: float("inf") if step <= 6 or step % 20 == 0 else 1.0, steps=110)


def distances_of_others(training: Diagnosed) -> None:
    """The distance of each to itself is left out."""
    give_sequences(training)

    def loss(out: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        apart = torch.pdist(out)
        first, second = torch.triu_indices(len(out), len(out), 1)
        return F.mse_loss(apart, (labels[first] != labels[second]).float())

    train_with_a_scaler(training, Reader(), loss)


def rewards_that_are_rare(training: Diagnosed) -> None:
    """Most batches hold none; with one that does, the loss is as high as it was with the others before."""
    model = network(out=1)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(1, 57):
        rows, _ = training.batch()
        rewards = 0.002 * torch.randn(len(rows), 1)
        rewards[0] += float(step in (5, 9, 17, 19, 28, 33, 40, 44, 45, 47, 49))
        optimizer.zero_grad()
        F.mse_loss(0.01 * model(rows), rewards).backward()
        optimizer.step()


FAULTY: tuple[Faulty, ...] = (
    (rate_of_a_million, "loss-not-finite", "step 2"),
    (logarithm_of_nothing, "loss-not-finite", "from the first step on"),
    (row_that_is_nan, "loss-not-finite", "hold NaN in step 11"),
    (root_of_a_variance_of_0, "loss-not-finite", "step 2"),
    (sentence_that_is_masked_altogether, "loss-not-finite", "step 8"),
    (batch_of_other_units, "loss-jumps", "reach"),
    (batch_of_other_units_long_ago, "loss-jumps", "step 91"),
    (rate_with_a_spike, "loss-jumps", "learning rate of AdamW group 0"),
    (gradients_that_explode_once, "loss-jumps", "update of step 41"),
    (sequence_in_another_unit, "loss-jumps", "targets of mse_loss in step 41"),
    (recurrent_with_a_rate_of_one, "learning-rate-too-large", "throw the loss up"),
    (rate_at_which_a_regression_swings, "learning-rate-too-large", "SGD"),
    (rate_that_is_larger_than_the_distance, "learning-rate-too-large", "Adam"),
    (rate_at_which_momentum_swings, "learning-rate-too-large", "SGD"),
    (squares_that_are_subtracted, "loss-unbounded", "cross_entropy"),
    (energies_without_a_margin, "loss-unbounded", ""),
    (distances_without_a_margin, "loss-unbounded", ""),
    (scale_that_collapses, "scale-collapsed", ""),
    (distance_of_each_to_itself, "scale-collapsed", ""),
    (entropy_of_what_is_impossible, "scale-collapsed", ""),
)

HEALTHY: tuple[Healthy, ...] = (
    (loss_that_is_not_finite_once, "loss-not-finite"),
    (words_that_are_masked, "loss-not-finite"),
    (bad_batch_that_changes_nothing, "loss-jumps"),
    (bad_batch_long_ago, "loss-jumps"),
    (another_task, "loss-jumps"),
    (rewards_that_are_rare, "loss-jumps"),
    (warm_restarts, "loss-jumps"),
    (regression_that_settles, "learning-rate-too-large"),
    (recurrent_with_a_usual_rate, "learning-rate-too-large"),
    (first_update_that_is_taken_back, "learning-rate-too-large"),
    (two_batches_in_turns, "learning-rate-too-large"),
    (likelihood_below_zero, "loss-unbounded"),
    (distances_of_units, "loss-unbounded"),
    (scale_that_is_found, "scale-collapsed"),
    (distances_of_others, "scale-collapsed"),
)


test_the_fault_comes_first, test_nothing_is_found = table_tests(FAULTY, HEALTHY)


def test_what_was_read_long_before_is_not_usual(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Updates grow slowly, few are read, and after the one of them that is large by now the task is another one."""
    monkeypatch.setattr("tensight.agents.core.agent.FOR_DIAGNOSIS", FOR_DIAGNOSIS._replace(share=0.0))
    torch.manual_seed(0)
    with Diagnosed(tmp_path) as training:
        model = network()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
        schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 1.06)

        def go_on(step: int) -> None:
            schedule.step()
            if step == 100:
                training.labels = (training.labels + 1) % CLASSES

        training.train(model, optimizer=optimizer, steps=130, after=go_on)
        steps, changes = training.facts["parameters"].steps, training.facts["parameters"].panel("change")
        assert 100 in steps
        assert 99 not in steps
        assert changes[steps == 100].max() > 10 * np.median(changes[steps < 64])
        assert "loss-jumps" not in dict(training.found())
