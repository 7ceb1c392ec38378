"""The entry point of the drop-in API: a dump, its nodes and tensors, and checks on them."""

from __future__ import annotations

import os
import re
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from tensight.debugger import statistics as statistics_module
from tensight.debugger.arguments import IntSelection, check_mem_limit, require_type, selected_numbers, selected_slots
from tensight.debugger.checking import check_watchpoints
from tensight.debugger.exceptions import DebuggerParamValueError, RankDirNotFound
from tensight.debugger.nodes import DebuggerTensor, DumpNodes, Node
from tensight.dumps import open_dump
from tensight.errors import DumpError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tensight.analysis import Analysis
    from tensight.debugger.history import History
    from tensight.debugger.hits import Watchpoint, WatchpointHit
    from tensight.debugger.statistics import ComputedStatistics, StatisticsByTensor
    from tensight.dumps import Dump

_RANK_FOLDER = re.compile(r"rank_[0-9]+")

Path = str | os.PathLike[str]


class DumpAnalyzer:
    """A dump written by MindSpore, for inspection and checks in a script.

    Parameters
    ----------
    dump_dir : str or path-like
        The folder that contains ``rank_0``, ``rank_1``, …
    mem_limit : int, optional
        A limit in MB, from 2048 to 2147483647. Accepted for compatibility but never reached, because tensors are read
        piece by piece.

    Raises
    ------
    RankDirNotFound
        The folder is not a dump.
    DebuggerParamTypeError, DebuggerParamValueError
        `mem_limit` is invalid.
    """

    def __init__(self, dump_dir: Path, mem_limit: int | None = None) -> None:
        check_mem_limit(mem_limit)
        self._dump = open_dump_folder(dump_dir)
        self._nodes = DumpNodes(self._dump)
        self._analysis: Analysis = self._open_analysis()
        for rank in self._dump.ranks:
            self._dump.graphs(rank)

    @property
    def dump(self) -> Dump:
        """The dump, as the rest of Tensight represents it."""
        return self._dump

    @cached_property
    def _history(self) -> History:
        from tensight.debugger.history import History

        return History(self._dump)

    def _open_analysis(self) -> Analysis:
        from tensight.analysis import Analysis
        from tensight.cache import cache_root
        from tensight.debugger.history import DumpByHistory

        if not self._history.contradicts(self._nodes):
            return Analysis(self._dump)
        # `previous` differs there, so the statistics must not be mixed with those of the rest of Tensight.
        by_history = cast("Dump", DumpByHistory(self._dump, self._history))
        return Analysis(by_history, cache_dir=os.path.join(cache_root(), "by-history"))

    def export_graphs(self, output_dir: Path | None = None) -> str:
        """Write the graphs of all ranks to a workbook.

        Parameters
        ----------
        output_dir : str or path-like, optional
            Target folder, created if missing; by default the current folder.

        Returns
        -------
        str
            The path of the file, ``dump_{YYYYmmdd_HHMMSS}.xlsx``.
        """
        from tensight.analysis.workbook import export_workbook

        return export_workbook(self._dump, output_dir)

    def select_nodes(
        self,
        query_string: str,
        use_regex: bool = False,
        select_by: str = "node_name",
        ranks: IntSelection = None,
        case_sensitive: bool = True,
    ) -> list[Node]:
        """Find nodes by name or by line of code.

        Parameters
        ----------
        query_string : str
            The text to find, or a regular expression that matches anywhere.
        use_regex : bool
            Whether it is a regular expression.
        select_by : {"node_name", "code_stack"}
            Whether to search `Node.name`, or the lines of `Node.stack`, one of which must match.
        ranks : int, list of int, set of int, optional
            The ranks to search; by default all.
        case_sensitive : bool
            Whether to match case-sensitively.

        Returns
        -------
        list of Node
            Rank by rank, graph by graph: constants, parameters, operators in topological order.

        Raises
        ------
        DebuggerParamTypeError, DebuggerParamValueError
            An argument has the wrong type or an invalid value.
        re.error
            The regular expression is invalid.
        """
        require_type("query_string", query_string, str)
        require_type("use_regex", use_regex, bool)
        require_type("case_sensitive", case_sensitive, bool)
        matches = match_text(query_string, use_regex, case_sensitive)
        selects = _selector(select_by, matches)
        chosen = self._chosen_ranks(ranks)
        return [node for rank in chosen for node in self._nodes.of_rank(rank) if selects(node)]

    def select_tensors(
        self,
        query_string: str,
        use_regex: bool = False,
        select_by: str = "node_name",
        iterations: IntSelection = None,
        ranks: IntSelection = None,
        slots: list[int] | None = None,
        case_sensitive: bool = True,
    ) -> list[DebuggerTensor]:
        """Find the output tensors of the nodes that `select_nodes` finds.

        Parameters
        ----------
        query_string, use_regex, select_by, ranks, case_sensitive
            As in `select_nodes`.
        iterations : int, list of int, set of int, optional
            The iterations; by default all dumped ones.
        slots : list of int, optional
            The outputs; by default all.

        Returns
        -------
        list of DebuggerTensor
            Node by node, slot by slot, iteration by iteration, whether or not they were dumped.

        Raises
        ------
        DebuggerParamTypeError, DebuggerParamValueError, TypeError
            An argument has the wrong type or an invalid value.
        re.error
            The regular expression is invalid.
        """
        slot_numbers = selected_slots(slots)
        numbers = selected_numbers("iterations", iterations, self.get_iterations(ranks))
        nodes = self.select_nodes(query_string, use_regex, select_by, ranks, case_sensitive)
        dumped: dict[tuple[int, int], list[int]] = {}
        tensors: list[DebuggerTensor] = []
        for node in nodes:
            graph = (node.rank, node.root_graph_id)
            if graph not in dumped:
                of_graph = set(self._nodes.iterations_of_graph(*graph))
                dumped[graph] = [iteration for iteration in numbers if iteration in of_graph or not of_graph]
            tensors.extend(node.outputs_in(dumped[graph], slot_numbers))
        return tensors

    def get_iterations(self, ranks: IntSelection = None) -> list[int]:
        """Return the dumped iterations of some ranks, by default of all, ascending.

        Parameters
        ----------
        ranks : int, list or set of int, optional
            By default all.

        Raises
        ------
        DebuggerParamTypeError, DebuggerParamValueError
            `ranks` has the wrong type or contains a rank that does not exist.
        """
        return sorted({iteration for rank in self._chosen_ranks(ranks) for iteration in self._nodes.iterations(rank)})

    def get_ranks(self) -> list[int]:
        """Return the ranks of the dump, ascending."""
        return list(self._dump.ranks)

    def check_watchpoints(
        self, watchpoints: Iterable[Watchpoint], error_on_no_value: bool = False
    ) -> list[WatchpointHit]:
        """Check watchpoints on the dump.

        All are checked in one pass over the tensors; statistics are kept, so that no tensor is read again. No process
        is started, so no ``if __name__ == "__main__"`` is needed.

        Parameters
        ----------
        watchpoints : iterable of Watchpoint
            The watchpoints to check.
        error_on_no_value : bool
            Whether to report watched tensors that were not dumped, with error code 32.

        Returns
        -------
        list of WatchpointHit
            By iteration, within it by the time at which the tensor was dumped, then tensors that were not dumped.

        Raises
        ------
        DebuggerParamTypeError
            An element is not a watchpoint.
        TypeError
            `error_on_no_value` is not a bool.
        """
        return check_watchpoints(
            self._nodes, self._analysis, self._history, watchpoints, error_on_no_value=error_on_no_value
        )

    def list_affected_nodes(self, tensor: DebuggerTensor) -> list[Node]:
        """Return the nodes that directly use the node of a tensor, through any of its outputs.

        Parameters
        ----------
        tensor : DebuggerTensor
            A tensor of this dump.

        Raises
        ------
        DebuggerParamTypeError
            `tensor` is not a DebuggerTensor.
        DebuggerParamValueError
            It belongs to another dump.
        """
        require_type("tensor", tensor, DebuggerTensor)
        return self.get_output_nodes(tensor.node)

    def get_input_nodes(self, node: Node) -> list[Node]:
        """Return the producers of a node's inputs, in input order.

        Parameters
        ----------
        node : Node
            A node of this dump.

        Raises
        ------
        DebuggerParamTypeError
            `node` is not a Node.
        DebuggerParamValueError
            It belongs to another dump.
        """
        require_type("node", node, Node)
        return self._nodes.input_nodes(self._nodes.same(node))

    def get_output_nodes(self, node: Node) -> list[Node]:
        """Return the consumers of a node's outputs, in topological order.

        Parameters
        ----------
        node : Node
            A node of this dump.

        Raises
        ------
        DebuggerParamTypeError
            `node` is not a Node.
        DebuggerParamValueError
            It belongs to another dump.
        """
        require_type("node", node, Node)
        return self._nodes.output_nodes(self._nodes.same(node))

    def select_tensor_statistics(
        self, iterations: IntSelection = None, ranks: IntSelection = None
    ) -> dict[int, dict[int, StatisticsByTensor]]:
        """Read the statistics that the training process wrote (``statistic.csv``).

        Parameters
        ----------
        iterations, ranks : int, list of int, set of int, optional
            Iterations and ranks; by default all.

        Returns
        -------
        dict
            ``{rank: {iteration: {"Conv2D-op1:output:0": [row, …]}}}``; a row maps column titles to strings.

        Raises
        ------
        FileNotFoundError
            There is no such file.
        DumpError
            A file cannot be read.
        DebuggerParamTypeError, DebuggerParamValueError
            An argument has the wrong type or an invalid value.
        """
        chosen = self._chosen_ranks(ranks)
        numbers = set(selected_numbers("iterations", iterations, self.get_iterations(ranks)))
        return {
            rank: {
                iteration: statistics_module.read_statistics(self._dump, rank, iteration)
                for iteration in self._nodes.iterations(rank)
                if iteration in numbers
            }
            for rank in chosen
        }

    def summary_statistics(
        self, statistics: dict[int, dict[int, Any]], overflow_value: float = 65500, out_path: Path = "./"
    ) -> None:
        """Summarize statistics over ranks and iterations in ``statistics_summary.csv``, with a line for each tensor.

        Parameters
        ----------
        statistics : dict
            What `select_tensor_statistics` returned.
        overflow_value : float
            A statistic whose maximum or minimum has a greater absolute value counts as out of range.
        out_path : str or path-like
            Target folder, created if missing. Without statistics nothing is written.
        """
        statistics_module.write_summary(statistics, overflow_value, os.fspath(out_path))

    def _compute_statistics(self, debugger_tensors: Iterable[DebuggerTensor]) -> ComputedStatistics:
        """Compute statistics of tensors from their values, structured as in `select_tensor_statistics`."""
        return statistics_module.compute_statistics(self._nodes, self._analysis, debugger_tensors)

    def _export_to_disk(self, tensor_statistics: dict[int, dict[int, Any]], out_path: Path = "./") -> None:
        """Write computed statistics to ``{out_path}/{rank}/{iteration}/statistics.csv``."""
        statistics_module.write_statistics(tensor_statistics, os.fspath(out_path))

    def _chosen_ranks(self, ranks: IntSelection) -> list[int]:
        return selected_numbers("ranks", ranks, self._dump.ranks)


