"""An eager framework of a few lines, in plain NumPy: modules, a backward pass, an optimizer. It knows no debugger."""

from __future__ import annotations

import contextlib
import itertools
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__version__ = "1.0"

_recording = [True]


class Function:
    """What has computed a tensor, and how gradients go through it to its inputs."""

    def __init__(self, inputs: Sequence[Tensor], backward: Callable[[Any], Sequence[Any]]) -> None:
        self.inputs = inputs
        self.backward = backward


class Tensor:
    """Values, and what has computed them; a weight is one that nothing has computed and that requires a gradient."""

    def __init__(self, values: Any, *, requires_grad: bool = False) -> None:
        self.values = np.asarray(values, np.float32)
        self.requires_grad = requires_grad
        self.function: Function | None = None
        self.grad: Tensor | None = None
        self.hooks: dict[int, Callable[[Tensor], None]] = {}
        self.version = 0

    def add_(self, other: Any) -> Tensor:
        self.values += other
        self.version += 1
        return self


def computed(values: Any, inputs: Sequence[Tensor], backward: Callable[[Any], Sequence[Any]]) -> Tensor:
    """Return a tensor that a function has computed."""
    tensor = Tensor(values)
    if _recording[0] and any(one.requires_grad for one in inputs):
        tensor.requires_grad = True
        tensor.function = Function(inputs, backward)
    return tensor


@contextlib.contextmanager
def no_grad() -> Iterator[None]:
    before, _recording[0] = _recording[0], False
    try:
        yield
    finally:
        _recording[0] = before


def is_grad_enabled() -> bool:
    return _recording[0]


def matmul(x: Tensor, weight: Tensor) -> Tensor:
    return computed(x.values @ weight.values.T, (x, weight), lambda g: (g @ weight.values, g.T @ x.values))


def add(one: Tensor, other: Tensor) -> Tensor:
    return computed(one.values + other.values, (one, other), lambda g: (g, _summed(g, other.values.shape)))


def tanh(x: Tensor) -> Tensor:
    y = np.tanh(x.values)
    return computed(y, (x,), lambda g: (g * (1 - y * y),))


def relu(x: Tensor) -> Tensor:
    return computed(np.maximum(x.values, 0), (x,), lambda g: (g * (x.values > 0),))


def log(x: Tensor) -> Tensor:
    with np.errstate(invalid="ignore", divide="ignore"):
        return computed(np.log(x.values), (x,), lambda g: (g / x.values,))


def mean_square(x: Tensor) -> Tensor:
    return computed(np.square(x.values).mean(), (x,), lambda g: (g * 2 * x.values / np.float32(x.values.size),))


def backward(loss: Tensor) -> None:
    """Add up the gradients of weights, and tell hooks those of what was computed on the way."""
    gradients = {id(loss): np.ones_like(loss.values)}
    for tensor in reversed(_in_order(loss)):
        values = gradients.pop(id(tensor))
        for hook in list(tensor.hooks.values()):
            hook(Tensor(values))
        if tensor.function is None:
            tensor.grad = Tensor(values if tensor.grad is None else tensor.grad.values + values)
            continue
        for one, gradient in zip(tensor.function.inputs, tensor.function.backward(values), strict=True):
            if one.requires_grad:
                gradients[id(one)] = gradients[id(one)] + gradient if id(one) in gradients else gradient


def _in_order(loss: Tensor) -> list[Tensor]:
    """Return what a tensor was computed from as far as it requires gradients, each after its own inputs."""
    found: dict[int, Tensor] = {}

    def visit(tensor: Tensor) -> None:
        if id(tensor) not in found and tensor.requires_grad:
            for one in () if tensor.function is None else tensor.function.inputs:
                visit(one)
            found[id(tensor)] = tensor

    visit(loss)
    return list(found.values())


def _summed(gradient: Any, shape: tuple[int, ...]) -> Any:
    return gradient.sum(axis=0) if gradient.ndim > len(shape) else gradient


class Module:
    """Something with weights and modules in its attributes, that computes by `forward`."""

    training = True

    def forward(self, *given: Any) -> Any:
        raise NotImplementedError

    def __call__(self, *given: Any) -> Any:
        return self.forward(*given)

    def children(self) -> Iterator[tuple[str, Module]]:
        yield from ((name, one) for name, one in vars(self).items() if isinstance(one, Module))

    def weights(self) -> Iterator[tuple[str, Tensor]]:
        yield from ((name, one) for name, one in vars(self).items() if isinstance(one, Tensor))

    def modules(self, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Module]]:
        yield path, self
        for name, child in self.children():
            yield from child.modules((*path, name))

    def parameters(self) -> list[Tensor]:
        every = itertools.chain.from_iterable(module.weights() for _, module in self.modules())
        return list({id(tensor): tensor for _, tensor in every}.values())

    def train(self, training: bool = True) -> None:
        for _, module in self.modules():
            module.training = training


class Linear(Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        random = np.random.default_rng(inputs * 100 + outputs)
        self.weight = Tensor(random.normal(0, 0.5, (outputs, inputs)), requires_grad=True)
        self.bias = Tensor(np.zeros(outputs), requires_grad=True)

    def forward(self, x: Tensor) -> Tensor:
        return add(matmul(x, self.weight), self.bias)


class ReLU(Module):
    def forward(self, x: Tensor) -> Tensor:
        return relu(x)


class Sequential(Module):
    def __init__(self, **modules: Module) -> None:
        vars(self).update(modules)

    def forward(self, x: Tensor) -> Tensor:
        for _, module in self.children():
            x = module(x)
        return x


class MeanSquare(Module):
    def forward(self, x: Tensor) -> Tensor:
        return mean_square(x)


class SGD:
    def __init__(self, parameters: Sequence[Tensor], rate: float, momentum: float = 0.0) -> None:
        self.parameters = list(parameters)
        self.rate = rate
        self.momentum = momentum
        self.moments = [Tensor(np.zeros_like(one.values)) for one in self.parameters] if momentum else []

    def zero_grad(self) -> None:
        for one in self.parameters:
            one.grad = None

    def step(self) -> None:
        for index, one in enumerate(self.parameters):
            if one.grad is None:
                continue
            update = one.grad.values
            if self.momentum:
                moment = self.moments[index]
                moment.values *= self.momentum
                update = moment.add_(update).values
            one.add_(-self.rate * update)
