"""What watchpoints find in a training process: on which slots, in which order, and after how many steps."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tensight.agents.core.columns import StatisticsColumns
from tensight.agents.core.observation import Observation
from tensight.agents.core.retention import Retention
from tensight.agents.core.slots import Need
from tensight.agents.core.watching.checks import StepChecks
from tensight.agents.core.watching.watches import Watches
from tensight.watchpoints import Selector, Watchpoint, parse_watch
from tensight.wire import set_command
from tensight.wire.debugger_pb2 import SetCMD, WatchNode

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from numpy.typing import NDArray

    from tensight.agents.core.program import Role
    from tensight.agents.core.watching.rules import AgentHit


class ArrayReader:
    """Reads NumPy arrays, whose versions a test counts."""

    def __init__(self) -> None:
        self.versions: dict[int, int] = {}

    def describe(self, tensor: Any) -> tuple[str, tuple[int, ...], int]:
        return tensor.dtype.name, tensor.shape, tensor.nbytes

    def version(self, tensor: Any) -> int:
        return self.versions.get(id(tensor), 0)

    def hold(self, tensor: Any) -> tuple[Any, int, int]:
        return tensor, id(tensor), int(tensor.nbytes)

    def host(self, tensor: Any) -> NDArray[Any]:
        return np.asarray(tensor)

    def copy(self, tensor: Any) -> NDArray[Any]:
        return np.array(tensor)

    def scan(self, tensor: Any, columns: StatisticsColumns, slot_id: int, *, hashed: bool = True) -> bool:
        return columns.scan(slot_id, tensor, hashed=hashed)

    def has_non_finite(self, tensor: Any) -> bool:
        return not np.isfinite(tensor).all()

    def settle(self, columns: StatisticsColumns) -> None:
        """Nothing is behind."""


class Process:
    """A training process without a training: slots, statistics and watchpoints."""

    def __init__(self, *, check_at_nodes: bool = False) -> None:
        reader = ArrayReader()
        self.retention = Retention(reader, 2**20)
        self.observed = Observation(reader, self.retention)
        self.slot_table, self.columns = self.observed.slot_table, self.observed.columns
        self.watches = Watches(self.slot_table, check_at_nodes=check_at_nodes)
        self.checks = StepChecks(self.watches, self.observed)
        self.iteration = -1

    def watch(self, text: str, on: str = "all", number: int = 1) -> str:
        check, persistence = parse_watch(text)
        point = Watchpoint(number, "", check, Selector.parse(on), persistence=persistence)
        return self.set(set_command(point, (), selection=on))

    def set(self, command: SetCMD) -> str:
        """Set a watchpoint as a stop does, which decides about the slots once for all of its commands."""
        problem = self.watches.set(command)
        self.watches.settle()
        return problem

    def delete(self, number: int) -> None:
        self.watches.delete(number)
        self.watches.settle()

    def slot_id(self, name: str, type_: str = "Mul", role: Role = "operator", slot: int = 0) -> int:
        return self.slot_table.slot_id(self.slot_table.node(name, type_, role), slot)

    def observe(self, slot_id: int, values: Any) -> None:
        need = self.slot_table.needs[slot_id]
        array = np.asarray(values)
        if need & (Need.ROW | Need.CHANGE) or (need and not np.isfinite(array).all()):
            self.columns.scan(slot_id, array)
        if need & (Need.VALUE | Need.CHANGE):
            self.retention.keep(slot_id, array)

    def step(self, values: dict[int, Any]) -> list[AgentHit]:
        """Do a step in which slots are seen in this order."""
        self.iteration += 1
        self.columns.current_iteration = self.iteration
        self.retention.turn_over()
        for slot_id, value in values.items():
            self.observe(slot_id, value)
        return self.checks.check_step(list(values))


def found(hits: list[AgentHit]) -> list[tuple[int, str]]:
    return [(hit.watchpoint, hit.tensor_slot.node.name) for hit in hits]


def test_nothing_is_needed_of_any_place_while_nothing_is_watched() -> None:
    process = Process()
    slot_id = process.slot_id("Default/a-op0")
    assert process.slot_table.needs[slot_id] == Need.NOTHING
    assert not process.watches.any
    assert process.step({slot_id: [np.nan]}) == []


def test_a_watchpoint_hits_where_its_condition_holds_in_the_order_of_execution() -> None:
    process = Process()
    first, second, third = (process.slot_id(f"Default/{name}-op0") for name in "abc")
    assert process.watch("tensor_too_large(max_gt=2)") == ""
    hits = process.step({third: [3.0, 1.0], first: [1.0, 2.0], second: [0.5, 9.0]})
    assert found(hits) == [(1, "Default/c-op0"), (1, "Default/b-op0")]
    assert dict(hits[1].actual) == {"max_gt": 9.0}
    assert hits[1].parameters_hit == ("max_gt",)


def test_only_what_was_seen_in_a_step_is_looked_at() -> None:
    process = Process()
    one, other = process.slot_id("Default/a-op0"), process.slot_id("Default/b-op0")
    process.watch("TL(max_gt=2)")
    assert len(process.step({one: [5.0], other: [5.0]})) == 2
    assert found(process.step({other: [6.0]})) == [(1, "Default/b-op0")]


def test_places_that_come_later_are_watched_too() -> None:
    process = Process()
    process.watch("TO")
    early = process.slot_id("Default/a-op0")
    process.step({early: [1.0]})
    late = process.slot_id("Default/b-op0")
    assert process.slot_table.needs[late] == Need.FINITE
    assert found(process.step({early: [1.0], late: [np.inf]})) == [(1, "Default/b-op0")]


def test_only_nan_and_inf_need_no_statistics_of_sound_tensors() -> None:
    process = Process()
    slot_id = process.slot_id("Default/a-op0")
    process.watch("TO")
    assert process.slot_table.needs[slot_id] == Need.FINITE
    assert process.step({slot_id: [1.0]}) == []
    assert process.columns.iteration[slot_id] != process.iteration
    assert found(process.step({slot_id: [np.nan]})) == [(1, "Default/a-op0")]


def test_what_the_agent_needs_besides_is_added_and_taken_away() -> None:
    process = Process()
    slot_id = process.slot_id("Default/a-op0")
    process.watch("TO")
    process.watches.require(Need.VALUE | Need.ROW)
    assert process.slot_table.needs[slot_id] == Need.VALUE | Need.ROW | Need.FINITE
    late = process.slot_id("Default/b-op0")
    assert process.slot_table.needs[late] == Need.VALUE | Need.ROW | Need.FINITE
    process.watches.require(Need.NOTHING)
    assert process.slot_table.needs[slot_id] == process.slot_table.needs[late] == Need.FINITE
    process.delete(1)
    assert process.slot_table.needs[slot_id] == Need.NOTHING


@pytest.mark.parametrize(
    ("selection", "names"),
    [
        ("all", ["Default/conv/Conv2d-op0", "Default/act/ReLU-op0", "Gradients/Default/conv/Conv2dGrad-op0", "conv.w"]),
        ("weights", ["conv.w"]),
        ("trainable_weights", ["conv.w"]),
        ("gradients", ["Gradients/Default/conv/Conv2dGrad-op0"]),
        ("activations", ["Default/act/ReLU-op0"]),
        ("activation:relu,tanh", ["Default/act/ReLU-op0"]),
        ("activation:tanh", []),
        ("type:conv2d", ["Default/conv/Conv2d-op0"]),
        ("name:^Default/.*op0", ["Default/conv/Conv2d-op0", "Default/act/ReLU-op0"]),
    ],
)
def test_a_selection_finds_its_nodes(selection: str, names: list[str]) -> None:
    process = Process()
    assert process.watch("TO", selection) == ""
    slot_ids = [
        process.slot_id("Default/conv/Conv2d-op0", "Conv2d"),
        process.slot_id("Default/act/ReLU-op0", "ReLU"),
        process.slot_id("Gradients/Default/conv/Conv2dGrad-op0", "Conv2dGrad"),
        process.slot_id("conv.w", "Parameter", "weight"),
    ]
    hits = process.step({slot_id: [np.nan] for slot_id in slot_ids})
    assert found(hits) == [(1, name) for name in names]


def test_inputs_of_nodes_are_not_watched() -> None:
    process = Process()
    node = process.slot_table.node("Default/a-op0", "Mul")
    process.watch("TO")
    slot_id = process.slot_table.slot_id(node, 0, "input")
    assert process.slot_table.needs[slot_id] == Need.NOTHING


def test_nodes_are_found_by_full_name_and_parameters_with_a_scope_before_it() -> None:
    process = Process()
    operator, weight = process.slot_id("Default/a-op0"), process.slot_id("conv1.weight", "Parameter", "weight")
    command = process_command("TO", ["Default/a-op0", "Default/network-Net/conv1.weight"])
    assert process.set(command) == ""
    hits = process.step({operator: [np.nan], weight: [np.inf]})
    names = [hit.message("kernel_graph_0").tensor.node_name for hit in hits]
    assert names == [b"Default/a-op0", b"Default/network-Net/conv1.weight"]


def process_command(text: str, names: list[str], number: int = 1) -> SetCMD:
    check, persistence = parse_watch(text)
    command = set_command(Watchpoint(number, "", check, persistence=persistence), ())
    command.watch_nodes.extend(WatchNode(node_name=name.encode()) for name in names)
    return command


def test_a_condition_must_hold_in_several_steps_in_a_row() -> None:
    process = Process()
    one, other = process.slot_id("Default/a-op0"), process.slot_id("Default/b-op0")
    process.watch("TL(max_gt=2) persist=3")
    large, small = [3.0], [1.0]
    assert process.step({one: large, other: large}) == []
    assert process.step({one: large, other: large}) == []
    assert found(process.step({one: large, other: small})) == [(1, "Default/a-op0")]
    assert process.step({other: large}) == []
    assert found(process.step({one: large, other: large})) == [(1, "Default/a-op0")]
    assert found(process.step({other: large})) == [(1, "Default/b-op0")]


def test_nan_in_several_steps_in_a_row_is_counted_without_statistics_of_sound_tensors() -> None:
    process = Process()
    slot_id = process.slot_id("Default/a-op0")
    process.watch("TO persist=2")
    assert process.step({slot_id: [np.nan]}) == []
    assert process.step({slot_id: [1.0]}) == []
    assert process.step({slot_id: [np.nan]}) == []
    assert found(process.step({slot_id: [np.inf]})) == [(1, "Default/a-op0")]


def test_a_weight_that_did_not_change_is_known_by_its_hash() -> None:
    process = Process()
    weight = process.slot_id("w", "Parameter", "weight")
    process.watch("weight_not_changed(rtol=0, atol=0)", "weights")
    assert process.slot_table.needs[weight] == Need.ROW | Need.HASH
    values = np.array([1.0, 2.0])
    assert process.step({weight: values}) == []
    assert found(process.step({weight: values})) == [(1, "w")]
    assert process.step({weight: values + 1e-12}) == []


def test_how_far_a_weight_moved_is_read_from_its_values_where_statistics_leave_it_open() -> None:
    process = Process()
    weight = process.slot_id("w", "Parameter", "weight")
    process.watch("weight_change_too_large(abs_mean_update_ratio_gt=0.5)", "weights")
    assert process.slot_table.needs[weight] & Need.CHANGE
    assert process.step({weight: np.array([1.0, -1.0])}) == []
    hits = process.step({weight: np.array([-1.0, 1.0])})
    assert found(hits) == [(1, "w")]
    assert dict(hits[0].actual)["abs_mean_update_ratio_gt"] == pytest.approx(2)
    assert process.step({weight: np.array([-1.1, 1.1])}) == []


def test_elements_in_a_range_are_counted_where_statistics_leave_it_open() -> None:
    process = Process()
    slot_id = process.slot_id("Default/act/Tanh-op0", "Tanh")
    process.watch(
        "activation_range(range_start_inclusive=-0.5, range_end_inclusive=0.5, range_percentage_lt=30)", "activations"
    )
    assert process.slot_table.needs[slot_id] == Need.ROW | Need.VALUE
    assert process.step({slot_id: np.array([0.1, 0.2, 0.9, -0.9])}) == []
    hits = process.step({slot_id: np.array([0.1, 0.8, 0.9, -0.9])})
    assert dict(hits[0].actual) == {"range_percentage_lt": 25.0}


def test_the_initial_state_is_checked_by_the_condition_for_it_alone() -> None:
    process = Process()
    weight = process.slot_id("w", "Parameter", "weight")
    process.watch("weight_initialization(zero_percentage_ge=100)", "weights", 1)
    process.watch("tensor_all_zero", "all", 2)
    process.columns.current_iteration = -1
    process.columns.scan(weight, np.zeros(3))
    assert found(process.checks.check_initial()) == [(1, "w")]
    assert found(process.step({weight: np.zeros(3)})) == [(2, "w")]


def test_a_node_is_checked_as_soon_as_it_has_run_and_not_again_at_the_end_of_the_step() -> None:
    process = Process(check_at_nodes=True)
    one, other = process.slot_id("Default/a-op0"), process.slot_id("Default/b-op0")
    process.watch("TO")
    process.watch("TL(max_gt=2) persist=2", number=2)
    process.iteration = process.columns.current_iteration = 0
    process.observe(one, [np.nan])
    process.observe(other, [1.0])
    nodes = process.slot_table.nodes
    assert found(process.checks.check_node(nodes[0])) == [(1, "Default/a-op0")]
    assert process.checks.check_node(nodes[1]) == []
    assert process.checks.check_step([one, other]) == []


def test_a_hit_tells_every_parameter_of_its_condition() -> None:
    process = Process()
    slot_id = process.slot_id("Default/a-op0", slot=1)
    process.watch("TL(max_gt=2, mean_gt=100)")
    (hit,) = process.step({slot_id: [3.0, np.nan]})
    message = hit.message("kernel_graph_1")
    assert (message.id, message.graph, message.error_code) == (1, b"kernel_graph_1", 1)
    assert (message.tensor.node_name, message.tensor.slot) == (b"Default/a-op0", b"1")
    shown = [(p.name, p.disabled, p.value, p.hit, p.actual_value) for p in message.watch_condition.params]
    assert shown == [
        (b"abs_mean_gt", True, 0, False, 0),
        (b"max_gt", False, 2, True, 3),
        (b"min_gt", True, 0, False, 0),
        (b"mean_gt", False, 100, False, 3),
    ]


def test_what_cannot_be_watched_is_refused_in_words() -> None:
    process = Process()
    assert "condition 77 is not known" in process.set(SetCMD(id=1, watch_condition={"condition": 77}))
    assert "selector" in process.watch("TO") or process.set(
        SetCMD(id=1, watch_condition={"condition": 13}, selection=b"nonsense")
    )
    assert "persistence" in process.set(SetCMD(id=1, watch_condition={"condition": 13}, persistence=-1))


def test_a_watchpoint_without_any_threshold_never_hits() -> None:
    process = Process()
    slot_id = process.slot_id("Default/a-op0")
    command = SetCMD(id=1, watch_condition={"condition": 15, "params": [{"name": b"max_gt", "disabled": True}]})
    command.watch_nodes.add(node_name=b"Default/a-op0")
    assert process.set(command) == ""
    assert process.step({slot_id: [1e30]}) == []


def test_a_step_that_is_checked_again_tells_its_hits_again_and_does_not_count_twice() -> None:
    process = Process()
    slot_id, weight = process.slot_id("Default/a-op0"), process.slot_id("w", "Parameter", "weight")
    process.watch("TL(max_gt=2) persist=2", number=1)
    process.watch("TO", number=2)
    process.watch("weight_not_changed(rtol=0, atol=0)", "weights", number=3)
    order = [slot_id, weight]
    process.step({slot_id: [1.0], weight: [1.0]})
    assert found(process.step({slot_id: [3.0, np.nan], weight: [1.0]})) == [(2, "Default/a-op0"), (3, "w")]
    assert found(process.checks.check_step(order, again=True)) == [(2, "Default/a-op0"), (3, "w")]
    assert found(process.step({slot_id: [3.0], weight: [2.0]})) == [(1, "Default/a-op0")]
    assert found(process.checks.check_step(order, again=True)) == [(1, "Default/a-op0")]


def calls_of(function: Callable[[], object]) -> int:
    """Return how many Python functions a function calls: what it costs, whatever else the machine does."""
    calls = 0

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        function()
    finally:
        sys.setprofile(None)
    return calls


def test_what_is_watched_is_decided_over_columns_whatever_the_number_of_tensors() -> None:
    def calls(layers: int) -> int:
        """Return what the decisions of a stop with ten watchpoints cost in a network of so many layers."""
        process = Process()
        for layer in range(layers):
            process.slot_id(f"{layer}.weight", "Parameter", "weight")
            process.slot_id(f"Default/{layer}/Linear-op0", "Linear")
        for number, on in enumerate(("all", "weights", "activations", "type:Linear", "hidden") * 2, 1):
            check, persistence = parse_watch("TL(max_gt=2)")
            point = Watchpoint(number, "", check, Selector.parse(on), persistence=persistence)
            assert process.watches.set(set_command(point, (), selection=on)) == ""
        decisions = calls_of(process.watches.settle)
        assert all(need & Need.ROW for need in process.slot_table.needs)
        return decisions

    calls(1)  # What is said of a type is asked once.
    assert calls(1000) == calls(10)
