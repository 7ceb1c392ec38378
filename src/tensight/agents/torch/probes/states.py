"""The state of a model that its calls may change, and experiments that leave it as it was."""

from __future__ import annotations

import contextlib
from collections import deque
from typing import TYPE_CHECKING, Any

import torch

from tensight.agents.torch.inner_modules import inner_modules
from tensight.agents.torch.kept_states import Generators

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import nn

_OF_MODULES = ("_parameters", "_buffers", "_modules")
_DEEPEST = 4
Rows = list[dict[str, Any]]


class State:
    """The tensors, modes and plain attributes of a model, and the random generators.

    Parameters
    ----------
    model : Module
    """

    def __init__(self, model: nn.Module) -> None:
        self._generators = Generators()
        self._attributes = [(module, dict(vars(module))) for _, module in inner_modules(model)]
        self._contents: dict[int, tuple[Any, Any]] = {}
        self._tensors: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        for _, attributes in self._attributes:
            for name, value in attributes.items():
                if name != "_modules":
                    self._note(value, 0)

    def _note(self, value: Any, depth: int) -> None:
        if isinstance(value, torch.Tensor):
            if id(value) not in self._tensors:
                self._tensors[id(value)] = value, value.detach().clone()
            return
        if depth > _DEEPEST or id(value) in self._contents or not isinstance(value, (dict, list, set, deque)):
            return
        self._contents[id(value)] = value, value.copy()
        for inner in value.values() if isinstance(value, dict) else value:
            self._note(inner, depth + 1)

    def put_back(self) -> None:
        """Restore everything, with the same objects; values that were not changed are not written."""
        self._generators.put_back()
        for module, attributes in self._attributes:
            held = vars(module)
            if held.keys() != attributes.keys() or any(held[name] is not value for name, value in attributes.items()):
                held.clear()
                held.update(attributes)
        for value, content in self._contents.values():
            if isinstance(value, (dict, set)):
                value.clear()
                value.update(content)
            elif len(value) != len(content) or any(
                now is not before for now, before in zip(value, content, strict=True)
            ):
                value.clear()
                value.extend(content)
        changed = [(tensor, first) for tensor, first in self._tensors.values() if not _is_same(tensor, first)]
        if changed:
            keep = torch.autograd._unsafe_preserve_version_counter(tuple(tensor for tensor, _ in changed))
            with torch.no_grad(), keep:
                for tensor, first in changed:
                    if tensor.shape != first.shape:
                        tensor.resize_(first.shape)
                    tensor.copy_(first)


def _is_same(tensor: torch.Tensor, first: torch.Tensor) -> bool:
    if tensor.shape != first.shape:
        return False
    if not tensor.is_floating_point() or tensor.layout != torch.strided:
        return bool(torch.equal(tensor, first))
    # NaN is equal to no number, and 0 to -0.
    integers = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.element_size()]
    return bool(torch.equal(tensor.detach().contiguous().view(integers), first.contiguous().view(integers)))


@contextlib.contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Put a model into evaluation mode without calling its methods, which a script may override."""
    for _, module in inner_modules(model):
        with contextlib.suppress(Exception):
            module.training = False
    yield
