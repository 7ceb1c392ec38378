"""Checks watchpoints on a dump and reports hits in the order and with the error codes of the original."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tensight.debugger.exceptions import DebuggerParamTypeError, DebuggerParamValueError
from tensight.debugger.hits import NO_HISTORY, NO_PREVIOUS, NO_VALUE, Watchpoint, WatchpointHit

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from numpy.typing import NDArray

    from tensight.analysis import Analysis
    from tensight.debugger.conditions import ConditionBase
    from tensight.debugger.dump_nodes import DumpNodes
    from tensight.debugger.tensor import DebuggerTensor
    from tensight.dumps import TensorFile
    from tensight.watchpoints import ConditionCheck, Evaluation

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


@dataclass(frozen=True, slots=True)
class _Watched:
    """A tensor of a watchpoint that was dumped."""

    tensor: DebuggerTensor
    file: TensorFile


@dataclass(frozen=True, slots=True)
class _Ranked:
    """A hit and its place among the hits of its iteration."""

    place: tuple[int, int, int, int]
    hit: WatchpointHit


def check_watchpoints(
    nodes: DumpNodes, analysis: Analysis, watchpoints: Iterable[Watchpoint], *, error_on_no_value: bool
) -> list[WatchpointHit]:
    """Check watchpoints and return their hits; see `DumpAnalyzer.check_watchpoints`."""
    checked = list(watchpoints)
    for watchpoint in checked:
        if not isinstance(watchpoint, Watchpoint):
            raise DebuggerParamTypeError(f"The type of watchpoint should be Watchpoint, but got {type(watchpoint)}.")
    checks = [_check_of(watchpoint.condition) for watchpoint in checked]
    split = [_split(nodes, watchpoint.tensors) for watchpoint in checked]
    verdicts = _evaluate(nodes, analysis, checks, [dumped for dumped, _ in split])

    by_iteration: dict[int, list[_Ranked]] = {}
    missing: dict[int, list[WatchpointHit]] = {}
    for index, (watchpoint, (dumped, absent), verdict) in enumerate(zip(checked, split, verdicts, strict=True)):
        for ranked in _hits(nodes, index, watchpoint.condition, dumped, verdict):
            by_iteration.setdefault(ranked.hit.tensor.iteration or 0, []).append(ranked)
        if error_on_no_value:
            for tensor in _without_value(watchpoint.tensors, dumped, absent, verdict):
                hit = WatchpointHit(tensor, watchpoint.condition, NO_VALUE)
                missing.setdefault(tensor.iteration or 0, []).append(hit)

    hits: list[WatchpointHit] = []
    for iteration in sorted(by_iteration.keys() | missing.keys()):
        ranked_hits = sorted(by_iteration.get(iteration, ()), key=lambda ranked: ranked.place)
        hits.extend(ranked.hit for ranked in ranked_hits)
        hits.extend(missing.get(iteration, ()))
    return hits


def _check_of(condition: ConditionBase) -> ConditionCheck:
    """Translate a condition of the drop-in API to one of the catalogue."""
    from tensight.watchpoints import ConditionCheck

    number = condition.condition_id
    if number not in _CATALOGUE_IDS:
        raise DebuggerParamValueError(
            f"The condition {condition.name} has the number {number}, which is none of {sorted(_CATALOGUE_IDS)}."
        )
    return ConditionCheck(_CATALOGUE_IDS[number], condition.param_dict, strict=False)


def _split(nodes: DumpNodes, tensors: Sequence[DebuggerTensor]) -> tuple[list[_Watched], list[DebuggerTensor]]:
    """Divide the tensors of a watchpoint into those with a file and those without; each counts once."""
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


def _without_value(
    tensors: Sequence[DebuggerTensor],
    dumped: Sequence[_Watched],
    absent: Sequence[DebuggerTensor],
    evaluation: Evaluation | None,
) -> Sequence[DebuggerTensor]:
    """Return the watched tensors that were not dumped, are empty or cannot be read, in the watchpoint's order."""
    from tensight.watchpoints import Status

    if evaluation is None:
        empty = {entry.tensor for entry in dumped if not _has_elements(entry.file)}
    else:
        empty = {dumped[row].tensor for row in np.flatnonzero(evaluation.status == Status.EMPTY).tolist()}
    if not empty:
        return absent
    wanted = {*absent, *empty}
    return [tensor for tensor in dict.fromkeys(tensors) if tensor in wanted]


def _has_elements(file: TensorFile | None) -> bool:
    """Tell whether a tensor can be read and is not empty; the original treats all others as not dumped."""
    from tensight.dumps import tensor_header
    from tensight.errors import TensorFileError

    if file is None:
        return False
    try:
        return 0 not in tensor_header(file).shape
    except TensorFileError:
        return False


def _evaluate(
    nodes: DumpNodes, analysis: Analysis, checks: Sequence[ConditionCheck], found: Sequence[Sequence[_Watched]]
) -> list[Evaluation | None]:
    """Evaluate all checks in one pass; None where there is nothing to evaluate."""
    from tensight.analysis import CheckRequest

    synchronous = nodes.dump.metadata.synchronous
    # The original looks for overflowing operators in asynchronous dumps only.
    active = [
        bool(watched) and not (check.needs.overflow and synchronous)
        for check, watched in zip(checks, found, strict=True)
    ]
    requests = [
        CheckRequest(check, [entry.file for entry in watched])
        for check, watched, wanted in zip(checks, found, active, strict=True)
        if wanted
    ]
    answers = iter(analysis.evaluate(requests, non_finite="report") if requests else ())
    return [next(answers) if wanted else None for wanted in active]


def _hits(
    nodes: DumpNodes,
    index: int,
    condition: ConditionBase,
    dumped: Sequence[_Watched],
    evaluation: Evaluation | None,
) -> Iterable[_Ranked]:
    """Yield the hits of one watchpoint, one for each file of a tensor, as the original does."""
    from tensight.watchpoints import Status

    if evaluation is None:
        return
    needs_history = condition.condition_id != OPERATOR_OVERFLOW
    without_history = np.array(
        [needs_history and not nodes.has_history(entry.file.rank, entry.file.graph_id) for entry in dumped], np.bool_
    )
    checkable = evaluation.status != Status.EMPTY
    no_previous = _without_previous(nodes, dumped, evaluation)
    for row in np.flatnonzero(checkable & (evaluation.reported | without_history | no_previous)).tolist():
        entry = dumped[row]
        if without_history[row]:
            hit = WatchpointHit(entry.tensor, condition, NO_HISTORY)
        elif no_previous[row]:
            hit = WatchpointHit(entry.tensor, condition, NO_PREVIOUS)
        else:
            hit = WatchpointHit(
                entry.tensor,
                condition,
                int(evaluation.error_code[row]),
                {name: float(values[row]) for name, values in evaluation.actual.items()},
                {name: bool(values[row]) for name, values in evaluation.parameter_hit.items()},
            )
        for repeat in range(1 + len(entry.file.older)):
            # Equal times come from copied files; the original lists the highest rank first there.
            yield _Ranked((entry.file.timestamp, -entry.file.rank, repeat, index), hit)


def _without_previous(nodes: DumpNodes, dumped: Sequence[_Watched], evaluation: Evaluation) -> NDArray[np.bool_]:
    """Return the tensors whose previous value is empty or unreadable: the original says that there is none."""
    from tensight.watchpoints import Status

    found = np.zeros(len(dumped), np.bool_)
    for row in np.flatnonzero(evaluation.status == Status.DIFFERENT_SIZE).tolist():
        found[row] = not _has_elements(nodes.dump.previous(dumped[row].file))
    return found
