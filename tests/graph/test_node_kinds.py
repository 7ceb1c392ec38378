from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tensight.graph import (
    Graph,
    NodeKind,
    frozen_weights,
    kinds,
    optimizer_states,
    original_kinds,
    parse_graph,
    trainable_weight_names,
    trainable_weights,
)
from tensight.graph.optimizers import OPTIMIZER_SIGNATURES
from tests.graph.graphs import INTEGER, constant, graph, names, operator, parameter

if TYPE_CHECKING:
    from pathlib import Path


def graph_of(dump: Path, number: int = 0) -> Graph:
    path = dump / "rank_0" / "graphs" / f"ms_output_trace_code_graph_{number}.pb"
    return parse_graph(path.read_bytes(), where=path.name)


class TestRealNetworks:
    def test_what_momentum_updates_is_trained_and_the_gate_is_frozen(
        self, dump_200: Path, dump_210: Path, planted: dict[str, Any]
    ) -> None:
        for name, dump in (("sick-2.0.0", dump_200), ("sick-2.10.0", dump_210)):
            model = graph_of(dump)
            unchanged = planted[name]["planted"]["unchanged_weights"]
            moments = {node.name for node in model.parameters if node.name.startswith("moments.")}

            assert names(frozen_weights(model)) == unchanged["frozen"]
            trained = set(names(trainable_weights(model)))
            assert trained == {moment.removeprefix("moments.") for moment in moments}
            assert trained >= {*unchanged["zero_gradient"], *unchanged["zero_learning_rate"]}
            assert set(names(optimizer_states(model))) - moments - {"global_step"} == {
                "momentum",
                "learning_rate_group_0",
                "learning_rate_group_1",
            }

    def test_what_adam_updates_is_trained(self, dump_200_second: Path, dump_210_second: Path) -> None:
        for dump in (dump_200_second, dump_210_second):
            model = graph_of(dump)
            cells = ("hidden", "middle", "out")
            assert set(names(trainable_weights(model))) == {
                f"network.{cell}.{kind}" for cell in cells for kind in ("weight", "bias")
            }
            states = set(names(optimizer_states(model)))
            assert {"beta1_power", "beta2_power", "learning_rate", "moment2.out.bias"} <= states
            assert not states & {"inputs0", "inputs1"}

    def test_a_graph_with_an_optimizer_speaks_for_those_without(self, dump_210_second: Path) -> None:
        graphs = [graph_of(dump_210_second, number) for number in range(6)]

        assert trainable_weight_names(graphs) == set(names(trainable_weights(graphs[0])))
        assert trainable_weight_names(graphs[1:]) == set(names(trainable_weights(graphs[1])))

    def test_the_originals_weights_do_not_include_moments_when_it_knows_the_graph(self, dump_210: Path) -> None:
        model = graph_of(dump_210)
        weights = {node.name for node in model.nodes if NodeKind.WEIGHT in original_kinds(node, model)}

        assert weights == {
            node.name
            for node in model.parameters
            if node.name.endswith((".weight", ".bias")) and not node.name.startswith("moments.")
        }

    def test_expanded_operators_of_the_backward_pass_are_gradients(self, dump_210: Path) -> None:
        model = graph_of(dump_210)
        found = {
            node.name: NodeKind.GRADIENT in kinds(model, node)
            for node in model.operators
            if node.name.startswith("Expand/")
        }

        assert found["Expand/_SplitWithSize/Slice-op0"]
        assert not found["Expand/_Muls/Mul-op0"]


SCOPE = "Default/optimizer-Any"


