"""Losses of rows that masks and indices choose: of outputs and labels the same ones, or others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - as everybody calls it

from tests.diagnosis.diagnosed import FEATURES, Diagnosed, Faulty, Healthy, network, table_tests

if TYPE_CHECKING:
    from collections.abc import Callable

NODES = 256


def nodes_of(training: Diagnosed) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the features of the nodes of a graph, averaged over neighbours in a ring, and their classes."""
    features = training.inputs
    return (features + 0.3 * features.roll(1, 0) + 0.3 * features.roll(-1, 0)), training.labels


def splits(count: int = 100) -> tuple[torch.Tensor, torch.Tensor]:
    """Return masks of two splits that are as large."""
    order = torch.randperm(NODES)
    masks = torch.zeros(2, NODES, dtype=torch.bool)
    masks[0, order[:count]], masks[1, order[count : 2 * count]] = True, True
    return masks[0], masks[1]


def train(model: nn.Module, loss: Callable[[], torch.Tensor]) -> None:
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(30):
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()


# --- targets-of-other-rows ---


def masks_of_two_splits(training: Diagnosed) -> None:
    (nodes, labels), (train_mask, val_mask), model = nodes_of(training), splits(), network()
    train(model, lambda: F.cross_entropy(model(nodes)[train_mask], labels[val_mask]))


def indices_in_order(training: Diagnosed) -> None:
    """The nodes were shuffled before they were split: the first 100 train, the next validate."""
    (nodes, labels), model = nodes_of(training), network()
    first, second = torch.arange(100), torch.arange(100, 200)
    train(model, lambda: F.nll_loss(F.log_softmax(model(nodes), 1)[first], labels[second]))


def batches_drawn_twice(training: Diagnosed) -> None:
    """The rows of the outputs and those of the labels are drawn apart."""
    (nodes, labels), model = nodes_of(training), network()

    def draw() -> torch.Tensor:
        return torch.randperm(NODES)[:64]

    train(model, lambda: F.cross_entropy(model(nodes)[draw()], labels.index_select(0, draw())))


def labels_in_another_order(training: Diagnosed) -> None:
    """The same rows, but those of the labels are sorted; with several labels for each."""
    (nodes, labels), model = nodes_of(training), network()
    several = F.one_hot(labels, 4)

    def loss() -> torch.Tensor:
        rows = torch.randperm(NODES)[:64]
        return F.binary_cross_entropy_with_logits(model(nodes)[rows], several[rows.sort().values].float())

    train(model, loss)


FAULTY: tuple[Faulty, ...] = (
    (masks_of_two_splits, "targets-of-other-rows", "0% of 100 rows"),
    (indices_in_order, "targets-of-other-rows", "test_chosen_rows.py"),
    (batches_drawn_twice, "targets-of-other-rows", "cross_entropy"),
    (labels_in_another_order, "targets-of-other-rows", "bce_with_logits"),
)


def equal_masks(training: Diagnosed) -> None:
    """A mask and the indices of the same rows."""
    (nodes, labels), (mask, _), model = nodes_of(training), splits(), network()
    train(model, lambda: F.cross_entropy(model(nodes)[mask], labels[mask.clone().nonzero()[:, 0]]))


def rows_in_the_same_order(training: Diagnosed) -> None:
    (nodes, labels), model = nodes_of(training), network()

    def loss() -> torch.Tensor:
        rows = torch.randperm(NODES)[:64]
        return F.cross_entropy(model(nodes)[rows], labels[rows.clone()])

    train(model, loss)


def mixed_nodes(training: Diagnosed) -> None:
    """Each node is mixed with another one, and has the labels of both."""
    (nodes, labels), (mask, _), model = nodes_of(training), splits(), network()
    rows = mask.nonzero()[:, 0]

    def loss() -> torch.Tensor:
        others = torch.arange(NODES)
        others[rows] = rows[torch.randperm(len(rows))]
        out = model(0.8 * nodes + 0.2 * nodes[others])[rows]
        return 0.8 * F.cross_entropy(out, labels[rows]) + 0.2 * F.cross_entropy(out, labels[others[rows]])

    train(model, loss)


def labels_of_neighbours(training: Diagnosed) -> None:
    """Along edges, nodes say which class their neighbours have."""
    (nodes, _), model = nodes_of(training), network()
    classes = (nodes[:, 0] > 0).long()
    edges = torch.randint(0, NODES, (2, 400))
    train(model, lambda: F.cross_entropy(model(nodes)[edges[0]], classes[edges[1]]) + model(nodes).square().mean())


def values_some_rows_later(_: Diagnosed) -> None:
    """A forecast of the sign three steps ahead of a series, at some times."""
    series = torch.sin(torch.arange(NODES + FEATURES) * 0.3)
    windows, signs = series.unfold(0, FEATURES, 1)[:NODES], (series[FEATURES:] > 0).long()
    model = network(out=2)

    def loss() -> torch.Tensor:
        times = torch.randperm(NODES - 3)[:64]
        return F.cross_entropy(model(windows)[times], signs[times + 2])

    train(model, loss)


HEALTHY: tuple[Healthy, ...] = tuple(
    (training, "targets-of-other-rows")
    for training in (
        *(equal_masks, rows_in_the_same_order, mixed_nodes, labels_of_neighbours),
        values_some_rows_later,
    )
)


test_the_fault_comes_first, test_nothing_is_found = table_tests(FAULTY, HEALTHY)
