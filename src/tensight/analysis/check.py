"""Checks of watchpoints on a dump: the tensors that each watches, and its hits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tensight.analysis.analysis import Analysis, CheckRequest
from tensight.analysis.coverage import Coverage, coverage
from tensight.analysis.peers import iterations_before, persistent
from tensight.dumps import CONSTANTS
from tensight.errors import InputError
from tensight.graph import Layers, iteration_of, step_of
from tensight.watchpoints import (
    ConditionCheck,
    Hit,
    NodeFacts,
    Selector,
    SelectorKind,
    Status,
    Target,
    Watchpoint,
    hits,
    matcher,
    selected_nodes,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from numpy.typing import NDArray

    from tensight.dumps import Dump, TensorFile
    from tensight.graph import Graph
    from tensight.watchpoints import Evaluation

INPUTS_ONLY = 1
"""Value of the dump setting ``input_output`` for dumps without outputs."""

TARGET_SELECTORS = {
    Target.TENSOR: Selector(SelectorKind.ALL),
    Target.WEIGHT: Selector(SelectorKind.WEIGHTS),
    Target.GRADIENT: Selector(SelectorKind.GRADIENTS),
    Target.ACTIVATION: Selector(SelectorKind.ACTIVATIONS),
}


_WITHOUT_GRAPH = {SelectorKind.ALL, SelectorKind.NAME}
"""Selectors that also apply to tensors without a node in a graph."""

ChosenNodes = Callable[[Watchpoint, int], "Mapping[str, Collection[str]]"]
"""Returns the names of the nodes to watch, by graph, for a watchpoint and a rank."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of checking one watchpoint.

    Attributes
    ----------
    watchpoint : Watchpoint
        The watchpoint.
    rows, checked_rows : int64 arrays
        Rows in the statistics table of the tensors that it watches, and of those on which its check was made.
    hits : tuple of Hit
        Its hits, in iteration and execution order; `Hit.tensor` is a `TensorFile`.
    not_checked : tuple of (Status, int)
        Reasons why tensors that can be read could not be checked, and the number of tensors for each.
    """

    watchpoint: Watchpoint
    rows: NDArray[np.int64]
    checked_rows: NDArray[np.int64]
    hits: tuple[Hit, ...]
    not_checked: tuple[tuple[Status, int], ...]

    @property
    def tensors(self) -> int:
        """Number of tensors that it watches."""
        return len(self.rows)

    @property
    def checked(self) -> int:
        """Number of tensors on which its check was made."""
        return len(self.checked_rows)


def natural_selector(check: ConditionCheck) -> Selector:
    """Return the default selector of a condition, for watchpoints without a selection.

    Parameters
    ----------
    check : ConditionCheck
        A check of the condition.
    """
    return TARGET_SELECTORS[check.condition.target]


def check(
    analysis: Analysis,
    watchpoints: Sequence[Watchpoint],
    *,
    ranks: Collection[int] | None = None,
    steps: Collection[int] | None = None,
    nodes: ChosenNodes | None = None,
) -> list[CheckResult]:
    """Check watchpoints on a dump.

    Parameters
    ----------
    analysis : Analysis
        The dump; each tensor is read at most once, regardless of the number of watchpoints.
    watchpoints : sequence of Watchpoint
        The watchpoints to check.
    ranks, steps : collection of int, optional
        Ranks and steps to check; all by default. Steps are counted from 1.
    nodes : callable, optional
        Returns the names of the nodes to watch, by graph, for a watchpoint and a rank; replaces the watchpoint's
        selection. Tensors without a node are then watched only by watchpoints that select everything.

    Returns
    -------
    list of CheckResult
        One for each watchpoint, in their order.

    Raises
    ------
    InputError
        If a rank or a step is not in the dump.
    """
    dump = analysis.dump
    require(ranks, dump.ranks, "rank")
    require(steps, [step_of(iteration) for iteration in dump.iterations()], "step")
    iterations = None if steps is None else [iteration_of(step) for step in steps]
    watched = _Tensors(analysis, _watchable(dump, ranks, iterations))
    requests = []
    initial: dict[tuple[int, str, str], TensorFile] | None = None
    for watchpoint in watchpoints:
        selected = _Selected(dump, watchpoint, nodes)
        if watchpoint.check.condition.initial_only:
            initial = _initial_weights(dump, ranks) if initial is None else initial
            weights = [file for (*_, weight), file in initial.items() if selected.has_weight(file, weight)]
            requests.append(CheckRequest(watchpoint.check, weights))
            continue
        files, rows = watched.that(selected)
        before = iterations_before(watchpoint, dump.iterations(), iterations)
        if before:
            earlier, earlier_rows = _Tensors(analysis, _watchable(dump, ranks, before)).that(selected)
            files, rows = [*earlier, *files], np.concatenate([earlier_rows, rows])
        requests.append(CheckRequest(watchpoint.check, files, rows))
    evaluations = analysis.evaluate(requests)
    return [
        _result(analysis, watchpoint, request, evaluation, iterations)
        for watchpoint, request, evaluation in zip(watchpoints, requests, evaluations, strict=True)
    ]


def coverage_of(analysis: Analysis, results: Sequence[CheckResult]) -> Coverage:
    """Return what was looked at by the checks of several watchpoints together.

    Parameters
    ----------
    analysis : Analysis
        What was checked.
    results : sequence of CheckResult
        From `check`.
    """
    none = np.empty(0, np.int64)
    watched = np.unique(np.concatenate([none, *(result.rows for result in results)]))
    checked = np.unique(np.concatenate([none, *(result.checked_rows for result in results)]))
    return coverage(analysis.statistics_table, watched, checked)


def _result(
    analysis: Analysis,
    watchpoint: Watchpoint,
    request: CheckRequest,
    evaluation: Evaluation,
    iterations: Collection[int] | None,
) -> CheckResult:
    """Return the result of a watchpoint in the requested iterations, from all that were evaluated for it."""
    files = request.files
    requested = np.ones(len(files), np.bool_)
    if iterations is not None and not watchpoint.check.condition.initial_only:
        requested = np.isin([file.iteration for file in files], list(iterations))
    persisting = requested & persistent(watchpoint.persistence, files, evaluation.hit)
    rows = evaluation.reported.nonzero()[0]
    all_hits = hits(watchpoint, evaluation, files)
    kept = tuple(hit for row, hit in zip(rows.tolist(), all_hits, strict=True) if persisting[row])
    rows_of_files = analysis.rows_of(files) if request.rows is None else request.rows
    checked = requested & (evaluation.status == Status.EVALUATED)
    return CheckResult(
        watchpoint, rows_of_files[requested], rows_of_files[checked], kept, _skipped(evaluation, requested)
    )


def require(given: Collection[int] | None, dumped: Collection[int], what: str) -> None:
    """Raise an `InputError` if a rank or a step is not in a dump.

    Parameters
    ----------
    given : collection of int or None
        The requested ones; None for all.
    dumped : collection of int
        Those of the dump.
    what : str
        ``rank`` or ``step``.
    """
    unknown = sorted(set(given or ()) - set(dumped))
    if unknown:
        listed = ", ".join(map(str, sorted(dumped)[:20])) + (", …" if len(dumped) > 20 else "")
        raise InputError(f"{what} {unknown[0]} is not in the dump; it has {listed or 'none'}")


def _watchable(dump: Dump, ranks: Collection[int] | None, iterations: Collection[int] | None) -> list[TensorFile]:
    """Return the tensors that watchpoints check: outputs of nodes, or their inputs if only those were dumped."""
    side = "input" if dump.metadata.input_output == INPUTS_ONLY else "output"
    return [
        file
        for file in _with_recorded(dump, ranks, iterations)
        if not file.is_constant and (file.io == side or file.op_type == "Parameter") and not _is_initial(dump, file)
    ]


def _is_initial(dump: Dump, file: TensorFile) -> bool:
    """Return whether a file contains the value of a parameter before the first update."""
    if file.op_type != "Parameter":
        return False
    return file.is_constant or (dump.metadata.is_as_read and file.iteration == 0)


def _with_recorded(
    dump: Dump, ranks: Collection[int] | None, iterations: Collection[int] | None
) -> Sequence[TensorFile]:
    """Return the tensors of a dump, merged in order with those of which only statistics were recorded."""
    files = dump.tensors(ranks=ranks, iterations=iterations)
    recorded = dump.recorded_tensors(ranks=ranks, iterations=iterations)
    if not recorded:
        return files

    def sort_key(file: TensorFile) -> tuple[object, ...]:
        return file.rank, file.graph_id, file.iteration, dump.execution_position(file), file.io, file.slot

    return sorted([*files, *recorded], key=sort_key)


def _skipped(evaluation: Evaluation, requested: NDArray[np.bool_]) -> tuple[tuple[Status, int], ...]:
    states, amounts = np.unique(evaluation.status[evaluation.not_checked & requested], return_counts=True)
    return tuple((Status(int(state)), int(amount)) for state, amount in zip(states, amounts, strict=True))


class _Tensors:
    """Tensors of a dump, from which watchpoints select by what is the same in all iterations.

    Parameters
    ----------
    analysis : Analysis
    files : sequence of TensorFile
    """

    def __init__(self, analysis: Analysis, files: Sequence[TensorFile]) -> None:
        self._files = files
        self._rows = analysis.rows_of(files)
        numbers: dict[object, int] = {}
        self._alike: list[tuple[TensorFile, Graph | None]] = []
        codes = np.empty(len(files), np.int64)
        for at, file in enumerate(files):
            key = file.rank, file.graph, file.node, file.op_name, file.op_type
            number = numbers.setdefault(key, len(numbers))
            if number == len(self._alike):
                self._alike.append((file, analysis.dump.graph_of(file)))
            codes[at] = number
        self._codes = codes

    def that(self, selected: _Selected) -> tuple[Sequence[TensorFile], NDArray[np.int64]]:
        """Return the selected tensors, and their rows in the statistics table."""
        flags = np.fromiter((selected(*alike) for alike in self._alike), np.bool_, len(self._alike))
        if flags.all():
            return self._files, self._rows
        chosen = np.flatnonzero(flags[self._codes])
        return [self._files[at] for at in chosen.tolist()], self._rows[chosen]


class _Selections:
    """The nodes of a graph that selectors select, for all ranks that share the graph.

    Parameters
    ----------
    graph : Graph
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._names: dict[tuple[Selector, tuple[Graph, ...]], frozenset[str]] = {}

    def of(self, selector: Selector, graphs: tuple[Graph, ...]) -> frozenset[str]:
        """Return the names of the selected nodes; see `selected_nodes`."""
        key = selector, graphs
        if key not in self._names:
            self._names[key] = selected_nodes(self._graph, selector, graphs)
        return self._names[key]


