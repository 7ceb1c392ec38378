"""Graphs as MindSpore wrote them, made fit for travelling: with the names of the program, and several in one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensight.graph.ms_graph_pb2 import GraphProto
from tensight.wire import encoded

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tensight.graph import Graph


def renamed(data: bytes, graph: Graph, names: Mapping[str, str]) -> bytes:
    """Return a serialized graph with the names that its nodes have in a program.

    Parameters
    ----------
    data : bytes
        The graph as MindSpore wrote it.
    graph : Graph
        The same, read.
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
    """Return several serialized graphs as one; parameters of one name are one.

    Parameters
    ----------
    graphs : iterable of bytes
        Of programs, with the names that they have there.
    name : str
        Of the whole.
    number : int
        By which a process says that it stands in it.
    """
    whole = GraphProto(name=encoded(name), root_name=str(number).encode())
    known: set[bytes] = set()
    names: set[bytes] = set()

    def unique(full_name: bytes, place: int) -> bytes:
        # Operators have names of their own already; constants, and what only hands values on, may not.
        own = full_name + f"#{place + 1}".encode() if full_name and full_name in names else full_name
        names.add(own)
        return own

    for place, data in enumerate(graphs):
        part = GraphProto.FromString(data)
        prefix = f"{place}.".encode()
        for parameter in part.parameters:
            if parameter.name not in known:
                known.add(parameter.name)
                whole.parameters.append(parameter)
        own = {parameter.name for parameter in part.parameters}
        for constant in part.const_vals:
            constant.key = prefix + constant.key
            constant.full_name = unique(constant.full_name, place)
            whole.const_vals.append(constant)
        for node in part.node:
            node.name = prefix + node.name
            node.full_name = unique(node.full_name, place)
            for source in node.input:
                if source.name not in own:
                    source.name = prefix + source.name
            whole.node.append(node)
    return whole.SerializeToString()
