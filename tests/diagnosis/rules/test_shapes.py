"""Views that mix axes, and views that do not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - as everybody calls it

from tests.diagnosis.diagnosed import Diagnosed, Faulty, Healthy, table_tests
from tests.diagnosis.models import LENGTH, WIDTH, WORDS, sentences

if TYPE_CHECKING:
    from collections.abc import Callable

    View = Callable[[torch.Tensor], torch.Tensor]

HEADS = 4


class Heads(nn.Module):
    """An attention whose heads are split and joined by functions."""

    def __init__(self, split: View, join: View, width: int = 16) -> None:
        super().__init__()
        self.words, self.positions = nn.Embedding(WORDS, width), nn.Parameter(torch.randn(LENGTH, width) * 0.1)
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.out, self.head, self.split, self.join = nn.Linear(width, width), nn.Linear(width, WORDS), split, join

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        hidden = self.words(ids) + self.positions
        query, key, value = (self.split(layer(hidden)) for layer in (self.query, self.key, self.value))
        read = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        result: torch.Tensor = self.head(hidden + self.out(self.join(read)))
        return result


def apart(hidden: torch.Tensor) -> torch.Tensor:
    return hidden.view(*hidden.shape[:2], HEADS, -1).transpose(1, 2)


def together(read: torch.Tensor) -> torch.Tensor:
    return read.transpose(1, 2).reshape(len(read), LENGTH, -1)


def train(model: nn.Module, loss_of: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> None:
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(12):
        ids = sentences()
        optimizer.zero_grad()
        loss_of(model(ids), ids).backward()
        optimizer.step()


def of_words(out: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(out[:, :-1].transpose(1, 2), ids[:, 1:])


class Pictures(nn.Module):
    """Sees the words of a sequence as a picture, whose channels come last or first."""

    def __init__(self, view: View) -> None:
        super().__init__()
        self.words, self.layer, self.view = nn.Embedding(WORDS, WIDTH), nn.Conv1d(WIDTH, 6, 3), view
        self.head = nn.Linear(6, WORDS)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.head(self.layer(self.view(self.words(ids))).mean(2))
        return result


def of_the_first_word(out: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(out, ids[:, 0])


def classes_by_a_view(_: Diagnosed) -> None:
    """Where cross_entropy wants the classes second."""

    def loss(out: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(out[:, :-1].reshape(len(ids), WORDS, -1), ids[:, 1:])

    train(Heads(apart, together), loss)


def channels_by_a_view(_: Diagnosed) -> None:
    train(Pictures(lambda hidden: hidden.view(-1, WIDTH, LENGTH)), of_the_first_word)


def heads_by_a_view(_: Diagnosed) -> None:
    def split(hidden: torch.Tensor) -> torch.Tensor:
        return hidden.view(len(hidden), HEADS, LENGTH, -1)

    train(Heads(split, together), of_words)


def heads_joined_without_swapping(_: Diagnosed) -> None:
    train(Heads(apart, lambda read: read.reshape(len(read), LENGTH, -1)), of_words)


def heads_split_and_joined(_: Diagnosed) -> None:
    train(Heads(apart, together), of_words)


def channels_that_are_swapped(_: Diagnosed) -> None:
    train(Pictures(lambda hidden: hidden.transpose(1, 2)), of_the_first_word)


def positions_in_groups(_: Diagnosed) -> None:
    """Neighbouring positions are joined into one, and taken apart again."""

    def grouped(hidden: torch.Tensor) -> torch.Tensor:
        pairs = hidden.reshape(len(hidden), LENGTH // 2, 2 * WIDTH)
        return pairs.reshape(-1, LENGTH, WIDTH).transpose(1, 2)

    train(Pictures(grouped), of_the_first_word)


FAULTY: tuple[Faulty, ...] = (
    (classes_by_a_view, "axes-mixed", f"{WORDS}×9 of"),
    (channels_by_a_view, "axes-mixed", f"×{WIDTH}×{LENGTH} of"),
    (heads_by_a_view, "axes-mixed", "heads and positions are mixed"),
    (heads_joined_without_swapping, "axes-mixed", "heads and positions are mixed"),
)
HEALTHY: tuple[Healthy, ...] = (
    (heads_split_and_joined, "axes-mixed"),
    (channels_that_are_swapped, "axes-mixed"),
    (positions_in_groups, "axes-mixed"),
)

test_the_fault_comes_first, test_nothing_is_found = table_tests(FAULTY, HEALTHY)
