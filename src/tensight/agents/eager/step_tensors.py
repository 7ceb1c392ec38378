"""Maps the tensors of a step to slots, and finds their sources by the links of the backward pass."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, Generic, NamedTuple

from tensight.agents.eager.calls import AnySlot, Reading

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping

    from tensight.agents.eager.adapter import GradientEdge
    from tensight.agents.eager.names import Names

SCRIPT = "Script"
"""Type of the nodes that are computed outside all modules."""

_MOST_FUNCTIONS = 20_000
"""Limit of the autograd functions that are visited to find the sources of a tensor."""

MOST_SOURCES = 64
"""Limit of the sources of an operation."""


class Passed(NamedTuple):
    """The result of a walk through the functions of the backward pass.

    Attributes
    ----------
    edges : list of GradientEdge
        The visited edges whose functions belong to no operation of the step.
    has_unknown_end : bool
        Whether the walk has reached a tensor that is not a weight of a known model.
    """

    edges: list[GradientEdge]
    has_unknown_end: bool


class StepTensors(Generic[AnySlot]):
    """The tensors of a step, by their identity and by the functions that computed them.

    Parameters
    ----------
    names : Names
    """

    def __init__(self, names: Names) -> None:
        self._names = names
        self._framework = names.framework
        self._weights: Mapping[Any, str] = {}
        self._weights_generation = -1
        self._slots: dict[int, AnySlot] = {}
        # A reference to the function keeps its key from being reused, if it may be.
        self._by_edge: dict[Hashable, tuple[AnySlot, Any]] = {}
        self._counts: dict[tuple[str, str], int] = {}

    @property
    def weights(self) -> Mapping[Any, str]:
        """Names of weights and buffers by the identity of the tensor; up to date even if models are added in a step."""
        if self._weights_generation != self._names.generation:
            self._weights_generation = self._names.generation
            self._weights = self._names.tensor_names()
        return self._weights

    def clear(self) -> None:
        """Forget the step."""
        self._slots.clear()
        self._by_edge.clear()
        self._counts.clear()

    def count(self, scope: str, type_: str) -> int:
        """Count an operation of a type in a scope, and return how many came before it."""
        number = self._counts.get((scope, type_), 0)
        self._counts[scope, type_] = number + 1
        return number

    def find(self, tensor: Any, *, written: bool = False) -> AnySlot | None:
        """Return the slot of a tensor; None if it is not known, or has been written to since.

        Parameters
        ----------
        tensor : object
        written : bool
            Whether to return the slot also if the tensor has been written to.
        """
        slot = self._slots.get(id(tensor))
        if slot is None or slot.reference is None or slot.reference() is not tensor:
            return None
        return slot if written or slot.version == self._framework.version(tensor) else None

    def is_written(self, tensor: Any) -> bool:
        """Whether a tensor is known, and has been written to since."""
        return self.find(tensor) is None and self.find(tensor, written=True) is not None

    def know(self, slot: AnySlot, tensor: Any) -> None:
        """Note the tensor of a slot, with its current version."""
        slot.reference = weakref.ref(tensor)
        slot.version = self._framework.version(tensor)
        self.remember(slot, tensor)

    def remember(self, slot: AnySlot, tensor: Any) -> None:
        """Note the tensor of a slot that was seen earlier."""
        self._slots[id(tensor)] = slot
        # If the tensor has been written to since, its function is not the one that computed the slot's values.
        edge = self._framework.edge(tensor) if slot.version == self._framework.version(tensor) else None
        if edge is not None:
            self._by_edge[edge.key] = slot, True if edge.is_unique else edge.function

    def release(self) -> None:
        """Drop all references to autograd functions: a backward pass is about to free them and their saved tensors."""
        self._by_edge = {key: (slot, None) for key, (slot, _) in self._by_edge.items()}

    def _computed_by(self, edge: GradientEdge) -> AnySlot | None:
        """Return the slot of the tensor that a function has computed; None if it is not known."""
        slot, function = self._by_edge.get(edge.key, (None, None))
        if slot is None or function is not None:
            return slot
        # The function lives at least as long as the tensor that it has computed.
        return slot if slot.reference is not None and slot.reference() is not None else None

    def read_through(
        self, reading: Reading[AnySlot], tensors: Iterable[Any], weight_at: Callable[[Hashable], str | None]
    ) -> Passed:
        """Add the sources of tensors as inputs, found by walking through the functions of the backward pass.

        Parameters
        ----------
        reading : Reading
            The inputs, which are extended.
        tensors : iterable
        weight_at : callable (end) -> str or None
            Returns the name of a weight by the key that `EagerFramework.weight_at` returns for it.
        """
        framework = self._framework
        waiting = [edge for tensor in tensors if (edge := framework.edge(tensor)) is not None]
        seen = {edge.key for edge in waiting}
        sources: dict[AnySlot | str, None] = {}
        passed = Passed([], has_unknown_end=False)
        for edge in waiting:
            slot = self._computed_by(edge)
            if slot is not None:
                sources[slot] = None
            elif (end := framework.weight_at(edge)) is not None:
                name = weight_at(end)
                if name is None:
                    passed = passed._replace(has_unknown_end=True)
                else:
                    sources[name] = None
            else:
                passed.edges.append(edge)
                new = [input_edge for input_edge in framework.edges_into(edge) if input_edge.key not in seen]
                seen.update(input_edge.key for input_edge in new)
                waiting += new
            if len(seen) > _MOST_FUNCTIONS or len(sources) >= MOST_SOURCES:
                break
        # The walk goes backwards; inputs are listed in the order of execution.
        for source in reversed(sources):
            if isinstance(source, str):
                reading.reads_weight(source)
            else:
                reading.reads(source)
        return passed
