"""The persistent tensors, by identity: weights, buffers, and the states of optimizers."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

from tensight.agents.torch.tensor_sources import Geometry, geometry, storage_of

if TYPE_CHECKING:
    from tensight.agents.eager.names import Names


class KnownTensor(NamedTuple):
    """A persistent tensor.

    Attributes
    ----------
    name : str
        ``layer1.weight``, ``exp_avg.layer1.weight``.
    weight : str
        Name of the weight that it is, or that it is a state of; empty for a buffer.
    """

    name: str
    weight: str

    @property
    def path(self) -> str:
        """The weight as a part of a scope: ``layer1/weight``."""
        return self.weight.replace(".", "/")


class KnownTensors:
    """Finds the names of persistent tensors. Each step needs a new one, because tensors may be replaced.

    Parameters
    ----------
    names : Names
        Names of the models' tensors.
    """

    def __init__(self, names: Names) -> None:
        self._known: dict[int, KnownTensor] = {}
        self._weights: dict[int, str] = {}
        self._optimizers: list[torch.optim.Optimizer] = []
        self._aliases: dict[tuple[int, Geometry], KnownTensor] | None = None
        self._names = names
        for entry in names.entries():
            tensor = entry.tensor()
            if tensor is not None:
                self._known[id(tensor)] = KnownTensor(entry.name, entry.name if entry.is_parameter else "")
                if entry.is_parameter:
                    self._weights[id(tensor)] = entry.name

    def add_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        """Find the states of an optimizer, too."""
        self._optimizers = [other for other in self._optimizers if other is not optimizer] + [optimizer]
        self._find_states()

    def find(self, tensor: torch.Tensor) -> KnownTensor | None:
        """Return the name of a tensor, if it is known. An optimizer's states are created while it first runs."""
        known_tensor = self._known.get(id(tensor))
        if known_tensor is None and self._optimizers:
            self._find_states()
            known_tensor = self._known.get(id(tensor))
        return known_tensor

    def find_alias(self, tensor: torch.Tensor) -> KnownTensor | None:
        """Return the weight or buffer that has the same elements as a tensor, such as ``weight.data``."""
        if self._aliases is None:
            self._aliases = {}
            for entry in self._names.entries():
                held = entry.tensor()
                # A tensor that temporarily replaces a weight, as in torch.func.functional_call, is not a known one.
                known_tensor = None if held is None else self._known.get(id(held))
                key = None if known_tensor is None else _memory(held)
                if key is not None and known_tensor is not None:
                    self._aliases.setdefault(key, known_tensor)
        key = _memory(tensor)
        return None if key is None else self._aliases.get(key)

    def weights_of(self, optimizer: torch.optim.Optimizer) -> list[tuple[str, torch.Tensor]]:
        """Return the weights that an optimizer updates, with their names."""
        weights = []
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                name = self._weights.get(id(parameter))
                if name is not None:
                    weights.append((name, parameter))
        return weights

    def _find_states(self) -> None:
        for optimizer in self._optimizers:
            for parameter, states in optimizer.state.items():
                weight = self._weights.get(id(parameter))
                if weight is None or not isinstance(states, dict):
                    continue
                for key, state in states.items():
                    if isinstance(state, torch.Tensor):
                        self._known[id(state)] = KnownTensor(f"{key}.{weight}", weight)


def _memory(tensor: torch.Tensor) -> tuple[int, Geometry] | None:
    """Return the memory and layout of a plain tensor's elements; tensors with equal ones share their elements."""
    storage = storage_of(tensor) if type(tensor) in (torch.Tensor, torch.nn.Parameter) else None
    return None if storage is None or not storage.nbytes() else (storage._cdata, geometry(tensor))
