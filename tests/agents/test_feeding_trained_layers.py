"""Which weights go into layers that a step trains."""

from __future__ import annotations

from tensight.agents.core.program import TracedNode
from tensight.agents.eager.feeding import feeding
from tensight.agents.eager.traced_programs import Trace
from tensight.graph import OutputSlot
from tensight.graph.data_types import DT_TENSOR


def layer(name: str, *inputs: str) -> TracedNode:
    return TracedNode(f"Default/{name}/Linear-op0", "Linear", inputs=tuple((one, 0) for one in inputs))


def given(name: str, dtype: str) -> TracedNode:
    return TracedNode(name, "Parameter", "input", outputs=(OutputSlot(DT_TENSOR, dtype, (2,)),))


TRUNK = layer("trunk", "x", "trunk.weight")
POOLER = layer("pooler", TRUNK.name, "pooler.weight")
HEAD = layer("head", TRUNK.name, "head.weight")


def test_what_goes_into_a_trained_layer_feeds_it_and_what_nobody_reads_does_not() -> None:
    feeds = feeding(Trace((given("x", "float32"),), (TRUNK, POOLER, HEAD)), {"head.weight"})
    assert {"x", "trunk.weight", TRUNK.name} <= feeds
    assert "pooler.weight" not in feeds


def test_what_a_trained_layer_reads_of_unknown_origin_may_come_from_any_earlier_one() -> None:
    lost = layer("head", "y", "head.weight")
    cut_off = Trace((given("x", "float32"), given("y", "float32")), (TRUNK, lost))
    assert "trunk.weight" in feeding(cut_off, {"head.weight"})
    labels = Trace((given("x", "float32"), given("y", "int64")), (TRUNK, lost))
    assert "trunk.weight" not in feeding(labels, {"head.weight"})


def test_gradients_and_updates_feed_nothing() -> None:
    update = TracedNode(
        "Optimizer/head/weight/ApplyAdam-op0", "ApplyAdam", inputs=(("pooler.weight", 0), ("head.weight", 0))
    )
    assert "pooler.weight" not in feeding(Trace((), (TRUNK, HEAD, update)), {"head.weight"})
