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
from tensight.runs.origins import OriginQuery
from tensight.runs.programs import program, programs
from tensight.runs.rank import PartialResult
from tensight.watchpoints import Status

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    import duckdb

    from tensight.analysis import Analysis
    from tensight.dumps import TensorFile
    from tensight.graph import Graph
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

_KEY = "watchpoint, graph, node, op_name, io, slot"


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
class TensorHits:
    """The hits of a watchpoint on one tensor, in all steps and on all ranks.

    Attributes
    ----------
    graph, op_name, io : str
    node : str or None
        None if the tensor belongs to no node.
    slot : int
    steps : tuple of int
        In increasing order.
    ranks : tuple of int
        The ranks that have a hit, in increasing order. Of a check that compares ranks, those whose values are not those
        of most ranks.
    actual : tuple of float
        The values that hit in the first step on the first rank, of the thresholds that hit; NaN if not known.
    values : dict
        `SHOWN` of that tensor.
    """

    graph: str
    node: str | None
    op_name: str
    io: str
    slot: int
    steps: tuple[int, ...]
    ranks: tuple[int, ...]
    actual: tuple[float, ...]
    values: Mapping[str, Any]


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
        self._stored = results
        self._rows = self._opened()
        self.results = tuple(self._results())

    def _opened(self) -> duckdb.DuckDBPyConnection:
        """Return a database with the view ``hits``: the rows of the ranks that were requested."""
        connection = self._stored.opened()
        comparing = [number for number, point in enumerate(self._watchpoints) if point.check.needs.ranks]
        if not comparing:
            connection.execute("create view hits as select *, true as deviates from rows")
            return connection
        listed = ", ".join(map(str, comparing))
        persistence = " ".join(f"when {number} then {self._watchpoints[number].persistence}" for number in comparing)
        # In each rank a streak of steps in which a tensor differs ends with a step in which it does not.
        connection.execute(
            f"""create view hits as
            with compared as (
                select *, min(content_hash) over same <> max(content_hash) over same as differs,
                       2 * count(*) over equal <= count(*) over same as deviates
                from rows where watchpoint in ({listed})
                window same as (partition by {_KEY}, step), equal as (partition by {_KEY}, step, content_hash)
            ), divided as (
                select *, sum((not differs)::int) over (partition by {_KEY}, rank order by step) as streak from compared
            ), counted as (
                select *, sum(differs::int) over (partition by {_KEY}, rank, streak order by step) as steps from divided
            )
            select *, true as deviates from rows where watchpoint not in ({listed}) union all
            select * exclude (differs, deviates, streak, steps), deviates from counted
            where differs and steps >= case watchpoint {persistence} end"""  # noqa: S608 - numbers
        )
        return connection

    def _results(self) -> Iterator[WatchpointResult]:
        amounts = self._rows.execute(f"select watchpoint, count(*), count(distinct ({_KEY})) from hits group by 1")  # noqa: S608
        hits = {number: amount for number, *amount in amounts.fetchall()}
        for number, point in enumerate(self._watchpoints):
            numbers = [about["watchpoints"][number] for about in self._about.values()]
            not_checked: Counter[Status] = Counter()
            for each in numbers:
                not_checked.update({Status[name.upper()]: amount for name, amount in each["not_checked"].items()})
            tensors, checked = (sum(each[name] for each in numbers) for name in ("tensors", "checked"))
            yield WatchpointResult(number, point, tensors, checked, not_checked, *hits.get(number, (0, 0)))

    def tensor_hits(self, result: WatchpointResult, limit: int) -> list[TensorHits]:
        """Return the first tensors that a watchpoint hit, by their first step, in the order of execution.

        Parameters
        ----------
        result : WatchpointResult
        limit : int
            Most tensors to return.
        """
        values = ", ".join(f"{name} := {name}" for name in SHOWN)
        rows = self._rows.execute(
            f"""select graph, node, op_name, io, slot, list_sort(list(distinct step)),
                       coalesce(list_sort(list(distinct rank) filter (deviates)), list_sort(list(distinct rank))),
                       arg_min(struct_pack(actual := actual, names := parameters_hit, {values}), (step, rank, "row"))
                from hits where watchpoint = {result.number} group by {_KEY}
                order by min((step, rank, "row")) limit {limit}"""  # noqa: S608 - numbers
        )
        thresholds = [threshold.name for threshold in result.watchpoint.check.thresholds]
        tensors = []
        for graph, node, op_name, io, slot, steps, ranks, shown in rows.fetchall():
            names = shown["names"].split(",")
            actual = zip(thresholds, shown["actual"], strict=True)
            values_hit = tuple(value for name, value in actual if name in names)
            tensors.append(TensorHits(graph, node, op_name, io, slot, tuple(steps), tuple(ranks), values_hit, shown))
        return tensors

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
        thresholds = [threshold.name for threshold in result.watchpoint.check.thresholds]
        sql = f'select * from hits where watchpoint = {result.number} order by rank, "row"'  # noqa: S608 - a number
        # A database of its own, so that hits of several watchpoints can be read by turns.
        reader = self._opened().sql(sql).to_arrow_reader(10_000)
        for batch in reader:
            for row in batch.to_pylist():
                row["actual"] = dict(zip(thresholds, row["actual"], strict=True))
                row["parameters_hit"] = tuple(filter(None, row["parameters_hit"].split(",")))
                row["source"] = None if row["source"] is None else SourceFrame(**json.loads(row["source"]))
                yield row

    def ranks_with(self, hits: TensorHits) -> tuple[int, ...]:
        """Return the ranks of which the program has the node of a tensor; all if it belongs to no node.

        Parameters
        ----------
        hits : TensorHits
        """
        return self.run.ranks_with(self._programs, hits.graph, hits.node)
