"""The slots at which tensors are observed, numbered once for the life of a process.

A slot is an output or an input of a node, and its number is the slot id. Slot ids only grow, so that arrays of
statistics, needs and values are indexed by them whatever program a step runs.
"""

from __future__ import annotations

from array import array
from enum import IntFlag
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from tensight.graph import is_gradient_scope

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from tensight.agents.core.program import Role

Io = Literal["output", "input"]

NO_SLOT = -1
"""Used instead of a slot id if there is none."""

NO_SLOT_IDS: NDArray[np.int64] = np.empty(0, np.int64)


class Need(IntFlag):
    """What is needed from a tensor when it is observed."""

    NOTHING = 0
    FINITE = 1
    """Only whether it contains NaN or Inf; if so, its row of statistics."""
    ROW = 2
    """Its row of statistics."""
    VALUE = 4
    """Its value is kept until the end of the next step."""
    CHANGE = 8
    """Its value is compared with the previous step's at the end of the step."""
    NOW = 16
    """Its watchpoints are checked as soon as its node has run, and not at the end of the step."""
    HASH = 32
    """Its row has a content hash, which costs a third more; otherwise the row may have none."""


class DeclaredNode(NamedTuple):
    """A node that has slots."""

    number: int
    name: str
    type: str
    role: Role


class TensorSlot(NamedTuple):
    """A slot, with its slot id."""

    slot_id: int
    node: DeclaredNode
    slot: int
    io: Io


class SlotClass(NamedTuple):
    """What many slots have in common, so that rules are evaluated once for all of them.

    Attributes
    ----------
    type : str
        Of their nodes.
    role : Role
    io : Io
    is_gradient : bool
        Whether the scope of their nodes is of the backward pass.
    """

    type: str
    role: Role
    io: Io
    is_gradient: bool


class SlotColumns:
    """All slots of a process at one moment, as columns.

    Parameters
    ----------
    codes, node_numbers : ndarray of int64, shape (slots,)
        Index of the class of each slot, and the number of its node.
    classes : sequence of SlotClass
    by_name : mapping of str to DeclaredNode
    """

    def __init__(
        self,
        codes: NDArray[np.int64],
        node_numbers: NDArray[np.int64],
        classes: Sequence[SlotClass],
        by_name: Mapping[str, DeclaredNode],
    ) -> None:
        self._codes = codes
        self._node_numbers = node_numbers
        self._classes = classes
        self._by_name = by_name

    def __len__(self) -> int:
        return len(self._codes)

    @property
    def names(self) -> Collection[str]:
        """The names of their nodes."""
        return self._by_name.keys()

    def of_classes(self, rule: Callable[[SlotClass], bool]) -> NDArray[np.bool_]:
        """Return for each slot what a rule says of its class."""
        return np.array([rule(slot_class) for slot_class in self._classes], np.bool_)[self._codes]

    def named(self, names: Collection[str]) -> NDArray[np.bool_]:
        """Return which slots belong to nodes with these names."""
        is_named = np.zeros(len(self._by_name), np.bool_)
        fewer, more = (names, self._by_name) if len(names) < len(self._by_name) else (self._by_name, names)
        is_named[[self._by_name[name].number for name in fewer if name in more]] = True
        return is_named[self._node_numbers]

    def values(self, by_name: Mapping[str, float]) -> NDArray[np.float64]:
        """Return for each slot the value of the name of its node, NaN if that has none."""
        values = np.full(len(self._by_name), np.nan)
        numbers = {node.number: value for name, value in by_name.items() if (node := self._by_name.get(name))}
        values[list(numbers)] = list(numbers.values())
        return values[self._node_numbers]


