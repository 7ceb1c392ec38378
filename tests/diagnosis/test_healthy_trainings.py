"""Trainings that look as if something were wrong with them, and of which nothing is found."""

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


def plain(training: Diagnosed) -> None:
    training.train(network(), steps=80)


def log_softmax_and_nll(training: Diagnosed) -> None:
    training.train(network(nn.LogSoftmax(dim=-1)), F.nll_loss)


def sigmoid_and_bce(training: Diagnosed) -> None:
    training.train(
        network(nn.Sigmoid(), out=1), lambda out, labels: F.binary_cross_entropy(out[:, 0], (labels > 1).float())
    )


def one_hot_and_softmax(training: Diagnosed) -> None:
    training.train(
        network(nn.Softmax(1)), lambda out, labels: F.binary_cross_entropy(out, F.one_hot(labels, 4).float())
    )


def norms_that_rest_in_bfloat16(training: Diagnosed) -> None:
    """Towards the end of its schedule an update is less than half of the distance between two numbers about 1."""
    model = nn.Sequential(nn.Linear(FEATURES, 16), nn.LayerNorm(16), nn.ReLU(), nn.Linear(16, CLASSES)).bfloat16()
    training.inputs = training.inputs.bfloat16()
    optimizer = torch.optim.Adam(model.parameters(), lr=8e-3)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0 if step < 20 else 0.1)
    training.train(model, optimizer=optimizer, steps=50, after=lambda _: schedule.step())


def squared_error_of_a_column(training: Diagnosed) -> None:
    training.train(network(out=1), lambda out, labels: ((out - labels.float()[:, None]) ** 2).mean())


