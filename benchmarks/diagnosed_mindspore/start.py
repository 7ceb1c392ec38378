"""What every script here has in common: python SCRIPT NAME [--fault FAULT] [--seed N]; and how people train."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

BATCH = 32


def run(programs: Mapping[str, Callable[[str], None]]) -> None:
    """Run the program that the command line names, with the fault that it names; "graph" in its name is its mode."""
    parser = argparse.ArgumentParser()
    parser.add_argument("name", choices=tuple(programs))
    parser.add_argument("--fault", default="")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if options.fault and f'"{options.fault}"' not in Path(sys.argv[0]).read_text():
        parser.error(f"unknown fault {options.fault}")
    mode = ms.GRAPH_MODE if "graph" in options.name else ms.PYNATIVE_MODE
    # Otherwise the threads of MindSpore spend most of the time waiting for each other, where others use the cores, too.
    ms.set_context(mode=mode, device_target="CPU", pynative_synchronize=mode == ms.PYNATIVE_MODE, runtime_num_threads=1)
    ms.set_seed(options.seed)
    np.random.seed(options.seed)  # noqa: NPY002 - as the scripts of people do
    programs[options.name](options.fault)


def blobs(count: int = 512, features: int = 8) -> tuple[np.ndarray, np.ndarray]:
    """Return points, and in which of four quarters each is."""
    points = np.random.randn(count, features).astype(np.float32)  # noqa: NPY002
    return points, ((points[:, 0] > 0) + 2 * (points[:, 1] > 0)).astype(np.int32)


def curve(count: int = 512, features: int = 8) -> tuple[np.ndarray, np.ndarray]:
    """Return points, and a number for each, in a column."""
    points = np.random.randn(count, features).astype(np.float32)  # noqa: NPY002
    return points, (np.sin(points[:, :1]) + 0.5 * points[:, 1:2]).astype(np.float32)


def words(count: int = 256, length: int = 12, size: int = 16) -> np.ndarray:
    """Return sequences of ids in which each follows from the one before, with some exceptions."""
    ids = np.zeros((count, length), np.int32)
    ids[:, 0] = np.random.randint(0, size, count)  # noqa: NPY002
    for at in range(1, length):
        follows = (3 * ids[:, at - 1] + 1) % size
        ids[:, at] = np.where(np.random.rand(count) < 0.9, follows, np.random.randint(0, size, count))  # noqa: NPY002
    return ids


def batches(*arrays: np.ndarray, steps: int = 70, size: int = BATCH) -> Iterator[tuple[Tensor, ...]]:
    """Yield random rows of arrays."""
    for _ in range(steps):
        rows = np.random.randint(0, len(arrays[0]), size)  # noqa: NPY002
        yield tuple(Tensor(array[rows]) for array in arrays)


def trained(
    network: nn.Cell,
    loss_of: Any,
    optimizer: nn.Optimizer,
    data: Iterable[tuple[Tensor, ...]],
    style: str = "functional",
    after: Callable[[int], Any] = lambda _: None,
) -> None:
    """Train in one of the usual ways, and print the losses."""
    if style == "cell":
        step = nn.TrainOneStepCell(nn.WithLossCell(network, loss_of), optimizer)
        step.set_train(network.training)
    else:

        def forward(inputs: Tensor, labels: Tensor) -> Tensor:
            return loss_of(network(inputs), labels)

        gradients_of = ms.value_and_grad(forward, None, optimizer.parameters)

        def step(inputs: Tensor, labels: Tensor) -> Tensor:
            loss, gradients = gradients_of(inputs, labels)
            if style == "jit":
                return ops.depend(loss, optimizer(gradients))
            optimizer(gradients)
            return loss

        if style == "jit":
            step = ms.jit(step)
    for number, batch in enumerate(data, 1):
        loss = step(*batch)
        after(number)
        report(number, loss)


def report(number: int, loss: Any) -> None:
    """Print a loss now and then, and write it with all its bits."""
    if number == 1 or number % 10 == 0:
        value = float(np.asarray(loss.asnumpy(), np.float64).sum())
        print(f"step {number}: loss {value:.6f}")
        with Path("bits.txt").open("a") as file:
            file.write(f"{number} {value.hex()}\n")
