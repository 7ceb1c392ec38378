"""Graphs, nodes, and the lines of code that created them."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from tensight.sessions.records.base import Io, Record, StepSpan


class Frame(Record):
    """A line of code in the stack of an operator."""

    file: str
    line: int | None = None
    end_line: int | None = None
    """The last of several lines, any of which may have computed it; `line` is the first."""

    code: str = ""
    """The line, or the first of several."""

    has_substack: bool = False
    is_user_code: bool = False
    """Whether it is the frame that is most likely user code."""

    @property
    def lines(self) -> str:
        """The line, ``16``, or the first and the last line, ``16-18``."""
        is_range = self.line is not None and self.end_line is not None and self.end_line > self.line
        return f"{self.line}-{self.end_line}" if is_range else f"{self.line}"


class GraphRecord(Record):
    """A graph of a rank."""

    rank: int
    name: str
    graph_id: int = 0
    root_id: int = 0
    nodes: int = 0
    operators: int = 0
    parameters: int = 0
    problems: tuple[str, ...] = ()
    steps: tuple[StepSpan, ...] = ()
    """The first 100 spans of steps in which it is known to have run. A span joins steps between which no other graph is
    known to have run; a training reports its graph whenever it stops, and several times a second while it runs."""
    spans: int = 0
    """Total number of spans."""
    ran: bool = False
    """Whether it ran in the shown step, or was the last known to run before it."""


Watched = Literal["none", "some", "all", "never"]
"""Whether a watchpoint watches some or all nodes of a scope, or a node in some or all graphs; constants: ``never``."""


class TreeEntry(Record):
    """A row of the node tree: a scope, or a node."""

    path: str
    """Path of the scope (``Default/network``), or name of the node. Unique in its graph, together with `kind`."""
    label: str
    """The last part of the path."""
    kind: Literal["scope", "operator", "parameter", "constant", "parameters", "constants"]
    """``parameters`` and ``constants`` are the groups of these at the root."""
    graph: str = ""
    """The graph in which it is shown: one that has it and ran in the shown step, else the newest that has it. Empty for
    a scope of the whole program."""
    graphs: tuple[str, ...] = ()
    """In the tree of the whole program: the graphs that have it; empty if all do."""
    apart: bool = False
    """Whether other nodes have the same name: graphs that run in the same step have separate nodes."""
    type: str = ""
    """Type of the operator."""
    roles: tuple[str, ...] = ()
    """``weight``, ``gradient``, ``activation``…"""
    children: int = 0
    """Rows directly below."""
    nodes: int = 0
    """Number of nodes at or below."""
    dynamic_shape: bool = False
    watched: Watched | None = None
    """Whether the requested watchpoint watches it."""
    hits: int = 0
    """Tensors with a hit at or below, in the current step."""


class TreePage(Record):
    """Rows of the node tree."""

    rank: int
    graph: str
    """Empty for the whole program."""
    scope: str
    total: int
    offset: int = 0
    entries: tuple[TreeEntry, ...]


class FoundNode(Record):
    """A node found by a search."""

    rank: int
    graph: str
    """See `TreeEntry.graph`."""
    entry: TreeEntry


class SearchPage(Record):
    """Nodes that match a search, each once, in the order of the program."""

    total: int
    offset: int = 0
    nodes: tuple[FoundNode, ...]


class NodesMeant(Record):
    """The nodes of a rank that a full or partial name may mean."""

    names: tuple[str, ...]
    """A single name if it is unambiguous; otherwise some of the candidates; empty if no name contains it."""
    total: int
    """Number of candidates."""
    graphs: tuple[str, ...] = ()
    """If unambiguous, the graphs that have the node: those that ran in the step first, then the newest."""
    similar: tuple[str, ...] = ()
    """If there is no candidate: similar names."""


class Slot(Record):
    """An input or output of a node."""

    slot: int
    io: Io
    dtype: str = ""
    shape: tuple[int, ...] | None = None
    """-1 for a dimension known only at run time; None if unknown."""
    peer: str = ""
    """For an input, the node that produces it."""
    peer_slot: int = 0
    control: bool = False
    """Whether it is a control dependency, without a value."""


class NodeRecord(Record):
    """A node with everything that the graph knows about it."""

    rank: int
    graph: str
    name: str
    type: str
    kind: Literal["operator", "parameter", "constant"]
    scope: str = ""
    roles: tuple[str, ...] = ()
    inputs: tuple[Slot, ...] = ()
    outputs: tuple[Slot, ...] = ()
    consumers: tuple[str, ...] = ()
    """Names of the nodes that read it, the first 1,000."""
    consumer_count: int = 0
    stack: tuple[Frame, ...] = ()
    """Innermost first."""
    attributes: dict[str, str] = Field(default_factory=dict)
    """As text, each truncated to 1,024 characters."""
    value: str = ""
    """The value of a constant, as text."""
    position: int | None = None
    """Position in the execution order of its step, from 1; parameters come after the operators, constants have none."""
    graphs: tuple[str, ...] = ()
    """The graphs of the program in which it is the same node, in the order of their arrival."""
    apart: bool = False
    """See `TreeEntry.apart`."""


class GraphEdge(Record):
    """All edges between two entries of a picture."""

    source: str
    target: str
    count: int = 1
    control: bool = False
    label: str = ""
    """``float32[32,6,28,28]`` for a single data edge."""


class OpenedScope(Record):
    """An opened scope within a picture, with its direct entries."""

    scope: str
    entries: tuple[TreeEntry, ...]
    truncated: bool = False
    """Whether there are more entries than requested."""


class GraphLevel(Record):
    """An opened scope, for drawing: its entries and the edges between them."""

    rank: int
    graph: str
    scope: str
    entries: tuple[TreeEntry, ...]
    opened: tuple[OpenedScope, ...] = ()
    """The opened scopes within, outer scopes first."""
    outside: tuple[TreeEntry, ...] = ()
    """Proxies: neighbours outside of the scope, and parameters and constants drawn beside their readers."""
    edges: tuple[GraphEdge, ...] = ()
    """Edges between the innermost drawn rows."""
    truncated: bool = False
    """Whether there are more entries than requested."""


class RelatedNode(Record):
    """A node of the relationship graph of a tensor."""

    name: str
    type: str
    distance: int
    """Distance from the centre in edges: negative for producers, positive for consumers."""
    slots: tuple[Slot, ...] = ()
    """Its outputs."""
    abbreviations: dict[int, tuple[str, ...]] = Field(default_factory=dict)
    """Abbreviations of the conditions that hit, by output slot."""


class RelationGraph(Record):
    """The node of a tensor with its producers and consumers."""

    rank: int
    graph: str
    centre: str
    nodes: tuple[RelatedNode, ...]
    edges: tuple[GraphEdge, ...]
    truncated: bool = False


class SourceLine(Record):
    """A line of code, and the number of nodes that it created."""

    line: int
    end_line: int | None = None
    code: str = ""
    has_substack: bool = False
    nodes: int = 0


class SourceFile(Record):
    """A source file, and its lines that created nodes."""

    file: str
    is_library: bool = False
    """Whether it is in site-packages or dist-packages; such files come last."""
    has_text: bool = False
    """Whether the training process sent the text of the file."""
    lines: tuple[SourceLine, ...]


class SourcePage(Record):
    """Source files, user code before libraries."""

    total: int
    """Number of all files."""
    offset: int = 0
    files: tuple[SourceFile, ...]