def pairs_that_are_meant(training: Diagnosed) -> None:
    """A ranking loss compares all pairs."""

    def ranking(out: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        apart = out[:, 0].unsqueeze(0) - out[:, 0].unsqueeze(1)
        return (F.softplus(-apart) * (labels[None, :] > labels[:, None])).mean()

    training.train(network(out=1), ranking)


def negative_likelihood(training: Diagnosed) -> None:
    def likelihood(out: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return -torch.distributions.Normal(out[:, 0], 0.01 + out[:, 1].exp()).log_prob(labels.float()).mean()

    training.train(network(out=2), likelihood)


def negated_and_maximised(training: Diagnosed) -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, maximize=True)
    training.train(model, lambda out, labels: -F.cross_entropy(out, labels), optimizer)


def frozen_statistics_beside_dropout(training: Diagnosed) -> None:
    model = nn.Sequential(
        nn.Linear(FEATURES, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, CLASSES)
    )
    model[1].eval()
    training.train(model)


def evaluation_between_steps(training: Diagnosed) -> None:
    model = nn.Sequential(network(out=16), nn.Dropout(0.2), nn.Linear(16, CLASSES))

    def evaluate(step: int) -> None:
        if step % 5 == 0:
            model.eval()
            with torch.no_grad():
                for _ in range(6):
                    model(training.batch()[0])
            model.train()

    training.train(model, after=evaluate)


def gradients_of_transforms(training: Diagnosed) -> None:
    """Tensors within transforms of torch.func have no memory that could be read."""
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    names = [name for name, _ in model.named_parameters()]

    def loss(weights: dict[str, torch.Tensor], inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(torch.func.functional_call(model, weights, (inputs,)), labels)

    for _ in range(12):
        weights = {name: weight.detach() for name, weight in model.named_parameters()}
        gradients = torch.func.grad(loss)(weights, *training.batch())
        for name, weight in zip(names, model.parameters(), strict=True):
            weight.grad = gradients[name]
        optimizer.step()


def episodes_that_begin_at_zero(training: Diagnosed) -> None:
    """The first of many calls in a step is given a state that has just been reset."""
    policy = network(out=2)
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
    for _ in range(20):
        state, losses = torch.zeros(FEATURES), []
        for _ in range(5):
            action = torch.distributions.Categorical(logits=policy(state))
            choice = action.sample()
            losses.append(-action.log_prob(choice) * torch.randn(()))
            state = 0.9 * state + torch.randn(FEATURES)
        optimizer.zero_grad()
        torch.stack(losses).sum().backward()
        optimizer.step()


def mask_of_ones_before_the_input(training: Diagnosed) -> None:
    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = network()

        def forward(self, mask: torch.Tensor, given: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = self.body(given * mask)
            return result

    model = Masked()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(20):
        inputs, labels = training.batch()
        optimizer.zero_grad()
        F.cross_entropy(model(torch.ones_like(inputs), inputs), labels).backward()
        optimizer.step()


def one_number_in_each_step(training: Diagnosed) -> None:
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    for _ in range(20):
        given = torch.randn(1, 1)
        optimizer.zero_grad()
        F.mse_loss(model(given), 2 * given).backward()
        optimizer.step()


def teacher_without_gradients(training: Diagnosed) -> None:
    """It drops nothing on purpose, and its parameters still require gradients."""
    teacher = nn.Sequential(network(out=16), nn.Dropout(0.3), nn.Linear(16, CLASSES)).eval()
    student = network()
    optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
    for _ in range(20):
        inputs, _ = training.batch()
        with torch.no_grad():
            targets = teacher(inputs).softmax(1)
        optimizer.zero_grad()
        F.kl_div(student(inputs).log_softmax(1), targets, reduction="batchmean").backward()
        optimizer.step()


def generator_in_evaluation_mode_for_the_discriminator(training: Diagnosed) -> None:
    generator = nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, FEATURES))
    critic = network(out=1)
    optimizers = [torch.optim.Adam(model.parameters(), lr=1e-3) for model in (generator, critic)]
    for step in range(24):
        updates_generator = step % 6 == 0
        generator.train(updates_generator)
        inputs, _ = training.batch()
        made = generator(torch.randn(len(inputs), 4))
        if updates_generator:
            loss = -critic(made).mean()
        else:
            loss = F.softplus(critic(made.detach())).mean() + F.softplus(-critic(inputs)).mean()
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        optimizers[0 if updates_generator else 1].step()


def much_dropout(training: Diagnosed) -> None:
    training.train(nn.Sequential(network(out=16), nn.Dropout(0.8), nn.Linear(16, CLASSES)))


def likelihood_below_zero(training: Diagnosed) -> None:
    """The logarithm of a density goes below 0, and more and more slowly."""

    def likelihood(out: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        normal = torch.distributions.Normal(out[:, 0], 1e-3 + nn.functional.softplus(out[:, 1]))
        return -normal.log_prob(0.001 * labels.float()).mean()

    training.train(network(out=2), likelihood, steps=120)


def filled_up(lowest: int = 1) -> torch.Tensor:
    """Ids of 32 sequences of several lengths, filled up with 0."""
    ids = torch.randint(lowest, 12, (32, 10))
    ids[torch.arange(10) >= torch.randint(3, 9, (32, 1))] = 0
    return ids


def tags_of_which_one_has_the_number_of_padding(training: Diagnosed) -> None:
    tagger = nn.Sequential(nn.Embedding(12, 8), nn.Linear(8, 3))
    optimizer = torch.optim.Adam(tagger.parameters(), lr=1e-2)
    for _ in range(20):
        ids = filled_up()
        tags = (ids > 8).long()
        tags[ids == 0] = -100
        optimizer.zero_grad()
        F.cross_entropy(tagger(ids).reshape(-1, 3), tags.reshape(-1)).backward()
        optimizer.step()


def two_classes_of_sequences_that_are_filled_up(training: Diagnosed) -> None:
    words = nn.EmbeddingBag(12, 2, padding_idx=0)
    optimizer = torch.optim.Adam(words.parameters(), lr=1e-2)
    for _ in range(20):
        ids = filled_up()
        optimizer.zero_grad()
        F.cross_entropy(words(ids), (ids == 7).any(1).long()).backward()
        optimizer.step()


def pictures_as_sequences(training: Diagnosed) -> None:
    """Black is a value as any other, and most of what is at the end."""
    model = nn.Sequential(nn.Embedding(12, 8), nn.Linear(8, 12))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(20):
        ids = filled_up(lowest=0)
        optimizer.zero_grad()
        F.cross_entropy(model(ids)[:, :-1].reshape(-1, 12), ids[:, 1:].reshape(-1)).backward()
        optimizer.step()


def padding_that_a_mask_takes_out(training: Diagnosed) -> None:
    model = nn.Sequential(nn.Embedding(12, 8), nn.Linear(8, 12))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(20):
        ids = filled_up()
        losses = F.cross_entropy(model(ids)[:, :-1].reshape(-1, 12), ids[:, 1:].reshape(-1), reduction="none")
        counts = (ids[:, 1:] != 0).reshape(-1)
        optimizer.zero_grad()
        (losses[counts].sum() / counts.sum()).backward()
        optimizer.step()


def targets_that_grow(training: Diagnosed) -> None:
    """A curriculum: what is good of late would be bad of the first targets."""
    model = network(out=1)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for step in range(160):
        inputs, _ = training.batch()
        targets = (inputs[:, :1] + 0.6 * torch.randn(len(inputs), 1)) * (1 + step // 40) ** 2
        optimizer.zero_grad()
        F.mse_loss(model(inputs), targets).backward()
        optimizer.step()


def squared_error_times_a_hundred(training: Diagnosed) -> None:
    training.train(
        network(out=1),
        lambda out, labels: 100 * F.mse_loss(out[:, 0], labels + 0.1 * torch.randn(len(labels))),
        steps=80,
    )


HEALTHY: tuple[Callable[[Diagnosed], None], ...] = (
    plain,
    log_softmax_and_nll,
    sigmoid_and_bce,
    one_hot_and_softmax,
    norms_that_rest_in_bfloat16,
    squared_error_of_a_column,
    pairs_that_are_meant,
    negative_likelihood,
    negated_and_maximised,
    frozen_statistics_beside_dropout,
    evaluation_between_steps,
    gradients_of_transforms,
    much_dropout,
    likelihood_below_zero,
    episodes_that_begin_at_zero,
    mask_of_ones_before_the_input,
    one_number_in_each_step,
    teacher_without_gradients,
    generator_in_evaluation_mode_for_the_discriminator,
    tags_of_which_one_has_the_number_of_padding,
    two_classes_of_sequences_that_are_filled_up,
    pictures_as_sequences,
    padding_that_a_mask_takes_out,
    targets_that_grow,
    squared_error_times_a_hundred,
)


@pytest.mark.parametrize("train", HEALTHY, ids=lambda train: train.__name__)
def test_nothing_is_found(diagnosed: Diagnosed, train: Callable[[Diagnosed], None]) -> None:
    train(diagnosed)
    assert diagnosed.findings() == []
    assert diagnosed.facts.last_step >= 8
