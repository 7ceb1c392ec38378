"""Which NaN and Inf a step goes on with, and which come to nothing."""

from __future__ import annotations

import pytest

from tensight.graph import LayerNode
from tensight.graph.spreading import NonFinite, Spreading

NAN, INF = NonFinite.NAN, NonFinite.INF
DATA = LayerNode("x", "Parameter", (), "data", (3, 4))


def operator(name: str, type_: str, *inputs: str, is_integer: bool = False) -> LayerNode:
    return LayerNode(name, type_, inputs, "operator", None, is_integer=is_integer)


LOG = operator("log", "log", "x")


def spreads(*nodes: LayerNode, **kinds: NonFinite) -> set[str]:
    return set(Spreading((DATA, *nodes)).spreading(kinds.keys(), kinds))


@pytest.mark.parametrize("type_", ["where", "masked_fill_", "nan_to_num", "index", "minimum", "clamp", "Select"])
def test_what_an_operator_leaves_out_comes_to_nothing(type_: str) -> None:
    assert not spreads(LOG, operator("chosen", type_, "log"), operator("head", "mm", "chosen"), log=NAN | INF)


def test_what_goes_on_is_told_where_it_began_and_where_it_goes() -> None:
    chosen, head = operator("chosen", "where", "log"), operator("head", "mm", "chosen")
    assert spreads(LOG, chosen, head, log=INF, chosen=INF, head=NAN) == {"log", "chosen", "head"}


def test_the_logarithm_of_a_distance_is_left_out_where_it_becomes_a_number_of_a_bucket() -> None:
    scaled = operator("scaled", "div", "log")
    bucket = operator("bucket", "_to_copy", "scaled", is_integer=True)
    assert not spreads(LOG, scaled, bucket, log=INF, scaled=INF)


def test_what_comes_out_in_the_end_is_told() -> None:
    assert spreads(LOG, log=NAN) == {"log"}
    assert spreads(LOG, operator("shown", "view", "log"), log=NAN) == {"log"}


def test_infinity_that_saturates_is_not_left_out() -> None:
    assert spreads(LOG, operator("gate", "sigmoid", "log"), log=INF) == {"log"}


def test_infinity_that_somebody_has_written_down_is_a_value_like_others() -> None:
    best = operator("best", "full_like", "x")
    assert not spreads(best, best=INF)
    assert not spreads(best, operator("shown", "view", "best"), best=INF)
    assert spreads(best, operator("product", "mul", "best"), best=INF, product=NAN) == {"best", "product"}


def test_a_gap_in_the_data_that_a_layer_reads_is_told() -> None:
    asked = operator("asked", "isnan", "x", is_integer=True)
    filled = operator("filled", "where", "asked", "x")
    assert not spreads(asked, filled, x=NAN)
    assert spreads(asked, filled, operator("layer", "mm", "x"), x=NAN, layer=NAN) == {"x", "layer"}


def test_masks_of_infinity_do_not_carry_nan() -> None:
    masked = operator("masked", "masked_fill", "log")
    assert not spreads(LOG, masked, operator("seen", "softmax", "masked"), log=NAN, masked=INF) & {"log"}


def test_an_operator_before_a_choice_waits_for_it() -> None:
    scaled, chosen = operator("scaled", "mul", "log"), operator("chosen", "where", "scaled")
    found = Spreading((DATA, LOG, scaled, chosen, operator("head", "mm", "x")))
    assert found.may_be_left_out("log")
    assert found.may_be_left_out("scaled")
    assert not found.may_be_left_out("chosen")
    assert not found.may_be_left_out("head")


def test_within_a_step_only_what_has_arrived_somewhere_is_told() -> None:
    nodes = DATA, LOG, operator("other", "log", "x"), operator("sum", "add", "log"), operator("head", "mm", "sum")
    found = Spreading(nodes).spreading({"log", "other"}, {"log": INF, "other": INF, "sum": INF, "head": NAN}, {"head"})
    assert found == {"log"}


def test_a_gradient_that_is_nan_when_it_comes_shows_nothing_of_what_its_operator_reads() -> None:
    # -Inf hides words from attention; the NaN of another layer reaches its gradient from behind.
    masked, weights = operator("masked", "masked_fill", "x"), operator("weights", "softmax", "masked")
    loss, head = operator("loss", "log", "weights"), operator("Gradients/head", "LogGrad", "loss")
    grad = operator("Gradients/weights", "SoftmaxGrad", "Gradients/head", "masked")
    both = Spreading((DATA, masked, weights, loss, head, grad), with_backward=True)
    kinds = {"masked": INF, "loss": NAN, "Gradients/head": NAN, "Gradients/weights": NAN}
    assert both.spreading(("masked", "loss"), kinds) == {"loss"}
    assert both.spreading(("masked",), {"masked": INF, "Gradients/weights": NAN}) == {"masked"}
