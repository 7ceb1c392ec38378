"""Where zeros are propagated, and where they originate."""

from __future__ import annotations

import pytest

from tensight.graph import LayerNode, ZeroProvenance, find_layers

PARAMETERS = (
    LayerNode("inlet.weight", "Parameter", (), "weight", (8, 4)),
    LayerNode("again.weight", "Parameter", (), "weight", (8, 8)),
    LayerNode("head.weight", "Parameter", (), "weight", (2, 8)),
    LayerNode("x", "Parameter", (), "data", (3, 4)),
    LayerNode("words", "Parameter", (), "data", (3, 4), is_integer=True),
)


def operator(name: str, type_: str, *inputs: str, slots: tuple[int, ...] = (), is_integer: bool = False) -> LayerNode:
    return LayerNode(f"Default/{name}", type_, inputs, "operator", None, False, slots, is_integer)


def provenance(name: str, *operators: LayerNode) -> ZeroProvenance:
    return find_layers((*PARAMETERS, *operators)).zero_provenances[f"Default/{name}"]


ZEROS = operator("zeros", "zeros")
INLET = operator("inlet", "mm", "x", "inlet.weight")


def test_a_product_hands_on_the_zeros_of_any_factor() -> None:
    turned = operator("t", "t", "again.weight")
    found = provenance("again", ZEROS, turned, operator("again", "mm", "Default/zeros", "Default/t"))
    assert found == ZeroProvenance((("Default/zeros", 0), ("again.weight", 0)), all_of_them=False)
    assert found.propagates([True, False]) is True
    assert found.propagates([True, None]) is True
    assert found.propagates([False, False]) is False
    assert found.propagates([False, None]) is None


def test_a_sum_hands_on_zeros_only_if_there_is_nothing_else() -> None:
    found = provenance("add", ZEROS, INLET, operator("add", "add_", "Default/zeros", "Default/inlet"))
    assert found.all_of_them
    assert found.propagates([True, False]) is False
    assert found.propagates([True, True]) is True
    assert found.propagates([True, None]) is None


def test_one_output_of_several_is_meant() -> None:
    split = operator("split", "split", "Default/inlet")
    found = provenance("tanh", INLET, split, operator("tanh", "tanh", "Default/split", slots=(2,)))
    assert found.sources == (("Default/split", 2),)


MASK = (
    operator("greater", "gt", "x", is_integer=True),
    operator("mask", "_to_copy", "Default/greater"),
    operator("gated", "mul", "Default/inlet", "Default/mask"),
)


def test_a_mask_is_no_reason_for_zeros_unless_something_else_takes_their_place() -> None:
    head = operator("head", "mm", "Default/gated", "head.weight")
    assert provenance("gated", INLET, *MASK, head).sources == (("Default/inlet", 0),)
    branch = operator("branch", "mm", "x", "again.weight")
    gate = provenance("gated", INLET, *MASK, branch, operator("sum", "add", "Default/gated", "Default/branch"))
    assert gate == ZeroProvenance()
    assert gate.propagates([]) is True
    itself = provenance("gated", INLET, *MASK, operator("sum", "add", "Default/gated", "Default/gated"))
    assert itself.sources == (("Default/inlet", 0),)


@pytest.mark.parametrize("maker", ["new_zeros", "zeros_like"])
def test_a_state_that_has_only_the_form_of_words_is_no_mask(maker: str) -> None:
    state = operator("state", maker, "words")
    found = provenance("gated", INLET, state, operator("gated", "mul", "Default/inlet", "Default/state"))
    assert found.sources == (("Default/inlet", 0), ("Default/state", 0))


@pytest.mark.parametrize("maker", ["new_zeros", "zeros_like", "ZerosLike", "randn_like"])
def test_what_has_only_the_form_of_a_layer_is_no_part_of_the_network(maker: str) -> None:
    state = operator("state", maker, "Default/inlet")
    layers = find_layers((*PARAMETERS, INLET, state, operator("head", "mm", "Default/state", "head.weight")))
    assert "Default/state" not in layers.hidden


