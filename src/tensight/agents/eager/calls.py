"""The calls of a step: their input and output tensors with their slots, and their operations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from tensight.agents.core.slots import NO_SLOT

if TYPE_CHECKING:
    import weakref
    from collections.abc import Callable

    from tensight.agents.core.program import Source
    from tensight.agents.core.slots import DeclaredNode, SlotTable
    from tensight.graph import OutputSlot

MOST_TENSORS = 64
"""Limit of the inputs of a call, and of its outputs."""

_DEEPEST = 5


class Slot:
    """A tensor that a step computes or receives, at one position in the sequence of its calls.

    Attributes
    ----------
    slot_id : int
    source : Source
        The node and output that compute it.
    outline : OutputSlot
        dtype and shape when it was first seen.
    reference : weakref of tensor or None
        The tensor of the latest step.
    version : int
        Version of that tensor when it was seen.
    consumer : (Operation, int) or None
        The operation that reads it first, and the index of the input: its gradient is an output of that operation's
        gradient.
    gradient_slot_id : int
        `NO_SLOT` until a gradient has arrived once.
    gradient_outline : OutputSlot or None
        dtype and shape of the gradient.
    on_gradient : callable or None
        Called with the gradient.
    """

    __slots__ = (
        "consumer",
        "gradient_outline",
        "gradient_slot_id",
        "on_gradient",
        "outline",
        "reference",
        "slot_id",
        "source",
        "version",
    )

    def __init__(self, slot_id: int, source: Source, outline: OutputSlot) -> None:
        self.slot_id = slot_id
        self.source = source
        self.outline = outline
        self.reference: weakref.ref[Any] | None = None
        self.version = 0
        self.consumer: tuple[Operation[Any], int] | None = None
        self.gradient_slot_id = NO_SLOT
        self.gradient_outline: OutputSlot | None = None
        self.on_gradient: Callable[..., None] | None = None


AnySlot = TypeVar("AnySlot", bound=Slot)


class Operation(Generic[AnySlot]):
    """A node of a step: a call without inner calls, or a computation of the code around such calls.

    Attributes
    ----------
    node : DeclaredNode
    gradient_name, gradient_type : str
        Name and type of its node in the backward pass.
    outputs : list of Slot
    """

    __slots__ = ("gradient_name", "gradient_type", "node", "outputs")

    def __init__(self, node: DeclaredNode) -> None:
        scope, _, local_name = node.name.rpartition("/")
        number = local_name.rpartition("-op")[2]
        self.node = node
        self.gradient_name = f"Gradients/{scope}/{node.type}Grad-op{number}"
        self.gradient_type = f"{node.type}Grad"
        self.outputs: list[AnySlot] = []

    def gradient_sources(self) -> list[Source | None]:
        """Return the sources of the gradients of the outputs, as far as gradients have arrived.

        The gradient of an output that no node has read is observed as an input, whose number is that of the output
        (`slot_id_of_gradient`). If there is one, the list therefore has an entry for each output up to the last.
        """
        arrived = [at for at, slot in enumerate(self.outputs) if slot.gradient_slot_id != NO_SLOT]
        if any(self.outputs[at].consumer is None for at in arrived):
            arrived = list(range(arrived[-1] + 1))
        read = [self.outputs[at].consumer for at in arrived]
        return [None if reader is None else (reader[0].gradient_name, reader[1]) for reader in read]

    def input_name(self, index: int) -> str:
        """Return the name of an input that was computed outside the program."""
        scope, _, local_name = self.node.name.rpartition("/")
        number = local_name.rpartition("-op")[2]
        path = scope.partition("/")[2].replace("/", "_").replace(".", "_")
        # No dots, which only names of weights contain.
        parts = (path, "" if number == "0" else f"op{number}", "input", str(index))
        return "_".join(filter(None, parts))


class Reading(Generic[AnySlot]):
    """The inputs of an operation.

    Attributes
    ----------
    sources : list of Source or None
        Source of each input; None if it is unknown.
    read : list of (Slot, int)
        The slots among them, each with its index.
    parameters : list of str
        Names of the trained weights among them.
    """

    __slots__ = ("parameters", "read", "sources")

    def __init__(self) -> None:
        self.sources: list[Source | None] = []
        self.read: list[tuple[AnySlot, int]] = []
        self.parameters: list[str] = []

    def reads(self, slot: AnySlot) -> int:
        """Add an input that is another operation's output, or an input of the step; return its index."""
        self.sources.append(slot.source)
        self.read.append((slot, len(self.sources) - 1))
        return len(self.sources) - 1

    def reads_weight(self, name: str, *, is_trained: bool = True) -> None:
        """Add a weight."""
        self.sources.append((name, 0))
        if is_trained:
            self.parameters.append(name)

    def reads_unseen(self) -> None:
        """Add an input from an unknown source."""
        self.sources.append(None)


def slot_id_of_gradient(slot: Slot, slot_table: SlotTable) -> int:
    """Return the slot id of the gradient of a slot: an output of the gradient of its first reader."""
    if slot.consumer is not None:
        operation, index = slot.consumer
        return slot_table.slot_id(slot_table.node(operation.gradient_name, operation.gradient_type), index)
    # No node has read it: its gradient is only an input of its own operation's gradient.
    scope, _, local_name = slot.source[0].rpartition("/")
    type_, _, number = local_name.rpartition("-op")
    node = slot_table.node(f"Gradients/{scope}/{type_}Grad-op{number}", f"{type_}Grad")
    return slot_table.slot_id(node, slot.source[1], "input")


def tensors_in_value(kind: type[Any], value: Any) -> list[Any]:
    """Return the tensors in a value, in their order in it.

    Parameters
    ----------
    kind : type
        Class of tensors.
    value : object
        A tensor, or tuples, lists, dictionaries and dataclasses of them; in other objects none are found.
    """
    tensors: list[Any] = []
    _collect(kind, value, tensors, 0)
    return tensors


def _collect(kind: type[Any], value: Any, tensors: list[Any], depth: int) -> None:
    if isinstance(value, kind):
        tensors.append(value)
    elif depth >= _DEEPEST or len(tensors) >= MOST_TENSORS:
        return
    elif isinstance(value, (tuple, list)):
        for element in value:
            if element is not None:
                _collect(kind, element, tensors, depth + 1)
    elif isinstance(value, dict):
        for element in value.values():
            if element is not None:
                _collect(kind, element, tensors, depth + 1)
    elif hasattr(type(value), "__dataclass_fields__"):
        for name in type(value).__dataclass_fields__:
            _collect(kind, getattr(value, name, None), tensors, depth + 1)
