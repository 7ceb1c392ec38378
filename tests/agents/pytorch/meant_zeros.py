"""Healthy trainings in which tensors are all zero for good reasons: first states, masks, what begins at zero."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - as everybody calls it

from tests.agents.pytorch import trainings
from tests.agents.pytorch.networks import CLASSES, Mlp
from tests.agents.pytorch.trainings import Training, batches_of, descend, points, supervised

if TYPE_CHECKING:
    from collections.abc import Callable


class Cell(nn.Module):
    """A recurrent network written by hand: a cell in a loop, whose first state is zero."""

    def __init__(self, features: int = 4, width: int = 16) -> None:
        super().__init__()
        self.read = nn.Linear(features, width)
        self.again = nn.Linear(width, width, bias=False)
        self.mix = nn.Parameter(torch.randn(width, width) / 8)
        self.head = nn.Linear(width, 1)

    def forward(self, sequence: torch.Tensor) -> torch.Tensor:
        """Return one number for each sequence."""
        hidden = torch.zeros(len(sequence), self.read.out_features)
        for word in sequence.unbind(1):
            hidden = torch.tanh(self.read(word) + self.again(hidden) + hidden @ self.mix)
        return self.head(hidden)


class Gated(nn.Module):
    """The same with the gates of a GRU; where a sequence has ended its state stays as it was."""

    def __init__(self, features: int = 4, width: int = 16) -> None:
        super().__init__()
        self.read = nn.Linear(features, 3 * width)
        self.gates = nn.Linear(width, 2 * width, bias=False)
        self.again = nn.Linear(width, width)
        self.head = nn.Linear(width, 1)

    def forward(self, sequence: torch.Tensor) -> torch.Tensor:
        """Return one number for each sequence; the last places are nobody's."""
        length = sequence.shape[1]
        going_on = torch.arange(length) < torch.full((len(sequence), 1), length - 2)
        hidden = sequence.new_zeros(len(sequence), self.again.in_features)
        for position, word in enumerate(sequence.unbind(1)):
            update, reset, new = self.read(word).chunk(3, -1)
            more_update, more_reset = self.gates(hidden).chunk(2, -1)
            update = torch.sigmoid(update + more_update)
            new = torch.tanh(new + self.again(torch.sigmoid(reset + more_reset) * hidden))
            new = (1 - update) * new + update * hidden
            goes_on = going_on[:, position, None].float()
            hidden = goes_on * new + (1 - goes_on) * hidden
        return self.head(hidden)


class LongShort(nn.Module):
    """The cell of an LSTM, which forgets a memory of zeros first; who calls it brings the state."""

    def __init__(self, features: int = 4, width: int = 16) -> None:
        super().__init__()
        self.cell = nn.Linear(features + width, 4 * width)
        self.head = nn.Linear(width, 1)

    def forward(self, sequence: torch.Tensor, state: torch.Tensor | None = None) -> torch.Tensor:
        """Return one number for each sequence."""
        hidden = memory = torch.zeros(len(sequence), self.head.in_features) if state is None else state
        for word in sequence.unbind(1):
            keep, write, new, show = self.cell(torch.cat([word, hidden], -1)).chunk(4, -1)
            memory = torch.sigmoid(keep) * memory + torch.sigmoid(write) * torch.tanh(new)
            hidden = torch.sigmoid(show) * torch.tanh(memory)
        return self.head(hidden)


def cell() -> Training:
    """Read sequences with a cell in a loop."""
    return trainings.rnn(Cell)


def gated_cell() -> Training:
    """Read sequences with gates."""
    return trainings.rnn(Gated)


def given_state() -> Training:
    """Hand the first state to the network."""
    torch.manual_seed(trainings.SEED)
    sequences = torch.randn(256, 12, 4)
    batch = batches_of(sequences, sequences[..., 0].mean(1, keepdim=True), 32)
    model = LongShort()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)

    def loss_of(number: int) -> torch.Tensor:
        sequence, target = batch(number)
        return F.mse_loss(model(sequence, torch.zeros(len(sequence), 16)), target)

    return descend(model, optimizer, loss_of)


