"""Where values come from that a graph is given by others, as the graph of a branch is by the code around it.

MindSpore cuts a network with branches and loops that depend on values into graphs, and its files do not say which value
one hands to another. It can only be what a graph that ran before returns, of the type and shape; of a variable that the
branch takes from outside also the name is known. Where several fit, it is one of them.
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
"""The field of a GraphProto."""

_PARAMETER, _SOURCE, _IS_COMPLETE = 1, 2, 3
_NODE, _SLOT = 1, 2

_ANONYMOUS = re.compile(r"(?:Parameter_|\[Parameter\])[0-9]+(?:#[0-9]+)?")
"""What calls of graphs return has no name of its own."""

_CAPTURED = re.compile(r"(?:▸|equiv_[0-9]+_)(?P<name>.+)")
"""What the graph of a branch takes from the code around it."""

_UNNAMED = re.compile(r"▲?(?:CNode_|\[CNode\])?[0-9]+")
"""The older forms are MindSpore 2.0's."""

_IDENTIFIER = re.compile(r"\w+")
NUMBERED_INPUT = re.compile(r"inputs[0-9]+")
"""What a cell is given that takes any number of inputs, as those do that train another."""

_LOOP_VARIABLE = "ф"

_PRINTED = re.compile(r"^ *%\d+\((?:▲|equiv_\d+_)?(?P<name>[^\n)]*)\) = ", re.MULTILINE)
_OF_VERSION_2_0 = re.compile(r"equiv(?!_)|\[CNode\]|[0-9]+$")
"""It gives names of other values to operators."""

