"""Statistics in messages: everything between Tensight's own, and from MindSpore what can be relied on."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tensight.tensors import TensorStatistics, statistics
from tensight.wire import (
    ReceivedBase,
    ReceivedStatistics,
    WireError,
    missing_base,
    missing_summary,
    received_base,
    received_row,
    received_statistics,
    summary_of,
)
from tensight.wire.debugger_pb2 import Statistics, TensorBase, TensorSummary
from tensight.wire.telemetry_pb2 import StatisticsRow

_ARRAYS = st.sampled_from(["?", "i1", "i8", "f2", "f4", "f8"]).flatmap(
    lambda code: hnp.arrays(np.dtype(code), hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5))
)


def received(array: np.ndarray, complete: bool = True, **changes: Any) -> ReceivedStatistics:
    message = summary_of(statistics(array), complete)
    for key, value in changes.items():
        setattr(message.statistics, key, value)
    found = received_statistics(TensorSummary.FromString(message.SerializeToString()))
    assert found is not None
    return found


def same(one: TensorStatistics, other: TensorStatistics) -> bool:
    return repr(one) == repr(other)  # NaN is itself here


# between Tensight's own -----------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(array=_ARRAYS)
def test_complete_statistics_arrive_exactly(array: np.ndarray) -> None:
    found = received(array).whole
    assert found is not None
    assert same(found, statistics(array))


def test_the_two_misnamed_counts_are_of_elements_below_and_above_zero() -> None:
    message = summary_of(statistics(np.array([-1.0, -2.0, -0.0, 3.0]))).statistics
    assert (message.neg_zero_count, message.pos_zero_count, message.zero_count) == (2, 1, 1)


def test_numbers_beyond_single_precision_stay_finite_for_an_old_peer() -> None:
    message = summary_of(statistics(np.array([1e300, -1e300]))).statistics
    assert (message.max_value, message.min_value) == (np.finfo(np.float32).max, np.finfo(np.float32).min)
    assert (message.max, message.min) == (1e300, -1e300)


def test_what_only_tensight_understands_can_be_left_out() -> None:
    message = summary_of(statistics(np.arange(3)), complete=False)
    assert not message.statistics.complete
    assert message.statistics.l2_norm == 0


@pytest.mark.parametrize("changes", [{"nan_count": 1}, {"count": 4}, {"neg_zero_count": 2**63}])
def test_complete_statistics_that_contradict_themselves_are_refused(changes: dict[str, int]) -> None:
    with pytest.raises(WireError, match="by kind"):
        received(np.arange(3), **changes)


def test_a_row_of_a_running_process_is_read() -> None:
    summary = summary_of(statistics(np.arange(3)))
    message = StatisticsRow(graph=b"g", node=b"a", slot=2, input=True, position=7, summary=summary)
    row = received_row(message)
    assert (row.graph, row.node, row.slot, row.io, row.position) == ("g", "a", 2, "input", 7)
    assert row.statistics == received(np.arange(3))
    with pytest.raises(WireError, match="slot -1"):
        received_row(StatisticsRow(slot=-1))


# from MindSpore -------------------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(array=_ARRAYS)
def test_what_mindspore_tells_agrees_with_the_truth_where_anything_is_told(array: np.ndarray) -> None:
    truth, found = statistics(array), received(array, complete=False)
    assert found.partial
    assert found.whole is None
    for name in (
        "dtype",
        "shape",
        "size_bytes",
        "count",
        "nan_count",
        "zero_count",
        "negative_count",
        "positive_count",
    ):
        assert getattr(found, name) == getattr(truth, name), name
    for name in ("min", "max", "mean"):
        told = getattr(found, name)
        if told is not None:
            assert told == pytest.approx(getattr(truth, name), rel=1e-6, abs=1e-37, nan_ok=True) or array.itemsize == 8
    assert (found.abs_mean, found.std, found.l2_norm, found.content_hash) == (None,) * 4


def test_the_mean_of_a_large_tensor_is_not_known() -> None:
    assert received(np.ones(19_999), complete=False).mean == 1
    assert received(np.ones(20_000), complete=False).mean is None


def test_extremes_with_inf_or_nan_in_them_are_not_known() -> None:
    array = np.array([1.0, np.inf])
    found = received(array, complete=False, max_value=math.inf, avg_value=math.inf)
    assert (found.min, found.max, found.mean, found.pos_inf_count) == (1, None, None, 1)
    found = received(np.array([1.0, np.nan]), False, max_value=math.nan, min_value=math.nan, avg_value=math.nan)
    assert (found.min, found.max, found.mean) == (None, None, None)


def test_without_finite_elements_there_are_no_extremes_whatever_is_sent() -> None:
    found = received(np.array([np.nan, np.inf]), complete=False, max_value=-math.inf, min_value=math.inf)
    assert all(math.isnan(value) for value in (found.min, found.max, found.mean) if value is not None)
    assert found.min is not None


def test_infinite_elements_that_newer_versions_count_twice_are_counted_once() -> None:
    array = np.array([-np.inf, -1.0, 0.0, 2.0, np.inf, np.inf])
    found = received(array, complete=False, neg_zero_count=2, pos_zero_count=3)
    assert (found.negative_count, found.positive_count, found.zero_count) == (1, 1, 1)
    assert (found.neg_inf_count, found.pos_inf_count) == (1, 2)


@pytest.mark.parametrize(
    "changes", [{"nan_count": 1}, {"neg_zero_count": 2**64 - 1}, {"neg_zero_count": 0, "neg_inf_count": 1, "count": 1}]
)
def test_counts_that_do_not_add_up_are_not_known(changes: dict[str, int]) -> None:
    found = received(np.array([-1.0, -2.0, 3.0]), complete=False, **changes)
    assert (found.nan_count, found.negative_count, found.min) == (None, None, None)
    assert found.count > 0


def test_truth_values_have_extremes_by_their_counts() -> None:
    found = received(np.array([True, False, True]), False, max_value=99, min_value=-99, avg_value=7)
    assert (found.min, found.max, found.mean) == (0, 1, pytest.approx(2 / 3))


# tensors that are not there -------------------------------------------------------------------------------------------


def test_a_missing_tensor_is_told_from_an_empty_one() -> None:
    lowest = Statistics(max_value=-math.inf, min_value=math.inf)
    assert received_statistics(missing_summary()) is None
    assert received_statistics(TensorSummary(tensor_base=TensorBase(shape=[0]), statistics=lowest)) is None
    assert received_statistics(TensorSummary()) is None
    assert received_base(missing_base()) is None
    assert missing_base() == TensorBase(data_type=0, shape=[0], data_size=0)
    assert received(np.zeros((0, 3))).count == 0


def test_type_and_size_are_read() -> None:
    assert received_base(TensorBase(data_type=11, shape=[2, 3], data_size=24)) == ReceivedBase(
        11, "float32", (2, 3), 24
    )
    assert received_base(TensorBase(data_type=99, shape=[2], data_size=2)) == ReceivedBase(99, "", (2,), 2)
    scalar = received_base(TensorBase(data_type=11, data_size=4))
    assert scalar is not None
    assert scalar.shape == ()


@pytest.mark.parametrize(
    "message",
    [
        TensorBase(data_type=11, shape=[-1], data_size=4),
        TensorBase(data_type=11, shape=[2**40, 2**40], data_size=4),
        TensorBase(data_type=11, shape=[1] * 65, data_size=4),
        TensorBase(data_type=11, shape=[1], data_size=-4),
    ],
)
def test_tensors_that_cannot_be_are_refused(message: TensorBase) -> None:
    with pytest.raises(WireError):
        received_base(message)


def test_statistics_of_impossibly_many_elements_are_refused() -> None:
    base = TensorBase(data_type=11, shape=[1], data_size=4)
    with pytest.raises(WireError, match="no tensor has as many"):
        received_statistics(TensorSummary(tensor_base=base, statistics=Statistics(count=2**64 - 1)))


@settings(deadline=None)
@given(
    numbers=st.builds(
        Statistics,
        is_bool=st.booleans(),
        complete=st.booleans(),
        max_value=st.floats(width=32),
        min_value=st.floats(width=32),
        count=st.integers(0, 2**64 - 1) | st.integers(0, 3),
        nan_count=st.integers(0, 2**64 - 1) | st.integers(0, 3),
        neg_inf_count=st.integers(0, 3),
        neg_zero_count=st.integers(0, 2**64 - 1) | st.integers(0, 3),
        zero_count=st.integers(0, 3),
    ),
    base=st.builds(
        TensorBase,
        data_type=st.integers(-(2**31), 2**31 - 1) | st.just(11),
        shape=st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(0, 3), max_size=4),
        data_size=st.integers(-1, 2**63 - 1),
    ),
)
def test_any_summary_is_statistics_or_an_error(numbers: Statistics, base: TensorBase) -> None:
    try:
        found = received_statistics(TensorSummary(tensor_base=base, statistics=numbers))
    except WireError:
        return
    if found is not None:
        counts = (found.nan_count, found.neg_inf_count, found.pos_inf_count, found.zero_count, found.negative_count)
        assert all(count is None or 0 <= count <= found.count for count in counts)
        assert found.whole is None or replace(found.whole, shape=()).count == found.count


@settings(deadline=None)
@given(raw=st.binary(max_size=100))
def test_any_row_is_read_or_refused(raw: bytes) -> None:
    try:
        message = StatisticsRow.FromString(raw)
    except DecodeError:
        return
    try:
        received_row(message)
    except WireError:
        return
