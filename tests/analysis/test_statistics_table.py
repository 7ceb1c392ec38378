"""Filling the table: small files many at a time, with the same rows as one by one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tensight.analysis.statistics_table import (
    KNOWN,
    MOST_BYTES_TOGETHER,
    MOST_TOGETHER,
    UNREADABLE,
    StatisticsTable,
    Visit,
)
from tensight.dumps import Dump, open_dump
from tests.dumps.dump_writer import DumpWriter

RANGES = ((-1.0, 1.0), (0.5, np.inf))


@pytest.fixture
def dump(tmp_path: Path) -> Dump:
    """A dump with tensors of several types and shapes, of which some cannot be read."""
    writer = DumpWriter(tmp_path / "dump")
    rng = np.random.default_rng(3)
    for number in range(40):
        array = rng.normal(size=(number % 5, number)).astype(["f2", "f4", ">f4", "f8", "c8", "i4"][number % 6])
        writer.tensor(0, f"Add.Add-op{number}", array)
    writer.tensor(0, "Add.Add-op50", np.array([1e300, np.nan, -np.inf]))
    writer.tensor(0, "Add.Add-op51", np.asfortranarray(rng.normal(size=(3, 4))))
    for name, content in (("52", b""), ("53", b"\x93NUMPY\x01\x00v\x00{'descr': '|O'")):
        writer.tensor(0, f"Add.Add-op{name}").write_bytes(content)
    writer.tensor(0, "Add.Add-op54")
    return open_dump(writer.root)


@pytest.mark.parametrize("ranges", [(), RANGES])
def test_files_together_have_the_rows_that_they_have_alone(dump: Dump, ranges: tuple[tuple[float, float], ...]) -> None:
    tables = StatisticsTable.empty(dump), StatisticsTable.empty(dump)
    visits = [Visit(row, ranges) for row in range(len(tables[0].files))]
    for table in tables:
        table.prepare(visits)
    groups = tables[0].together(visits)
    assert len(groups) == 1
    (missing,) = (file for file in dump.tensors() if "Add-op54." in file.name)
    Path(missing.path).unlink()
    for group in groups:
        tables[0].fill(group)
    for visit in visits:
        tables[1].fill([visit])
    together, alone = tables
    assert together.rows.tobytes() == alone.rows.tobytes()
    assert (together.dtypes, together.shapes, together.errors) == (alone.dtypes, alone.shapes, alone.errors)
    assert list(together.in_range) == list(alone.in_range) == list(ranges)
    for key in ranges:
        assert together.in_range[key].tolist() == alone.in_range[key].tolist()
    states = together.rows["state"].tolist()
    assert (states.count(KNOWN), states.count(UNREADABLE)) == (42, 3)


def test_visits_of_small_files_with_equal_ranges_are_together(dump: Dump) -> None:
    table = StatisticsTable.empty(dump)
    visits = [Visit(0), Visit(1, RANGES), Visit(2), Visit(3, RANGES), Visit(4, atols=(1e-8,))]
    assert table.together(visits) == [[visits[0], visits[2]], [visits[1], visits[3]], [visits[4]]]


def test_a_group_is_limited_by_number_and_by_bytes(tmp_path: Path) -> None:
    writer = DumpWriter(tmp_path / "dump")
    for number in range(MOST_TOGETHER + 1):
        writer.tensor(0, f"Add.Add-op{number}", [1.0])
    for number in range(10):
        writer.tensor(1, f"Add.Add-op{number}", np.ones(MOST_BYTES_TOGETHER // 64))
    table = StatisticsTable.empty(open_dump(writer.root))
    groups = table.together([Visit(row) for row in range(MOST_TOGETHER + 1)])
    assert [len(group) for group in groups] == [MOST_TOGETHER, 1]
    groups = table.together([Visit(row) for row in range(MOST_TOGETHER + 1, len(table.files))])
    assert [len(group) for group in groups] == [8, 2]


def test_without_kernels_every_file_is_alone(dump: Dump, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSIGHT_KERNELS", "numpy")
    table = StatisticsTable.empty(dump)
    visits = [Visit(0), Visit(1)]
    assert table.together(visits) == [[visits[0]], [visits[1]]]
