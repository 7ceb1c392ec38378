"""Names of operators in recordings: MindSpore's own tools find values by the last part of a name alone.

There that part is unique, for operators are numbered through the whole graph. Here they are counted in their scope, and
so the scope becomes part of it where several would be called the same: ``Default/fc2/Linear-op0`` is recorded as
``Default/fc2/Linear_fc2-op0`` if there is another ``Linear-op0``.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING

from tensight.agents.program import Program

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tensight.agents.program import Source, TracedNode

_ROOTS = ("Default", "Gradients", "Optimizer")
"""Parts of a scope that say little."""


def recorded_names(program: Program) -> dict[str, str]:
    """Return the name under which each node of a program is recorded, by its own name."""
    names = {node.name: node.name for node in program.nodes}
    operators = [node for node in program.nodes if node.role == "operator"]
    uses = Counter(_last(node.name) for node in operators)
    taken = {last for last, times in uses.items() if times == 1}
    for node in operators:
        if uses[_last(node.name)] > 1:
            names[node.name] = _unique_name(node, taken)
    return names


def as_recorded(program: Program, names: dict[str, str]) -> Program:
    """Return a program with other names of its nodes."""

    def renamed(source: Source | None) -> Source | None:
        return source and (names.get(source[0], source[0]), source[1])

    nodes = (
        replace(node, name=names[node.name], inputs=tuple(map(renamed, node.inputs)))
        if node.role == "operator"
        else node
        for node in program.nodes
    )
    return Program(program.name, program.number, tuple(nodes))


def _unique_name(node: TracedNode, taken: set[str]) -> str:
    scope = node.name.rpartition("/")[0]
    last = next(name for name in _candidates(node.name) if name not in taken)
    taken.add(last)
    return f"{scope}/{last}" if scope else last


def _candidates(name: str) -> Iterator[str]:
    """Yield last parts of a name, the most readable first, without end."""
    *scope, last = name.split("/")
    kind, dash, number = last.rpartition("-")
    own = [part for part in scope if part not in _ROOTS]
    yield "_".join([kind, *own]) + dash + number
    yield "_".join([kind, *scope]) + dash + number
    for times in count(2):
        # scopes that differ in nothing but what parts them
        yield "_".join([kind, *scope, str(times)]) + dash + number


def _last(name: str) -> str:
    return name.rpartition("/")[2]
