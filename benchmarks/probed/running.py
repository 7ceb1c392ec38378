"""What the programs of this folder share: small data, a loop, and the bits of the weights at the end."""

from __future__ import annotations

import argparse
import hashlib
import random
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

CLASSES, WORDS, LENGTH, BATCH = 4, 20, 10, 16
STEPS = 16


def points(features=12):
    """Return points whose class depends on two of their features."""
    x = torch.randn(256, features)
    return x, (x[:, 0] > 0).long() + 2 * (x[:, 1] > 0).long()


def sequences():
    x = torch.randn(256, LENGTH, 6)
    return x, (x[..., 0].mean(1) > 0).long() + 2 * (x[..., 1].mean(1) > 0).long()


def marked_texts():
    """Return texts, and the number of a word in them that tells their class."""
    ids = torch.randint(CLASSES, WORDS, (256, LENGTH))
    y = torch.randint(0, CLASSES, (256,))
    ids[torch.arange(256), torch.randint(1, LENGTH, (256,))] = y
    return ids, y


def padded_texts():
    """Return texts of different lengths with their masks, and their classes."""
    ids, y = torch.randint(1, WORDS, (256, LENGTH)), torch.randint(0, CLASSES, (256,))
    ids[:, 0] = y + 1
    lengths = torch.randint(3, LENGTH + 1, (256, 1))
    mask = (torch.arange(LENGTH) < lengths).long()
    return (ids * mask, mask), y


def walks():
    """Return texts in which the next word depends on the one before."""
    ids = torch.randint(0, WORDS, (256, 1))
    for _ in range(LENGTH):
        ids = torch.cat([ids, (ids[:, -1:] + torch.randint(1, 4, (256, 1))) % WORDS], 1)
    return ids


def lightning_trained(network):
    """Train a classifier of points with Lightning; return it."""
    import lightning

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.network = network

        def forward(self, x):
            return self.network(x)

        def training_step(self, batch, _):
            x, y = batch
            return F.cross_entropy(self(x), y)

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters(), lr=1e-2)

    x, y = points()
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), BATCH, shuffle=True)
    model = Module()
    trainer = lightning.Trainer(
        max_steps=STEPS, logger=False, enable_checkpointing=False, enable_progress_bar=False, accelerator="cpu",
        enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(model, loader)
    return model


def train(model, x=None, y=None, loss=None, optimizer=None):
    """Train in the usual order; return the model.

    ``x`` is a tensor or several, ``loss`` a function of the numbers of the samples instead.
    """
    optimizer = optimizer or torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(STEPS):
        rows = torch.randint(0, 256, (BATCH,))
        if loss is not None:
            value = loss(rows)
        else:
            given = [each[rows] for each in x] if isinstance(x, tuple) else [x[rows]]
            value = F.cross_entropy(model(*given), y[rows])
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
    return model


class Tagger(nn.Module):
    """A body, and a head for some classes."""

    def __init__(self, classes=CLASSES):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(12, 48), nn.ReLU(), nn.Linear(48, 32), nn.ReLU())
        self.head = nn.Linear(32, classes)

    def forward(self, x):
        return self.head(self.body(x))


def checkpoint(model=None, file="checkpoint.pt", steps=12):
    """Write what a run of some steps would have saved: weights after a descent, an optimizer and a schedule."""
    (x, y), model = points(), model or Tagger()
    weights = list(model.parameters())
    for _ in range(steps):
        gradients = torch.autograd.grad(F.cross_entropy(model(x), y), weights)
        with torch.no_grad():
            for weight, gradient in zip(weights, gradients, strict=True):
                weight.sub_(0.2 * gradient)
    optimizer, schedule = optimizer_and_schedule(model)
    state = {
        at: {"step": torch.tensor(float(steps)), "exp_avg": 0.1 * gradient, "exp_avg_sq": 0.01 * gradient.square()}
        for at, gradient in enumerate(gradients)
    }
    states = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict() | {"state": state},
        "schedule": schedule.state_dict() | {"last_epoch": steps, "_step_count": steps + 1},
        "step": steps,
    }
    torch.save(states, file)


def optimizer_and_schedule(model):
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    return optimizer, torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 100)


def scheduled(model, optimizer, schedule):
    """Train with a schedule; return the model."""
    x, y = points()
    for _ in range(STEPS):
        rows = torch.randint(0, 256, (BATCH,))
        optimizer.zero_grad()
        F.cross_entropy(model(x[rows]), y[rows]).backward()
        optimizer.step()
        schedule.step()
    return model


def main(programs):
    parser = argparse.ArgumentParser()
    parser.add_argument("name", choices=programs)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(1)
    random.seed(options.seed)
    np.random.seed(options.seed)  # noqa: NPY002
    torch.manual_seed(options.seed)
    models = programs[options.name]()
    models = models if isinstance(models, (tuple, list)) else [models]
    bits = hashlib.sha256()
    for model in models:
        for name, tensor in model.state_dict().items():
            if isinstance(tensor, torch.Tensor):
                bits.update(name.encode() + tensor.detach().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    numbers = [torch.rand(1).item(), random.random(), np.random.rand()]  # noqa: NPY002
    Path("bits.txt").write_text(f"{bits.hexdigest()} {numbers}\n")
