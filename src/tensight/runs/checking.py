"""Watchpoints over all ranks of a run: the result of each rank, and the hits of the whole run as a table."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tensight.analysis.check import CheckResult, check, coverage_of, require
from tensight.analysis.shown_values import SHOWN, shown_values
from tensight.graph import SourceFrame, iteration_of, step_of, user_frame
from tensight.ranks import FEW_RANKS
from tensight.runs.coverage import merged_coverage
from tensight.runs.hits import Hits
from tensight.runs.origins import OriginQuery
from tensight.runs.programs import program, programs
from tensight.runs.rank import PartialResult
from tensight.watchpoints import Status

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from tensight.analysis import Analysis
    from tensight.dumps import TensorFile
    from tensight.graph import Graph
    from tensight.runs.hits import TensorHits
    from tensight.runs.run import Run
    from tensight.watchpoints import Hit, Watchpoint

_TEXT = pa.dictionary(pa.int32(), pa.string())

HITS = pa.schema(
    [
        ("watchpoint", pa.int32()),  # number in the query, from 0
        ("rank", pa.int32()),
        ("row", pa.int32()),  # in the order of execution, from 0 in each rank
        ("graph", _TEXT),
        ("node", _TEXT),  # null if the tensor belongs to no node
        ("op_name", _TEXT),
        ("io", _TEXT),
        ("slot", pa.int32()),
        ("step", pa.int32()),
        ("actual", pa.list_(pa.float64())),  # of each threshold of the watchpoint's check
        ("parameters_hit", _TEXT),  # separated by commas
        ("error_code", pa.int32()),
        ("content_hash", pa.uint64()),  # of checks that compare ranks; null for others
        *((name, pa.float64() if name in ("min", "max") else pa.int64()) for name in SHOWN),
        ("source", _TEXT),  # `SourceFrame` as JSON
        ("file", pa.string()),
    ]
)
"""One row for each hit; for checks that compare ranks, one for each tensor that is compared."""


@dataclass(frozen=True, slots=True)
class CheckQuery:
    """Which tensors hit watchpoints.

    Attributes
    ----------
    watchpoints : tuple of Watchpoint
    steps : tuple of int or None
        The steps to check; None for all.
    """

    watchpoints: tuple[Watchpoint, ...]
    steps: tuple[int, ...] | None = None

    @property
    def key(self) -> str:
        """Everything on which a result depends besides the rank."""
        points = [(point.text, str(point.selection), point.severity.value) for point in self.watchpoints]
        return repr(("check", points, self.steps))

    def compute(self, analysis: Analysis) -> PartialResult:
        """Return the hits of a rank.

        Parameters
        ----------
        analysis : Analysis
            The rank's part of the dump.
        """
        dump = analysis.dump
        dumped = [step_of(iteration) for iteration in dump.iterations()]
        steps = None if self.steps is None else [step for step in self.steps if step in dumped]
        points = [self._before_ranks_are_compared(point) for point in self.watchpoints]
        results = check(analysis, points, steps=steps)
        unwritten = dump.unwritten_tensors(iterations=None if steps is None else map(iteration_of, steps))
        about: dict[str, Any] = {
            "watchpoints": [_numbers(result) for result in results],
            "inspected": asdict(coverage_of(analysis, results)),
            "steps": dumped,
            "graphs": len(dump.graphs(dump.ranks[0])),
            "program": program(dump),
            "unwritten": len(unwritten),
            "problems": [asdict(problem) for problem in analysis.problems],
        }
        return PartialResult(about, _hits(analysis, results))

    @staticmethod
    def _before_ranks_are_compared(point: Watchpoint) -> Watchpoint:
        """Return a watchpoint of which a rank's hits are candidates: whether they persist is known later."""
        return replace(point, persistence=1) if point.check.needs.ranks else point


def _numbers(result: CheckResult) -> dict[str, Any]:
    return {
        "tensors": result.tensors,
        "checked": result.checked,
        "not_checked": {status.name.lower(): amount for status, amount in result.not_checked},
    }


def _hits(analysis: Analysis, results: Sequence[CheckResult]) -> pa.Table:
    """Return hits as rows of `HITS`."""
    hits = [(number, hit) for number, result in enumerate(results) for hit in result.hits]
    files: list[TensorFile] = [hit.tensor for _, hit in hits]
    rows = analysis.rows_of(files)
    table = analysis.statistics_table
    compares_ranks = np.array([result.watchpoint.check.needs.ranks for result in results], np.bool_)
    numbers = np.array([number for number, _ in hits], np.int32)
    is_compared = compares_ranks[numbers] if len(hits) else np.zeros(0, np.bool_)
    columns: dict[str, Any] = {
        "watchpoint": numbers,
        "rank": [file.rank for file in files],
        "row": np.arange(len(hits)),
        "graph": [file.graph for file in files],
        "node": [file.node for file in files],
        "op_name": [file.op_name for file in files],
        "io": [file.io for file in files],
        "slot": [file.slot for file in files],
        "step": [file.step for file in files],
        "actual": [_actual(hit) for _, hit in hits],
        "parameters_hit": [",".join(hit.parameters_hit) for _, hit in hits],
        "error_code": [hit.error_code for _, hit in hits],
        "content_hash": pa.array(table.rows["content_hash"][rows], mask=~is_compared),
        **shown_values(table, rows),
        "source": [_source(analysis, file) for file in files],
        "file": [file.path for file in files],
    }
    arrays = [pa.array(columns[field.name], field.type) for field in HITS]
    return pa.Table.from_arrays(arrays, schema=HITS)


def _actual(hit: Hit) -> list[float]:
    return [hit.actual[threshold.name] for threshold in hit.watchpoint.check.thresholds]


