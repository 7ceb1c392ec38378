"""Decides which hits stop a run, for dumps and for processes that report hits without deciding themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensight.watchpoints.causes import ONLY_NON_FINITE, Causes, HitFacts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from tensight.graph import Graph
    from tensight.sessions.hit_list import SessionHit
    from tensight.sessions.watchpoint_list import SessionWatchpoint, WatchpointList


class StopDecisions:
    """Decides after each step whether to stop because of its hits.

    Parameters
    ----------
    watchpoints : WatchpointList
    graphs : callable
        Returns the graphs of a rank.
    """

    def __init__(self, watchpoints: WatchpointList, graphs: Callable[[int], tuple[Graph, ...]]) -> None:
        self._watchpoints = watchpoints
        self._graphs = graphs
        self._ranks: dict[int, _RankCauses] = {}
        self._latest: dict[int, int] = {}

    def forget(self) -> None:
        """Forget earlier hits, so that the next hits count as new."""
        self._ranks, self._latest = {}, {}

    def stops(self, step: int, hits: Iterable[SessionHit], ranks: Iterable[int]) -> bool:
        """Return whether any hit is new and not caused by another; takes a moment for large graphs.

        Parameters
        ----------
        step : int
            May be the previous step again, which is then decided again.
        hits : iterable of SessionHit
            All hits of the step on these ranks that may stop the run.
        ranks : iterable of int
            The checked ranks.
        """
        points = {point.id: point for point in self._watchpoints.enabled()}
        hits_by_rank: dict[int, list[SessionHit]] = {rank: [] for rank in ranks}
        for hit in hits:
            hits_by_rank.setdefault(hit.rank, []).append(hit)
        # No short-circuit: every rank must record the step.
        decisions = [self._stops_rank(rank, step, rank_hits, points) for rank, rank_hits in hits_by_rank.items()]
        return any(decisions)

    def _stops_rank(
        self, rank: int, step: int, hits: list[SessionHit], points: Mapping[int, SessionWatchpoint]
    ) -> bool:
        causes = self._ranks.get(rank)
        if causes is None:
            causes = self._ranks[rank] = _RankCauses(self._watchpoints, self._graphs, rank)
        facts = [causes.facts(hit, points.get(hit.hit.watchpoint)) for hit in hits]
        if self._latest.get(rank) == step:
            return any(causes.causes.judge_again(facts))
        self._latest[rank] = step
        new = any(causes.causes.judge(facts, causes.inputs)) if facts else False
        causes.causes.end_step(lambda: _EVERYTHING)
        return new


class _Everything:
    """A container of everything: all tensors of a step were checked."""

    def __contains__(self, _: object) -> bool:
        return True


_EVERYTHING = _Everything()


class _RankCauses:
    """The causes of hits of a rank, based on the graphs that the session has."""

    def __init__(self, watchpoints: WatchpointList, graphs: Callable[[int], tuple[Graph, ...]], rank: int) -> None:
        self._watchpoints = watchpoints
        self._graphs_of = graphs
        self._rank = rank
        self._graphs: tuple[Graph, ...] = ()
        self._inputs: dict[str, Sequence[str]] = {}
        self._parameters: set[str] = set()
        self._data: set[str] = set()
        self.causes = Causes(lambda name: name in self._parameters, self._checked)

    @property
    def inputs(self) -> Mapping[str, Sequence[str]]:
        """Names of the producers of each operator's inputs, by operator."""
        graphs = self._graphs_of(self._rank)
        if graphs != self._graphs:
            self._graphs = graphs
            self._inputs = {
                node.name: [producer[0].name for producer in graph.flat_producers(node) if producer is not None]
                for graph in graphs
                for node in graph.operators
            }
            self._parameters = {node.name for graph in graphs for node in graph.parameters}
            others = {node.name for graph in graphs for node in graph.nodes if not node.is_operator}
            self._data = others - self._parameters - self._inputs.keys()
        return self._inputs

    def facts(self, hit: SessionHit, point: SessionWatchpoint | None) -> HitFacts:
        """Return the facts about a hit that the decision needs."""
        version = 0 if point is None else point.version
        tensor = (hit.graph, hit.node, hit.io, hit.slot, version)
        persistent = hit.node not in self.inputs and hit.node in self._parameters
        is_non_finite = point is not None and _is_non_finite(point)
        return HitFacts(
            hit.hit.watchpoint, tensor, hit.node, persistent, is_non_finite, is_input=hit.node in self._data
        )

    def _checked(self) -> set[str]:
        points = [point for point in self._watchpoints.enabled() if _is_non_finite(point)]
        return {
            name for point in points for _, names in self._watchpoints.nodes_of(point, self._rank) for name in names
        }


def _is_non_finite(point: SessionWatchpoint) -> bool:
    condition = point.watchpoint.check.condition
    return condition.flag is not None and condition.flag.name in ONLY_NON_FINITE
