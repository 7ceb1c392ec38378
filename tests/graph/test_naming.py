"""What a person types means one node where that is clear, and leads to what is near where there is none."""

from __future__ import annotations

import time

import pytest

from tensight.errors import InputError
from tensight.graph.naming import meant, nearest, the_one_meant

NAMES = (
    "model.conv1.weight",
    "model.conv1.bias",
    "exp_avg.model.conv1.weight",
    "exp_avg_sq.model.conv1.weight",
    "model.conv2.weight",
    "model.conv2.weight.exp_avg",
    "Default/model/conv1/Conv2d-op0",
    "Gradients/Default/model/conv1/Conv2dGrad-op0",
)


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("model.conv1.weight", "model.conv1.weight"),
        ("conv1.weight", "model.conv1.weight"),
        ("conv2.weight", "model.conv2.weight"),
        ("conv1.wei", "model.conv1.weight"),
        ("exp_avg.model.conv1.weight", "exp_avg.model.conv1.weight"),
        ("conv2.weight.exp_avg", "model.conv2.weight.exp_avg"),
        ("Conv2d-op0", "Default/model/conv1/Conv2d-op0"),
        ("0/kernel_graph_0/Default/model/conv1/Conv2d-op0", "Default/model/conv1/Conv2d-op0"),
    ],
)
def test_a_name_or_its_end_means_a_node_and_a_weight_before_its_states(typed: str, name: str) -> None:
    assert the_one_meant(NAMES, typed) == name


def test_several_are_named_without_the_states_of_any() -> None:
    assert meant(NAMES, "weight") == ["model.conv1.weight", "model.conv2.weight"]
    with pytest.raises(InputError, match=r"'weight' could be model\.conv1\.weight, model\.conv2\.weight; give"):
        the_one_meant(NAMES, "weight")


def test_what_is_near_is_named_weights_without_their_states() -> None:
    with pytest.raises(InputError, match=r"nothing is named 'convl.weight'; similar: model\.conv1\.weight"):
        the_one_meant(NAMES, "convl.weight")
    assert "exp_avg.model.conv1.weight" not in nearest(NAMES, "convl.weight")
    assert nearest(NAMES, "ConvGrad-op0")[0] == "Gradients/Default/model/conv1/Conv2dGrad-op0"
    assert nearest(NAMES, "zzz") == nearest((), "conv1.weight") == []


def test_of_100_000_names_the_nearest_are_found_in_a_moment() -> None:
    names = [f"Default/resnet-ResNet/layer{at % 50}-Cell/{at}-Block/conv-Conv2d/Conv2D-op{at}" for at in range(10**5)]
    before = time.process_time()
    assert nearest([*names, *NAMES], "conv1.weihgt")[0] == "model.conv1.weight"
    nearest(names, "x" * 10_000)
    assert time.process_time() - before < 20
