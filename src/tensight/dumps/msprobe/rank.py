"""The reader of one rank's msprobe dump."""

from __future__ import annotations

from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from tensight.dumps.execution import UNMATCHED
from tensight.dumps.metadata import DumpMetadata
from tensight.dumps.msprobe.entries import BEGINNING_BYTES, MAX_JSON_BYTES, read_beginning, read_step
from tensight.dumps.msprobe.folders import DUMP_FILE, may_be_msprobe, step_folders
from tensight.dumps.msprobe.program import MAX_GRAPHS, Names, Program, build_program, signature, tensors_in_slots
from tensight.dumps.reader import Layout, LocatedRank, RankReader
from tensight.dumps.statistic_csv import StatisticRow
from tensight.dumps.tensor_file import TensorFile
from tensight.errors import DumpError, MissingFileError, Problem
from tensight.graph.node import PARAMETER

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from tensight.dumps.msprobe.entries import StepRecord
    from tensight.dumps.msprobe.folders import StepFolder
    from tensight.dumps.msprobe.program import TensorInSlot
    from tensight.dumps.storage import FileEntry, Storage
    from tensight.graph import Graph

_VALUES = "dump_tensor_data"
_READABLE = (".npy", ".pt")
_NO_TEXT: Mapping[str, str] = MappingProxyType({})