class TestOptimizers:
    @pytest.mark.parametrize("kind", sorted(OPTIMIZER_SIGNATURES))
    def test_each_known_operator_trains_its_variable_and_keeps_its_states(self, kind: str) -> None:
        signature = OPTIMIZER_SIGNATURES[kind]
        inputs = [f"p{position}" for position in range(14)]
        model = graph(*map(parameter, inputs), operator(f"{SCOPE}/{kind}-op1", *inputs))

        assert names(trainable_weights(model)) == [f"p{position}" for position in signature.variables]
        assert {f"p{position}" for position in signature.states} <= set(names(optimizer_states(model)))

    def test_the_variable_may_come_through_load_depend_and_conversions(self) -> None:
        model = graph(
            parameter("w"),
            parameter("m"),
            constant("monad"),
            operator("Load-op1", "w", "monad"),
            operator("Depend-op2", "Load-op1", "monad"),
            operator("TransData-op3", "Depend-op2"),
            operator("Cast-op4", "TransData-op3"),
            operator("Default/ApplyMomentum-op5", "Cast-op4", "m"),
        )

        assert names(trainable_weights(model)) == ["w"]

    def test_plain_writes_of_an_optimizer_train_what_the_network_uses(self) -> None:
        model = graph(
            parameter("net.alpha"),
            parameter("shadow.net.alpha"),
            parameter("global_step", INTEGER),
            parameter("net.bn.moving_mean"),
            operator("Default/net/Mul-op1", "net.alpha"),
            operator("Gradients/Default/Mul-op2", "Default/net/Mul-op1"),
            operator(f"{SCOPE}/AssignSub-op3", "net.alpha", "Gradients/Default/Mul-op2"),
            operator(f"{SCOPE}/Assign-op4", "shadow.net.alpha", "Gradients/Default/Mul-op2"),
            operator(f"{SCOPE}/AssignAdd-op5", "global_step"),
            operator("Default/net/bn/AssignSub-op6", "net.bn.moving_mean", "Default/net/Mul-op1"),
        )

        assert names(trainable_weights(model)) == ["net.alpha"]
        assert names(optimizer_states(model)) == ["shadow.net.alpha", "global_step"]
        assert names(frozen_weights(model)) == []

    def test_states_of_an_optimizer_of_ones_own_are_no_weights_whatever_they_are_called(self) -> None:
        model = graph(
            *map(parameter, ("net.alpha", "pace_of_alpha")),
            operator("Default/net/Mul-op1", "net.alpha"),
            operator("Gradients/Default/Mul-op2", "Default/net/Mul-op1"),
            operator(f"{SCOPE}/Assign-op3", "pace_of_alpha", "Gradients/Default/Mul-op2"),
            operator(f"{SCOPE}/AssignSub-op4", "net.alpha", "Gradients/Default/Mul-op2"),
        )

        assert names(trainable_weights(model)) == ["net.alpha"]
        assert names(optimizer_states(model)) == ["pace_of_alpha"]

    def test_an_unknown_optimizer_is_understood_by_its_shape(self) -> None:
        model = graph(
            parameter("w"),
            parameter("moment1.w"),
            parameter("learning_rate"),
            operator(f"{SCOPE}/FusedApplyNovelty-op1", "learning_rate", "moment1.w", "w"),
        )

        assert names(trainable_weights(model)) == ["w"]
        assert names(optimizer_states(model)) == ["moment1.w", "learning_rate"]

    def test_an_optimizer_that_is_called_as_a_function_has_states_all_the_same(self) -> None:
        model = graph(
            *map(parameter, ("g.fc.weight", "moment1.g.fc.weight", "moment2.g.fc.weight")),
            *(parameter(name, INTEGER) for name in ("global_step", "beta1_power", "learning_rate")),
            operator("Default/AssignAdd-op1", "global_step"),
            operator("Default/Mul-op2", "beta1_power", "beta1_power"),
            operator("Default/Assign-op3", "beta1_power", "Default/Mul-op2"),
            operator(
                "Default/Adam-op4", "g.fc.weight", "moment1.g.fc.weight", "moment2.g.fc.weight", "Default/Mul-op2"
            ),
        )

        assert names(trainable_weights(model)) == ["g.fc.weight"]
        assert names(optimizer_states(model))[2:] == ["global_step", "beta1_power", "learning_rate"]

    def test_what_another_graph_hands_over_is_no_state(self) -> None:
        handed = ("Parameter_463", "[Parameter]63", "equiv_35_CNode_239", "▸фrounds")
        model = graph(
            *map(parameter, ("w", "accum.w", *handed)),
            operator(f"{SCOPE}/ApplyMomentum-op1", "w", "accum.w", *handed),
        )

        assert names(optimizer_states(model)) == ["accum.w"]

    def test_without_an_optimizer_names_decide(self) -> None:
        model = graph(
            parameter("x"),
            parameter("net.norm.gamma"),
            parameter("net.norm.moving_mean"),
            parameter("net.table"),
            operator("Default/BatchNorm-op1", "x", "net.norm.gamma", "net.norm.moving_mean", "net.table"),
        )

        assert names(trainable_weights(model)) == ["net.norm.gamma", "net.table"]
        assert names(optimizer_states(model)) == names(frozen_weights(model)) == []


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        (parameter("conv1.weight"), {NodeKind.TENSOR, NodeKind.WEIGHT}),
        (parameter("Conv1.BIAS"), {NodeKind.TENSOR, NodeKind.WEIGHT}),
        (parameter("norm.gamma"), {NodeKind.TENSOR}),
        (parameter("Default/optimizer-Momentum/conv1.weight"), {NodeKind.TENSOR}),
        (parameter("Gradients/conv1.weight"), {NodeKind.TENSOR}),
        (constant("conv1.weight"), {NodeKind.CONSTANT}),
        (operator("Gradients/Default/Mul-op1"), {NodeKind.TENSOR, NodeKind.GRADIENT}),
        (operator("gradients"), {NodeKind.TENSOR, NodeKind.GRADIENT}),
        (operator("Gradients/Default/ReLU-op1"), {NodeKind.TENSOR, NodeKind.GRADIENT}),
        (operator("GradientsOf/Mul-op1"), {NodeKind.TENSOR}),
        (operator("Default/ReLUV2-op1"), {NodeKind.TENSOR, NodeKind.ACTIVATION}),
        (operator("Default/LogSoftmax-op1"), {NodeKind.TENSOR, NodeKind.ACTIVATION}),
        (operator("Default/SiLU-op1"), {NodeKind.TENSOR}),
    ],
)
def test_the_originals_rules_are_kept_to_the_letter(node: Any, expected: set[NodeKind]) -> None:
    assert original_kinds(node) == expected


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("Default/GeluExt-op1", NodeKind.ACTIVATION),
        ("Default/InplaceReLU-op1", NodeKind.ACTIVATION),
        ("Default/SiLU-op1", NodeKind.ACTIVATION),
        ("Default/ReLU6-op1", NodeKind.ACTIVATION),
        ("Default/SoftmaxV2-op1", NodeKind.ACTIVATION),
        ("Default/MatMulBiasAddReluFusion-op1", NodeKind.ACTIVATION),
        ("Default/ReluGrad-op1", NodeKind.GRADIENT),
        ("Gradients/Default/ReLU-op1", NodeKind.GRADIENT),
    ],
)
def test_newer_operators_are_classified_too(name: str, kind: NodeKind) -> None:
    node = operator(name)

    assert kinds(graph(node), node) == {NodeKind.TENSOR, kind}
