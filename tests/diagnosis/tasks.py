"""Tasks of other kinds than rows of features: their data, and small networks for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

from tests.diagnosis.diagnosed import CLASSES, FEATURES
from tests.diagnosis.models import LENGTH, sentences

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.diagnosis.diagnosed import Diagnosed

SIDE = 8
"""Height and width of a picture."""


def give_pictures(training: Diagnosed) -> None:
    """Give pictures one of whose quarters is brighter: float32, shape (256, 1, SIDE, SIDE); which one is the label."""
    training.labels = torch.arange(256) % CLASSES
    pictures = 0.3 * torch.randn(256, 1, SIDE, SIDE)
    half = SIDE // 2
    for number in range(CLASSES):
        row, column = half * (number // 2), half * (number % 2)
        pictures[training.labels == number, :, row : row + half, column : column + half] += 1
    training.inputs = pictures


def give_sequences(training: Diagnosed) -> None:
    """Give sequences: float32, shape (256, LENGTH, FEATURES); labels are the signs of two means."""
    training.inputs = torch.randn(256, LENGTH, FEATURES)
    means = training.inputs.mean(1)
    training.labels = (means[:, 0] > 0).long() + 2 * (means[:, 1] > 0).long()


def give_texts(training: Diagnosed) -> None:
    """Give ids of sentences, which are labels, too: int64, shape (256, LENGTH)."""
    training.inputs = training.labels = sentences(256)


def convolutional(*last: nn.Module, out: int = CLASSES) -> nn.Sequential:
    """Return a network for pictures."""
    first = nn.Conv2d(1, 4, 3, padding=1)
    return nn.Sequential(first, nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(16, out), *last)


class Reader(nn.Module):
    """A recurrent layer for sequences, and a head.

    Parameters
    ----------
    out : int
        Number of outputs.
    layer : RNNBase, optional
        Puts out 16 features.
    read : callable (Tensor) -> Tensor
        What of the layer's output the head reads; the last step by default.
    """

    def __init__(
        self,
        out: int = CLASSES,
        layer: nn.RNNBase | None = None,
        read: Callable[[torch.Tensor], torch.Tensor] = lambda states: states[:, -1],
    ) -> None:
        super().__init__()
        self.layer = layer or nn.LSTM(FEATURES, 16, batch_first=True)
        self.head, self.read = nn.Linear(16, out), read

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.head(self.read(self.layer(given)[0]))
        return result
