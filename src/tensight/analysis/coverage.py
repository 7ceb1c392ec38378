"""What of a dump was looked at, without which "nothing was found" means nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tensight.analysis.statistics_table import UNREADABLE
from tensight.graph import step_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tensight.analysis.statistics_table import StatisticsTable


@dataclass(frozen=True, slots=True)
class Coverage:
    """What of a dump was looked at.

    Attributes
    ----------
    tensors : int
        Number of tensors that were looked at.
    nodes : int
        Number of nodes of graphs to which they belong.
    without_node : int
        How many of them belong to no node.
    steps, ranks : tuple of int
        Their steps and ranks; step 0 means values before the first step.
    unreadable : int
        Number of further tensors whose files cannot be read, or whose recorded statistics cannot be used.
    undecided : int
        Number of further tensors that can be read, but about which nothing could be decided.
    """

    tensors: int
    nodes: int
    without_node: int
    steps: tuple[int, ...]
    ranks: tuple[int, ...]
    unreadable: int
    undecided: int


def coverage(table: StatisticsTable, requested: NDArray[np.int64], decided: NDArray[np.int64]) -> Coverage:
    """Return what was looked at.

    Parameters
    ----------
    table : StatisticsTable
        The statistics of the dump.
    requested : int64 array
        Rows of the tensors to look at, each once.
    decided : int64 array
        Those of them about which something could be decided, if they can be read.
    """
    states = table.rows["state"]
    rows = decided[states[decided] != UNREADABLE]
    unreadable = int(np.count_nonzero(states[requested] == UNREADABLE))
    files = [table.files[row] for row in rows.tolist()]
    return Coverage(
        tensors=len(files),
        nodes=len({(file.rank, file.graph, file.node) for file in files if file.node is not None}),
        without_node=sum(file.node is None for file in files),
        steps=tuple(sorted({step_of(file.iteration) for file in files})),
        ranks=tuple(sorted({file.rank for file in files})),
        unreadable=unreadable,
        undecided=len(requested) - len(files) - unreadable,
    )
