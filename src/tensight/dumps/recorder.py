"""Write a run as a dump in MindSpore's rank layout while the training goes on.

The result is a normal dump: `open_dump` reads it, and so do MindSpore's own tools and NumPy. Files appear in it only
when they are complete; until then they are in a scratch folder. Methods of one rank's recorder must not run
concurrently. All of them raise OSError if writing fails.
"""

from __future__ import annotations

import csv
import itertools
import json
import math
import mmap
import os
import shutil
import time
from dataclasses import dataclass
from io import StringIO
from typing import TYPE_CHECKING, Any, Literal

from tensight.dumps import metadata
from tensight.dumps.execution import ExecutionOrder, parse_order
from tensight.dumps.growing_files import GraphFile, PartFile, TensorWriter
from tensight.dumps.indexing import STATISTICS
from tensight.dumps.iteration_writer import IterationWriter, append, find_tensor, fitting_name, tensor_file_name
from tensight.dumps.matching import NodeMatcher
from tensight.dumps.metadata import Device
from tensight.dumps.names import constant_key, joined
from tensight.dumps.rank_folders import INITIAL
from tensight.errors import GraphError, Problem
from tensight.graph import Graph, parse_graph

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    import numpy as np

    from tensight.graph import Node

NET_NAME = "network"
"""Name of the folder with the tensors of a rank."""

_LINES_AT_ONCE = 10_000

_UNPRINTABLE = dict.fromkeys((*range(32), 127, ord("/")), "_")

