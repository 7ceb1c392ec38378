"""Averages of weights and targets that do not follow as they should, and those that do."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - as everybody calls it
from torch.optim.swa_utils import AveragedModel

from tests.diagnosis.diagnosed import (
    FEATURES,
    Diagnosed,
    Faulty,
    Healthy,
    network,
    table_tests,
)
from tests.diagnosis.models import ConvNet, Recurrent, Transformer, next_word, sentences, train_words

if TYPE_CHECKING:
    from collections.abc import Callable


class Holder:
    """Holds an average, as a trainer does."""

    ema: nn.Module


class Average:
    """Averaged weights that take the place of the model's."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.shadow = {name: weight.detach().clone() for name, weight in model.named_parameters()}

    def update(self, model: nn.Module) -> None:
        for name, weight in model.named_parameters():
            self.shadow[name].lerp_(weight.detach(), 1 - self.decay)

    def swap(self, model: nn.Module) -> dict[str, torch.Tensor]:
        """Write the average into a model; return what was there."""
        before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
        with torch.no_grad():
            for name, weight in model.named_parameters():
                weight.copy_(self.shadow[name])
        return before


def follow(average: nn.Module, model: nn.Module, share: float) -> None:
    """Go a share of the way from an average to a model."""
    with torch.no_grad():
        for mine, theirs in zip(average.parameters(), model.parameters(), strict=True):
            mine.lerp_(theirs, share)


def held(model: nn.Module) -> Holder:
    """Return the holder of a copy of a model."""
    holder = Holder()
    holder.ema = copy.deepcopy(model).requires_grad_(False)
    return holder


def average_that_is_never_updated(training: Diagnosed) -> None:
    model = network()
    holder = held(model)
    training.train(model, steps=40)
    assert holder.ema is not model


