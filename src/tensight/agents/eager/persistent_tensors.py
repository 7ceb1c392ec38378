"""The persistent tensors of a training: weights, buffers and optimizer states; and the gradients of weights."""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from tensight.agents.call_stack import user_stack
from tensight.agents.program import TracedNode

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence, Set

    from tensight.agents.agent import Agent
    from tensight.agents.eager.adapter import Named
    from tensight.agents.eager.names import Names
    from tensight.agents.program import Role, Source, StackFrame
    from tensight.graph import OutputSlot

_ORDER: tuple[Role, ...] = ("weight", "frozen_weight", "buffer")


class Updated(NamedTuple):
    """A weight that an optimizer updates.

    Attributes
    ----------
    slot_id : int
        Of its gradient.
    tensor : callable
        Returns the weight, None if there is none any more.
    name : str
    """

    slot_id: int
    tensor: Callable[[], Any]
    name: str


class _Held(NamedTuple):
    """A persistent tensor, dtype and shape as they were when it was found."""

    slot_id: int
    tensor: Callable[[], Any]
    name: str
    role: Role
    outline: OutputSlot
    read_slot_id: int
    """Of its value before the step's update, an input of its node."""


class PersistentTensors(ABC):
    """Weights, buffers and optimizer states, and the gradients of weights: the same whatever is captured.

    Parameters
    ----------
    agent : Agent
    names : Names
        Of the models.

    Attributes
    ----------
    generation : int
        Grows whenever there is something new among them, or a weight turns out to be trained, or not.
    idle : set of str
        Names of weights of which this step says nothing: no update has a gradient for them. Those that an optimizer
        has looked for in vain, and that go into trained layers, are none, unless gradients were switched off there:
        they stand still.
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
        self._trained: set[str] = set()
        self._reached: set[str] = set()
        self._passed_over: set[str] = set()
        self._knows_gradients = False
        self.generation = 0
        self.idle: set[str] = set()
        agent.unwritten = self._unwritten

    @property
    def names_generation(self) -> int:
        """Grows whenever a model comes or goes, or is seen to have other modules than before."""
        return self._names.generation

    # --- what an adapter says of its framework ---

    @abstractmethod
    def _extent(self, optimizer: Any) -> tuple[int, ...]:
        """Return numbers that change when an optimizer gets weights or states."""

    @abstractmethod
    def weights_of(self, optimizer: Any) -> Sequence[Any]:
        """Return what an optimizer updates."""

    @abstractmethod
    def _states_of(self, optimizer: Any, names: Mapping[int, str]) -> Iterator[tuple[Callable[[], Any], str]]:
        """Yield the states of an optimizer, named after their weights, whose names are given by identity."""

    def _is_wrapped(self, optimizer: Any, other: Any) -> bool:  # noqa: ARG002 - for those who know
        """Whether one of two optimizers only hands on to the other what it is asked to do."""
        return False

    @abstractmethod
    def _has_gradient(self, weight: Any) -> bool:
        """Whether an optimizer may read a gradient of a weight."""

    def _holds_gradient(self, weight: Any) -> bool | None:  # noqa: ARG002 - for those who know
        """Whether a backward pass has reached a weight that no optimizer updates; None where nobody can know."""
        return None

    def _is_trained_elsewhere(self, weight: Any) -> bool:  # noqa: ARG002 - for those who know
        """Whether another thread trains a weight, so that nobody here knows when."""
        return False

    # --- optimizers ---

    @property
    def optimizers(self) -> list[Any]:
        """Those that were added and are still there."""
        found = [reference() for reference in self._optimizers]
        return [optimizer for optimizer in found if optimizer is not None]

    def knows(self, optimizer: Any, *, is_updating: bool = False) -> bool:
        """Whether an optimizer trains one of the networks; it is taken into account from now on.

        Parameters
        ----------
        optimizer : object
        is_updating : bool
            It is just going to update: of those that wrap each other, it is the one that does.
        """
        if any(known() is optimizer for known in self._optimizers):
            return True
        same = next((known for known in self._optimizers if self._is_wrapped(optimizer, known())), None)
        if same is not None and not is_updating:
            return True
        if same is not None:
            self._optimizers.remove(same)
        updated = {id(weight) for weight in self.weights_of(optimizer)}
        if not any(named.is_parameter and id(named.tensor()) in updated for named in self._names.entries()):
            return False
        self._optimizers.append(weakref.ref(optimizer))
        self._seen = (-1, ())
        return True

    def note_update(self, optimizer: Any) -> None:
        """Note which code has an optimizer update its weights."""
        if id(optimizer) not in self._stacks:
            self._stacks[id(optimizer)] = user_stack()

    def updated_by(self, optimizer: Any) -> Sequence[Updated | None]:
        """Return the weights that an optimizer updates, in its order; None for what belongs to no network."""
        if id(optimizer) not in self._updated:
            self._collect()
        return self._updated.get(id(optimizer), ())

    def reached(self, weight: Updated) -> None:
        """Note that a backward pass has reached a weight that an optimizer is about to update."""
        self._reached.add(weight.name)
        self._trained.add(weight.name)

    def passed_over(self, weight: Updated) -> None:
        """Note that an optimizer updates without a gradient of a weight that is not frozen."""
        self._passed_over.add(weight.name)

    # --- values ---

    def observe(
        self, feeding: Callable[[Set[str]], Container[str]] | None = None, without_gradients: Collection[str] = ()
    ) -> None:
        """Observe weights, buffers and states as they are now.

        Parameters
        ----------
        feeding : callable, optional
            Returns, given weights that are trained, the names of what goes into their layers.
        without_gradients : collection of str
            Names of weights that the step has read only where gradients were switched off.
        """
        self._collect()
        self._updating.clear()
        if not self._agent.capturing:
            self._reached.clear()
            self._passed_over.clear()
            return
        self._decide_roles(feeding, without_gradients)
        needs, observe = self._agent.slot_table.needs, self._agent.observe
        for held in (self._tensors, self._states):
            for slot_id, tensor_now, _, _, _, _ in held:
                need = needs[slot_id]
                if need:
                    tensor = tensor_now()
                    if tensor is not None:
                        observe(slot_id, tensor, need)
        versions, version_of = self._versions, self._version
        for held in (self._tensors, *self._written.values()):
            for one in held:
                tensor = one.tensor()
                versions[one.slot_id] = -1 if tensor is None else version_of(tensor)

    def observe_given(self, optimizer: Any, gradients: Sequence[Any]) -> None:
        """Observe the gradients that an optimizer is given, and what it is about to write to.

        Parameters
        ----------
        optimizer : object
        gradients : sequence
            One for each of the weights that it updates, in their order; what is no tensor stands for none.
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
        """Observe what an optimizer is about to write to, where only that explains the step: the values it has read.

        That is so where something is wrong that was not in the step before, and where somebody has written to a weight
        since the last update.
        """
        self._updating.add(id(optimizer))
        if not self._agent.capturing:
            return
        agent, versions, version_of = self._agent, self._versions, self._version
        shows_news = agent.shows_news
        for held in self._written.get(id(optimizer), ()):
            tensor = held.tensor()
            if tensor is not None and (shows_news or versions.get(held.slot_id) != version_of(tensor)):
                agent.observe_once(held.read_slot_id, tensor)

    def _unwritten(self, slot_id: int) -> Any | None:
        """Return a weight to which nobody has written since the last step was observed; None if that is not certain.

        Not every optimizer counts its writes, so none of its weights is certain once its update has begun.
        """
        held = next((held for held in self._tensors if held.slot_id == slot_id and held.role != "buffer"), None)
        tensor = None if held is None else held.tensor()
        if tensor is None or self._versions.get(slot_id) != self._version(tensor):
            return None
        writing = chain.from_iterable(self._written.get(optimizer, ()) for optimizer in self._updating)
        return None if any(one.slot_id == slot_id for one in writing) else tensor

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
            From what each was computed, by the name of the weight.
        stacks : mapping of str to tuple of StackFrame
            The code that first reads each weight.
        """
        for name, weight in {weight.name: weight for _, weight in self._updates()}.items():
            tensor = weight.tensor()
            if tensor is not None and self._has_gradient(tensor):
                own, stack = sources.get(name, ()), stacks.get(name, ())
                outputs = (self._outline(tensor),)
                yield TracedNode(_gradient_name(name), "AccumulateGrad", "operator", own, outputs, stack)

    def update_nodes(self) -> Iterator[TracedNode]:
        """Yield the nodes of the optimizers' updates: weight, states, gradient.

        A weight that was frozen before it was ever trained has an update that reads no gradient: the optimizer was
        given it. One that was frozen later has none.
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

    # --- what there is ---

    def _updates(self) -> Iterator[tuple[Any, Updated]]:
        """Yield each weight that an optimizer updates, with the optimizer."""
        for optimizer in self.optimizers:
            for weight in self._updated.get(id(optimizer), ()):
                if weight is not None:
                    yield optimizer, weight

    def _collect(self) -> None:
        """Collect what there is, if anything was added since the last time."""
        optimizers = self.optimizers
        now = self._names.generation, tuple(self._extent(optimizer) for optimizer in optimizers)
        if now == self._seen:
            return
        self._seen = now
        self.generation += 1
        named = {id(tensor): one for one in self._names.entries() if (tensor := one.tensor()) is not None}
        self._owned = {id(weight) for optimizer in optimizers for weight in self.weights_of(optimizer)}
        found = [self._held(one) for one in named.values()]
        self._tensors = sorted(found, key=lambda held: _ORDER.index(held.role))
        self._states, self._updated, self._written = [], {}, {}
        by_identity = dict(zip(named, found, strict=True))
        names = {identity: one.name for identity, one in named.items()}
        for optimizer in optimizers:
            weights = [named.get(id(weight)) for weight in self.weights_of(optimizer)]
            self._updated[id(optimizer)] = [None if one is None else self._with_gradient(one) for one in weights]
            states = [self._new(state, name, "state") for state, name in self._states_of(optimizer, names)]
            own = (by_identity.get(id(weight)) for weight in self.weights_of(optimizer))
            self._written[id(optimizer)] = [*(held for held in own if held is not None), *states]
            self._states += states
        self._agent.slot_table.change_roles({held.name: held.role for held in (*self._tensors, *self._states)})

    def _decide_roles(
        self, feeding: Callable[[Set[str]], Container[str]] | None, without_gradients: Collection[str]
    ) -> None:
        """Find out which weights are trained, by the gradients that there were and what optimizers were given."""
        changed: dict[str, Role] = {}
        elsewhere: set[str] = set()
        for index, held in enumerate(self._tensors):
            tensor = None if held.role == "buffer" else held.tensor()
            if tensor is None:
                continue
            if self._is_trained_elsewhere(tensor):
                elsewhere.add(held.name)
            elif id(tensor) not in self._owned and held.name not in self._reached and self._holds_gradient(tensor):
                self._reached.add(held.name)
                self._trained.add(held.name)
            role = self._role(tensor, held.name)
            if role != held.role:
                self._tensors[index] = held._replace(role=role)
                changed[held.name] = role
        self.idle = self._trained - self._reached if self._knows_gradients else set()
        self.idle |= elsewhere - self._reached
        self._decide_idle(feeding, without_gradients)
        self._reached.clear()
        self._passed_over.clear()
        if changed:
            self.generation += 1
            self._agent.slot_table.change_roles(changed)

    def _decide_idle(
        self, feeding: Callable[[Set[str]], Container[str]] | None, without_gradients: Collection[str]
    ) -> None:
        """Find out which weights nothing can be said about, though an optimizer has looked for their gradients."""
        if not self._passed_over or feeding is None:
            return
        self.idle |= self._passed_over
        feeds = feeding(self._reached)
        self.idle -= {name for name in self._passed_over if name in feeds and name not in without_gradients}

    def _role(self, weight: Any, name: str) -> Role:
        """Tell whether a weight is trained, as far as that is known."""
        if not weight.requires_grad:
            return "frozen_weight"
        is_trained = id(weight) in self._owned or name in self._trained or not self._knows_gradients
        return "weight" if is_trained or self._holds_gradient(weight) is None else "frozen_weight"

    def _held(self, one: Named) -> _Held:
        role: Role = self._role(one.tensor(), one.name) if one.is_parameter else "buffer"
        return self._new(one.tensor, one.name, role)

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
