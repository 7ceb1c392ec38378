"""Which tensor of a step is which slot, and what was computed from which others, by the links of the backward pass."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, Generic, NamedTuple

from tensight.agents.eager.calls import AnySlot, Reading

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping

    from tensight.agents.eager.adapter import GradientEdge
    from tensight.agents.eager.names import Names

SCRIPT = "Script"
"""Type of what is computed outside of all modules."""

_MOST_FUNCTIONS = 20_000
"""Of the backward pass that are walked through to find where a tensor comes from."""

MOST_SOURCES = 64
"""Of one operation."""


class Passed(NamedTuple):
    """Where a walk through the functions of the backward pass has come by.

    Attributes
    ----------
    edges : list of GradientEdge
        Of functions that no operation of the step stands for.
    has_unknown_end : bool
        Whether it has ended with a tensor that is no weight of a known model.
    """

    edges: list[GradientEdge]
    has_unknown_end: bool


class StepTensors(Generic[AnySlot]):
    """The tensors of a step, by their identity and by what has computed them.

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
        # With the function, which lives as long as it is here: another one could get its key.
        self._by_edge: dict[Hashable, tuple[AnySlot, Any]] = {}
        self._counts: dict[tuple[str, str], int] = {}

    @property
    def weights(self) -> Mapping[Any, str]:
        """Names of weights and buffers by the identity of the tensor; models may come while a step runs."""
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
        """Return the slot of a tensor; None if it is not known, or was written to since.

        Parameters
        ----------
        tensor : object
        written : bool
            Whether who asks has written to it, so that this is to be expected.
        """
        slot = self._slots.get(id(tensor))
        if slot is None or slot.reference is None or slot.reference() is not tensor:
            return None
        return slot if written or slot.version == self._framework.version(tensor) else None

    def is_written(self, tensor: Any) -> bool:
        """Whether a tensor is known, and somebody has written to it since."""
        return self.find(tensor) is None and self.find(tensor, written=True) is not None

    def know(self, slot: AnySlot, tensor: Any) -> None:
        """Note which tensor stands in a slot from now on."""
        slot.reference = weakref.ref(tensor)
        slot.version = self._framework.version(tensor)
        self.remember(slot, tensor)

    def remember(self, slot: AnySlot, tensor: Any) -> None:
        """Note which tensor stands in a slot since it was seen there."""
        self._slots[id(tensor)] = slot
        # What has computed one that was written to since is not what has computed these values.
        edge = self._framework.edge(tensor) if slot.version == self._framework.version(tensor) else None
        if edge is not None:
            self._by_edge[edge.key] = slot, edge.function

    def release(self) -> None:
        """Hold no function of the backward pass any more: one is about to free them, with what they have saved."""
        self._by_edge = {key: (slot, None) for key, (slot, _) in self._by_edge.items()}

    def _computed_by(self, edge: GradientEdge) -> AnySlot | None:
        """Return the slot of what a function has computed; None if no slot is known to be that."""
        slot, function = self._by_edge.get(edge.key, (None, None))
        if slot is None or function is not None:
            return slot
        # It lives at least as long as the tensor that it has computed.
        return slot if slot.reference is not None and slot.reference() is not None else None

    def read_through(
        self, reading: Reading[AnySlot], tensors: Iterable[Any], weight_at: Callable[[Hashable], str | None]
    ) -> Passed:
        """Add as inputs what tensors were computed from, found by walking through the functions of the backward pass.

        Parameters
        ----------
        reading : Reading
        tensors : iterable
        weight_at : callable (end) -> str or None
            Returns the name of the weight with which the backward pass ends somewhere, by what
            `EagerFramework.weight_at` returns.
        """
        framework = self._framework
        waiting = [edge for tensor in tensors if (edge := framework.edge(tensor)) is not None]
        seen = {edge.key for edge in waiting}
        found: dict[AnySlot | str, None] = {}
        passed = Passed([], has_unknown_end=False)
        for edge in waiting:
            slot = self._computed_by(edge)
            if slot is not None:
                found[slot] = None
            elif (end := framework.weight_at(edge)) is not None:
                name = weight_at(end)
                if name is None:
                    passed = passed._replace(has_unknown_end=True)
                else:
                    found[name] = None
            else:
                passed.edges.append(edge)
                new = [one for one in framework.edges_into(edge) if one.key not in seen]
                seen.update(one.key for one in new)
                waiting += new
            if len(seen) > _MOST_FUNCTIONS or len(found) >= MOST_SOURCES:
                break
        # The backward pass is walked backwards; people read forwards.
        for source in reversed(found):
            if isinstance(source, str):
                reading.reads_weight(source)
            else:
                reading.reads(source)
        return passed