class MsprobeRank(RankReader):
    """The msprobe dump of one rank.

    Parameters
    ----------
    storage : Storage
    rank : int
    folders : sequence of StepFolder
        Its steps, in order; at least one.
    """

    def __init__(self, storage: Storage, rank: int, folders: Iterable[StepFolder]) -> None:
        super().__init__(storage, rank)
        self._folders = {folder.iteration: folder for folder in folders}
        self._names = Names()
        self._lists: dict[int, tuple[list[TensorFile], list[TensorFile]]] = {}

    # --- metadata ---

    @property
    def metadata(self) -> DumpMetadata:
        """How the dump was made, from the beginning of the first step's file, which may be large."""
        folder = next(iter(self._folders.values()))
        try:
            with self._storage.open(folder.child(DUMP_FILE)) as file:
                about = read_beginning(file.read(0, BEGINNING_BYTES))
        except DumpError:
            # Reported when the step is read.
            about = {}
        return DumpMetadata(
            framework="mindspore" if about.get("framework") == "mindspore" else "torch",
            saved_data="tensor" if about.get("task", "tensor") == "tensor" else "statistic",
            tool="msprobe",
        )

    # --- what ran ---

    @cached_property
    def _steps(self) -> dict[int, StepRecord]:
        """The steps that could be read, by iteration."""
        read = {iteration: self._step(folder) for iteration, folder in self._folders.items()}
        return {iteration: step for iteration, step in read.items() if step is not None}

    def _step(self, folder: StepFolder) -> StepRecord | None:
        try:
            dump = self._storage.read_bytes(folder.child(DUMP_FILE), MAX_JSON_BYTES)
            construct, stack = (self._optional(folder.child(f"{name}.json")) for name in ("construct", "stack"))
            return read_step(dump, construct, stack, folder.path or ".", self._problems)
        except DumpError as error:
            self._problems.append(Problem(folder.path, str(error), "the step is left out"))
            return None

    def _optional(self, path: str) -> bytes:
        try:
            data = self._storage.read_bytes(path, MAX_JSON_BYTES)
        except MissingFileError:
            return b""
        except DumpError as error:
            self._problems.append(Problem(path, str(error), "it is not used"))
            return b""
        if not data:
            self._problems.append(Problem(path, "is empty", "the step was not written to its end"))
        return data

    @cached_property
    def _programs(self) -> list[Program]:
        """The programs, one for each sequence of calls, in the order of their first steps."""
        groups: dict[object, dict[int, StepRecord]] = {}
        for iteration, step in self._steps.items():
            key = signature(step)
            if key not in groups and len(groups) >= MAX_GRAPHS:
                what = f"more than {MAX_GRAPHS:,} different sequences of calls"
                self._problems.append(Problem(self._folders[iteration].path, what, "further ones are left out"))
                break
            groups.setdefault(key, {})[iteration] = step
        return [build_program(steps, number, self._names) for number, steps in enumerate(groups.values())]

    @cached_property
    def _program_of(self) -> dict[int, Program]:
        return {iteration: program for program in self._programs for iteration in program.iterations}

    @cached_property
    def graphs(self) -> tuple[Graph, ...]:
        """The graphs, one for each sequence of calls, sorted by id."""
        return tuple(program.graph for program in self._programs)

    @cached_property
    def iterations(self) -> Mapping[int, tuple[int, ...]]:
        """The dumped iterations by number of the graph."""
        return {program.graph.graph_id: program.iterations for program in self._programs}

    # --- its tensors ---

    def tensors_of(self, graph_id: int, iteration: int) -> Iterable[TensorFile]:
        """Return the tensors with values of one iteration of a sequence of calls."""
        return self._lists_of(graph_id, iteration)[0]

    def recorded_tensors_of(self, graph_id: int, iteration: int) -> Iterable[TensorFile]:
        """Return the tensors for which msprobe wrote only statistics."""
        return self._lists_of(graph_id, iteration)[1]

    def _lists_of(self, graph_id: int, iteration: int) -> tuple[list[TensorFile], list[TensorFile]]:
        program = self._program_of.get(iteration)
        if program is None or program.graph.graph_id != graph_id:
            return [], []
        return self._list(iteration, program)

    def _list(self, iteration: int, program: Program) -> tuple[list[TensorFile], list[TensorFile]]:
        cached = self._lists.get(iteration)
        if cached is not None:
            return cached
        folder = self._folders[iteration]
        files = self._files_in(folder.child(_VALUES), iteration)
        step_file = self._storage.full_path(folder.child(DUMP_FILE))
        missing: list[str] = []
        tensor_files: list[TensorFile] = []
        for tensor_in_slot in tensors_in_slots(self._steps[iteration], self._names, program):
            file = files.get(tensor_in_slot.tensor.file) if tensor_in_slot.tensor.file.endswith(_READABLE) else None
            if tensor_in_slot.tensor.file.endswith(_READABLE) and file is None:
                missing.append(tensor_in_slot.tensor.file)
            tensor_files.append(self._tensor(tensor_in_slot, program, iteration, file, folder, step_file))
        if missing:
            what = f"{len(missing)} files that dump.json lists are missing, such as {missing[0][:200]}"
            self._problems.append(Problem(folder.child(_VALUES), what, "of these tensors only statistics are known"))
        positions = {file: self._position(program, file) for file in tensor_files}
        tensor_files.sort(key=lambda file: (positions[file], file.io == "output", file.slot))
        lists = (
            [file for file in tensor_files if file.recorded is None],
            [file for file in tensor_files if file.recorded is not None],
        )
        self._lists[iteration] = lists
        return lists

    def _position(self, program: Program, file: TensorFile) -> int:
        node = program.graph.get(file.node or "")
        return UNMATCHED if node is None else self.order.position(node)

    def _files_in(self, folder: str, iteration: int) -> Mapping[str, FileEntry]:
        if not any(tensor.file for tensor in self._all_tensors(iteration)):
            return {}
        try:
            listing = self._storage.list_folder(folder)
        except MissingFileError:
            return {}
        except DumpError as error:
            self._problems.append(Problem(folder, str(error)))
            return {}
        self._problems.extend(listing.no_files(folder))
        return {file.name: file for file in listing.files}

    def _all_tensors(self, iteration: int) -> Iterator[Any]:
        for entry in self._steps[iteration].entries:
            yield from entry.inputs
            yield from (output for output in entry.outputs if output is not None)
            yield from entry.parameters.values()

    def _tensor(
        self,
        tensor_in_slot: TensorInSlot,
        program: Program,
        iteration: int,
        file: FileEntry | None,
        folder: StepFolder,
        step_file: str,
    ) -> TensorFile:
        node_slot, entry, position, tensor = tensor_in_slot
        graph = program.graph
        recorded = None
        if file is None:
            values: dict[str, float | int | str] = dict(tensor.measures)
            if tensor.checksum:
                values["md5"] = tensor.checksum
            recorded = StatisticRow(
                self._rank, graph.graph_id, iteration, node_slot.type, entry.name, 0, 0, position, node_slot.io,
                node_slot.slot, tensor.size_bytes, tensor.dtype, tensor.shape, MappingProxyType(values), _NO_TEXT,
            )  # fmt: skip
        path = step_file if file is None else self._storage.full_path(folder.child(f"{_VALUES}/{file.name}"))
        return TensorFile(
            rank=self._rank,
            graph_id=graph.graph_id,
            iteration=iteration,
            node=node_slot.node,
            graph=graph.name,
            op_type=node_slot.type,
            op_name=node_slot.node if node_slot.type == PARAMETER else entry.name,
            io=node_slot.io,
            slot=node_slot.slot,
            task_id=0,
            stream_id=0,
            timestamp=position,
            format="DefaultFormat",
            declared_dtype=tensor.dtype,
            path=path,
            size_bytes=0 if file is None else file.size_bytes,
            mtime_ns=0 if file is None else file.mtime_ns,
            recorded=recorded,
        )

    def statistic_rows(self, requested: Collection[int] | None) -> Iterable[StatisticRow]:
        """Yield msprobe's statistics of tensors without values, in the requested iterations (None: all)."""
        records = (file.recorded for file in self.recorded_tensors(requested))
        return (record for record in records if isinstance(record, StatisticRow))

    # --- the whole rank ---

    def fingerprint_parts(
        self,
        *,
        with_statistics: bool,  # noqa: ARG002 - nothing grows
        every_file: bool = False,
    ) -> Iterator[tuple[str, int, int]]:
        """Yield path, time and size of all files and folders that change with the dump."""
        for folder in self._folders.values():
            try:
                listing = self._storage.list_folder(folder.path)
            except DumpError:
                continue
            for file in listing.files:
                yield folder.child(file.name), file.mtime_ns, file.size_bytes
            if _VALUES in listing.folders:
                values = folder.child(_VALUES)
                digest = self._storage.folder_digest(values) if every_file else 0
                yield values, self._storage.folder_mtime_ns(values), digest


def _find_ranks(storage: Storage, problems: list[Problem]) -> tuple[LocatedRank, ...]:
    """Return the ranks of an msprobe dump; see `Layout.find`."""
    return tuple(_located(storage, rank, steps) for rank, steps in step_folders(storage, problems).items())


def _located(storage: Storage, rank: int, steps: tuple[StepFolder, ...]) -> LocatedRank:
    return LocatedRank(rank, steps[0].path, lambda _: MsprobeRank(storage, rank, steps))


MSPROBE = Layout("msprobe", may_be_msprobe, _find_ranks)
