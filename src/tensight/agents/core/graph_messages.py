"""A program as the graph that MindSpore would write, and as the chunks in which it is sent."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tensight.agents.core.call_stack import source_text
from tensight.graph.data_types import DT_NONE, DT_TENSOR
from tensight.graph.given import serialized_given
from tensight.graph.layer_node import OUTSIDE
from tensight.graph.ms_graph_pb2 import (
    AttributeProto,
    GraphProto,
    NamedValueProto,
    NodeProto,
    TypeProto,
    ValueProto,
)
from tensight.graph.own_fields import serialized_own_names, serialized_roles
from tensight.graph.protobuf_fields import length_delimited
from tensight.wire import chunks, encoded
from tensight.wire.debugger_pb2 import Chunk, SourceText

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from tensight.agents.core.program import Program, Source, StackFrame, TracedNode
    from tensight.graph import OutputSlot

MOST_SOURCE_BYTES = 16 * 2**20
"""Of all source files that a process sends."""

MOST_FILE_BYTES = 2**20
"""A longer file is probably not written by hand."""

_OUTSIDE_KEY = b"cst0"
_NAMES_OF_A_CHUNK = 20_000
_TRAILING_NUMBER = re.compile(r"[0-9]{1,9}\Z")

_NODE, _GRAPH_NAME, _PARAMETERS, _CONST_VALS, _ROOT_NAME = (
    GraphProto.DESCRIPTOR.fields_by_name[name].number
    for name in ("node", "name", "parameters", "const_vals", "root_name")
)
_INPUT, _NAME, _OP_TYPE, _SCOPE, _ATTRIBUTE, _OUTPUT_TYPE, _FULL_NAME, _SOURCE_ADDRESS = (
    NodeProto.DESCRIPTOR.fields_by_name[name].number
    for name in ("input", "name", "op_type", "scope", "attribute", "output_type", "full_name", "source_address")
)
_DT_BOOL, _DT_INT64, _DT_FLOAT64, _DT_STRING = 1, 5, 12, 13


def graph_number(program: Program) -> int:
    """Return the number at the end of the name of a program's graph, with which the process reports its position."""
    match = _TRAILING_NUMBER.search(program.name)
    return int(match[0]) if match else program.number


def graph_message(program: Program, file_names: Mapping[str, str] | None = None) -> bytes:
    """Return a program as a serialized GraphProto, with the roles of its parameters.

    Parameters
    ----------
    program : Program
    file_names : mapping of str to str, optional
        For a recorded program, the names by which the files of its operators are found.
    """
    roles = {node.name: node.role for node in program.nodes if node.role not in ("operator", "constant")}
    return _written(program, file_names) + serialized_roles(roles) + serialized_given(program.given)


def _written(program: Program, file_names: Mapping[str, str] | None) -> bytes:
    if file_names is None and program.written:
        return program.written
    names = file_names or {}
    return _GraphWriter(program, names).write() + serialized_own_names(names)


def execution_order(program: Program) -> list[str]:
    """Return the full names of a program's operators in the order of execution."""
    return [node.name for node in program.nodes if node.role == "operator"]


def graph_chunks(graph: bytes, order: Sequence[str] = (), sources: Mapping[str, str] | None = None) -> Iterator[Chunk]:
    """Yield a graph in pieces that any gRPC peer accepts.

    Parameters
    ----------
    graph : bytes
        From `graph_message`.
    order : sequence of str
        Full names of its operators in the order of execution.
    sources : mapping of str to str, optional
        Text of source files, which come first.
    """
    for file, text in (sources or {}).items():
        yield Chunk(sources=[SourceText(file=encoded(file), text=encoded(text))])
    pieces = [Chunk(buffer=bytes(piece)) for piece in chunks(graph)]
    pieces += [
        Chunk(execution_order=map(encoded, order[start : start + _NAMES_OF_A_CHUNK]))
        for start in range(0, len(order), _NAMES_OF_A_CHUNK)
    ]
    pieces[-1].finished = True
    yield from pieces


