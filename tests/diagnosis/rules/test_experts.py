"""Mixtures of experts whose router sends all rows to the same ones, and lists of modules that look like that."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - as everybody calls it

from tests.diagnosis.diagnosed import CLASSES, FEATURES, Diagnosed, Faulty, Healthy, table_tests

if TYPE_CHECKING:
    from collections.abc import Callable

WIDTH, LONG = 16, 80


def experts(count: int) -> nn.ModuleList:
    return nn.ModuleList(nn.Sequential(nn.Linear(WIDTH, 24), nn.ReLU(), nn.Linear(24, WIDTH)) for _ in range(count))


class Mixture(nn.Module):
    """Adds to each row what its experts put out, weighed by the router."""

    def __init__(self, count: int = 4, chosen: int = 1, *, calls_all: bool = False) -> None:
        super().__init__()
        self.inside, self.out = nn.Linear(FEATURES, WIDTH), nn.Linear(WIDTH, CLASSES)
        self.router, self.experts = nn.Linear(WIDTH, count), experts(count)
        self.chosen, self.calls_all = chosen, calls_all
        self.seen: Callable[[torch.Tensor], torch.Tensor] = lambda h: h
        self.balance = torch.zeros(())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.inside(x)
        probabilities = self.router(self.seen(h)).softmax(-1)
        weights, chosen = probabilities.topk(self.chosen)
        used = F.one_hot(chosen, len(self.experts)).float().mean((0, 1))
        self.balance = len(self.experts) * (used * probabilities.mean(0)).sum()
        mixed = torch.zeros_like(h)
        lists = self.experts.values() if isinstance(self.experts, nn.ModuleDict) else self.experts
        for number, expert in enumerate(lists):
            rows, slots = torch.where(chosen == number)
            if len(rows) or self.calls_all:
                mixed = mixed.index_add(0, rows, expert(h[rows]) * weights[rows, slots, None])
        result: torch.Tensor = self.out(h + mixed)
        return result


class ExpertsTogether(nn.Module):
    """All experts in one parameter, as models of transformers have them."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.weights = nn.Parameter(0.2 * torch.randn(count, WIDTH, WIDTH))

    def forward(self, h: torch.Tensor, chosen: torch.Tensor, shares: torch.Tensor) -> torch.Tensor:
        mixed = torch.zeros_like(h)
        for number in chosen.unique().tolist():
            rows, slots = torch.where(chosen == number)
            out = (h[rows] @ self.weights[number]).relu() * shares[rows, slots, None]
            mixed = mixed.index_add(0, rows, out)
        return mixed


class Together(nn.Module):
    """A mixture whose experts are one module."""

    def __init__(self, bias: float) -> None:
        super().__init__()
        self.inside, self.out = nn.Linear(FEATURES, WIDTH), nn.Linear(WIDTH, CLASSES)
        self.gate, self.experts = nn.Linear(WIDTH, 8), ExpertsTogether(8)
        with torch.no_grad():
            self.gate.bias[[1, 5]] += bias

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.inside(x)
        shares, chosen = self.gate(h).softmax(-1).topk(2)
        result: torch.Tensor = self.out(h + self.experts(h, chosen, shares))
        return result


def two_of_those_in_one_module(training: Diagnosed) -> None:
    training.train(Together(9.0), steps=LONG)


def two_layers_with_few(training: Diagnosed) -> None:
    """They are one finding, that names the first."""

    class Layers(Together):
        def __init__(self) -> None:
            super().__init__(9.0)
            self.later = Together(9.0)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = super().forward(x) + self.later(x)
            return result

    training.train(Layers(), steps=LONG)


def all_of_those_in_one_module(training: Diagnosed) -> None:
    training.train(Together(0.0), steps=LONG)


def experts_in_a_dictionary(training: Diagnosed) -> None:
    model = Mixture()
    model.seen = torch.ones_like
    entries = {f"expert_{number}": expert for number, expert in enumerate(model.experts)}
    model.experts = nn.ModuleDict(entries)  # type: ignore[assignment]
    training.train(model, steps=LONG)


def huge_bias(training: Diagnosed) -> None:
    model = Mixture()
    with torch.no_grad():
        model.router.bias[2] = 60.0
    training.train(model, steps=LONG)


def scores_of_a_constant(training: Diagnosed) -> None:
    model = Mixture(calls_all=True)
    model.seen = torch.ones_like
    training.train(model, steps=LONG)


def features_with_a_large_mean(training: Diagnosed) -> None:
    model = Mixture(8, 2)
    model.seen = lambda h: h + 30
    training.train(model, steps=LONG)


# --- healthy ---


def balanced(training: Diagnosed) -> None:
    model = Mixture(8, 2)
    training.train(model, lambda out, y: F.cross_entropy(out, y) + 0.1 * model.balance, steps=LONG)


def two_of_which_one_is_rare(training: Diagnosed) -> None:
    model = Mixture(2)
    with torch.no_grad():
        model.router.bias[0] = 1.5
    training.train(model, lambda out, y: F.cross_entropy(out, y) + 0.01 * model.balance, steps=LONG)


def layers_in_order(training: Diagnosed) -> None:
    """There are as many as classes."""

    class Stack(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inside, self.layers, self.out = nn.Linear(FEATURES, WIDTH), experts(4), nn.Linear(WIDTH, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            h = self.inside(x)
            for layer in self.layers:
                h = h + layer(h)
            result: torch.Tensor = self.out(h)
            return result

    training.train(Stack(), steps=LONG)


def one_domain_in_each_step(training: Diagnosed) -> None:
    """Experts of domains, of which a batch has one, and a layer that tells the domain."""

    class Domains(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inside, self.out = nn.Linear(FEATURES, WIDTH), nn.Linear(WIDTH, CLASSES)
            self.experts, self.domain = experts(4), nn.Linear(WIDTH, 4)
            self.number = 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            h = self.inside(x)
            self.number += 1
            result: torch.Tensor = self.out(h + self.experts[self.number % 4](h)) + self.domain(h)
            return result

    training.train(Domains(), steps=LONG)


FAULTY: list[Faulty] = [
    (huge_bias, "router-collapsed", "number 2"),
    (scores_of_a_constant, "router-collapsed", "one of 4"),
    (features_with_a_large_mean, "router-collapsed", "2 of 8"),
    (two_of_those_in_one_module, "router-collapsed", "2 of 8"),
    (two_layers_with_few, "router-collapsed", "experts … (2)"),
    (experts_in_a_dictionary, "router-collapsed", "one of 4"),
]

HEALTHY: list[Healthy] = [
    (balanced, "router-collapsed"),
    (all_of_those_in_one_module, "router-collapsed"),
    (two_of_which_one_is_rare, "router-collapsed"),
    (layers_in_order, "router-collapsed"),
    (one_domain_in_each_step, "router-collapsed"),
]

test_the_fault_comes_first, test_nothing_is_found = table_tests(FAULTY, HEALTHY)