_COLUMNS = (
    "Op Type", "Op Name", "Task ID", "Stream ID", "Timestamp", "IO", "Slot", "Data Size", "Data Type", "Shape",
    "Max Value", "Min Value", "Avg Value", "Count", "Negative Zero Count", "Positive Zero Count", "NaN Count",
    "Negative Inf Count", "Positive Inf Count", "Zero Count", "L2Norm Value",
    # MindSpore has no such columns; they are last, so that readers that do not know them skip them.
    "Abs Mean Value", "Std Value",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class RecordedRow:
    """Statistics of one tensor to record; unknown ones are None.

    Attributes
    ----------
    op_type, op_name : str
        Type and full name of the operator; type ``Parameter`` for parameters and constants.
    io : {"input", "output"}
    slot : int
    dtype : str
        NumPy's name, such as ``float32``.
    shape : tuple of int
    size_bytes : int
    count, negative_count, positive_count, nan_count, neg_inf_count, pos_inf_count, zero_count : int or None
    max, min, mean, l2_norm, abs_mean, std : float or None
        Statistics of the finite elements.
    """

    op_type: str
    op_name: str
    io: Literal["input", "output"]
    slot: int
    dtype: str
    shape: tuple[int, ...]
    size_bytes: int
    max: float | None = None
    min: float | None = None
    mean: float | None = None
    count: int | None = None
    negative_count: int | None = None
    positive_count: int | None = None
    nan_count: int | None = None
    neg_inf_count: int | None = None
    pos_inf_count: int | None = None
    zero_count: int | None = None
    l2_norm: float | None = None
    abs_mean: float | None = None
    std: float | None = None


class DumpRecorder:
    """Write the dump of a run. See `RankRecorder` for what each rank records.

    Parameters
    ----------
    folder : Path
        Folder for ``rank_0``, …; only its owner can read it.
    scratch : Path
        Folder for incomplete files, on the same disk. Files left by an earlier process are deleted.
    framework, framework_version, device_target : str
        As in `DumpMetadata`.
    by_agent : bool
        As in `DumpMetadata`.
    """

    def __init__(
        self,
        folder: Path,
        scratch: Path,
        *,
        framework: str = "mindspore",
        framework_version: str = "",
        device_target: str = "",
        by_agent: bool = False,
    ) -> None:
        self.folder = folder
        self._scratch = scratch
        self._framework = framework
        self._by_agent = by_agent
        self._framework_version = framework_version
        self._device_target = device_target
        self._devices: dict[int, Device] = {}
        self._ranks: dict[int, RankRecorder] = {}
        for path in (folder, scratch):
            os.makedirs(path, mode=0o700, exist_ok=True)
        for left in os.scandir(scratch):
            if left.is_dir(follow_symlinks=False):
                shutil.rmtree(left.path, ignore_errors=True)
            else:
                os.unlink(left.path)

    def rank(self, rank: int, device: Device | None = None) -> RankRecorder:
        """Return the recorder of a rank; its folder is created, or continued if it exists."""
        recorder = self._ranks.get(rank)
        if recorder is None:
            recorder = RankRecorder(self.folder / f"rank_{rank}", self._scratch)
            self._ranks[rank] = recorder
            self._devices[rank] = device or Device(rank, device_id=rank)
            self._describe(recorder)
        return recorder

    def last_with_statistics(self) -> int:
        """Return the newest iteration with recorded statistics of any rank; -1 if there is none."""
        paths = self.folder.glob(f"rank_*/{NET_NAME}/*/*/{STATISTICS}")
        names = (path.parent.name for path in paths)
        return max((int(name) for name in names if name.isascii() and name.isdigit()), default=-1)

    def _describe(self, recorder: RankRecorder) -> None:
        settings = {
            "common_dump_settings": {
                "dump_mode": 0, "path": "", "net_name": NET_NAME, "iteration": "all", "saved_data": "full",
                "input_output": 0, "kernels": [], "support_device": list(range(8)), "op_debug_mode": 0,
            },
            "e2e_dump_settings": {"enable": True, "trans_flag": True},
        }  # fmt: skip
        # ms_version is MindSpore's key, for its own tools; the last two are Tensight's.
        machine = {
            "device_target": self._device_target, "ms_version": self._framework_version,
            "framework": self._framework, "tensight_agent": self._by_agent,
        }  # fmt: skip
        servers: dict[str, list[dict[str, str]]] = {}
        for device in sorted(self._devices.values()):
            listed = {"device_id": str(device.device_id), "rank_id": str(device.rank)}
            servers.setdefault(device.server, []).append(listed)
        table = {"server_list": [{"server_id": server, "device": devices} for server, devices in servers.items()]}
        folder = recorder.folder / metadata.FOLDER
        # Readers search the table of devices in the folder of the first rank.
        first = self._ranks[min(self._ranks)].folder / metadata.FOLDER
        for path, data in (
            (folder / "data_dump.json", settings),
            (folder / "config.json", machine),
            (first / "hccl.json", table),
        ):
            _write_whole(path, json.dumps(data).encode())


class RankRecorder:
    """Write what one rank sends: graphs, tensors, executed iterations, statistics.

    Parameters
    ----------
    folder : Path
        ``rank_N`` of the dump; created, or continued if it exists.
    scratch : Path
        Folder for incomplete files.

    Attributes
    ----------
    graphs : tuple of Graph
        Sorted by id.
    order : ExecutionOrder
        Execution order of their nodes.
    problems : list of Problem
        Unreadable graph files of an earlier recorder.
    """

    def __init__(self, folder: Path, scratch: Path) -> None:
        self.folder = folder
        self._scratch = scratch
        self._numbers: dict[str, int] = {}
        self._orders: dict[int, tuple[str, ...]] = {}
        self._matchers: dict[int, NodeMatcher] = {}
        self._heads: dict[tuple[str, str], str] = {}
        self._last_time = 0
        self.graphs: tuple[Graph, ...] = ()
        self.problems: list[Problem] = []
        for name in (metadata.FOLDER, "graphs", "execution_order", NET_NAME):
            os.makedirs(folder / name, mode=0o700, exist_ok=True)
        self._continue()
        self.order = ExecutionOrder(self.graphs, self._orders)

    def describe_setup(self, setup: Mapping[str, object]) -> None:
        """Write the set-up of the training: any JSON object."""
        data = json.dumps(dict(setup), default=str).encode("utf-8", "backslashreplace")
        _write_whole(self.folder / metadata.FOLDER / metadata.SETUP, data)

    def new_graph(self) -> GraphFile:
        """Begin to receive a graph."""
        return GraphFile(self._new_part())

    def keep_graphs(
        self, received: Iterable[tuple[GraphFile, Graph]], orders: Mapping[str, Sequence[str]] | None = None
    ) -> None:
        """Add graphs that have arrived completely; a graph with an existing name replaces the old one.

        Parameters
        ----------
        received : iterable of (GraphFile, Graph)
        orders : mapping of str to sequence of str, optional
            Full names of operators in the order of execution, by the graph's name.
        """
        graphs = {graph.name: graph for graph in self.graphs}
        for file, graph in received:
            number = self._number_of(graph)
            file.move_to(self.folder / "graphs" / f"ms_output_trace_code_graph_{number}.pb")
            graphs[graph.name] = graph
            order = (orders or {}).get(graph.name)
            if order:
                self._write_order(graph.graph_id, order)
        self.graphs = tuple(sorted(graphs.values(), key=lambda graph: (graph.graph_id, graph.name)))
        self.order = ExecutionOrder(self.graphs, self._orders)
        self._matchers.clear()
        self._heads.clear()

    def forget_graphs(self) -> None:
        """Release the graphs, which are large; nothing more of the rank is recorded."""
        self.graphs = ()
        self.order = ExecutionOrder((), {})
        self._matchers.clear()
        self._heads.clear()

    def new_tensor(self, dtype: np.dtype[Any], shape: tuple[int, ...]) -> TensorWriter:
        """Begin to receive a tensor."""
        expected_bytes = math.prod(shape) * dtype.itemsize
        return TensorWriter(self._new_part(expected_bytes), dtype, shape)

    def keep_tensor(
        self, writer: TensorWriter, graph: Graph, node: Node, slot: int, iteration: int, *, is_input: bool = False
    ) -> Path:
        """Add a tensor that has arrived completely.

        Parameters
        ----------
        writer : TensorWriter
        graph : Graph
        node : Node
            Of that graph.
        slot : int
        iteration : int
            -1 for the values before the first step; ignored for a constant.
        is_input : bool
            Whether `slot` is an input of the node.

        Returns
        -------
        Path
            The file.
        """
        folder = self._iteration_folder(graph.root_id, iteration)
        if node.is_constant:
            folder = folder.with_name("constants")
        os.makedirs(folder, mode=0o700, exist_ok=True)
        name = tensor_file_name(self.head(graph, node), self._moment(), slot, writer.dtype, is_input=is_input)
        name = fitting_name(folder, name)
        writer.move_to(folder / name)
        return folder / name

    def begin_iteration(self, graph_id: int, iteration: int) -> IterationWriter:
        """Begin to write a new iteration of a root graph as a whole.

        Parameters
        ----------
        graph_id : int
        iteration : int
            -1 for the values before the first step.
        """
        part = self._scratch / f"{os.getpid()}-{next(_PARTS)}"
        return IterationWriter(part, self._iteration_folder(graph_id, iteration), self._moment)

    def take_out_iteration(self, graph_id: int, iteration: int) -> Path | None:
        """Remove an iteration of a root graph from the dump, atomically.

        Returns
        -------
        Path or None
            The folder that it was moved to, for the caller to delete. None if there was no such iteration.
        """
        part = self._scratch / f"{os.getpid()}-{next(_PARTS)}"
        try:
            os.rename(self._iteration_folder(graph_id, iteration), part)
        except FileNotFoundError:
            return None
        return part

    def find_tensor(
        self, graph: Graph, node: Node, slot: int, iteration: int, *, is_input: bool = False
    ) -> tuple[Path, str] | None:
        """Return the file of a written tensor, and its element type if the name contains it; None if there is none."""
        folder = self._iteration_folder(graph.root_id, iteration)
        try:
            return find_tensor(folder, self.head(graph, node), slot, is_input=is_input)
        except FileNotFoundError:
            return None

    def record_executions(self, graph_id: int, iterations: Iterable[int]) -> None:
        """Record that a root graph ran in these iterations, which must not have been recorded before."""
        rest = iter(iterations)
        while lines := "".join(f"{iteration}\n" for iteration in itertools.islice(rest, _LINES_AT_ONCE)):
            append(self.folder / "execution_order" / f"ms_global_execution_order_graph_{graph_id}.csv", lines)

    def forget_executions(self) -> None:
        """Leave unknown which iterations ran, because not all of them can be recorded."""
        for path in (self.folder / "execution_order").glob("ms_global_execution_order_graph_*.csv"):
            path.unlink()

    def record_statistics(self, graph_id: int, iteration: int, rows: Iterable[RecordedRow]) -> None:
        """Record statistics of the tensors of an iteration of a root graph; replaces those recorded before."""
        folder = self._iteration_folder(graph_id, iteration)
        os.makedirs(folder, mode=0o700, exist_ok=True)
        _write_whole(folder / STATISTICS, self.statistics_text(rows).encode("utf-8", "backslashreplace"))

    def statistics_text(self, rows: Iterable[RecordedRow]) -> str:
        """Return statistics of tensors as the text of ``statistic.csv``."""
        text = StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(_COLUMNS)
        for row in rows:
            writer.writerow(_line(row, self._moment()))
        return text.getvalue()

    def head(self, graph: Graph, node: Node) -> str:
        """Return ``{op_type}.{op_name}`` of a node's files: the shortest that readers match only to this node."""
        key = graph.name, node.name
        head = self._heads.get(key)
        if head is None:
            head = self._heads[key] = self._find_head(graph, node)
        return head

    def _iteration_folder(self, graph_id: int, iteration: int) -> Path:
        return self.folder / NET_NAME / str(graph_id) / (INITIAL if iteration < 0 else str(iteration))

    def _moment(self) -> int:
        """Return the time in microseconds, strictly increasing."""
        self._last_time = max(self._last_time + 1, time.time_ns() // 1000)
        return self._last_time

    def _new_part(self, expected_bytes: int = 0) -> PartFile:
        return PartFile(self._scratch / f"{os.getpid()}-{next(_PARTS)}.part", expected_bytes)

    def _number_of(self, graph: Graph) -> int:
        """Return the number in the name of a graph's file: its id, unless another graph already has it."""
        number = self._numbers.get(graph.name)
        if number is None:
            taken = set(self._numbers.values())
            number = next(number for number in itertools.count(graph.graph_id) if number not in taken)
            self._numbers[graph.name] = number
        return number

    def _write_order(self, graph_id: int, names: Sequence[str]) -> None:
        # A name with line breaks would be read as several names; left out, it is only missing in the order.
        lines = [name for name in names if name and name.splitlines() == [name]]
        text = "\n".join(["NodeExecutionOrder-FullNameWithScope", *lines, ""])
        path = self.folder / "execution_order" / f"ms_execution_order_graph_{graph_id}.csv"
        _write_whole(path, text.encode("utf-8", "backslashreplace"))
        self._orders[graph_id] = parse_order(text)

    def _find_head(self, graph: Graph, node: Node) -> str:
        if node.is_constant:
            kind, names = "Parameter", [constant_key(node.name) or node.name, joined(node.name)]
        elif node.is_parameter:
            kind, names = "Parameter", [node.name, joined(node.name)]
        else:
            full = node.full_name or node.name
            kind, names = joined(node.type), [full.rpartition("/")[2], joined(full)]
        heads = [f"{kind}.{name}".translate(_UNPRINTABLE) for name in names]
        matcher = self._matcher(graph.root_id)
        for head in heads:
            candidates = matcher.match(head).candidates
            # For a parameter that several graphs share, the node of any graph is right.
            if len(candidates) == 1 and candidates[0].node.name == node.name:
                return head
        return heads[-1]

    def _matcher(self, root_id: int) -> NodeMatcher:
        matcher = self._matchers.get(root_id)
        if matcher is None:
            graphs = [graph for graph in self.graphs if graph.root_id == root_id]
            matcher = self._matchers[root_id] = NodeMatcher(graphs, self.order, root_id)
        return matcher

    def _continue(self) -> None:
        """Read the files of an earlier recorder of this folder."""
        graphs: list[Graph] = []
        for path in sorted((self.folder / "graphs").glob("ms_output_trace_code_graph_*.pb")):
            number = path.stem.rpartition("_")[2]
            try:
                graph = parse_graph(_mapped(path), where=str(path))
            except GraphError as error:
                self.problems.append(Problem(str(path), str(error), "tensors of this graph stay unmatched"))
                continue
            if number.isascii() and number.isdigit() and graph.name not in self._numbers:
                self._numbers[graph.name] = int(number)
                graphs.append(graph)
        for path in (self.folder / "execution_order").glob("ms_execution_order_graph_*.csv"):
            number = path.stem.rpartition("_")[2]
            if number.isascii() and number.isdigit():
                self._orders[int(number)] = parse_order(path.read_text("utf-8", "replace"))
        self.graphs = tuple(sorted(graphs, key=lambda graph: (graph.graph_id, graph.name)))


_PARTS = itertools.count()


def _line(row: RecordedRow, moment: int) -> list[str]:
    statistics = (
        row.max, row.min, row.mean, row.count, row.negative_count, row.positive_count, row.nan_count,
        row.neg_inf_count, row.pos_inf_count, row.zero_count, row.l2_norm, row.abs_mean, row.std,
    )  # fmt: skip
    name = row.op_name if row.op_name.splitlines() == [row.op_name] else joined(" ".join(row.op_name.split()))
    shape = f"({','.join(map(str, row.shape))})"
    values = ["" if value is None or math.isnan(value) else repr(value) for value in statistics]
    return [
        row.op_type, name, "0", "0", str(moment), row.io, str(row.slot), str(row.size_bytes), row.dtype, shape, *values,
    ]  # fmt: skip


def _mapped(path: Path) -> memoryview | bytes:
    with path.open("rb") as file:
        # An empty file cannot be mapped.
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)) if path.stat().st_size else b""


def _write_whole(path: Path, data: bytes) -> None:
    part = path.with_name(f".{path.name}.part")
    part.write_bytes(data)
    os.replace(part, path)
