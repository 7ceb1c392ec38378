"""The list of watchpoints: rules, ids, what they watch, and that nothing is lost."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from tensight.errors import InputError
from tensight.graph import Graph
from tensight.sessions.errors import LimitError, NotFoundError, StorageError
from tensight.sessions.records import Edit, WatchpointChange, WatchpointRecord, WatchpointSpec
from tensight.sessions.watchpoint_list import MOST_WATCHPOINTS, WatchpointList, watchpoint_record
from tensight.sessions.workspace import Workspace
from tensight.watchpoints import Condition, Platform, Target, recommended_watchpoints, register, unregister
from tensight.watchpoints.quantities import QUANTITIES
from tests.sessions.still_session import constant, cpu_seconds, large_graph, operator, parameter

FORWARD = Graph(
    "forward",
    [parameter("fc.weight"), constant("one"), operator("Default/fc/MatMul-op1", "fc.weight", "one")],
)
BACKWARD = Graph(
    "backward",
    [
        parameter("fc.weight"),
        operator("Gradients/Default/fc/MatMul-op2", "fc.weight"),
        operator(
            "Default/optimizer-Momentum/ApplyMomentum-op3", "fc.weight", "fc.weight", "Gradients/Default/fc/MatMul-op2"
        ),
    ],
)


def new_list(workspace: Workspace | None = None, name: str = "job") -> WatchpointList:
    return WatchpointList(name, workspace, lambda rank: (FORWARD, BACKWARD))


def large() -> WatchpointSpec:
    return WatchpointSpec(condition="TL", parameters={"max_gt": 3})


def test_a_watchpoint_takes_the_selection_that_its_condition_is_meant_for() -> None:
    watchpoints = new_list()
    selections = [
        str(watchpoints.create(WatchpointSpec(condition=name)).base) for name in ("TO", "WCL", "GE", "weight_overflow")
    ]
    assert selections == ["all", "weights", "gradients", "weights"]


def test_several_thresholds_may_be_given_at_once() -> None:
    made = new_list().create(
        WatchpointSpec(condition="tensor_too_large", parameters={"max_gt": 1e3, "mean_gt": 5, "abs_mean_gt": 0})
    )
    assert made.watchpoint.check.text == "tensor_too_large(abs_mean_gt=0, max_gt=1000, mean_gt=5)"


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"condition": "tensor_to_large"}, "did you mean tensor_too_large"),
        ({"condition": "TL"}, "needs at least one threshold"),
        ({"condition": "TL", "parameters": {"max_gt": float("nan")}}, "must be a finite number"),
        ({"condition": "TZ", "parameters": {"zero_percentage_ge": 101}}, "percentage from 0 to 100"),
        ({"condition": "TL", "parameters": {"max_lt": 1}}, "has no parameter 'max_lt'"),
        ({"condition": "TR", "parameters": {"range_percentage_lt": 1}}, "needs range_start_inclusive"),
        ({"condition": "TO", "selection": "everything"}, "there is no selector"),
        ({"condition": "TO", "selection": "name:[["}, "regular expression"),
    ],
)
def test_a_wrong_watchpoint_is_refused_and_takes_no_id(spec: dict[str, object], message: str) -> None:
    watchpoints = new_list()
    with pytest.raises(InputError, match=message):
        watchpoints.create(WatchpointSpec.model_validate(spec))
    assert watchpoints.create(large()).id == 1


def test_names_are_unique_but_may_be_left_out() -> None:
    watchpoints = new_list()
    watchpoints.create(large())
    watchpoints.create(large())
    watchpoints.create(large().model_copy(update={"name": "exploding"}))
    with pytest.raises(InputError, match="watchpoint 3 has the name 'exploding' already"):
        watchpoints.create(large().model_copy(update={"name": "exploding"}))
    with pytest.raises(InputError, match="watchpoint 3 has the name"):
        watchpoints.change(1, WatchpointChange(name="exploding"))
    assert watchpoints.change(3, WatchpointChange(name="exploding", enabled=False)).enabled is False


def test_a_change_leaves_what_it_does_not_name() -> None:
    watchpoints = new_list()
    before = watchpoints.create(
        WatchpointSpec(
            condition="TL",
            parameters={"max_gt": 3},
            name="n",
            selection="weights",
            edits=(Edit(path="a"),),
            severity="error",
            persistence=4,
        )
    )
    assert watchpoints.change(1, WatchpointChange()).watchpoint == before.watchpoint
    after = watchpoints.change(1, WatchpointChange(parameters={"mean_gt": 1}, further_edits=(Edit(path="b"),)))
    record = watchpoint_record(after, nodes=0, hits=0)
    assert record == WatchpointRecord(
        id=1,
        name="n",
        condition="tensor_too_large",
        abbreviation="TL",
        parameters={"mean_gt": 1.0},
        selection="weights",
        edits=(Edit(path="a"), Edit(path="b")),
        severity="error",
        enabled=True,
        nodes=0,
        text="tensor_too_large(mean_gt=1) persist=4",
        words="Watches the weights, with changes; hits when the mean is greater than 1 in 4 steps in a row.",
        persistence=4,
    )
    again = watchpoints.change(1, WatchpointChange(persistence=1))
    assert watchpoint_record(again, nodes=0, hits=0).text == "tensor_too_large(mean_gt=1)"


def test_edits_are_replaced_or_continued() -> None:
    watchpoints = new_list()
    watchpoints.create(large().model_copy(update={"edits": (Edit(path="a"),)}))
    assert watchpoints.change(1, WatchpointChange(edits=(Edit(path="b"),))).edits == (Edit(path="b"),)
    assert watchpoints.change(1, WatchpointChange(edits=(), further_edits=(Edit(path="c"),))).edits == (Edit(path="c"),)


def test_every_change_has_another_version() -> None:
    watchpoints = new_list()
    versions = [watchpoints.create(large()).version]
    versions += [watchpoints.change(1, WatchpointChange(enabled=state)).version for state in (False, True)]
    assert versions == [1, 2, 3]


def test_a_change_that_is_wrong_changes_nothing() -> None:
    watchpoints = new_list()
    before = watchpoints.create(large())
    with pytest.raises(InputError):
        watchpoints.change(1, WatchpointChange(name="other", parameters={"nonsense": 1}))
    assert watchpoints.all() == [before]


def test_deleting_is_all_or_nothing_and_ids_never_come_back() -> None:
    watchpoints = new_list()
    for _ in range(3):
        watchpoints.create(large())
    with pytest.raises(NotFoundError, match="there is no watchpoint 9"):
        watchpoints.delete([1, 9])
    watchpoints.delete([3, 1])
    assert [one.id for one in watchpoints.all()] == [2]
    watchpoints.delete()
    assert watchpoints.create(large()).id == 4


def test_there_are_no_more_watchpoints_than_a_training_can_bear() -> None:
    watchpoints = new_list()
    for _ in range(MOST_WATCHPOINTS):
        watchpoints.create(large())
    with pytest.raises(LimitError, match="at most 1,000 watchpoints"):
        watchpoints.create(large())


def test_disabled_watchpoints_are_not_checked() -> None:
    watchpoints = new_list()
    watchpoints.create(large())
    watchpoints.create(large().model_copy(update={"enabled": False}))
    assert [one.id for one in watchpoints.enabled()] == [1]


def test_nodes_are_given_for_each_graph_and_edits_for_one_graph_stay_there() -> None:
    watchpoints = new_list()
    made = watchpoints.create(
        WatchpointSpec(condition="TO", selection="none", edits=(Edit(path="fc.weight", graph="forward"),))
    )
    assert watchpoints.nodes_of(made, 0) == [("forward", frozenset({"fc.weight"})), ("backward", frozenset())]


def test_a_weight_that_another_graph_trains_is_trainable_here() -> None:
    watchpoints = new_list()
    made = watchpoints.create(WatchpointSpec(condition="WNC", selection="trainable_weights"))
    assert watchpoints.nodes_of(made, 0) == [
        ("forward", frozenset({"fc.weight"})),
        ("backward", frozenset({"fc.weight"})),
    ]


def test_nodes_are_those_of_new_graphs_as_soon_as_these_are_there() -> None:
    graphs: tuple[Graph, ...] = (FORWARD,)
    watchpoints = WatchpointList("job", None, lambda rank: graphs)
    made = watchpoints.create(WatchpointSpec(condition="TO"))
    assert watchpoints.count(made, [0]) == 0
    watchpoints.resolve([0])
    assert watchpoints.count(made, [0]) == 2
    graphs = (FORWARD, BACKWARD)
    assert [name for name, _ in watchpoints.nodes_of(made, 0)] == ["forward", "backward"]
    # The weight that both have is one node.
    assert watchpoints.count(made, [0]) == 4
    changed = watchpoints.change(made.id, WatchpointChange(selection="weights"))
    assert watchpoints.nodes_of(changed, 0)[0] == ("forward", frozenset({"fc.weight"}))


def test_the_recommended_set_gets_ids_of_the_list_and_leaves_out_names_that_are_taken() -> None:
    watchpoints = new_list()
    watchpoints.create(large().model_copy(update={"name": "recommend_tensor_overflow_watchpoint"}))
    wanted = recommended_watchpoints(platform=Platform.GPU)
    added = watchpoints.add_recommended(wanted)
    assert [one.id for one in added] == list(range(2, len(wanted) + 1))
    assert "recommend_tensor_overflow_watchpoint" not in [one.watchpoint.name for one in added]


def test_a_rule_that_selects_nothing_is_known() -> None:
    watchpoints = new_list()
    assert watchpoints.selects_any(watchpoints.create(WatchpointSpec(condition="GE")).watchpoint.selection, [0])
    activations = watchpoints.create(WatchpointSpec(condition="TO", selection="activations")).watchpoint.selection
    assert not watchpoints.selects_any(activations, [0])
    assert WatchpointList("job", None, lambda rank: ()).selects_any(activations, [0])


# --- the file ---


def test_watchpoints_with_and_without_names_survive_a_restart(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    watchpoints = new_list(workspace)
    watchpoints.create(large())
    watchpoints.create(
        WatchpointSpec(
            condition="WNC",
            parameters={"rtol": 1e-3},
            name="frozen?",
            selection="none",
            edits=(Edit(path="fc", containing="W"), Edit(add=False, path="", graph="g")),
            severity="error",
            enabled=False,
            persistence=7,
        )
    )
    watchpoints.create(large())
    watchpoints.change(1, WatchpointChange(parameters={"min_gt": -2}))
    watchpoints.delete([3])
    watchpoints.recommended_offered = True
    watchpoints.save()
    again = new_list(Workspace(tmp_path))
    assert again.all() == watchpoints.all()
    assert again.get(2).watchpoint.persistence == 7
    assert again.recommended_offered
    assert again.problems == []
    assert again.create(large()).id == 4


def test_a_script_that_sets_its_watchpoints_in_each_run_does_not_set_them_twice(tmp_path: Path) -> None:
    named = large().model_copy(update={"name": "large"})
    scripted = (named, large(), large(), WatchpointSpec(condition="TO"))
    for _ in range(2):
        watchpoints = new_list(Workspace(tmp_path))
        assert [watchpoints.create(spec).id for spec in scripted] == [1, 2, 3, 4]
        watchpoints.save()
    assert watchpoints.create(large()).id == 5
    with pytest.raises(InputError, match="has the name 'large' already"):
        watchpoints.create(named)


@pytest.mark.parametrize(
    "change", [{"enabled": False}, {"persistence": 2}, {"severity": "error"}, {"selection": "weights"}]
)
def test_a_watchpoint_that_differs_from_one_of_an_earlier_session_is_another(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    watchpoints = new_list(Workspace(tmp_path))
    watchpoints.create(large())
    watchpoints.save()
    again = new_list(Workspace(tmp_path))
    assert again.create(large().model_copy(update=change)).id == 2
    assert again.create(large()).id == 1


def test_what_a_script_sets_before_its_network_is_known_is_not_restored_beside_it(tmp_path: Path) -> None:
    def begun() -> WatchpointList:
        return WatchpointList("job", Workspace(tmp_path), lambda rank: (FORWARD, BACKWARD), network="")

    first = begun()
    first.recognise([FORWARD, BACKWARD])
    for spec in (WatchpointSpec(condition="TO"), large(), large()):
        first.create(spec)
    first.save()
    second = begun()
    second.create(large())
    second.recognise([FORWARD, BACKWARD])
    assert [one.watchpoint.check.condition.abbreviation for one in second.all()] == ["TL", "TO", "TL"]
    assert second.create(large()).id == 3


def test_another_job_does_not_see_them(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    watchpoints = new_list(workspace)
    watchpoints.create(large())
    watchpoints.save()
    assert new_list(workspace, "../job").all() == []
    assert len(list(workspace.watchpoints.iterdir())) == 1


def test_a_name_of_any_characters_is_one_file_in_the_folder(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    for name in ("../../etc", "网络/1", "\udcff", "x" * 10_000, ""):
        watchpoints = new_list(workspace, name)
        watchpoints.create(large())
        watchpoints.save()
        assert new_list(workspace, name).all() == watchpoints.all()
    assert len(list(workspace.watchpoints.iterdir())) == 5


@pytest.mark.parametrize("content", [b"", b"[1, 2]", b"\xff{", b'{"watchpoints": 3}', b"[" * 100_000])
def test_a_damaged_file_is_kept_aside_and_the_list_begins_empty(tmp_path: Path, content: bytes) -> None:
    workspace = Workspace(tmp_path)
    watchpoints = new_list(workspace)
    watchpoints.create(large())
    watchpoints.save()
    (path,) = workspace.watchpoints.iterdir()
    path.write_bytes(content)
    again = new_list(workspace)
    assert again.all() == []
    assert len(again.problems) == 2
    again.save()
    assert path.with_name(path.name + ".damaged").read_bytes() == content


def test_a_watchpoint_that_this_version_cannot_read_is_left_out_and_written_back(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    own = register(Condition("loss_spike", "LS", Target.TENSOR, flag=QUANTITIES["nan_count"]))
    try:
        watchpoints = new_list(workspace)
        watchpoints.create(WatchpointSpec(condition="LS"))
        watchpoints.create(large())
        watchpoints.save()
    finally:
        unregister(own.id)
    without = new_list(workspace)
    assert [one.id for one in without.all()] == [2]
    assert "there is no condition 'loss_spike'" in without.problems[0]
    without.save()
    register(own)
    try:
        assert [one.id for one in new_list(workspace).all()] == [1, 2]
    finally:
        unregister(own.id)


@pytest.mark.parametrize(
    "entry",
    [
        None,
        3,
        {},
        {"id": "x", "condition": "TO"},
        {"id": 0, "condition": "TO"},
        {"id": 1, "condition": "TO", "edits": 5},
    ],
)
def test_nonsense_among_the_watchpoints_does_no_harm(tmp_path: Path, entry: object) -> None:
    workspace = Workspace(tmp_path)
    watchpoints = new_list(workspace)
    watchpoints.create(large())
    watchpoints.save()
    (path,) = workspace.watchpoints.iterdir()
    stored = json.loads(path.read_text())
    stored["watchpoints"].insert(0, entry)
    stored["last_id"] = "many"
    path.write_text(json.dumps(stored))
    again = new_list(workspace)
    assert [one.id for one in again.all()] == [1]
    assert again.create(WatchpointSpec(condition="TO")).id == 2


def test_a_list_that_cannot_be_saved_is_still_there(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    watchpoints = new_list(workspace)
    watchpoints.create(large())
    workspace.watchpoints.rmdir()
    workspace.watchpoints.write_text("in the way")
    with pytest.raises(StorageError, match="cannot be written"):
        watchpoints.save()
    assert [one.id for one in watchpoints.all()] == [1]


# --- large graphs ---


@pytest.mark.long
def test_the_recommended_set_on_a_large_graph_is_worked_out_in_seconds_and_then_known() -> None:
    graph = large_graph()
    watchpoints = WatchpointList("job", None, lambda rank: (graph,))
    made = watchpoints.add_recommended(recommended_watchpoints(initial=True))
    cold = cpu_seconds(lambda: watchpoints.resolve([0]))
    warm = cpu_seconds(lambda: [watchpoints.nodes_of(one, 0) for one in made])
    counts = {one.watchpoint.name: watchpoints.count(one, [0]) for one in made}
    assert counts["recommend_tensor_overflow_watchpoint"] == 99_000
    assert counts["recommend_weight_initialization_watchpoint"] == 2000
    assert cold < 10
    assert warm < 1


def test_threads_that_ask_at_once_get_the_same_answer() -> None:
    graph = large_graph(10_000)
    watchpoints = WatchpointList("job", None, lambda rank: (graph,))
    made = watchpoints.create(WatchpointSpec(condition="GE"))
    found: list[object] = []
    threads = [threading.Thread(target=lambda: found.append(watchpoints.watched(made, 0))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert all(answer is found[0] for answer in found)
