"""Small networks of many kinds, written as people write theirs."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - as everybody calls it
from torch.utils.checkpoint import checkpoint

if TYPE_CHECKING:
    pass

CLASSES = 4


class Cnn(nn.Module):
    """Convolutions with batch norm and dropout."""

    def __init__(self, channels: int = 8, size: int = 12) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, channels, 3, padding=1)
        self.norm1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1)
        self.norm2 = nn.BatchNorm2d(channels)
        self.pool = nn.MaxPool2d(2)
        self.dropout = nn.Dropout(0.2)
        self.head = nn.Linear(channels * (size // 4) ** 2, CLASSES)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return one logit for each class."""
        hidden = self.pool(self.first(images))
        hidden = self.pool(F.relu(self.norm2(self.conv2(hidden))))
        return self.head(self.dropout(hidden.flatten(1)))

    def first(self, images: torch.Tensor) -> torch.Tensor:
        """Return the features that the first layer sees."""
        return F.relu(self.norm1(self.conv1(images)))


class Mlp(nn.Module):
    """Layers with ReLUs between them."""

    def __init__(self, *sizes: int) -> None:
        super().__init__()
        pairs = itertools.pairwise(sizes)
        self.layers = nn.ModuleList(nn.Linear(before, after) for before, after in pairs)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return what the last layer says."""
        for layer in self.layers[:-1]:
            hidden = F.relu(layer(hidden))
        return self.layers[-1](hidden)


class Attention(nn.Module):
    """Causal attention with several heads, written out."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.project = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return what each position gathers from those before it."""
        batch, length, width = hidden.shape
        parts = self.project(hidden).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        weights = self.weights(self.scores(query, key))
        return self.out((weights @ value).transpose(1, 2).reshape(batch, length, width))

    def scores(self, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
        """Return how well queries and keys match."""
        return query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])

    def weights(self, scores: torch.Tensor) -> torch.Tensor:
        """Return where to look; nobody looks ahead."""
        ahead = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        return torch.softmax(scores.masked_fill(ahead, -math.inf), dim=-1)


class Block(nn.Module):
    """A layer of a transformer."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(0.1)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the sentence after this layer."""
        hidden = hidden + self.dropout(self.attention(self.norm1(hidden)))
        return hidden + self.dropout(self.down(F.gelu(self.up(self.norm2(hidden)))))


class Transformer(nn.Module):
    """Predicts the next word."""

    def __init__(self, words: int = 20, width: int = 32, heads: int = 4, layers: int = 2, length: int = 12) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.positions = nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, words)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        """Return logits of the next word at each position."""
        hidden = self.words(text) + self.positions(torch.arange(text.shape[1]))
        for block in self.blocks:
            hidden = block(hidden)
        return self.head(self.norm(hidden))


class Reader(nn.Module):
    """Reads a sequence with an LSTM and a GRU, and says what it was about."""

    def __init__(self, features: int = 4, width: int = 16) -> None:
        super().__init__()
        self.lstm = nn.LSTM(features, width, batch_first=True)
        self.gru = nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(width, 1)

    def forward(self, sequence: torch.Tensor) -> torch.Tensor:
        """Return one number for each sequence."""
        hidden, _ = self.lstm(sequence)
        hidden, _ = self.gru(hidden)
        return self.head(hidden[:, -1])


class Residual(nn.Module):
    """Residual layers whose activations are computed anew in the backward pass."""

    def __init__(self, width: int = 24, layers: int = 4) -> None:
        super().__init__()
        self.inlet = nn.Linear(16, width)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.SiLU(), nn.Dropout(0.1))
            for _ in range(layers)
        )
        self.head = nn.Linear(width, CLASSES)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return one logit for each class."""
        hidden = self.inlet(hidden)
        for block in self.blocks:
            hidden = hidden + checkpoint(block, hidden, use_reentrant=False)
        return self.head(hidden)


class Vae(nn.Module):
    """A variational auto-encoder."""

    def __init__(self, features: int = 16, width: int = 32, latent: int = 3) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(features, width), nn.Tanh())
        self.mean = nn.Linear(width, latent)
        self.log_variance = nn.Linear(width, latent)
        self.decoder = nn.Sequential(nn.Linear(latent, width), nn.ReLU(), nn.Linear(width, features))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return the loss: of the reconstruction, and of the latent distribution."""
        hidden = self.encoder(inputs)
        mean, log_variance = self.mean(hidden), self.log_variance(hidden)
        deviation = self.deviation(log_variance)
        decoded = self.decoder(mean + deviation * torch.randn_like(mean))
        divergence = 0.5 * (mean.square() + deviation.square() - log_variance - 1).sum(1).mean()
        return F.mse_loss(decoded, inputs) + 0.01 * divergence

    def deviation(self, log_variance: torch.Tensor) -> torch.Tensor:
        """Return the standard deviation of the latent variables."""
        return torch.exp(0.5 * log_variance)


class Bag(nn.Module):
    """Classifies a bag of words by the mean of their vectors."""

    def __init__(self, words: int = 200, width: int = 16) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width, padding_idx=0)
        self.head = nn.Linear(width, CLASSES)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        """Return one logit for each class."""
        return self.head(self.embedding(text).mean(1))


class Tuned(nn.Module):
    """A backbone that is not trained, and a head that is."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = Mlp(16, 32, 32)
        self.backbone.requires_grad_(False)
        self.head = Mlp(32, 16, CLASSES)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return one logit for each class."""
        return self.head(F.relu(self.backbone(inputs)))
