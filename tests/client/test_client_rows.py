"""Long lists are fetched page by page, and shown as harmless tables."""

from __future__ import annotations

import pytest

from tensight.client.rows import PAGE, RowFormat, Rows
from tensight.sessions.records import HitParameter, HitRecord, TensorHits

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
    assert repr(hit) == (
        "HitRecord(watchpoint=1, condition='<b>', abbreviation='TL', severity='warning', hit=True,"
        " parameters=[100 items], error_code=0)"
    )
    assert "<td>&lt;b&gt;</td>" in hit._repr_html_()
    assert repr(hit.parameters[0]) == "HitParameter(name='max_gt', preset=1, actual=0.333333, hit=True)"
    assert len(repr(TensorHits(slot=0, address="rank" * 100, hits=(hit,) * 3))) < 500
