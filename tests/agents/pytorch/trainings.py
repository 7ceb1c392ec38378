"""Small trainings of many kinds: healthy, deterministic, and over in a second.

Each function here builds one from the same seed every time. They are written as people write theirs; others plant
mistakes into them.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - as everybody calls it

from tests.agents.pytorch.networks import CLASSES, Bag, Cnn, Mlp, Reader, Residual, Transformer, Tuned, Vae

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SEED = 7


@dataclass(frozen=True)
class Training:
    """A training that was built and has not begun.

    Attributes
    ----------
    models : tuple of Module
        Those that it trains.
    optimizers : tuple of Optimizer
        Empty if nothing is trained.
    step : callable
        Does the step of a number, from 0, and returns the loss.
    """

    models: tuple[nn.Module, ...]
    optimizers: tuple[torch.optim.Optimizer, ...]
    step: Callable[[int], torch.Tensor]

    def run(self, steps: int, after: Callable[[], Any] = lambda: None) -> list[float]:
        """Train for some steps; return the losses."""
        losses = []
        for number in range(steps):
            losses.append(float(self.step(number).detach()))
            after()
        return losses

    def tensors(self) -> Iterator[torch.Tensor]:
        """Everything that training changes: weights, buffers, states of optimizers."""
        for model in self.models:
            yield from model.state_dict().values()
        for optimizer in self.optimizers:
            for state in optimizer.state.values():
                yield from (value for value in state.values() if isinstance(value, torch.Tensor))

    def fingerprint(self) -> str:
        """Tell two trainings apart by the bits of what they arrived at, the state of the random numbers included."""
        digest = hashlib.sha256()
        for tensor in [*self.tensors(), torch.get_rng_state()]:
            digest.update(tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
        return digest.hexdigest()


def batches_of(inputs: torch.Tensor, targets: torch.Tensor, size: int) -> Callable[[int], tuple[torch.Tensor, ...]]:
    """Return a function from the number of a step to its batch, round and round."""
    batches = list(zip(inputs.split(size), targets.split(size), strict=True))
    return lambda number: batches[number % len(batches)]


def descend(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    loss_of: Callable[[int], torch.Tensor],
    *more: nn.Module,
    schedule: torch.optim.lr_scheduler.LRScheduler | None = None,
) -> Training:
    """Return the plainest of all trainings."""

    def step(number: int) -> torch.Tensor:
        optimizer.zero_grad()
        loss = loss_of(number)
        loss.backward()
        optimizer.step()
        if schedule is not None:
            schedule.step()
        return loss

    return Training((model, *more), (optimizer,), step)


def supervised(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    batch: Callable[[int], tuple[torch.Tensor, ...]],
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] = F.cross_entropy,
    schedule: torch.optim.lr_scheduler.LRScheduler | None = None,
) -> Training:
    """Return a training that compares what a model says of a batch with what is true."""

    def loss_of(number: int) -> torch.Tensor:
        inputs, targets = batch(number)
        return loss(model(inputs), targets)

    return descend(model, optimizer, loss_of, schedule=schedule)


# --- data ---


def points(count: int = 512, features: int = 16, spread: float = 0.6) -> tuple[torch.Tensor, torch.Tensor]:
    """Return points around as many centres as there are classes, and their classes."""
    centres = torch.randn(CLASSES, features)
    labels = torch.randint(0, CLASSES, (count,))
    return centres[labels] + spread * torch.randn(count, features), labels


def pictures(count: int = 256, size: int = 12) -> tuple[torch.Tensor, torch.Tensor]:
    """Return noisy pictures, each with a bright quarter, and which quarter that is."""
    labels = torch.randint(0, CLASSES, (count,))
    images = 0.5 * torch.randn(count, 1, size, size)
    half = size // 2
    for image, label in zip(images, labels.tolist(), strict=True):
        row, column = divmod(label, 2)
        image[0, row * half : (row + 1) * half, column * half : (column + 1) * half] += 1.0
    return images, labels


def sentences(count: int = 256, length: int = 12, words: int = 20) -> torch.Tensor:
    """Return sentences in which each word follows from the one before, most of the time."""
    text = torch.randint(0, words, (count, length))
    for position in range(1, length):
        follows = torch.rand(count) < 0.8
        text[:, position] = torch.where(follows, (text[:, position - 1] * 3 + 1) % words, text[:, position])
    return text


# --- trainings ---


def cnn(model_type: Callable[[], nn.Module] = Cnn, rate: float = 0.05) -> Training:
    """Classify pictures; batch norm, dropout, momentum."""
    torch.manual_seed(SEED)
    batch = batches_of(*pictures(), 32)
    model = model_type()
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
    return supervised(model, optimizer, batch)


def transformer(model_type: Callable[[], nn.Module] = Transformer) -> Training:
    """Predict words, in bfloat16 where autocast says so."""
    torch.manual_seed(SEED)
    text = sentences()
    batch = batches_of(text[:, :-1], text[:, 1:], 16)
    model = model_type()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

    def loss_of(number: int) -> torch.Tensor:
        words, following = batch(number)
        with torch.autocast("cpu", torch.bfloat16):
            logits = model(words)
        return F.cross_entropy(logits.float().flatten(0, 1), following.flatten())

    return descend(model, optimizer, loss_of)


def rnn(model_type: Callable[[], nn.Module] = Reader, length: int = 12, rate: float = 5e-3) -> Training:
    """Read sequences; gradients are clipped."""
    torch.manual_seed(SEED)
    sequences = torch.randn(256, length, 4)
    batch = batches_of(sequences, sequences[..., 0].mean(1, keepdim=True), 32)
    model = model_type()
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)

    def step(number: int) -> torch.Tensor:
        sequence, target = batch(number)
        optimizer.zero_grad()
        loss = F.mse_loss(model(sequence), target)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    return Training((model,), (optimizer,), step)


def lbfgs(model_type: Callable[[], nn.Module] | None = None) -> Training:
    """Fit a curve with an optimizer that asks for the loss several times a step."""
    torch.manual_seed(SEED)
    inputs = torch.linspace(-2, 2, 64).unsqueeze(1)
    targets = torch.sin(2 * inputs) + 0.05 * torch.randn_like(inputs)
    model = model_type() if model_type else nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=4, line_search_fn="strong_wolfe")

    def step(_: int) -> torch.Tensor:
        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            loss = F.mse_loss(model(inputs), targets) + 1e-4 * sum(p.square().sum() for p in model.parameters())
            loss.backward()
            return loss

        return optimizer.step(closure)

    return Training((model,), (optimizer,), step)


def accumulation(model_type: Callable[[], nn.Module] = lambda: Mlp(16, 32, 32, CLASSES)) -> Training:
    """Four batches for each update."""
    torch.manual_seed(SEED)
    batch = batches_of(*points(), 16)
    model = model_type()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def step(number: int) -> torch.Tensor:
        total = torch.zeros(())
        for part in range(4):
            inputs, labels = batch(4 * number + part)
            loss = F.cross_entropy(model(inputs), labels) / 4
            loss.backward()
            total += loss.detach()
        optimizer.step()
        optimizer.zero_grad()
        return total

    return Training((model,), (optimizer,), step)


def checkpointing(model_type: Callable[[], nn.Module] = Residual) -> Training:
    """Activations are thrown away and computed again."""
    torch.manual_seed(SEED)
    batch = batches_of(*points(), 32)
    model = model_type()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    return supervised(model, optimizer, batch)


def gan(model_type: Callable[[], nn.Module] | None = None, critic_rate: float = 1e-3) -> Training:
    """Two networks, two optimizers, one against the other."""
    torch.manual_seed(SEED)
    generator = nn.Sequential(nn.Linear(4, 32), nn.LeakyReLU(0.2), nn.Linear(32, 2))
    critic = model_type() if model_type else nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
    generator_optimizer = torch.optim.Adam(generator.parameters(), lr=1e-3, betas=(0.5, 0.999))
    critic_optimizer = torch.optim.Adam(critic.parameters(), lr=critic_rate, betas=(0.5, 0.999))
    angles = 2 * math.pi * torch.rand(256)
    real = torch.stack([torch.cos(angles), torch.sin(angles)], 1)

    def step(number: int) -> torch.Tensor:
        rows = torch.arange(32) + number * 32 % 256
        made = generator(torch.randn(32, 4))
        critic_optimizer.zero_grad()
        critic_loss = F.softplus(-critic(real[rows])).mean() + F.softplus(critic(made.detach())).mean()
        critic_loss.backward()
        critic_optimizer.step()
        generator_optimizer.zero_grad()
        loss = F.softplus(-critic(made)).mean()
        loss.backward()
        generator_optimizer.step()
        return loss

    return Training((generator, critic), (generator_optimizer, critic_optimizer), step)


def vae(model_type: Callable[[], nn.Module] = Vae, rate: float = 2e-3) -> Training:
    """Learn a distribution; the loss has two parts and random numbers."""
    torch.manual_seed(SEED)
    inputs, labels = points(spread=0.3)
    batch = batches_of(inputs, labels, 32)
    model = model_type()
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    return descend(model, optimizer, lambda number: model(batch(number)[0]))


def scaler(model_type: Callable[[], nn.Module] = lambda: Mlp(16, 32, 32, CLASSES)) -> Training:
    """float16 with a loss scale, which begins too large: the first steps are skipped."""
    torch.manual_seed(SEED)
    batch = batches_of(*points(), 32)
    model = model_type()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    loss_scale = torch.amp.GradScaler("cpu", init_scale=2.0**20, growth_interval=1000)

    def step(number: int) -> torch.Tensor:
        inputs, labels = batch(number)
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.float16):
            logits = model(inputs)
        loss = F.cross_entropy(logits.float(), labels)
        loss_scale.scale(loss).backward()
        loss_scale.step(optimizer)
        loss_scale.update()
        return loss

    return Training((model,), (optimizer,), step)


def fine_tuning(model_type: Callable[[], nn.Module] = Tuned) -> Training:
    """Train what is not frozen."""
    torch.manual_seed(SEED)
    batch = batches_of(*points(), 32)
    model = model_type()
    optimizer = torch.optim.Adam((p for p in model.parameters() if p.requires_grad), lr=3e-3)
    return supervised(model, optimizer, batch)


def embedding(model_type: Callable[[], nn.Module] = Bag) -> Training:
    """Words of a large vocabulary, of which a batch has few; sentences are padded."""
    torch.manual_seed(SEED)
    labels = torch.randint(0, CLASSES, (512,))
    text = torch.randint(1, 200 // CLASSES, (512, 10)) * CLASSES - labels.unsqueeze(1)
    text[torch.rand(512, 10) < 0.2] = 0
    batch = batches_of(text, labels, 32)
    model = model_type()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    return supervised(model, optimizer, batch)


def classifier(model_type: Callable[[], nn.Module] = lambda: Mlp(16, 64, 64, CLASSES), rate: float = 0.2) -> Training:
    """Easy data, learnt until nothing is left to learn: a saturated output, and gradients of nearly zero."""
    torch.manual_seed(SEED)
    batch = batches_of(*points(256, spread=0.3), 64)
    model = model_type()
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
    return supervised(model, optimizer, batch)


def warm_up(model_type: Callable[[], nn.Module] = lambda: Mlp(16, 32, 32, CLASSES)) -> Training:
    """The learning rate begins at zero, and ends near it."""
    torch.manual_seed(SEED)
    batch = batches_of(*points(), 32)
    model = model_type()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: step / 10 if step < 10 else 0.5 + 0.5 * math.cos(math.pi * min(step / 200, 1.0))
    )
    return supervised(model, optimizer, batch, schedule=schedule)


def evaluation() -> Training:
    """Nothing is trained."""
    torch.manual_seed(SEED)
    batch = batches_of(*pictures(), 32)
    model = Cnn().eval()

    def step(number: int) -> torch.Tensor:
        images, labels = batch(number)
        with torch.no_grad():
            return F.cross_entropy(model(images), labels)

    return Training((model,), (), step)


HEALTHY: dict[str, Callable[[], Training]] = {
    build.__name__: build
    for build in (
        cnn,
        transformer,
        rnn,
        lbfgs,
        accumulation,
        checkpointing,
        gan,
        vae,
        scaler,
        fine_tuning,
        embedding,
        classifier,
        warm_up,
    )
}
"""All that train, by name."""
