"""Checking watchpoints on real and damaged dumps."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tensight.debugger import (
    ConditionBase,
    DebuggerParamTypeError,
    DebuggerParamValueError,
    DumpAnalyzer,
    OperatorOverflowCondition,
    TensorAllZeroCondition,
    TensorChangeAboveThresholdCondition,
    TensorOverflowCondition,
    TensorRangeCondition,
    TensorTooLargeCondition,
    TensorUnchangedCondition,
    Watchpoint,
    WatchpointHit,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

HISTORY = "rank_0/execution_order/ms_global_execution_order_graph_0.csv"


def hits(analyzer: DumpAnalyzer, condition: ConditionBase, query: str = "", **arguments: Any) -> list[WatchpointHit]:
    return analyzer.check_watchpoints([Watchpoint(analyzer.select_tensors(query), condition)], **arguments)


def places(found: list[WatchpointHit]) -> list[tuple[str, int | None, int]]:
    return [(hit.tensor.node.name.rpartition("/")[2], hit.tensor.iteration, hit.error_code) for hit in found]


def file_of(dump: Path, iteration: int, name: str) -> Path:
    (path,) = (dump / "rank_0" / "Sick" / "0" / str(iteration)).glob(f"*{name}.*.output.0.*npy")
    return path


@pytest.mark.parametrize("unusual", [{"atol": -1.0}, {"rtol": -1.0}, {"atol": float("nan")}, {"rtol": float("inf")}])
def test_unusual_tolerances_take_nothing_from_other_watchpoints_nor_from_later_calls(
    unusual: dict[str, float], unpacked: Callable[[str], Path]
) -> None:
    dump, usual = unpacked("sick-2.0.0"), TensorTooLargeCondition(max_gt=0.0)
    analyzer = DumpAnalyzer(dump)
    tensors = analyzer.select_tensors("")
    together = analyzer.check_watchpoints(
        [Watchpoint(tensors, TensorUnchangedCondition(**unusual)), Watchpoint(tensors, usual)]
    )
    assert sum(hit.get_threshold() is usual and not hit.error_code for hit in together) == 227
    assert sum(not hit.error_code for hit in hits(analyzer, usual)) == 227


@pytest.mark.parametrize("dump", ["sick-2.0.0", "sick-2.10.0"])
def test_the_planted_sicknesses_are_hit(dump: str, unpacked: Callable[[str], Path], planted: dict[str, Any]) -> None:
    analyzer, sick = DumpAnalyzer(unpacked(dump)), planted[dump]["planted"]
    for kind, condition in (
        ("inf", TensorOverflowCondition()),
        ("nan", TensorOverflowCondition()),
        ("dead_relu", TensorAllZeroCondition(100)),
        ("exploding_gradient", TensorTooLargeCondition(max_gt=1e6)),
    ):
        found = [
            hit.tensor.iteration for hit in hits(analyzer, condition, sick[kind]["operator"]) if not hit.error_code
        ]
        assert min(found, default=None) == sick[kind]["first_iteration"], kind


def test_the_original_would_report_the_nan_and_not_evaluate(old: DumpAnalyzer, planted: dict[str, Any]) -> None:
    sick = planted["sick-2.0.0"]["planted"]["nan"]
    found = hits(old, TensorTooLargeCondition(max_gt=-1e300), sick["operator"])
    (hit,) = (hit for hit in found if hit.tensor.iteration == sick["first_iteration"])
    assert hit.error_code & 1
    assert "Tensor contains NaN." in hit.error_msg
    assert hit.get_hit_detail() is None
    assert str(hit).startswith(f"Watchpoint TensorTooLarge check failed on tensor:\n{hit.tensor}Threshold: ")
    assert str(hit).endswith(f"Error detail: {hit.error_msg}")


def test_a_hit_tells_thresholds_and_actual_values(old: DumpAnalyzer) -> None:
    condition = TensorTooLargeCondition(max_gt=-100, mean_gt=1e300)
    tensor = old.select_tensors("network.conv.weight", iterations=0)[0]
    (hit,) = old.check_watchpoints([Watchpoint([tensor], condition)])
    value = tensor.value()
    assert value is not None
    detail = hit.get_hit_detail()
    assert detail is not None
    assert hit.tensor is tensor
    assert hit.get_threshold() is condition
    assert (hit.error_code, hit.error_msg) == (0, [])
    by_name = {parameter.name: parameter for parameter in detail.param_dict}
    assert list(by_name) == condition.param_names
    assert (by_name["min_gt"].disabled, by_name["min_gt"].actual_value) == (True, 0.0)
    assert (by_name["max_gt"].hit, by_name["mean_gt"].hit) == (True, False)
    assert by_name["mean_gt"].actual_value == pytest.approx(float(np.mean(value, dtype=np.float64)))
    maximum = by_name["max_gt"].actual_value
    assert maximum == float(value.max())
    assert str(detail) == (
        f"The setting for watchpoint is max_gt = -100.0. The actual value of the tensor is max_gt = {maximum}."
    )
    assert str(hit) == (
        f"Watchpoint TensorTooLarge triggered on tensor:\n{tensor}Threshold: {condition}\nHit detail: {detail}"
    )


def test_the_detail_of_an_unchanged_tensor_is_none(old: DumpAnalyzer) -> None:
    found = [hit for hit in hits(old, TensorUnchangedCondition(), "network.gate.weight") if not hit.error_code]
    assert [hit.tensor.iteration for hit in found] == [1, 2, 3]
    assert {str(hit.get_hit_detail()) for hit in found} == {"None."}


def test_the_first_iteration_has_no_previous_value(old: DumpAnalyzer) -> None:
    found = hits(old, TensorChangeAboveThresholdCondition(-1, epsilon=7), "network.gate.weight")
    assert places(found) == [("network.gate.weight", 0, 4), *(("network.gate.weight", i, 0) for i in (1, 2, 3))]


def test_hits_come_by_iteration_and_time(old: DumpAnalyzer) -> None:
    found = hits(old, TensorAllZeroCondition(0))
    files = [old.dump.at(0, 0, h.tensor.iteration or 0, h.tensor.node.source.name, h.tensor.slot) for h in found]
    keys = [(file.iteration, file.timestamp) for file in files if file is not None]
    assert keys == sorted(keys)
    assert len(keys) == len(found) > 100


def test_a_tensor_listed_twice_is_checked_once_and_watchpoints_are_independent(old: DumpAnalyzer) -> None:
    tensors = old.select_tensors("network.conv.weight", iterations=0)
    condition = TensorTooLargeCondition(max_gt=-100)
    once = old.check_watchpoints([Watchpoint(tensors, condition)])
    assert places(old.check_watchpoints([Watchpoint(tensors * 2, condition)])) == places(once)
    assert len(old.check_watchpoints([Watchpoint(tensors, condition), Watchpoint(tensors, condition)])) == 2 * len(once)


def test_missing_tensors_are_reported_on_demand_only(old: DumpAnalyzer) -> None:
    tensors = old.select_tensors("UpdateState", iterations=[1, 0])
    watchpoint = Watchpoint(tensors, TensorOverflowCondition())
    assert old.check_watchpoints([watchpoint]) == []
    found = old.check_watchpoints([watchpoint], error_on_no_value=True)
    assert [hit.tensor.iteration for hit in found] == sorted(t.iteration or 0 for t in tensors)
    assert {tuple(hit.error_msg) for hit in found} == {("Tensor has no value.",)}


def test_infinite_range_ends_hold_every_element(old: DumpAnalyzer) -> None:
    everything = TensorRangeCondition(
        range_start_inclusive=-np.inf, range_end_inclusive=np.inf, range_percentage_gt=99.9
    )
    assert [hit.error_code for hit in hits(old, everything, "network.gate.weight")] == [0] * 4


def test_operator_overflow_never_hits_in_a_synchronous_dump(old: DumpAnalyzer) -> None:
    assert hits(old, OperatorOverflowCondition()) == []


def test_wrong_watchpoints_are_refused(old: DumpAnalyzer) -> None:
    with pytest.raises(DebuggerParamTypeError, match="list of DebuggerTensor"):
        Watchpoint((), TensorOverflowCondition())  # type: ignore[arg-type]
    with pytest.raises(DebuggerParamTypeError, match="the 0 value is"):
        Watchpoint([1], TensorOverflowCondition())  # type: ignore[list-item]
    with pytest.raises(DebuggerParamTypeError, match="condition should be ConditionBase"):
        Watchpoint([], TensorOverflowCondition)  # type: ignore[arg-type]
    with pytest.raises(DebuggerParamTypeError, match="watchpoint should be Watchpoint"):
        old.check_watchpoints([1])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="error_on_no_value"):
        hits(old, TensorOverflowCondition(), error_on_no_value=1)


def test_a_condition_of_an_unknown_number_is_refused(old: DumpAnalyzer) -> None:
    class Initial(ConditionBase):
        name = "Initial"  # type: ignore[assignment]
        condition_id = 14  # type: ignore[assignment]

    with pytest.raises(DebuggerParamValueError, match="Initial has the number 14"):
        hits(old, Initial())


def test_without_history_every_watched_tensor_has_error_16(dump_copy: Callable[[str], Path]) -> None:
    dump = dump_copy("sick-2.0.0")
    (dump / HISTORY).unlink()
    found = hits(DumpAnalyzer(dump), TensorTooLargeCondition(max_gt=1e300))
    assert {hit.error_code for hit in found} == {16}
    assert found[0].error_msg == ["Graph history file is not available."]


def test_a_history_decides_what_the_previous_iteration_is(dump_copy: Callable[[str], Path]) -> None:
    dump = dump_copy("sick-2.0.0")
    (dump / HISTORY).write_text("0\n2\n")
    found = hits(DumpAnalyzer(dump), TensorUnchangedCondition(), "network.gate.weight")
    assert places(found) == [("network.gate.weight", i, code) for i, code in ((0, 4), (1, 4), (2, 0), (3, 4))]


def test_repeated_dumps_give_a_hit_for_each_file_with_the_newest_value(dump_copy: Callable[[str], Path]) -> None:
    dump = dump_copy("sick-2.0.0")
    path = file_of(dump, 1, "Conv2D-op125")
    stamp = path.name.split(".0.0.")[1].partition(".")[0]
    later = path.with_name(path.name.replace(stamp, str(int(stamp) + 10**6)))
    shutil.copy(path, later)
    np.save(later, np.full_like(np.load(path), 7))
    found = hits(DumpAnalyzer(dump), TensorTooLargeCondition(max_gt=6.5), "Conv2D-op125")
    details = [h.get_hit_detail() for h in found if h.tensor.iteration == 1]
    assert [str(detail).rpartition("= ")[2] for detail in details] == ["7.0.", "7.0."]


def test_empty_damaged_and_resized_tensors_are_no_hits_and_have_no_previous(dump_copy: Callable[[str], Path]) -> None:
    dump = dump_copy("sick-2.0.0")
    np.save(file_of(dump, 1, "Conv2D-op125"), np.zeros((0, 3), np.float32))
    file_of(dump, 1, "ReLU-op126").write_bytes(b"\x93NUMPY\x01\x00damaged")
    np.save(file_of(dump, 1, "ReLU-op124"), np.zeros(3, np.float32))
    analyzer = DumpAnalyzer(dump)
    for name in ("Conv2D-op125", "ReLU-op126"):
        found = hits(analyzer, TensorChangeAboveThresholdCondition(-1), name)
        assert places(found)[:2] == [(name, 0, 4), (name, 2, 4)]
        missing = hits(analyzer, TensorTooLargeCondition(max_gt=1e300), name, error_on_no_value=True)
        assert (name, 1, 32) in places(missing)
    found = hits(analyzer, TensorChangeAboveThresholdCondition(-1), "ReLU-op124")
    assert [place[1] for place in places(found)] == [0, 3]


def test_ranks_are_checked_and_named(dump_copy: Callable[[str], Path]) -> None:
    dump = dump_copy("sick-2.0.0")
    shutil.copytree(dump / "rank_0", dump / "rank_1")
    analyzer = DumpAnalyzer(dump)
    assert analyzer.get_ranks() == [0, 1]
    found = hits(analyzer, TensorTooLargeCondition(max_gt=-100), "network.gate.weight")
    assert [(hit.tensor.rank, hit.tensor.iteration) for hit in found[:4]] == [(1, 0), (0, 0), (1, 1), (0, 1)]


def test_a_finite_tensor_after_an_infinite_one_may_count_as_unchanged(dump_copy: Callable[[str], Path]) -> None:
    dump = dump_copy("sick-2.0.0")
    before, now = file_of(dump, 0, "Parameter.network.gate.weight"), file_of(dump, 1, "Parameter.network.gate.weight")
    value = np.load(now)
    value.flat[0] = np.inf
    np.save(before, value)
    found = hits(DumpAnalyzer(dump), TensorUnchangedCondition(), "network.gate.weight")
    assert ("network.gate.weight", 1, 0) in places(found)
