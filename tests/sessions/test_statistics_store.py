"""Statistics in a database file: millions of rows, pages and curves of them in little memory."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tensight import wire
from tensight.errors import InputError
from tensight.sessions.errors import StorageError
from tensight.sessions.live.reported_tensors import ReportedRow, ReportedTensor, TensorKey
from tensight.sessions.live.statistics_store import StatisticsStore, received_statistics, statistics_of
from tensight.sessions.statistics_pages import SORT_COLUMNS
from tensight.tensors import COUNTS, MEASURES, statistics
from tensight.wire import ReceivedStatistics


def key(node: str = "conv1", slot: int = 0, rank: int = 0) -> TensorKey:
    return TensorKey(rank, "kernel_graph_0", node, "output", slot)


def row(value: float = 1.0, iteration: int = 0, position: int | None = 0, **of: Any) -> ReportedRow:
    array = np.array([value, -1.0, 0.0], np.float32)
    return ReportedRow(key(**of), iteration, received_statistics(statistics(array)), "Conv2D", position)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StatisticsStore]:
    made = StatisticsStore(tmp_path / "statistics.sqlite", 1000)
    yield made
    made.close()


def test_statistics_come_back_as_they_were_told(store: StatisticsStore) -> None:
    assert store.is_empty
    store.add([row(5.0)])
    found = store.of(key(), 0)
    assert found is not None
    whole = statistics(np.array([5.0, -1, 0], np.float32))
    for name in ("dtype", "shape", "size_bytes", "count", "zero_count", "negative_count", "min", "max", "mean", "std"):
        assert getattr(found, name) == getattr(whole, name)
    assert found.content_hash == f"{whole.content_hash:016x}"
    assert (found.partial, found.unknown) == (False, ())
    assert store.of(key(), 1) is None
    assert store.of(key("another"), 0) is None
    assert not store.is_empty


def test_what_was_not_told_is_unknown_and_numbers_that_do_not_exist_are_none(store: StatisticsStore) -> None:
    told = ReceivedStatistics("float16", (), 2, {"count": 1, "max": math.nan, "min": -math.inf})
    store.add([ReportedRow(key(), -1, told)])
    found = store.of(key(), -1)
    assert found is not None
    assert (found.shape, found.partial, found.count, found.nan_count) == ((), True, 1, 0)
    assert "nan_count" in found.unknown
    assert "count" not in found.unknown
    assert (found.max, found.min, found.mean) == (None, None, None)


def test_statistics_told_again_replace_the_first(store: StatisticsStore) -> None:
    store.add([row(5.0)])
    store.add([row(7.0)])
    assert [one.statistics.max for one in store.history(key())] == [7]


def test_a_curve_has_all_iterations_in_order(store: StatisticsStore) -> None:
    store.add([row(float(iteration), iteration) for iteration in (3, 1, 2)])
    assert [(one.step, one.statistics.max) for one in store.history(key())] == [(2, 1), (3, 2), (4, 3)]
    assert store.iterations() == [1, 2, 3]
    assert [one.address for one in store.of_iteration(2)] == ["0/kernel_graph_0/conv1:0@3"]


def test_pages_are_sorted_filtered_and_cut(store: StatisticsStore) -> None:
    store.add([row(float(10 - number), 0, number, node=f"Layer{number}/Conv") for number in range(10)])
    store.add([row(99.0, 0, None, node="Layer3/ReLU", rank=1)])
    page = store.page(0, limit=3, offset=1)
    assert (page.total, [one.position for one in page.rows]) == (11, [1, 2, 3])
    assert store.page(0).rows[-1].rank == 1
    page = store.page(0, sort="max", descending=True)
    assert [one.statistics.max for one in page.rows][:3] == [99, 10, 9]
    assert store.page(0, query="LAYER3 conv").total == 2
    assert store.page(0, query="layer3/relu").total == 1
    assert store.page(0, rank=1).total == 1
    assert store.page(7).total == 0
    for column in SORT_COLUMNS:
        for descending in (False, True):
            assert store.page(0, sort=column, descending=descending).total == 11


def test_pages_can_be_sorted_by_what_follows_from_several_columns(store: StatisticsStore) -> None:
    arrays = {
        "zeros": [0.0, 0.0, 1.0, 0.0],
        "bad": [np.nan, np.inf, -2.0, -9.0],
        "large": [-100.0, 3.0, 3.0, 0.0],
        "empty": [],
    }
    for name, values in arrays.items():
        told = received_statistics(statistics(np.array(values, np.float32)))
        store.add([ReportedRow(key(name), 0, told, "Add", 0)])

    def sorted_by(sort: str) -> list[str]:
        return [row.node for row in store.page(0, sort=sort, descending=True).rows]

    assert sorted_by("zero_percent") == ["zeros", "large", "bad", "empty"]
    assert sorted_by("abs_max") == ["large", "bad", "zeros", "empty"]
    assert sorted_by("non_finite_count")[0] == "bad"


def test_the_order_of_a_table_follows_what_is_told(store: StatisticsStore) -> None:
    store.add([row(float(number), 0, number, node=f"n{number}") for number in range(6)])
    for offset in range(0, 6, 2):
        page = store.page(0, sort="max", descending=True, offset=offset, limit=2)
        assert (page.total, [one.statistics.max for one in page.rows]) == (6, [5 - offset, 4 - offset])
    store.add([row(99.0, 0, 9, node="n9")])
    page = store.page(0, sort="max", descending=True, limit=2)
    assert (page.total, [one.statistics.max for one in page.rows]) == (7, [99, 5])


def test_pages_that_make_no_sense_are_refused(store: StatisticsStore) -> None:
    with pytest.raises(InputError, match="sorted by"):
        store.page(0, sort="1; DROP TABLE tensors")
    with pytest.raises(InputError, match="negative"):
        store.page(0, offset=-1)
    assert store.page(0, query="' OR 1=1 --").total == 0
    assert store.page(2**200, offset=2**80, query="\ud800").total == 0


def test_the_oldest_iterations_make_room(tmp_path: Path) -> None:
    store = StatisticsStore(tmp_path / "statistics.sqlite", 25)
    for iteration in range(10):
        store.add([row(1.0, iteration, node=f"node{number}") for number in range(10)])
    assert store.iterations() == [8, 9]
    # The newest stay, however many they are.
    store.add([row(1.0, 10, node=f"node{number}") for number in range(50)])
    assert store.iterations() == [10]
    store.close()


def test_a_store_is_continued(tmp_path: Path) -> None:
    first = StatisticsStore(tmp_path / "statistics.sqlite", 100)
    first.add([row(5.0, 3)])
    first.close()
    second = StatisticsStore(tmp_path / "statistics.sqlite", 100)
    assert not second.is_empty
    second.add([row(6.0, 4)])
    assert [one.statistics.max for one in second.history(key())] == [5, 6]
    second.close()


def test_a_closed_or_damaged_store_says_so(tmp_path: Path, store: StatisticsStore) -> None:
    store.close()
    with pytest.raises(StorageError, match=r"statistics\.sqlite"):
        store.page(0)
    with pytest.raises(StorageError):
        store.add([row()])
    (tmp_path / "no.sqlite").write_bytes(b"this is no database" * 100)
    with pytest.raises(StorageError, match=r"no\.sqlite"):
        StatisticsStore(tmp_path / "no.sqlite", 10)


def test_integers_beyond_64_bits_do_not_stop_it(store: StatisticsStore) -> None:
    told = ReceivedStatistics("float32", (1,), 2**63, {"count": 2**64 - 1, "nan_count": 2**63})
    store.add([ReportedRow(key(), 0, told)])
    found = store.of(key(), 0)
    assert found is not None
    assert found.count == found.nan_count == 2**63 - 1


def test_a_database_without_a_statistic_is_continued(tmp_path: Path) -> None:
    path = tmp_path / "statistics.sqlite"
    made = StatisticsStore(path, 1000)
    made.add([row(5.0)])
    made.close()
    with closing(sqlite3.connect(path)) as older:
        for table in ("statistics", "step_columns"):
            older.execute(f"ALTER TABLE {table} DROP COLUMN l2_norm")
    store = StatisticsStore(path, 1000)
    store.add([row(7.0, iteration=1)])
    before, after = store.of(key(), 0), store.of(key(), 1)
    assert before is not None
    assert after is not None
    assert (before.max, before.l2_norm, before.zero_count) == (5.0, None, 1)
    assert after == statistics_of(row(7.0).statistics)
    columns = [values.tolist() for _, _, values, _ in store.columns(0, "l2_norm")]
    assert np.isnan(columns[0]).all()
    assert columns[1] == pytest.approx([after.l2_norm])
    store.close()


def test_rows_that_come_in_columns_read_like_those_that_come_alone(store: StatisticsStore) -> None:
    arrays = [np.array([1.5, -2.0, 0.0, np.nan], np.float32), np.array([], np.float64), np.full(2, np.inf, np.float32)]
    whole = [statistics(array) for array in arrays]
    declared = [wire.BlockTensor(number, "g", f"n{number}", 0, "output", number) for number in range(3)]
    message = wire.block_message(
        4,
        declared,
        np.arange(3),
        np.array([wire.data_type_of(row.dtype) for row in whole]),
        [row.shape for row in whole],
        np.array([[getattr(row, name) for name in COUNTS] for row in whole]),
        np.array([[getattr(row, name) for name in MEASURES] for row in whole]),
        np.array([row.content_hash for row in whole], np.uint64),
    )
    block = wire.BlockReader().rows(message)
    tensors = [
        ReportedTensor(TensorKey(0, one.graph, one.node, one.io, one.slot), "Op", one.position) for one in declared
    ]
    store.add_block(tensors, block)
    alone = [
        ReportedRow(tensor.key, 5, received_statistics(row), "Op", tensor.position)
        for tensor, row in zip(tensors, whole, strict=True)
    ]
    store.add(alone)
    for tensor in tensors:
        assert store.of(tensor.key, 4) == store.of(tensor.key, 5) is not None
    assert [row.node for row in store.page(4).rows] == ["n0", "n1", "n2"]