class SourceTexts:
    """The text of the user's files, each sent once."""

    def __init__(self) -> None:
        self._seen: set[str] = set()
        self._left_bytes = MOST_SOURCE_BYTES

    def of(self, programs: Iterable[Program]) -> dict[str, str]:
        """Return the source files of some programs that were not returned before, by path."""
        files = {frame.file: None for program in programs for node in program.nodes for frame in node.stack}
        texts: dict[str, str] = {}
        for file in files:
            if file in self._seen:
                continue
            self._seen.add(file)
            text = source_text(file)
            size_bytes = len(text.encode())
            if 0 < size_bytes <= min(MOST_FILE_BYTES, self._left_bytes):
                self._left_bytes -= size_bytes
                texts[file] = text
        return texts

    def forget(self) -> None:
        """Return all files again from now on, because another server does not have them."""
        self._seen.clear()
        self._left_bytes = MOST_SOURCE_BYTES


class _GraphWriter:
    """Writes one program; nodes are numbered in the order of execution."""

    def __init__(self, program: Program, file_names: Mapping[str, str]) -> None:
        self._file_names = file_names
        self._program = program
        self._nodes: list[bytes] = []
        self._parameters: list[bytes] = []
        self._known: list[bytes] = []
        self._ids: dict[str, bytes] = {}
        self._several: set[str] = {node.name for node in program.nodes if len(node.outputs) > 1}
        self._scopes: dict[str, str] = {node.name: node.scope for node in program.nodes}
        self._items: dict[Source, bytes] = {}
        self._constants: dict[int, bytes] = {}
        self._types: dict[tuple[OutputSlot, ...], bytes] = {(): b""}
        self._stacks: dict[tuple[StackFrame, ...], bytes] = {(): b""}
        self._outside = False

    def write(self) -> bytes:
        """Return the fields of a GraphProto, which are much faster to join than messages are to build."""
        for node in self._program.nodes:
            if node.role == "operator":
                self._add_operator(node)
            elif node.role == "constant":
                self._add_known_constant(node)
            else:
                name = self._ids[node.name] = encoded(node.name)
                type_ = self._type(node.outputs[:1])
                parameter = length_delimited(1, name) + (length_delimited(2, type_) if type_ else b"")
                self._parameters.append(length_delimited(_PARAMETERS, parameter))
        name, root = encoded(self._program.name), str(graph_number(self._program)).encode()
        head, root = length_delimited(_GRAPH_NAME, name), length_delimited(_ROOT_NAME, root)
        return b"".join([*self._nodes, head, *self._parameters, *self._known, root])

    def _add_operator(self, node: TracedNode) -> None:
        inputs = [self._reference(source) for source in node.inputs]
        self._ids[node.name] = self._add_node(
            node.type,
            node.scope,
            self._file_names.get(node.name, node.name),
            inputs,
            [length_delimited(_ATTRIBUTE, _attribute(name, value)) for name, value in node.attributes.items()],
            self._type(node.outputs),
            self._stack(node.stack),
        )

    def _add_node(
        self,
        type_: str,
        scope: str,
        full_name: str,
        inputs: Sequence[bytes],
        attributes: Sequence[bytes] = (),
        output_type: bytes = b"",
        stack: bytes = b"",
    ) -> bytes:
        """Add a NodeProto; return its name."""
        identifier = str(len(self._nodes) + 1).encode()
        fields = [length_delimited(_INPUT, length_delimited(1, name)) for name in inputs]
        fields += [
            length_delimited(_NAME, identifier),
            length_delimited(_OP_TYPE, encoded(type_)),
            length_delimited(_SCOPE, encoded(scope)),
            *attributes,
            length_delimited(_OUTPUT_TYPE, output_type) if output_type else b"",
            length_delimited(_FULL_NAME, encoded(full_name)),
            length_delimited(_SOURCE_ADDRESS, stack) if stack else b"",
        ]
        self._nodes.append(length_delimited(_NODE, b"".join(fields)))
        return identifier

    def _reference(self, source: Source | None) -> bytes:
        """Return the name by which a node refers to one of its inputs."""
        if source is None or source[0] not in self._ids:
            return self._outside_key()
        name, slot = source
        return self._item(source) if slot or name in self._several else self._ids[name]

    def _add_known_constant(self, node: TracedNode) -> None:
        key = self._ids[node.name] = encoded(node.name)
        value = node.attributes.get("value")
        self._add_constant(key, ValueProto(dtype=DT_NONE) if value is None else _value(value), key)

    def _outside_key(self) -> bytes:
        if not self._outside:
            self._outside = True
            self._add_constant(_OUTSIDE_KEY, ValueProto(dtype=DT_NONE), OUTSIDE.encode())
        return _OUTSIDE_KEY

    def _add_constant(self, key: bytes, value: ValueProto, full_name: bytes) -> None:
        constant = NamedValueProto(key=key, value=value.SerializeToString(), full_name=full_name)
        self._known.append(length_delimited(_CONST_VALS, constant.SerializeToString()))

    def _item(self, source: Source) -> bytes:
        """Return the name of the node that takes one of several outputs."""
        node_id = self._items.get(source)
        if node_id is None:
            name, slot = source
            scope = self._scopes[name] or "Default"
            full_name = f"{scope}/TupleGetItem-op{len(self._nodes) + 1}"
            inputs = [self._ids[name], self._constant(slot)]
            node_id = self._items[source] = self._add_node("TupleGetItem", scope, full_name, inputs)
        return node_id

    def _constant(self, number: int) -> bytes:
        key = self._constants.get(number)
        if key is None:
            key = self._constants[number] = f"cst{number + 1}".encode()
            name = f"Default--data-{number + 1}".encode()
            self._add_constant(key, ValueProto(dtype=_DT_INT64, int_val=number), name)
        return key

    def _type(self, outputs: Sequence[OutputSlot]) -> bytes:
        key = tuple(outputs)
        serialized = self._types.get(key)
        if serialized is None:
            serialized = self._types[key] = _type_of(key).SerializeToString()
        return serialized

    def _stack(self, stack: tuple[StackFrame, ...]) -> bytes:
        text = self._stacks.get(stack)
        if text is None:
            text = self._stacks[stack] = b"\n".join(map(_frame, stack))
        return text


