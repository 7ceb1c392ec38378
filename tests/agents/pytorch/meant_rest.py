"""Healthy trainings in which weights begin at zero, or stay as they are, for good reasons."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - as everybody calls it

from tests.agents.pytorch import trainings
from tests.agents.pytorch.networks import CLASSES, Mlp
from tests.agents.pytorch.trainings import Training, batches_of, descend, points, supervised

if TYPE_CHECKING:
    from collections.abc import Callable


class ZeroHead(Mlp):
    """Begins without an opinion; the head is declared first."""

    def __init__(self) -> None:
        super().__init__(16, 32, 32)
        self.head = nn.Linear(32, CLASSES)
        self.tail = nn.Linear(32, 32)
        nn.init.zeros_(self.head.weight)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return one logit for each class."""
        return self.head(F.relu(self.tail(F.relu(super().forward(hidden)))))


def zero_head() -> Training:
    """Train a network whose last layer begins at zero."""
    torch.manual_seed(trainings.SEED)
    batch = batches_of(*points(), 32)
    model = ZeroHead()
    return supervised(model, torch.optim.Adam(model.parameters(), lr=1e-3), batch)


class ChannelNorm(nn.Module):
    """Normalises channels; gain and shift have the shape of what they are applied to."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(1, channels, 1, 1))
        self.shift = nn.Parameter(torch.zeros(1, channels, 1, 1))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return images of the same shape."""
        mean, variance = images.mean((2, 3), keepdim=True), images.var((2, 3), keepdim=True)
        return (images - mean) * torch.rsqrt(variance + 1e-5) * self.gain + self.shift


