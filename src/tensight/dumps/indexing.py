"""Index the tensors of one folder: parse file names, group repeated dumps, match nodes.

A dump easily has 100,000 files, so this is written for speed: one pass over the listing, and no file is opened (except
binary files of Ascend devices, which list their slots only in their content). The folders of a graph usually have the
same names except for their times, in all iterations and on all ranks: their files are matched once (`FolderPlan`).
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace
from itertools import chain
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, NamedTuple

from tensight.dumps.ascend_names import parse_ascend_name
from tensight.dumps.execution import UNMATCHED
from tensight.dumps.matching import Candidate, Match, MatchReport, NodeMatcher, has_slot
from tensight.dumps.names import joined, original_name, parse_mapping, parse_raw_name, split_name, without_times
from tensight.dumps.tensor_file import TensorFile
from tensight.errors import DumpError, Problem
from tensight.graph.unwritten import is_unwritten

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from tensight.dumps.ascend_names import AscendName
    from tensight.dumps.statistic_csv import StatisticRow
    from tensight.dumps.storage import FileEntry, Listing, Storage

#: Files in an iteration folder that contain no tensor.
_OTHER = frozenset({"statistic.csv", "mapping.csv", "convert_failed_file_list.txt", "convert_failed_files_summary.txt"})

MAPPING = "mapping.csv"
STATISTICS = "statistic.csv"

_NO_TEXT: MappingProxyType[str, str] = MappingProxyType({})


class _Row(NamedTuple):
    """A tensor as described by its file's name (or the file). Rows of one tensor sort by their first two fields."""

    timestamp: int
    is_npy: bool
    name: str
    size_bytes: int
    mtime_ns: int
    match: Match
    task_id: int
    stream_id: int
    io: Literal["input", "output"]
    slot: int
    format: str
    declared_dtype: str
    recorded: StatisticRow | None = None


@dataclass(slots=True)
class FolderIndex:
    """The tensors of one folder.

    Attributes
    ----------
    tensors : list of TensorFile
        Sorted by execution order, inputs before outputs, slot.
    report : MatchReport
    unwritten : list of TensorFile
        Outputs that their operators never write; not among `tensors`.
    unread : list of str
        Names of files of unknown kind.
    problems : list of Problem
    statistics : FileEntry or None
        The file with the statistics that the device recorded.
    """

    tensors: list[TensorFile] = field(default_factory=list)
    report: MatchReport = field(default_factory=MatchReport)
    unwritten: list[TensorFile] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    statistics: FileEntry | None = None


class FolderPlan(NamedTuple):
    """The tensors of all folders that have the same file names except for their times.

    Attributes
    ----------
    tensors, unwritten : list of (int, TensorFile)
        As in `FolderIndex`, with the position of each file in the listing; of the folder that was indexed first.
    unread : list of int
        Positions of files of unknown kind.
    report : MatchReport
    """

    tensors: list[tuple[int, TensorFile]]
    unwritten: list[tuple[int, TensorFile]]
    unread: list[int]
    report: MatchReport


FolderPlans = dict[tuple[str, ...], FolderPlan]
"""Plans by the names of all files in a folder (`names.without_times`); of one root graph."""