class SlotTable:
    """All slots of a process.

    Attributes
    ----------
    needs : bytearray
        `Need` bits of each slot, by slot id. It is the same object for the life of the process, so that hot code may
        keep it.
    """

    def __init__(self) -> None:
        self.needs = bytearray()
        self._nodes: list[DeclaredNode] = []
        self._by_name: dict[str, DeclaredNode] = {}
        self._slots: list[TensorSlot] = []
        self._by_slot: dict[tuple[int, int, Io], int] = {}
        self._node_numbers = array("q")
        self._codes = array("q")
        self._classes: dict[SlotClass, int] = {}
        self._on_new: Callable[[TensorSlot], Need] | None = None

    def __len__(self) -> int:
        return len(self._slots)

    def __getitem__(self, slot_id: int) -> TensorSlot:
        return self._slots[slot_id]

    def decide_needs(self, decide: Callable[[TensorSlot], Need]) -> None:
        """Set the function that decides the needs of new slots."""
        self._on_new = decide

    def node(self, name: str, type_: str, role: Role = "operator") -> DeclaredNode:
        """Return the node with a full name; declare it if it is new."""
        node = self._by_name.get(name)
        if node is None:
            node = DeclaredNode(len(self._nodes), name, type_, role)
            self._nodes.append(node)
            self._by_name[name] = node
        return node

    def change_roles(self, roles: Mapping[str, Role]) -> None:
        """Correct the roles of some nodes, by name, because more of the network is known now."""
        changed: dict[int, DeclaredNode] = {}
        for name, role in roles.items():
            declared = self._by_name.get(name)
            if declared is not None and declared.role != role:
                changed[declared.number] = corrected = declared._replace(role=role)
                self._nodes[declared.number] = self._by_name[name] = corrected
        if not changed:
            return
        for slot_id, tensor_slot in enumerate(self._slots):
            node = changed.get(tensor_slot.node.number)
            if node is not None:
                self._slots[slot_id] = corrected_slot = tensor_slot._replace(node=node)
                self._codes[slot_id] = self._code(corrected_slot)

    def find_node(self, name: str) -> DeclaredNode | None:
        """Return the node with a full name, if it was declared."""
        return self._by_name.get(name)

    @property
    def nodes(self) -> tuple[DeclaredNode, ...]:
        """All nodes, by number."""
        return tuple(self._nodes)

    def slot_id(self, node: DeclaredNode, slot: int, io: Io = "output") -> int:
        """Return the slot id of a slot of a node; create it at the first request."""
        key = (node.number, slot, io)
        slot_id = self._by_slot.get(key)
        if slot_id is None:
            slot_id = len(self._slots)
            self._by_slot[key] = slot_id
            tensor_slot = TensorSlot(slot_id, node, slot, io)
            self._slots.append(tensor_slot)
            self._node_numbers.append(node.number)
            self._codes.append(self._code(tensor_slot))
            self.needs.append(0)
            if self._on_new is not None:
                self.needs[slot_id] = int(self._on_new(tensor_slot))
        return slot_id

    def find(self, name: str, slot: int, io: Io = "output") -> int | None:
        """Return the slot id of a slot of the node with a full name, if there is one."""
        node = self._by_name.get(name)
        return None if node is None else self._by_slot.get((node.number, slot, io))

    def outputs(self, name: str) -> Iterator[int]:
        """Yield the slot ids of the outputs of the node with a full name, as far as they were observed."""
        slot = 0
        while (slot_id := self.find(name, slot)) is not None:
            yield slot_id
            slot += 1

    def columns(self) -> SlotColumns:
        """Return all slots as columns."""
        codes, node_numbers = np.array(self._codes, np.int64), np.array(self._node_numbers, np.int64)
        return SlotColumns(codes, node_numbers, tuple(self._classes), self._by_name)

    def class_of(self, tensor_slot: TensorSlot) -> SlotClass:
        """Return the class of a slot."""
        node = tensor_slot.node
        return SlotClass(node.type, node.role, tensor_slot.io, is_gradient_scope(node.name))

    def _code(self, tensor_slot: TensorSlot) -> int:
        return self._classes.setdefault(self.class_of(tensor_slot), len(self._classes))
