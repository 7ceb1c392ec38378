"""What a training computes from the call of its model to its loss, recorded so that it can run again with other inputs.

torchtest2 and guardtower want a model, a batch and a loss as a function; a script has them only as lines of code.
"""

from __future__ import annotations

import inspect
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torchtest2._tree import tree_leaves, tree_map

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

_MOST_CALLS = 5_000
_LABELS = ("label", "target")


class Call(NamedTuple):
    """A call of a module, or of a function of PyTorch outside of modules.

    Attributes
    ----------
    function : Module or callable
    arguments, named : tuple, dict
    output : object
    is_model : bool
        Whether it is a module that is trained.
    has_graph : bool
        Whether gradients were enabled.
    autocast : dtype or None
    """

    function: Any
    arguments: tuple[Any, ...]
    named: dict[str, Any]
    output: Any
    is_model: bool
    has_graph: bool
    autocast: torch.dtype | None

    @property
    def given(self) -> set[int]:
        return {id(tensor) for _, tensor in tree_leaves([list(self.arguments), self.named])}

    @property
    def returned(self) -> set[int]:
        if getattr(self.function, "__name__", "") == "__setitem__":
            return {id(self.arguments[0])}
        return {id(tensor) for _, tensor in tree_leaves(self.output)}

    def run(self, tensors: dict[int, torch.Tensor]) -> None:
        """Run it again with other tensors for some, and put those of its output beside them."""

        def replaced(value: Any) -> Any:
            # Containers that cannot be made anew, as torch.Size, hold no tensors.
            return tree_map(lambda _, tensor: tensors.get(id(tensor), tensor), value) if tree_leaves(value) else value

        with ExitStack() as stack:
            stack.enter_context(torch.set_grad_enabled(self.has_graph and torch.is_grad_enabled()))
            if self.autocast is not None:
                stack.enter_context(torch.autocast("cpu", self.autocast))
            named = {name: replaced(value) for name, value in self.named.items()}
            output = self.function(*(replaced(value) for value in self.arguments), **named)
        pair(self.output, output, tensors)


def pair(before: Any, now: Any, tensors: dict[int, torch.Tensor]) -> None:
    """Put the tensors of a value beside those that were at their paths before."""
    paths = dict(tree_leaves(now))
    tensors |= {id(tensor): paths[path] for path, tensor in tree_leaves(before) if path in paths}


class Recorder(TorchFunctionMode):
    """Records the functions that are called outside of modules; calls of modules are added to it.

    Attributes
    ----------
    calls : list of Call
    depth : int
        How many modules, or other things whose functions do not count, are running.
    """

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Call] = []
        self.depth = 0

    def __torch_function__(self, function: Any, types: Any, arguments: Any = (), named: Any = None) -> Any:
        """Run a function and record it."""
        output = function(*arguments, **(named or {}))
        if not self.depth and (tree_leaves(output) or getattr(function, "__name__", "") == "__setitem__"):
            self.add(function, arguments, named or {}, output, is_model=False)
        return output

    def add(self, function: Any, arguments: Any, named: Any, output: Any, *, is_model: bool) -> None:
        autocast = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else None
        if len(self.calls) < _MOST_CALLS:
            self.calls.append(Call(function, arguments, named, output, is_model, torch.is_grad_enabled(), autocast))


class Step(nn.Module):
    """The models of a step as one, which is called with the tensors that they were called with.

    Parameters
    ----------
    calls : sequence of Call
        All that were made until the loss was there.
    loss : Tensor
    containing : callable (Module) -> Module
        The whole that a module which was called is a part of.

    Attributes
    ----------
    inputs : list of Tensor
    labels : set of int
        Which tensors are targets of models that compute their loss, by identity.

    Raises
    ------
    ValueError
        The loss does not depend on the call of a model.
    """

    def __init__(self, calls: Sequence[Call], loss: torch.Tensor, containing: Callable[[nn.Module], nn.Module]) -> None:
        super().__init__()
        self._loss = loss
        self._calls = _between(calls, loss)
        models = [call for call in self._calls if call.is_model]
        if not models:
            raise ValueError("the loss does not depend on the call of a model")
        self.models = nn.ModuleList(dict.fromkeys(containing(call.function) for call in models))
        self.training = all(call.function.training for call in models)
        last = max(number for number, call in enumerate(self._calls) if call.is_model)
        self._before, self._after = self._calls[: last + 1], self._calls[last + 1 :]
        later = {id(loss)}.union(*(call.given for call in self._after))
        returned = [call.output for call in models if call.returned & later] or [models[-1].output]
        self._returned = returned[0] if len(returned) == 1 else returned
        made = set().union(*(call.returned for call in self._calls))
        inputs = {id(tensor): tensor for call in models for tensor in _tensors_given(call) if id(tensor) not in made}
        self.labels = {key for call in models for key in _labels_of(call)} & set(inputs)
        self.inputs = [tensor for key, tensor in inputs.items() if key not in self.labels]
        self._tensors: dict[int, torch.Tensor] = {}

    def forward(self, *inputs: torch.Tensor) -> Any:
        """Run until the last call of a model."""
        self._tensors = {id(before): now for before, now in zip(self.inputs, inputs, strict=True)}
        for call in self._before:
            call.run(self._tensors)
        if not tree_leaves(self._returned):
            return self._returned
        return tree_map(lambda _, tensor: self._tensors.get(id(tensor), tensor), self._returned)

    def loss_of(self, outputs: Any) -> torch.Tensor:
        """Return the loss of what `forward` returned last."""
        pair(self._returned, outputs, self._tensors)
        for call in self._after:
            call.run(self._tensors)
        return self._tensors[id(self._loss)]


def _between(calls: Sequence[Call], loss: torch.Tensor) -> list[Call]:
    """Return the calls that lead from models to the loss."""
    changed_in_place = {id(call.arguments[0]) for call in calls if call.arguments and call.returned & call.given}
    dependent: set[int] = set()
    kept = []
    for call in calls:
        # What a sum begins with is made anew each time.
        begins = not call.given and bool(call.returned & changed_in_place)
        if call.is_model or call.given & dependent:
            dependent |= call.returned
            kept.append(call)
        elif begins:
            kept.append(call)
    needed, between = {id(loss)}, []
    for call in reversed(kept):
        if call.returned & needed:
            needed |= call.given
            between.append(call)
    return between[::-1]


def _tensors_given(call: Call) -> Iterable[torch.Tensor]:
    return (tensor for _, tensor in tree_leaves([list(call.arguments), call.named]))


def _labels_of(call: Call) -> Iterable[int]:
    try:
        names = list(inspect.signature(call.function.forward).parameters)
    except (TypeError, ValueError):
        names = []
    for name, value in [*zip(names, call.arguments, strict=False), *call.named.items()]:
        if any(word in name.lower() for word in _LABELS):
            yield from (id(tensor) for _, tensor in tree_leaves(value))
