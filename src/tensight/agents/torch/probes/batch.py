"""What a model was called with once, and copies of that in which something is changed."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from tensight.agents.torch.framework import tensors_in
from tensight.agents.torch.inner_modules import held_tensors, inner_modules

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import nn

_DEEPEST = 5
LATE = "there was no time left"
_LABELS = ("label", "target")
Changes = Mapping[int, torch.Tensor]
"""Tensors that are given in place of those of a batch, by the identities of these."""


class UntriedError(Exception):
    """A probe is not possible, or would tell nothing; the message gives the reason."""


class Input(NamedTuple):
    """A tensor that a model was called with.

    Attributes
    ----------
    name : str
        The argument, as ``x``, ``mask`` or ``batch['ids']``.
    tensor : Tensor
    """

    name: str
    tensor: torch.Tensor

    @property
    def is_label(self) -> bool:
        """Whether it is a target of a model that computes its loss."""
        return any(word in self.name.lower() for word in _LABELS)


class Axis(NamedTuple):
    """An axis that inputs and outputs have in common.

    Attributes
    ----------
    given, put_out : int
        Which axis of the first input, and of the first output, it is.
    size : int
    """

    given: int
    put_out: int
    size: int

    def of(self, tensor: torch.Tensor) -> int | None:
        """Return which axis of another input this is; None if it has none of this size."""
        if tensor.dim() > self.given and tensor.shape[self.given] == self.size:
            return self.given
        return 0 if tensor.dim() == 1 and len(tensor) == self.size else None


class Batch:
    """The arguments of a call.

    Parameters
    ----------
    model : Module
    arguments, named : tuple, dict
        They are copied.

    Attributes
    ----------
    inputs : tuple of Input
        The tensors among them.

    Raises
    ------
    Exception
        Whatever a copy of the arguments raises.
    """

    def __init__(self, model: nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        self._given = copied_with((arguments, named), {})
        self.inputs = tuple(_inputs(model, *self._given))

    def given(self, changes: Changes | None = None) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return copies of the arguments, with other tensors in place of some."""
        arguments, named = copied_with(self._given, changes or {})
        return arguments, named

    def axes(self, model: nn.Module, outputs: Sequence[torch.Tensor]) -> list[Axis]:
        """Return which axes may be that of the samples, the most probable first.

        Raises
        ------
        UntriedError
            None, or rows of the inputs may not be independent samples.
        """
        inputs = [given for given in self.inputs if given.tensor.dim()]
        if not inputs or not outputs:
            raise UntriedError(
                "the model is called with no tensor" if not inputs else "it returns no tensor with an axis"
            )
        first, output = inputs[0].tensor, outputs[0]
        axes = [
            Axis(given, put_out, first.shape[given])
            for given, put_out in ((0, 0), (1, 1), (1, 0))
            if first.dim() > given and output.dim() > put_out and first.shape[given] == output.shape[put_out]
        ]
        if len({axis.size for axis in axes}) < len(axes):
            # Equal sizes do not tell axes apart.
            axes = axes[:1]
        axes = [axis for axis in axes if axis.size > 1]
        if not axes:
            raise UntriedError(
                "no axis of the first input has the size of an axis of the output, or there is one sample only"
            )
        sizes = {axis.size for axis in axes} | set(first.shape)
        for name, tensor in (*((each.name, each.tensor) for each in inputs[1:]), *_held(model)):
            if tensor.layout != torch.strided or _pairs(tensor, axes[0].size):
                raise UntriedError(f"{name} may link samples, as the edges of a graph do")
        for name, tensor in inputs[1:]:
            if tensor.numel() > 1 and not sizes.intersection(tensor.shape[:2]):
                raise UntriedError(f"{name} has other lengths than {inputs[0].name}")
        is_square = output.dim() == 2 and output.shape[0] == output.shape[1] == axes[0].size
        if is_square and output.shape != first.shape:
            raise UntriedError("the output compares each sample with each other one")
        return axes

    def with_samples_like(self, axis: Axis, samples: slice, other: int) -> Changes:
        """Return a change of some samples: they get the values of another one."""
        changes = {}
        for given in self.inputs:
            at = axis.of(given.tensor)
            if at is not None:
                changed = given.tensor.clone()
                changed.movedim(at, 0)[samples] = given.tensor.select(at, other)
                changes[id(given.tensor)] = changed
        return changes

    def differing(self, axis: Axis) -> list[tuple[int, int]]:
        """Return pairs of samples whose inputs differ, for different first ones."""
        pairs = []
        for sample, other in ((axis.size - 1, 0), (0, axis.size - 1), (axis.size // 2, 0)):
            rows = [
                (given.tensor.select(at, sample), given.tensor.select(at, other))
                for given in self.inputs
                if not given.is_label and (at := axis.of(given.tensor)) is not None
            ]
            if sample != other and any(not torch.equal(*pair) for pair in rows):
                pairs.append((sample, other))
        return pairs[:2]


def copied_with(value: Any, changes: Changes) -> Any:
    """Return a copy of a value, with other tensors in place of some; no tensor in it belongs to a graph."""
    memo: dict[int, Any] = {}
    for tensor in tensors_in(value):
        memo[id(tensor)] = changes.get(id(tensor), tensor).detach().clone()
    return copy.deepcopy(value, memo)


def _inputs(model: nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]) -> Iterator[Input]:
    try:
        names = list(inspect.signature(model.forward).parameters)
    except (TypeError, ValueError):
        names = []
    for number, value in enumerate(arguments):
        yield from _tensors(names[number] if number < len(names) else f"argument {number + 1}", value, 0)
    for name, value in named.items():
        yield from _tensors(name, value, 0)


def _tensors(name: str, value: Any, depth: int) -> Iterator[Input]:
    if isinstance(value, torch.Tensor):
        yield Input(name, value)
    elif depth >= _DEEPEST:
        return
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _tensors(f"{name}[{key!r}]", inner, depth + 1)
    elif isinstance(value, (list, tuple)):
        for number, inner in enumerate(value):
            yield from _tensors(f"{name}[{number}]", inner, depth + 1)


def _held(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield buffers and other tensors of a model that are no parameters."""
    yield from held_tensors(model, "_buffers")
    for path, module in inner_modules(model):
        for name, value in vars(module).items():
            if isinstance(value, torch.Tensor):
                yield f"{path}.{name}".lstrip("."), value


def _pairs(tensor: torch.Tensor, size: int) -> bool:
    """Whether a tensor has a value for each pair of samples, or is a list of pairs of them."""
    if tensor.dim() != 2:
        return False
    is_list = tensor.dtype == torch.long and 2 in tensor.shape and size > 2 and tensor.shape[0] == 2
    return is_list or tuple(tensor.shape) == (size, size)
