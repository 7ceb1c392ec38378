"""Healthy trainings in which there are NaN and Inf for good reasons, and nothing comes of them."""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - as everybody calls it

from tests.agents.pytorch import trainings
from tests.agents.pytorch.networks import CLASSES, Mlp
from tests.agents.pytorch.trainings import Training, batches_of, descend, points, supervised

if TYPE_CHECKING:
    from collections.abc import Callable


class Imputing(nn.Module):
    """Learns what to put where data is missing, and that it is missing."""

    def __init__(self) -> None:
        super().__init__()
        self.usual = nn.Parameter(torch.zeros(16))
        self.layers = Mlp(32, 32, CLASSES)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return one logit for each class."""
        is_missing = torch.isnan(inputs)
        filled = torch.where(is_missing, self.usual, inputs)
        return self.layers(torch.cat([filled, is_missing.float()], -1))


def missing_data() -> Training:
    """A tenth of the data is missing, in every batch; so is a tenth of the targets."""
    torch.manual_seed(trainings.SEED)
    inputs, labels = points()
    inputs[torch.rand_like(inputs) < 0.1] = math.nan
    targets = F.one_hot(labels, CLASSES).float()
    targets[torch.rand_like(targets) < 0.1] = math.nan
    batch = batches_of(inputs, targets, 32)
    model = Imputing()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)

    def loss_of(number: int) -> torch.Tensor:
        rows, wanted = batch(number)
        is_known = ~torch.isnan(wanted)
        return F.binary_cross_entropy_with_logits(model(rows)[is_known], wanted[is_known])

    return descend(model, optimizer, loss_of)


def filled_data() -> Training:
    """Missing numbers become zero, by the functions that there are for that."""
    torch.manual_seed(trainings.SEED)
    inputs, labels = points()
    inputs[torch.rand_like(inputs) < 0.1] = math.nan
    inputs[torch.rand_like(inputs) < 0.01] = math.inf
    batch = batches_of(inputs, labels, 32)
    model = Mlp(16, 32, CLASSES)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)

    def loss_of(number: int) -> torch.Tensor:
        rows, classes = batch(number)
        half = rows[:, :8].masked_fill(~torch.isfinite(rows[:, :8]), 0.0)
        other = torch.nan_to_num(rows[:, 8:] * 2, 0.0, 0.0, 0.0) / 2
        return F.cross_entropy(model(torch.cat([half, other], 1)), classes)

    return descend(model, optimizer, loss_of)


class Bucketed(nn.Module):
    """Attention that knows how far words are apart: near ones exactly, others by the logarithm, as T5 does."""

    def __init__(self, words: int = 20, width: int = 16, buckets: int = 8) -> None:
        super().__init__()
        self.buckets = buckets
        self.embedding = nn.Embedding(words, width)
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.distances = nn.Embedding(buckets, 1)
        self.head = nn.Linear(width, words)

    def bucket(self, distance: torch.Tensor) -> torch.Tensor:
        """Return which bucket each distance is in; the logarithm of 0 is that of none."""
        exact = self.buckets // 2
        far = torch.log(distance.float() / exact) / math.log(16 / exact) * (self.buckets - exact)
        far = (exact + far.to(torch.long)).clamp(max=self.buckets - 1)
        return torch.where(distance < exact, distance, far)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        """Return logits of the words that follow."""
        hidden = self.embedding(text)
        places = torch.arange(text.shape[1])
        distance = (places[:, None] - places).clamp(min=0)
        scores = self.query(hidden) @ self.key(hidden).transpose(1, 2) / hidden.shape[-1] ** 0.5
        scores = scores + self.distances(self.bucket(distance)).squeeze(-1)
        scores = scores.masked_fill(places[:, None] < places, -math.inf)
        return self.head(hidden + torch.softmax(scores, -1) @ hidden)


def relative_positions() -> Training:
    """Predict words with positions relative to each other."""
    torch.manual_seed(trainings.SEED)
    text = trainings.sentences()
    batch = batches_of(text[:, :-1], text[:, 1:], 16)
    model = Bucketed()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

    def loss_of(number: int) -> torch.Tensor:
        words, following = batch(number)
        return F.cross_entropy(model(words).flatten(0, 1), following.flatten())

    return descend(model, optimizer, loss_of)


class Scored(Mlp):
    """Remembers the best score that each class ever had, and how few samples ever had it."""

    def __init__(self) -> None:
        super().__init__(16, 32, CLASSES)
        self.register_buffer("lowest", torch.full((CLASSES,), math.inf))
        self.register_buffer("never", torch.full((3,), math.inf))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return one logit for each class."""
        logits = super().forward(hidden)
        self.lowest = torch.minimum(self.lowest, logits.detach().amin(0))
        return logits


