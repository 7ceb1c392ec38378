"""Outputs that operators declare but never write, so that their memory is uninitialized.

On CPU and GPU, MindSpore dumps them nevertheless. On Ascend, outputs of optimizers share memory with the written
parameters, and outputs of normalizations are written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensight.graph.operator_facts import WITHOUT_RESULTS

if TYPE_CHECKING:
    from tensight.graph import Graph, Node

_SOME = {"BatchNorm": (1, 2)}
"""Outputs that operators of a type never write: batch statistics, which they also return as outputs 3 and 4."""

_IN_TRAINING = {"BatchNorm": (3, 4)}
"""Outputs that operators of a type write only if a batch is normalized with its own statistics."""


def is_unwritten(kind: str, slot: int, where: tuple[Graph, Node] | None = None) -> bool:
    """Return whether an operator never writes an output.

    Parameters
    ----------
    kind : str
        Type of the operator.
    slot : int
        Index of the output.
    where : (Graph, Node), optional
        The operator and its graph, if known.
    """
    if kind in WITHOUT_RESULTS or slot in _SOME.get(kind, ()):
        return True
    return where is not None and slot in _IN_TRAINING.get(kind, ()) and _evaluates(*where)


def _evaluates(graph: Graph, node: Node) -> bool:
    """Whether an operator is in evaluation mode, by an attribute or by its only boolean input."""
    if node.attributes.get("is_training") is False:
        return True
    sources = (producer[0] for producer in graph.producers(node) if producer is not None)
    return any(source.is_constant and source.value is False for source in sources)