class _Selected:
    """Determines whether a watchpoint watches a tensor, with a cache for each graph."""

    def __init__(self, dump: Dump, watchpoint: Watchpoint, nodes: ChosenNodes | None) -> None:
        self._dump = dump
        self._watchpoint = watchpoint
        self._selector = watchpoint.selection
        self._nodes = nodes
        self._matches = matcher(self._selector, Layers())
        self._names: dict[tuple[int, int], Collection[str]] = {}

    def __call__(self, file: TensorFile, graph: Graph | None) -> bool:
        if file.node is None:
            return self._selects_without_graph(file)
        if self._nodes is None and self._selector.kind in _WITHOUT_GRAPH:
            return self._matches(NodeFacts(file.node, file.op_type, "operator"))
        return graph is not None and file.node in self.names(file.rank, graph)

    def has_weight(self, file: TensorFile, weight: str) -> bool:
        """Return whether the weight is watched that a tensor shows, which may be the input of an operator."""
        graph = self._dump.graph_of(file)
        return graph is not None and weight in self.names(file.rank, graph)

    def _selects_without_graph(self, file: TensorFile) -> bool:
        """Return whether a tensor without a node is watched, by its own name and type."""
        if self._nodes is not None:
            return self._selector.kind is SelectorKind.ALL
        named = NodeFacts(file.op_name, file.op_type, "operator")
        return self._selector.kind in _WITHOUT_GRAPH and self._matches(named)

    def names(self, rank: int, graph: Graph) -> Collection[str]:
        """Return the names of the watched nodes of a graph."""
        # Ranks share equal graphs, but other nodes may have been chosen on each.
        key = rank, id(graph)
        if key not in self._names:
            if self._nodes is None:
                self._names[key] = graph.once(_Selections).of(self._selector, self._dump.graphs(rank))
            else:
                self._names[key] = self._nodes(self._watchpoint, rank).get(graph.name, frozenset())
        return self._names[key]


