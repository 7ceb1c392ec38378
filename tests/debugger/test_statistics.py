"""Statistics: those that a device wrote, those computed from values, and their summary."""

from __future__ import annotations

import csv
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tensight.debugger import DebuggerParamValueError, DumpAnalyzer
from tensight.errors import DumpError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

HEADER = (
    "Op Type,Op Name,Task ID,Stream ID,Timestamp,IO,Slot,Data Size,Data Type,Shape,Max Value,Min Value,Avg Value,Count,"
    "Negative Zero Count,Positive Zero Count,NaN Count,Negative Inf Count,Positive Inf Count,Zero Count"
)


def line(name: str, maximum: object, minimum: object, nan: int = 0, inf: int = 0) -> str:
    return f'Conv2D,{name},0,0,17,output,0,16,float32,"(4,)",{maximum},{minimum},0.5,4,1,1,{nan},0,{inf},2'


@pytest.fixture
def with_statistics(dump_copy: Callable[[str], Path]) -> Path:
    dump = dump_copy("sick-2.0.0")
    folder = dump / "rank_0" / "Sick" / "0"
    rows = {0: [line("a", 1, -1), line("b", 70000, -1)], 1: [line("a", 2, -2, nan=3), line("a", 3, -3, inf=2)]}
    for iteration, lines in rows.items():
        (folder / str(iteration) / "statistic.csv").write_text("\n".join([HEADER, *lines, ""]))
    return dump


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_statistics_of_the_device_are_arranged_by_tensor(with_statistics: Path) -> None:
    found = DumpAnalyzer(with_statistics).select_tensor_statistics(iterations=[1, 0])
    assert {rank: list(iterations) for rank, iterations in found.items()} == {0: [0, 1]}
    assert [row["Max Value"] for row in found[0][1]["a:output:0"]] == ["2", "3"]
    assert found[0][0]["b:output:0"][0]["Shape"] == "(4,)"


def test_missing_statistics_and_unknown_iterations_raise(with_statistics: Path) -> None:
    analyzer = DumpAnalyzer(with_statistics)
    with pytest.raises(FileNotFoundError, match="iteration 2"):
        analyzer.select_tensor_statistics(iterations=2)
    with pytest.raises(DebuggerParamValueError):
        analyzer.select_tensor_statistics(iterations=9)


@pytest.mark.parametrize("content", [b"a,b\n1,2\n", b"\xff\x00\x93garbage", b'"unclosed'])
def test_a_damaged_statistics_file_gives_one_clear_error(with_statistics: Path, content: bytes) -> None:
    path = with_statistics / "rank_0" / "Sick" / "0" / "0" / "statistic.csv"
    path.write_bytes(content)
    with pytest.raises(DumpError, match=r"statistic\.csv"):
        DumpAnalyzer(with_statistics).select_tensor_statistics(iterations=0)


def test_the_summary_counts_statistics_with_each_trouble(with_statistics: Path, tmp_path: Path) -> None:
    analyzer = DumpAnalyzer(with_statistics)
    statistics = analyzer.select_tensor_statistics(iterations=[0, 1])
    assert analyzer.summary_statistics(statistics, out_path=tmp_path / "new" / "folder") is None
    a, b = rows_of(tmp_path / "new" / "folder" / "statistics_summary.csv")
    assert list(a.values()) == ["Conv2D", "a", "a:output:0", "1", "1", "0", "3", "1", "2"]
    assert list(b.values()) == ["Conv2D", "b", "b:output:0", "0", "0", "1", "1", "0", "1"]


def test_computed_statistics_count_right(old: DumpAnalyzer, planted: dict[str, Any]) -> None:
    sick = planted["sick-2.0.0"]["planted"]["nan"]
    (tensor,) = old.select_tensors(sick["operator"], iterations=sick["first_iteration"])
    value = tensor.value()
    assert value is not None
    found = old._compute_statistics([tensor])
    ((key, (statistic,)),) = found[0][sick["first_iteration"]].items()
    finite = value[np.isfinite(value)].astype(np.float64)
    assert key == f"{tensor.node.name.rpartition('/')[2]}:output:0"
    assert (statistic.op_type, statistic.count, statistic.shape) == ("Sub", value.size, value.shape)
    assert statistic.nan_count == np.isnan(value).sum() > 0
    assert statistic.negative_inf_count + statistic.positive_inf_count == np.isinf(value).sum()
    assert statistic.zero_count == (finite == 0).sum()
    assert statistic.negative_zero_count == (finite < 0).sum()
    assert statistic.positive_zero_count == (finite > 0).sum()
    if finite.size:
        assert statistic.avg_value == pytest.approx(finite.mean())


def test_a_tensor_without_a_value_keeps_its_name(old: DumpAnalyzer) -> None:
    tensors = old.select_tensors("UpdateState", iterations=0)[:1]
    ((key, (statistic,)),) = old._compute_statistics(tensors)[0][0].items()
    assert key.startswith("UpdateState-op")
    assert (statistic.count, statistic.max_value, statistic.min_value) == (0, -math.inf, math.inf)


def test_constants_of_the_graph_are_counted(old: DumpAnalyzer) -> None:
    tensors = [t for t in old.select_tensors("cst", iterations=0) if t.value() is not None]
    counts = [s.count for of_tensor in old._compute_statistics(tensors)[0][0].values() for s in of_tensor]
    assert counts == [value.size for t in tensors if (value := t.value()) is not None]


def test_computed_statistics_are_exported_and_summed_up(old: DumpAnalyzer, tmp_path: Path) -> None:
    computed = old._compute_statistics(old.select_tensors("^network.conv.weight", True, iterations=[0, 3]))
    old._export_to_disk(computed, tmp_path)
    old._export_to_disk({0: {7: [s for found in computed[0][0].values() for s in found]}}, tmp_path)
    (row,) = rows_of(tmp_path / "0" / "0" / "statistics.csv")
    assert list(row) == HEADER.split(",")
    assert (row["Op Name"], row["Data Type"]) == ("network.conv.weight", "float32")
    assert rows_of(tmp_path / "0" / "7" / "statistics.csv") == [row]
    old.summary_statistics(computed, overflow_value=1e9, out_path=tmp_path)
    (summary,) = rows_of(tmp_path / "statistics_summary.csv")
    assert (summary["nan_number"], summary["total_iterations"]) == ("1", "2")
