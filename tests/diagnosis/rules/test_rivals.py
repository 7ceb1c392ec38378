"""Discriminators and generators, policies and values, and healthy trainings that look like their faults."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.distributions import Categorical, Normal
from torch.nn import functional as F  # noqa: N812 - as everybody calls it

from tests.diagnosis.diagnosed import CLASSES, FEATURES, Diagnosed, Faulty, Healthy, network, table_tests

if TYPE_CHECKING:
    from collections.abc import Callable

    Judge = Callable[[torch.Tensor, float], torch.Tensor]

STEPS, BATCH = 12, 32


# --- generators and discriminators ---


def against_each_other(
    diagnosed: Diagnosed,
    judge: Judge,
    target: float,
    real: float = 1.0,
    sign: float = 1.0,
    rates: tuple[float, float] = (1e-3, 1e-3),
    steps: int = STEPS,
    apart: float = 0.0,
) -> None:
    """Train a generator, with a loss towards the target, and a discriminator; to what data are, a number is added."""
    generator, discriminator = network(out=FEATURES), network(out=1)
    models = generator, discriminator
    optimizers = [torch.optim.Adam(model.parameters(), rate) for model, rate in zip(models, rates, strict=True)]
    for _ in range(steps):
        inputs = diagnosed.batch()[0] + apart
        made = generator(torch.randn(len(inputs), FEATURES))
        optimizers[1].zero_grad()
        loss = judge(discriminator(inputs), real) + judge(discriminator(made.detach()), 1.0 - real)
        loss.backward()
        optimizers[1].step()
        optimizers[0].zero_grad()
        (sign * judge(discriminator(made), target)).backward()
        optimizers[0].step()


def of_logits(scores: torch.Tensor, answer: float) -> torch.Tensor:
    return F.binary_cross_entropy_with_logits(scores, torch.full_like(scores, answer))


def of_squares(scores: torch.Tensor, answer: float) -> torch.Tensor:
    return F.mse_loss(scores, torch.full_like(scores, answer))


def of_probabilities(scores: torch.Tensor, answer: float) -> torch.Tensor:
    return F.binary_cross_entropy(torch.sigmoid(scores).squeeze(1), torch.full((len(scores),), answer))


def of_softplus(scores: torch.Tensor, answer: float) -> torch.Tensor:
    return F.softplus(-scores if answer else scores).mean()


def of_logsigmoid(scores: torch.Tensor, answer: float) -> torch.Tensor:
    return -F.logsigmoid(scores if answer else -scores).mean()


def of_logarithms(scores: torch.Tensor, answer: float) -> torch.Tensor:
    share = torch.sigmoid(scores)
    return -torch.log((share if answer else 1 - share) + 1e-8).mean()


def of_differences(scores: torch.Tensor, answer: float) -> torch.Tensor:
    """Each sample is to be better than the mean of the others."""
    return F.softplus((1 - 2 * answer) * (scores - scores.mean())).mean()


def softplus_of_fakes(diagnosed: Diagnosed) -> None:
    against_each_other(diagnosed, of_softplus, 0.0)


def logsigmoid_of_fakes(diagnosed: Diagnosed) -> None:
    against_each_other(diagnosed, of_logsigmoid, 0.0)


def logarithms_of_fakes(diagnosed: Diagnosed) -> None:
    against_each_other(diagnosed, of_logarithms, 1.0, real=0.0)


def softplus_of_real_ones(diagnosed: Diagnosed) -> None:
    against_each_other(diagnosed, of_softplus, 1.0)


def logarithm_that_is_lowered(diagnosed: Diagnosed) -> None:
    """The first form of the loss."""
    against_each_other(diagnosed, of_logarithms, 0.0, sign=-1.0)


def relative_to_others(diagnosed: Diagnosed) -> None:
    against_each_other(diagnosed, of_differences, 0.0)


def softplus_far_from_what_is_made(diagnosed: Diagnosed) -> None:
    against_each_other(diagnosed, of_softplus, 1.0, rates=(1e-5, 2e-2), steps=160, apart=20.0)


def softplus_of_one_that_keeps_up(diagnosed: Diagnosed) -> None:
    against_each_other(diagnosed, of_softplus, 1.0, rates=(1e-2, 1e-3), steps=120)


def variance_of_a_softplus(diagnosed: Diagnosed) -> None:
    """No answer, but what is divided by."""
    model = network(out=2)

    def loss(out: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        variance = F.softplus(out[:, 1]) + 0.1
        return ((out[:, 0] - labels) ** 2 / variance + variance.log()).mean()

    diagnosed.train(model, loss, steps=40)


def target_of_fakes(diagnosed: Diagnosed) -> None:
    against_each_other(diagnosed, of_logits, 0.0)


def squares_of_fakes(diagnosed: Diagnosed) -> None:
    against_each_other(diagnosed, of_squares, 0.0)


def probabilities_of_fakes(diagnosed: Diagnosed) -> None:
    against_each_other(diagnosed, of_probabilities, 1.0, real=0.0)


def target_of_real_ones(diagnosed: Diagnosed) -> None:
    against_each_other(diagnosed, of_logits, 1.0)


def labels_the_other_way_round(diagnosed: Diagnosed) -> None:
    against_each_other(diagnosed, of_squares, 0.0, real=0.0)


def loss_that_is_raised(diagnosed: Diagnosed) -> None:
    """The first form of the loss: the generator raises that of the discriminator."""
    against_each_other(diagnosed, of_logits, 0.0, sign=-1.0)


def data_far_from_what_is_made(diagnosed: Diagnosed) -> None:
    against_each_other(diagnosed, of_logits, 1.0, rates=(1e-5, 2e-2), steps=160, apart=20.0)


def generator_that_is_too_slow(diagnosed: Diagnosed) -> None:
    against_each_other(diagnosed, of_probabilities, 1.0, rates=(1e-6, 2e-2), steps=160, apart=5.0)


def answers_the_other_way_round(diagnosed: Diagnosed) -> None:
    against_each_other(diagnosed, of_logits, 0.0, real=0.0, rates=(1e-5, 2e-2), steps=160, apart=-20.0)


def generator_that_keeps_up(diagnosed: Diagnosed) -> None:
    against_each_other(diagnosed, of_logits, 1.0, rates=(1e-2, 1e-3), steps=120)


def probe_beside_training(diagnosed: Diagnosed) -> None:
    """A head judges features, detached and not, by the same labels."""
    body, head = network(out=FEATURES), network(out=CLASSES)
    optimizer = torch.optim.Adam((*body.parameters(), *head.parameters()), 1e-2)
    for _ in range(STEPS):
        inputs, labels = diagnosed.batch()
        features = body(inputs)
        optimizer.zero_grad()
        loss = F.cross_entropy(head(features), labels) + F.cross_entropy(head(features.detach()), labels)
        loss.backward()
        optimizer.step()


# --- policies and values ---


class ActorCritic(nn.Module):
    """A policy and the value of a state."""

    def __init__(self, out: int) -> None:
        super().__init__()
        self.actor, self.critic = network(out=out), network(out=1)

    def forward(self, states: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.actor(states), self.critic(states).squeeze(-1)


def act(out: int, loss_of: Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]) -> None:
    """Train on states and rewards, by a loss of scores, values and states."""
    model = ActorCritic(out)
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    for _ in range(STEPS):
        states = torch.randn(BATCH, FEATURES)
        scores, values = model(states)
        optimizer.zero_grad()
        loss_of(scores, values, states).backward()
        optimizer.step()


def rewards(states: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
    return states[:, 0] * (actions.float() - 1)


def of_classes(scores: torch.Tensor, values: torch.Tensor, states: torch.Tensor, *, detaches: bool) -> torch.Tensor:
    policy = Categorical(logits=scores)
    actions = policy.sample()
    advantage = rewards(states, actions) - values
    factor = advantage.detach() if detaches else advantage
    return -(policy.log_prob(actions) * factor).mean() + 0.5 * advantage.pow(2).mean()


def value_in_the_policy(_: Diagnosed) -> None:
    act(3, lambda *given: of_classes(*given, detaches=False))


def value_in_a_normal_policy(_: Diagnosed) -> None:
    def loss(scores: torch.Tensor, values: torch.Tensor, states: torch.Tensor) -> torch.Tensor:
        policy = Normal(scores[:, 0], scores[:, 1].exp())
        actions = policy.sample()
        advantage = rewards(states, actions) - values
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-6)
        return -(policy.log_prob(actions) * advantage).mean()

    act(2, loss)


def value_in_cross_entropies(_: Diagnosed) -> None:
    def loss(scores: torch.Tensor, values: torch.Tensor, states: torch.Tensor) -> torch.Tensor:
        actions = Categorical(logits=scores).sample()
        costs = F.cross_entropy(scores, actions, reduction="none")
        advantage = rewards(states, actions) - values
        return (costs * advantage).mean() + advantage.square().mean()

    act(3, loss)


def advantage_without_a_graph(_: Diagnosed) -> None:
    act(3, lambda *given: of_classes(*given, detaches=True))


def losses_weighed_by_shares(_: Diagnosed) -> None:
    """The focal loss: costs are multiplied by what is left to one."""

    def loss(scores: torch.Tensor, values: torch.Tensor, states: torch.Tensor) -> torch.Tensor:
        costs = F.cross_entropy(scores, (states[:, 0] > 0).long(), reduction="none")
        return (costs * (torch.ones(BATCH) - torch.exp(-costs)) ** 2).mean() + F.mse_loss(values, states[:, 1])

    act(3, loss)


FAULTY: tuple[Faulty, ...] = (
    (data_far_from_what_is_made, "discriminator-certain", "Since step"),
    (generator_that_is_too_slow, "discriminator-certain", "with certainty"),
    (answers_the_other_way_round, "discriminator-certain", "with certainty"),
    (softplus_far_from_what_is_made, "discriminator-certain", "with certainty"),
    (softplus_of_fakes, "generator-target", "target is 0"),
    (logsigmoid_of_fakes, "generator-target", "target is 0"),
    (logarithms_of_fakes, "generator-target", "target is 1"),
    (target_of_fakes, "generator-target", "target is 0"),
    (squares_of_fakes, "generator-target", "target is 0"),
    (probabilities_of_fakes, "generator-target", "target is 1"),
    (value_in_the_policy, "advantage-attached", "advantage"),
    (value_in_a_normal_policy, "advantage-attached", "advantage"),
    (value_in_cross_entropies, "advantage-attached", "advantage"),
)
HEALTHY: tuple[Healthy, ...] = (
    (generator_that_keeps_up, "discriminator-certain"),
    (softplus_of_one_that_keeps_up, "discriminator-certain"),
    (variance_of_a_softplus, "discriminator-certain"),
    (softplus_of_real_ones, "generator-target"),
    (logarithm_that_is_lowered, "generator-target"),
    (relative_to_others, "generator-target"),
    (target_of_real_ones, "generator-target"),
    (labels_the_other_way_round, "generator-target"),
    (loss_that_is_raised, "generator-target"),
    (probe_beside_training, "generator-target"),
    (advantage_without_a_graph, "advantage-attached"),
    (losses_weighed_by_shares, "advantage-attached"),
)

test_the_fault_comes_first, test_nothing_is_found = table_tests(FAULTY, HEALTHY)


def test_the_line_of_the_product_is_named(diagnosed: Diagnosed) -> None:
    value_in_the_policy(diagnosed)
    assert diagnosed.findings()[0].where["line"].startswith("test_rivals.py:")
