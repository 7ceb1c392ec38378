"""What lies between weights, which gradient belongs to which weight, and where a mask may be."""

from __future__ import annotations

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