def open_dump_folder(dump_dir: Path) -> Dump:
    """Open a dump, given the folder that contains its ranks.

    Raises
    ------
    RankDirNotFound
        The folder is not a dump.
    """
    path = os.fspath(dump_dir)
    try:
        dump = open_dump(path, with_unwritten=True)
    except DumpError as error:
        if "://" not in path and _has_rank_folder(path):
            raise
        raise RankDirNotFound(f"No rank directory found under {path}.") from error
    if "://" not in path and not _has_rank_folder(path):
        # The rest of Tensight also opens a rank's folder, or a dump in a subfolder; scripts rely on this error.
        raise RankDirNotFound(f"No rank directory found under {path}.")
    return dump


def _has_rank_folder(path: str) -> bool:
    try:
        return any(_RANK_FOLDER.fullmatch(name) for name in os.listdir(path))
    except (OSError, ValueError):
        return False


def match_text(query: str, use_regex: bool, case_sensitive: bool) -> Callable[[str], bool]:
    """Return a predicate on texts."""
    if use_regex:
        pattern = re.compile(query, 0 if case_sensitive else re.IGNORECASE)
        return lambda text: pattern.search(text) is not None
    if case_sensitive:
        return lambda text: query in text
    folded = query.lower()
    return lambda text: folded in text.lower()


def _selector(select_by: str, matches: Callable[[str], bool]) -> Callable[[Node], bool]:
    """Return a predicate on nodes."""
    if select_by == "node_name":
        return lambda node: matches(node.name)
    if select_by == "code_stack":
        return lambda node: any(matches(str(line)) for line in node.stack)
    raise DebuggerParamValueError("The param `select_by` only support `node_name` or `code_stack`.")