def _frame(frame: StackFrame) -> bytes:
    code = " ".join(frame.code.split("\n"))
    lines = str(frame.line) if frame.end_line is None else f"{frame.line}~{frame.end_line}"
    return encoded(f"# In file {frame.file}:{lines}/        {code}/".replace("\n", " "))


def _type_of(outputs: tuple[OutputSlot, ...]) -> TypeProto:
    if len(outputs) == 1:
        return _tensor_type(outputs[0])
    message = TypeProto(data_type=0)
    message.sequence_type.elem_types.extend(map(_element_type, outputs))
    return message


def _element_type(slot: OutputSlot) -> TypeProto:
    """Return the type of one of several outputs; a tensor's shape may be unknown there."""
    if slot.shape is not None or not slot.dtype:
        return _tensor_type(slot)
    message = TypeProto(data_type=DT_TENSOR)
    message.tensor_type.elem_type = slot.data_type
    return message


def _tensor_type(slot: OutputSlot) -> TypeProto:
    if slot.shape is None:
        return TypeProto(data_type=slot.data_type)
    message = TypeProto(data_type=DT_TENSOR)
    tensor = message.tensor_type
    tensor.elem_type = slot.data_type
    tensor.shape.SetInParent()
    for length in slot.shape:
        tensor.shape.dim.add(size=length)
    return message


def _attribute(name: str, value: str | float | bool) -> bytes:
    return AttributeProto(name=encoded(name), value=_value(value)).SerializeToString()


def _value(value: str | float | bool) -> ValueProto:
    if isinstance(value, bool):
        return ValueProto(dtype=_DT_BOOL, bool_val=value)
    if isinstance(value, int) and -(2**63) <= value < 2**63:
        return ValueProto(dtype=_DT_INT64, int_val=value)
    if isinstance(value, (int, float)):
        return ValueProto(dtype=_DT_FLOAT64, double_val=float(value))
    return ValueProto(dtype=_DT_STRING, str_val=encoded(str(value)))