class NormedCnn(nn.Module):
    """Convolutions, each normalised, in branches that begin as if they were not there."""

    def __init__(self, channels: int = 8) -> None:
        super().__init__()
        self.inlet = nn.Conv2d(1, channels, 3, padding=1)
        self.norms = nn.ModuleList(ChannelNorm(channels) for _ in range(3))
        self.convolutions = nn.ModuleList(nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2))
        self.gains = nn.ParameterList(torch.zeros(1, channels, 1, 1) for _ in range(2))
        self.places = nn.Parameter(torch.zeros(channels, 12, 12))
        self.head = nn.Linear(channels, CLASSES)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return one logit for each class."""
        hidden = self.norms[0](self.inlet(images)) + self.places
        for norm, convolution, gain in zip(self.norms[1:], self.convolutions, self.gains, strict=True):
            hidden = hidden + gain * F.silu(norm(convolution(hidden)))
        return self.head(hidden.mean((2, 3)))


def channel_norms() -> Training:
    """Train with norms whose shifts look like matrices."""
    torch.manual_seed(trainings.SEED)
    batch = batches_of(*trainings.pictures(), 32)
    model = NormedCnn()
    return supervised(model, torch.optim.Adam(model.parameters(), lr=3e-3), batch)


class Modulated(nn.Module):
    """Blocks that are told the time by layers which begin at zero, as those of diffusion transformers."""

    def __init__(self, width: int = 24, blocks: int = 2) -> None:
        super().__init__()
        self.inlet = nn.Linear(4, width)
        self.time = nn.Sequential(nn.Linear(1, width), nn.SiLU())
        self.modulations = nn.ModuleList(nn.Linear(width, 3 * width) for _ in range(blocks))
        self.blocks = nn.ModuleList(Mlp(width, 2 * width, width) for _ in range(blocks))
        self.norm = nn.LayerNorm(width, elementwise_affine=False)
        self.outlet = nn.Linear(width, 4)
        for layer in (*self.modulations, self.outlet):
            nn.init.zeros_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, inputs: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        """Return the noise in the inputs."""
        hidden, told = self.inlet(inputs), self.time(time)
        for modulation, block in zip(self.modulations, self.blocks, strict=True):
            shift, scale, gate = modulation(told).chunk(3, -1)
            hidden = hidden + gate * block(self.norm(hidden) * (1 + scale) + shift)
        return self.outlet(self.norm(hidden))


def diffusion() -> Training:
    """Learn the noise that was added, and keep the mean of the weights for later."""
    torch.manual_seed(trainings.SEED)
    clean = torch.randn(256, 4) * torch.tensor([1.0, 0.1, 0.1, 1.0])
    model = Modulated()
    mean = copy.deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)

    def step(number: int) -> torch.Tensor:
        rows = clean[number % 8 * 32 : number % 8 * 32 + 32]
        time, noise = torch.rand(len(rows), 1), torch.randn_like(rows)
        loss = F.mse_loss(model(rows * (1 - time) + noise * time, time), noise)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if number % 20 == 19:
            for average, weight in zip(mean.parameters(), model.parameters(), strict=True):
                average.lerp_(weight.detach(), 0.1)
        return loss

    return Training((model, mean), (optimizer,), step)


def target_network() -> Training:
    """Learn the value of actions from one's own opinion of some time ago."""
    torch.manual_seed(trainings.SEED)
    states, rewards = torch.randn(256, 8), torch.rand(256, CLASSES)
    batch = batches_of(states, rewards, 32)
    model = Mlp(8, 32, 32, CLASSES)
    target = copy.deepcopy(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def step(number: int) -> torch.Tensor:
        seen, reward = batch(number)
        with torch.no_grad():
            later = target(seen.roll(1, 0)).amax(1, keepdim=True)
        loss = F.smooth_l1_loss(model(seen), reward + 0.9 * later)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if number % 50 == 49:
            target.load_state_dict(model.state_dict())
        return loss

    return Training((model, target), (optimizer,), step)


class Distilled(nn.Module):
    """A pupil that has its teacher with it; what the teacher says is cut off, by no_grad or by detach."""

    def __init__(self) -> None:
        super().__init__()
        self.teachers = nn.ModuleList(Mlp(16, 64, CLASSES) for _ in range(2))
        self.pupil = Mlp(16, 16, CLASSES)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return how far the pupil is from its teachers."""
        with torch.no_grad():
            taught = self.teachers[0](inputs)
        taught = taught + self.teachers[1](inputs).detach()
        return F.kl_div(self.pupil(inputs).log_softmax(-1), taught.softmax(-1), reduction="batchmean")


def teacher() -> Training:
    """Learn from a network that does not."""
    torch.manual_seed(trainings.SEED)
    inputs, labels = points()
    batch = batches_of(inputs, labels, 32)
    model = Distilled()
    optimizer = torch.optim.Adam(model.pupil.parameters(), lr=2e-3)
    return descend(model, optimizer, lambda number: model(batch(number)[0]))


def frozen_later() -> Training:
    """Train everything for a while, then the head alone; the optimizer keeps what it was given."""
    torch.manual_seed(trainings.SEED)
    batch = batches_of(*points(), 32)
    model = Mlp(16, 32, 32, CLASSES)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)

    def loss_of(number: int) -> torch.Tensor:
        if number == 15:
            model.layers[:-1].requires_grad_(False)
        inputs, labels = batch(number)
        return F.cross_entropy(model(inputs), labels)

    return descend(model, optimizer, loss_of)


def frozen_after_a_look() -> Training:
    """See what comes out of a network once, before a part of it is frozen."""
    torch.manual_seed(trainings.SEED)
    batch = batches_of(*points(), 32)
    model = Mlp(16, 32, 32, CLASSES)
    optimizer = torch.optim.Adam(model.layers[-1].parameters(), lr=1e-3)

    def loss_of(number: int) -> torch.Tensor:
        inputs, labels = batch(number)
        if number == 0:
            float(model(inputs).detach().mean())
            model.layers[:-1].requires_grad_(False)
        return F.cross_entropy(model(inputs), labels)

    return descend(model, optimizer, loss_of)


def features_alone(number: int) -> bool:
    """Whether a step only computes features with what was trained before."""
    return number >= 15


def trunk_without_gradients(trains_first: Callable[[int], bool]) -> Training:
    """Train a head on features that are computed without gradients; the optimizer is given everything, as usual."""
    torch.manual_seed(trainings.SEED)
    batch = batches_of(*points(), 32)
    trunk, head = Mlp(16, 32, 32), Mlp(32, 16, CLASSES)
    optimizer = torch.optim.Adam([*trunk.parameters(), *head.parameters()], lr=2e-3)
    model = nn.ModuleDict({"trunk": trunk, "head": head})

    def loss_of(number: int) -> torch.Tensor:
        inputs, labels = batch(number)
        with torch.set_grad_enabled(trains_first(number)):
            features = F.relu(trunk(inputs))
        return F.cross_entropy(head(features), labels)

    return descend(model, optimizer, loss_of)


def features_of_trained() -> Training:
    """Train everything first, then the head alone."""
    return trunk_without_gradients(lambda number: not features_alone(number))


def features_of_untrained() -> Training:
    """Train the head alone from the start."""
    return trunk_without_gradients(lambda _: False)


class Pooled(nn.Module):
    """Says something about the whole that nobody asks for, before what is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = Mlp(16, 32, 32)
        self.pooler = nn.Linear(32, 32)
        self.head = Mlp(32, 16, CLASSES)

    def forward(self, inputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return logits, and what the pooler says."""
        hidden = F.relu(self.trunk(inputs))
        pooled = torch.tanh(self.pooler(hidden))
        return self.head(hidden), pooled


def unused_pooler() -> Training:
    """Train a network one part of whose results nobody uses; the optimizer is given everything."""
    torch.manual_seed(trainings.SEED)
    batch = batches_of(*points(), 32)
    model = Pooled()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)

    def loss_of(number: int) -> torch.Tensor:
        inputs, labels = batch(number)
        return F.cross_entropy(model(inputs)[0], labels)

    return descend(model, optimizer, loss_of)


class Positioned(nn.Module):
    """Words and where they are: positions are waves that are not trained, and parameters all the same."""

    def __init__(self, words: int = 20, length: int = 12, width: int = 16) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.places = nn.Embedding(length, width).requires_grad_(False)
        angles = torch.arange(length)[:, None] / 10.0 ** torch.linspace(0, 2, width // 2)
        self.places.weight.copy_(torch.cat([angles.sin(), angles.cos()], 1))
        self.layers = Mlp(width, 32, words)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        """Return logits of the words that follow."""
        return self.layers(self.words(text) + self.places.weight[: text.shape[1]])


def fixed_positions() -> Training:
    """Predict words; the optimizer is given everything, as usual."""
    torch.manual_seed(trainings.SEED)
    text = trainings.sentences()
    batch = batches_of(text[:, :-1], text[:, 1:], 16)
    model = Positioned()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

    def loss_of(number: int) -> torch.Tensor:
        words, following = batch(number)
        return F.cross_entropy(model(words).flatten(0, 1), following.flatten())

    return descend(model, optimizer, loss_of)


class LowRank(nn.Module):
    """A layer that is not trained, and two small ones beside it that are."""

    def __init__(self, inputs: int, outputs: int, rank: int = 2) -> None:
        super().__init__()
        self.layer = nn.Linear(inputs, outputs).requires_grad_(False)
        self.down = nn.Linear(inputs, rank, bias=False)
        self.up = nn.Linear(rank, outputs, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return what all say."""
        return self.layer(hidden) + self.up(self.down(hidden))


def low_rank() -> Training:
    """Adapt every layer; the optimizer is given what is frozen, too."""
    torch.manual_seed(trainings.SEED)
    batch = batches_of(*points(), 32)
    model = nn.Sequential(LowRank(16, 32), nn.ReLU(), LowRank(32, 32), nn.ReLU(), LowRank(32, CLASSES))
    return supervised(model, torch.optim.AdamW(model.parameters(), lr=5e-3), batch)


def frozen_trunk() -> Training:
    """Train a head upon layers that are not trained; the optimizer is given all of them."""
    torch.manual_seed(trainings.SEED)
    batch = batches_of(*points(), 32)
    model = nn.Sequential(Mlp(16, 32, 32).requires_grad_(False), nn.ReLU(), Mlp(32, 16, CLASSES))
    return supervised(model, torch.optim.Adam(model.parameters(), lr=2e-3), batch)


MEANT_REST: dict[str, Callable[[], Training]] = {
    build.__name__: build
    for build in (
        zero_head,
        channel_norms,
        diffusion,
        target_network,
        teacher,
        frozen_later,
        frozen_after_a_look,
        features_of_trained,
        unused_pooler,
        features_of_untrained,
        fixed_positions,
        low_rank,
        frozen_trunk,
    )
}
"""All of them, by name."""
