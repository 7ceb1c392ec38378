"""What watchpoints find when they know the network: hidden layers, units, masks, norms of layers and of steps."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tensight.agents.core.program import Program, Role, TracedNode
from tensight.agents.core.slots import Need
from tensight.graph import OutputSlot
from tensight.graph.data_types import DT_TENSOR
from tensight.watchpoints.causes import Since
from tests.agents.test_watching_steps import Process, calls_of, found

if TYPE_CHECKING:
    from tensight.agents.core.watching.rules import AgentHit

GRADIENT = "Gradients/Default/{}/weight/AccumulateGrad-op0"


class Network(Process):
    """A process that trains a network of dense layers with an activation function between them."""

    def __init__(self, *layers: str, activation: str = "ReLU", **options: Any) -> None:
        super().__init__(**options)
        self.layers = layers
        self.nodes: list[TracedNode] = [self.traced("x", "Parameter", "input")]
        source = "x"
        for layer in layers:
            self.nodes.append(self.traced(f"{layer}.weight", "Parameter", "weight", shape=(4, 4)))
        for layer in layers:
            linear, function = f"Default/{layer}/Linear-op0", f"Default/{layer}/{activation}-op0"
            self.nodes.append(self.traced(linear, "Linear", inputs=(source, f"{layer}.weight")))
            self.nodes.append(self.traced(function, activation, inputs=(linear,)))
            source = function
        self.nodes += [self.traced(GRADIENT.format(layer), "AccumulateGrad") for layer in reversed(layers)]
        self.watches.learn(Program("kernel_graph_0", 0, tuple(self.nodes)))

    def traced(
        self, name: str, type_: str, role: Role = "operator", inputs: tuple[str, ...] = (), shape: Any = None
    ) -> TracedNode:
        self.slot_id(name, type_, role)
        outputs = (OutputSlot(DT_TENSOR, "float32", shape),) if shape else ()
        return TracedNode(name, type_, role, tuple((source, 0) for source in inputs), outputs)

    def named(self, name: str) -> int:
        slot_id = self.slot_table.find(name, 0)
        assert slot_id is not None
        return slot_id

    def see(self, values: dict[str, Any]) -> list[tuple[int, str]]:
        return found(self.step({self.named(name): value for name, value in values.items()}))


@pytest.mark.parametrize(
    ("selection", "names"),
    [
        (
            "hidden",
            ["Default/one/Linear-op0", "Default/one/ReLU-op0", "Default/two/Linear-op0", "Default/two/ReLU-op0"],
        ),
        ("hidden_activation:relu", ["Default/one/ReLU-op0", "Default/two/ReLU-op0"]),
        ("hidden_activation:tanh", []),
        ("matrices", ["one.weight", "two.weight", "head.weight"]),
        ("inner_matrices", ["one.weight", "two.weight"]),
        ("matrix_gradients", [GRADIENT.format(layer) for layer in ("head", "two", "one")]),
    ],
)
def test_places_are_found_by_their_part_in_the_network(selection: str, names: list[str]) -> None:
    network = Network("one", "two", "head")
    network.watch("TO", selection)
    every = [node.name for node in network.nodes]
    assert network.see({key: [np.nan] for key in every}) == [(1, name) for name in every if name in names]
    assert len(names) == sum(bool(need) for need in network.slot_table.needs)


def test_what_is_learnt_of_the_network_counts_for_watchpoints_that_are_there_already() -> None:
    process = Process()
    process.watch("TO", "matrices")
    weight = process.slot_id("w", "Parameter", "weight")
    assert process.slot_table.needs[weight] == Need.NOTHING
    shape = (OutputSlot(DT_TENSOR, "float32", (2, 2)),)
    process.watches.learn(Program("kernel_graph_0", 0, (TracedNode("w", "Parameter", "weight", outputs=shape),)))
    assert process.slot_table.needs[weight] == Need.FINITE


def test_the_step_in_which_a_network_is_first_seen_counts() -> None:
    network = Network("one", "head")
    before = Process()
    before.watch("tensor_all_zero persist=2", "hidden")
    slot_id = before.slot_id("Default/one/Linear-op0", "Linear")
    gradient = before.slot_id("Gradients/Default/one/LinearGrad-op0", "LinearGrad")
    assert before.slot_table.needs[slot_id] == Need.ROW
    assert before.slot_table.needs[gradient] == Need.NOTHING
    before.iteration = before.columns.current_iteration = 0
    before.observe(slot_id, [0.0])
    before.watches.learn(Program("kernel_graph_0", 0, tuple(network.nodes)))
    assert before.checks.check_step([slot_id]) == []
    assert found(before.step({slot_id: [0.0]})) == [(1, "Default/one/Linear-op0")]


def test_dead_units_hit_after_some_steps_and_only_in_hidden_layers() -> None:
    network = Network("one", "head")
    network.watch("dead_units(dead_unit_percentage_gt=50) persist=3", "hidden_activation:relu")
    hidden, last = "Default/one/ReLU-op0", "Default/head/ReLU-op0"
    assert network.slot_table.needs[network.named(hidden)] == Need.ROW | Need.VALUE
    dying = np.zeros((16, 10), np.float32)
    dying[3, :4] = 1
    alive = dying.copy()
    alive[5, :9] = 1
    for _ in range(2):
        assert network.see({hidden: dying, last: dying}) == []
    assert network.see({hidden: dying, last: dying}) == [(1, hidden)]
    assert network.see({hidden: alive, last: dying}) == []
    assert network.see({hidden: dying, last: dying}) == []


def test_a_hit_of_units_tells_how_many() -> None:
    network = Network("one", "head")
    network.watch("dead_units(dead_unit_percentage_gt=50)", "hidden_activation:relu")
    values = np.zeros((16, 10), np.float32)
    values[0, :2] = 1
    (hit,) = network.step({network.named("Default/one/ReLU-op0"): values})
    assert dict(hit.actual) == {"dead_unit_percentage_gt": 80.0}
    assert next((p.name, p.hit) for p in hit.message().watch_condition.params) == (b"dead_unit_percentage_gt", True)


def test_units_whose_values_are_not_kept_are_left_alone() -> None:
    network = Network("one", "head")
    network.watch("dead_units(dead_unit_percentage_gt=50)", "hidden_activation:relu")
    values = np.zeros((16, 10), np.float32)
    values[0, :2] = 1
    network.step({network.named("Default/one/ReLU-op0"): values})
    network.retention.clear()
    assert network.checks.check_step([], again=True) == []


def test_saturated_units_are_counted_where_the_spread_leaves_it_open() -> None:
    network = Network("one", "head", activation="Tanh")
    network.watch(
        "saturated_units(range_start_inclusive=-0.9, range_end_inclusive=0.9, saturated_unit_percentage_gt=50)",
        "hidden_activation:tanh",
    )
    hidden = "Default/one/Tanh-op0"
    saturated = np.full((20, 4), 0.99, np.float32)
    half = saturated.copy()
    half[:, :2] = 0.1
    assert network.see({hidden: saturated}) == [(1, hidden)]
    assert network.see({hidden: half}) == []


def test_minus_infinity_of_a_mask_is_meant_and_everything_else_is_not() -> None:
    network = Network("one", "head", check_at_nodes=True)
    mask = network.traced("Default/masked_fill-op0", "masked_fill", inputs=("Default/one/Linear-op0",))
    network.watches.learn(Program("kernel_graph_0", 0, (*network.nodes, mask)))
    network.watch("unintended_overflow")
    masked, linear = mask.name, "Default/one/Linear-op0"
    assert network.see({masked: [-np.inf, 0.0], linear: [1.0]}) == []
    assert network.see({masked: [-np.inf, np.nan], linear: [-np.inf]}) == [(1, masked), (1, linear)]


def test_before_the_network_is_known_minus_infinity_waits_for_the_end_of_the_step() -> None:
    process = Process(check_at_nodes=True)
    process.watch("unintended_overflow")
    slot_id = process.slot_id("Default/log-op0", "log")
    process.iteration = process.columns.current_iteration = 0
    process.observe(slot_id, [-np.inf])
    node = process.slot_table.nodes[0]
    assert process.checks.check_node(node) == []
    assert found(process.checks.check_step([slot_id])) == [(1, "Default/log-op0")]
    log = TracedNode("Default/log-op0", "log")
    neg = TracedNode("Default/neg-op0", "neg", inputs=(("Default/log-op0", 0),))
    process.watches.learn(Program("kernel_graph_0", 0, (log, neg)))
    process.columns.current_iteration = 1
    process.observe(slot_id, [-np.inf])
    assert found(process.checks.check_node(node)) == [(1, "Default/log-op0")]


def test_overflows_that_loss_scaling_provokes_are_no_hits_unless_they_go_on() -> None:
    network = Network("one", "head", check_at_nodes=True)
    network.watch("unintended_overflow")
    gradient = GRADIENT.format("one")
    slot_id = network.named(gradient)
    node = network.slot_table[slot_id].node
    for number in range(22):
        network.checks.scaling.applies = True
        network.iteration = network.columns.current_iteration = number
        network.observe(slot_id, [np.inf])
        assert network.checks.check_node(node) == []
        hits = network.checks.check_step([slot_id], scaled_skip=True)
        assert found(hits) == ([(1, gradient)] if number >= 20 else [])
        assert not network.checks.scaling.applies


def test_a_skipped_update_does_not_count_as_a_weight_that_stands_still() -> None:
    network = Network("one", "head")
    network.watch("weight_not_changed(rtol=0, atol=0) persist=2", "matrices")
    weight = network.named("one.weight")
    network.step({weight: np.ones((2, 2))})
    for number in range(1, 4):
        network.columns.current_iteration = network.iteration = number
        network.observe(weight, np.ones((2, 2)))
        order = [weight]
        assert not network.checks.check_step(order, scaled_skip=True)
    assert network.see({"one.weight": np.ones((2, 2))}) == []
    assert network.see({"one.weight": np.ones((2, 2))}) == [(1, "one.weight")]


def test_a_weight_that_jumps_in_the_first_update_is_compared_with_how_it_began() -> None:
    network = Network("one", "head")
    network.watch("weight_growth(norm_growth_gt=10)", "matrices")
    names = ["one.weight", "head.weight"]
    for name in names:
        network.columns.scan(network.named(name), np.ones((4, 4)))
    assert network.checks.check_initial() == []
    assert network.see({"one.weight": np.ones((4, 4)), "head.weight": np.full((4, 4), 50.0)}) == [(1, "head.weight")]


def test_a_gradient_that_fades_or_grows_over_the_layers_is_found_by_the_last_layer() -> None:
    network = Network("one", "two", "head")
    network.watch("gradient_imbalance(depth_ratio_gt=1000, depth_ratio_lt=1e-5)", "matrix_gradients")
    one, two, head = (GRADIENT.format(layer) for layer in ("one", "two", "head"))
    assert network.see({head: [1.0], two: [1e-2], one: [1e-4]}) == []
    assert network.see({head: [1.0], two: [1e-3], one: [1e-6]}) == [(1, one)]
    assert network.see({head: [1.0], two: [1e4], one: [1.0]}) == [(1, two)]
    # When everything is learnt all gradients are small, and that is no fault.
    assert network.see({head: [1e-12], two: [1e-13], one: [1e-14]}) == []


def test_a_weight_has_no_gradient_where_zeros_go_into_its_layer() -> None:
    network = Network("one", "two", "head")
    network.watch("gradient_imbalance(depth_ratio_gt=1000, depth_ratio_lt=1e-5) persist=3", "matrix_gradients")
    one, two, head = (GRADIENT.format(layer) for layer in ("one", "two", "head"))
    values = {
        "x": [1.0],
        "Default/one/ReLU-op0": [0.0],
        "Default/two/ReLU-op0": [1.0],
        head: [1.0],
        two: [0.0],
        one: [1.0],
    }
    for _ in range(5):
        assert network.see(values) == []
    for _ in range(2):
        assert network.see({**values, "Default/one/ReLU-op0": [1.0]}) == []
    assert network.see({**values, "Default/one/ReLU-op0": [1.0]}) == [(1, two)]


def test_a_gradient_that_surges_is_compared_with_all_that_were_seen() -> None:
    network = Network("one", "head")
    network.watch("gradient_growth(norm_surge_gt=100)", "matrix_gradients")
    one, head = GRADIENT.format("one"), GRADIENT.format("head")
    for _ in range(8):
        assert network.see({head: [1.0], one: [1e-6]}) == []
    assert network.see({head: [1.0], one: [50.0]}) == []
    assert network.see({head: [1000.0], one: [1.0]}) == [(1, head)]


@pytest.mark.parametrize("persistence", [1, 3])
def test_zeros_hit_where_they_are_born(persistence: int) -> None:
    network = Network("one", "two", "head")
    network.watch(f"unintended_zeros persist={persistence}", "hidden")
    first, dead, second, after = (
        f"Default/{layer}/{type_}-op0" for layer in ("one", "two") for type_ in ("Linear", "ReLU")
    )
    values = {"x": [1.0], "two.weight": [1.0], first: [-1.0, -2.0], dead: [0.0, 0.0], second: [0.0], after: [0.0]}
    for _ in range(persistence - 1):
        assert network.see(values) == []
    assert network.see(values) == [(1, dead)]
    for _ in range(persistence - 1):
        assert network.see({**values, dead: [0.0, 1.0]}) == []
    assert network.see({**values, dead: [0.0, 1.0]}) == [(1, second)]
    # A weight that begins at zero is told of by its own watchpoints.
    assert network.see({**values, dead: [0.0, 1.0], "two.weight": [0.0]}) == []


def test_a_hit_says_since_when_its_condition_has_held() -> None:
    network = Network("one", "head")
    x, hidden = network.named("x"), network.named("Default/one/ReLU-op0")

    def see(value: float) -> list[Since | None]:
        return [hit.since for hit in network.step({x: [1.0], hidden: [value]})]

    assert see(0.0) == []
    network.watch("tensor_all_zero(zero_percentage_ge=100) persist=2", "hidden")
    # It was zero before anybody watched it.
    assert [see(0.0), see(0.0)] == [[], [Since(1, may_be_older=True)]]
    assert [see(1.0), see(0.0), see(0.0)] == [[], [], [Since(4)]]
    network.watch("tensor_all_zero(zero_percentage_ge=100)", "hidden")
    assert None in see(0.0)


def test_zeros_are_explained_by_what_goes_in_in_the_graph_that_runs() -> None:
    network = Network("one", "head")
    network.watch("unintended_zeros persist=3", "hidden")
    hidden = "Default/one/Linear-op0"
    network.slot_id("state", "Parameter", "input")
    others = [
        replace(node, inputs=(("state", 0), ("one.weight", 0))) if node.name == hidden else node
        for node in [*network.nodes, network.traced("state", "Parameter", "input")]
    ]
    programs = [Program("kernel_graph_0", 0, tuple(network.nodes)), Program("kernel_graph_1", 1, tuple(others))]
    network.watches.learn(programs[1])
    # The graph that was learnt last is not the one that runs.
    network.watches.network.program = programs[0]
    for _ in range(5):
        assert network.see({"x": [0.0], "one.weight": [1.0], hidden: [0.0]}) == []


def test_what_goes_into_tensors_is_looked_at_only_where_it_matters() -> None:
    network = Network("one", "head")
    network.watch("unintended_zeros persist=2", "hidden")
    source = network.named("x")
    linear = "Default/one/Linear-op0"
    assert network.slot_table.needs[source] == Need.NOTHING
    assert network.see({"x": [0.0], linear: [1.0]}) == []
    assert network.slot_table.needs[source] == Need.NOTHING
    assert network.see({"x": [0.0], linear: [0.0]}) == []
    assert network.slot_table.needs[source] == Need.ROW
    network.watch("unintended_zeros persist=2", "hidden")
    assert network.slot_table.needs[source] == Need.ROW
    assert network.see({"x": [0.0], linear: [0.0]}) == []


def test_a_watchpoint_that_is_sent_again_goes_on_counting() -> None:
    network = Network("one", "head")
    for _ in range(3):
        network.watch("TL(max_gt=2) persist=3", "matrices")
        hits = network.see({"one.weight": [3.0]})
    assert hits == [(1, "one.weight")]
    network.watch("TL(max_gt=1) persist=3", "matrices")
    assert network.see({"one.weight": [3.0]}) == []


def test_ranks_are_compared_by_hashes_and_nothing_hits_here() -> None:
    network = Network("one", "head")
    assert network.watches.hashes(network.columns) == []
    network.watch("weights_differ", "matrices", number=4)
    assert network.see({"one.weight": [1.0, 2.0]}) == []
    (content,) = network.watches.hashes(network.columns)
    assert (content.node, content.slot, content.watchpoint) == (b"one.weight", 0, 4)
    before = content.hash
    network.see({"one.weight": [1.0, 2.0]})
    assert network.watches.hashes(network.columns)[0].hash == before
    network.see({"one.weight": [1.0, 2.5]})
    assert network.watches.hashes(network.columns)[0].hash != before


def test_what_works_on_scaled_gradients_is_passed_over_and_what_came_before_them_is_not() -> None:
    network = Network("one", "head", check_at_nodes=True)
    network.watch("unintended_overflow")
    unscale = network.traced("Default/unscale-op0", "unscale")
    network.watches.learn(Program("kernel_graph_0", 0, (*network.nodes, unscale)))
    order = [network.named(name) for name in ("Default/one/Linear-op0", GRADIENT.format("one"), unscale.name)]
    network.checks.scaling.applies = True
    network.iteration = network.columns.current_iteration = 0
    at_nodes = []
    for slot_id in order:
        network.observe(slot_id, [np.inf])
        at_nodes += found(network.checks.check_node(network.slot_table[slot_id].node))
    assert at_nodes == [(1, "Default/one/Linear-op0")]
    hits = network.checks.check_step(order, scaled_skip=True, again=False)
    assert hits == []
    network.checks.scaling.applies = True
    network.iteration = network.columns.current_iteration = 1
    for slot_id in order:
        network.observe(slot_id, [np.inf])
    hits = network.checks.check_step(order)
    assert len(hits) == 3


def calls_after_a_nan(steps: int) -> int:
    """Return what a NaN costs in a loop of so many steps, each of which may leave it out, and in its backward pass."""
    process = Process(check_at_nodes=True)
    process.watch("unintended_overflow")
    nodes = [TracedNode("x", "Parameter", "input")]
    source = "x"
    for step in range(steps):
        product, bounded = f"Default/Mul-op{step}", f"Default/Clamp-op{step}"
        nodes += [
            TracedNode(product, "Mul", inputs=((source, 0),)),
            TracedNode(bounded, "Clamp", inputs=((product, 0),)),
        ]
        source = bounded
    for step in range(steps):
        nodes.append(TracedNode(f"Default/Sum-op{step}", "Add", inputs=((source, 0), ("x", 0))))
        source = nodes[-1].name
    for step in range(steps):
        nodes.append(TracedNode(f"Gradients/Default/Mul-op{step}", "Mul", inputs=((source, 0),)))
        source = nodes[-1].name
    slot_ids = [process.slot_id(node.name, node.type, node.role) for node in nodes]
    program = Program("kernel_graph_0", 0, tuple(nodes))
    process.watches.learn(program)
    process.watches.network.program = program
    process.iteration = process.columns.current_iteration = 0
    hits: list[AgentHit] = []

    def run() -> None:
        for slot_id in slot_ids:
            process.observe(slot_id, [np.nan])
            at_node = process.checks.check_node(process.slot_table[slot_id].node)
            if at_node:
                hits.extend(process.checks.with_held_back(at_node))

    calls = calls_of(run)
    # The loop may leave a NaN out, until an operator behind it has one: it came in with the input.
    assert [hit.tensor_slot.node.name for hit in hits[:2]] == ["x", f"Default/Clamp-op{steps - 1}"]
    assert len(hits) == 2 + 2 * steps
    return calls


def test_the_origin_of_a_nan_is_followed_once_and_not_for_each_operator_that_it_reaches() -> None:
    assert calls_after_a_nan(400) < 6 * calls_after_a_nan(100)
