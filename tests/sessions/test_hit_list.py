"""The hits of a step, page by page."""

from __future__ import annotations

import numpy as np
import pytest

from tensight.errors import InputError
from tensight.graph import TensorAddress
from tensight.sessions.hit_list import MOST_HITS, HitList, SessionHit, hit_record
from tensight.sessions.records import Frame, HitParameter, HitRecord
from tensight.watchpoints import ConditionCheck, ErrorCode, Hit, Severity, Watchpoint
from tests.sessions.still_session import cpu_seconds

CONDITIONS = {1: ("tensor_overflow", "TO"), 2: ("tensor_too_large", "TL"), 3: ("tensor_all_zero", "TZ")}


def hit(
    node: str,
    watchpoint: int = 1,
    *,
    slot: int = 0,
    rank: int = 0,
    graph: str = "g",
    position: int | None = None,
    op_type: str = "ReLU",
    failed: bool = False,
    iteration: int = 4,
) -> SessionHit:
    condition, abbreviation = CONDITIONS[watchpoint]
    record = HitRecord(
        watchpoint=watchpoint,
        condition=condition,
        abbreviation=abbreviation,
        hit=not failed,
        error_code=4 if failed else 0,
    )
    return SessionHit(rank, graph, node, slot, iteration, record, position=position, type=op_type)


def filled(*hits: SessionHit) -> HitList:
    found = HitList()
    found.replace(5, hits)
    return found


def nodes(found: HitList, **filters: object) -> list[str]:
    return [node.node for node in found.page(**{"limit": 100, **filters}).nodes]  # type: ignore[arg-type]


def test_nodes_come_in_the_order_in_which_they_ran_and_then_as_they_arrived() -> None:
    found = filled(hit("unknown1"), hit("late", position=9), hit("early", position=2), hit("unknown2"), hit("late"))
    assert nodes(found) == ["early", "late", "unknown1", "unknown2"]


def test_hits_of_several_ranks_stand_in_one_order_whichever_rank_reported_first() -> None:
    late, early = [[hit(name, rank=rank, position=place) for place, name in enumerate("ab")] for rank in (1, 0)]
    found = filled(*late, *early)
    assert [(node.rank, node.node) for node in found.page().nodes] == [(0, "a"), (1, "a"), (0, "b"), (1, "b")]


def test_a_node_groups_its_tensors_and_a_tensor_its_watchpoints_by_id() -> None:
    found = filled(hit("a", 3, slot=1), hit("a", 2), hit("a", 1, slot=1), hit("a", 2, slot=1))
    (node,) = found.page().nodes
    assert node.step == 5
    assert [(tensor.slot, [one.watchpoint for one in tensor.hits]) for tensor in node.tensors] == [
        (0, [2]),
        (1, [1, 2, 3]),
    ]
    assert [tensor.address for tensor in node.tensors] == ["0/g/a:0@5", "0/g/a:1@5"]


def test_the_same_watchpoint_on_the_same_tensor_is_one_hit_the_last() -> None:
    found = filled(hit("a", failed=True))
    found.add([hit("a")])
    (node,) = found.page().nodes
    assert [one.hit for one in node.tensors[0].hits] == [True]


def test_filters_by_rank_graph_and_watchpoint_apply_together() -> None:
    found = filled(hit("a", 1), hit("a", 2), hit("b", 2, rank=1), hit("c", 2, graph="h"), hit("d", 3, graph="h"))
    assert nodes(found, rank=0) == ["a", "c", "d"]
    assert nodes(found, graph="h") == ["c", "d"]
    assert nodes(found, watchpoint=2) == ["a", "c", "b"]
    assert nodes(found, rank=0, graph="h", watchpoint=2) == ["c"]
    page = found.page(watchpoint=2)
    assert [one.watchpoint for one in page.nodes[0].tensors[0].hits] == [2]
    assert page.total == 3


def test_a_tensor_without_a_hit_of_the_wanted_watchpoint_is_left_out() -> None:
    found = filled(hit("a", 1, slot=0), hit("a", 2, slot=1))
    (node,) = found.page(watchpoint=2).nodes
    assert [tensor.slot for tensor in node.tensors] == [1]


def test_pages_follow_each_other() -> None:
    found = filled(*(hit(f"n{number}", position=number) for number in range(25)))
    assert nodes(found, offset=20, limit=10) == ["n20", "n21", "n22", "n23", "n24"]
    assert found.page(offset=20).total == 25
    assert nodes(found, offset=100, limit=10) == []


def test_the_page_of_a_node_is_found() -> None:
    found = filled(*(hit(f"n{number}", number % 2 + 1, position=number) for number in range(25)))
    page = found.page(focus="n17")
    assert (page.offset, page.nodes[7].node) == (10, "n17")
    assert found.page(focus="n17", watchpoint=2, limit=3).offset == 6
    assert found.page(focus="none", offset=5).offset == 5


@pytest.mark.parametrize(("offset", "limit"), [(-1, 10), (0, 0)])
def test_a_page_that_cannot_be_is_refused(offset: int, limit: int) -> None:
    with pytest.raises(InputError, match="offset must be at least 0"):
        HitList().page(offset=offset, limit=limit)


