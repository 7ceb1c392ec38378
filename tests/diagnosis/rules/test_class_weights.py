"""Losses that weigh classes by how frequent they are, and others that weigh them on purpose."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.nn import functional as F  # noqa: N812 - as everybody calls it

from tests.diagnosis.diagnosed import CLASSES, Diagnosed, Faulty, Healthy, network, table_tests

if TYPE_CHECKING:
    from collections.abc import Callable

    Weigh = Callable[[torch.Tensor], torch.Tensor]


def _uneven(training: Diagnosed) -> torch.Tensor:
    """Give rows whose classes are 4, 8, 16 and 228 times there; return these numbers."""
    counts = torch.tensor([4, 8, 16, 228])
    training.labels = torch.repeat_interleave(torch.arange(CLASSES), counts)
    training.inputs[:, 0] += 2.0 * training.labels
    return counts


def _weighed(weigh: Weigh) -> Callable[[Diagnosed], None]:
    def train(training: Diagnosed) -> None:
        weights = weigh(_uneven(training).float())
        training.train(network(), lambda out, labels: F.cross_entropy(out, labels, weight=weights), steps=40)

    return train


def shares_of_the_samples(training: Diagnosed) -> None:
    _weighed(lambda counts: counts / counts.sum())(training)


def log_probabilities_with_shares(training: Diagnosed) -> None:
    counts = _uneven(training).float()
    weights = counts / counts.mean()
    training.train(
        network(torch.nn.LogSoftmax(1)), lambda out, labels: F.nll_loss(out, labels, weight=weights), steps=40
    )


def _labelled(weigh: Callable[[float, float], float]) -> Callable[[Diagnosed], None]:
    def train(training: Diagnosed) -> None:
        _uneven(training)
        true, false = 28.0, 228.0
        weight = torch.tensor([weigh(true, false)])
        training.train(
            network(out=1),
            lambda out, labels: F.binary_cross_entropy_with_logits(
                out[:, 0], (labels < CLASSES - 1).float(), pos_weight=weight
            ),
            steps=40,
        )

    return train


def true_over_false(training: Diagnosed) -> None:
    _labelled(lambda true, false: true / false)(training)


def inverse_of_the_shares(training: Diagnosed) -> None:
    _weighed(lambda counts: counts.sum() / (CLASSES * counts))(training)


def false_over_true(training: Diagnosed) -> None:
    _labelled(lambda true, false: false / true)(training)


def errors_that_cost(training: Diagnosed) -> None:
    """The most frequent class is the one that must not be missed."""
    _weighed(lambda _: torch.tensor([1.0, 1.0, 1.0, 2.0]))(training)


FAULTY: tuple[Faulty, ...] = (
    (shares_of_the_samples, "weights-of-classes", "class 0"),
    (log_probabilities_with_shares, "weights-of-classes", "class 3"),
    (true_over_false, "weights-of-classes", "weighs less"),
)
HEALTHY: tuple[Healthy, ...] = (
    (inverse_of_the_shares, "weights-of-classes"),
    (false_over_true, "weights-of-classes"),
    (errors_that_cost, "weights-of-classes"),
)

test_the_fault_comes_first, test_nothing_is_found = table_tests(FAULTY, HEALTHY)
