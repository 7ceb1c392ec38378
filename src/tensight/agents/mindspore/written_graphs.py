"""Graphs as MindSpore wrote them, prepared for transfer: with the names of the program, and several merged into one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensight.graph.ms_graph_pb2 import GraphProto, NodeProto, TypeProto, ValueProto
from tensight.wire import encoded

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tensight.agents.core.program import Source
    from tensight.graph import Graph

_DT_INT64 = 5


def renamed(data: bytes, graph: Graph, names: Mapping[str, str]) -> bytes:
    """Return a serialized graph with the names of its nodes in a program.

    Parameters
    ----------
    data : bytes
        The graph as MindSpore wrote it.
    graph : Graph
        The same graph, parsed.
    names : mapping of str to str
        Name in the program of each node.
    """
    operators, parameters = graph.operators, graph.parameters
    if all(node.full_name == names[node.name] for node in (*operators, *parameters)):
        return data
    message = GraphProto.FromString(data)
    for node, proto in zip(operators, message.node, strict=True):
        proto.full_name = encoded(names[node.name])
    others: dict[bytes, bytes] = {}
    for node, parameter in zip(parameters, message.parameters, strict=True):
        name = encoded(names[node.name])
        if name != parameter.name:
            others[parameter.name] = name
            parameter.name = name
    if others:
        for proto in message.node:
            for source in proto.input:
                source.name = others.get(source.name, source.name)
    return message.SerializeToString()


def merged(graphs: Iterable[bytes], name: str, number: int) -> bytes:
    """Merge several serialized graphs, and parameters of the same name; return the graph.

    Parameters
    ----------
    graphs : iterable of bytes
        With the names of their nodes in programs.
    name : str
        Of the merged graph.
    number : int
        By which a process reports that it is in this graph.
    """
    whole = GraphProto(name=encoded(name), root_name=str(number).encode())
    parameter_names: set[bytes] = set()
    names: set[bytes] = set()

    def unique(full_name: bytes, position: int) -> bytes:
        # Operators have unique names already; constants and pass-through nodes may not.
        unique_name = full_name + f"#{position + 1}".encode() if full_name and full_name in names else full_name
        names.add(unique_name)
        return unique_name

    for position, data in enumerate(graphs):
        part = GraphProto.FromString(data)
        prefix = f"{position}.".encode()
        for parameter in part.parameters:
            if parameter.name not in parameter_names:
                parameter_names.add(parameter.name)
                whole.parameters.append(parameter)
        part_parameters = {parameter.name for parameter in part.parameters}
        for constant in part.const_vals:
            constant.key = prefix + constant.key
            constant.full_name = unique(constant.full_name, position)
            whole.const_vals.append(constant)
        for node in part.node:
            node.name = prefix + node.name
            node.full_name = unique(node.full_name, position)
            for source in node.input:
                if source.name not in part_parameters:
                    source.name = prefix + source.name
            whole.node.append(node)
    return whole.SerializeToString()


def link_tuples(data: bytes, tuples: Mapping[str, Sequence[Source]]) -> bytes:
    """Return a serialized graph in which values from outside are replaced by outputs of other nodes.

    Parameters
    ----------
    data : bytes
        A graph with the names of a program.
    tuples : mapping of str to sequence of Source
        By the name of the parameter, which is a tuple or not as the graph says; an element of unknown source is one of
        the parameter itself.
    """
    graph = GraphProto.FromString(data)
    references = {parameter.name: parameter.name for parameter in graph.parameters}
    references |= {node.full_name: node.name for node in graph.node}
    kinds = {parameter.name: TypeProto.FromString(parameter.type) for parameter in graph.parameters}
    made: list[NodeProto] = []
    items: dict[bytes, list[bytes]] = {}
    wholes: dict[bytes, bytes] = {}
    for name, elements in tuples.items():
        parameter = encoded(name)
        scope = b"Default/" + parameter
        item_names = items[parameter] = [b"%b.item%d" % (parameter, position) for position in range(len(elements))]
        for position, (source, slot) in enumerate(elements):
            index = graph.const_vals.add(key=b"%b.index%d" % (parameter, position))
            index.value = ValueProto(dtype=_DT_INT64, int_val=slot).SerializeToString()
            full_name = b"%b/TupleGetItem-op%d" % (scope, position)
            item_reads = (references[encoded(source)], index.key)
            made.append(_virtual(item_names[position], b"TupleGetItem", scope, full_name, item_reads))
        wholes[parameter] = item_names[0]
        if kinds[parameter].HasField("sequence_type"):
            wholes[parameter] = b"handed." + parameter
            made.append(_virtual(wholes[parameter], b"MakeTuple", scope, scope + b"/MakeTuple-op0", item_names))
    for node in graph.node:
        reads = tuple(read.name for read in node.input)
        # A tuple that was taken apart and rebuilt is named once for each element.
        spread = items.get(reads[0], []) if node.op_type == b"MakeTuple" and len(set(reads)) == 1 else []
        for position, read in enumerate(node.input):
            read.name = spread[position] if len(spread) == len(reads) else wholes.get(read.name, read.name)
    gone = {encoded(name) for name, elements in tuples.items() if all(source != name for source, _ in elements)}
    kept = [parameter for parameter in graph.parameters if parameter.name not in gone]
    del graph.parameters[:]
    graph.parameters.extend(kept)
    graph.node.extend(made)
    return graph.SerializeToString()


def _virtual(name: bytes, kind: bytes, scope: bytes, full_name: bytes, reads: Iterable[bytes]) -> NodeProto:
    node = NodeProto(name=name, op_type=kind, scope=scope, full_name=full_name)
    for source in reads:
        node.input.add(name=source)
    return node
