"""Small trainings, written once for all eager frameworks, each traced in a folder beside what it has kept itself.

    python eager_trainings.py KIT FOLDER

A kit (`torch_kit`, `mindspore_kit`, `minigrad_kit`) is a module that says how a framework does what is done here.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

STEPS = 3

WEIGHTS = ("first.weight", "first.bias", "second.weight", "second.bias")
"""Of a network of two layers, as its optimizer has them."""


class Kit(Protocol):
    """What an adapter's tests must be able to do with its framework."""

    def linear(self, inputs: int, outputs: int) -> Any:
        """Return a layer whose weight has the shape (outputs, inputs), with a bias; see `weights_for`."""

    def relu(self) -> Any:
        """Return a layer without weights."""

    def mean_square(self) -> Any:
        """Return a module of a class `MeanSquare` that reduces a tensor to a loss."""

    def sequence(self, **modules: Any) -> Any:
        """Return the framework's own container that calls modules one after the other."""

    def network(self, compute: Callable[..., Any], **modules: Any) -> Any:
        """Return a module of a class `Network` that has modules in its attributes, and computes by a function of it."""

    def part(self, compute: Callable[..., Any]) -> Any:
        """Return a module of a class `Part` without modules that computes by a function of a tensor."""

    def tanh(self, x: Any) -> Any: ...

    def log(self, x: Any) -> Any: ...

    def add(self, one: Any, other: Any) -> Any: ...

    def tensor(self, values: Any) -> Any: ...

    def numpy(self, tensor: Any) -> Any: ...

    def optimizer(self, *modules: Any) -> Any:
        """Return SGD with a rate of 0.1 and a momentum of 0.5 for the weights of modules."""

    def update(self, forward: Callable[[], Any], optimizer: Any) -> list[Any]:
        """Compute a loss and its gradients, and update; return the gradients of the optimizer's weights."""

    def evaluate(self, network: Any, x: Any) -> Any:
        """Call a network as people do who evaluate it."""

    def debug(self, trace: str, *subjects: Any) -> AbstractContextManager[Any]:
        """Return what debugs modules and optimizers, or all that is called, and traces it without a server."""

    def leftovers(self) -> list[str]:
        """Return what of the framework is not as it was when the kit was imported."""


class Kept:
    """What a training has computed itself, by what it is called."""

    def __init__(self, kit: Kit) -> None:
        self.arrays: dict[str, Any] = {}
        self._kit = kit

    def keep(self, step: int, **tensors: Any) -> None:
        for name, tensor in tensors.items():
            self.arrays[f"{step}/{name}"] = np.array(self._kit.numpy(tensor), np.float64)

    def keep_weights(self, step: int, when: str, network: Any) -> None:
        for name in WEIGHTS:
            layer, key = name.split(".")
            self.keep(step, **{f"{when}.{name}": getattr(getattr(network, layer), key)})


def weights_for(inputs: int, outputs: int) -> Any:
    """Return the weight that every layer of this size begins with."""
    return np.random.default_rng(10 * inputs + outputs).normal(0, 0.5, (outputs, inputs)).astype(np.float32)


def batch(step: int) -> Any:
    return np.random.default_rng(step).normal(0, 1, (6, 4)).astype(np.float32)


def between(kit: Kit) -> Callable[..., Any]:
    def compute(network: Any, x: Any) -> Any:
        hidden = network.first(x)
        hidden = kit.tanh(hidden)
        return network.second(hidden)

    return compute


def two_layers(kit: Kit) -> Any:
    return kit.network(between(kit), first=kit.linear(4, 5), second=kit.linear(5, 3))


def layers(kit: Kit, trace: str, kept: Kept) -> None:
    network, loss = two_layers(kit), kit.mean_square()
    optimizer = kit.optimizer(network)
    with kit.debug(trace, network, optimizer):
        for step in range(STEPS):
            x = kit.tensor(batch(step))
            kept.keep(step, x=x)
            kept.keep_weights(step, "before", network)
            gradients = kit.update(lambda x=x: loss(network(x)), optimizer)
            kept.keep(step, **{f"gradient.{name}": one for name, one in zip(WEIGHTS, gradients, strict=True)})
            kept.keep_weights(step, "after", network)


def undebugged(kit: Kit, trace: str, kept: Kept) -> None:
    network, loss = two_layers(kit), kit.mean_square()
    optimizer = kit.optimizer(network)
    for step in range(STEPS):
        x = kit.tensor(batch(step))
        kit.update(lambda x=x: loss(network(x)), optimizer)
        kept.keep_weights(step, "after", network)


def shared(kit: Kit, trace: str, kept: Kept) -> None:
    """A sequence that is called twice, a layer with two names, and two layers with one weight."""

    def compute(network: Any, x: Any) -> Any:
        return network.alias(network.tied(network.body(network.body(x))))

    layer, tied = kit.linear(4, 4), kit.linear(4, 4)
    tied.weight = layer.weight
    body = kit.sequence(layer=layer, rectified=kit.relu())
    network = kit.network(compute, body=body, tied=tied, alias=body)
    loss, optimizer = kit.mean_square(), kit.optimizer(network)
    with kit.debug(trace, network, optimizer):
        for step in range(STEPS):
            kit.update(lambda step=step: loss(network(kit.tensor(batch(step)))), optimizer)


