"""The persistent tensors of a training: weights, buffers and optimizer states; and the gradients of weights."""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from tensight.agents.core.call_stack import user_stack
from tensight.agents.core.program import TracedNode
from tensight.garbage_collection import without_garbage_collection

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence, Set

    from tensight.agents.core.agent import Agent
    from tensight.agents.core.program import Role, Source, StackFrame
    from tensight.agents.eager.adapter import Named
    from tensight.agents.eager.names import Names
    from tensight.graph import OutputSlot

_ORDER: tuple[Role, ...] = ("weight", "frozen_weight", "buffer")


class Updated(NamedTuple):
    """A weight that an optimizer updates.

    Attributes
    ----------
    slot_id : int
        Slot id of its gradient.
    tensor : callable
        Returns the weight, None if it no longer exists.
    name : str
    """

    slot_id: int
    tensor: Callable[[], Any]
    name: str


class _Held(NamedTuple):
    """A persistent tensor, with its dtype and shape when it was first seen."""

    slot_id: int
    tensor: Callable[[], Any]
    name: str
    role: Role
    outline: OutputSlot
    read_slot_id: int
    """Slot id of its value before the step's update, an input of its node."""


class PersistentTensors(ABC):
    """Weights, buffers and optimizer states, and the gradients of weights: for every kind of capture.

    Parameters
    ----------
    agent : Agent
    names : Names
        Names of the models' tensors.

    Attributes
    ----------
    generation : int
        Grows whenever a tensor is added, or a weight turns out to be trained or frozen.
    idle : set of str
        Names of weights about which this step tells nothing, because no update had a gradient for them. A weight that
        an optimizer found without a gradient is not idle if it feeds trained layers with gradients switched on, or if
        no weight had a gradient: it really does not change.
    without_gradient : set of str
        Names of the weights that an optimizer has found without a gradient in this step.
    any_gradient : bool
        Whether a weight had a gradient in this step.
    """

    def __init__(self, agent: Agent, names: Names) -> None:
        self._agent = agent
        self._names = names
        self._outline = names.framework.outline
        self._version = names.framework.version
        self._optimizers: list[weakref.ref[Any]] = []
        self._seen: tuple[int, tuple[tuple[int, ...], ...]] = (-1, ())
        self._tensors: list[_Held] = []
        self._states: list[_Held] = []
        self._updated: dict[int, list[Updated | None]] = {}
        self._written: dict[int, list[_Held]] = {}
        self._versions: dict[int, int] = {}
        self._updating: set[int] = set()
        self._stacks: dict[int, tuple[StackFrame, ...]] = {}
        self._owned: set[int] = set()
        self._released: set[int] = set()
        self._trained: set[str] = set()
        self._reached: set[str] = set()
        self._passed_over: set[str] = set()
        self._knows_gradients = False
        self.generation = 0
        self.idle: set[str] = set()
        self.without_gradient: set[str] = set()
        self.any_gradient = False
        agent.observed.unwritten = self._unwritten

    @property
    def names_generation(self) -> int:
        """Grows whenever a model is added or freed, or its modules have changed."""
        return self._names.generation

    # --- what an adapter implements for its framework ---

    @abstractmethod
    def _extent(self, optimizer: Any) -> tuple[int, ...]:
        """Return numbers that change when an optimizer gets weights or states."""

    @abstractmethod
    def weights_of(self, optimizer: Any) -> Sequence[Any]:
        """Return the weights that an optimizer updates."""

    @abstractmethod
    def _states_of(self, optimizer: Any, names: Mapping[int, str]) -> Iterator[tuple[Callable[[], Any], str]]:
        """Yield the states of an optimizer, named after their weights, whose names are given by identity."""

    def _is_wrapped(self, optimizer: Any, other: Any) -> bool:  # noqa: ARG002 - for adapters that know
        """Whether one of two optimizers only wraps the other."""
        return False

    @abstractmethod
    def _has_gradient(self, weight: Any) -> bool:
        """Whether an optimizer may read a gradient of a weight."""

    def _holds_gradient(self, weight: Any) -> bool | None:  # noqa: ARG002 - for adapters that know
        """Whether a backward pass has reached a weight that no optimizer updates; None if that is unknown."""
        return None

    def _is_trained_elsewhere(self, weight: Any) -> bool:  # noqa: ARG002 - for adapters that know
        """Whether another thread trains a weight, at unknown times."""
        return False

    # --- optimizers ---

    @property
    def optimizers(self) -> list[Any]:
        """The known optimizers that still exist."""
        optimizers = [reference() for reference in self._optimizers]
        return [optimizer for optimizer in optimizers if optimizer is not None]

    def knows(self, optimizer: Any, *, is_updating: bool = False) -> bool:
        """Whether an optimizer trains one of the models; if so, add it to the known optimizers.

        Parameters
        ----------
        optimizer : object
        is_updating : bool
            Whether it is about to update. It then replaces a known optimizer that wraps it or is wrapped by it.
        """
        if any(reference() is optimizer for reference in self._optimizers):
            return True
        same = next((reference for reference in self._optimizers if self._is_wrapped(optimizer, reference())), None)
        if same is not None and not is_updating:
            return True
        if same is not None:
            self._optimizers.remove(same)
        updated = {id(weight) for weight in self.weights_of(optimizer)}
        if not any(named.is_parameter and id(named.tensor()) in updated for named in self._names.entries()):
            return False
        self._optimizers.append(weakref.ref(optimizer))
        # The identity may be that of one that is gone.
        for of_optimizers in (self._updated, self._written, self._stacks):
            of_optimizers.pop(id(optimizer), None)
        self._seen = (-1, ())
        return True

    def note_update(self, optimizer: Any) -> None:
        """Note the user's code that calls an optimizer's update."""
        if id(optimizer) not in self._stacks:
            self._stacks[id(optimizer)] = user_stack()

    def updated_by(self, optimizer: Any) -> Sequence[Updated | None]:
        """Return the weights that an optimizer updates, in its order; None for those that belong to no model."""
        if id(optimizer) not in self._updated:
            self._collect()
        return self._updated.get(id(optimizer), ())

    def reached(self, weight: Updated) -> None:
        """Note that a backward pass has reached a weight that an optimizer is about to update."""
        self._reached.add(weight.name)
        self._trained.add(weight.name)

    def passed_over(self, weight: Updated) -> None:
        """Note that an optimizer updates without a gradient for a weight that is not frozen."""
        self._passed_over.add(weight.name)

    # --- values ---

    @without_garbage_collection()
    def observe(
        self,
        feeding: Callable[[Set[str]], Container[str]] | None = None,
        without_gradients: Collection[str] = (),
        cut_off: Collection[str] = (),
    ) -> None:
        """Observe the current values of weights, buffers and states.

        Parameters
        ----------
        feeding : callable, optional
            Returns the names of the nodes and weights that feed the layers of the given trained weights.
        without_gradients : collection of str
            Names of weights that the step has read only with gradients switched off.
        cut_off : collection of str
            Names of weights that are known to feed trained layers, although no gradient reaches them.
        """
        self._collect()
        self._updating.clear()
        if not self._agent.capturing:
            self._reached.clear()
            self._passed_over.clear()
            return
        self._decide_roles(feeding, without_gradients, cut_off)
        needs, observe = self._agent.slot_table.needs, self._agent.observe
        for tensors in (self._tensors, self._states):
            for slot_id, tensor_now, _, _, _, _ in tensors:
                need = needs[slot_id]
                if need:
                    tensor = tensor_now()
                    if tensor is not None:
                        observe(slot_id, tensor, need)
        versions, version_of = self._versions, self._version
        for tensors in (self._tensors, *self._written.values()):
            for held in tensors:
                tensor = held.tensor()
                versions[held.slot_id] = -1 if tensor is None else version_of(tensor)

    def observe_given(self, optimizer: Any, gradients: Sequence[Any]) -> None:
        """Observe the gradients that are passed to an optimizer, and the tensors that it is about to write to.

        Parameters
        ----------
        optimizer : object
        gradients : sequence
            One for each of the weights that it updates, in their order; anything but a tensor means no gradient.
        """
        updated = self.updated_by(optimizer)
        self.observe_before_update(optimizer)
        if not self._agent.capturing:
            return
        needs, observe = self._agent.slot_table.needs, self._agent.observe
        tensor_type = self._names.framework.tensor_type
        for weight, gradient in zip(updated, gradients, strict=False):
            if weight is not None and needs[weight.slot_id] and isinstance(gradient, tensor_type):
                observe(weight.slot_id, gradient, needs[weight.slot_id])

    def observe_before_update(self, optimizer: Any) -> None:
        """Observe the tensors that an optimizer is about to write to, if the step cannot be explained without them.

        These are the values that the step has read. They are needed if an anomaly is new in this step, or if a weight
        has been written to since the last update.
        """
        self._updating.add(id(optimizer))
        if not self._agent.capturing:
            return
        agent, versions, version_of = self._agent, self._versions, self._version
        shows_news = agent.observed.shows_news
        for held in self._written.get(id(optimizer), ()):
            tensor = held.tensor()
            if tensor is None:
                continue
            is_written = versions.get(held.slot_id) != version_of(tensor)
            if shows_news or is_written or agent.was_written_unnoticed(held.slot_id, tensor):
                agent.observed.observe_once(held.read_slot_id, tensor)

    def _unwritten(self, slot_id: int) -> Any | None:
        """Return a weight that has not been written to since the last step was observed; None if that is uncertain.

        The writes of some optimizers do not change versions, so weights are uncertain once their update has begun.
        """
        held = next((held for held in self._tensors if held.slot_id == slot_id and held.role != "buffer"), None)
        tensor = None if held is None else held.tensor()
        if tensor is None or self._versions.get(slot_id) != self._version(tensor):
            return None
        writing = chain.from_iterable(self._written.get(optimizer, ()) for optimizer in self._updating)
        return None if any(written.slot_id == slot_id for written in writing) else tensor

    # --- nodes ---

    def nodes(self) -> Iterator[TracedNode]:
        """Yield the nodes of weights, buffers and states."""
        for held in (*self._tensors, *self._states):
            tensor = held.tensor()
            outline = held.outline if tensor is None else self._outline(tensor)
            yield TracedNode(held.name, "Parameter", held.role, outputs=(outline,))

    def gradient_nodes(
        self, sources: Mapping[str, tuple[Source | None, ...]], stacks: Mapping[str, tuple[StackFrame, ...]]
    ) -> Iterator[TracedNode]:
        """Yield the nodes of the gradients that optimizers read.

        Parameters
        ----------
        sources : mapping of str to tuple of Source
            Sources of each gradient, by the name of the weight.
        stacks : mapping of str to tuple of StackFrame
            The code that first reads each weight.
        """
        for name, weight in {weight.name: weight for _, weight in self._updates()}.items():
            tensor = weight.tensor()
            if tensor is not None and self._has_gradient(tensor):
                inputs, stack = sources.get(name, ()), stacks.get(name, ())
                outputs = (self._outline(tensor),)
                yield TracedNode(_gradient_name(name), "AccumulateGrad", "operator", inputs, outputs, stack)

    def update_nodes(self) -> Iterator[TracedNode]:
        """Yield the nodes of the optimizers' updates: weight, states, gradient.

        A weight that was frozen before it was ever trained has an update without a gradient, because it belongs to the
        optimizer. One that was frozen later has no update.
        """
        states: dict[str, list[Source]] = {}
        for held in self._states:
            states.setdefault(held.name.partition(".")[2], []).append((held.name, 0))
        numbers: dict[str, int] = {}
        for optimizer, (_, tensor_now, weight) in self._updates():
            tensor = tensor_now()
            reads_gradient = tensor is None or self._has_gradient(tensor)
            if not reads_gradient and weight in self._trained:
                continue
            type_ = f"Apply{type(optimizer).__name__}"
            name = f"Optimizer/{weight.replace('.', '/')}/{type_}-op"
            numbers[name] = numbers.get(name, -1) + 1
            read = ((_gradient_name(weight), 0),) if reads_gradient else ()
            inputs = ((weight, 0), *states.get(weight, ()), *read)
            stack = self._stacks.get(id(optimizer), ())
            yield TracedNode(f"{name}{numbers[name]}", type_, "operator", inputs, stack=stack)

    # --- collecting tensors ---

    def _updates(self) -> Iterator[tuple[Any, Updated]]:
        """Yield each weight that an optimizer updates, with the optimizer."""
        for optimizer in self.optimizers:
            for weight in self._updated.get(id(optimizer), ()):
                if weight is not None:
                    yield optimizer, weight

    @without_garbage_collection()
    def _collect(self) -> None:
        """Collect weights, buffers, states and optimizers, if anything has changed since the last time."""
        optimizers = self.optimizers
        now = self._names.generation, tuple(self._extent(optimizer) for optimizer in optimizers)
        if now == self._seen:
            return
        self._seen = now
        self.generation += 1
        named = {id(tensor): entry for entry in self._names.entries() if (tensor := entry.tensor()) is not None}
        owned = {id(weight) for optimizer in optimizers for weight in self.weights_of(optimizer)}
        self._released = ((self._released | self._owned) & named.keys()) - owned
        self._owned = owned
        tensors = [self._held(entry) for entry in named.values()]
        self._tensors = sorted(tensors, key=lambda held: _ORDER.index(held.role))
        self._states, self._updated, self._written = [], {}, {}
        by_identity = dict(zip(named, tensors, strict=True))
        names = {identity: entry.name for identity, entry in named.items()}
        for optimizer in optimizers:
            weights = [named.get(id(weight)) for weight in self.weights_of(optimizer)]
            self._updated[id(optimizer)] = [None if entry is None else self._with_gradient(entry) for entry in weights]
            states = [self._new(state, name, "state") for state, name in self._states_of(optimizer, names)]
            updated = (by_identity.get(id(weight)) for weight in self.weights_of(optimizer))
            self._written[id(optimizer)] = [*(held for held in updated if held is not None), *states]
            self._states += states
        self._agent.slot_table.change_roles({held.name: held.role for held in (*self._tensors, *self._states)})

    def _decide_roles(
        self,
        feeding: Callable[[Set[str]], Container[str]] | None,
        without_gradients: Collection[str],
        cut_off: Collection[str],
    ) -> None:
        """Determine which weights are trained, from their gradients and the weights of the optimizers."""
        changed: dict[str, Role] = {}
        elsewhere: set[str] = set()
        for index, held in enumerate(self._tensors):
            tensor = None if held.role == "buffer" else held.tensor()
            if tensor is None:
                continue
            if self._is_trained_elsewhere(tensor):
                elsewhere.add(held.name)
            elif self._never_owned(tensor) and held.name not in self._reached and self._holds_gradient(tensor):
                self._reached.add(held.name)
                self._trained.add(held.name)
            role = self._role(tensor, held.name)
            if role != held.role:
                self._tensors[index] = held._replace(role=role)
                changed[held.name] = role
        self.idle = self._trained - self._reached if self._knows_gradients else set()
        self.idle |= elsewhere - self._reached
        self._decide_idle(feeding, without_gradients, cut_off)
        self.without_gradient, self.any_gradient = set(self._passed_over), bool(self._reached)
        self._reached.clear()
        self._passed_over.clear()
        if changed:
            self.generation += 1
            self._agent.slot_table.change_roles(changed)

    def _decide_idle(
        self,
        feeding: Callable[[Set[str]], Container[str]] | None,
        without_gradients: Collection[str],
        cut_off: Collection[str],
    ) -> None:
        """Determine which of the weights that optimizers have found without a gradient are idle."""
        if not self._passed_over or feeding is None:
            return
        if not self._reached:
            self.idle -= self._passed_over
            return
        self.idle |= self._passed_over
        feeds = feeding(self._reached)
        self.idle -= {name for name in self._passed_over if name in feeds and name not in without_gradients}
        self.idle.difference_update(cut_off)

    def _never_owned(self, weight: Any) -> bool:
        """Whether no optimizer was ever given a weight. A weight whose optimizer is gone is not expected to change."""
        return id(weight) not in self._owned and id(weight) not in self._released

    def _role(self, weight: Any, name: str) -> Role:
        """Return whether a weight is trained or frozen, as far as that is known."""
        if not weight.requires_grad:
            return "frozen_weight"
        is_trained = id(weight) in self._owned or name in self._trained or not self._knows_gradients
        return "weight" if is_trained or self._holds_gradient(weight) is None else "frozen_weight"

    def _held(self, entry: Named) -> _Held:
        role: Role = self._role(entry.tensor(), entry.name) if entry.is_parameter else "buffer"
        return self._new(entry.tensor, entry.name, role)

    def _new(self, tensor: Callable[[], Any], name: str, role: Role) -> _Held:
        slot_table = self._agent.slot_table
        node = slot_table.node(name, "Parameter", role)
        slot_id, read_slot_id = slot_table.slot_id(node, 0), slot_table.slot_id(node, 0, "input")
        return _Held(slot_id, tensor, name, role, self._outline(tensor()), read_slot_id)

    def _with_gradient(self, weight: Named) -> Updated:
        slot_table = self._agent.slot_table
        slot_id = slot_table.slot_id(slot_table.node(_gradient_name(weight.name), "AccumulateGrad"), 0)
        return Updated(slot_id, weight.tensor, weight.name)


def _gradient_name(weight: str) -> str:
    return f"Gradients/Default/{weight.replace('.', '/')}/AccumulateGrad-op0"