_FULL_NAME = re.compile(r"^ *# Fullname with scope: \((.*)\)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class GraphRun:
    """The runs of a graph in one step.

    Attributes
    ----------
    graph : Graph
    first, last : int
        When its first value and its last one were there, in any unit; both 0 if that is not known.
    is_repeated : bool
        Whether it ran several times.
    printed : mapping of str to str
        What MindSpore calls the values of operators where it prints the graph, by their names.
    """

    graph: Graph
    first: int
    last: int
    is_repeated: bool
    printed: Mapping[str, str]


def is_given(parameter: Node) -> bool:
    """Return whether a parameter of a graph may be what other graphs computed.

    Parameters
    ----------
    parameter : Node
    """
    name = parameter.name
    return bool(_ANONYMOUS.fullmatch(name) or _CAPTURED.fullmatch(name) or name.startswith(_LOOP_VARIABLE))


def given_values(graph: Graph, runs: Sequence[GraphRun], others: Collection[Graph] = ()) -> dict[str, Given]:
    """Return what the parameters of a graph may be that others have computed, by their names.

    Parameters
    ----------
    graph : Graph
        One of those that ran.
    runs : sequence of GraphRun
        Of one step.
    others : collection of Graph
        That may have run as well and have left no value, such as those that only return a constant.
    """
    own = next((run for run in runs if run.graph is graph), None)
    if own is None:
        return {}
    return {
        parameter.name: _given(graph, parameter, own, runs, others, set())
        for parameter in graph.parameters
        if is_given(parameter)
    }


def runs_nothing(graph: Graph) -> bool:
    """Return whether a graph computes nothing, and only returns what it is given, or constants.

    Parameters
    ----------
    graph : Graph
    """
    return all(node.type in VIRTUAL_TYPES for node in graph.operators)


def printed_names(text: str) -> dict[str, str]:
    """Return what MindSpore calls the values of operators, as it prints a graph, by the operators' full names.

    MindSpore 2.0 does not say: empty.

    Parameters
    ----------
    text : str
        Of the ``.ir`` file beside the graph.
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
    """Return what parameters may be as fields of a GraphProto, to be appended to one that is serialized.

    Parameters
    ----------
    given : mapping of str to Given
        By the name of the parameter; all sources are nodes of the same graph.
    """
    return b"".join(
        length_delimited(
            GIVEN,
            length_delimited(_PARAMETER, name.encode("utf-8", "backslashreplace"))
            + b"".join(length_delimited(_SOURCE, _serialized(source)) for source in one.sources)
            + (length_delimited(_IS_COMPLETE, b"1") if one.is_complete else b""),
        )
        for name, one in given.items()
    )


def read_given(entries: Iterable[memoryview], graph: str) -> dict[str, Given]:
    """Read the contents of the fields.

    Parameters
    ----------
    entries : iterable of memoryview
    graph : str
        Name of the graph that has them.

    Raises
    ------
    ProtobufFormatError
        They cannot be read.
    """
    found: dict[str, Given] = {}
    for entry in entries:
        name, sources, is_complete = "", [], False
        for number, content in length_delimited_fields(entry):
            if number == _PARAMETER:
                name = decode_text(bytes(content))
            elif number == _SOURCE:
                sources.append(_read_source(content, graph))
            elif number == _IS_COMPLETE:
                is_complete = True
        found[name] = Given(tuple(sources), is_complete)
    return found


def _serialized(source: GivenSource) -> bytes:
    node = length_delimited(_NODE, source.node.encode("utf-8", "backslashreplace"))
    return node + length_delimited(_SLOT, str(source.slot).encode())


def _read_source(content: memoryview, graph: str) -> GivenSource:
    parts = {number: bytes(field) for number, field in length_delimited_fields(content)}
    slot = parts.get(_SLOT, b"0")
    if not slot.isdigit() or len(slot) > 9:
        raise ProtobufFormatError("the slot of a value is no number")
    return GivenSource(graph, decode_text(parts.get(_NODE, b"")), int(slot))


def _given(
    graph: Graph,
    parameter: Node,
    own: GraphRun,
    runs: Sequence[GraphRun],
    others: Collection[Graph],
    seen: set[tuple[str, str]],
) -> Given:
    """Return what a parameter of a graph may be, which another one may only pass on; `seen` are those looked at."""
    seen.add((graph.name, parameter.name))
    captured = _CAPTURED.fullmatch(parameter.name)
    name = captured["name"] if captured is not None else ""
    variable = _variable(name, runs) if name else None
    if variable is not None and (NUMBERED_INPUT.fullmatch(name) or not _IDENTIFIER.fullmatch(name)):
        return Given((variable,), is_complete=True)
    # Code may give the name of an input to what it computes from it.
    sources: dict[GivenSource, None] = {} if variable is None else {variable: None}
    may_be_call = bool(name) and _is_computed(name, runs)
    has_names = any(run.printed for run in runs)
    # Where nothing has a name it may be all that looks like it, or an input of the network that nothing else reads.
    is_exact = has_names or may_be_call or not name
    wanted_name = name if has_names else ""
    found = [
        (run, _returned(parameter, run.graph, wanted_name, run.printed, may_be_call=may_be_call))
        for run in runs
        if _is_before(run, own)
    ]
    found += [(own, _returned(parameter, graph, wanted_name, {}, may_be_call=may_be_call)) for graph in others]
    for run, values in found:
        for source, node, slot in values:
            if not (node.is_parameter and is_given(node)):
                sources[GivenSource(source.name, node.name, slot)] = None
                # Of what ran again later, another value is seen than was given.
                is_exact &= source is not run.graph or run.last < own.first
            elif (source.name, node.name) not in seen:
                given = _given(source, node, run, runs, others, seen)
                sources.update(dict.fromkeys(given.sources))
                is_exact &= given.is_complete
    shape = parameter.outputs[0].shape if parameter.outputs else None
    is_loop_variable = (name or parameter.name).startswith(_LOOP_VARIABLE)
    # Single numbers are often constants that no graph has, and so is what a loop begins with.
    is_complete = bool(sources) and bool(shape) and is_exact and not (own.is_repeated or is_loop_variable)
    return Given(tuple(sources), is_complete)


def _is_before(run: GraphRun, own: GraphRun) -> bool:
    """Whether a graph can have given something to another, or to its own next run."""
    if run is own:
        return own.is_repeated
    return run.first <= own.last and run.first != own.first


def _variable(name: str, runs: Sequence[GraphRun]) -> GivenSource | None:
    """Return the weight or input of the network of a name that is read in a branch."""
    for run in runs:
        node = run.graph.get(name)
        if node is not None and node.is_parameter and not is_given(node):
            return GivenSource(run.graph.name, name, 0)
    return None


def _is_computed(name: str, runs: Iterable[GraphRun]) -> bool:
    """Whether what is called so can be no input of the network, nor one of a function."""
    if _UNNAMED.fullmatch(name):
        return True
    functions = {line for run in runs for line in run.graph.functions}
    return bool(functions) and all(")" in line and name not in _IDENTIFIER.findall(line) for line in functions)


def _returned(
    parameter: Node, graph: Graph, name: str, printed: Mapping[str, str], *, may_be_call: bool
) -> Iterator[tuple[Graph, Node, int]]:
    """Yield what a graph returns and may be what a parameter is.

    Of a parameter with a name that are values of that name and, where it may be what a call returned, those without.
    """
    declared = graph.operators[-1].outputs if graph.operators else ()
    for index, (returned, producer) in enumerate(graph.results):
        if producer is None:
            continue
        node, slot = producer
        if node.is_constant and len(declared) == len(graph.results):
            # Only where it is returned the file says of a constant whether it is a tensor.
            if parameter.outputs and declared[index].dtype == parameter.outputs[0].dtype:
                yield graph, node, slot
            continue
        captured = _CAPTURED.fullmatch(node.name)
        own_name = captured["name"] if captured is not None else printed.get(node.name, node.name)
        is_named = bool(name) and name in (own_name, printed.get(returned))
        if node.is_parameter and is_given(node) and captured is None:
            # What is passed on for a parameter without a name is something that another graph has returned.
            fits = is_named or may_be_call
        else:
            fits = is_named or not name
        if fits and _may_be(node, slot, parameter):
            yield graph, node, slot


def _may_be(node: Node, slot: int, parameter: Node) -> bool:
    if slot >= len(node.outputs) or not parameter.outputs:
        return False
    own, wanted = node.outputs[slot], parameter.outputs[0]
    return own.dtype == wanted.dtype and (own.shape is None or wanted.shape is None or own.shape == wanted.shape)
