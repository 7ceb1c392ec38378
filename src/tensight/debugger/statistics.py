"""Statistics in the original's format: as MindSpore wrote them, computed from values, and summarized."""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from io import StringIO
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from tensight.analysis import Analysis
    from tensight.debugger.nodes import DebuggerTensor, DumpNodes
    from tensight.dumps import Dump, TensorFile

StatisticRow: TypeAlias = "dict[str, str]"
StatisticsByTensor: TypeAlias = "dict[str, list[StatisticRow]]"

_WITHOUT_NUMPY = ("bfloat16", "float8_e4m3fn", "float8_e5m2")
"""Names of types that NumPy does not have."""

COLUMNS = {
    "Op Type": "op_type",
    "Op Name": "op_name",
    "Task ID": "task_id",
    "Stream ID": "stream_id",
    "Timestamp": "time_stamp",
    "IO": "io",
    "Slot": "slot",
    "Data Size": "data_size",
    "Data Type": "data_type",
    "Shape": "shape",
    "Max Value": "max_value",
    "Min Value": "min_value",
    "Avg Value": "avg_value",
    "Count": "count",
    "Negative Zero Count": "negative_zero_count",
    "Positive Zero Count": "positive_zero_count",
    "NaN Count": "nan_count",
    "Negative Inf Count": "negative_inf_count",
    "Positive Inf Count": "positive_inf_count",
    "Zero Count": "zero_count",
}
"""Column titles of a statistics file, with the attributes of `TensorStatistic`."""

SUMMARY_COLUMNS = (
    "op_type",
    "op_name",
    "tensor_name",
    "inf_number",
    "nan_number",
    "out_of_range_number",
    "total_number",
    "none_overflow_number",
    "total_iterations",
)


@dataclass(slots=True)
class TensorStatistic:
    """Statistics of a tensor, under the original's names.

    Attributes
    ----------
    op_type, op_name : str
        The part before ``-op`` of the node's name without scope, and that whole name.
    task_id, stream_id, time_stamp : int
        From the tensor's file name.
    io : str
        ``output``.
    slot : int
        Index of the output.
    data_size : int
        Bytes.
    data_type : numpy.dtype or str
        Type of the elements.
    shape : tuple of int
        The shape.
    max_value, min_value, avg_value : float
        Over the finite elements. Without any, -inf, inf and 0.
    count : int
        All elements.
    negative_zero_count, positive_zero_count, zero_count : int
        Elements below, above and equal to zero, without infinite ones; the first two names are MindSpore's.
    nan_count, negative_inf_count, positive_inf_count : int
        Elements that are not finite.
    """

    op_type: str = ""
    op_name: str = ""
    task_id: int = 0
    stream_id: int = 0
    time_stamp: int = 0
    io: str = ""
    slot: int = 0
    data_size: int = 0
    data_type: np.dtype[Any] | str = ""
    shape: tuple[int, ...] = ()
    max_value: float = -math.inf
    min_value: float = math.inf
    avg_value: float = 0.0
    count: int = 0
    negative_zero_count: int = 0
    positive_zero_count: int = 0
    nan_count: int = 0
    negative_inf_count: int = 0
    positive_inf_count: int = 0
    zero_count: int = 0


ComputedStatistics: TypeAlias = "dict[int, dict[int, dict[str, list[TensorStatistic]]]]"


@dataclass(slots=True)
class _Summary:
    """Numbers of statistics of a tensor, over ranks and iterations, with anomalies; and of runs of an iteration."""

    op_type: str
    op_name: str
    tensor_name: str
    inf_number: int = 0
    nan_number: int = 0
    out_of_range_number: int = 0
    total_number: int = 0
    none_overflow_number: int = 0
    runs: set[tuple[int, int]] = field(default_factory=set)

    def add(self, cells: Mapping[str, Any], run: tuple[int, int], overflow_value: float) -> None:
        """Count a statistic of the tensor."""
        infinite = _integer(cells.get("Negative Inf Count")) + _integer(cells.get("Positive Inf Count")) > 0
        nan = _integer(cells.get("NaN Count")) > 0
        bounds = (_real(cells.get("Max Value")), _real(cells.get("Min Value")))
        out_of_range = _integer(cells.get("Count"), 1) > 0 and any(abs(bound) > overflow_value for bound in bounds)
        self.inf_number += infinite
        self.nan_number += nan
        self.out_of_range_number += out_of_range
        self.total_number += 1
        self.none_overflow_number += not (infinite or nan or out_of_range)
        self.runs.add(run)

    def cells(self) -> list[object]:
        """Return the cells of its line."""
        return [getattr(self, name) for name in SUMMARY_COLUMNS[:-1]] + [len(self.runs)]