def _source(analysis: Analysis, file: TensorFile) -> str | None:
    """Return the line of the user's code that made a tensor's operator, as JSON."""
    graph = analysis.dump.graph_of(file)
    return None if graph is None or file.node is None else graph.once(_SourceLines).of(file.node)


class _SourceLines:
    """The lines of the user's code that made the operators of a graph, as JSON.

    Parameters
    ----------
    graph : Graph
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._lines: dict[str, str | None] = {}

    def of(self, name: str) -> str | None:
        """Return the line of an operator; None if it has none."""
        if name not in self._lines:
            node = self._graph.get(name)
            frame = None if node is None else user_frame(node.frames)
            self._lines[name] = None if frame is None else json.dumps(asdict(frame))
        return self._lines[name]


@dataclass(frozen=True, slots=True)
class WatchpointResult:
    """What a watchpoint found in a run.

    Attributes
    ----------
    number : int
        Of the watchpoint in the query, from 0.
    watchpoint : Watchpoint
    tensors, checked : int
        Number of tensors that it watches, and on which its check was made.
    not_checked : dict of Status to int
        Reasons why tensors that can be read could not be checked, and the number of tensors for each.
    hits, hit_tensors : int
        Number of hits, and of tensors with hits, of which equal ones on several ranks count once.
    """

    number: int
    watchpoint: Watchpoint
    tensors: int
    checked: int
    not_checked: Mapping[Status, int]
    hits: int
    hit_tensors: int


class RunCheck:
    """The result of checking watchpoints on all ranks of a run.

    Parameters
    ----------
    run : Run
    watchpoints : sequence of Watchpoint
    ranks, steps : collection of int, optional
        Ranks and steps to check; all by default. Steps are counted from 1.

    Attributes
    ----------
    run : Run
    results : tuple of WatchpointResult
        One for each watchpoint.
    inspected : Coverage
        What was looked at.
    unwritten : int
        Number of outputs that were left out because no operator writes them.
    has_graphs : bool
        Whether a rank has several graphs.
    problems : list of Problem

    Raises
    ------
    InputError
        A rank or a step is not in the dump.
    """

    def __init__(
        self,
        run: Run,
        watchpoints: Sequence[Watchpoint],
        *,
        ranks: Collection[int] | None = None,
        steps: Collection[int] | None = None,
    ) -> None:
        require(ranks, run.ranks, "rank")
        query = CheckQuery(tuple(watchpoints), None if steps is None else tuple(sorted(set(steps))))
        # Most likely the next query; it costs little while a rank is open.
        others = (OriginQuery(),) if len(run.ranks) > FEW_RANKS and ranks is steps is None else ()
        results, *_ = run.query(query, *others, ranks=ranks)
        self.run = run
        self._watchpoints = query.watchpoints
        self._about = {rank: results.about[rank] for rank in sorted(results.about)}
        every = list(self._about.values())
        require(steps, {step for about in every for step in about["steps"]}, "step")
        self.inspected = merged_coverage([about["inspected"] for about in every])
        self.unwritten = sum(about["unwritten"] for about in every)
        self.has_graphs = any(about["graphs"] > 1 for about in every)
        self.problems = run.problems_with(every)
        self._programs = programs(self._about)
        comparing = [number for number, point in enumerate(watchpoints) if point.check.needs.ranks]
        self._hits = Hits(results, {number: watchpoints[number].persistence for number in comparing})
        self.results = tuple(self._results())

    def _results(self) -> Iterator[WatchpointResult]:
        for number, point in enumerate(self._watchpoints):
            numbers = [about["watchpoints"][number] for about in self._about.values()]
            not_checked: Counter[Status] = Counter()
            for each in numbers:
                not_checked.update({Status[name.upper()]: amount for name, amount in each["not_checked"].items()})
            tensors, checked = (sum(each[name] for each in numbers) for name in ("tensors", "checked"))
            yield WatchpointResult(number, point, tensors, checked, not_checked, *self._hits.amounts(number))

    def tensor_hits(self, result: WatchpointResult, limit: int) -> list[TensorHits]:
        """Return the first tensors that a watchpoint hit, by their first step, in the order of execution.

        Parameters
        ----------
        result : WatchpointResult
        limit : int
            Maximum number of tensors.

        Returns
        -------
        list of TensorHits
            With the first hit of each as `hits` yields it.
        """
        tensors = self._hits.tensors(result.number, limit)
        return [replace(tensor, first=self._named(result, tensor.first)) for tensor in tensors]

    def hits(self, result: WatchpointResult) -> Iterator[dict[str, Any]]:
        """Yield the hits of a watchpoint, by rank, in the order of execution.

        Parameters
        ----------
        result : WatchpointResult

        Yields
        ------
        dict
            The columns of `HITS`; ``actual`` by the name of the threshold, ``parameters_hit`` as a tuple of names, and
            ``source`` as a `SourceFrame` or None.
        """
        for hit in self._hits.of(result.number):
            yield self._named(result, hit)

    @staticmethod
    def _named(result: WatchpointResult, hit: Mapping[str, Any]) -> dict[str, Any]:
        thresholds = (threshold.name for threshold in result.watchpoint.check.thresholds)
        return {
            **hit,
            "actual": dict(zip(thresholds, hit["actual"], strict=True)),
            "parameters_hit": tuple(filter(None, hit["parameters_hit"].split(","))),
            "source": None if hit["source"] is None else SourceFrame(**json.loads(hit["source"])),
        }

    def ranks_with(self, hits: TensorHits) -> tuple[int, ...]:
        """Return the ranks of which the program has the node of a tensor; all if it belongs to no node.

        Parameters
        ----------
        hits : TensorHits
        """
        return self.run.ranks_with(self._programs, hits.first["graph"], hits.first["node"])
