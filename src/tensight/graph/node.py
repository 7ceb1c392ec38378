"""Nodes of a graph, and the edges between them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from tensight.graph.source import SourceFrame, parse_stack
from tensight.graph.values import decode_attributes, decode_value

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tensight.graph.data_types import OutputSlot

PARAMETER = "Parameter"
CONSTANT = "Const"


class EdgeKind(Enum):
    """Whether an edge carries a value, or only an order of execution."""

    DATA = "data"
    CONTROL = "control"


@dataclass(frozen=True, slots=True)
class Edge:
    """An input of a node; its position in `Node.inputs` is the index of the input.

    Attributes
    ----------
    source : str
        `Node.name` of the node that the input comes from. If the file refers to a node that it does not contain, the
        reference as written, which is then not the name of any node.
    kind : EdgeKind
        Whether the edge carries a value or only an order of execution.
    """

    source: str
    kind: EdgeKind = EdgeKind.DATA


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Node:
    """An operator, a parameter or a constant of a graph.

    Nodes are compared by identity, because names are unique only within a graph.

    Attributes
    ----------
    name : str
        Unique in the graph. For an operator the full name with scope, ``Default/network/conv1-Conv2d/Conv2D-op61``;
        for a parameter its own name, ``conv1.weight``; for a constant its full name, ``Default--data-3``, or its key.
    type : str
        Type of the operator; ``Parameter``; ``Const``.
    scope : str
        The scope of an operator, ``Default/network/conv1-Conv2d``; empty for parameters and constants.
    id : str
        The identifier by which inputs of other nodes refer to it in the file: ``61``, ``conv1.weight``, ``cst1``.
    full_name : str
        The name as in the file. It differs from `name` if the file uses a name twice or leaves it out, and in graphs
        that Tensight recorded: files are found by the last part of a name, which must be unique there.
    inputs : tuple of Edge
        The sources of its inputs, in order.
    outputs : tuple of OutputSlot
        Its outputs; a tuple has one slot for each of its elements.
    stack : tuple of str
        Lines of the source address as in the file.
    raw_attributes : tuple of bytes
        Serialized attributes; see `attributes`.
    raw_value : bytes
        Serialized value of a constant; see `value`.
    """

    name: str
    type: str
    scope: str = ""
    id: str = ""
    full_name: str = ""
    inputs: tuple[Edge, ...] = ()
    outputs: tuple[OutputSlot, ...] = ()
    stack: tuple[str, ...] = ()
    raw_attributes: tuple[bytes, ...] = ()
    raw_value: bytes = b""

    def __repr__(self) -> str:
        return f"Node({self.name!r}, type={self.type!r}, id={self.id!r})"

    @property
    def source_address(self) -> str:
        """The stack as a single text, as in the file."""
        return "\n".join(self.stack)

    @property
    def frames(self) -> tuple[SourceFrame, ...]:
        """The source lines of this node, in the order of the file (innermost first)."""
        return parse_stack(self.stack)

    @property
    def attributes(self) -> Mapping[str, object]:
        """Attributes of the operator by name, decoded on each access; see `tensight.graph.values`."""
        return decode_attributes(self.raw_attributes)

    @property
    def value(self) -> object:
        """The value of a constant; None if the graph does not contain it."""
        return decode_value(self.raw_value) if self.raw_value else None

    @property
    def is_operator(self) -> bool:
        """Whether the node is an operator."""
        return self.type not in (PARAMETER, CONSTANT)

    @property
    def is_parameter(self) -> bool:
        """Whether the node is a parameter: a weight, an optimizer state, or an input of the network."""
        return self.type == PARAMETER

    @property
    def is_constant(self) -> bool:
        """Whether the node is a constant."""
        return self.type == CONSTANT

    @property
    def short_name(self) -> str:
        """The name without its scope."""
        return self.name.rpartition("/")[2]
