"""A training on MindSpore in PyNative mode that keeps what it computed itself, to be compared with what a person saw.

It is run by the Python of an environment with MindSpore, never by that of the tests.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops

CLASSES = 5


class Stretch(nn.Cell):
    """Takes a logarithm where it should not, when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.is_sick = False

    def construct(self, x: Tensor) -> Tensor:
        return ops.log(x - 1e6) if self.is_sick else x * 1.0


class Block(nn.Cell):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3)
        self.bn = nn.BatchNorm2d(channels)
        self.relu = nn.ReLU()

    def construct(self, x: Tensor) -> Tensor:
        return self.relu(self.bn(self.conv(x)) + x)


@ms.jit
def squashed(x: Tensor, least: Tensor) -> tuple[Tensor, Tensor]:
    bounded = ops.tanh(x)
    return ops.log(bounded + least), bounded


class Network(nn.Cell):
    def __init__(self, *, uses_jit: bool) -> None:
        super().__init__()
        self.uses_jit = uses_jit
        self.stem = nn.Conv2d(1, 4, 3)
        self.blocks = nn.SequentialCell(Block(4), Block(4))
        self.stretch = Stretch()
        self.flatten = nn.Flatten()
        self.head = nn.Dense(4 * 64, CLASSES)
        self.least = 2.0
        self.stretched: Any = None
        self.within_jit: Any = None

    def construct(self, x: Tensor) -> Tensor:
        x = self.blocks(self.stem(x))
        if self.uses_jit:
            self.within_jit = squashed(x, Tensor(self.least, ms.float32))
            x = self.within_jit[0]
        x = self.stretch(x)
        self.stretched = x
        # No gradient comes by here: nobody may ask for one.
        aside = self.flatten(ops.stop_gradient(x))
        return self.head(self.flatten(x) + 0.1 * aside)


class Kept:
    """What the training computed, step by step."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._arrays: dict[str, Any] = {}

    def keep(self, step: int, what: str, tensor: Any) -> None:
        self._arrays[f"{step}/{what}"] = np.array(tensor.asnumpy())

    def save(self) -> None:
        np.savez(self._folder / "kept.npz", **self._arrays)


def train(options: argparse.Namespace, debugging: Any) -> None:
    network = Network(uses_jit=options.jit)
    loss_of = nn.CrossEntropyLoss()
    chosen = nn.Adam if options.optimizer == "adam" else nn.Momentum
    rest = () if options.optimizer == "adam" else (0.9,)
    optimizer = chosen(network.trainable_params(), 0.01, *rest)
    kept = Kept(options.folder)
    random = np.random.RandomState(0)

    def forward(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        logits = network(x)
        return loss_of(logits, y), logits

    functional = ms.value_and_grad(forward, None, optimizer.parameters, has_aux=True)
    wrapped = nn.TrainOneStepCell(nn.WithLossCell(network, loss_of), optimizer)
    network.set_train()
    weights = {parameter.name: parameter for parameter in network.get_parameters()}
    for name, weight in weights.items():
        kept.keep(-1, name, weight)
    with debugging(network, optimizer):
        for step in range(options.steps):
            network.stretch.is_sick = step >= options.sick_from
            if step >= options.sick_in_jit_from:
                # Of negative numbers there is no logarithm.
                network.least = -0.5
            x = Tensor(random.randn(4, 1, 8, 8).astype(np.float32))
            y = Tensor(random.randint(0, CLASSES, 4).astype(np.int32))
            kept.keep(step, "x", x)
            if options.style == "wrapped":
                kept.keep(step, "loss", wrapped(x, y))
            else:
                (loss, logits), gradients = functional(x, y)
                kept.keep(step, "loss", loss)
                kept.keep(step, "logits", logits)
                for parameter, gradient in zip(optimizer.parameters, gradients, strict=True):
                    kept.keep(step, f"gradient of {parameter.name}", gradient)
                # A person may end the training within the update.
                kept.keep(step, "stretched", network.stretched)
                for name, value in zip(("logarithm", "bounded"), network.within_jit or (), strict=False):
                    kept.keep(step, name, value)
                kept.save()
                optimizer(gradients)
            for name, weight in weights.items():
                kept.keep(step, name, weight)
            kept.save()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--server", default="")
    parser.add_argument("--job", default="")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--sick-from", type=int, default=10**9)
    parser.add_argument("--sick-in-jit-from", type=int, default=10**9)
    parser.add_argument("--style", choices=("functional", "wrapped"), default="functional")
    parser.add_argument("--optimizer", choices=("momentum", "adam"), default="momentum")
    parser.add_argument("--jit", action="store_true")
    options = parser.parse_args()
    ms.set_context(mode=ms.PYNATIVE_MODE, device_target="CPU")
    ms.set_seed(1)
    if options.server:
        import tensight.mindspore

        host, _, port = options.server.rpartition(":")

        def debugging(*subjects: Any) -> Any:
            return tensight.mindspore.debug(
                *subjects, host=host, port=int(port), job=options.job, break_at_start=True, connect_within_s=60
            )

    else:
        from contextlib import nullcontext

        def debugging(*subjects: Any) -> Any:
            return nullcontext()

    train(options, debugging)


if __name__ == "__main__":
    main()
