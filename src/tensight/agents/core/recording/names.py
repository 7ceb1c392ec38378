"""Names of the files of operators in recordings, for MindSpore's own tools, which use only the last part of a name.

In MindSpore that part is unique, because operators are numbered through the whole graph. Here they are numbered within
their scope, so the scope becomes a part of it if several would be equal: the files of ``Default/fc2/Linear-op0`` are
those of ``Default/fc2/Linear_fc2-op0`` if there is another ``Linear-op0``. The node itself keeps its name.
"""

from __future__ import annotations

from collections import Counter
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tensight.agents.core.program import Program, TracedNode

_ROOTS = ("Default", "Gradients", "Optimizer")
"""Parts of a scope with little information."""


def recorded_names(program: Program) -> dict[str, str]:
    """Return the recorded name of each node of a program, by its own name."""
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
    """Yield possible last parts of a name, the most readable first, without end."""
    *scope, last = name.split("/")
    kind, dash, number = last.rpartition("-")
    significant = [part for part in scope if part not in _ROOTS]
    yield "_".join([kind, *significant]) + dash + number
    yield "_".join([kind, *scope]) + dash + number
    for times in count(2):
        # scopes that differ only in their separators
        yield "_".join([kind, *scope, str(times)]) + dash + number


def _last(name: str) -> str:
    return name.rpartition("/")[2]