def read_statistics(dump: Dump, rank: int, iteration: int) -> StatisticsByTensor:
    """Read the rows of ``statistic.csv`` of all graphs of a rank in an iteration.

    Raises
    ------
    FileNotFoundError
        No graph has the file.
    DumpError
        A file is not a statistics file.
    """
    from tensight.dumps.statistic_csv import read_statistics as read_rows
    from tensight.dumps.storage import open_storage
    from tensight.errors import MissingFileError

    storage = open_storage(dump.path)
    statistics: StatisticsByTensor = {}
    missing: list[str] = []
    for graph_id in dump.graph_ids(rank):
        path = f"rank_{rank}/{dump.metadata.net_name}/{graph_id}/{iteration}/statistic.csv"
        where = storage.full_path(path)
        try:
            text = storage.read_bytes(path).decode("utf-8", "replace")
        except MissingFileError:
            missing.append(where)
            continue
        for row in read_rows(StringIO(text, newline=""), where=where, problems=[]):
            statistics.setdefault(f"{row.op_name}:{row.io}:{row.slot}", []).append(dict(row.row))
    if len(missing) == len(dump.graph_ids(rank)):
        raise FileNotFoundError(
            f"No statistics were dumped for rank {rank} in iteration {iteration}; there is no {' or '.join(missing)}."
            " They are written on Ascend and GPU when saved_data is 'statistic' or 'full'."
        )
    return statistics


def compute_statistics(nodes: DumpNodes, analysis: Analysis, tensors: Iterable[DebuggerTensor]) -> ComputedStatistics:
    """Compute statistics of tensors; a tensor without a value has a statistic with count 0.

    Returns
    -------
    dict
        ``{rank: {iteration: {"Conv2D-op1:output:0": [TensorStatistic]}}}``.
    """
    tensor_files = [(tensor, nodes.file_with_value(tensor.node, tensor.slot, tensor.iteration)) for tensor in tensors]
    files = [file for _, file in tensor_files if file is not None]
    rows = analysis.rows_of(files)
    if files:
        analysis.statistics(rows)
    row_of = iter(rows.tolist())
    computed: ComputedStatistics = {}
    for tensor, file in tensor_files:
        statistic = _identified(tensor, file)
        if file is not None:
            _fill_from_table(statistic, analysis, next(row_of))
        else:
            _fill_from_graph(statistic, tensor)
        key = f"{statistic.op_name}:{statistic.io}:{statistic.slot}"
        of_rank = computed.setdefault(tensor.rank, {})
        of_rank.setdefault(tensor.iteration or 0, {}).setdefault(key, []).append(statistic)
    return computed


def write_statistics(statistics: Mapping[int, Mapping[int, Any]], out_path: str) -> None:
    """Write ``{out_path}/{rank}/{iteration}/statistics.csv``.

    Parameters
    ----------
    statistics : dict
        ``{rank: {iteration: …}}`` with a dictionary of lists, as `compute_statistics` returns, or a list of statistics.
    out_path : str
        The folder.
    """
    for rank, iterations in statistics.items():
        for iteration, of_iteration in iterations.items():
            folder = os.path.join(out_path, str(rank), str(iteration))
            os.makedirs(folder, exist_ok=True)
            lists = of_iteration.values() if isinstance(of_iteration, Mapping) else [of_iteration]
            cells = (_cells(statistic) for of_tensor in lists for statistic in of_tensor)
            lines = ([row.get(title, "") for title in COLUMNS] for row in cells)
            _write_csv(os.path.join(folder, "statistics.csv"), COLUMNS, lines)


