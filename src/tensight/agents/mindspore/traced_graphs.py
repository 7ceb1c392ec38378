"""MindSpore's graphs as the nodes of a program: names, inputs, roles, lines of code, order of execution."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from tensight.agents.core.program import StackFrame, TracedNode
from tensight.graph import is_optimizer
from tensight.graph.dataflow import VIRTUAL_TYPES
from tensight.graph.optimizers import is_gathered, parameter_roles
from tensight.graph.source import parse_stack

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tensight.agents.core.program import Role, Source
    from tensight.graph import Graph, Node, SourceFrame

_LIBRARIES = ("site-packages", "dist-packages")
_DEFINITIONS = ("def ", "async def ")
_VARIABLE_READERS = frozenset({"Load", "Assign", "AssignAdd", "AssignSub"})
"""Operators that read a variable of the network; an input of the network is read directly."""


def traced_nodes(
    graph: Graph, listed: Sequence[str], names: Mapping[str, str], roles: Mapping[str, Role]
) -> Iterator[TracedNode]:
    """Yield parameters, constants, and operators in the order of execution.

    Parameters
    ----------
    graph : Graph
    listed : sequence of str
        Names of its operators in the order of execution, as in the dump.
    names : mapping of str to str
        Name in the program of each node.
    roles : mapping of str to Role
        Of its parameters, by their names in the program.
    """
    for node in graph.parameters:
        yield TracedNode(names[node.name], node.type, roles[names[node.name]], outputs=node.outputs)
    for node in graph.constants:
        yield TracedNode(names[node.name], node.type, "constant", outputs=node.outputs, attributes=_value(node))
    for node in executed(graph, listed):
        yield TracedNode(
            names[node.name],
            node.type,
            "operator",
            sources(graph, node, names),
            node.outputs,
            user_stack(node),
            {name: _plain(value) for name, value in node.attributes.items()},
        )


def executed(graph: Graph, listed: Sequence[str]) -> list[Node]:
    """Return the operators of a graph that compute something, in the order of execution.

    An operator that is not listed, such as a reshape that moves nothing, follows the operators that it reads.
    """
    computing = [node for node in graph.operators if node.type not in VIRTUAL_TYPES]
    positions = {name: float(position) for position, name in enumerate(listed)}
    at: dict[Node, float] = {}
    for node in computing:
        position = positions.get(node.name)
        if position is None:
            read = (at.get(source[0], -1.0) for source in graph.flat_producers(node) if source is not None)
            position = max(read, default=-1.0) if listed else len(at)
        at[node] = position
    return sorted(computing, key=lambda node: (at[node], node.name not in positions))


def sources(graph: Graph, node: Node, names: Mapping[str, str]) -> tuple[Source | None, ...]:
    """Return the sources of the inputs of an operator, by slot."""
    inputs = [
        None if producer is None else (names.get(producer[0].name, producer[0].name), producer[1])
        for producer in graph.flat_producers(node)
    ]
    # Inputs at the end that are not values order side effects.
    while inputs and inputs[-1] is None:
        inputs.pop()
    return tuple(inputs)


def results(graph: Graph, names: Mapping[str, str]) -> tuple[Source | None, ...]:
    """Return the sources of the values that a graph returns, nested tuples included.

    Empty if they are unknown; None for a constant.
    """
    last = graph.operators[-1] if graph.operators else None
    if last is None or last.type != "MakeTuple" or graph.consumers(last):
        return ()
    return tuple(
        None if producer is None or producer[0].is_constant else (names[producer[0].name], producer[1])
        for producer in graph.flat_producers(last)
    )


def is_tuple(parameter: Node) -> bool:
    """Whether a parameter is a tuple of tensors; MindSpore does not dump those."""
    return any(slot.dtype and slot.shape is None for slot in parameter.outputs)


def optimizes(graph: Graph) -> bool:
    """Whether a graph contains an optimizer."""
    return any(map(is_optimizer, graph.operators))


def updates_weights(graph: Graph) -> bool:
    """Whether a run of a graph updates weights."""
    return bool(parameter_roles(graph).trainable) and optimizes(graph)


def other_role(graph: Graph, parameter: Node) -> Role:
    """Return the role of a parameter that is neither a weight nor a state of an optimizer."""
    if "." in parameter.name or is_gathered(parameter.name):
        return "buffer"
    is_variable = any(reader.type in _VARIABLE_READERS for reader in graph.consumers(parameter))
    return "buffer" if is_variable else "input"


def user_stack(node: Node) -> tuple[StackFrame, ...]:
    """Return the lines of the user's code that an operator comes from, innermost first.

    If there are none, as for an optimizer's operators, the lines of libraries are returned.
    """
    return _stack(node.stack)


@lru_cache(maxsize=4096)
def _stack(lines: tuple[str, ...]) -> tuple[StackFrame, ...]:
    located = tuple(_located(parse_stack(lines)))
    user_frames = tuple(frame for frame in located if not any(name in frame.file for name in _LIBRARIES))
    return user_frames or located


def _located(frames: tuple[SourceFrame, ...]) -> Iterator[StackFrame]:
    """Yield frames that name a line; a line that defines a function only provides its name."""
    for frame, outer in zip(frames, (*frames[1:], None), strict=False):
        if not frame.file or frame.line is None or frame.code.startswith(_DEFINITIONS):
            continue
        function = ""
        if outer is not None and outer.file == frame.file and outer.code.startswith(_DEFINITIONS):
            function = outer.code.partition("def ")[2].partition("(")[0].strip()
        yield StackFrame(frame.file, frame.line, function, frame.code)


def _value(constant: Node) -> dict[str, str | int | float | bool]:
    value = constant.value
    return {} if value is None else {"value": _plain(value)}


def _plain(value: object) -> str | int | float | bool:
    return value if isinstance(value, (str, int, float, bool)) else str(value)
