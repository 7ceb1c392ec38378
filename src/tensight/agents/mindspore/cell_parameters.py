"""Parameters, buffers, the gradients that optimizers read, and the optimizers' states."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from mindspore import Parameter, Tensor

from tensight.agents.eager.persistent_tensors import PersistentTensors
from tensight.agents.mindspore.learning_rates import rates_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from mindspore import nn


# Attributes in which an optimizer keeps the weights themselves.
_WEIGHTS = frozenset({"parameters", "_parameters", "params", "cache_enable"})


class CellParameters(PersistentTensors):
    """The persistent tensors, and the gradients of weights."""

    def observe_gradients(self, optimizer: nn.Optimizer, gradients: Any) -> None:
        """Observe the gradients that an optimizer is about to read, and note the code that requests the update."""
        self.note_update(optimizer)
        if self._agent.observed.scalars.is_wanted:
            is_whole = isinstance(gradients, (tuple, list)) and all(
                isinstance(gradient, Tensor) for gradient in gradients
            )
            # An optimizer with its own loss scale receives scaled gradients.
            reported = gradients if is_whole and not getattr(optimizer, "need_scale", False) else None
            self._agent.observed.scalars.update(id(optimizer), rates_of(optimizer, has_updated=False), reported)
        self.observe_given(optimizer, gradients if isinstance(gradients, (tuple, list)) else ())

    def _extent(self, optimizer: nn.Optimizer) -> tuple[int, ...]:
        # An optimizer creates all of its states in its constructor.
        return (id(optimizer),)

    def weights_of(self, optimizer: nn.Optimizer) -> Sequence[Any]:
        """Return the weights that an optimizer updates."""
        weights: Sequence[Any] = optimizer.parameters
        return weights

    def _states_of(self, optimizer: nn.Optimizer, names: Mapping[int, str]) -> Iterator[tuple[Callable[[], Any], str]]:
        weights = self.weights_of(optimizer)
        seen: set[int] = set()
        for attribute, states in vars(optimizer).items():
            is_states = isinstance(states, (tuple, list)) and len(states) == len(weights)
            if not is_states or attribute in _WEIGHTS or not all(isinstance(state, Parameter) for state in states):
                continue
            for weight, state in zip(weights, states, strict=True):
                name = names.get(id(weight))
                if name is not None and state is not weight and id(state) not in seen:
                    seen.add(id(state))
                    key = state.name.removesuffix(f".{weight.name}").replace(".", "_")
                    yield weakref.ref(state), f"{attribute if key == state.name else key}.{name}"

    def _has_gradient(self, weight: Any) -> bool:  # noqa: ARG002 - an optimizer always receives gradients
        return True
