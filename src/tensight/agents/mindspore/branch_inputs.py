"""Gradients that the graph of a branch is given by the graph around it, as an optimizer is that updates behind ``if``.

MindSpore dumps them neither as parameters nor as inputs, and its files do not say where they come from. They are among
what other graphs of the same call return: where only one has type and shape, that is the one.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from tensight.graph import is_gradient_scope

if TYPE_CHECKING:
    from collections.abc import Collection

    from tensight.agents.mindspore.graph_programs import DumpedProgram
    from tensight.agents.program import Source

_GIVEN = re.compile(r"Parameter_[0-9]+(#[0-9]+)?")
"""What graphs are given that others have computed; inputs of the script and parameters of cells keep their names."""


class _Kind(NamedTuple):
    """Type and shape of a tensor; of some outputs MindSpore does not write the shape."""

    dtype: str
    shape: tuple[int, ...] | None


def branch_inputs(programs: Collection[DumpedProgram]) -> dict[str, Source]:
    """Return where gradients come from that graphs are given, by the names of their parameters.

    Parameters
    ----------
    programs : collection of DumpedProgram
        All that one call may run.
    """
    given: dict[str, _Kind] = {}
    returned: dict[Source, _Kind] = {}
    for program in programs:
        for node in program.program.nodes:
            kinds = {(node.name, slot): _Kind(output.dtype, output.shape) for slot, output in enumerate(node.outputs)}
            if _GIVEN.fullmatch(node.name):
                given.update((node.name, kind) for kind in kinds.values())
            else:
                # What is only passed on is the same value once more.
                returned.update((source, kind) for source, kind in kinds.items() if source in program.results)
    found: dict[str, Source] = {}
    for name, kind in given.items():
        sources = [source for source, other in returned.items() if _may_be(other, kind)]
        if kind.shape and len(sources) == 1 and is_gradient_scope(sources[0][0]):
            found[name] = sources[0]
    return found


def _may_be(kind: _Kind, other: _Kind) -> bool:
    return kind.dtype == other.dtype and (kind.shape is None or kind.shape == other.shape)
