"""A training of MindSpore in GRAPH_MODE, in each way in which people write one; run with and without the debugger.

    python graph_training.py [--style model|cell|jit|branch|functional|between|block|callback] [--steps N]
                             [--stop-at STEP ...]

It writes a line after each step, and at the end what it arrived at. At a step of ``--stop-at`` it waits for a line on
standard input. With ``--save FOLDER`` MindSpore's own values of each step are written there.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import sys
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Model, Tensor, nn
from mindspore import dataset as datasets

BATCH = 8


class Network(nn.Cell):
    """A small classifier."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Dense(12, width)
        self.second = nn.Dense(width, 4)
        self.relu = nn.ReLU()

    def construct(self, pictures: Any) -> Any:
        """Return one logit for each class."""
        return self.second(self.relu(self.first(pictures)))


class Told(ms.Callback):
    """Tells of each step, as the loops do that are written by hand."""

    def __init__(self, told: Any) -> None:
        self.told = told

    def on_train_step_end(self, run_context: Any) -> None:
        """Tell of a step."""
        self.told(run_context.original_args().net_outputs)


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser()
    styles = ("model", "cell", "jit", "branch", "functional", "between", "block", "callback")
    parser.add_argument("--style", choices=styles, default="cell")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--stop-at", type=int, nargs="*", default=[])
    parser.add_argument("--inf-at", type=int, default=0)
    parser.add_argument("--raise-at", type=int, default=0)
    parser.add_argument("--head-only", choices=("forgotten", "frozen"), help="what the other layer is")
    parser.add_argument("--evaluate", action="store_true", help="after each step")
    parser.add_argument("--sink", action="store_true")
    parser.add_argument("--save", type=Path)
    options = parser.parse_args()
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_seed(1)
    random = np.random.default_rng(1)
    pictures = random.normal(0, 1, (options.steps, BATCH, 12)).astype(np.float32)
    kinds = random.integers(0, 4, (options.steps, BATCH)).astype(np.int32)
    if options.inf_at:
        pictures[options.inf_at - 1, 0, 0] = np.inf
    network = Network(options.width)
    loss_of = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    if options.head_only == "frozen":
        network.first.weight.requires_grad = network.first.bias.requires_grad = False
    trained = network.second if options.head_only == "forgotten" else network
    optimizer = nn.Momentum(trained.trainable_params(), 0.1, 0.9)
    step = 0

    def told(loss: Any, gradients: Any = ()) -> None:
        nonlocal step
        step += 1
        if options.evaluate:
            network.set_train(False)
            network(Tensor(pictures[0])).asnumpy()
            network.set_train(True)
        if options.save:
            values = {parameter.name: parameter.asnumpy() for parameter in optimizer.get_parameters()}
            for weight, gradient in zip(optimizer.parameters, gradients, strict=False):
                values[f"gradient.{weight.name}"] = gradient.asnumpy()
            np.savez(options.save / f"{step}.npz", loss=loss.asnumpy(), **values)
        print("step", step, flush=True)
        if step == options.raise_at:
            raise ValueError("the training's own mistake")
        if step in options.stop_at:
            sys.stdin.readline()

    block: Any = contextlib.nullcontext()
    callbacks: list[Any] = [Told(told)]
    if options.style == "block":
        import tensight

        block = tensight.mindspore.debug(network, optimizer)
    if options.style == "callback":
        import tensight

        callbacks.append(tensight.mindspore.MindSporeDebugger())
    if options.style in ("model", "callback"):
        data = datasets.NumpySlicesDataset(
            (pictures.reshape(-1, 12), kinds.reshape(-1)), ["pictures", "kinds"], shuffle=False
        ).batch(BATCH)
        Model(network, loss_of, optimizer).train(1, data, callbacks, dataset_sink_mode=options.sink)
    else:
        train = step_of(options.style, network, loss_of, optimizer)
        with block as dbg:
            for batch, classes in zip(pictures, kinds, strict=True):
                told(*train(Tensor(batch), Tensor(classes)))
                if dbg is not None:
                    dbg.step()
    print("arrived at", fingerprint(network), flush=True)


def step_of(style: str, network: Any, loss_of: Any, optimizer: Any) -> Any:
    """Return what does one step, and returns the loss and perhaps the gradients."""
    network.set_train()
    if style in ("cell", "block"):
        trained = nn.TrainOneStepCell(nn.WithLossCell(network, loss_of), optimizer)
        trained.set_train()
        return lambda batch, classes: (trained(batch, classes),)

    def loss(batch: Any, classes: Any) -> Any:
        return loss_of(network(batch), classes)

    value_and_gradients = ms.value_and_grad(loss, None, optimizer.parameters)

    def step(batch: Any, classes: Any) -> Any:
        value, gradients = value_and_gradients(batch, classes)
        if style == "between":
            # Halves one of them in Python, between the graph that returns it and the one that is given it.
            gradients = (*gradients[:-2], gradients[-2] * 0.5, gradients[-1])
        optimizer(gradients)
        return value, gradients

    def careful_step(batch: Any, classes: Any) -> Any:
        value, gradients = value_and_gradients(batch, classes)
        if ms.amp.all_finite(gradients):
            optimizer(gradients)
        return value, gradients

    return {"jit": ms.jit(step), "branch": ms.jit(careful_step)}.get(style, step)


def fingerprint(network: nn.Cell) -> str:
    """Tell bits of weights apart."""
    digest = hashlib.sha256()
    for parameter in network.get_parameters():
        digest.update(parameter.asnumpy().tobytes())
    return digest.hexdigest()


if __name__ == "__main__":
    main()
