"""Copies of a trained model: averages that are written back, and targets that are no copies."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - as everybody calls it

from tests.diagnosis.diagnosed import each, network

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.diagnosis.diagnosed import Diagnosed


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


def train_averaged(training: Diagnosed, decay: float, every: int, *, restores: bool) -> None:
    model = network()
    ema = Average(model, decay)

    def follow(step: int) -> None:
        ema.update(model)
        if step % every == 0:
            before = ema.swap(model)
            if restores:
                model.load_state_dict(before)

    training.train(model, optimizer=torch.optim.SGD(model.parameters(), lr=0.2), steps=50, after=follow)


def average_written_back(training: Diagnosed) -> None:
    train_averaged(training, 0.99, 4, restores=False)


def average_written_back_after_each_epoch(training: Diagnosed) -> None:
    train_averaged(training, 0.95, 10, restores=False)


def module_written_back(training: Diagnosed) -> None:
    model = network()
    average = torch.optim.swa_utils.AveragedModel(model, avg_fn=lambda mine, theirs, _: mine.lerp(theirs, 0.02))

    def follow(step: int) -> None:
        average.update_parameters(model)
        if step % 6 == 0:
            model.load_state_dict(average.module.state_dict())

    training.train(model, optimizer=torch.optim.SGD(model.parameters(), lr=0.2), steps=50, after=follow)


@each(average_written_back, average_written_back_after_each_epoch, module_written_back)
def test_an_average_that_is_written_back(diagnosed: Diagnosed, train: Callable[[Diagnosed], None]) -> None:
    train(diagnosed)
    assert diagnosed.found()[:1] == [("average-written-back", "written")]


def train_by_targets(training: Diagnosed, policy: nn.Module, target: nn.Module, *, synchronises: bool = True) -> None:
    """Train towards values that another network gives, as in reinforcement learning."""
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
    for step in range(30):
        inputs, labels = training.batch()
        with torch.no_grad():
            values = (labels == 0) + 0.9 * target(inputs).max(1).values
        optimizer.zero_grad()
        F.smooth_l1_loss(policy(inputs)[:, 0], values).backward()
        optimizer.step()
        if synchronises and step % 5 == 4 and target is not policy:
            target.load_state_dict(policy.state_dict())


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


@each(teacher_that_is_the_student, target_within_a_module)
def test_a_target_that_is_no_copy(diagnosed: Diagnosed, train: Callable[[Diagnosed], None]) -> None:
    train(diagnosed)
    assert diagnosed.found()[:1] == [("target-alias", "alias")]


def average_put_aside_again(training: Diagnosed) -> None:
    train_averaged(training, 0.99, 4, restores=True)


def lookahead(training: Diagnosed) -> None:
    """Slow weights go half of the way to the fast ones, which go on from there."""
    model = network()
    slow_weights = {name: weight.detach().clone() for name, weight in model.named_parameters()}

    def follow(step: int) -> None:
        if step % 5 == 0:
            with torch.no_grad():
                for name, weight in model.named_parameters():
                    slow_weights[name].lerp_(weight, 0.5)
                    weight.copy_(slow_weights[name])

    training.train(model, optimizer=torch.optim.SGD(model.parameters(), lr=0.2), steps=60, after=follow)


def target_that_is_a_copy(training: Diagnosed) -> None:
    policy_net, target_net = network(), network()
    target_net.load_state_dict(policy_net.state_dict())
    train_by_targets(training, policy_net, target_net)


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


@each(average_put_aside_again, lookahead, target_that_is_a_copy, network_that_is_attacked)
def test_nothing_is_found(diagnosed: Diagnosed, train: Callable[[Diagnosed], None]) -> None:
    train(diagnosed)
    assert diagnosed.found() == []