def test_new_hits_replace_the_old_and_are_up_to_date() -> None:
    found = filled(hit("a"))
    found.outdated = True
    assert found.page().outdated
    found.replace(6, [hit("b", iteration=5)])
    page = found.page()
    assert (page.outdated, page.step, [node.node for node in page.nodes]) == (False, 6, ["b"])
    found.clear()
    assert (found.page().total, len(found)) == (0, 0)


def test_counts_are_of_tensors_that_really_hit() -> None:
    found = filled(hit("a", 1), hit("a", 2), hit("a", 1, slot=1), hit("b", 2, failed=True))
    assert found.tensors == 2
    assert (found.count_of(1), found.count_of(2), found.count_of(3)) == (2, 1, 0)
    assert found.page().total == 2


def test_scopes_and_groups_count_what_lies_below() -> None:
    found = filled(
        hit("Default/net/a-op1"),
        hit("Default/net/a-op1", slot=1),
        hit("Default/b-op2"),
        hit("conv/1.weight", op_type="Parameter"),
        hit("Default/net/a-op1", rank=1),
    )
    counts = {
        path: found.count_below(0, "g", path)
        for path in ("", "Default", "Default/net", "Default/net/a-op1", "conv", "@parameters", "conv/1.weight", "x")
    }
    assert counts == {
        "": 4,
        "Default": 3,
        "Default/net": 2,
        "Default/net/a-op1": 2,
        "conv": 0,
        "@parameters": 1,
        "conv/1.weight": 1,
        "x": 0,
    }


def test_a_tensor_has_the_abbreviations_of_what_hit() -> None:
    found = filled(hit("a", 2), hit("a", 1), hit("a", 3, failed=True))
    assert found.abbreviations(TensorAddress(0, "g", "a", 0, 4)) == ("TO", "TL")
    assert found.abbreviations(TensorAddress(0, "g", "a", 0, 3)) == ()


def test_hits_that_came_while_a_page_was_made_are_on_the_next() -> None:
    found = filled(hit("a"))
    assert found.page().total == 1
    found.add([hit("b")])
    assert found.page().total == 2


def test_no_more_hits_are_kept_than_can_be_looked_at() -> None:
    found = HitList()
    one = hit("a")
    found.replace(1, (one for _ in range(MOST_HITS + 3)))
    assert (len(found), found.dropped) == (MOST_HITS, 3)
    found.replace(2, [one])
    assert found.dropped == 0


def test_a_hit_tells_its_thresholds_and_actual_values() -> None:
    check = ConditionCheck("TR", {"range_start_inclusive": -1, "range_end_inclusive": 1, "range_percentage_lt": 50})
    point = Watchpoint(7, "narrow", check, severity=Severity.ERROR)
    made = Hit("any", point, error_code=ErrorCode.NAN, actual={"range_percentage_lt": 12.5}, parameters_hit=())
    record = hit_record(made)
    assert record == HitRecord(
        watchpoint=7,
        name="narrow",
        condition="tensor_range",
        abbreviation="TR",
        severity="error",
        parameters=(
            HitParameter(name="range_start_inclusive", preset=-1.0),
            HitParameter(name="range_end_inclusive", preset=1.0),
            HitParameter(name="range_percentage_lt", preset=50.0, actual=12.5),
        ),
        error_code=1,
        errors=("Tensor contains NaN.",),
    )
    assert HitRecord.model_validate_json(record.model_dump_json()) == record


def test_hidden_parameters_and_values_that_are_no_number_do_not_show() -> None:
    made = Hit("any", Watchpoint(1, "", ConditionCheck("WCL")), actual={"abs_mean_update_ratio_gt": float("nan")})
    (parameter,) = hit_record(made).parameters
    assert parameter == HitParameter(name="abs_mean_update_ratio_gt", preset=0.1, actual=None)


def test_ten_thousand_hits_page_in_less_than_fifty_milliseconds() -> None:
    order = np.random.default_rng(0).permutation(10_000).tolist()
    line = Frame(file="/p/net.py", line=3)
    hits = [
        SessionHit(0, "g", f"Default/network/layer{n // 50}/n{n}", 0, 4, hit("x", n % 3 + 1).hit, position=n, line=line)
        for n in order
    ]
    found = HitList()
    found.replace(5, hits)
    cold = cpu_seconds(lambda: found.page(limit=10))
    filters = {"watchpoint": 2, "rank": 0, "graph": "g", "focus": "Default/network/layer160/n8002", "limit": 100}
    warm = cpu_seconds(lambda: found.page(**filters))  # type: ignore[arg-type]
    page = found.page(**filters)  # type: ignore[arg-type]
    assert (found.page().total, page.total) == (10_000, 3333)
    assert "Default/network/layer160/n8002" in [node.node for node in page.nodes]
    assert warm < 0.05
    assert cold < 0.1


def test_a_page_counts_tensors_however_many_watchpoints_hit_them() -> None:
    found = filled(hit("a"), hit("a", 2), hit("a", slot=1), hit("b", 2), hit("c", failed=True))
    assert [found.page(limit=1).tensors, found.page(watchpoint=2).tensors, found.tensors] == [3, 2, 3]