class FolderIndexer:
    """Index the folders of one root graph.

    Parameters
    ----------
    storage : Storage
    rank, graph_id : int
    matcher : NodeMatcher
    with_unwritten : bool
        Whether unwritten outputs count as tensors.
    plans : FolderPlans, optional
        The plans of folders that were indexed before with an equal matcher and `with_unwritten`; others are added.
    """

    def __init__(
        self,
        storage: Storage,
        rank: int,
        graph_id: int,
        matcher: NodeMatcher,
        *,
        with_unwritten: bool = False,
        plans: FolderPlans | None = None,
    ) -> None:
        self._plans = {} if plans is None else plans
        self._storage = storage
        self._rank = rank
        self._graph_id = graph_id
        self._matcher = matcher
        self._with_unwritten = with_unwritten

    def index(self, folder: str, iteration: int) -> FolderIndex:
        """Index one folder; a folder that cannot be listed gives an empty index and a problem."""
        result = FolderIndex()
        try:
            listing = self._storage.list_folder(folder)
        except DumpError as error:
            result.problems.append(Problem(folder, str(error)))
            return result
        result.problems.extend(listing.no_files(folder))
        mapping = self._mapping(folder, listing, result)
        result.statistics = next((file for file in listing.files if file.name == STATISTICS), None)
        timeless, times = without_times(file.name for file in listing.files)
        names = tuple(timeless)
        plan = None if mapping else self._plans.get(names)
        if plan is not None:
            self._follow(plan, folder, iteration, listing.files, times, result)
            return result
        rows = list(self._rows(folder, listing.files, mapping, result))
        groups = self._grouped(rows)
        self._build(folder, iteration, groups, result)
        # The contents of files, renamed files, and files that repeat a tensor at other times may differ elsewhere.
        if not mapping and len(groups) == len(rows) and all(row.is_npy for row in rows):
            self._plans[names] = self._plan(folder, listing.files, result)
        return result

    def _plan(self, folder: str, files: Sequence[FileEntry], result: FolderIndex) -> FolderPlan:
        """Return the plan for other folders like the one that was indexed."""
        prefix, suffix = self._around_names(folder)
        positions = {f"{prefix}{file.name}{suffix}": position for position, file in enumerate(files)}
        unread = set(result.unread)
        return FolderPlan(
            [(positions[tensor.path], tensor) for tensor in result.tensors],
            [(positions[tensor.path], tensor) for tensor in result.unwritten],
            [position for position, file in enumerate(files) if f"{folder}/{file.name}" in unread],
            result.report,
        )

    def _follow(
        self,
        plan: FolderPlan,
        folder: str,
        iteration: int,
        files: Sequence[FileEntry],
        times: Sequence[int],
        result: FolderIndex,
    ) -> None:
        """Index a folder by a plan."""
        prefix, suffix = self._around_names(folder)
        of_folder = self._rank, self._graph_id, iteration

        def tensor(position: int, planned: TensorFile) -> TensorFile:
            name, size_bytes, mtime_ns = files[position]
            of_file = f"{prefix}{name}{suffix}", size_bytes, mtime_ns
            return TensorFile._make((*of_folder, *planned[3:11], times[position], *planned[12:14], *of_file, (), None))

        result.tensors = [tensor(position, planned) for position, planned in plan.tensors]
        result.unwritten = [tensor(position, planned) for position, planned in plan.unwritten]
        result.unread = [f"{folder}/{files[position].name}" for position in plan.unread]
        result.report = plan.report

    def _around_names(self, folder: str) -> tuple[str, str]:
        """Return the texts before and after a file's name in its path; a (chained) URL may have text after it."""
        prefix, suffix = self._storage.full_path(f"{folder}/\0").split("\0")
        return prefix, suffix

    def index_recorded(
        self,
        folder: str,
        iteration: int,
        file: FileEntry,
        statistics: Iterable[StatisticRow],
        dumped: Sequence[TensorFile],
    ) -> FolderIndex:
        """Index the tensors of a folder for which the device recorded statistics, but no values.

        Parameters
        ----------
        folder : str
        iteration : int
        file : FileEntry
            The statistics file.
        statistics : iterable of StatisticRow
            Its lines; their text is not kept.
        dumped : sequence of TensorFile
            The tensors of the folder with a file, which are left out.
        """
        result = FolderIndex(statistics=file)
        rows = [self._recorded_row(file, replace(line, row=_NO_TEXT)) for line in statistics]
        self._build(folder, iteration, self._grouped(rows), result, _Dumped(dumped))
        return result

    def _recorded_row(self, file: FileEntry, line: StatisticRow) -> _Row:
        match = self._matcher.match_names(line.op_type, line.op_name)
        dtype = sys.intern(line.data_type)
        return _Row(
            line.timestamp, False, file.name, 0, file.mtime_ns, match, line.task_id, line.stream_id, line.io, line.slot,
            "", dtype, line,
        )  # fmt: skip

    def _grouped(self, rows: list[_Row]) -> Collection[list[_Row]]:
        """Group the possible repeats of one tensor: by node, or by name if the node is uncertain."""
        dtypes = {row.match: row.declared_dtype for row in rows if row.slot == 0 and row.io == "output"}
        replaced = self._matcher.renumbered(dict.fromkeys(row.match for row in rows), dtypes)
        groups: dict[tuple[object, str, int], list[_Row]] = {}
        for row in rows:
            match = row.match
            if match in replaced:
                match = replaced[match]
            candidates = match.candidates
            key = (candidates[0].node if len(candidates) == 1 else match, row.io, row.slot)
            groups.setdefault(key, []).append(row if match is row.match else row._replace(match=match))
        return groups.values()

    def _mapping(self, folder: str, listing: Listing, result: FolderIndex) -> dict[str, str]:
        if not any(file.name == MAPPING for file in listing.files):
            return {}
        path = f"{folder}/{MAPPING}"
        try:
            mapping, refused = parse_mapping(self._storage.read_bytes(path).decode("utf-8", "replace"))
        except DumpError as error:
            result.problems.append(Problem(path, f"cannot be read: {error}", "files with long names stay unmatched"))
            return {}
        if refused:
            result.problems.append(Problem(path, f"{refused} lines are not of the form digits,name"))
        return mapping

    def _rows(
        self, folder: str, files: Sequence[FileEntry], mapping: dict[str, str], result: FolderIndex
    ) -> Iterable[_Row]:
        match = self._matcher.match
        for file in files:
            name, size_bytes, mtime_ns = file
            split = split_name(original_name(name, mapping) if mapping else name)
            if split is None:
                yield from self._other_rows(folder, file, original_name(name, mapping), result)
                continue
            head, task_id, stream_id, timestamp, io, slot, layout, dtype = split
            layout, dtype = sys.intern(layout), sys.intern(dtype)
            node_match = match(head)
            yield _Row(
                timestamp, True, name, size_bytes, mtime_ns, node_match, task_id, stream_id, io, slot, layout, dtype
            )

    def _other_rows(self, folder: str, file: FileEntry, name: str, result: FolderIndex) -> Iterable[_Row]:
        if name in _OTHER or name.startswith("Opdebug.") or name.endswith(".json"):
            return ()
        raw = parse_raw_name(name) if name.endswith(".bin") else None
        if raw is not None:
            is_operator = not raw.op_name.startswith("Parameter")
            op_type = raw.op_name.rpartition("/")[2].partition("-")[0] if is_operator else ""
            match = self._matcher.match_names(op_type, raw.op_name)
            return (_Row(0, False, *file, match, 0, 0, raw.io, raw.slot, raw.format, raw.dtype),)
        ascend = parse_ascend_name(name)
        if ascend is not None and not ascend.is_overflow:
            return self._ascend_rows(folder, file, ascend, result)
        result.unread.append(f"{folder}/{file.name}")
        return ()

    def _ascend_rows(self, folder: str, file: FileEntry, name: AscendName, result: FolderIndex) -> Iterable[_Row]:
        from tensight.dumps.ascend import read_dump_data

        path = f"{folder}/{file.name}"
        try:
            with self._storage.open(path) as opened:
                data = read_dump_data(opened)
        except DumpError as error:
            result.problems.append(Problem(path, str(error)))
            return
        match = self._matcher.match_names(name.op_type, data.op_name) if data.op_name else None
        if match is None or len(match.candidates) != 1:
            match = self._matcher.match_names(name.op_type, name.op_name)
        for slot in data.slots:
            if slot.problem:
                result.problems.append(Problem(f"{path}, {slot.label}", slot.problem))
            yield _Row(
                name.timestamp, False, file.name, slot.size_bytes, file.mtime_ns, match, name.task_id, name.stream_id,
                slot.io, slot.index, slot.format, slot.data_type,
            )  # fmt: skip

    def _build(
        self,
        folder: str,
        iteration: int,
        groups: Iterable[list[_Row]],
        result: FolderIndex,
        dumped: _Dumped | None = None,
    ) -> None:
        prefix, suffix = self._around_names(folder)
        ordered: list[tuple[int, str, int, TensorFile]] = []
        report = result.report
        for rows in groups:
            if len(rows) > 1:
                rows.sort(key=lambda row: row[:2], reverse=True)
            for candidate, assigned in self._assigned(rows):
                older = tuple(self._tensor(row, candidate, iteration, prefix, suffix, ()) for row in assigned[1:])
                tensor = self._tensor(assigned[0], candidate, iteration, prefix, suffix, older)
                if dumped is not None and tensor in dumped:
                    continue
                graph_and_node = None if candidate is None else candidate[:2]
                is_written = tensor.io == "input" or not is_unwritten(tensor.op_type, tensor.slot, graph_and_node)
                if not is_written and not self._with_unwritten:
                    result.unwritten += (tensor, *older)
                    continue
                report.files += len(assigned)
                if candidate is None:
                    report.add(assigned[0].match, len(assigned))
                    ordered.append((UNMATCHED, tensor.io, tensor.slot, tensor))
                else:
                    report.matched += len(assigned)
                    report.matched_by_order += len(assigned) if assigned[0].match.by_order else 0
                    ordered.append((candidate.position, tensor.io, tensor.slot, tensor))
        ordered.sort(key=_sort_key)
        result.tensors = [tensor for *_, tensor in ordered]

    def _assigned(self, rows: list[_Row]) -> list[tuple[Candidate | None, list[_Row]]]:
        """Assign the files of one name to the nodes that it fits."""
        candidates = rows[0].match.candidates
        if len(candidates) == 1:
            return [(candidates[0], rows)]
        able = [candidate for candidate in candidates if has_slot(candidate, rows[0].io, rows[0].slot)]
        if len(able) == 1:
            return [(able[0], rows)]
        # With as many dumps as nodes that can only run one after the other, each ran once, the earliest first. Nodes
        # that do not depend on each other may run in any order, or concurrently.
        once_each = len(able) == len(candidates) == len(rows) == len({row.timestamp for row in rows})
        if once_each and rows[0].match.is_ordered:
            return [(candidate, [row]) for candidate, row in zip(able, reversed(rows), strict=True)]
        return [(None, rows)]

    def _tensor(
        self,
        row: _Row,
        candidate: Candidate | None,
        iteration: int,
        prefix: str,
        suffix: str,
        older: tuple[TensorFile, ...],
    ) -> TensorFile:
        timestamp, _, name, size_bytes, mtime_ns, match, task_id, stream_id, io, slot, layout, dtype, recorded = row
        return TensorFile(
            self._rank,
            self._graph_id,
            iteration,
            candidate.node.name if candidate else None,
            candidate.graph.name if candidate else "",
            match.op_type,
            match.op_name,
            io,
            slot,
            task_id,
            stream_id,
            timestamp,
            layout,
            dtype,
            f"{prefix}{name}{suffix}",
            size_bytes,
            mtime_ns,
            older,
            recorded,
        )


