"""Batches that one of two runs splits into parts, such as micro-batches, whose gradients add up.

Every module is called once for each part, so the forward passes cannot be compared call by call; but weight gradients
and updates are the same up to rounding.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np

from tensight.compare.runs.matching import Rule
from tensight.compare.runs.steps import Phase, accumulated_parameter

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tensight.compare.runs.matching import Matching, Pair
    from tensight.compare.runs.steps import RunToCompare, Step

_CALL = re.compile(r"_op\d+(?=_input_\d+$)")
_SAME = 1e-5
"""Relative difference that statistics of the same batch may have."""


def parts_of_batches(run_a: RunToCompare, step_a: Step, run_b: RunToCompare, step_b: Step) -> tuple[int, int] | None:
    """Return the number of parts into which each run split the batch of a step.

    Parameters
    ----------
    run_a, run_b : RunToCompare
    step_a, step_b : Step

    Returns
    -------
    tuple of (int, int) or None
        None if the numbers are equal, or the parts do not form the same batch.
    """
    calls_a, calls_b = _calls(step_a.data), _calls(step_b.data)
    counts = None
    for name, of_a in calls_a.items():
        same = (of_b for of_b in calls_b.values() if _is_same_batch(run_a, of_a, run_b, of_b))
        # A module may have another name in B.
        of_b = calls_b[name] if name in calls_b else next(same, of_a)
        if len(of_a) == len(of_b):
            continue
        if _is_same_batch(run_a, of_a, run_b, of_b):
            counts = len(of_a), len(of_b)
        elif not _are_all_equal(run_a, of_a, run_b, of_b):
            return None
    return counts


def keep_what_adds_up(matching: Matching) -> None:
    """Keep only pairs of weight gradients and of updates in a matching, of weights that are known to belong together.

    Without the forward pass, nothing confirms those that are matched by their shapes and order alone.
    """
    for name, (other, rule) in list(matching.parameters.items()):
        if rule is Rule.STRUCTURE:
            del matching.parameters[name]
            matching.parameters_only_a.append(name)
            matching.parameters_only_b.append(other)
    kept = [pair for pair in matching.pairs if _adds_up(pair, matching)]
    left = [pair for pair in matching.pairs if not _adds_up(pair, matching)]
    matching.pairs[:] = kept
    matching.only_a += [pair.a for pair in left]
    matching.only_b += [pair.b for pair in left]
    matching.losses = None


def _adds_up(pair: Pair, matching: Matching) -> bool:
    weight = accumulated_parameter(pair.a.node)
    weights = [slot.name for slot in pair.a.outputs if slot.is_parameter] if weight is None else [weight]
    is_of_weights = weight is not None or pair.a.phase is Phase.UPDATE
    return is_of_weights and all(matching.parameter_in_b(name) is not None for name in weights)


def _calls(data: Mapping[str, int]) -> dict[str, list[int]]:
    """Return the rows of the inputs of all calls, by name without the number of the call."""
    calls: dict[str, list[int]] = defaultdict(list)
    for name, row in data.items():
        calls[_CALL.sub("", name)].append(row)
    return calls


def _is_same_batch(run_a: RunToCompare, rows_a: list[int], run_b: RunToCompare, rows_b: list[int]) -> bool:
    shapes = []
    for run, rows in ((run_a, rows_a), (run_b, rows_b)):
        part_shapes = [run.shape(row) for row in rows]
        if any(not shape or shape[1:] != part_shapes[0][1:] for shape in part_shapes):
            return False
        shapes.append((sum(shape[0] for shape in part_shapes), *part_shapes[0][1:]))
    if shapes[0] != shapes[1]:
        return False
    sums = [_sums(run, rows) for run, rows in ((run_a, rows_a), (run_b, rows_b))]
    return bool(np.allclose(sums[0], sums[1], rtol=_SAME))


def _are_all_equal(run_a: RunToCompare, rows_a: list[int], run_b: RunToCompare, rows_b: list[int]) -> bool:
    """Return whether every call received the same tensor, such as positions."""
    rows = [*((run_a, row) for row in rows_a), *((run_b, row) for row in rows_b)]
    return len({(run.shape(row), run.statistics(row)["l2_norm"]) for run, row in rows}) == 1


def _sums(run: RunToCompare, rows: list[int]) -> list[float]:
    """Return statistics that add up over the parts of a batch."""
    statistics = [run.statistics(row) for row in rows]
    return [
        sum(part["l2_norm"] ** 2 for part in statistics),
        sum(part["abs_mean"] * part["count"] for part in statistics),
        sum(part["zero_count"] for part in statistics),
    ]
