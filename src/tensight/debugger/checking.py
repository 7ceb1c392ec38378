"""Checks watchpoints on a dump and reports hits in the order and with the error codes of the original."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tensight.debugger.exceptions import DebuggerParamTypeError, DebuggerParamValueError
from tensight.debugger.hits import NO_HISTORY, NO_VALUE, Watchpoint, WatchpointHit
from tensight.debugger.verdicts import Verdicts, has_elements, has_unusual_tolerances, verdicts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tensight.analysis import Analysis
    from tensight.debugger.conditions import ConditionBase
    from tensight.debugger.history import History
    from tensight.debugger.nodes import DebuggerTensor, DumpNodes
    from tensight.dumps import TensorFile
    from tensight.watchpoints import ConditionCheck

OPERATOR_OVERFLOW = 2

_CATALOGUE_IDS = {
    OPERATOR_OVERFLOW: "operator_overflow",
    13: "tensor_overflow",
    15: "tensor_too_large",
    16: "tensor_too_small",
    17: "tensor_all_zero",
    18: "weight_change_too_large",
    19: "weight_change_too_small",
    20: "weight_not_changed",
    21: "tensor_range",
}
_RANGE = ("range_start_inclusive", "range_end_inclusive")
_LARGEST = sys.float_info.max
_EXACTLY_UNCHANGED = {"rtol": 0.0, "atol": 0.0}


@dataclass(frozen=True, slots=True)
class _Watched:
    """A dumped tensor of a watchpoint."""

    tensor: DebuggerTensor
    file: TensorFile


@dataclass(frozen=True, slots=True)
class _Ranked:
    """A hit and its position among the hits of its iteration."""

    position: tuple[int, int, int, int]
    hit: WatchpointHit


def check_watchpoints(
    nodes: DumpNodes,
    analysis: Analysis,
    history: History,
    watchpoints: Iterable[Watchpoint],
    *,
    error_on_no_value: bool,
) -> list[WatchpointHit]:
    """Check watchpoints and return their hits; see `DumpAnalyzer.check_watchpoints`."""
    checked = list(watchpoints)
    for watchpoint in checked:
        if not isinstance(watchpoint, Watchpoint):
            raise DebuggerParamTypeError(f"The type of watchpoint should be Watchpoint, but got {type(watchpoint)}.")
    if not isinstance(error_on_no_value, bool) and any(watchpoint.tensors for watchpoint in checked):
        raise TypeError(f"error_on_no_value should be bool, but got {type(error_on_no_value)}.")
    conditions = [watchpoint.condition for watchpoint in checked]
    # Often several watchpoints share one list.
    lists = {id(watchpoint.tensors): watchpoint.tensors for watchpoint in checked}
    divided = {number: _split(nodes, tensors) for number, tensors in lists.items()}
    split = [divided[id(watchpoint.tensors)] for watchpoint in checked]
    verdicts_of = _evaluate(analysis, conditions, [dumped for dumped, _ in split])

    ranked: dict[int, list[_Ranked]] = {}
    missing: dict[int, list[WatchpointHit]] = {}
    for index, (watchpoint, (dumped, absent), verdict) in enumerate(zip(checked, split, verdicts_of, strict=True)):
        condition = watchpoint.condition
        for entry in _hits(history, index, condition, dumped, verdict, error_on_no_value=error_on_no_value):
            ranked.setdefault(entry.hit.tensor.iteration or 0, []).append(entry)
        for tensor in absent if error_on_no_value else ():
            missing.setdefault(tensor.iteration or 0, []).append(WatchpointHit(tensor, condition, NO_VALUE))

    hits: list[WatchpointHit] = []
    for iteration in sorted(ranked.keys() | missing.keys()):
        hits.extend(entry.hit for entry in sorted(ranked.get(iteration, ()), key=lambda entry: entry.position))
        hits.extend(missing.get(iteration, ()))
    return hits


def _check_of(condition: ConditionBase) -> ConditionCheck:
    """Translate a condition of the drop-in API to one of the catalogue."""
    from tensight.watchpoints import ConditionCheck

    number = condition.condition_id
    if number not in _CATALOGUE_IDS:
        raise DebuggerParamValueError(
            f"The condition {condition.name} has the number {number}, which is not one of {sorted(_CATALOGUE_IDS)}."
        )
    values = condition.param_dict
    for name in _RANGE:
        if name in values:
            # Every finite element lies between the largest floats; the catalogue does not accept an infinite bound.
            # NaN stays: nothing lies in such a range.
            values[name] = min(max(values[name], -_LARGEST), _LARGEST)
    if has_unusual_tolerances(values):
        # Statistics cannot decide these; `verdicts` reads the tensors.
        values |= _EXACTLY_UNCHANGED
    return ConditionCheck(_CATALOGUE_IDS[number], values, strict=False)


def _split(nodes: DumpNodes, tensors: Sequence[DebuggerTensor]) -> tuple[list[_Watched], list[DebuggerTensor]]:
    """Divide the tensors of a watchpoint into those with a file and those without, without duplicates."""
    dumped: list[_Watched] = []
    absent: list[DebuggerTensor] = []
    for tensor in dict.fromkeys(tensors):
        if tensor.iteration is None:
            continue
        file = nodes.file(tensor.node, tensor.slot, tensor.iteration)
        if file is None:
            absent.append(tensor)
        else:
            dumped.append(_Watched(tensor, file))
    return dumped, absent


def _evaluate(
    analysis: Analysis, conditions: Sequence[ConditionBase], files_of: Sequence[Sequence[_Watched]]
) -> list[Verdicts | None]:
    """Evaluate all conditions in one pass; None where there is nothing to evaluate."""
    from tensight.analysis import CheckRequest

    checks = [_check_of(condition) for condition in conditions]
    synchronous = analysis.dump.metadata.synchronous
    # The original checks for overflowing operators in asynchronous dumps only.
    requests = {
        index: CheckRequest(check, [entry.file for entry in watched])
        for index, (check, watched) in enumerate(zip(checks, files_of, strict=True))
        if watched and not (check.needs.overflow and synchronous)
    }
    evaluations = analysis.evaluate(list(requests.values()), non_finite="report") if requests else []
    results = {
        index: verdicts(analysis, conditions[index].param_dict, request.check, request.files, evaluation)
        for (index, request), evaluation in zip(requests.items(), evaluations, strict=True)
    }
    return [results.get(index) for index in range(len(checks))]


def _hits(
    history: History,
    index: int,
    condition: ConditionBase,
    dumped: Sequence[_Watched],
    verdict: Verdicts | None,
    *,
    error_on_no_value: bool,
) -> Iterator[_Ranked]:
    """Yield the hits of one watchpoint, one for each file of a tensor, as the original does."""
    needs_history = condition.condition_id != OPERATOR_OVERFLOW
    for row, entry in enumerate(dumped):
        file = entry.file
        if verdict.empty[row] if verdict is not None else error_on_no_value and not has_elements(file):
            hit = WatchpointHit(entry.tensor, condition, NO_VALUE) if error_on_no_value else None
        elif verdict is None:
            hit = None
        elif needs_history and history.iterations(file.rank, file.graph_id) is None:
            hit = WatchpointHit(entry.tensor, condition, NO_HISTORY)
        else:
            hit = _hit_of_row(entry.tensor, condition, verdict, row) if verdict.reported[row] else None
        if hit is not None:
            for repeat in range(1 + len(file.older)):
                # Equal times come from copied files; the original lists the highest rank first there.
                yield _Ranked((file.timestamp, -file.rank, repeat, index), hit)


def _hit_of_row(tensor: DebuggerTensor, condition: ConditionBase, verdict: Verdicts, row: int) -> WatchpointHit:
    return WatchpointHit(
        tensor,
        condition,
        int(verdict.error_code[row]),
        {name: float(values[row]) for name, values in verdict.actual.items()},
        {name: bool(np.bool_(values[row])) for name, values in verdict.parameter_hit.items()},
    )
