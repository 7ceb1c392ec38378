"""Detection of the loss tensor: from what starts the backward pass, what a training step returns, and names."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from tensight.graph import is_gradient_scope
from tensight.sessions.overview import HIT, INFINITE, NAN, NOTHING
from tensight.sessions.records import LossCurve

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from tensight.graph import Graph
    from tensight.sessions.overview import ListedTensor

_LOSS = re.compile(r"loss|cross_?entropy|nll", re.IGNORECASE)
_BACKWARD = re.compile(r"(^|/)(Gradients|Optimizer)(/|$)")
_BEGINS_BACKWARD = ("Loss", "ones_like", "OnesLike")
"""Types of the operators that read the loss to start the backward pass."""


def find_loss(tensors: Iterable[ListedTensor], graphs: Mapping[str, Graph]) -> ListedTensor | None:
    """Return the tensor that is most likely the loss; None if no tensor qualifies.

    Parameters
    ----------
    tensors : iterable of ListedTensor
        Tensors with statistics or values.
    graphs : mapping of str to Graph
        Graphs by name.
    """
    best: tuple[tuple[int, int], ListedTensor] | None = None
    returned = {name: _returned(graph) for name, graph in graphs.items()}
    for tensor in tensors:
        rank = _likeliness(tensor, graphs.get(tensor.graph), returned.get(tensor.graph, ()))
        if rank and (best is None or rank > best[0]):
            best = rank, tensor
    return best[1] if best else None


def _returned(graph: Graph) -> Collection[tuple[str, int]]:
    """Return the (node name, slot) pairs that a training graph returns; empty for other graphs."""
    if not any(is_gradient_scope(node.name) for node in graph.operators):
        return ()
    return {(producer[0].name, producer[1]) for _, producer in graph.results if producer is not None}


def _likeliness(
    tensor: ListedTensor, graph: Graph | None, returned: Collection[tuple[str, int]]
) -> tuple[int, int] | None:
    node = graph.get(tensor.node) if graph is not None else None
    if graph is None or node is None or not node.is_operator or tensor.io != "output":
        return None
    declared = node.outputs[tensor.slot] if tensor.slot < len(node.outputs) else None
    is_number = declared is not None and declared.shape is not None and all(size == 1 for size in declared.shape)
    if declared is None or not is_number or "float" not in declared.dtype or _BACKWARD.search(tensor.node):
        return None
    begins = any(
        reader.type in _BEGINS_BACKWARD or reader.type.startswith("Gradient")
        for reader in graph.consumers(node, tensor.slot)
    )
    is_called_so = bool(_LOSS.search(node.type)) or bool(_LOSS.search(node.name.rpartition("/")[2]))
    is_returned = (node.name, tensor.slot) in returned
    likeliness = 8 * begins + 4 * is_returned + 2 * is_called_so + bool(_LOSS.search(node.scope))
    return (likeliness, tensor.position or 0) if likeliness else None


def with_reported_loss(
    loss: tuple[str, Mapping[int, tuple[float | None, int]]] | None,
    reported: Mapping[tuple[str, int], Sequence[tuple[int, float]]],
) -> tuple[str, Mapping[int, tuple[float | None, int]]] | None:
    """Return the loss, completed by values that the training reported; without a loss tensor, the address is empty.

    Parameters
    ----------
    loss : (str, mapping of int to (float or None, int)) or None
        Address of the loss tensor, and its value and marks by step.
    reported : mapping of (str, int) to sequence of (int, float)
        Values that the training reported, by name and slot: step and value.
    """
    reported_loss = reported.get(("loss", 0))
    if not reported_loss:
        return loss
    address, by_step = loss if loss is not None else ("", {})
    return address, {
        **{step: (value if math.isfinite(value) else None, mark_of(value)) for step, value in reported_loss},
        **by_step,
    }


def mark_of(value: float) -> int:
    """Return the mark of a number: `NAN`, `INFINITE`, or 0."""
    return NAN if math.isnan(value) else INFINITE if math.isinf(value) else 0


def loss_curve(
    address: str, by_step: Mapping[int, tuple[float | None, int]], spans: Sequence[tuple[int, int]]
) -> LossCurve:
    """Return the loss curve in the columns of a timeline.

    Parameters
    ----------
    address : str
    by_step : mapping of int to (float or None, int)
        Value and marks by step.
    spans : sequence of (int, int)
        The first and the last step of each column.
    """
    values: list[float | None] = [None] * len(spans)
    marks = [NOTHING] * len(spans)
    column = 0
    for step in sorted(by_step):
        while column < len(spans) and step > spans[column][1]:
            column += 1
        if column == len(spans):
            break
        if step < spans[column][0]:
            continue
        value, mark = by_step[step]
        values[column] = value if value is not None else values[column]
        marks[column] = (marks[column] | mark) & (NAN | INFINITE | HIT)
    return LossCurve(address=address, values=tuple(values), marks=tuple(marks))
