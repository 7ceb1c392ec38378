"""Trainings of plain tensors, which no module holds: they get one, so that they can be read as models are."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from tensight.agents.core.call_stack import is_user_code
from tensight.agents.torch.facts import loss_graph

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_NO_NAME = re.compile(r"\W+")


class Tensors(nn.Module):
    """The tensors that a script trains without a module.

    Parameters
    ----------
    tensors : sequence of Tensor
    """

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        super().__init__()
        names = _names_of_variables()
        held: dict[str, Any] = self._parameters
        for number, tensor in enumerate(tensors):
            name = names.get(id(tensor)) or f"tensor_{number}"
            while name in held:
                name += "_"
            # Not all of them are of class Parameter, which register_parameter() requires.
            held[name] = tensor


class Leaves:
    """The tensors that backward passes have reached so far."""

    def __init__(self) -> None:
        self._leaves: dict[int, torch.Tensor] = {}

    def repeated(self, root: torch.Tensor) -> list[torch.Tensor]:
        """Return the tensors that a backward pass reaches, if they are those of the pass before; otherwise none.

        Parameters
        ----------
        root : Tensor
            Where it begins.
        """
        leaves = {id(leaf): leaf for leaf in loss_graph.read(root).leaves}
        is_repeated = bool(leaves) and leaves.keys() == self._leaves.keys()
        self._leaves = leaves
        return list(leaves.values()) if is_repeated else []


def _names_of_variables() -> dict[int, str]:
    """Return the names of the tensors in the variables of the functions of the user that are running."""
    names: dict[int, str] = {}
    frame = sys._getframe(1)
    while frame is not None:
        if is_user_code(frame.f_code):
            for variables in (frame.f_locals, frame.f_globals):
                for tensor, name in _tensors_of(variables):
                    names.setdefault(id(tensor), name)
        if frame.f_back is None:
            break
        frame = frame.f_back
    return names


def _tensors_of(variables: Mapping[Any, Any]) -> Iterator[tuple[torch.Tensor, str]]:
    for name, value in list(variables.items()):
        if isinstance(value, torch.Tensor):
            yield value, str(name)
        elif type(value) in (list, tuple) and len(value) < 1000:
            yield from ((each, f"{name}_{at}") for at, each in enumerate(value) if isinstance(each, torch.Tensor))
        elif type(value) is dict and len(value) < 1000 and not str(name).startswith("__"):
            for key, each in value.items():
                if isinstance(each, torch.Tensor):
                    yield each, _NO_NAME.sub("_", f"{name}_{key}")
