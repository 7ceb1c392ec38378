"""What was looked at on all ranks of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tensight.analysis.coverage import Coverage

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def merged_coverage(parts: Sequence[Mapping[str, Any]]) -> Coverage:
    """Return what was looked at on all ranks.

    Parameters
    ----------
    parts : sequence of mapping
        `Coverage` of each rank, as a dictionary.
    """
    numbers = {
        name: sum(part[name] for part in parts)
        for name in ("tensors", "nodes", "without_node", "unreadable", "undecided")
    }
    steps, ranks = (tuple(sorted({number for part in parts for number in part[name]})) for name in ("steps", "ranks"))
    return Coverage(**numbers, steps=steps, ranks=ranks)