def best_scores() -> Training:
    """The best loss begins at infinity, the best of each class too; after some steps all begin anew."""
    torch.manual_seed(trainings.SEED)
    batch = batches_of(*points(), 32)
    model = Scored()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    best = {"loss": torch.tensor(math.inf), "each": torch.full((CLASSES,), math.inf)}

    def loss_of(number: int) -> torch.Tensor:
        rows, classes = batch(number)
        losses = F.cross_entropy(model(rows), classes, reduction="none")
        if number % 40 == 20:
            best["loss"] = torch.tensor(math.inf)
            best["each"] = losses.new_full((CLASSES,), math.inf)
        loss = losses.mean()
        if loss < best["loss"]:
            best["loss"] = loss.detach()
        each = best["each"].scatter_reduce(0, classes, losses.detach(), "amin")
        best["each"] = torch.where(torch.isinf(each), best["each"], each)
        return loss

    return descend(model, optimizer, loss_of)


class LogLikelihood(Mlp):
    """Takes logarithms only where there are any: once before the choice, once without a gradient after it."""

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return one logit for each class."""
        with torch.no_grad():
            positive = F.relu(hidden)
            logarithms = torch.where(positive > 0, torch.log(positive), 0.0)
            ratios = positive / positive.round()
            ratios = torch.where(torch.isfinite(ratios), ratios, 0.0)
        safe = torch.where(hidden > 0, hidden, 1.0)
        return super().forward(torch.log(safe) + 0.1 * logarithms + 0.01 * ratios)


def chosen_logarithms() -> Training:
    """Features are logarithms."""
    torch.manual_seed(trainings.SEED)
    batch = batches_of(*points(), 32)
    model = LogLikelihood(16, 32, CLASSES)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    return supervised(model, optimizer, batch)


class Decoder(nn.Module):
    """Beam search in the middle of a training: scores begin at -infinity, and all but the best are thrown away."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = Mlp(16, 32, CLASSES)

    @torch.no_grad()
    def search(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return the classes of the two best beams."""
        scores = torch.log_softmax(self.layers(inputs), -1)
        beams = torch.full((len(inputs), 3, CLASSES), -math.inf)
        beams[:, 0] = scores
        beams[:, 1] = scores + scores.roll(1, -1)
        best, where = beams.flatten(1).topk(CLASSES, -1)
        lowest = torch.full_like(best, math.inf)
        return torch.where(best < lowest, where % CLASSES, 0)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return one logit for each class, a little more for those that the search has found."""
        found = F.one_hot(self.search(inputs), CLASSES).float().mean(1)
        return self.layers(inputs) + 0.1 * found


def beam_search() -> Training:
    """Train with what a search finds."""
    torch.manual_seed(trainings.SEED)
    batch = batches_of(*points(), 32)
    model = Decoder()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    return supervised(model, optimizer, batch)


class Quantized(nn.Module):
    """A network whose layers learn to be rounded, with an observer that nobody asks yet."""

    def __init__(self) -> None:
        super().__init__()
        from torch.ao import quantization as ao

        self.unused = ao.MinMaxObserver()
        self.inlet = ao.QuantStub()
        self.layers = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, CLASSES))
        self.outlet = ao.DeQuantStub()
        for module in (self.inlet, self.layers, self.outlet):
            module.qconfig = ao.get_default_qat_qconfig("fbgemm")
        ao.prepare_qat(self.train(), inplace=True)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return one logit for each class."""
        return self.outlet(self.layers(self.inlet(inputs)))


def quantization() -> Training:
    """Quantization-aware training: observers begin at infinity."""
    torch.manual_seed(trainings.SEED)
    batch = batches_of(*points(), 32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = Quantized()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    return supervised(model, optimizer, batch)


MEANT_OVERFLOW: dict[str, Callable[[], Training]] = {
    build.__name__: build
    for build in (
        missing_data,
        filled_data,
        relative_positions,
        best_scores,
        chosen_logarithms,
        beam_search,
        quantization,
    )
}
"""All of them, by name."""
