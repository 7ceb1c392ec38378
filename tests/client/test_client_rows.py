"""Long lists are fetched page by page, and shown as harmless tables."""

from __future__ import annotations

import pickle
from typing import Any, get_args

import pytest

from tensight.client.formatting import STATISTICS
from tensight.client.rows import PAGE, RowFormat, Rows
from tensight.sessions import records
from tensight.sessions.records import (
    Frame,
    HitParameter,
    HitRecord,
    NodeHits,
    Statistics,
    StatisticsPage,
    StatisticsRow,
    TensorHits,
)
from tensight.sessions.records.printing import ROWS, SHOWN, shown

NUMBERS: RowFormat[int] = RowFormat("numbers", ("number", "<b>"), lambda number: [(number, "<script>")])


class Source:
    """A long list that remembers what was asked of it."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.asked: list[int] = []

    def fetch(self, offset: int, limit: int) -> tuple[int, list[int]]:
        self.asked.append(offset)
        return self.total, list(range(offset, min(offset + limit, self.total)))


def test_only_pages_that_are_looked_at_are_fetched() -> None:
    source = Source(10 * PAGE)
    rows = Rows(source.fetch, NUMBERS)
    assert len(rows) == 10 * PAGE
    assert rows[0] == 0
    assert rows[-1] == 10 * PAGE - 1
    assert rows[-1] == 10 * PAGE - 1
    assert source.asked == [0, 9 * PAGE]


def test_iterating_gives_every_row_once() -> None:
    assert list(Rows(Source(2 * PAGE + 7).fetch, NUMBERS)) == list(range(2 * PAGE + 7))


def test_slices_are_lists() -> None:
    rows = Rows(Source(PAGE + 3).fetch, NUMBERS)
    assert rows[PAGE - 1 : PAGE + 2] == [PAGE - 1, PAGE, PAGE + 1]
    assert rows[::-1][:2] == [PAGE + 2, PAGE + 1]


@pytest.mark.parametrize("index", [3, -4])
def test_a_row_that_does_not_exist_is_an_index_error(index: int) -> None:
    with pytest.raises(IndexError, match="there are 3 numbers"):
        Rows(Source(3).fetch, NUMBERS)[index]


def test_a_list_that_became_shorter_meanwhile_ends_early() -> None:
    source = Source(2 * PAGE)
    rows = Rows(source.fetch, NUMBERS)
    source.total = PAGE
    assert list(rows) == list(range(PAGE))
    with pytest.raises(IndexError):
        rows[PAGE]


def test_nothing_is_an_empty_list() -> None:
    rows = Rows(Source(0).fetch, NUMBERS)
    assert list(rows) == []
    assert repr(rows) == "<0 numbers>"


def test_what_the_server_sends_cannot_become_markup() -> None:
    html = Rows(Source(2).fetch, NUMBERS)._repr_html_()
    assert "<script>" not in html
    assert "&lt;script&gt;" in html
    assert "&lt;b&gt;" in html


def test_a_notebook_shows_the_first_rows_and_how_many_there_are() -> None:
    html = Rows(Source(1000).fetch, NUMBERS)._repr_html_()
    assert html.count("<tr>") == 26
    assert "1000 numbers, the first 25 shown" in html


def test_a_record_is_printed_in_a_line_and_shown_as_a_table() -> None:
    hit = HitRecord(
        watchpoint=1,
        condition="<b>",
        abbreviation="TL",
        parameters=tuple(HitParameter(name="max_gt", preset=1.0, actual=1 / 3, hit=True) for _ in range(100)),
    )
    assert repr(hit) == "<HitRecord <b> parameters=[100 items]>"
    assert "<td>&lt;b&gt;</td>" in hit._repr_html_()
    assert repr(hit.parameters[0]) == "<HitParameter max_gt preset=1 actual=0.333333>"
    assert len(repr(TensorHits(slot=0, address="rank" * 100, hits=(hit,) * 3))) < 500


def test_a_row_of_statistics_begins_with_its_address_and_leaves_out_what_is_not_there() -> None:
    assert repr(statistics_row("0/g/conv1.weight:0@1")) == (
        "<StatisticsRow 0/g/conv1.weight:0@1 type=Parameter dtype=float32 shape=[3, 10, 5, 5] min=-0.5 max=0.333333"
        " nan_count=3>"
    )
    assert str(statistics_row("0/g/a:0@1")) == repr(statistics_row("0/g/a:0@1"))


def test_a_hit_is_printed_with_the_value_that_hit() -> None:
    hit = HitRecord(
        watchpoint=1,
        condition="tensor_too_large",
        abbreviation="TL",
        parameters=(HitParameter(name="max_gt", preset=1.0, actual=7.5, hit=True), HitParameter(name="a", preset=2.0)),
    )
    line = Frame(file="train.py", line=3)
    tensors = (TensorHits(slot=0, address="0/g/log:0@2", hits=(hit,)),)
    node = NodeHits(rank=0, graph="g", node="net/log", type="Log", step=2, line=line, tensors=tensors)
    assert repr(node) == (
        "<NodeHits net/log rank=0 type=Log step=2 tensors=[tensor_too_large(max_gt=1 (is 7.5))] line=train.py:3>"
    )


def test_a_name_cannot_command_a_terminal_nor_begin_a_line() -> None:
    assert "\\x1b[31m\\n" in repr(statistics_row("0/g/\x1b[31m\n:0@1"))
    assert "\n" not in repr(statistics_row("0/g/\x1b[31m\n:0@1"))


def test_a_long_address_keeps_its_end() -> None:
    printed = repr(statistics_row(f"0/g/{'x' * 10_000}.weight:0@1"))
    assert ".weight:0@1 type=" in printed
    assert len(printed) < 400


def test_parts_of_two_elements_of_a_list_are_never_joined() -> None:
    loss, rate = (
        records.Curve(name=name, steps=(1, 2, 3), values=(value,) * 3, address="Default/criterion/Loss-op0:output.0")
        for name, value in (("loss", 2.31), ("learning_rate", 0.002))
    )
    assert shown((loss, rate)) == "[2 items]"
    assert shown(tuple(range(100))) == "[0, 1, 2, … 100 numbers]"
    assert shown((loss,)).startswith("[<Curve name=loss")
    assert shown(loss).startswith("<Curve name=loss")
    assert shown(loss).endswith("…")


def test_rows_and_pages_are_printed_as_a_short_table() -> None:
    some = [statistics_row(f"0/g/{number}.weight:0@1") for number in range(12)]
    head, titles, first, *_ = lines = repr(Rows.of(some, STATISTICS)).splitlines()
    assert head == "<12 tensors>"
    assert titles.split() == ["address", "type", "dtype", "shape", "min", "max", "nan_count"]
    assert first == "  0/g/0.weight:0@1  Parameter  float32  [3, 10, 5, 5]  -0.5  0.333333  3"
    assert (len(lines), lines[-1]) == (10, "  …")
    page = repr(StatisticsPage(total=12, rows=tuple(some[:2])))
    assert page.splitlines() == ["<StatisticsPage of 12>", titles, *lines[2:4], "  …"]
    assert repr(Rows.of(some[:8], STATISTICS)).count("\n") == 9


def test_a_notebook_shows_the_rows_of_a_page_as_text() -> None:
    html = StatisticsPage(total=2, rows=(statistics_row("<script>"), statistics_row("b")))._repr_html_()
    assert html.startswith("<table><tr><th>address</th><th>type</th>")
    assert "<td>&lt;script&gt;</td>" in html
    assert html.count("<tr>") == 3
    assert StatisticsPage(total=0, rows=())._repr_html_() == "<table><tr></tr></table>"


def test_all_that_is_printed_is_a_field_of_its_record() -> None:
    for name, paths in SHOWN.items():
        for path in paths:
            kind: Any = getattr(records, name)
            for part in path.split("."):
                if kind is Frame and part == "lines":
                    break
                assert part in kind.model_fields, (name, path)
                kind = record_class(kind.model_fields[part].annotation)
    for name, field in ROWS.items():
        assert field in getattr(records, name).model_fields


def test_printing_changes_neither_equality_nor_json_nor_pickles() -> None:
    row = statistics_row("0/g/a:0@1")
    assert StatisticsRow.model_validate_json(row.model_dump_json()) == row
    assert pickle.loads(pickle.dumps(row)) == row  # noqa: S301 - our own


def statistics_row(address: str) -> StatisticsRow:
    statistics = Statistics(dtype="float32", shape=(3, 10, 5, 5), min=-0.5, max=1 / 3, nan_count=3)
    return StatisticsRow(
        address=address,
        rank=0,
        graph="g",
        node="a",
        slot=0,
        io="output",
        step=1,
        type="Parameter",
        statistics=statistics,
    )


def record_class(annotation: Any) -> Any:
    """The record that an annotation is of, also where it may be absent."""
    return next((each for each in (annotation, *get_args(annotation)) if hasattr(each, "model_fields")), None)
