"""The places at which tensors are observed, numbered once for the life of a process.

A place is a slot of a node. Numbers only grow, so that arrays of statistics, needs and values are indexed by them
whatever program a step runs.
"""

from __future__ import annotations

from enum import IntFlag
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tensight.agents.program import Role

Io = Literal["output", "input"]


class Need(IntFlag):
    """What is wanted of a tensor when it is observed."""

    NOTHING = 0
    FINITE = 1
    """Only whether it has NaN or Inf; the row of statistics if it has."""
    ROW = 2
    """Its row of statistics."""
    VALUE = 4
    """Its value is kept until the end of the next step."""
    CHANGE = 8
    """Its value is compared with the previous step's at the end of the step."""
    NOW = 16
    """Its watchpoints are checked as soon as its node has run, and not at the end of the step."""
    HASH = 32
    """Its row has a content hash, which costs a third more; without, the row may have none."""


class DeclaredNode(NamedTuple):
    """A node whose slots are places."""

    number: int
    name: str
    type: str
    role: Role


class Place(NamedTuple):
    """A slot of a node."""

    number: int
    node: DeclaredNode
    slot: int
    io: Io


class PlaceTable:
    """All places of a process.

    Attributes
    ----------
    needs : bytearray
        `Need` bits of each place, by its number. It is one object for the life of the process, so that hot code may
        keep it.
    """

    def __init__(self) -> None:
        self.needs = bytearray()
        self._nodes: list[DeclaredNode] = []
        self._by_name: dict[str, DeclaredNode] = {}
        self._places: list[Place] = []
        self._by_slot: dict[tuple[int, int, Io], int] = {}
        self._on_new: Callable[[Place], Need] | None = None

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, number: int) -> Place:
        return self._places[number]

    def decide_needs(self, decide: Callable[[Place], Need]) -> None:
        """Have the needs of places that come decided by a function."""
        self._on_new = decide

    def node(self, name: str, type_: str, role: Role = "operator") -> DeclaredNode:
        """Return the node of a full name; it is declared when it is new."""
        known = self._by_name.get(name)
        if known is None:
            known = DeclaredNode(len(self._nodes), name, type_, role)
            self._nodes.append(known)
            self._by_name[name] = known
        return known

    def change_roles(self, roles: Mapping[str, Role]) -> None:
        """Correct what some nodes are, by their names, now that more of the network is known."""
        changed: dict[int, DeclaredNode] = {}
        for name, role in roles.items():
            known = self._by_name.get(name)
            if known is not None and known.role != role:
                node = changed[known.number] = known._replace(role=role)
                self._nodes[known.number] = self._by_name[name] = node
        if changed:
            self._places[:] = [
                place._replace(node=changed[place.node.number]) if place.node.number in changed else place
                for place in self._places
            ]

    def find_node(self, name: str) -> DeclaredNode | None:
        """Return the node of a full name, if it was declared."""
        return self._by_name.get(name)

    @property
    def nodes(self) -> tuple[DeclaredNode, ...]:
        """All nodes, by number."""
        return tuple(self._nodes)

    def place(self, node: DeclaredNode, slot: int, io: Io = "output") -> int:
        """Return the number of a slot of a node; it is new when it was never asked for."""
        key = (node.number, slot, io)
        number = self._by_slot.get(key)
        if number is None:
            number = len(self._places)
            self._by_slot[key] = number
            place = Place(number, node, slot, io)
            self._places.append(place)
            self.needs.append(0)
            if self._on_new is not None:
                self.needs[number] = int(self._on_new(place))
        return number

    def find(self, name: str, slot: int, io: Io = "output") -> int | None:
        """Return the number of a slot of the node of a full name, if there is one."""
        node = self._by_name.get(name)
        return None if node is None else self._by_slot.get((node.number, slot, io))
