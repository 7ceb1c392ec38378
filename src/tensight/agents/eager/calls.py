"""The calls of a step: the tensors that go in and come out, their positions, what they compute."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from tensight.agents.slots import NO_SLOT

if TYPE_CHECKING:
    import weakref
    from collections.abc import Callable

    from tensight.agents.program import Source
    from tensight.agents.slots import DeclaredNode, SlotTable
    from tensight.graph import OutputSlot

MOST_TENSORS = 64
"""Of one call, on either side."""

_DEEPEST = 5


class Slot:
    """A tensor that a step computes or gets, at one position in the sequence of its calls.

    Attributes
    ----------
    slot_id : int
    source : Source
        The node and output that it is.
    outline : OutputSlot
        dtype and shape when it was first seen.
    reference : weakref of tensor or None
        The tensor that stood here in the latest step.
    version : int
        Of that tensor when it was seen.
    consumer : (Operation, int) or None
        What reads it first, and as which input: its gradient is an output of that operation's gradient.
    gradient_slot_id : int
        UNPLACED until a gradient has arrived once.
    gradient_outline : OutputSlot or None
    on_gradient : callable or None
        Told the gradient.
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
    """A node of a step: a call of what has no calls within, or what the code around such calls computes.

    Attributes
    ----------
    node : DeclaredNode
    gradient_name, gradient_type : str
        Of the node of the backward pass that belongs to it.
    outputs : list of Slot
    """

    __slots__ = ("gradient_name", "gradient_type", "node", "outputs")

    def __init__(self, node: DeclaredNode) -> None:
        scope, _, own = node.name.rpartition("/")
        number = own.rpartition("-op")[2]
        self.node = node
        self.gradient_name = f"Gradients/{scope}/{node.type}Grad-op{number}"
        self.gradient_type = f"{node.type}Grad"
        self.outputs: list[AnySlot] = []

    def gradient_sources(self) -> list[Source]:
        """Return from where the gradients of the outputs come, as far as they came."""
        read = [slot.consumer for slot in self.outputs if slot.gradient_slot_id != NO_SLOT]
        return [(reader[0].gradient_name, reader[1]) for reader in read if reader is not None]

    def input_name(self, index: int) -> str:
        """Return the name of an input that nothing in the program computed."""
        scope, _, own = self.node.name.rpartition("/")
        number = own.rpartition("-op")[2]
        path = scope.partition("/")[2].replace("/", "_").replace(".", "_")
        # No dots: such a name is a weight's.
        parts = (path, "" if number == "0" else f"op{number}", "input", str(index))
        return "_".join(filter(None, parts))


class Reading(Generic[AnySlot]):
    """What an operation reads.

    Attributes
    ----------
    sources : list of Source or None
        Where each input came from; None for what nobody has seen.
    read : list of (Slot, int)
        The slots among them, each with its index.
    parameters : list of str
        Names of weights among them that are trained.
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
        """Add something of which nobody has seen where it came from."""
        self.sources.append(None)


def slot_id_of_gradient(slot: Slot, slot_table: SlotTable) -> int:
    """Return the slot id of the gradient of a slot: an output of the gradient of what reads it first."""
    if slot.consumer is not None:
        operation, index = slot.consumer
        return slot_table.slot_id(slot_table.node(operation.gradient_name, operation.gradient_type), index)
    # Nothing that is a node has read it: it is only an input of its own gradient.
    scope, _, own = slot.source[0].rpartition("/")
    type_, _, number = own.rpartition("-op")
    node = slot_table.node(f"Gradients/{scope}/{type_}Grad-op{number}", f"{type_}Grad")
    return slot_table.slot_id(node, slot.source[1], "input")


def tensors_in_value(kind: type[Any], value: Any) -> list[Any]:
    """Return the tensors in a value, in the order in which it holds them.

    Parameters
    ----------
    kind : type
        Of tensors.
    value : object
        A tensor, or tuples, lists, dictionaries and dataclasses of them; anything else holds none.
    """
    found: list[Any] = []
    _collect(kind, value, found, 0)
    return found


def _collect(kind: type[Any], value: Any, found: list[Any], depth: int) -> None:
    if isinstance(value, kind):
        found.append(value)
    elif depth >= _DEEPEST or len(found) >= MOST_TENSORS:
        return
    elif isinstance(value, (tuple, list)):
        for element in value:
            if element is not None:
                _collect(kind, element, found, depth + 1)
    elif isinstance(value, dict):
        for element in value.values():
            if element is not None:
                _collect(kind, element, found, depth + 1)
    elif hasattr(type(value), "__dataclass_fields__"):
        for name in type(value).__dataclass_fields__:
            _collect(kind, getattr(value, name, None), found, depth + 1)