def residual(kit: Kit, trace: str, kept: Kept) -> None:
    def compute(network: Any, x: Any) -> Any:
        hidden = network.first(x)
        return kit.add(network.second(hidden), hidden)

    network = kit.network(compute, first=kit.linear(4, 4), second=kit.linear(4, 4))
    loss, optimizer = kit.mean_square(), kit.optimizer(network)
    with kit.debug(trace, network, optimizer):
        for step in range(STEPS):
            kit.update(lambda step=step: loss(network(kit.tensor(batch(step)))), optimizer)


def two_optimizers(kit: Kit, trace: str, kept: Kept) -> None:
    one, other = two_layers(kit), two_layers(kit)
    loss = kit.mean_square()
    optimizers = kit.optimizer(one), kit.optimizer(other)
    with kit.debug(trace, one, other, *optimizers):
        for step in range(STEPS):
            for network, optimizer in zip((one, other), optimizers, strict=True):
                kit.update(lambda step=step, network=network: loss(network(kit.tensor(batch(step)))), optimizer)


def unnamed_optimizers(kit: Kit, trace: str, kept: Kept) -> None:
    """The same where the debugger finds all of it by itself."""
    one, other = two_layers(kit), two_layers(kit)
    loss = kit.mean_square()
    optimizers = kit.optimizer(one), kit.optimizer(other)
    with kit.debug(trace):
        for step in range(STEPS):
            for network, optimizer in zip((one, other), optimizers, strict=True):
                kit.update(lambda step=step, network=network: loss(network(kit.tensor(batch(step)))), optimizer)


def evaluated(kit: Kit, trace: str, kept: Kept) -> None:
    network, loss = two_layers(kit), kit.mean_square()
    optimizer = kit.optimizer(network)
    with kit.debug(trace, network, optimizer):
        for step in range(STEPS):
            x = kit.tensor(batch(step))
            kit.update(lambda x=x: loss(network(x)), optimizer)
            for _ in range(2):
                kit.evaluate(network, kit.tensor(100 * batch(step)))


class StepError(Exception):
    """Raised in the middle of a step."""


def raising(kit: Kit, trace: str, kept: Kept) -> None:
    """An exception within the second step, which the script catches; it does the step again."""
    raises = [False]

    def compute(x: Any) -> Any:
        if raises[0]:
            raise StepError
        return kit.tanh(x)

    def whole(network: Any, x: Any) -> Any:
        return network.second(network.middle(network.first(x)))

    network = kit.network(whole, first=kit.linear(4, 5), middle=kit.part(compute), second=kit.linear(5, 3))
    loss, optimizer = kit.mean_square(), kit.optimizer(network)
    with kit.debug(trace, network, optimizer):
        for step in range(STEPS):
            raises[0] = step == 1
            try:
                kit.update(lambda step=step: loss(network(kit.tensor(batch(step)))), optimizer)
            except StepError:
                raises[0] = False
                kit.update(lambda step=step: loss(network(kit.tensor(batch(step)))), optimizer)


def sick(kit: Kit, trace: str, kept: Kept) -> None:
    """A logarithm of negative numbers in the second step."""
    is_sick = [False]

    def compute(x: Any) -> Any:
        return kit.log(x) if is_sick[0] else kit.tanh(x)

    def whole(network: Any, x: Any) -> Any:
        return network.last(network.second(network.middle(network.first(x))))

    network = kit.network(
        whole, first=kit.linear(4, 5), middle=kit.part(compute), second=kit.linear(5, 3), last=kit.relu()
    )
    loss, optimizer = kit.mean_square(), kit.optimizer(network)
    with kit.debug(trace, network, optimizer):
        for step in range(2):
            is_sick[0] = step == 1
            kit.update(lambda step=step: loss(network(kit.tensor(batch(step)))), optimizer)


def fresh_losses(kit: Kit, trace: str, kept: Kept) -> None:
    """A loss that is made anew in each step, by people who write `MeanSquare()(…)`."""
    network = two_layers(kit)
    optimizer = kit.optimizer(network)
    with kit.debug(trace, network, optimizer):
        for step in range(STEPS):
            kit.update(lambda step=step: kit.mean_square()(network(kit.tensor(batch(step)))), optimizer)


def renamed(kit: Kit, trace: str, kept: Kept) -> None:
    """A layer that is put into a container after the first step."""

    def compute(network: Any, x: Any) -> Any:
        return network.second(network.first(x))

    network = kit.network(compute, first=kit.linear(4, 5), second=kit.linear(5, 3))
    loss, optimizer = kit.mean_square(), kit.optimizer(network)
    with kit.debug(trace, network, optimizer):
        for step in range(STEPS):
            if step == 1:
                network.first = kit.sequence(inner=network.first, rectified=kit.relu())
            kit.update(lambda step=step: loss(network(kit.tensor(batch(step)))), optimizer)


TRAININGS = {
    training.__name__: training
    for training in (
        layers,
        undebugged,
        shared,
        residual,
        two_optimizers,
        unnamed_optimizers,
        evaluated,
        raising,
        sick,
        fresh_losses,
        renamed,
    )
}


def main() -> None:
    kit: Any = importlib.import_module(sys.argv[1])
    folder = Path(sys.argv[2])
    leftovers: dict[str, list[str]] = {}
    for name, training in TRAININGS.items():
        kept = Kept(kit)
        training(kit, str(folder / name), kept)
        np.savez(folder / f"{name}.npz", **kept.arrays)
        leftovers[name] = kit.leftovers()
    (folder / "leftovers.json").write_text(json.dumps(leftovers))


if __name__ == "__main__":
    main()