def _initial_weights(dump: Dump, ranks: Collection[int] | None) -> dict[tuple[int, str, str], TensorFile]:
    """Return the weights before the first update, by rank, graph and name.

    By default they are the inputs of the first operators that read them.

    A dump of MindSpore has no initial weights: the file of a parameter contains its value after the step. A run that
    Tensight recorded may have them; in a dump of msprobe, they are the values read in the first step.
    """
    kept = {
        (file.rank, file.graph, file.node): file
        for file in _with_recorded(dump, ranks, [CONSTANTS, 0] if dump.metadata.is_as_read else [CONSTANTS])
        if file.node is not None and _is_initial(dump, file) and _is_parameter(dump, file)
    }
    first: dict[tuple[int, str, str], TensorFile] = {}
    iterations = [iteration for iteration in dump.iterations() if iteration >= 0]
    for file in _with_recorded(dump, ranks, iterations[:1]):
        graph = dump.graph_of(file) if file.io == "input" and file.node is not None else None
        node = graph.get(file.node) if graph is not None and file.node is not None else None
        if graph is None or node is None or iterations[0] != 0:
            continue
        producers = graph.flat_producers(node)
        producer = producers[file.slot] if file.slot < len(producers) else None
        if producer is not None and producer[0].is_parameter:
            key = (file.rank, graph.name, producer[0].name)
            if key not in first or dump.execution_position(file) < dump.execution_position(first[key]):
                first[key] = file
    return {**first, **kept}


def _is_parameter(dump: Dump, file: TensorFile) -> bool:
    graph = dump.graph_of(file)
    node = graph.get(file.node) if graph is not None and file.node is not None else None
    return node is not None and node.is_parameter
