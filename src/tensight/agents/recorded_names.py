"""Names of the files of operators in recordings: MindSpore's own tools find them by the last part of a name alone.

There that part is unique, for operators are numbered through the whole graph. Here they are counted in their scope, and
so the scope becomes part of it where several would be called the same: the files of ``Default/fc2/Linear-op0`` are
those of ``Default/fc2/Linear_fc2-op0`` if there is another ``Linear-op0``. The node itself keeps its name.
"""

from __future__ import annotations

from collections import Counter
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tensight.agents.program import Program, TracedNode

_ROOTS = ("Default", "Gradients", "Optimizer")
"""Parts of a scope that say little."""


def recorded_names(program: Program) -> dict[str, str]:
    """Return the name under which the files of each node of a program are recorded, by its own name."""
    names = {node.name: node.name for node in program.nodes}
    operators = [node for node in program.nodes if node.role == "operator"]
    uses = Counter(_last(node.name) for node in operators)
    taken = {last for last, times in uses.items() if times == 1}
    for node in operators:
        if uses[_last(node.name)] > 1:
            names[node.name] = _unique_name(node, taken)
    return names


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
