"""Outputs that operators declare and never write, so that their memory is as it happened to be.

MindSpore dumps them all the same, on CPU and GPU. On Ascend those of optimizers share memory with what was written to,
and those of normalizations are written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensight.graph.operator_facts import WITHOUT_RESULTS

if TYPE_CHECKING:
    from tensight.graph import Graph, Node

_SOME = {"BatchNorm": (1, 2)}
"""Outputs that operators of a type leave alone: the statistics of a batch, which they put out once more as 3 and 4."""

_IN_TRAINING = {"BatchNorm": (3, 4)}
"""Outputs that operators of a type write only where a batch is normalized with its own statistics."""


def is_unwritten(kind: str, slot: int, where: tuple[Graph, Node] | None = None) -> bool:
    """Return whether an operator never writes an output.

    Parameters
    ----------
    kind : str
        Its type.
    slot : int
        Of the output.
    where : (Graph, Node), optional
        The operator itself, if it is known.
    """
    if kind in WITHOUT_RESULTS or slot in _SOME.get(kind, ()):
        return True
    return where is not None and slot in _IN_TRAINING.get(kind, ()) and _evaluates(*where)


def _evaluates(graph: Graph, node: Node) -> bool:
    """Whether an operator is told not to train: by an attribute, or by the only truth value that it is given."""
    if node.attributes.get("is_training") is False:
        return True
    sources = (producer[0] for producer in graph.producers(node) if producer is not None)
    return any(source.is_constant and source.value is False for source in sources)