def average_in_bfloat16(training: Diagnosed) -> None:
    """A thousandth of the way is lost to rounding."""
    model = Transformer()
    holder = held(model)
    holder.ema.bfloat16()

    def loss(out: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            for mine, theirs in zip(holder.ema.parameters(), model.parameters(), strict=True):
                mine.lerp_(theirs.bfloat16(), 1e-3)
        return next_word(out, ids)

    train_words(model, loss, steps=40)


def average_that_leaves_statistics(training: Diagnosed) -> None:
    """It follows the parameters, and not the means and variances of the norms."""
    model = ConvNet()
    holder = held(model)
    training.train(model, steps=40, after=lambda _: follow(holder.ema, model, 0.1))


def average_for_a_longer_training(training: Diagnosed) -> None:
    model = network()
    holder = held(model)
    training.train(model, steps=120, after=lambda _: follow(holder.ema, model, 0.0001))
    training.end()


def average_that_begins_fast(training: Diagnosed) -> None:
    model = network()
    holder = held(model)
    training.train(model, steps=120, after=lambda step: follow(holder.ema, model, max(0.0001, 9 / (10 + step))))
    training.end()


def train_by_targets(
    training: Diagnosed,
    policy: nn.Module,
    target: nn.Module,
    synchronise: Callable[[int], Any] = lambda _: None,
    steps: int = 30,
) -> None:
    """Train towards values that another network gives, as in reinforcement learning."""
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
    for step in range(steps):
        inputs, labels = training.batch()
        with torch.no_grad():
            values = (labels == 0) + 0.9 * target(inputs).max(1).values
        optimizer.zero_grad()
        F.smooth_l1_loss(policy(inputs)[:, 0], values).backward()
        optimizer.step()
        synchronise(step)


def target_that_is_never_synchronised(training: Diagnosed) -> None:
    policy_net, target_net = network(), network()
    target_net.load_state_dict(policy_net.state_dict())
    train_by_targets(training, policy_net, target_net, steps=60)


def average_with_reversed_decay(training: Diagnosed) -> None:
    model = network()
    holder = held(model)
    training.train(model, after=lambda _: follow(holder.ema, model, 0.999))


def average_whose_decay_is_warmed_up(training: Diagnosed) -> None:
    model = network()
    holder = held(model)
    training.train(model, after=lambda step: follow(holder.ema, model, 1 - step / (10 + step)), steps=16)


def average_of_words_with_reversed_decay(training: Diagnosed) -> None:
    model = Transformer()
    average = AveragedModel(model, avg_fn=lambda mine, theirs, _: 0.01 * mine + 0.99 * theirs)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(20):
        ids = sentences()
        optimizer.zero_grad()
        next_word(model(ids), ids).backward()
        optimizer.step()
        average.update_parameters(model)


def teacher_loaded_in_each_step(training: Diagnosed) -> None:
    """The teacher of a student is the student of the step before."""
    student = ConvNet()
    holder = held(student)
    optimizer = torch.optim.SGD(student.parameters(), lr=0.05)
    for _ in range(20):
        inputs, labels = training.batch()
        with torch.no_grad():
            shares = holder.ema(inputs + 0.1 * torch.randn_like(inputs)).softmax(1)
        out = student(inputs)
        optimizer.zero_grad()
        (F.cross_entropy(out, labels) + F.kl_div(out.log_softmax(1), shares, reduction="batchmean")).backward()
        optimizer.step()
        holder.ema.load_state_dict(student.state_dict())


def train_averaged(
    training: Diagnosed, model: nn.Module, decay: float, every: int, *, restores: bool = False, steps: int = 50
) -> None:
    ema = Average(model, decay)

    def swap(step: int) -> None:
        ema.update(model)
        if step % every == 0:
            before = ema.swap(model)
            if restores:
                model.load_state_dict(before, strict=False)

    training.train(model, optimizer=torch.optim.SGD(model.parameters(), lr=0.2), steps=steps, after=swap)


def average_written_back(training: Diagnosed) -> None:
    train_averaged(training, network(), 0.99, 4)


def average_written_back_after_each_epoch(training: Diagnosed) -> None:
    train_averaged(training, ConvNet(), 0.95, 10)


def module_written_back(training: Diagnosed) -> None:
    model = Recurrent()
    average = AveragedModel(model, avg_fn=lambda mine, theirs, _: mine.lerp(theirs, 0.02))

    def swap(step: int) -> None:
        average.update_parameters(model)
        if step % 6 == 0:
            model.load_state_dict(average.module.state_dict())

    training.train(model, optimizer=torch.optim.SGD(model.parameters(), lr=0.2), steps=50, after=swap)


def teacher_that_is_the_student(training: Diagnosed) -> None:
    class Learner:
        student: nn.Module
        teacher: nn.Module

    learner = Learner()
    learner.student = learner.teacher = network()
    train_by_targets(training, learner.student, learner.teacher)


def target_within_a_module(training: Diagnosed) -> None:
    class Agent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.online = network()
            self.target = self.online

    agent = Agent()
    train_by_targets(training, agent.online, agent.target)


class Agent:
    """An actor, a critic and the target of that."""

    def __init__(self) -> None:
        self.actor = network(out=2)
        self.critic = nn.Sequential(nn.Linear(FEATURES + 2, 16), nn.ReLU(), nn.Linear(16, 1))
        self.target_critic = self.critic


def train_agent(training: Diagnosed, agent: Agent) -> None:
    """Train a critic towards values of its target, and an actor by the critic, as in continuous control."""
    optimizers = [torch.optim.Adam(model.parameters(), lr=1e-3) for model in (agent.actor, agent.critic)]
    for _ in range(30):
        state, labels = training.batch()
        following, action = training.batch()[0], torch.randn(len(state), 2)
        with torch.no_grad():
            ahead = agent.target_critic(torch.cat([following, agent.actor(following)], 1))
        value = agent.critic(torch.cat([state, action], 1))
        optimizers[1].zero_grad()
        F.mse_loss(value, (labels[:, None] > 1) + 0.9 * ahead).backward()
        optimizers[1].step()
        optimizers[0].zero_grad()
        (-agent.critic(torch.cat([state, agent.actor(state)], 1)).mean()).backward()
        optimizers[0].step()
        follow(agent.target_critic, agent.critic, 0.005)


def critic_that_is_its_target(training: Diagnosed) -> None:
    """Its target was assigned and not copied."""
    train_agent(training, Agent())


def target_of_a_function(training: Diagnosed) -> None:
    """Both are variables of a function, and actions are chosen now and then only."""
    policy_net = network()
    target_net = policy_net
    optimizer = torch.optim.Adam(policy_net.parameters(), lr=1e-2)
    for _ in range(30):
        inputs, labels = training.batch()
        values = (labels == 0) + 0.9 * target_net(inputs).max(1).values
        optimizer.zero_grad()
        F.smooth_l1_loss(policy_net(inputs)[:, 0], values).backward()
        optimizer.step()


FAULTY: tuple[Faulty, ...] = (
    (target_of_a_function, "target-alias", "as target_net"),
    (average_that_is_never_updated, "average-still", "ema never moves"),
    (average_in_bfloat16, "average-still", "bfloat16"),
    (average_that_leaves_statistics, "average-still", "running statistics"),
    (average_for_a_longer_training, "average-still", "of the way to the model in all 120 steps"),
    (target_that_is_never_synchronised, "average-still", "not synchronised"),
    (average_with_reversed_decay, "average-follows", "ema"),
    (average_of_words_with_reversed_decay, "average-follows", "AveragedModel.module"),
    (teacher_loaded_in_each_step, "average-follows", "made equal"),
    (average_written_back, "average-written-back", "shadow"),
    (average_written_back_after_each_epoch, "average-written-back", "shadow"),
    (module_written_back, "average-written-back", "average"),
    (teacher_that_is_the_student, "target-alias", "as target"),
    (target_within_a_module, "target-alias", "target"),
    (critic_that_is_its_target, "target-alias", "as agent.target_critic"),
)


def average(training: Diagnosed) -> None:
    model = network()
    holder = held(model)
    training.train(model, steps=40, after=lambda _: follow(holder.ema, model, 0.05))


def average_with_its_statistics(training: Diagnosed) -> None:
    model = ConvNet()
    average = AveragedModel(model, avg_fn=lambda mine, theirs, _: mine + 0.1 * (theirs - mine), use_buffers=True)
    training.train(model, steps=40, after=lambda _: average.update_parameters(model))


def reference_that_stays(training: Diagnosed) -> None:
    """A policy is held near to where it began."""
    model = Transformer()
    reference = copy.deepcopy(model).requires_grad_(False)

    def loss(out: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            shares = reference(ids).softmax(-1)
        return next_word(out, ids) + 0.1 * F.kl_div(out.log_softmax(-1), shares, reduction="batchmean")

    train_words(model, loss, steps=40)


def teacher_that_follows(training: Diagnosed) -> None:
    student = ConvNet()
    teacher = copy.deepcopy(student).requires_grad_(False)

    def loss(out: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            shares = teacher(training.inputs[: len(labels)]).softmax(1)
        return F.cross_entropy(out, labels) + 0.1 * F.mse_loss(out.softmax(1).mean(0), shares.mean(0))

    def update(_: int) -> None:
        follow(teacher, student, 0.05)
        for mine, theirs in zip(teacher.buffers(), student.buffers(), strict=True):
            mine.copy_(theirs)

    training.train(student, loss, steps=40, after=update)


def average_put_aside_again(training: Diagnosed) -> None:
    train_averaged(training, network(), 0.99, 4, restores=True)


def lookahead(training: Diagnosed) -> None:
    """Slow weights go half of the way to the fast ones, which go on from there."""
    model = network()
    slow_weights = {name: weight.detach().clone() for name, weight in model.named_parameters()}

    def meet(step: int) -> None:
        if step % 5 == 0:
            with torch.no_grad():
                for name, weight in model.named_parameters():
                    slow_weights[name].lerp_(weight, 0.5)
                    weight.copy_(slow_weights[name])

    training.train(model, optimizer=torch.optim.SGD(model.parameters(), lr=0.2), steps=60, after=meet)


def target_that_is_a_copy(training: Diagnosed) -> None:
    policy_net, target_net = network(), network()
    target_net.load_state_dict(policy_net.state_dict())

    def synchronise(step: int) -> None:
        if step % 5 == 4:
            target_net.load_state_dict(policy_net.state_dict())

    train_by_targets(training, policy_net, target_net, synchronise)


def critic_with_a_target_that_follows(training: Diagnosed) -> None:
    agent = Agent()
    agent.target_critic = copy.deepcopy(agent.critic).requires_grad_(False)
    train_agent(training, agent)


def network_that_is_attacked(training: Diagnosed) -> None:
    """A function may call its only network a target."""

    def attack(target_model: nn.Module, inputs: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            return inputs + 0.1 * target_model(inputs).sum(1, keepdim=True).sign()

    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(30):
        inputs, labels = training.batch()
        optimizer.zero_grad()
        F.cross_entropy(model(attack(model, inputs)), labels).backward()
        optimizer.step()


class Bootstrap(nn.Module):
    """A model whose parts are called one by one, and one of which is the target of another one."""

    def __init__(self) -> None:
        super().__init__()
        self.online, self.predictor = network(out=8), nn.Linear(8, 8)
        self.target = copy.deepcopy(self.online).requires_grad_(False)

    def loss(self, inputs: torch.Tensor) -> torch.Tensor:
        predicted = self.predictor(self.online(inputs + 0.1 * torch.randn_like(inputs)))
        with torch.no_grad():
            wanted = self.target(inputs + 0.1 * torch.randn_like(inputs))
        return 2 - 2 * F.cosine_similarity(predicted, wanted).mean()


def target_among_the_parts_of_a_model(training: Diagnosed) -> None:
    model = Bootstrap()
    optimizer = torch.optim.Adam((*model.online.parameters(), *model.predictor.parameters()), lr=1e-3)
    for _ in range(30):
        optimizer.zero_grad()
        model.loss(training.batch()[0]).backward()
        optimizer.step()
        follow(model.target, model.online, 0.05)


HEALTHY: tuple[Healthy, ...] = (
    (target_among_the_parts_of_a_model, "target-alias"),
    (average, "average-still"),
    (average_that_begins_fast, "average-still"),
    (average_with_its_statistics, "average-still"),
    (reference_that_stays, "average-still"),
    (teacher_that_follows, "average-follows"),
    (average_whose_decay_is_warmed_up, "average-follows"),
    (average_put_aside_again, "average-written-back"),
    (lookahead, "average-written-back"),
    (target_that_is_a_copy, "target-alias"),
    (critic_with_a_target_that_follows, "target-alias"),
    (network_that_is_attacked, "target-alias"),
)


test_the_fault_comes_first, test_nothing_is_found = table_tests(FAULTY, HEALTHY)
