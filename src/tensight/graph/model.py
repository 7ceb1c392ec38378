"""The computation graph, with the queries that a debugger needs."""

from __future__ import annotations

import difflib
from collections import deque
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from tensight.errors import InputError, Problem
from tensight.graph.dataflow import Dataflow, tuple_index
from tensight.graph.lazily import lazily, once
from tensight.graph.node import EdgeKind, Node
from tensight.graph.scopes import Scope, scope_tree
from tensight.graph.source import parse_stack

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from tensight.graph.declared import Given, ParameterRoles

_Fact = TypeVar("_Fact")

Direction = Literal["both", "inputs", "outputs"]

# Limit for the names that a misspelt one is compared with; 100,000 would take seconds.
_MOST_COMPARED = 2_000


class Graph:
    """A graph of a rank: its nodes in topological order, with the edges and source lines of each.

    Parameters
    ----------
    name : str
        Name as in the file: ``kernel_graph_0``, since MindSpore 2.10 ``kernel_graph0``.
    nodes : iterable of Node
        Parameters, constants, operators in topological order. Names must be unique.
    graph_id, root_id : int
        Number of the graph, and of the graph that it is a part of.
    problems : iterable of Problem
        Unusable parts of the file that the graph was read from.
    declared_roles : ParameterRoles, optional
        Roles of the parameters as declared by the training process; by default they are inferred from the graph.
    given : mapping of str to Given, optional
        Possible values of parameters that other nodes of the graph compute, as declared by the training process, by
        parameter name.

    Raises
    ------
    InputError
        If two nodes have the same name.
    """

    def __init__(
        self,
        name: str,
        nodes: Iterable[Node],
        *,
        graph_id: int = 0,
        root_id: int = 0,
        problems: Iterable[Problem] = (),
        declared_roles: ParameterRoles | None = None,
        given: Mapping[str, Given] = MappingProxyType({}),
    ) -> None:
        self.name = name
        self.graph_id = graph_id
        self.root_id = root_id
        self.nodes = tuple(nodes)
        self.problems = tuple(problems)
        self.declared_roles = declared_roles
        self.given = given
        self._facts: dict[Any, Any] = {}
        self._flat_producers: dict[str, tuple[tuple[Node, int] | None, ...]] = {}
        self._by_name = {node.name: node for node in self.nodes}
        if len(self._by_name) != len(self.nodes):
            raise InputError(f"graph {name!r} has two nodes of one name; names must be unique")

    def __repr__(self) -> str:
        return f"Graph({self.name!r}, {len(self.nodes)} nodes)"

    def __len__(self) -> int:
        return len(self.nodes)

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    @lazily
    def operators(self) -> tuple[Node, ...]:
        """The operators, in topological order."""
        return tuple(node for node in self.nodes if node.is_operator)

    @lazily
    def parameters(self) -> tuple[Node, ...]:
        """Weights, states of the optimizer and inputs of the network."""
        return tuple(node for node in self.nodes if node.is_parameter)

    @lazily
    def constants(self) -> tuple[Node, ...]:
        """The constants."""
        return tuple(node for node in self.nodes if node.is_constant)

    def get(self, name: str) -> Node | None:
        """Return the node `name`; None if the graph does not have it."""
        return self._by_name.get(name)

    def node(self, name: str) -> Node:
        """Return the node `name`.

        Raises
        ------
        InputError
            If the graph does not have it; the message lists similar names.
        """
        node = self._by_name.get(name)
        if node is None:
            similar = self._similar_names(name)
            hint = f"; similar: {', '.join(similar)}" if similar else ""
            raise InputError(f"graph {self.name!r} has no node {name!r}{hint}", code="node-unknown")
        return node

    def inputs(self, node: Node) -> tuple[Node, ...]:
        """Return the nodes that the inputs of `node` come from, in order; dangling inputs are left out."""
        sources = (self._by_name.get(edge.source) for edge in node.inputs)
        return tuple(source for source in sources if source is not None)

    def consumers(self, node: Node, slot: int | None = None) -> tuple[Node, ...]:
        """Return the nodes that take `node` as an input, in topological order.

        Parameters
        ----------
        node : Node
            A node of this graph.
        slot : int, optional
            Leave out consumers that take only another output (``TupleGetItem`` with a different index).
        """
        consumers = self._consumers.get(node.name, ())
        if slot is None:
            return consumers
        return tuple(consumer for consumer in consumers if self._item_of(consumer, node) in (None, slot))

    def neighbours(self, node: Node, hops: int, direction: Direction = "both") -> tuple[Node, ...]:
        """Return the nodes at most `hops` edges away from `node`, nearest first, without `node` itself.

        Raises
        ------
        InputError
            If `hops` is negative or `direction` is not one of ``both``, ``inputs``, ``outputs``.
        """
        if hops < 0:
            raise InputError(f"hops is {hops}; it must be at least 0")
        steps: dict[str, Callable[[Node], tuple[Node, ...]]] = {
            "inputs": self.inputs,
            "outputs": self.consumers,
            "both": lambda at: self.inputs(at) + self.consumers(at),
        }
        if direction not in steps:
            raise InputError(f"direction is {direction!r}; it must be one of 'both', 'inputs', 'outputs'")
        step = steps[direction]
        reached: dict[Node, None] = {node: None}
        waiting = deque([(node, 0)])
        while waiting:
            at, distance = waiting.popleft()
            if distance == hops:
                break
            for next_node in step(at):
                if next_node not in reached:
                    reached[next_node] = None
                    waiting.append((next_node, distance + 1))
        return tuple(reached)[1:]

    def producers(self, node: Node) -> tuple[tuple[Node, int] | None, ...]:
        """Return for each input of `node` the node that actually computes it, and the output slot.

        Nodes that only pass values on (``Load``, ``Depend``, ``TupleGetItem``, ``MakeTuple``, ``Return``) are skipped.
        The entry is None for an input without a value: the order of side effects (``UpdateState``, a monad), a control
        edge, a dangling input. For an input that cannot be followed to its end (a whole tuple, an index known only at
        run time, a cycle), it is the last node that was reached, with slot 0. A call of another graph is a producer
        like an operator.
        """
        return tuple(
            self._dataflow.producer(edge.source) if edge.kind is EdgeKind.DATA else None for edge in node.inputs
        )

    def flat_producers(self, node: Node) -> tuple[tuple[Node, int] | None, ...]:
        """Return the producers of `node` with each whole tuple replaced by the producers of its elements.

        The positions are the input slots of a dumped operator.
        """
        is_own = self._by_name.get(node.name) is node
        if is_own and node.name in self._flat_producers:
            return self._flat_producers[node.name]
        producers = tuple(
            producer
            for edge in node.inputs
            for producer in (self._dataflow.elements(edge.source) if edge.kind is EdgeKind.DATA else (None,))
        )
        if is_own:
            self._flat_producers[node.name] = producers
        return producers

    @lazily
    def results(self) -> tuple[tuple[str, tuple[Node, int] | None], ...]:
        """The values that the graph returns, including nested tuples: the node in the tuple, and the producer, of each.

        If the last operator does not make a tuple, it is the only result.
        """
        last = self.operators[-1] if self.operators else None
        if last is None:
            return ()
        if last.type != "MakeTuple":
            return ((last.name, (last, 0)),)
        edges = (edge for edge in last.inputs if edge.kind is EdgeKind.DATA)
        return tuple((edge.source, producer) for edge in edges for producer in self._dataflow.elements(edge.source))

    @lazily
    def functions(self) -> frozenset[str]:
        """The first lines of the functions that the stacks of operators pass through."""
        stacks = {stack for node in self.operators if (stack := node.stack)}
        frames = (frame for stack in stacks for frame in parse_stack(stack))
        return frozenset(frame.code for frame in frames if frame.code.startswith(("def ", "async def ")))

    def once(self, compute: Callable[[Graph], _Fact]) -> _Fact:
        """Return the cached result of a function of this graph; it is called once, and other graphs do not wait.

        Parameters
        ----------
        compute : callable
            Computes a fact that depends only on this graph.
        """
        return once(self._facts, compute, lambda: compute(self))

    @lazily
    def scopes(self) -> Scope:
        """The root of the tree of scopes."""
        return scope_tree(self.nodes)

    def source_lines(self) -> Mapping[tuple[str, int], tuple[Node, ...]]:
        """Return the operators whose stack contains each (file, line), in topological order."""
        return self._source_lines

    @lazily
    def _source_lines(self) -> Mapping[tuple[str, int], tuple[Node, ...]]:
        lines: dict[tuple[str, int], dict[Node, None]] = {}
        for node in self.operators:
            for frame in node.frames:
                if frame.line is not None:
                    lines.setdefault((frame.file, frame.line), {})[node] = None
        return MappingProxyType({line: tuple(nodes) for line, nodes in lines.items()})

    @lazily
    def _consumers(self) -> dict[str, tuple[Node, ...]]:
        consumers: dict[str, list[Node]] = {}
        for node in self.nodes:
            # A node that takes a value twice is a single consumer.
            for source in dict.fromkeys(edge.source for edge in node.inputs):
                consumers.setdefault(source, []).append(node)
        return {name: tuple(nodes) for name, nodes in consumers.items()}

    @lazily
    def _dataflow(self) -> Dataflow:
        return Dataflow(self._by_name)

    def _item_of(self, consumer: Node, node: Node) -> int | None:
        """Return the output of `node` that a TupleGetItem takes; None if `consumer` takes all, or if it is unknown."""
        if consumer.type != "TupleGetItem" or not consumer.inputs or consumer.inputs[0].source != node.name:
            return None
        return tuple_index(self._by_name, consumer)

    def _similar_names(self, name: str) -> list[str]:
        short = name.rpartition("/")[2]
        same_end = [other for other in self._by_name if other.rpartition("/")[2] == short]
        if same_end:
            return same_end[:3]
        stem = short.partition("-")[0].lower()
        related = [other for other in self._by_name if stem and stem in other.lower()] or list(self._by_name)
        return difflib.get_close_matches(name, related[:_MOST_COMPARED], n=3, cutoff=0.5)
