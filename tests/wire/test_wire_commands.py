"""What a training process is told."""

from __future__ import annotations

import pytest

from tensight.graph import Node
from tensight.watchpoints import CONDITIONS, Condition, ConditionCheck, Target, Watchpoint, register, unregister
from tensight.watchpoints.quantities import QUANTITIES
from tensight.wire import (
    CHUNK_BYTES,
    MAX_MESSAGE_BYTES,
    MOST_COMMAND_BYTES,
    MOST_TEXT,
    WireError,
    delete_command,
    exit_command,
    failed,
    ok,
    recheck,
    run_node,
    run_step,
    set_command,
    set_reply,
    tensor_request,
    version_reply,
    view_command,
    views_command,
)
from tensight.wire.debugger_pb2 import EventReply, SetCMD, ViewRequest

RELU = Node("Default/ReLU-op4", "ReLU", full_name="Default/ReLU-op4")
WEIGHT = Node("conv1.weight", "Parameter", full_name="conv1.weight")
CONSTANT = Node("Default--data-1", "Const", full_name="Default--data-1")


def watchpoint(condition: str, **values: float) -> Watchpoint:
    return Watchpoint(7, "", ConditionCheck(condition, values))


def parameters(command: SetCMD) -> list[tuple[str, bool, float]]:
    return [(p.name.decode(), p.disabled, p.value) for p in command.watch_condition.params]


# watchpoints ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("condition", "values", "number", "sent", "last"),
    [
        ("tensor_overflow", {}, 13, [], 0.0),
        ("operator_overflow", {}, 2, [], 0.0),
        (
            "tensor_too_large",
            {"mean_gt": 3.0, "max_gt": 1.5},
            15,
            [("abs_mean_gt", True, 0), ("max_gt", False, 1.5), ("min_gt", True, 0), ("mean_gt", False, 3.0)],
            3.0,
        ),
        (
            "activation_range",
            {"range_start_inclusive": -1.0, "range_end_inclusive": 0.0, "range_percentage_gt": 99.5},
            21,
            [
                ("range_start_inclusive", False, -1.0),
                ("range_end_inclusive", False, 0.0),
                ("range_percentage_lt", True, 0),
                ("range_percentage_gt", False, 99.5),
                ("max_min_lt", True, 0),
                ("max_min_gt", True, 0),
            ],
            99.5,
        ),
        (
            "weight_not_changed",
            {"rtol": 0.5},
            20,
            [("rtol", False, 0.5), ("atol", False, 1e-8), ("equal_nan", False, 0.0)],
            0.0,
        ),
        (
            "weight_change_too_large",
            {"abs_mean_update_ratio_gt": 0.25},
            18,
            [("abs_mean_update_ratio_gt", False, 0.25), ("epsilon", False, 1e-9)],
            pytest.approx(1e-9, rel=1e-6),
        ),
        ("max_gt", {"param": 2.0}, 3, [("param", False, 2.0)], 2.0),
    ],
)
def test_a_watchpoint_is_sent_with_all_parameters_in_the_declared_order(
    condition: str, values: dict[str, float], number: int, sent: list[tuple[str, bool, float]], last: float
) -> None:
    command = set_command(watchpoint(condition, **values), [])
    assert (command.id, command.delete, command.watch_condition.condition) == (7, False, number)
    assert parameters(command) == sent
    assert command.watch_condition.value == last


@pytest.mark.parametrize("condition", CONDITIONS)
def test_every_condition_of_the_original_can_be_sent(condition: str) -> None:
    found = CONDITIONS[condition]
    values = {found.checks[0].name: 1.0} if found.checks else {}
    companions = found.checks[0].requires if found.checks else ()
    command = set_command(watchpoint(condition, **values, **dict.fromkeys(companions, 0.0)), [])
    assert [name for name, _, _ in parameters(command)] == [p.name for p in found.parameters]


def test_watched_nodes_have_name_type_graph_and_rank_and_constants_are_left_out() -> None:
    nodes = [("g0", RELU), ("g0", CONSTANT), ("g1", WEIGHT)]
    command = set_command(watchpoint("TO"), iter(nodes), rank=3, selection="name:conv.*")
    assert [(n.node_name, n.node_type, n.graph_name, n.rank_id) for n in command.watch_nodes] == [
        (b"Default/ReLU-op4", b"ReLU", b"g0", 3),
        (b"conv1.weight", b"Parameter", b"g1", 3),
    ]
    assert command.selection == b"name:conv.*"


