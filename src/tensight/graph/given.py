"""Sources of the values that a graph receives from other graphs, as the graph of a branch does.

MindSpore splits a network with value-dependent branches and loops into graphs, and its files do not contain which
value a graph passes to another. Candidates are the results of graphs that ran before, if type and shape fit. For a
variable that a branch captures from outside, the name is known as well. If several fit, it is one of them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING

from tensight.graph.dataflow import VIRTUAL_TYPES
from tensight.graph.declared import Given, GivenSource
from tensight.graph.protobuf_fields import ProtobufFormatError, length_delimited, length_delimited_fields
from tensight.graph.values import decode_text

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from tensight.graph.model import Graph
    from tensight.graph.node import Node

GIVEN = 1002
"""Number of the field of a GraphProto for the possible values of parameters."""

_PARAMETER, _SOURCE, _IS_COMPLETE = 1, 2, 3
_NODE, _SLOT = 1, 2

_ANONYMOUS = re.compile(r"(?:Parameter_|\[Parameter\])[0-9]+(?:#[0-9]+)?")
"""Parameters for results of calls, which have no names."""

_CAPTURED = re.compile(r"(?:▸|equiv_[0-9]+_)(?P<name>.+)")
"""Parameters for variables that a branch captures from the surrounding code."""

_UNNAMED = re.compile(r"▲?(?:CNode_|\[CNode\])?[0-9]+")
"""Values without names; the older forms are those of MindSpore 2.0."""

_IDENTIFIER = re.compile(r"\w+")
NUMBERED_INPUT = re.compile(r"inputs[0-9]+")
"""Inputs of a cell that accepts any number of inputs, such as the cells that train another one."""

_LOOP_VARIABLE = "ф"

_PRINTED = re.compile(r"^ *%\d+\((?:▲|equiv_\d+_)?(?P<name>[^\n)]*)\) = ", re.MULTILINE)
_OF_VERSION_2_0 = re.compile(r"equiv(?!_)|\[CNode\]|[0-9]+$")
"""MindSpore 2.0 prints operators with the names of other values."""

_FULL_NAME = re.compile(r"^ *# Fullname with scope: \((.*)\)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class GraphRun:
    """The runs of a graph in one step.

    Attributes
    ----------
    graph : Graph
    first, last : int
        When its first and its last value were computed, in any unit; both 0 if unknown.
    is_repeated : bool
        Whether it ran several times.
    printed : mapping of str to str
        MindSpore's names of operators' values in the printed graph, by the names of the operators.
    """

    graph: Graph
    first: int
    last: int
    is_repeated: bool
    printed: Mapping[str, str]


def is_given(parameter: Node) -> bool:
    """Return whether a parameter of a graph may be a value that other graphs computed.

    Parameters
    ----------
    parameter : Node
    """
    name = parameter.name
    return bool(_ANONYMOUS.fullmatch(name) or _CAPTURED.fullmatch(name) or name.startswith(_LOOP_VARIABLE))


def given_values(graph: Graph, runs: Sequence[GraphRun], others: Collection[Graph] = ()) -> dict[str, Given]:
    """Return the possible values of the parameters of a graph that other graphs computed, by parameter name.

    Parameters
    ----------
    graph : Graph
        A graph of `runs`.
    runs : sequence of GraphRun
        The graphs that ran in a step.
    others : collection of Graph
        Graphs that may have run as well without a recorded value, such as those that only return a constant.
    """
    graph_run = next((run for run in runs if run.graph is graph), None)
    if graph_run is None:
        return {}
    return {
        parameter.name: _given(graph, parameter, graph_run, runs, others, set())
        for parameter in graph.parameters
        if is_given(parameter)
    }


def runs_nothing(graph: Graph) -> bool:
    """Return whether a graph computes nothing and only returns its parameters or constants.

    Parameters
    ----------
    graph : Graph
    """
    return all(node.type in VIRTUAL_TYPES for node in graph.operators)


def printed_names(text: str) -> dict[str, str]:
    """Return MindSpore's names of operators' values in a printed graph, by the full names of the operators.

    The result is empty for MindSpore 2.0, which does not print them.

    Parameters
    ----------
    text : str
        Content of the ``.ir`` file beside the graph.
    """
    begins = list(_PRINTED.finditer(text))
    names: dict[str, str] = {}
    if any(_OF_VERSION_2_0.match(match["name"]) for match in begins):
        return names
    for match, following in zip_longest(begins, begins[1:]):
        end = len(text) if following is None else following.start()
        named = _FULL_NAME.search(text, match.end(), end)
        if named is not None:
            names[named[1]] = match["name"]
    return names


def serialized_given(given: Mapping[str, Given]) -> bytes:
    """Return the possible values of parameters as fields to append to a serialized GraphProto.

    Parameters
    ----------
    given : mapping of str to Given
        Possible values by the name of the parameter; all sources are nodes of the same graph.
    """
    return b"".join(
        length_delimited(
            GIVEN,
            length_delimited(_PARAMETER, name.encode("utf-8", "backslashreplace"))
            + b"".join(length_delimited(_SOURCE, _serialized(source)) for source in value.sources)
            + (length_delimited(_IS_COMPLETE, b"1") if value.is_complete else b""),
        )
        for name, value in given.items()
    )


def read_given(entries: Iterable[memoryview], graph: str) -> dict[str, Given]:
    """Read the possible values of parameters from the fields of a GraphProto.

    Parameters
    ----------
    entries : iterable of memoryview
        Contents of the fields `GIVEN`.
    graph : str
        Name of the graph that contains them.

    Raises
    ------
    ProtobufFormatError
        The fields are malformed.
    """
    given: dict[str, Given] = {}
    for entry in entries:
        name, sources, is_complete = "", [], False
        for number, content in length_delimited_fields(entry):
            if number == _PARAMETER:
                name = decode_text(bytes(content))
            elif number == _SOURCE:
                sources.append(_read_source(content, graph))
            elif number == _IS_COMPLETE:
                is_complete = True
        given[name] = Given(tuple(sources), is_complete)
    return given


def _serialized(source: GivenSource) -> bytes:
    node = length_delimited(_NODE, source.node.encode("utf-8", "backslashreplace"))
    return node + length_delimited(_SLOT, str(source.slot).encode())


def _read_source(content: memoryview, graph: str) -> GivenSource:
    parts = {number: bytes(field) for number, field in length_delimited_fields(content)}
    slot = parts.get(_SLOT, b"0")
    if not slot.isdigit() or len(slot) > 9:
        raise ProtobufFormatError("the slot of a value is not a number")
    return GivenSource(graph, decode_text(parts.get(_NODE, b"")), int(slot))


def _given(
    graph: Graph,
    parameter: Node,
    graph_run: GraphRun,
    runs: Sequence[GraphRun],
    others: Collection[Graph],
    seen: set[tuple[str, str]],
) -> Given:
    """Return the possible values of a parameter, through parameters that are only passed on; `seen` were visited."""
    seen.add((graph.name, parameter.name))
    captured = _CAPTURED.fullmatch(parameter.name)
    name = captured["name"] if captured is not None else ""
    variable = _variable(name, runs) if name else None
    if variable is not None and (NUMBERED_INPUT.fullmatch(name) or not _IDENTIFIER.fullmatch(name)):
        return Given((variable,), is_complete=True)
    # Code may assign a computed value to the name of an input.
    sources: dict[GivenSource, None] = {} if variable is None else {variable: None}
    may_be_call = bool(name) and _is_computed(name, runs)
    has_names = any(run.printed for run in runs)
    # Without names, any value of the type may be the source, or an input of the network that nothing else reads.
    is_exact = has_names or may_be_call or not name
    value_name = name if has_names else ""
    candidates = [
        (run, _returned(parameter, run.graph, value_name, run.printed, may_be_call=may_be_call))
        for run in runs
        if _is_before(run, graph_run)
    ]
    candidates += [
        (graph_run, _returned(parameter, graph, value_name, {}, may_be_call=may_be_call)) for graph in others
    ]
    for run, values in candidates:
        for source, node, slot in values:
            if not (node.is_parameter and is_given(node)):
                sources[GivenSource(source.name, node.name, slot)] = None
                # If the source ran again later, the observed value is not the one that was passed.
                is_exact &= source is not run.graph or run.last < graph_run.first
            elif (source.name, node.name) not in seen:
                given = _given(source, node, run, runs, others, seen)
                sources.update(dict.fromkeys(given.sources))
                is_exact &= given.is_complete
    shape = parameter.outputs[0].shape if parameter.outputs else None
    is_loop_variable = (name or parameter.name).startswith(_LOOP_VARIABLE)
    # Scalars and initial values of loops are often constants that are in no graph.
    is_complete = bool(sources) and bool(shape) and is_exact and not (graph_run.is_repeated or is_loop_variable)
    return Given(tuple(sources), is_complete)


def _is_before(run: GraphRun, reader: GraphRun) -> bool:
    """Whether a graph can have passed values to another graph, or to its own next run."""
    if run is reader:
        return reader.is_repeated
    return run.first <= reader.last and run.first != reader.first


def _variable(name: str, runs: Sequence[GraphRun]) -> GivenSource | None:
    """Return the weight or input of the network with a name that a branch reads."""
    for run in runs:
        node = run.graph.get(name)
        if node is not None and node.is_parameter and not is_given(node):
            return GivenSource(run.graph.name, name, 0)
    return None


def _is_computed(name: str, runs: Iterable[GraphRun]) -> bool:
    """Whether a name cannot be that of an input of the network or of a function."""
    if _UNNAMED.fullmatch(name):
        return True
    functions = {line for run in runs for line in run.graph.functions}
    return bool(functions) and all(")" in line and name not in _IDENTIFIER.findall(line) for line in functions)


def _returned(
    parameter: Node, graph: Graph, name: str, printed: Mapping[str, str], *, may_be_call: bool
) -> Iterator[tuple[Graph, Node, int]]:
    """Yield the results of a graph that may be the value of a parameter.

    For a parameter with a name, these are the values of that name and, if it may be the result of a call, unnamed ones.
    """
    declared = graph.operators[-1].outputs if graph.operators else ()
    for index, (returned, producer) in enumerate(graph.results):
        if producer is None:
            continue
        node, slot = producer
        if node.is_constant and len(declared) == len(graph.results):
            # The file declares whether a constant is a tensor only at the place where it is returned.
            if parameter.outputs and declared[index].dtype == parameter.outputs[0].dtype:
                yield graph, node, slot
            continue
        captured = _CAPTURED.fullmatch(node.name)
        own_name = captured["name"] if captured is not None else printed.get(node.name, node.name)
        is_named = bool(name) and name in (own_name, printed.get(returned))
        if node.is_parameter and is_given(node) and captured is None:
            # A parameter without a name that is passed on is a result of another graph.
            fits = is_named or may_be_call
        else:
            fits = is_named or not name
        if fits and _may_be(node, slot, parameter):
            yield graph, node, slot


def _may_be(node: Node, slot: int, parameter: Node) -> bool:
    if slot >= len(node.outputs) or not parameter.outputs:
        return False
    output, expected = node.outputs[slot], parameter.outputs[0]
    return output.dtype == expected.dtype and (
        output.shape is None or expected.shape is None or output.shape == expected.shape
    )
