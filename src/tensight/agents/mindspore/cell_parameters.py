"""Parameters, buffers, the gradients that optimizers read, and the optimizers' states."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, NamedTuple

from mindspore import Parameter, Tensor

from tensight.agents.call_stack import user_stack
from tensight.agents.mindspore.arrays import outline
from tensight.agents.program import TracedNode

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from mindspore import nn

    from tensight.agents.agent import Agent
    from tensight.agents.mindspore.cell_names import CellNames, ParameterEntry
    from tensight.agents.program import Role, Source, StackFrame
    from tensight.graph import OutputSlot

# Under which names an optimizer holds the weights themselves.
_WEIGHTS = frozenset({"parameters", "_parameters", "params", "cache_enable"})


class _Held(NamedTuple):
    """A tensor that outlives steps."""

    place: int
    reference: weakref.ref[Any]
    name: str
    role: Role
    outline: OutputSlot


class CellParameters:
    """Everything that outlives a step, and the gradients of weights.

    Parameters
    ----------
    agent : Agent
    names : CellNames
        Of the networks.

    Attributes
    ----------
    generation : int
        Grows whenever there is something new among them.
    """

    def __init__(self, agent: Agent, names: CellNames) -> None:
        self._agent = agent
        self._names = names
        self._optimizers: list[weakref.ref[nn.Optimizer]] = []
        self._seen: tuple[int, tuple[int, ...]] = (-1, ())
        self._tensors: list[_Held] = []
        self._states: list[_Held] = []
        self._gradients: dict[int, list[tuple[int, str, OutputSlot] | None]] = {}
        self._stacks: dict[int, tuple[StackFrame, ...]] = {}
        self.generation = 0

    @property
    def optimizers(self) -> list[nn.Optimizer]:
        """Those that were added and are still there."""
        found = [reference() for reference in self._optimizers]
        return [optimizer for optimizer in found if optimizer is not None]

    def knows(self, optimizer: nn.Optimizer) -> bool:
        """Whether an optimizer trains one of the networks; it is taken into account from now on."""
        if any(known() is optimizer for known in self._optimizers):
            return True
        named = self._names.tensor_names()
        if not any(id(parameter) in named for parameter in optimizer.parameters):
            return False
        self._optimizers.append(weakref.ref(optimizer))
        return True

    def observe(self) -> None:
        """Observe weights, buffers and states as they are now."""
        self._look()
        if not self._agent.capturing:
            return
        needs, observe = self._agent.places.needs, self._agent.observe
        for held in (*self._tensors, *self._states):
            need = needs[held.place]
            if need:
                tensor = held.reference()
                if tensor is not None:
                    observe(held.place, tensor, need)

    def observe_gradients(self, optimizer: nn.Optimizer, gradients: Any) -> None:
        """Observe the gradients that an optimizer is about to read, and note which code has it update."""
        if id(optimizer) not in self._stacks:
            self._stacks[id(optimizer)] = user_stack()
        if id(optimizer) not in self._gradients:
            self._look()
        if not self._agent.capturing or not isinstance(gradients, (tuple, list)):
            return
        needs, observe = self._agent.places.needs, self._agent.observe
        for known, gradient in zip(self._gradients.get(id(optimizer), ()), gradients, strict=False):
            if known is not None and needs[known[0]] and isinstance(gradient, Tensor):
                observe(known[0], gradient, needs[known[0]])

    def nodes(self) -> Iterator[TracedNode]:
        """Yield the nodes of weights, buffers and states."""
        for held in (*self._tensors, *self._states):
            yield TracedNode(held.name, "Parameter", held.role, outputs=(held.outline,))

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
        seen = set()
        for known in self._updated():
            _, name, shape = known
            if name not in seen:
                seen.add(name)
                own, stack = sources.get(name, ()), stacks.get(name, ())
                yield TracedNode(_gradient_name(name), "AccumulateGrad", "operator", own, (shape,), stack)

    def update_nodes(self) -> Iterator[TracedNode]:
        """Yield the nodes of the optimizers' updates: weight, states, gradient."""
        states: dict[str, list[Source]] = {}
        for held in self._states:
            states.setdefault(held.name.partition(".")[2], []).append((held.name, 0))
        numbers: dict[str, int] = {}
        for optimizer in self.optimizers:
            for known in self._gradients.get(id(optimizer), ()):
                if known is not None:
                    weight = known[1]
                    type_ = f"Apply{type(optimizer).__name__}"
                    name = f"Optimizer/{weight.replace('.', '/')}/{type_}-op"
                    numbers[name] = numbers.get(name, -1) + 1
                    inputs = ((weight, 0), *states.get(weight, ()), (_gradient_name(weight), 0))
                    stack = self._stacks.get(id(optimizer), ())
                    yield TracedNode(f"{name}{numbers[name]}", type_, "operator", inputs, stack=stack)

    # --- what there is ---

    def _updated(self) -> Iterator[tuple[int, str, OutputSlot]]:
        for optimizer in self.optimizers:
            for known in self._gradients.get(id(optimizer), ()):
                if known is not None:
                    yield known

    def _look(self) -> None:
        """Find out what there is, if anything was added since the last time."""
        optimizers = self.optimizers
        now = self._names.generation, tuple(map(id, optimizers))
        if now == self._seen:
            return
        self._seen = now
        self.generation += 1
        entries = {id(tensor): (tensor, entry) for tensor, entry in self._names.entries()}
        updated = {id(parameter) for optimizer in optimizers for parameter in optimizer.parameters}
        tensors = [self._held(tensor, entry, id(tensor) in updated) for tensor, entry in entries.values()]
        self._tensors = sorted(tensors, key=lambda held: ("weight", "frozen_weight", "buffer").index(held.role))
        self._states, self._gradients = [], {}
        for optimizer in optimizers:
            named = [entries.get(id(parameter)) for parameter in optimizer.parameters]
            self._gradients[id(optimizer)] = [None if one is None else self._gradient(*one) for one in named]
            self._states += self._states_of(optimizer, named)

    def _held(self, tensor: Any, entry: ParameterEntry, is_updated: bool) -> _Held:
        role: Role = "buffer"
        if entry.is_parameter:
            role = "weight" if is_updated or tensor.requires_grad else "frozen_weight"
        return self._new(tensor, entry.name, role)

    def _new(self, tensor: Any, name: str, role: Role) -> _Held:
        places = self._agent.places
        place = places.place(places.node(name, "Parameter", role), 0)
        return _Held(place, weakref.ref(tensor), name, role, outline(tensor))

    def _gradient(self, tensor: Any, entry: ParameterEntry) -> tuple[int, str, OutputSlot]:
        places = self._agent.places
        place = places.place(places.node(_gradient_name(entry.name), "AccumulateGrad"), 0)
        return place, entry.name, outline(tensor)

    def _states_of(
        self, optimizer: nn.Optimizer, named: Sequence[tuple[Any, ParameterEntry] | None]
    ) -> Iterator[_Held]:
        seen: set[int] = set()
        for attribute, states in vars(optimizer).items():
            is_states = isinstance(states, (tuple, list)) and len(states) == len(named)
            if not is_states or attribute in _WEIGHTS or not all(isinstance(one, Parameter) for one in states):
                continue
            for known, state in zip(named, states, strict=True):
                if known is not None and state is not known[0] and id(state) not in seen:
                    seen.add(id(state))
                    weight, entry = known
                    key = state.name.removesuffix(f".{weight.name}").replace(".", "_")
                    yield self._new(state, f"{attribute if key == state.name else key}.{entry.name}", "state")


def _gradient_name(weight: str) -> str:
    return f"Gradients/Default/{weight.replace('.', '/')}/AccumulateGrad-op0"
