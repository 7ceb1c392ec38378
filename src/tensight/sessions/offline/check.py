"""Check of the watchpoints of a session on a step of a dump."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tensight.analysis import check
from tensight.graph.steps import iteration_of
from tensight.sessions.hit_list import SessionHit, hit_record
from tensight.sessions.offline.index import INITIAL, address_of
from tensight.sessions.offline.statistics import position_of
from tensight.watchpoints import Status

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tensight.analysis import Analysis, CheckResult
    from tensight.dumps import TensorFile
    from tensight.sessions.offline.index import TensorIndex
    from tensight.sessions.watchpoint_list import SessionWatchpoint, WatchpointList
    from tensight.watchpoints import Hit, Watchpoint

_REASONS = {
    Status.NOT_FINITE: "none of their elements is finite",
    Status.NO_PREVIOUS: "there is no value of the step before",
    Status.DIFFERENT_SIZE: "their number of elements differs from the step before",
    Status.NOT_RECORDED: "the statistics that were recorded do not decide it",
}


@dataclass(frozen=True, slots=True)
class StepCheck:
    """The result of checking watchpoints on a step.

    Attributes
    ----------
    step : int
    hits : tuple of SessionHit
    remarks : tuple of str
        Checks that could not be made, and why: a sentence for each watchpoint and reason.
    """

    step: int
    hits: tuple[SessionHit, ...]
    remarks: tuple[str, ...] = ()


def is_checked_at(watchpoint: SessionWatchpoint, step: int) -> bool:
    """Return whether a watchpoint is checked at a step: those for initial weights at step 0, the others later."""
    initial_only = watchpoint.watchpoint.check.condition.initial_only
    return watchpoint.enabled and initial_only == (step == 0)


def check_step(
    analysis: Analysis,
    index: TensorIndex,
    watchpoint_list: WatchpointList,
    watchpoints: Sequence[SessionWatchpoint],
    step: int,
) -> StepCheck:
    """Check watchpoints on all ranks at a step.

    Parameters
    ----------
    analysis : Analysis
    index : TensorIndex
        Index of its dump.
    watchpoint_list : WatchpointList
        Provides the nodes of each watchpoint.
    watchpoints : sequence of SessionWatchpoint
        Watchpoints that are not checked at this step are skipped.
    step : int
        Step 0 is the initial weights, as the operators of step 1 read them.
    """
    checked = {watchpoint.id: watchpoint for watchpoint in watchpoints if is_checked_at(watchpoint, step)}
    dumped = iteration_of(max(step, 1)) in analysis.dump.iterations()
    if not checked or (step > 0 and not dumped):
        return StepCheck(step, ())

    def nodes(watchpoint: Watchpoint, rank: int) -> Mapping[str, frozenset[str]]:
        return dict(watchpoint_list.nodes_of(checked[watchpoint.id], rank))

    results = check(
        analysis,
        [watchpoint.watchpoint for watchpoint in checked.values()],
        steps=[max(step, 1)] if dumped else [],
        nodes=nodes,
    )
    hits = tuple(_session_hit(analysis, index, hit, step) for result in results for hit in result.hits)
    return StepCheck(step, hits, tuple(remark for result in results for remark in _remarks(result)))


def _session_hit(analysis: Analysis, index: TensorIndex, hit: Hit, step: int) -> SessionHit:
    file: TensorFile = hit.tensor
    address, position = address_of(file), position_of(analysis.dump, file)
    name, slot, io, iteration = address.node, address.slot, address.io, address.iteration
    weight = index.parameter_behind(file) if step == 0 else None
    if weight is not None:
        name, slot, io, iteration = weight, 0, "output", INITIAL
    node = index.node(file.rank, address.graph, name)
    return SessionHit(
        rank=file.rank,
        graph=address.graph,
        node=name,
        slot=slot,
        iteration=iteration,
        hit=hit_record(hit),
        io=io,
        position=position,
        type=file.op_type if node is None else node.type,
        line=index.line(file.rank, address.graph, name),
    )


def _remarks(result: CheckResult) -> Iterator[str]:
    name = f"watchpoint {result.watchpoint.id}"
    for status, amount in result.not_checked:
        tensors = "one tensor" if amount == 1 else f"{amount:,} tensors"
        yield f"{name} could not be checked on {tensors} of {result.tensors:,}: {_REASONS[status]}"
