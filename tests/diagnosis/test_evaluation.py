"""Functions that drop elements in evaluation mode."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - as everybody calls it

from tests.diagnosis.diagnosed import CLASSES, FEATURES, each

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.diagnosis.diagnosed import Diagnosed


class Dropping(nn.Module):
    """A network that drops elements by a function."""

    def __init__(self, drop: Callable[[torch.Tensor, bool], torch.Tensor]) -> None:
        super().__init__()
        self.body, self.head, self.drop = nn.Linear(FEATURES, 16), nn.Linear(16, CLASSES), drop

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.head(self.drop(self.body(given).relu(), self.training))
        return result


def attend(given: torch.Tensor, rate: float) -> torch.Tensor:
    rows = given[None, None]
    return given + F.scaled_dot_product_attention(rows, rows, rows, dropout_p=rate)[0, 0]


def train(training: Diagnosed, model: nn.Module, samples: int = 1) -> None:
    """Train, and evaluate after each fifth step; each batch so many times."""

    def evaluate(step: int) -> None:
        if step % 5 == 0:
            model.eval()
            inputs, _ = training.batch()
            with torch.no_grad():
                for _ in range(samples):
                    model(inputs)
            model.train()

    training.train(model, steps=40, after=evaluate)


def function_without_mode(training: Diagnosed) -> None:
    train(training, Dropping(lambda given, _: F.dropout(given, 0.1)))


def attention_without_mode(training: Diagnosed) -> None:
    train(training, Dropping(lambda given, _: attend(given, 0.1)))


def module_made_in_forward(training: Diagnosed) -> None:
    train(training, Dropping(lambda given, _: nn.Dropout(0.1)(given)))


@each(function_without_mode, attention_without_mode, module_made_in_forward)
def test_elements_are_dropped_in_evaluation(diagnosed: Diagnosed, train: Callable[[Diagnosed], None]) -> None:
    train(diagnosed)
    (finding,) = diagnosed.findings()
    assert finding.rule == "drops-in-evaluation"
    assert finding.where["line"].startswith("test_evaluation.py:")


def function_with_mode(training: Diagnosed) -> None:
    train(training, Dropping(lambda given, mode: F.dropout(given, 0.1, training=mode)))


def attention_with_mode(training: Diagnosed) -> None:
    train(training, Dropping(lambda given, mode: attend(given, 0.1 if mode else 0.0)))


def monte_carlo_dropout(training: Diagnosed) -> None:
    train(training, Dropping(lambda given, _: F.dropout(given, 0.1)), samples=4)


def noise_that_is_meant(training: Diagnosed) -> None:
    train(training, Dropping(lambda given, _: given * torch.empty_like(given).bernoulli_(0.9)))


@each(function_with_mode, attention_with_mode, monte_carlo_dropout, noise_that_is_meant)
def test_nothing_is_found(diagnosed: Diagnosed, train: Callable[[Diagnosed], None]) -> None:
    train(diagnosed)
    assert diagnosed.found() == []
    assert (diagnosed.facts["calls"]["calls"] > diagnosed.facts["calls"]["with_gradients"]).any()


def train_and_leave(training: Diagnosed, model: nn.Module, since: int) -> None:
    """Evaluate after each step from one on, with gradients switched on, and never go back to training mode."""

    def evaluate(step: int) -> None:
        if step >= since:
            model.eval()
            model(training.batch()[0])

    training.train(model, steps=30, after=evaluate)


def mode_that_is_left_at_once(training: Diagnosed) -> None:
    train_and_leave(training, Dropping(lambda given, mode: F.dropout(given, 0.1, training=mode)), 1)


def mode_that_is_left_later(training: Diagnosed) -> None:
    train_and_leave(training, Dropping(lambda given, mode: F.dropout(given, 0.5, mode)), 10)


def mode_of_an_attention_that_is_left(training: Diagnosed) -> None:
    train_and_leave(training, Dropping(lambda given, mode: attend(given, 0.1 if mode else 0.0)), 5)


@each(mode_that_is_left_at_once, mode_that_is_left_later, mode_of_an_attention_that_is_left)
def test_a_mode_that_is_left_is_reported(diagnosed: Diagnosed, train: Callable[[Diagnosed], None]) -> None:
    train(diagnosed)
    (finding,) = diagnosed.findings()
    assert finding.rule == "mode-left"
    assert finding.where["line"].startswith("test_evaluation.py:")


def mode_that_does_not_matter(training: Diagnosed) -> None:
    """Nothing in the model depends on it."""
    train_and_leave(training, Dropping(lambda given, _: given), 1)


def mode_of_evaluation_from_the_start(training: Diagnosed) -> None:
    model = Dropping(lambda given, mode: F.dropout(given, 0.1, training=mode))
    model.eval()
    train_and_leave(training, model, 1)


@each(mode_that_does_not_matter, mode_of_evaluation_from_the_start)
def test_a_mode_without_effect_is_not(diagnosed: Diagnosed, train: Callable[[Diagnosed], None]) -> None:
    train(diagnosed)
    assert diagnosed.found() == []
    assert not diagnosed.facts["calls"]["is_training"][-1]


def test_a_failing_evaluation_leaves_no_trace(diagnosed: Diagnosed) -> None:
    def drop(given: torch.Tensor, mode: bool) -> torch.Tensor:
        if not mode:
            raise ArithmeticError
        return given

    model = Dropping(drop)

    def evaluate(step: int) -> None:
        model.eval()
        try:
            with torch.no_grad():
                model(diagnosed.batch()[0])
        except ArithmeticError:
            model.train()

    diagnosed.train(model, steps=6, after=evaluate)
    diagnosed.train(model, steps=1)
    assert torch._C._len_torch_dispatch_stack() == 0