class Adapter(nn.Module):
    """A layer of low rank beside one that is not trained; it begins as if it were not there."""

    def __init__(self, layer: nn.Linear, rank: int = 4) -> None:
        super().__init__()
        self.layer = layer.requires_grad_(False)
        self.down = nn.Parameter(torch.randn(layer.in_features, rank) / layer.in_features**0.5)
        self.up = nn.Parameter(torch.zeros(rank, layer.out_features))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return what both say."""
        return self.layer(hidden) + 2 * (hidden @ self.down @ self.up)


class Adapted(nn.Module):
    """A network that is adapted to a new task, with a head that begins at zero."""

    def __init__(self) -> None:
        super().__init__()
        self.inlet = Adapter(nn.Linear(16, 32))
        self.middle = Adapter(nn.Linear(32, 32))
        self.head = nn.Linear(32, CLASSES)
        nn.init.zeros_(self.head.weight)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return one logit for each class."""
        return self.head(F.gelu(self.middle(F.gelu(self.inlet(inputs)))))


def adapters() -> Training:
    """Adapt a network; the learning rate warms up from zero."""
    torch.manual_seed(trainings.SEED)
    batch = batches_of(*points(), 32)
    model = Adapted()
    optimizer = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=5e-3)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(step / 8, 1.0))
    return supervised(model, optimizer, batch, schedule=schedule)


class Branches(nn.Module):
    """Residual branches that begin at zero, and are faded in during the first steps."""

    def __init__(self, width: int = 24, layers: int = 3) -> None:
        super().__init__()
        self.inlet = nn.Linear(16, width)
        self.branches = nn.ModuleList(
            nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width), nn.BatchNorm1d(width))
            for _ in range(layers)
        )
        self.gains = nn.Parameter(torch.zeros(layers))
        for branch in self.branches:
            nn.init.zeros_(branch[-1].weight)
        self.heads = nn.ModuleList(nn.Linear(width, CLASSES) for _ in range(2))

    def forward(self, inputs: torch.Tensor, number: int) -> torch.Tensor:
        """Return one logit for each class, from one head or the other."""
        hidden = self.inlet(inputs)
        for index, branch in enumerate(self.branches):
            share = min(number / 50, 1.0)
            hidden = (1 - 0.5 * share) * hidden + share * branch(hidden)
            hidden = hidden + self.gains[index] * torch.tanh(hidden)
        return self.heads[number % 2](hidden)


def branches() -> Training:
    """Two tasks by turns; gradients are set to zero instead of being taken away."""
    torch.manual_seed(trainings.SEED)
    batch = batches_of(*points(), 32)
    model = Branches()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    def step(number: int) -> torch.Tensor:
        inputs, labels = batch(number)
        optimizer.zero_grad(set_to_none=False)
        loss = F.cross_entropy(model(inputs, number), labels)
        loss.backward()
        optimizer.step()
        return loss

    return Training((model,), (optimizer,), step)


class Padded(nn.Module):
    """Classifies the words of sentences that are mostly padding."""

    def __init__(self, words: int = 20, width: int = 16) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width, padding_idx=0)
        self.mix = nn.Conv1d(width, width, 3, padding=1, bias=False)
        self.head = Mlp(width, 16, CLASSES)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        """Return logits of each word."""
        words = (text > 0).unsqueeze(-1)
        vectors = self.embedding(text)
        mixed = self.mix(vectors.transpose(1, 2)).transpose(1, 2) * words
        return self.head(vectors + mixed.masked_fill(~words, 0.0))


def padding() -> Training:
    """The loss of padding does not count."""
    torch.manual_seed(trainings.SEED)
    text = torch.randint(1, 20, (256, 12))
    text[:, 5:] = 0
    batch = batches_of(text, text % CLASSES, 32)
    model = Padded()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)

    def loss_of(number: int) -> torch.Tensor:
        words, classes = batch(number)
        losses = F.cross_entropy(model(words).transpose(1, 2), classes, reduction="none")
        counts = (words > 0).float()
        return (losses * counts).sum() / counts.sum()

    return descend(model, optimizer, loss_of)


MEANT_ZEROS: dict[str, Callable[[], Training]] = {
    build.__name__: build for build in (cell, gated_cell, given_state, adapters, branches, padding)
}
"""All of them, by name."""
