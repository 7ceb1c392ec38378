"""Comparison of two traces of a program: the first tensor, in execution order, whose content differs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tensight.graph.steps import step_of

if TYPE_CHECKING:
    from tensight.dumps.trace_rank import TraceRank
    from tensight.graph import Node


@dataclass(frozen=True, slots=True)
class TraceDifference:
    """The first difference between two traces.

    Attributes
    ----------
    rank : int
    step : int
        0 for the values before the first step.
    node, type : str
    slot : int
    line : str
        File and line of the user's code; empty if unknown.
    only_in : str
        ``first`` or ``second`` if the node ran only in that run; empty if it ran in both.
    """

    rank: int
    step: int
    node: str
    type: str
    slot: int = 0
    line: str = ""
    only_in: str = ""

    @property
    def is_before_training(self) -> bool:
        """Whether initial values differ."""
        return self.step == 0

    def __str__(self) -> str:
        where = f", {self.line}" if self.line else ""
        if self.is_before_training:
            return f"the initial value of {self.node} differs"
        if self.only_in:
            return f"in step {self.step}, {self.node} ({self.type}) ran only in the {self.only_in} run{where}"
        return f"in step {self.step}, output {self.slot} of {self.node} ({self.type}) is the first to differ{where}"


def first_difference(first: TraceRank, second: TraceRank, rank: int = 0) -> TraceDifference | None:
    """Return the first difference between the traces of a rank in their common steps; None if there is none.

    A tensor that was written several times in a step has only the row of its last write, so it is compared last.
    """
    numbers = {(tensor.node, tensor.io, tensor.slot): number for number, tensor in enumerate(second.trace.tensors)}
    translation = np.array(
        [numbers.get((tensor.node, tensor.io, tensor.slot), -1) for tensor in first.trace.tensors], np.int64
    )
    for iteration in sorted(first.trace.steps.keys() & second.trace.steps.keys()):
        difference = _in_step(first, second, translation, iteration, rank)
        if difference is not None:
            return difference
    return None


def _in_step(
    first: TraceRank, second: TraceRank, translation: np.ndarray, iteration: int, rank: int
) -> TraceDifference | None:
    rows, others = first.rows(iteration), second.rows(iteration)
    row_of = np.full(len(second.trace.tensors) + 1, -1, np.int64)
    row_of[others["tensor"]] = np.arange(len(others))
    matched = row_of[translation[rows["tensor"]]]
    there = matched >= 0
    same = there.copy()
    pairs = rows[there], others[matched[there]]
    same[there] = (pairs[0]["content_hash"] == pairs[1]["content_hash"]) & (pairs[0]["count"] == pairs[1]["count"])
    different = np.flatnonzero(~same)
    if different.size:
        # Tensors that were written several times come last: their rows are from later in the step.
        at = int(different[np.argmin(rows["repeats"][different], axis=0)])
        return _difference(first, rows[at], iteration, rank, "" if there[at] else "first")
    missing = np.setdiff1d(np.arange(len(others)), matched)
    if missing.size:
        return _difference(second, others[int(missing[0])], iteration, rank, "second")
    return None


def _difference(trace: TraceRank, row: np.void, iteration: int, rank: int, only_in: str) -> TraceDifference:
    tensor = trace.trace.tensors[row["tensor"]]
    nodes = (node for graph in trace.graphs for node in graph.nodes if node.full_name == tensor.node)
    line = _line(next(nodes, None))
    return TraceDifference(rank, step_of(iteration), tensor.node, tensor.type, tensor.slot, line, only_in)


def _line(node: Node | None) -> str:
    frame = next(iter(node.frames), None) if node is not None else None
    return "" if frame is None else f"{frame.file}:{frame.line}"
