"""Weights, buffers, the gradients that optimizers read, and the optimizers' states: the same whatever is captured."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from tensight.agents.call_stack import user_stack
from tensight.agents.program import TracedNode
from tensight.agents.torch.arrays import outline

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tensight.agents.agent import Agent
    from tensight.agents.program import Role, Source, StackFrame
    from tensight.agents.torch.names import Names, TensorEntry

# Counts what the training counts, too.
_NOT_OBSERVED = frozenset({"step"})


class _Held(NamedTuple):
    """A tensor that a dictionary holds: a module's, or an optimizer's state of a weight."""

    place: int
    holder: Mapping[Any, Any]
    key: str
    name: str
    role: Role


class Parameters:
    """Everything that outlives a step, and the gradients of weights.

    Parameters
    ----------
    agent : Agent
    names : Names
        Of the models.

    Attributes
    ----------
    generation : int
        Grows whenever there is something new among them.
    """

    def __init__(self, agent: Agent, names: Names) -> None:
        self._agent = agent
        self._names = names
        self._optimizers: list[weakref.ref[torch.optim.Optimizer]] = []
        self._seen: tuple[int, tuple[tuple[int, ...], ...]] = (-1, ())
        self._tensors: list[_Held] = []
        self._states: list[_Held] = []
        self._gradients: dict[int, list[tuple[int, TensorEntry]]] = {}
        self._outlines: dict[str, Any] = {}
        self._stacks: dict[int, tuple[StackFrame, ...]] = {}
        self.generation = 0

    @property
    def names_generation(self) -> int:
        """Grows whenever a model comes or goes."""
        return self._names.generation

    def add_optimizer(self, optimizer: torch.optim.Optimizer) -> bool:
        """Take an optimizer into account; return whether it is new and trains one of the models."""
        if any(known() is optimizer for known in self._optimizers):
            return False
        updated = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
        if not self._names.holds_any(updated):
            return False
        self._optimizers.append(weakref.ref(optimizer))
        self._seen = (-1, ())
        return True

    def note_update(self, optimizer: torch.optim.Optimizer) -> None:
        """Note which code has an optimizer update its weights."""
        if id(optimizer) not in self._stacks:
            self._stacks[id(optimizer)] = user_stack()

    def observe(self) -> None:
        """Observe weights, buffers and states as they are now."""
        self._look()
        if not self._agent.capturing:
            return
        needs, observe = self._agent.places.needs, self._agent.observe
        for held in (self._tensors, self._states):
            for place, holder, key, _, _ in held:
                need = needs[place]
                if need:
                    tensor = holder.get(key)
                    if tensor is not None:
                        observe(place, tensor, need)

    def observe_gradients(self, optimizer: torch.optim.Optimizer) -> None:
        """Observe the gradients that an optimizer is about to read."""
        if not self._agent.capturing:
            return
        if id(optimizer) not in self._gradients:
            self._look()
        needs, observe = self._agent.places.needs, self._agent.observe
        for place, entry in self._gradients.get(id(optimizer), ()):
            need = needs[place]
            if need:
                tensor = entry.holder.get(entry.key)
                gradient = None if tensor is None else tensor.grad
                if gradient is not None:
                    observe(place, gradient, need)

    def nodes(self) -> list[TracedNode]:
        """Return the nodes of weights, buffers and states."""
        return [
            TracedNode(held.name, "Parameter", held.role, outputs=(self._outline(held),))
            for held in (*self._tensors, *self._states)
        ]

    def gradient_nodes(
        self, sources: Mapping[str, tuple[Source | None, ...]], stacks: Mapping[str, tuple[StackFrame, ...]]
    ) -> Iterator[TracedNode]:
        """Yield the nodes of the gradients that optimizers read.

        Parameters
        ----------
        sources : mapping of str to tuple of Source
            From what each was computed, by the name of the weight.
        stacks : mapping of str to tuple of StackFrame
            The code that first reads each weight.
        """
        for entry in self._updated():
            tensor = entry.holder.get(entry.key)
            if tensor is not None and tensor.requires_grad:
                yield TracedNode(
                    _gradient_name(entry),
                    "AccumulateGrad",
                    "operator",
                    sources.get(entry.name, ()),
                    (outline(tensor),),
                    stacks.get(entry.name, ()),
                )

    def update_nodes(self) -> Iterator[TracedNode]:
        """Yield the nodes of the optimizers' updates: weight, states, gradient."""
        states: dict[str, list[Source]] = {}
        for held in self._states:
            states.setdefault(held.name.partition(".")[2], []).append((held.name, 0))
        updates: dict[str, int] = {}
        for optimizer in self.optimizers:
            for _, entry in self._gradients.get(id(optimizer), ()):
                type_ = f"Apply{type(optimizer).__name__}"
                name = f"Optimizer/{entry.name.replace('.', '/')}/{type_}-op"
                updates[name] = updates.get(name, -1) + 1
                yield TracedNode(
                    f"{name}{updates[name]}",
                    type_,
                    "operator",
                    ((entry.name, 0), *states.get(entry.name, ()), (_gradient_name(entry), 0)),
                    stack=self._stacks.get(id(optimizer), ()),
                )

    # --- what there is ---

    def _look(self) -> None:
        """Find out what there is, if anything was added since the last time."""
        optimizers = self.optimizers
        now = self._names.generation, tuple(_extent(optimizer) for optimizer in optimizers)
        if now == self._seen:
            return
        self._seen = now
        self.generation += 1
        entries = {id(entry.holder[entry.key]): entry for entry in self._names.entries()}
        updated = {
            id(parameter)
            for optimizer in optimizers
            for group in optimizer.param_groups
            for parameter in group["params"]
        }
        self._tensors = [self._held(entry, identity in updated) for identity, entry in entries.items()]
        self._tensors.sort(key=lambda held: ("weight", "frozen_weight", "buffer").index(held.role))
        self._states = []
        self._gradients = {}
        for optimizer in optimizers:
            self._gradients[id(optimizer)] = list(self._gradients_of(optimizer, entries))
            self._states += self._states_of(optimizer, entries)

    def _held(self, entry: TensorEntry, is_updated: bool) -> _Held:
        tensor = entry.holder[entry.key]
        role: Role = "buffer"
        if entry.is_parameter:
            trains = is_updated or (tensor is not None and tensor.requires_grad)
            role = "weight" if trains else "frozen_weight"
        return self._new(entry.holder, entry.key, entry.name, role)

    def _new(self, holder: Mapping[Any, Any], key: str, name: str, role: Role) -> _Held:
        places = self._agent.places
        return _Held(places.place(places.node(name, "Parameter", role), 0), holder, key, name, role)

    def _gradients_of(
        self, optimizer: torch.optim.Optimizer, entries: Mapping[int, TensorEntry]
    ) -> Iterator[tuple[int, TensorEntry]]:
        places = self._agent.places
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                entry = entries.get(id(parameter))
                if entry is not None:
                    yield places.place(places.node(_gradient_name(entry), "AccumulateGrad"), 0), entry

    def _states_of(self, optimizer: torch.optim.Optimizer, entries: Mapping[int, TensorEntry]) -> Iterator[_Held]:
        for parameter, states in optimizer.state.items():
            entry = entries.get(id(parameter))
            if entry is not None and isinstance(states, dict):
                for key, state in states.items():
                    if isinstance(state, torch.Tensor) and key not in _NOT_OBSERVED:
                        yield self._new(states, key, f"{key}.{entry.name}", "state")

    def _updated(self) -> Iterator[TensorEntry]:
        """Yield each weight that an optimizer updates once."""
        seen = set()
        for optimizer in self.optimizers:
            for _, entry in self._gradients.get(id(optimizer), ()):
                if entry.name not in seen:
                    seen.add(entry.name)
                    yield entry

    @property
    def optimizers(self) -> list[torch.optim.Optimizer]:
        """Those that were added and are still there."""
        found = [reference() for reference in self._optimizers]
        return [optimizer for optimizer in found if optimizer is not None]

    def _outline(self, held: _Held) -> Any:
        tensor = held.holder.get(held.key)
        return self._outlines.get(held.name) if tensor is None else outline(tensor)


def _gradient_name(entry: TensorEntry) -> str:
    return f"Gradients/Default/{entry.name.replace('.', '/')}/AccumulateGrad-op0"


def _extent(optimizer: torch.optim.Optimizer) -> tuple[int, ...]:
    """Return numbers that change when an optimizer gets parameters or states."""
    states = optimizer.state
    first = next(iter(states.values()), ())
    groups = optimizer.param_groups
    return (
        id(optimizer),
        id(states),
        len(states),
        len(first),
        len(groups),
        sum(len(group["params"]) for group in groups),
    )