def write_summary(statistics: Mapping[int, Mapping[int, Any]], overflow_value: float, out_path: str) -> None:
    """Write ``{out_path}/statistics_summary.csv``; see `DumpAnalyzer.summary_statistics`."""
    summaries: dict[str, _Summary] = {}
    for rank, iterations in statistics.items():
        for iteration, by_tensor in iterations.items():
            for of_tensor in by_tensor.values():
                for statistic in of_tensor:
                    cells = _cells(statistic)
                    name = str(cells.get("Op Name", ""))
                    key = f"{name}:{cells.get('IO', 'output')}:{cells.get('Slot', 0)}"
                    summary = summaries.setdefault(key, _Summary(str(cells.get("Op Type", "")), name, key))
                    summary.add(cells, (rank, iteration), overflow_value)
    if not summaries:
        return
    os.makedirs(out_path, exist_ok=True)
    lines = (summary.cells() for summary in summaries.values())
    _write_csv(os.path.join(out_path, "statistics_summary.csv"), SUMMARY_COLUMNS, lines)


def _identified(tensor: DebuggerTensor, file: TensorFile | None) -> TensorStatistic:
    """Return a statistic that only identifies its tensor."""
    name = tensor.node.name.rpartition("/")[2]
    return TensorStatistic(
        op_type=name.partition("-op")[0],
        op_name=name,
        io="output",
        slot=tensor.slot,
        task_id=file.task_id if file is not None else 0,
        stream_id=file.stream_id if file is not None else 0,
        time_stamp=file.timestamp if file is not None else 0,
    )


def _fill_from_table(statistic: TensorStatistic, analysis: Analysis, row: int) -> None:
    table = analysis.statistics_table
    if table.errors[row] or not table.dtypes[row]:
        return
    dtype = table.dtypes[row]
    statistic.data_type = dtype if dtype in _WITHOUT_NUMPY else np.dtype(dtype)
    statistic.shape = tuple(table.shapes[row])
    _fill(statistic, {name: table.rows[name][row] for name in table.rows.dtype.names or ()})


def _fill_from_graph(statistic: TensorStatistic, tensor: DebuggerTensor) -> None:
    """Use the value of a constant that is stored in the graph; other tensors without a file have none."""
    from tensight import tensors

    value = tensor.value()
    if value is None:
        return
    statistic.data_type, statistic.shape = value.dtype, value.shape
    _fill(statistic, tensors.statistics(value).as_row())


def _fill(statistic: TensorStatistic, row: Mapping[str, Any]) -> None:
    statistic.data_size = int(row["size_bytes"])
    statistic.count = int(row["count"])
    statistic.negative_zero_count = int(row["negative_count"])
    statistic.positive_zero_count = int(row["positive_count"])
    statistic.zero_count = int(row["zero_count"])
    statistic.nan_count = int(row["nan_count"])
    statistic.negative_inf_count = int(row["neg_inf_count"])
    statistic.positive_inf_count = int(row["pos_inf_count"])
    if not math.isnan(row["mean"]):
        statistic.max_value = float(row["max"])
        statistic.min_value = float(row["min"])
        statistic.avg_value = float(row["mean"])


def _cells(statistic: TensorStatistic | Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a statistic as cells by column title."""
    if isinstance(statistic, TensorStatistic):
        return {title: getattr(statistic, attribute) for title, attribute in COLUMNS.items()}
    return statistic


def _write_csv(path: str, titles: Iterable[str], lines: Iterable[Iterable[object]]) -> None:
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(titles)
        writer.writerows(lines)


def _integer(cell: object, default: int = 0) -> int:
    """Read a count; a missing or empty column counts as the default."""
    text = str(cell).strip() if cell is not None else ""
    return int(float(text)) if text else default


def _real(cell: object) -> float:
    """Read a maximum or minimum; for a bool tensor the cell is True or False."""
    text = str(cell).strip() if cell is not None else ""
    if text in ("True", "False"):
        return float(text == "True")
    return float(text) if text else math.nan
