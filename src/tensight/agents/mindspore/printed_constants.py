"""Constants of a graph as MindSpore prints them, because its graph files name constant tensors without their values.

Beside each graph file is the same graph as text (``.ir``), with lines such as::

    %17(beta1_power) = PrimFunc_Mul(%16, Tensor(shape=[], dtype=Float32, value=0.9)) primitive_attrs: {…}
        # Fullname with scope: (Default/optimizer-Adam/Mul-op0)

The text has six digits of each number, and only the first and the last elements of large tensors. It is shown as it is.
"""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from tensight.graph.ms_graph_pb2 import GraphProto, ValueProto
from tensight.wire import encoded

if TYPE_CHECKING:
    from collections.abc import Container, Iterator

_DT_STRING = 13
_MOST_BYTES = 256 * 2**20
_MOST_CHARACTERS = 4096

_OPERATOR = re.compile(r"^ *%\d+\([^\n]*?\) = [^\n(]+\(", re.MULTILINE)
_FULL_NAME = re.compile(r"^ *# Fullname with scope: \((.*)\)$", re.MULTILINE)
_STRUCTURE = re.compile(r"[()\[\]{},]|\"(?:[^\"\\\n]|\\.)*\"")
_TENSOR = "Tensor("


def with_printed_constants(data: bytes, graph_file: str) -> bytes:
    """Return a serialized graph whose empty constants have the text that MindSpore prints for them.

    Parameters
    ----------
    data : bytes
        The graph as MindSpore wrote it.
    graph_file : str
        Its path; the printed graph is beside it.
    """
    graph = GraphProto.FromString(data)
    empty = {constant.key: constant for constant in graph.const_vals if not constant.value}
    readers = {node.full_name: node for node in graph.node if any(source.name in empty for source in node.input)}
    printed = read_printed(graph_file) if readers else ""
    if not printed:
        return data
    for name, operands in _operands(printed, readers):
        sources = readers[name].input
        if len(sources) != len(operands):
            continue
        for source, text in zip(sources, operands, strict=True):
            constant = empty.get(source.name)
            if constant is not None and text.startswith(_TENSOR) and len(text) <= _MOST_CHARACTERS:
                constant.value = ValueProto(dtype=_DT_STRING, str_val=text.encode()).SerializeToString()
    return graph.SerializeToString()


def read_printed(graph_file: str) -> str:
    """Return the printed graph that MindSpore wrote beside a graph file; empty if there is none.

    Parameters
    ----------
    graph_file : str
        Its path.
    """
    try:
        with Path(graph_file).with_suffix(".ir").open("rb") as file:
            return file.read(_MOST_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""


def _operands(printed: str, operators: Container[bytes]) -> Iterator[tuple[bytes, list[str]]]:
    """Yield the names of these operators, each with its operands."""
    begins = [(match.start(), match.end()) for match in _OPERATOR.finditer(printed)]
    for (_, begin), (end, _) in pairwise([*begins, (len(printed), 0)]):
        named = _FULL_NAME.search(printed, begin, end)
        name = encoded(named[1]) if named is not None else b""
        if name in operators:
            yield name, _split(printed, begin, end)


def _split(printed: str, begin: int, end: int) -> list[str]:
    """Return the texts between commas, up to the bracket that closes the one open at `begin`."""
    depth, start, parts = 0, begin, []
    for match in _STRUCTURE.finditer(printed, begin, end):
        sign = match[0]
        if sign in "([{":
            depth += 1
        elif sign in ")]}":
            depth -= 1
        if depth < 0 or (sign == "," and not depth):
            parts.append(" ".join(printed[start : match.start()].split()))
            start = match.end()
        if depth < 0:
            return [part for part in parts if part]
    return []
