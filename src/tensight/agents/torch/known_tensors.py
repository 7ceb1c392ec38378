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
        The weight that it is, or belongs to; empty for a buffer.
    """

    name: str
    weight: str

    @property
    def path(self) -> str:
        """The weight as a part of a scope: ``layer1/weight``."""
        return self.weight.replace(".", "/")


class KnownTensors:
    """Finds the names of persistent tensors. It is made for one step: tensors come and go.

    Parameters
    ----------
    names : Names
        Of the models.
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
        """Find the states of an optimizer, too, and the gradients that it reads."""
        self._optimizers = [other for other in self._optimizers if other is not optimizer] + [optimizer]
        self._find_states()

    def find(self, tensor: torch.Tensor) -> KnownTensor | None:
        """Return what is known of a tensor. States appear while an optimizer runs for the first time."""
        known = self._known.get(id(tensor))
        if known is None and self._optimizers:
            self._find_states()
            known = self._known.get(id(tensor))
        return known

    def find_alias(self, tensor: torch.Tensor) -> KnownTensor | None:
        """Return the weight or buffer whose elements another tensor has, as ``weight.data`` does."""
        if self._aliases is None:
            self._aliases = {}
            for entry in self._names.entries():
                held = entry.tensor()
                # A tensor that only stands in for a weight, as in torch.func.functional_call, is none that is known.
                known = None if held is None else self._known.get(id(held))
                key = None if known is None else _memory(held)
                if key is not None and known is not None:
                    self._aliases.setdefault(key, known)
        key = _memory(tensor)
        return None if key is None else self._aliases.get(key)

    def weights_of(self, optimizer: torch.optim.Optimizer) -> list[tuple[str, torch.Tensor]]:
        """Return the weights that an optimizer updates, with their names."""
        found = []
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                name = self._weights.get(id(parameter))
                if name is not None:
                    found.append((name, parameter))
        return found

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
    """Return where the elements of a plain tensor lie; two that have the same have the same elements."""
    storage = storage_of(tensor) if type(tensor) in (torch.Tensor, torch.nn.Parameter) else None
    return None if storage is None or not storage.nbytes() else (storage._cdata, geometry(tensor))
