"""What lies between weights, which gradient belongs to which weight, and where a mask may be."""

from __future__ import annotations

import tracemalloc
from itertools import pairwise

import pytest

from tensight.graph import LayerNode, Layers, find_layers

WEIGHTS = (
    LayerNode("inlet.weight", "Parameter", (), "weight", (8, 4)),
    LayerNode("inlet.bias", "Parameter", (), "weight", (8,)),
    LayerNode("head.weight", "Parameter", (), "weight", (2, 8)),
    LayerNode("positions", "Parameter", (), "weight", (1, 5, 8)),
    LayerNode("frozen.weight", "Parameter", (), "frozen", (8, 8)),
    LayerNode("x", "Parameter", (), "data", (3, 4)),
)


def operator(name: str, *inputs: str, type_: str = "mm", optimizes: bool = False) -> LayerNode:
    return LayerNode(name, type_, inputs, "operator", None, optimizes)


def layers(*operators: LayerNode) -> Layers:
    return find_layers((*WEIGHTS, *operators))


def test_what_comes_from_weights_and_goes_into_weights_is_hidden() -> None:
    found = layers(
        operator("Default/inlet", "x", "inlet.weight", "inlet.bias"),
        operator("Default/relu", "Default/inlet", type_="relu"),
        operator("Default/ones", type_="ones"),
        operator("Default/t", "head.weight", type_="t"),
        operator("Default/head", "Default/relu", "Default/t"),
        operator("Default/loss", "Default/head", type_="sum"),
    )
    assert found.hidden == {"Default/inlet", "Default/relu"}
    assert found.depths["inlet.weight"] == 0
    assert found.depths["head.weight"] == 4


def test_what_is_only_written_over_is_not_hidden() -> None:
    found = layers(
        operator("Default/inlet", "x", "inlet.weight"),
        operator("Default/buffer", type_="zeros"),
        operator("Default/first", "Default/buffer", "Default/inlet", type_="copy_"),
        operator("Default/slice", "Default/first", type_="slice"),
        operator("Default/second", "Default/slice", "Default/inlet", type_="copy_"),
        operator("Default/head", "Default/second", "head.weight"),
    )
    assert found.hidden == {"Default/inlet", "Default/second"}


def test_the_half_of_the_data_that_goes_round_a_layer_lets_it_begin_at_zero() -> None:
    inlet, word, again = WEIGHTS[0], operator("Default/split", "x", type_="split"), "Default/inlet"
    coupled = layers(
        word,
        operator(again, "Default/split", "inlet.weight"),
        operator("Default/add", again, "Default/split", type_="add"),
        operator("Default/head", "Default/add", "head.weight"),
    )
    assert coupled.inner_matrices == set()
    chained = layers(
        word, operator(again, "Default/split", "inlet.weight"), operator("Default/head", again, "head.weight")
    )
    assert chained.inner_matrices == {inlet.name}


def test_an_input_from_outside_is_no_weight() -> None:
    found = layers(
        operator("Default/inlet", "", "inlet.weight"), operator("Default/head", "Default/inlet", "head.weight")
    )
    assert found.hidden == {"Default/inlet"}


def test_matrices_are_trained_weights_but_not_positions() -> None:
    assert layers().matrices == {"inlet.weight", "head.weight"}


def test_the_gradient_that_an_optimizer_reads_is_that_of_the_weight_which_it_updates() -> None:
    found = layers(
        operator("Default/inlet", "x", "inlet.weight"),
        operator("Gradients/Default/mm-op0", "Default/inlet"),
        operator("Gradients/odd", "Gradients/Default/mm-op0", type_="AccumulateGrad"),
        operator("Optimizer/inlet/weight/ApplySGD-op0", "inlet.weight", "Gradients/odd"),
        operator("Gradients/Default/head/weight/AccumulateGrad-op0", type_="AccumulateGrad"),
        operator("Gradients/Default/inlet/bias/AccumulateGrad-op0", type_="AccumulateGrad"),
    )
    assert found.matrix_gradients == {
        "Gradients/odd": "inlet.weight",
        "Gradients/Default/head/weight/AccumulateGrad-op0": "head.weight",
    }
    assert found.depths["Gradients/odd"] == 0