class _Dumped:
    """The tensors that have a file with values; ``in`` tells whether a recorded tensor is one of them.

    The names in ``statistic.csv`` and of files can be spelled differently, so that only one of them may have been
    matched to its node; but both contain the time at which the operator ran.
    """

    def __init__(self, files: Sequence[TensorFile]) -> None:
        self._nodes = {(file.graph, file.node, file.io, file.slot) for file in files if file.node is not None}
        every = list(chain(files, *(file.older for file in files)))
        self._names = {(joined(file.op_type), joined(file.op_name), file.io, file.slot) for file in every}
        self._moments = {self._moment(file) for file in every if file.timestamp}

    def __contains__(self, tensor: TensorFile) -> bool:
        if (tensor.graph, tensor.node, tensor.io, tensor.slot) in self._nodes or self._moment(tensor) in self._moments:
            return True
        op_type, io_and_slot = joined(tensor.op_type), (tensor.io, tensor.slot)
        names = (tensor.op_name, tensor.op_name.rpartition("/")[2]) if tensor.node is None else ()
        return any((op_type, joined(name), *io_and_slot) in self._names for name in names)

    @staticmethod
    def _moment(file: TensorFile) -> tuple[object, ...]:
        return joined(file.op_type), file.task_id, file.stream_id, file.timestamp, file.io, file.slot


def _sort_key(item: tuple[int, str, int, TensorFile]) -> tuple[int, str, int, str]:
    position, io, slot, tensor = item
    return position, io, slot, tensor.path
