"""Graphs, nodes, and the lines of code behind them."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from tensight.sessions.records.base import Io, Record, StepSpan


class Frame(Record):
    """One line of code in the stack of an operator."""

    file: str
    line: int | None = None
    end_line: int | None = None
    """The last of several lines, any of which may have computed it; `line` is the first."""

    code: str = ""
    """The line, or the first of several."""

    has_substack: bool = False
    is_user_code: bool = False
    """The frame most likely to be the person's own."""

    @property
    def lines(self) -> str:
        """The line, ``16``, or the first and the last one, ``16-18``."""
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
    """In which it is known to have run, the first 100 stretches. A stretch joins steps between which no other graph is
    known to have run; a training tells what ran whenever it stops, and while it runs some times a second."""
    spans: int = 0
    """How many such stretches there are."""
    ran: bool = False
    """It ran in the step that is shown, or as far as is known last before it."""


Watched = Literal["none", "some", "all", "never"]
"""How far a scope or node is watched by a watchpoint; constants never are."""


class TreeEntry(Record):
    """A row of the node tree: a scope, or a node."""

    path: str
    """Path of the scope (``Default/network``), or name of the node. Unique with `kind` in its graph."""
    label: str
    """The last part of the path."""
    kind: Literal["scope", "operator", "parameter", "constant", "parameters", "constants"]
    """``parameters`` and ``constants`` are the groups that hold them at the root."""
    graph: str = ""
    """The graph in which it is looked at: of those that have it one that ran in the step shown, else the newest. Empty
    for a scope of the whole program."""
    graphs: tuple[str, ...] = ()
    """In the tree of the whole program: the graphs that have it; empty if all have it."""
    apart: bool = False
    """Other nodes have its name: graphs that run in one step have nodes of their own."""
    type: str = ""
    """Type of the operator."""
    roles: tuple[str, ...] = ()
    """``weight``, ``gradient``, ``activation``…"""
    children: int = 0
    """Rows directly below."""
    nodes: int = 0
    """Nodes anywhere below, itself included."""
    dynamic_shape: bool = False
    watched: Watched | None = None
    """By the watchpoint that was named in the request."""
    hits: int = 0
    """Hits at or below, in the current step."""


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
    """A node that a search found."""

    rank: int
    graph: str
    """As `TreeEntry.graph`."""
    entry: TreeEntry


class SearchPage(Record):
    """Nodes that match a search, each once, in the order of the program."""

    total: int
    offset: int = 0
    nodes: tuple[FoundNode, ...]


class NodesMeant(Record):
    """The nodes of a rank that a name, or the end or another part of one, may mean."""

    names: tuple[str, ...]
    """One, if it is clear; else some of those that it may mean; none if nothing contains it."""
    total: int
    """How many it may mean."""
    graphs: tuple[str, ...] = ()
    """The graphs that have the one that is meant: those that ran in the step first, then the newest."""
    similar: tuple[str, ...] = ()
    """Where nothing is meant: what is named like it."""


class Slot(Record):
    """One input or output of a node."""

    slot: int
    io: Io
    dtype: str = ""
    shape: tuple[int, ...] | None = None
    """-1 for a dimension known only at run time; None if unknown."""
    peer: str = ""
    """For an input the node that produces it."""
    peer_slot: int = 0
    control: bool = False
    """An edge that carries only an order, no value."""


class NodeRecord(Record):
    """A node with all that the graph says about it."""

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
    """As text, each cut to 1,024 characters."""
    value: str = ""
    """The value of a constant, as text."""
    position: int | None = None
    """Place in the order of execution of its step, from 1; parameters come after the operators, constants have none."""
    graphs: tuple[str, ...] = ()
    """The graphs of the program in which it is the same node, in the order in which they came."""
    apart: bool = False
    """As `TreeEntry.apart`."""


class GraphEdge(Record):
    """Edges between two entries of a picture, as one."""

    source: str
    target: str
    count: int = 1
    control: bool = False
    label: str = ""
    """``float32[32,6,28,28]`` for a single data edge."""


class OpenedScope(Record):
    """A scope that is open within a picture, with what is directly in it."""

    scope: str
    entries: tuple[TreeEntry, ...]
    truncated: bool = False
    """There were more entries than asked for."""


class GraphLevel(Record):
    """One scope opened: its entries and the edges between them, for drawing."""

    rank: int
    graph: str
    scope: str
    entries: tuple[TreeEntry, ...]
    opened: tuple[OpenedScope, ...] = ()
    """The scopes that are open within, the outer ones first."""
    outside: tuple[TreeEntry, ...] = ()
    """Neighbours that lie outside of the scope, and parameters and constants beside their readers: proxies."""
    edges: tuple[GraphEdge, ...] = ()
    """Between the innermost rows that are drawn."""
    truncated: bool = False
    """There were more entries than asked for."""


class RelatedNode(Record):
    """A node of the relationship graph of a tensor."""

    name: str
    type: str
    distance: int
    """Edges away from the centre: negative for producers, positive for consumers, 0 for the centre."""
    slots: tuple[Slot, ...] = ()
    """Its outputs."""
    abbreviations: dict[int, tuple[str, ...]] = Field(default_factory=dict)
    """For each output slot with hits the abbreviations of their conditions."""


class RelationGraph(Record):
    """A tensor's node with what feeds it and what reads it."""

    rank: int
    graph: str
    centre: str
    nodes: tuple[RelatedNode, ...]
    edges: tuple[GraphEdge, ...]
    truncated: bool = False


class SourceLine(Record):
    """A line of code and how many nodes came from it."""

    line: int
    end_line: int | None = None
    code: str = ""
    has_substack: bool = False
    nodes: int = 0


class SourceFile(Record):
    """A file of code and its lines that made nodes."""

    file: str
    is_library: bool = False
    """Lies in site-packages or dist-packages; such files come last."""
    has_text: bool = False
    """The training process sent the text of the file."""
    lines: tuple[SourceLine, ...]


class SourcePage(Record):
    """Files of code, the person's own first."""

    total: int
    """Files in all."""
    offset: int = 0
    files: tuple[SourceFile, ...]
