"""Statistics by a device's reductions are those of the compiled scan; here the device is the CPU."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch

from tensight.agents.core.columns import StatisticsColumns
from tensight.agents.torch import device
from tensight.agents.torch.arrays import NUMPY_NAMES, TorchReader
from tensight.agents.torch.device import DeviceStatistics, free_bytes_of
from tensight.tensors import TensorStatistics

NAN, INF = math.nan, math.inf


def by_device(*tensors: torch.Tensor) -> list[TensorStatistics]:
    columns = StatisticsColumns()
    columns.current_iteration = 3
    queue = DeviceStatistics(NUMPY_NAMES)
    for slot_id, tensor in enumerate(tensors):
        assert queue.add(slot_id, tensor)
    assert all(columns.statistics(slot_id) is None for slot_id in range(len(tensors)))
    queue.settle(columns)
    assert not queue.is_behind
    found = [columns.statistics(slot_id) for slot_id in range(len(tensors))]
    assert columns.iteration[: len(tensors)].tolist() == [3] * len(tensors)
    return [row for row in found if row is not None]


def by_scan(tensor: torch.Tensor) -> TensorStatistics:
    columns = StatisticsColumns()
    assert TorchReader().scan(tensor, columns, 0)
    found = columns.statistics(0)
    assert found is not None
    return found


def assert_same(one: TensorStatistics, other: TensorStatistics) -> None:
    for field in dataclasses.fields(TensorStatistics):
        mine, theirs = getattr(one, field.name), getattr(other, field.name)
        if field.name != "content_hash":
            assert mine == (pytest.approx(theirs, rel=1e-9, nan_ok=True) if isinstance(mine, float) else theirs), field


@pytest.mark.parametrize(
    "values",
    [
        [[1.0, -2.0, 0.0], [3.5, -0.0, 7.0]],
        [NAN, INF, -INF, 1.0, 0.0, -3.0],
        [NAN, NAN],
        [INF],
        [5.0],
        [],
        [6e4, -6e4],
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str)
def test_floating_point_rows_are_those_of_the_scan(values: list[float], dtype: torch.dtype) -> None:
    tensor = torch.tensor(values, dtype=dtype)
    assert_same(by_device(tensor)[0], by_scan(tensor))


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2], ids=str)
def test_rows_of_8_bit_floats_are_those_of_the_scan(dtype: torch.dtype) -> None:
    for tensor in (torch.arange(256, dtype=torch.uint8), torch.arange(100, dtype=torch.uint8), torch.empty(0)):
        tensor = tensor.to(torch.uint8).view(dtype)
        assert_same(by_device(tensor)[0], by_scan(tensor))


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int8, torch.int64, torch.complex64], ids=str)
def test_other_rows_are_those_of_the_scan(dtype: torch.dtype) -> None:
    tensor = torch.tensor([0, 1, 3, 0, 2]).to(dtype)
    assert_same(by_device(tensor)[0], by_scan(tensor))


def test_many_tensors_come_over_together_each_to_its_slot() -> None:
    tensors = [torch.full((number + 1,), float(number)) for number in range(20)]
    assert [row.mean for row in by_device(*tensors)] == list(range(20))


def test_equal_tensors_have_equal_hashes_and_others_have_not() -> None:
    tensor = torch.randn(100)
    one, same, other = by_device(tensor, tensor.clone(), tensor + 1)
    assert one.content_hash == same.content_hash != other.content_hash


def test_the_reader_queues_what_lies_on_a_device_and_writes_the_rows_when_they_are_needed() -> None:
    reader = TorchReader(is_on_device=lambda _: True)
    columns = StatisticsColumns()
    tensor = torch.randn(4, 6, requires_grad=True).t()
    assert reader.scan(tensor, columns, 5)
    assert columns.statistics(5) is None
    reader.settle(columns)
    row = columns.statistics(5)
    assert row is not None
    assert_same(row, by_scan(tensor))
    assert not reader.scan(torch.zeros(3).to(torch.float8_e4m3fnuz), columns, 6)


def test_hashes_depend_on_the_order_of_the_elements() -> None:
    values = torch.arange(600.0).reshape(20, 30)
    first, transposed, again = by_device(values, values.t().reshape(20, 30), values.clone())
    assert first.content_hash == again.content_hash != transposed.content_hash


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.float8_e5m2, torch.int16, torch.complex64], ids=str
)
@pytest.mark.parametrize("is_transposed", [False, True], ids=["contiguous", "transposed"])
def test_a_large_tensor_is_read_in_pieces(
    dtype: torch.dtype, is_transposed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    tensor = (torch.randn(7, 11, 13) * 100).to(dtype)
    if dtype.is_floating_point:
        tensor.view(-1)[[3, 500]] = torch.tensor([math.nan, math.inf]).to(dtype)
    tensor = tensor.transpose(0, 2) if is_transposed else tensor
    whole = by_device(tensor)[0]
    monkeypatch.setattr(device, "PIECE", 50)
    sizes: list[int] = []
    numbers_of_piece = device._numbers_of_piece
    monkeypatch.setattr(
        device, "_numbers_of_piece", lambda values: (sizes.append(values.numel()), numbers_of_piece(values))[1]
    )
    assert_same(by_device(tensor)[0], whole)
    assert_same(whole, by_scan(tensor))
    assert max(sizes) <= 50
    assert sum(sizes) == tensor.numel()


def test_free_memory_is_known_only_of_devices_with_memory_of_their_own() -> None:
    assert free_bytes_of(torch.device("cpu")) is None
    assert free_bytes_of(torch.device("meta")) is None
