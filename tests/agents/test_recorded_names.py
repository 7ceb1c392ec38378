"""In a recording the last parts of the operators' names are unique, and as few names as possible are others."""

from __future__ import annotations

from tensight.agents.core.graph_messages import graph_message
from tensight.agents.core.program import Program, TracedNode
from tensight.agents.core.recording.names import recorded_names
from tensight.graph import parse_graph_proto


def program(*names: str) -> Program:
    nodes = [TracedNode(name, "Some", "operator", ((names[0], 0), None, ("fc1.weight", 0))) for name in names]
    return Program("kernel_graph_0", 0, (TracedNode("fc1.weight", "Parameter", "weight"), *nodes))


def test_names_that_end_alike_get_their_scope() -> None:
    found = recorded_names(
        program(
            "Default/fc1/Linear-op0",
            "Default/blocks/0/out/Linear-op0",
            "Default/blocks/0/out/Linear-op1",
            "Gradients/Default/fc1/weight/AccumulateGrad-op0",
            "Gradients/Default/fc1/bias/AccumulateGrad-op0",
        )
    )
    assert list(found.values()) == [
        "fc1.weight",
        "Default/fc1/Linear_fc1-op0",
        "Default/blocks/0/out/Linear_blocks_0_out-op0",
        "Default/blocks/0/out/Linear-op1",
        "Gradients/Default/fc1/weight/AccumulateGrad_fc1_weight-op0",
        "Gradients/Default/fc1/bias/AccumulateGrad_fc1_bias-op0",
    ]


def test_scopes_that_would_look_alike_are_still_told_apart() -> None:
    names = (
        "Default/a/b/mul-op0",
        "Default/a_b/mul-op0",
        "Gradients/Default/a/b/mul-op0",
        "Default/mul-op0",
        "mul-op0",
    )
    found = recorded_names(program(*names, "Default/mul_a_b-op0"))
    lasts = [name.rpartition("/")[2] for name in found.values()]
    assert len(set(lasts)) == len(lasts)
    assert [name.rpartition("/")[0] for name in found.values()] == [
        "",
        *(name.rpartition("/")[0] for name in names),
        "Default",
    ]
    assert found["Default/mul_a_b-op0"] == "Default/mul_a_b-op0"


def test_nodes_keep_their_names_and_files_have_others() -> None:
    own = program("Default/a/mul-op0", "Default/b/mul-op0")
    graph = parse_graph_proto(graph_message(own, recorded_names(own)), where="a test")
    assert [(node.name, node.full_name, node.scope) for node in graph.operators] == [
        ("Default/a/mul-op0", "Default/a/mul_a-op0", "Default/a"),
        ("Default/b/mul-op0", "Default/b/mul_b-op0", "Default/b"),
    ]
    assert [edge.source for edge in graph.node("Default/b/mul-op0").inputs[::2]] == ["Default/a/mul-op0", "fc1.weight"]
