"""Weights, buffers, the gradients that optimizers read, and the optimizers' states: for both kinds of capture."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from tensight.agents.eager.persistent_tensors import PersistentTensors
from tensight.agents.torch.discovery import weights_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tensight.agents.core.agent import Agent
    from tensight.agents.eager.names import Names

# The step count, which the training counts, too.
_NOT_OBSERVED = frozenset({"step"})

_WRAPPED_AS = ("optimizer", "_optimizer")
"""Attributes in which optimizers store an optimizer that they wrap."""


def wrapped_by(optimizer: torch.optim.Optimizer) -> list[Any]:
    """Return what an optimizer holds where those do that wrap another one."""
    return [vars(optimizer).get(name) for name in _WRAPPED_AS]


class Parameters(PersistentTensors):
    """The persistent tensors, and the gradients of weights.

    Modules and optimizers may replace a tensor at any time, so the tensors are looked up where they are stored.

    Parameters
    ----------
    agent : Agent
    names : Names
        Names of the models' tensors.
    """

    def __init__(self, agent: Agent, names: Names) -> None:
        super().__init__(agent, names)
        self._elsewhere: set[int] = set()

    def observe_gradients(self, optimizer: torch.optim.Optimizer) -> None:
        """Observe the gradients that an optimizer is about to read, and the tensors that it is about to write to."""
        if self._agent.observed.scalars.is_wanted:
            self._tell_scalars(optimizer)
        if not self._agent.capturing:
            return
        self._knows_gradients = True
        self.observe_before_update(optimizer)
        needs, observe = self._agent.slot_table.needs, self._agent.observe
        for weight in self.updated_by(optimizer):
            if weight is not None:
                slot_id, tensor_now, _ = weight
                tensor = tensor_now()
                gradient = None if tensor is None else tensor.grad
                if gradient is not None:
                    self.reached(weight)
                    need = needs[slot_id]
                    if need:
                        observe(slot_id, gradient, need)
                elif tensor is not None and tensor.requires_grad:
                    self.passed_over(weight)

    def update_elsewhere(self, optimizer: torch.optim.Optimizer) -> None:
        """Note that another thread trains the weights of an optimizer.

        Their gradients are not read from now on: that thread may free one meanwhile, and PyTorch does not prevent it.
        """
        self._elsewhere.update(map(id, self.weights_of(optimizer)))

    def backward_ended(self, scale: float) -> None:
        """Read the norm of the gradients as a backward pass has left them.

        Parameters
        ----------
        scale : float
            The factor of the loss scaler.
        """
        for optimizer in self.optimizers:
            if not any(map(self._is_trained_elsewhere, self.weights_of(optimizer))):
                self._agent.observed.scalars.backward(id(optimizer), self._gradients_of(optimizer), scale)

    def _tell_scalars(self, optimizer: torch.optim.Optimizer) -> None:
        rates = [float(group["lr"]) for group in optimizer.param_groups if "lr" in group]
        self._agent.observed.scalars.update(id(optimizer), rates, self._gradients_of(optimizer))

    def _gradients_of(self, optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
        return [weight.grad for weight in self.weights_of(optimizer) if weight.grad is not None]

    def _extent(self, optimizer: torch.optim.Optimizer) -> tuple[int, ...]:
        states, groups = optimizer.state, optimizer.param_groups
        first = next(iter(states.values()), ())
        weights = sum(len(group["params"]) for group in groups)
        return id(optimizer), id(states), len(states), len(first), len(groups), weights

    def weights_of(self, optimizer: torch.optim.Optimizer) -> list[Any]:
        """Return the weights that an optimizer updates."""
        return weights_of(optimizer)

    def _is_wrapped(self, optimizer: Any, other: Any) -> bool:
        """Whether one of two optimizers wraps the other, as those of Accelerate and Lightning do."""
        if other is None:
            return False
        held = (*wrapped_by(optimizer), *wrapped_by(other))
        return any(wrapped is optimizer or wrapped is other for wrapped in held)

    def _states_of(
        self, optimizer: torch.optim.Optimizer, names: Mapping[int, str]
    ) -> Iterator[tuple[Callable[[], Any], str]]:
        for weight, states in optimizer.state.items():
            name = names.get(id(weight))
            if name is not None and isinstance(states, dict):
                for key, state in states.items():
                    if isinstance(state, torch.Tensor) and key not in _NOT_OBSERVED:
                        yield partial(states.get, key), f"{key}.{name}"

    def _has_gradient(self, weight: torch.Tensor) -> bool:
        return bool(weight.requires_grad)

    def _holds_gradient(self, weight: torch.Tensor) -> bool | None:
        return None if self._is_trained_elsewhere(weight) else weight.grad is not None

    def _is_trained_elsewhere(self, weight: torch.Tensor) -> bool:
        return id(weight) in self._elsewhere
