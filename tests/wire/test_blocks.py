"""Statistics of many tensors in one message: what is written is read, and what no process could have is refused."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from tensight import wire
from tensight.tensors import COUNTS, MEASURES, statistics
from tensight.wire.telemetry_pb2 import StatisticsBlock, StatisticsRows

Change = Callable[[StatisticsBlock], object]

SHAPES = arrays.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5)
DTYPES = st.sampled_from(["float32", "float64", "float16", "int32", "uint8", "bool"])


@st.composite
def tensors(draw: st.DrawFn) -> Any:
    dtype = np.dtype(draw(DTYPES))
    return draw(arrays.arrays(dtype, draw(SHAPES)))


def message_of(
    values: Sequence[Any],
    iteration: int = 3,
    declared: Iterable[wire.BlockTensor] | None = None,
    numbers: Sequence[int] | None = None,
) -> StatisticsRows:
    """Return the block that tells of these arrays, the i-th of which is tensor i."""
    rows = [statistics(value) for value in values]
    if declared is None:
        declared = [
            wire.BlockTensor(i, "graph", f"node{i}", i, "input" if i % 2 else "output", i) for i in range(len(rows))
        ]
    return wire.block_message(
        iteration,
        declared,
        np.arange(len(rows)) if numbers is None else np.array(numbers),
        np.array([wire.data_type_of(row.dtype) for row in rows], np.int32),
        [row.shape for row in rows],
        np.array([[getattr(row, name) for name in COUNTS] for row in rows], np.int64).reshape(-1, len(COUNTS)),
        np.array([[getattr(row, name) for name in MEASURES] for row in rows], np.float64).reshape(-1, len(MEASURES)),
        np.array([row.content_hash for row in rows], np.uint64),
    )


def travelled(message: StatisticsRows) -> StatisticsRows:
    return StatisticsRows.FromString(message.SerializeToString())


@given(st.lists(tensors(), max_size=6), st.integers(-1, 2**31 - 1))
def test_what_is_written_is_read(values: list[Any], iteration: int) -> None:
    block = wire.BlockReader().rows(travelled(message_of(values, iteration)))
    assert (block.iteration, len(block)) == (iteration, len(values))
    for number, (value, told) in enumerate(zip(values, block.statistics(), strict=True)):
        expected = statistics(value)
        assert told.whole is not None
        for name in ("dtype", "shape", "size_bytes", "content_hash", *COUNTS, *MEASURES):
            assert same(getattr(told.whole, name), getattr(expected, name)), name
        tensor = block.tensors[number]
        assert (tensor.node, tensor.slot, tensor.io) == (f"node{number}", number, "input" if number % 2 else "output")


def same(one: Any, other: Any) -> bool:
    return one == other or (isinstance(one, float) and math.isnan(one) and math.isnan(other))


def test_later_messages_of_a_stream_name_tensors_by_number() -> None:
    reader, value = wire.BlockReader(), np.ones(3, np.float32)
    reader.rows(travelled(message_of([value, value])))
    later = reader.rows(travelled(message_of([value], 4, declared=(), numbers=[1])))
    assert [tensor.node for tensor in later.tensors] == ["node1"]


def test_a_number_can_be_given_to_another_tensor() -> None:
    reader, value = wire.BlockReader(), np.ones(3, np.float32)
    reader.rows(travelled(message_of([value])))
    later = reader.rows(travelled(message_of([value], 4, [wire.BlockTensor(0, "other", "conv", 2)])))
    assert later.tensors == [wire.BlockTensor(0, "other", "conv", 2)]


def test_another_stream_knows_nothing_of_what_one_declared() -> None:
    value = np.ones(3, np.float32)
    wire.BlockReader().rows(travelled(message_of([value])))
    with pytest.raises(wire.WireError, match="tensor 0, which no block of the stream declares"):
        wire.BlockReader().rows(travelled(message_of([value], declared=())))


def test_numbers_of_tensors_without_a_finite_element_are_unknown_whatever_arrives() -> None:
    message = message_of([np.full(4, np.nan, np.float32)])
    message.block.numbers = np.zeros(len(MEASURES)).tobytes()
    block = wire.BlockReader().rows(travelled(message))
    assert np.isnan(block.numbers).all()


@pytest.mark.parametrize("more", [0, 1, 3])
def test_measures_that_a_newer_process_sends_are_not_read(more: int) -> None:
    message, values = message_of([np.ones(3, np.float32), np.full(2, 2.0)]), [1.0, 2.0]
    numbers = np.frombuffer(message.block.numbers).reshape(2, len(MEASURES))
    message.block.numbers = np.hstack([numbers, np.full((2, more), 9.0)]).tobytes()
    block = wire.BlockReader().rows(travelled(message))
    assert [told.max for told in block.statistics()] == values
    assert block.numbers.shape == (2, len(MEASURES))


def test_an_unknown_element_type_has_no_name_but_numbers() -> None:
    message = message_of([np.ones(3, np.float32)])
    message.block.data_types[0] = 9999
    told = next(wire.BlockReader().rows(travelled(message)).statistics())
    assert (told.dtype, told.count, told.max) == ("", 3, 1.0)


def cut(field: str) -> Change:
    def change(block: StatisticsBlock) -> None:
        setattr(block, field, getattr(block, field)[:-1])

    return change


def put(field: str, index: int, value: int) -> Change:
    def change(block: StatisticsBlock) -> None:
        getattr(block, field)[index] = value

    return change


def shape_of_many(block: StatisticsBlock) -> None:
    block.dimensions[0] = 65
    block.dims.extend([1] * 63)


def count_more(block: StatisticsBlock) -> None:
    counts = np.frombuffer(block.counts, "<i8").copy()
    counts[0] += 1
    block.counts = counts.tobytes()


def count_below_zero(block: StatisticsBlock) -> None:
    counts = np.frombuffer(block.counts, "<i8").copy()
    counts[1:3] = -1, 1
    block.counts = counts.tobytes()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda block: block.tensors.append(0), "2 rows, 1 types"),
        (lambda block: block.hashes.append(0), "2 hashes"),
        (cut("counts"), "have 55 bytes; its rows need 56"),
        (cut("numbers"), "have .* bytes; its rows need"),
        (put("dimensions", 0, -1), "-1 dimensions"),
        (put("dimensions", 0, 1), "have 2 lengths; its rows need 1"),
        (put("dimensions", 0, 3), "have 2 lengths; its rows need 3"),
        (put("dims", 0, -2), "no dimension can be negative"),
        (put("dims", 0, 2**62), "cannot be addressed"),
        (put("dims", 0, 4), "count 6 elements"),
        (shape_of_many, "65 dimensions"),
        (count_more, "count 7 elements"),
        (count_below_zero, "by kind"),
        (put("tensors", 0, -1), "tensor -1, which no block"),
        (lambda block: block.declared.add(number=-1), "declares tensor -1"),
        (lambda block: block.declared.add(number=1, slot=-1), "of slot -1"),
        (lambda block: block.declared.add(number=1, node=b"x" * 20_000), "more than 16,384 characters"),
    ],
)
def test_what_cannot_be_is_refused(change: Change, said: str) -> None:
    message = message_of([np.ones((2, 3), np.float32)])
    change(message.block)
    with pytest.raises(wire.WireError, match=said):
        wire.BlockReader().rows(travelled(message))


def test_rows_and_declarations_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tensight.wire.blocks.MOST_BLOCK_ROWS", 1)
    with pytest.raises(wire.WireError, match="2 rows of statistics; at most 1"):
        wire.BlockReader().rows(travelled(message_of([np.ones(1), np.ones(1)])))
    monkeypatch.setattr("tensight.wire.blocks.MOST_DECLARED", 1)
    with pytest.raises(wire.WireError, match="declares 2 tensors"):
        wire.BlockReader().rows(travelled(message_of([np.ones(1), np.ones(1)])))
    monkeypatch.setattr("tensight.wire.blocks.MOST_DECLARED", 10)
    monkeypatch.setattr("tensight.wire.blocks.MOST_DECLARED_CHARACTERS", 15)
    with pytest.raises(wire.WireError, match="with 20 characters"):
        wire.BlockReader().rows(
            travelled(
                message_of(
                    [np.ones(1), np.ones(1)],
                    declared=[wire.BlockTensor(0, "graph", "node0", 0), wire.BlockTensor(1, "graph", "node1", 0)],
                )
            )
        )


@given(st.binary(max_size=200))
def test_any_bytes_are_a_block_or_refused(data: bytes) -> None:
    message = StatisticsRows()
    try:
        message.block.ParseFromString(data)
    except DecodeError:  # no message at all, which the server refuses before
        return
    with suppress(wire.WireError):
        wire.BlockReader().rows(message)
