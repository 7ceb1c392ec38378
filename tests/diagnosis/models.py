"""Small models of several kinds, and the loops in which they are trained."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - as everybody calls it

from tests.diagnosis.diagnosed import CLASSES, FEATURES, network

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.diagnosis.diagnosed import Diagnosed

WORDS, LENGTH, WIDTH = 12, 10, 8
"""Of language models: number of words, length of a sequence, width of an embedding."""


class ConvNet(nn.Module):
    """Sees the features as a line of pixels."""

    def __init__(self, channels: int = 6) -> None:
        super().__init__()
        self.first, self.second = nn.Conv1d(1, channels, 3, padding=1), nn.Conv1d(channels, channels, 3, padding=1)
        self.norm, self.head = nn.BatchNorm1d(channels), nn.Linear(channels * FEATURES, CLASSES)

    def features(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden = self.norm(self.first(inputs[:, None])).relu()
        return torch.relu(self.second(hidden)).flatten(1)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.head(self.features(inputs))
        return result


class Recurrent(nn.Module):
    """Reads the features one by one."""

    def __init__(self, width: int = 12) -> None:
        super().__init__()
        self.cells, self.head = nn.LSTM(1, width, batch_first=True), nn.Linear(width, CLASSES)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.head(self.cells(inputs[:, :, None])[0][:, -1])
        return result


class Attention(nn.Module):
    """A block of a transformer: attention to earlier words, and two layers, with residual connections."""

    def __init__(self, width: int = WIDTH, heads: int = 2) -> None:
        super().__init__()
        self.heads, self.is_causal = heads, True
        self.norm, self.last_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key, self.value = nn.Linear(width, width), nn.Linear(width, width), nn.Linear(width, width)
        self.out, self.up, self.down = nn.Linear(width, width), nn.Linear(width, 16), nn.Linear(16, width)

    def mask(self, length: int) -> torch.Tensor | None:  # noqa: ARG002 - of those that have one
        """Return which of so many positions each may read, if that is not decided by their order."""
        return None

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        normed = self.norm(hidden)
        query, key, value = (
            layer(normed).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        mask = self.mask(hidden.shape[1])
        mixed = F.scaled_dot_product_attention(query, key, value, mask, is_causal=self.is_causal and mask is None)
        hidden = hidden + self.out(mixed.transpose(1, 2).flatten(2))
        result: torch.Tensor = hidden + self.down(F.gelu(self.up(self.last_norm(hidden))))
        return result


class Transformer(nn.Module):
    """A language model."""

    def __init__(self, depth: int = 1) -> None:
        super().__init__()
        self.words, self.positions = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Attention() for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS)

    def embed(self, ids: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.words(ids) + self.positions(torch.arange(ids.shape[1]))
        return result

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        hidden = self.embed(ids)
        for block in self.blocks:
            hidden = block(hidden)
        result: torch.Tensor = self.head(self.norm(hidden))
        return result


class VAE(nn.Module):
    """Returns what it makes of the inputs, and the mean and the logarithm of the variance of its code."""

    def __init__(self, width: int = 3) -> None:
        super().__init__()
        self.encoder, self.decoder = network(out=2 * width), nn.Sequential(nn.Linear(width, 16), nn.ReLU())
        self.head = nn.Linear(16, FEATURES)

    def forward(self, inputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        mean, logarithm = self.encoder(inputs).chunk(2, 1)
        code = mean + (0.5 * logarithm).exp() * torch.randn_like(mean)
        return self.head(self.decoder(code)), mean, logarithm


def divergence(mean: torch.Tensor, logarithm: torch.Tensor) -> torch.Tensor:
    """Return the divergence of the code of a VAE from a standard normal distribution."""
    return -0.5 * (1 + logarithm - mean.square() - logarithm.exp()).sum(1).mean()


def sentences(count: int = 32) -> torch.Tensor:
    """Return ids of sentences in which each word follows from the one before."""
    return (torch.randint(0, WORDS, (count, 1)) + torch.arange(LENGTH)) % WORDS


def next_word(out: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """Return the loss of the predictions of each next word."""
    return F.cross_entropy(out[:, :-1].reshape(-1, WORDS), ids[:, 1:].reshape(-1))


def train_words(
    model: nn.Module,
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] = next_word,
    optimizer: torch.optim.Optimizer | None = None,
    steps: int = 20,
) -> None:
    """Train a language model; ``loss`` is of its outputs and the ids."""
    optimizer = optimizer or torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(steps):
        ids = sentences()
        optimizer.zero_grad()
        loss(model(ids), ids).backward()
        optimizer.step()


def train_gan(
    training: Diagnosed,
    generator: nn.Module,
    critic: nn.Module,
    optimizers: Sequence[torch.optim.Optimizer] = (),
    made_for_critic: Callable[[torch.Tensor], torch.Tensor] = torch.Tensor.detach,
    made_for_generator: Callable[[torch.Tensor], torch.Tensor] = lambda made: made,
    steps: int = 20,
) -> None:
    """Train a generator of features against a critic, one update of each in a step."""
    first, second = optimizers or [torch.optim.Adam(model.parameters(), lr=2e-3) for model in (generator, critic)]
    for _ in range(steps):
        real, _ = training.batch()
        made = generator(torch.randn(len(real), 4))
        second.zero_grad()
        (F.softplus(-critic(real)).mean() + F.softplus(critic(made_for_critic(made))).mean()).backward()
        second.step()
        first.zero_grad()
        F.softplus(-critic(made_for_generator(generator(torch.randn(len(real), 4))))).mean().backward()
        first.step()


def generator() -> nn.Sequential:
    """Return a generator for `train_gan`; its critic is ``network(out=1)``."""
    return nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, FEATURES))


def train_scaled(training: Diagnosed, factor: Callable[[int], float], steps: int, interval: int = 8) -> None:
    """Train with a loss scaler of float16; a factor of infinity makes the gradients of a step infinite."""
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=interval)
    for step in range(1, steps + 1):
        inputs, labels = training.batch()
        optimizer.zero_grad()
        scaler.scale(F.cross_entropy(model(inputs), labels)).backward()
        if factor(step) != 1:
            for parameter in model.parameters():
                parameter.grad = parameter.grad * factor(step)
        scaler.step(optimizer)
        scaler.update()