def test_a_threshold_beyond_single_precision_is_sent_in_double() -> None:
    assert ("max_gt", False, 1e300) in parameters(set_command(watchpoint("TL", max_gt=1e300), []))


def test_a_command_that_a_process_could_not_receive_is_refused() -> None:
    many = [("g", Node(f"Default/{number:0200d}", "ReLU")) for number in range(20_000)]
    with pytest.raises(WireError, match="20,000 nodes"):
        set_command(watchpoint("TO"), many)
    assert len(set_command(watchpoint("TO"), many, most_bytes=MAX_MESSAGE_BYTES).watch_nodes) == 20_000
    assert CHUNK_BYTES < MOST_COMMAND_BYTES < 4 * 2**20


def test_a_condition_of_the_users_own_cannot_travel() -> None:
    register(Condition("too_many_nan", "XX1", Target.TENSOR, flag=QUANTITIES["nan_count"]))
    try:
        with pytest.raises(WireError, match="has no number"):
            set_command(watchpoint("too_many_nan"), [])
    finally:
        unregister("too_many_nan")


def test_deleting_a_watchpoint_says_its_id_and_no_more() -> None:
    assert delete_command(5) == SetCMD(id=5, delete=True)
    assert set_reply(delete_command(5)).set_cmd.id == 5


# other commands -------------------------------------------------------------------------------------------------------


def test_every_reply_has_one_command_of_its_own() -> None:
    replies = {
        None: ok(),
        "exit": exit_command(),
        "run_cmd": run_step(),
        "set_cmd": set_reply(delete_command(1)),
        "view_cmd": view_command([]),
        "version_matched": version_reply(False),
    }
    assert {name: reply.WhichOneof("cmd") for name, reply in replies.items()} == {name: name for name in replies}
    assert all(reply.status == EventReply.OK for reply in replies.values())
    assert failed("").status == EventReply.FAILED
    assert exit_command().exit


def test_running_on_names_level_and_steps_or_node() -> None:
    step, node, target, again = run_step(), run_node(), run_node("Default/a"), recheck()
    assert (step.run_cmd.run_level, step.run_cmd.run_steps) == (b"step", 1)
    assert run_step(5).run_cmd.run_steps == 5
    assert (node.run_cmd.run_level, node.run_cmd.WhichOneof("cmd"), node.run_cmd.node_name) == (
        b"node",
        "node_name",
        b"",
    )
    assert target.run_cmd.node_name == b"Default/a"
    assert (again.run_cmd.run_level, again.run_cmd.WhichOneof("cmd")) == (b"recheck", None)


@pytest.mark.parametrize(("level", "number"), [("value", 0), ("statistics", 1), ("base", 2)])
def test_tensors_are_asked_for_in_order_at_a_level(level: str, number: int) -> None:
    tensors = [tensor_request(node, 0) for node in (RELU, WEIGHT)]
    command = view_command(tensors, level).view_cmd  # type: ignore[arg-type]
    assert (list(command.tensors), command.level) == (tensors, number)


def test_views_are_asked_for_in_order() -> None:
    views = [ViewRequest(kind=b"values"), ViewRequest(kind=b"statistics")]
    assert list(views_command(views).view_cmd.views) == views


def test_messages_are_cut_and_always_encoded() -> None:
    assert ok("fine").message == b"fine"
    assert failed("x" * 10 * MOST_TEXT).message == b"x" * MOST_TEXT
    assert version_reply(True, "\udcff").message == b"\\udcff"
    assert exit_command("bye").message == b"bye"


def test_persistence_travels_with_a_watchpoint_unless_it_is_one() -> None:
    check = ConditionCheck("dead_units", {"dead_unit_percentage_gt": 30})
    command = set_command(Watchpoint(3, "", check, persistence=5), ())
    assert (command.persistence, command.watch_condition.condition) == (5, 1000)
    assert set_command(Watchpoint(3, "", check), ()).persistence == 0


def test_more_steps_than_a_message_holds_are_cut() -> None:
    assert run_step(2**40).run_cmd.run_steps == 2**31 - 1
    assert run_step(-1).run_cmd.run_steps == -1