def test_the_gradient_is_found_behind_what_unscales_it_and_what_an_optimizer_does_with_it() -> None:
    shaped = [
        LayerNode("Gradients/Default/dw-op0", "MatMul", ("Default/inlet",), "operator", (8, 4)),
        LayerNode("Default/unscale-op0", "Mul", ("Gradients/Default/dw-op0", "scale"), "operator", (8, 4)),
        LayerNode("Default/rate-op0", "Gather", ("rates",), "operator", ()),
    ]
    found = layers(
        operator("Default/inlet", "x", "inlet.weight"),
        *shaped,
        operator("Default/optimizer-Momentum/Mul-op0", "inlet.weight", type_="Mul", optimizes=True),
        operator(
            "Default/optimizer-Momentum/AddN-op0",
            "Default/optimizer-Momentum/Mul-op0",
            "Default/unscale-op0",
            optimizes=True,
        ),
        operator(
            "Default/optimizer-Momentum/ApplyMomentum-op0",
            *("inlet.weight", "moments.inlet.weight", "Default/rate-op0", "Default/optimizer-Momentum/AddN-op0"),
            optimizes=True,
        ),
    )
    assert found.matrix_gradients == {"Default/unscale-op0": "inlet.weight"}


def test_what_is_expanded_belongs_to_the_pass_it_was_made_in() -> None:
    found = layers(
        operator("Default/inlet", "x", "inlet.weight"),
        operator("Expand/_MatMulExt/BatchMatMul-op0", "Default/inlet"),
        operator("Default/head", "Expand/_MatMulExt/BatchMatMul-op0", "head.weight"),
        operator("Gradients/Default/loss-op0", "Default/head"),
        operator("Expand/_MatMulExt/BatchMatMul-op1", "Gradients/Default/loss-op0", "head.weight"),
        operator("Expand/_Muls/Mul-op0", "Expand/_MatMulExt/BatchMatMul-op1"),
    )
    assert found.hidden == {"Default/inlet", "Expand/_MatMulExt/BatchMatMul-op0"}
    assert found.backward == {
        "Gradients/Default/loss-op0",
        "Expand/_MatMulExt/BatchMatMul-op1",
        "Expand/_Muls/Mul-op0",
    }
    assert found.depths["head.weight"] == 2


def test_operators_of_mindspore_are_known_by_what_they_do() -> None:
    found = layers(
        operator("Default/scores", "x", "inlet.weight", type_="MatMul"),
        operator("Default/Select-op0", "Default/scores", type_="Select"),
        operator("Default/ExpandDims-op0", "Default/Select-op0", type_="ExpandDims"),
        operator("Default/select", "Default/scores", type_="select"),
    )
    assert found.may_mask == {"x", "Default/Select-op0", "Default/ExpandDims-op0"}


def test_a_mask_reaches_as_far_as_it_is_only_handed_on() -> None:
    found = layers(
        operator("Default/scores", "x", "inlet.weight"),
        operator("Default/masked_fill", "Default/scores", type_="masked_fill"),
        operator("Default/add", "Default/masked_fill", type_="add_"),
        operator("Default/softmax", "Default/add", type_="_softmax"),
        operator("Default/log", "Default/scores", type_="log"),
        operator("Default/view", "Default/log", type_="view"),
    )
    assert found.may_mask == {"x", "Default/masked_fill", "Default/add"}


def test_what_is_known_from_two_graphs_is_put_together() -> None:
    one = layers(
        operator("Default/inlet", "x", "inlet.weight"), operator("Default/head", "Default/inlet", "head.weight")
    )
    both = one | Layers(hidden=frozenset({"Default/other"}), depths={"head.weight": 7})
    assert both.hidden == {"Default/inlet", "Default/other"}
    assert both.depths["head.weight"] == 7
    assert both.matrices == one.matrices


@pytest.mark.long
def test_the_memory_that_layers_need_grows_with_the_graph_and_not_with_its_square() -> None:
    def peak_bytes(count: int) -> int:
        names = [f"Default/mm{number}" for number in range(count)]
        chain = [operator(name, before, "inlet.weight") for before, name in pairwise(["x", *names])]
        tracemalloc.start()
        try:
            layers(*chain)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    assert peak_bytes(8000) < 6 * peak_bytes(2000)