def test_indices_are_no_zeros() -> None:
    assert provenance("embedding", operator("embedding", "embedding", "inlet.weight", "words")).sources == (
        ("inlet.weight", 0),
    )


def test_what_reads_something_that_nobody_sees_is_not_judged() -> None:
    assert provenance("gated", INLET, operator("gated", "Cell", "Default/inlet", "")) == ZeroProvenance()


def inner_matrices(*forward: LayerNode, more: tuple[LayerNode, ...] = ()) -> frozenset[str]:
    return find_layers((*PARAMETERS, *more, *forward)).inner_matrices


def test_the_last_matrix_and_what_nobody_reads_may_begin_at_zero() -> None:
    assert inner_matrices(INLET, operator("head", "mm", "Default/inlet", "head.weight")) == {"inlet.weight"}


def test_what_stands_beside_another_branch_may_begin_at_zero() -> None:
    branch = operator("branch", "mm", "Default/inlet", "again.weight")
    last = operator("head", "mm", "Default/sum", "head.weight")
    alone = operator("sum", "relu", "Default/branch")
    assert inner_matrices(INLET, branch, alone, last) == {"inlet.weight", "again.weight"}
    beside = operator("sum", "add", "Default/inlet", "Default/branch")
    assert inner_matrices(INLET, branch, beside, last) == {"inlet.weight"}


def test_what_modules_read_unseen_goes_round_others() -> None:
    base = operator("block/base", "Linear", "Default/inlet", "base.weight")
    branch = operator("block/branch/op", "Linear", "Default/inlet", "again.weight")
    block = operator("block", "Block", "Default/block/branch/op")
    head = operator("head", "Linear", "Default/block", "head.weight")
    assert inner_matrices(INLET, branch, block, head) == {"inlet.weight", "again.weight"}
    unread = LayerNode("Default/block/base/op", base.type, base.inputs, "operator")
    around = LayerNode("Default/block/op", "Block", block.inputs, "operator")
    head = operator("head", "Linear", "Default/block/op", "head.weight")
    more = LayerNode("base.weight", "Parameter", (), "frozen", (8, 8))
    assert inner_matrices(INLET, unread, branch, around, head, more=(more,)) == {"inlet.weight"}


def test_a_frozen_layer_does_not_hide_that_another_one_begins_at_zero() -> None:
    frozen = LayerNode("base.weight", "Parameter", (), "frozen", (8, 8))
    base = operator("base", "mm", "Default/inlet", "base.weight")
    last = operator("head", "mm", "Default/base", "head.weight")
    assert inner_matrices(INLET, base, last, more=(frozen,)) == {"inlet.weight"}


@pytest.mark.parametrize(("type_", "found"), [("add", set()), ("mul", set()), ("conv2d", {"gain"})])
def test_a_shift_or_a_gain_for_channels_is_no_matrix(type_: str, found: set[str]) -> None:
    gain = LayerNode("gain", "Parameter", (), "weight", (1, 8, 1, 1))
    forward = (
        operator("gained", type_, "Default/inlet", "gain"),
        operator("head", "mm", "Default/gained", "head.weight"),
    )
    assert inner_matrices(INLET, *forward, more=(gain,)) == {"inlet.weight", *found}


@pytest.mark.parametrize("type_", ["gt", "Greater", "LogicalAnd", "is_nan", "IsFinite"])
def test_that_nothing_answers_a_question_with_yes_is_no_fault(type_: str) -> None:
    found = provenance("asked", INLET, operator("asked", type_, "Default/inlet", is_integer=True))
    assert found.propagates([]) is True


def test_a_bias_is_added_to_what_was_computed() -> None:
    found = provenance("sum", INLET, operator("sum", "BiasAdd", "Default/inlet", "head.weight"))
    assert found == ZeroProvenance((("Default/inlet", 0), ("head.weight", 0)), all_of_them=True)
