"""Trainings whose learning rate is too small or too large, as others show that are tried on one batch."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - as everybody calls it

from tensight.agents.torch.probes import probing
from tests.diagnosis.diagnosed import CLASSES, FEATURES, Diagnosed, Faulty, Healthy, each, network, table_tests
from tests.diagnosis.models import WIDTH, WORDS, sentences

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

LONG = 130


@pytest.fixture
def diagnosed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Diagnosed]:
    """A training with probes, which have enough time on a machine that computes something else, too."""
    monkeypatch.setattr(probing, "_LEAST_S", 60.0)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    gc.freeze()
    with Diagnosed(tmp_path, probe=True) as training:
        yield training
    gc.unfreeze()


def optimized(model: nn.Module, rate: float, kind: Any = torch.optim.Adam, **options: Any) -> torch.optim.Optimizer:
    optimizer: torch.optim.Optimizer = kind(model.parameters(), lr=rate, **options)
    return optimizer


def of_words(rate: float, **options: Any) -> Callable[[Diagnosed], None]:
    """Return a training of a language model."""

    def train(_: Diagnosed) -> None:
        cells = nn.LSTM(WIDTH, WIDTH, batch_first=True)
        words, out = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, WORDS)
        optimizer = optimized(nn.ModuleList([words, cells, out]), rate, **options)
        for _step in range(LONG):
            ids = sentences()[:24]
            logits = out(cells(words(ids[:, :-1]))[0])
            optimizer.zero_grad()
            F.cross_entropy(logits.transpose(1, 2), ids[:, 1:]).backward()
            optimizer.step()

    return train


def amounts(training: Diagnosed) -> torch.Tensor:
    return training.inputs @ torch.ones(FEATURES) + 0.1 * torch.randn(len(training.inputs))


# --- too small ---


def a_millionth(training: Diagnosed) -> None:
    model = network()
    training.train(model, optimizer=optimized(model, 1e-6), steps=LONG)


def of_a_regression(training: Diagnosed) -> None:
    training.labels = amounts(training)
    model = network(out=1)
    optimizer = optimized(model, 1e-6, torch.optim.SGD, momentum=0.9)
    training.train(model, lambda out, y: F.mse_loss(out[:, 0], y), optimizer, LONG)


def of_a_language_model(training: Diagnosed) -> None:
    of_words(1e-6, kind=torch.optim.AdamW)(training)


def of_a_schedule_that_returns_the_rate(training: Diagnosed) -> None:
    """A factor was meant."""
    model = network()
    optimizer = optimized(model, 1e-3)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: 1e-3)
    training.train(model, optimizer=optimizer, steps=LONG, after=lambda _: schedule.step())


def clipped_with_the_rate_of_a_fine_tuning(training: Diagnosed) -> None:
    model = network()
    optimizer = optimized(model, 1e-6, torch.optim.AdamW)

    def loss(out: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(out, labels)

    for _ in range(LONG):
        inputs, labels = training.batch()
        optimizer.zero_grad()
        loss(model(inputs), labels).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


# --- too large ---


def three_of_adam(training: Diagnosed) -> None:
    model = nn.Sequential(nn.Linear(FEATURES, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, CLASSES))
    training.train(model, optimizer=optimized(model, 3.0), steps=LONG)


def thirty_of_sgd(training: Diagnosed) -> None:
    model = nn.Sequential(nn.Linear(FEATURES, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, CLASSES))
    training.train(model, optimizer=optimized(model, 30.0, torch.optim.SGD), steps=LONG)


def hundreds_for_words(training: Diagnosed) -> None:
    of_words(100.0)(training)


# --- healthy ---


def warmed_up_for_long(training: Diagnosed) -> None:
    """The watched part ends long before the warm-up."""
    model = network()
    optimizer = optimized(model, 1e-3)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: (step + 1) / 400)
    training.train(model, optimizer=optimizer, steps=LONG, after=lambda _: schedule.step())


def first_epoch_of_a_warm_up(training: Diagnosed) -> None:
    """The rate is set by hand with each epoch."""
    model = network()
    optimizer = optimized(model, 1e-6)

    def warm(step: int) -> None:
        optimizer.param_groups[0]["lr"] = 1e-6 * 10 ** (step // 40)

    training.train(model, optimizer=optimizer, steps=LONG, after=warm)


def learnt_already(training: Diagnosed) -> None:
    """Goes on with the last rate of a schedule."""
    noisy = torch.where(torch.rand(len(training.labels)) < 0.2, (training.labels + 1) % CLASSES, training.labels)
    model = network()
    optimizer = optimized(model, 1e-2)
    for _ in range(300):
        optimizer.zero_grad()
        F.cross_entropy(model(training.inputs), noisy).backward()
        optimizer.step()


def refined(training: Diagnosed) -> None:
    """A model that has learnt is trained on with a small rate."""
    training.labels = amounts(training)
    model, weights = network(out=1), torch.linalg.lstsq(training.inputs, training.labels).solution
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(0.01)
        model[0].weight[0], model[0].weight[1] = weights, -weights
        model[2].weight[0, 0], model[2].weight[0, 1] = 1.0, -1.0
    training.train(model, lambda out, y: F.mse_loss(out[:, 0], y), optimized(model, 1e-7), LONG)


def fine_tuned(training: Diagnosed) -> None:
    model = nn.Sequential(nn.Linear(FEATURES, 512), nn.GELU(), nn.Linear(512, 512), nn.GELU(), nn.Linear(512, CLASSES))
    training.train(model, optimizer=optimized(model, 2e-5, torch.optim.AdamW), steps=LONG)


def slow_with_much_momentum(training: Diagnosed) -> None:
    model = network()
    training.train(model, optimizer=optimized(model, 2e-3, torch.optim.SGD, momentum=0.99), steps=LONG)


def high_at_first(training: Diagnosed) -> None:
    """The rate falls soon."""
    model = network()
    optimizer = optimized(model, 0.5)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.96)
    training.train(model, optimizer=optimizer, steps=LONG, after=lambda _: schedule.step())


def rivals(training: Diagnosed) -> None:
    """Two models against each other: their losses stay where they are."""
    maker, judge = network(out=FEATURES), network(out=1)
    of_maker, of_judge = optimized(maker, 1e-4), optimized(judge, 1e-4)
    for _ in range(LONG):
        real, _labels = training.batch()
        made = maker(torch.randn_like(real))
        scores = judge(torch.cat([real, made.detach()]))[:, 0]
        of_judge.zero_grad()
        F.binary_cross_entropy_with_logits(scores, (torch.arange(64) < 32).float()).backward()
        of_judge.step()
        of_maker.zero_grad()
        F.binary_cross_entropy_with_logits(judge(made)[:, 0], torch.ones(32)).backward()
        of_maker.step()


def rewards(training: Diagnosed) -> None:
    """The loss of a policy gradient says nothing about what is learnt."""
    model = network()
    optimizer = optimized(model, 1e-3)
    for _ in range(LONG):
        inputs, labels = training.batch()
        chosen = torch.distributions.Categorical(logits=model(inputs))
        actions = chosen.sample()
        gains = (actions == labels).float() - 0.25
        optimizer.zero_grad()
        (-chosen.log_prob(actions) * gains).mean().backward()
        optimizer.step()


def chance_labels(training: Diagnosed) -> None:
    """Nothing can be learnt, whatever the rate: another rule may say so."""
    training.labels = torch.randint(0, CLASSES, (len(training.labels),))
    model = network()
    training.train(model, optimizer=optimized(model, 1e-3), steps=LONG)


FAULTY: list[Faulty] = [
    (a_millionth, "learning-rate-too-small", "1e-06"),
    (of_a_regression, "learning-rate-too-small", "SGD"),
    (of_a_language_model, "learning-rate-too-small", "AdamW"),
    (of_a_schedule_that_returns_the_rate, "learning-rate-too-small", "times the rate"),
    (clipped_with_the_rate_of_a_fine_tuning, "learning-rate-too-small", "test_rates.py:"),
    (three_of_adam, "learning-rate-too-large", "times the rate"),
    (thirty_of_sgd, "learning-rate-too-large", "times the rate"),
    (hundreds_for_words, "learning-rate-too-large", "times the rate"),
]

HEALTHY: list[Healthy] = [
    (warmed_up_for_long, "loss-stays"),
    (first_epoch_of_a_warm_up, "learning-rate-too-small"),
    (learnt_already, "learning-rate-too-small"),
    (refined, "learning-rate-too-small"),
    (fine_tuned, "learning-rate-too-small"),
    (slow_with_much_momentum, "learning-rate-too-small"),
    (rivals, "learning-rate-too-small"),
    (rewards, "learning-rate-too-small"),
    (high_at_first, "learning-rate-too-large"),
]

test_the_fault_comes_first, test_nothing_is_found = table_tests(FAULTY, HEALTHY)


@each(chance_labels)
def test_another_cause_is_no_small_rate(diagnosed: Diagnosed, train: Callable[[Diagnosed], None]) -> None:
    train(diagnosed)
    diagnosed.end()
    assert not {rule for rule, _ in diagnosed.found()} & {"learning-rate-too-small", "learning-rate-too-large"}
