"""Parsing of graphs, from the files beside a dump and from the messages of a training process."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from google.protobuf.message import DecodeError

from tensight.errors import GraphError, Problem
from tensight.graph.data_types import DT_TENSOR, OutputSlot
from tensight.graph.given import GIVEN, read_given
from tensight.graph.model import Graph
from tensight.graph.node import CONSTANT, PARAMETER, Edge, EdgeKind, Node
from tensight.graph.own_fields import OWN_NAMES, ROLES, read_own_names, read_roles
from tensight.graph.protobuf_fields import ProtobufFormatError, length_delimited_fields
from tensight.graph.values import decode_text

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping, Sequence

    from tensight.graph.ms_graph_pb2 import NodeProto, TypeProto

# The limit of protobuf.
MOST_BYTES = 2**31 - 1
# Number of nodes that are read in a step, which takes one or two milliseconds.
_NODES_A_STEP = 100
# The parts of a node of at least this size are counted before it is parsed.
_LARGE_NODE_BYTES = 2**16
# Weight of a level of a scope, which takes more memory than other parts.
_PARTS_OF_A_SCOPE = 4
# Number of problems of a kind that are listed one by one; a damaged file may have thousands.
_MOST_LISTED = 20

_MODEL_GRAPH = 4
_GRAPH_NODE, _GRAPH_NAME, _GRAPH_PARAMETER, _GRAPH_CONSTANT, _GRAPH_ROOT_NAME = 1, 2, 3, 5, 6
_CONTROL_EDGE = 1

_TRAILING_NUMBER = re.compile(r"[0-9]{1,18}\Z")


def parse_graph(data: bytes | memoryview, *, where: str) -> Graph:
    """Read a graph file that MindSpore wrote beside a dump (``ms_output_trace_code_graph_0.pb``).

    Parameters
    ----------
    data : bytes or memoryview
        The file: a serialized ModelProto.
    where : str
        The file's name, for messages.

    Returns
    -------
    Graph
        Its `problems` list unusable parts of the file.

    Raises
    ------
    GraphError
        The data are not such a graph, damaged, or too large.
    """
    # The graph may come in pieces, which protobuf merges by concatenation.
    pieces = [piece for number, piece in _fields(data, where) if number == _MODEL_GRAPH]
    if not pieces:
        raise GraphError(f"{where}: there is no graph in it; it is empty or no graph file of MindSpore")
    return _last(_GraphReader(where).read(pieces))


def graph_proto(data: bytes | memoryview, *, where: str) -> bytes:
    """Return the graph in a graph file of MindSpore as a serialized GraphProto, the form that training processes send.

    Parameters
    ----------
    data : bytes or memoryview
        The file: a serialized ModelProto.
    where : str
        The file's name, for messages.

    Raises
    ------
    GraphError
        The data are not such a file.
    """
    return b"".join(piece for number, piece in _fields(data, where) if number == _MODEL_GRAPH)


def parse_graph_proto(data: bytes | memoryview, *, where: str) -> Graph:
    """Read a graph as sent by a training process: a serialized GraphProto.

    Parameters, return value and errors are those of `parse_graph`.
    """
    return _last(graph_proto_steps(data, where=where))


def graph_proto_steps(
    data: bytes | memoryview, *, where: str, most_nodes: int | None = None, most_parts: int | None = None
) -> Generator[None, None, Graph]:
    """Read a graph as sent by a training process, in steps of a few milliseconds.

    Parameters
    ----------
    data, where
        See `parse_graph_proto`.
    most_nodes : int, optional
        Maximum number of nodes.
    most_parts : int, optional
        Maximum number of inputs, attributes, outputs, scopes and source lines of all nodes together. Each may have only
        two bytes here, but a hundred in memory.

    Returns
    -------
    generator
        A generator that yields after each step and returns the graph.

    Raises
    ------
    GraphError
        The data are not such a graph, damaged, or too large.
    """
    if not len(data):
        raise GraphError(f"{where}: there is no graph in it; it is empty")
    return (yield from _GraphReader(where, most_nodes, most_parts).read([memoryview(data)]))


def _fields(data: bytes | memoryview, where: str) -> Iterator[tuple[int, memoryview]]:
    if len(data) > MOST_BYTES:
        raise GraphError(f"{where}: {len(data)} bytes; a graph file has at most {MOST_BYTES}")
    try:
        yield from length_delimited_fields(data)
    except ProtobufFormatError as error:
        raise GraphError(f"{where}: damaged, or no graph file of MindSpore: {error}") from error


class _Names:
    """The names of the nodes of a graph; makes repeated names unique."""

    def __init__(self) -> None:
        self.taken: set[str] = set()
        self.repeated: list[str] = []
        self._next: dict[str, int] = {}

    def unique(self, name: str) -> str:
        if name in self.taken:
            self.repeated.append(name)
            number = self._next.get(name, 2)
            while f"{name}#{number}" in self.taken:
                number += 1
            self._next[name] = number + 1
            name = f"{name}#{number}"
        self.taken.add(name)
        return name

    def unused(self, name: str) -> str:
        """Return `name`, with a suffix if a node has this name."""
        while name in self.taken:
            name += " (missing)"
        return name


class _GraphReader:
    """Reads a graph.

    A file of 100,000 nodes has hundreds of megabytes, most of them repeated: the outer lines of all stacks, the same
    attributes of all operators of a type. Nodes are therefore parsed one at a time, and equal pieces share one object.
    """

    def __init__(self, where: str, most_nodes: int | None = None, most_parts: int | None = None) -> None:
        self._where = where
        self._most_nodes = most_nodes
        self._most_parts = most_parts
        self._parts = 0
        self._names = _Names()
        self._nodes: list[Node] = []
        self._dangling: list[str] = []
        self._ambiguous_ids: list[str] = []
        self._pieces: dict[bytes, bytes] = {}
        self._texts: dict[bytes, str] = {}
        self._lines: dict[str, str] = {}
        self._stacks: dict[bytes, tuple[str, ...]] = {b"": ()}
        self._types: dict[bytes, tuple[OutputSlot, ...]] = {b"": ()}
        self._edges: dict[bytes, Edge] = {}
        self._own_names: dict[str, str] = {}

    def read(self, graph_pieces: Sequence[memoryview]) -> Generator[None, None, Graph]:
        """Read a graph from the concatenation of `graph_pieces`, step by step."""
        fields: dict[int, list[memoryview]] = {
            number: []
            for number in (
                _GRAPH_NODE,
                _GRAPH_NAME,
                _GRAPH_PARAMETER,
                _GRAPH_CONSTANT,
                _GRAPH_ROOT_NAME,
                ROLES,
                OWN_NAMES,
                GIVEN,
            )
        }
        for piece in graph_pieces:
            for count, (number, content) in enumerate(_fields(piece, self._where)):
                if number in fields:
                    self._count(1)
                    fields[number].append(content)
                if count % _NODES_A_STEP == 0:
                    self._require_room(fields)
                    yield
        self._require_room(fields)
        try:
            yield from self._read_parameters(fields[_GRAPH_PARAMETER])
            yield from self._read_constants(fields[_GRAPH_CONSTANT])
            self._own_names = read_own_names(fields[OWN_NAMES])
            yield from self._read_operators(fields[_GRAPH_NODE])
            roles = read_roles(fields[ROLES])
            name = decode_text(bytes(fields[_GRAPH_NAME][-1])) if fields[_GRAPH_NAME] else ""
            given = read_given(fields[GIVEN], name)
        except (DecodeError, ProtobufFormatError) as error:
            raise GraphError(f"{self._where}: damaged, or no graph file of MindSpore: {error}") from error
        root_name = decode_text(bytes(fields[_GRAPH_ROOT_NAME][-1])) if fields[_GRAPH_ROOT_NAME] else ""
        graph_id = _trailing_number(name)
        root_id = _trailing_number(root_name)
        problems = list(self._problems())
        if graph_id is None:
            graph_id = root_id if root_id is not None else 0
            what = f"the name of the graph, {name!r}, does not end with its number"
            problems.append(Problem(self._where, what, f"taken as graph {graph_id}"))
        return Graph(
            name,
            self._nodes,
            graph_id=graph_id,
            root_id=graph_id if root_id is None else root_id,
            problems=problems,
            declared_roles=roles,
            given=given,
        )

    def _require_room(self, fields: Mapping[int, Sequence[memoryview]]) -> None:
        nodes = sum(len(fields[number]) for number in (_GRAPH_NODE, _GRAPH_PARAMETER, _GRAPH_CONSTANT))
        if self._most_nodes is not None and nodes > self._most_nodes:
            raise GraphError(f"{self._where}: a graph of more than {self._most_nodes:,} nodes is not accepted")

    def _count(self, parts: int) -> None:
        self._parts += parts
        if self._most_parts is not None and self._parts > self._most_parts:
            raise GraphError(
                f"{self._where}: a graph with more than {self._most_parts:,} nodes, inputs, attributes, outputs, scopes"
                " and lines of code is not accepted"
            )

    def _read_parameters(self, parameters: Sequence[memoryview]) -> Iterator[None]:
        from tensight.graph.ms_graph_pb2 import ParameterProto

        for count, data in enumerate(parameters):
            if count % _NODES_A_STEP == 0:
                yield
            parameter = ParameterProto.FromString(bytes(data))
            text = decode_text(parameter.name)
            name = self._names.unique(text)
            outputs = self._outputs(parameter.type)
            self._register(parameter.name, text, name)
            self._nodes.append(Node(name, PARAMETER, id=text, full_name=text, outputs=outputs))

    def _read_constants(self, constants: Sequence[memoryview]) -> Iterator[None]:
        from tensight.graph.ms_graph_pb2 import NamedValueProto

        for count, data in enumerate(constants):
            if count % _NODES_A_STEP == 0:
                yield
            constant = NamedValueProto.FromString(bytes(data))
            key, full_name = decode_text(constant.key), decode_text(constant.full_name)
            name = self._names.unique(full_name or key)
            self._register(constant.key, key, name)
            outputs = (OutputSlot(_declared_type(constant.value), "", None),)
            self._nodes.append(
                Node(name, CONSTANT, id=key, full_name=full_name, outputs=outputs, raw_value=constant.value)
            )

    def _read_operators(self, nodes: Sequence[memoryview]) -> Iterator[None]:
        from tensight.graph.ms_graph_pb2 import NodeProto

        waiting: list[tuple[Node, NodeProto]] = []
        for count, data in enumerate(nodes):
            if count % _NODES_A_STEP == 0:
                yield
            if len(data) < _LARGE_NODE_BYTES:
                proto = NodeProto.FromString(bytes(data))
                self._count(len(proto.input) + len(proto.attribute))
            else:
                for _ in _fields(data, self._where):
                    self._count(1)
                proto = NodeProto.FromString(bytes(data))
            node = self._operator(proto)
            self._nodes.append(node)
            try:
                _set_inputs(node, [self._edge(edge.name, edge.type) for edge in proto.input])
            except KeyError:
                waiting.append((node, proto))  # refers to an operator further down, or to none
        for count, (node, proto) in enumerate(waiting):
            if count % _NODES_A_STEP == 0:
                yield
            _set_inputs(node, [self._edge_or_dangling(edge.name, edge.type) for edge in proto.input])

    def _operator(self, proto: NodeProto) -> Node:
        identifier, scope, kind = decode_text(proto.name), self._scope(proto.scope), self._text(proto.op_type)
        full_name = decode_text(proto.full_name)
        name = self._names.unique(self._own_names.get(full_name, full_name) or _made_up_name(scope, kind, identifier))
        self._register(proto.name, identifier, name)
        return Node(
            name,
            kind,
            scope or full_name.rpartition("/")[0],
            identifier,
            full_name,
            (),
            self._outputs(proto.output_type),
            self._stack(proto.source_address),
            tuple([self._pieces.setdefault(piece, piece) for piece in proto.attribute]),
        )

    def _register(self, reference: bytes, identifier: str, name: str) -> None:
        if reference in self._edges:
            self._ambiguous_ids.append(identifier)
        self._edges[reference] = Edge(name)

    def _edge(self, reference: bytes, kind: int) -> Edge:
        edge = self._edges[reference]
        return edge if kind != _CONTROL_EDGE else Edge(edge.source, EdgeKind.CONTROL)

    def _edge_or_dangling(self, reference: bytes, kind: int) -> Edge:
        if reference not in self._edges:
            source = decode_text(reference)
            self._dangling.append(source)
            # If the reference equals the name of another node, it must not point to that node.
            self._edges[reference] = Edge(self._names.unused(source))
        return self._edge(reference, kind)

    def _scope(self, data: bytes) -> str:
        if data not in self._texts:
            self._count(_PARTS_OF_A_SCOPE * data.count(b"/"))
        return self._text(data)

    def _text(self, data: bytes) -> str:
        text = self._texts.get(data)
        if text is None:
            text = self._texts[data] = decode_text(data)
        return text

    def _stack(self, source_address: bytes) -> tuple[str, ...]:
        stack = self._stacks.get(source_address)
        if stack is None:
            self._count(source_address.count(b"\n"))
            keep = self._lines.setdefault
            stack = tuple([keep(line, line) for line in decode_text(source_address).split("\n")])
            # Whole stacks repeat less often than their lines, so caching long ones is not worthwhile.
            if len(source_address) <= 64:
                self._stacks[source_address] = stack
        return stack

    def _outputs(self, output_type: bytes) -> tuple[OutputSlot, ...]:
        outputs = self._types.get(output_type)
        if outputs is None:
            from tensight.graph.ms_graph_pb2 import TypeProto

            # The smallest part of a type has two bytes.
            self._count(len(output_type) // 2)
            outputs = self._types[output_type] = _output_slots(TypeProto.FromString(output_type))
        return outputs

    def _problems(self) -> Iterator[Problem]:
        kinds = (
            (self._names.repeated, "several nodes have the name {}", "the later ones got a number after a #"),
            (self._ambiguous_ids, "several nodes have the id {}", "inputs are taken to mean the nearest above"),
            (self._dangling, "an input refers to {}, which is not in the graph", ""),
        )
        for names, what, advice in kinds:
            listed = list(dict.fromkeys(names))
            for name in listed[:_MOST_LISTED]:
                yield Problem(self._where, what.format(repr(name)), advice)
            if len(listed) > _MOST_LISTED:
                yield Problem(self._where, what.format(f"{len(listed) - _MOST_LISTED} more names"), advice)


def _last(steps: Generator[None, None, Graph]) -> Graph:
    """Run a generator to its end, and return its value."""
    graphs: list[Graph] = []

    def take() -> Generator[None, None, None]:
        graphs.append((yield from steps))

    for _ in take():
        pass
    return graphs[0]


def _set_inputs(node: Node, inputs: list[Edge]) -> None:
    # The node is not shared yet; modifying it is faster than creating each of 100,000 nodes twice.
    object.__setattr__(node, "inputs", tuple(inputs))


def _made_up_name(scope: str, kind: str, identifier: str) -> str:
    """Return a name in the usual form for an operator without a name in the file."""
    return f"{scope}/{kind}-op{identifier}" if scope else f"{kind}-op{identifier}"


def _output_slots(declared: TypeProto, *, in_tuple: bool = False) -> tuple[OutputSlot, ...]:
    """Return the output slots of a type; protobuf's nesting limit (100) bounds the recursion."""
    if declared.HasField("sequence_type"):
        return tuple(
            slot for element in declared.sequence_type.elem_types for slot in _output_slots(element, in_tuple=True)
        )
    if declared.data_type != DT_TENSOR and not declared.HasField("tensor_type"):
        return (OutputSlot(declared.data_type, "", None),)
    tensor = declared.tensor_type
    if tensor.HasField("shape"):
        shape: tuple[int, ...] | None = tuple([dimension.size for dimension in tensor.shape.dim])
    else:
        # In the file, scalars have no shape, and neither have elements of tuples, regardless of their shape.
        shape = None if in_tuple else ()
    return (OutputSlot.of_tensor(tensor.elem_type, shape),)


def _declared_type(value: bytes) -> int:
    """Return the DataType that a serialized ValueProto declares; 0 if it declares none."""
    # MindSpore always writes it as the first field, and all values fit one byte.
    return value[1] if len(value) > 1 and value[0] == 0x08 and value[1] < 0x80 else 0


def _trailing_number(name: str) -> int | None:
    match = _TRAILING_NUMBER.search(name)
    return int(match[0]) if match else None
