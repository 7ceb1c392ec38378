"""The picture of all tensors over all steps: which cell says what, however many tensors and steps share it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tensight.errors import InputError
from tensight.sessions.hit_list import SessionHit
from tensight.sessions.overview import (
    HIT,
    INFINITE,
    NAN,
    NOTHING,
    STATISTICS,
    ListedTensor,
    OverviewChoice,
    StepColumn,
    marks_of,
    overview,
    own_graph,
    percentages,
    rounded,
)
from tensight.sessions.records import HitRecord, OverviewStatistic


@dataclass
class Numbers:
    """A source in memory: a matrix of tensors by steps, NaN where nothing is known."""

    values: NDArray[np.float64]
    marks: NDArray[np.uint8]
    tensors: list[ListedTensor]
    steps: NDArray[np.int64]
    rank: int = 0
    asked: list[str] = field(default_factory=list)
    order: dict[int, int] = field(default_factory=dict)
    """Positions of tensors in the steps that ran, where these are not those in the list."""

    def first_of(self, graph: str, node: str) -> str:
        return own_graph(graph, node)

    def columns(self, statistic: OverviewStatistic) -> Iterator[StepColumn]:
        self.asked.append(statistic)
        for place, step in enumerate(self.steps.tolist()):
            there = np.flatnonzero(~np.isnan(self.values[:, place]))
            yield StepColumn(step, there, self.values[there, place], self.marks[there, place], there)

    def positions(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.array([self.order.get(row, self.tensors[row].position or 0) for row in rows.tolist()])


def numbers(tensors: int, steps: int) -> Numbers:
    values = np.arange(tensors * steps, dtype=np.float64).reshape(tensors, steps)
    listed = [ListedTensor(f"node{place}", "output", 0, "g", ("g",), "Add", place) for place in range(tensors)]
    return Numbers(values, np.zeros((tensors, steps), np.uint8), listed, np.arange(1, steps + 1))


def hit(node: str, *, rank: int = 0, step: int = 1, is_hit: bool = True, **of: Any) -> SessionHit:
    record = HitRecord(watchpoint=1, condition="tensor_overflow", abbreviation="TO", severity="error", hit=is_hit)
    return SessionHit(rank, "g", node, 0, step - 1, record, **of)


def test_each_tensor_and_step_has_a_cell_where_there_is_room() -> None:
    source = numbers(3, 2)
    source.values[1, 0] = np.nan
    source.marks[2, 1] = NAN | INFINITE
    found = overview(source, {}, OverviewChoice("max"))
    assert source.asked == ["max"]
    assert (found.statistic, found.total, found.tensors) == ("max", 3, 3)
    assert [(span.first, span.last) for span in found.steps] == [(1, 1), (2, 2)]
    assert [row.address for row in found.rows] == ["0/g/node0:0", "0/g/node1:0", "0/g/node2:0"]
    assert found.values == ((0, 1), (None, 3), (4, 5))
    assert found.marks == ((0, 0), (NOTHING, 0), (0, NAN | INFINITE))


def test_neighbours_share_a_cell_that_holds_the_value_of_largest_magnitude_and_all_marks() -> None:
    source = numbers(5, 7)
    source.values *= -1
    source.marks[0, 0], source.marks[1, 2] = NAN, INFINITE
    found = overview(source, {}, OverviewChoice("mean", rows=2, columns=3))
    assert [row.tensors for row in found.rows] == [2, 3]
    assert [row.node for row in found.rows] == ["node0", "node2"]
    assert [(span.first, span.last) for span in found.steps] == [(1, 2), (3, 4), (5, 7)]
    matrix = source.values
    assert found.values[0] == (matrix[:2, :2].min(), matrix[:2, 2:4].min(), matrix[:2, 4:].min())
    assert found.values[1][2] == matrix[2:, 4:].min()
    assert found.marks == ((NAN, INFINITE, 0), (0, 0, 0))


def test_of_what_is_told_twice_the_last_counts() -> None:
    source = numbers(2, 1)
    both, first, second = np.array([0, 1]), np.array([0]), np.array([1])
    columns = [
        StepColumn(1, both, np.array([9.0, 9.0]), np.array([NAN, NAN], np.uint8), both),
        StepColumn(1, first, np.array([1.0]), np.array([0], np.uint8), first),
        StepColumn(1, second, np.array([np.nan]), np.array([INFINITE], np.uint8), second),
    ]
    source.columns = lambda _: iter(columns)  # type: ignore[method-assign, assignment]
    found = overview(source, {}, OverviewChoice())
    assert (found.values, found.marks) == (((1,), (None,)), ((0,), (INFINITE,)))


def test_tensors_are_in_the_order_of_execution_and_may_be_chosen_by_words() -> None:
    source = numbers(4, 1)
    source.tensors = [
        ListedTensor("b", "output", 0, "g", ("g",), "Parameter"),
        ListedTensor("net/late", "output", 1, "g", ("g",), "Log", 2),
        ListedTensor("net/late", "input", 1, "g", ("g",), "Log", 2),
        ListedTensor("net/early", "output", 0, "g", ("f", "g"), "Conv2D", 1),
    ]
    found = overview(source, {}, OverviewChoice())
    assert [row.address for row in found.rows] == [
        "0/g/net/early:0",
        "0/g/net/late:input.1",
        "0/g/net/late:1",
        "0/g/b:0",
    ]
    assert found.rows[0].graphs == ("f", "g")
    assert [row.position for row in found.rows] == [1, 2, 2, None]
    assert found.values == ((3,), (2,), (1,), (0,))
    some = overview(source, {}, OverviewChoice(query="NET log"))
    assert (some.total, [row.slot for row in some.rows]) == (2, [1, 1])
    part = overview(source, {}, OverviewChoice(offset=1, limit=2))
    assert (part.total, part.offset, part.tensors, part.values) == (4, 1, 2, ((2,), (1,)))
    nothing = overview(source, {}, OverviewChoice(query="no such"))
    assert (nothing.total, nothing.rows, nothing.values) == (0, (), ())


def test_steps_may_be_chosen() -> None:
    found = overview(numbers(2, 9), {3: (hit("node0"),), 9: (hit("node1"),)}, OverviewChoice(first_step=3, last_step=4))
    assert [span.first for span in found.steps] == [3, 4]
    assert found.values == ((2, 3), (11, 12))
    assert found.marks == ((HIT, 0), (0, 0))


def test_hits_are_marked_also_where_no_statistics_are_known() -> None:
    hits = {
        2: (hit("node1"), hit("node1", rank=1), hit("node0", is_hit=False)),
        9: (hit("stranger", position=0, type="Log"), hit("node2")),
    }
    found = overview(numbers(3, 2), hits, OverviewChoice())
    assert [(span.first, span.last) for span in found.steps] == [(1, 1), (2, 2), (9, 9)]
    assert [row.node for row in found.rows] == ["node0", "stranger", "node1", "node2"]
    assert found.rows[1].type == "Log"
    assert found.marks == (
        (0, 0, NOTHING),
        (NOTHING, NOTHING, HIT | NOTHING),
        (0, HIT, NOTHING),
        (0, 0, HIT | NOTHING),
    )
    merged = overview(numbers(3, 2), hits, OverviewChoice(rows=1, columns=1))
    assert merged.marks == ((HIT,),)
    assert overview(numbers(3, 2), hits, OverviewChoice(offset=3)).marks == ((0, 0, HIT | NOTHING),)


def test_a_run_of_which_nothing_is_known_has_an_empty_picture() -> None:
    found = overview(numbers(0, 0), {}, OverviewChoice())
    assert (found.total, found.steps, found.rows, found.values, found.marks) == (0, (), (), (), ())
    assert overview(numbers(2, 0), {}, OverviewChoice()).values == ((), ())


@pytest.mark.parametrize("choice", [{"statistic": "colour"}, {"offset": -1}, {"rows": 0}, {"columns": 0}, {"limit": 0}])
def test_what_makes_no_sense_is_refused(choice: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        OverviewChoice(**choice)


def test_every_statistic_can_be_asked_for() -> None:
    assert [overview(numbers(1, 1), {}, OverviewChoice(one)).statistic for one in STATISTICS] == list(STATISTICS)


def test_values_are_short_and_not_changed_by_more_than_their_last_digit() -> None:
    values = np.array([0.0, np.nan, np.inf, 1 / 3, -123456.789, 1.23456789e-30, 9.87654321e300, 5e-324])
    found = rounded(values)
    assert found[:2].tolist()[0] == 0
    assert np.isnan(found[1])
    assert found[2] == np.inf
    np.testing.assert_allclose(found[3:7], values[3:7], rtol=1e-4)
    assert repr(found[3].item()) == "0.33333"


def test_shares_and_marks_of_counts_that_are_not_known_are_unknown() -> None:
    counts = {
        "count": np.array([4.0, 0, np.nan, 4]),
        "zero_count": np.array([1.0, 0, 1, np.nan]),
        "negative_count": np.array([4.0, 0, 1, 0]),
        "nan_count": np.array([0.0, 0, 1, np.nan]),
        "neg_inf_count": np.array([1.0, 0, 0, 0]),
        "pos_inf_count": np.array([0.0, 0, 2, 0]),
    }
    shares = percentages(counts)
    np.testing.assert_array_equal(shares["zero_percent"], [25, np.nan, np.nan, np.nan])
    np.testing.assert_array_equal(shares["negative_percent"], [100, np.nan, np.nan, 0])
    np.testing.assert_array_equal(shares["non_finite_percent"], [25, np.nan, np.nan, np.nan])
    assert marks_of(counts).tolist() == [INFINITE, 0, NAN | INFINITE, 0]


@pytest.mark.parametrize("rows", [1, 7, 40, 400])
def test_a_tensor_that_is_merged_with_others_is_found_in_its_row(rows: int) -> None:
    source = numbers(120, 3)
    asked = ("0/g/node53:0@2", "0/g/node7:0@3", "1/g/node8:0@1", "0/g/other:0@1")
    found = overview(source, {}, OverviewChoice(rows=rows, locate=asked))
    firsts = [int(row.node.removeprefix("node")) for row in found.rows]
    expected = {name: max(row for row, first in enumerate(firsts) if first <= name) for name in (7, 53)}
    assert {place.address: place.row for place in found.located} == {
        f"0/g/node{name}:0": row for name, row in expected.items()
    }


@pytest.mark.parametrize("rows", [1, 7, 40, 400])
def test_the_first_marked_tensor_is_itself_however_many_are_in_its_row(rows: int) -> None:
    source = numbers(120, 4)
    assert overview(source, {}, OverviewChoice(rows=rows)).first is None
    source.marks[60, 3] = source.marks[30, 3] = source.marks[53, 2] = NAN
    choice = OverviewChoice(rows=rows, columns=2)
    first = overview(source, {}, choice).first
    assert first is not None
    assert (first.node, first.step) == ("node53", 3)
    hit_first = overview(source, {2: [hit("node90", step=2), hit("node80", step=2)]}, choice).first
    assert hit_first is not None
    assert (hit_first.node, hit_first.step) == ("node80", 2)
    at_hit = overview(source, {4: [hit("node90", step=4)]}, choice).first
    assert at_hit is not None
    assert (at_hit.node, at_hit.step) == ("node30", 4)


def test_the_first_marked_tensor_is_that_of_the_graph_that_ran() -> None:
    source = numbers(120, 4)
    source.marks[60, 2] = source.marks[30, 2] = source.marks[60, 3] = NAN
    source.order = {30: 70}
    first = overview(source, {}, OverviewChoice()).first
    assert first is not None
    assert (first.node, first.step) == ("node60", 3)
    later, earlier = hit("node30", step=4, position=8), hit("node90", step=4, position=7)
    first = overview(source, {4: [later, hit("node1", step=4), earlier]}, OverviewChoice(query="node")).first
    assert first is not None
    assert (first.node, first.step) == ("node60", 4)
    first = overview(source, {2: [later, hit("node1", step=2), earlier]}, OverviewChoice(query="node")).first
    assert first is not None
    assert (first.node, first.step) == ("node90", 2)


def test_where_it_began_is_said_of_the_rank_whatever_part_is_shown() -> None:
    source = numbers(120, 4)
    source.marks[60, 3] = source.marks[53, 1] = NAN
    for part in ({"first_step": 3}, {"offset": 60}, {"query": "node60"}):
        found = overview(source, {}, OverviewChoice(locate=("0/g/node53:0@2",), **part))
        assert found.first is not None
        assert (found.first.node, found.first.step) == ("node53", 2)
        assert (found.first.row is None) == ("first_step" not in part)
        assert [(place.node, place.row) for place in found.located] == [("node53", found.first.row)]


@pytest.mark.parametrize("values", ["few", "many", "enormous"])
def test_colours_do_not_depend_on_how_much_of_the_picture_fits(values: str) -> None:
    source = numbers(120, 30)
    source.values = 10 ** np.linspace(-3, 1, source.values.size).reshape(source.values.shape)
    if values == "few":
        source.values[3:] = 0
    elif values == "enormous":
        source.values[7, 7] = 1e30
    whole = overview(source, {}, OverviewChoice()).scale
    assert whole is not None
    assert 0 < whole.low < whole.high <= source.values.max() * 1.001
    assert whole.is_cut
    if values == "enormous":
        assert (whole.low < 0.01, whole.high < 100) == (True, True)
    for part in ({"rows": 7, "columns": 3}, {"first_step": 3, "offset": 80}):
        assert overview(source, {}, OverviewChoice(**part)).scale == whole
    assert overview(source, {}, OverviewChoice("zero_percent")).scale is None
    source.values[:] = 5
    alike = overview(source, {}, OverviewChoice()).scale
    assert alike is not None
    assert alike.low < alike.high
