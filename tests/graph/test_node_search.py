from __future__ import annotations

import pytest

from tensight.errors import InputError
from tensight.graph import Graph, Node, search
from tests.graph.graphs import graph, names, operator, parameter


def network() -> Graph:
    stack = (
        "      #  - In file /p/net.py:16/    x = self.relu(x)/",
        "      # In file /p/train.py:9/    loss = net(x)/",
        "",
    )
    return graph(
        parameter("conv1.weight"),
        Node("Default/ReLU-op1", "ReLU", "Default", stack=stack),
        Node("Default/Mul-op2", "Mul", "Default", stack=stack[1:]),
        operator("Gradients/Default/ReluGrad-op3"),
    )


@pytest.mark.parametrize(
    ("query", "by", "expected"),
    [
        ("ReLU", "name", ["Default/ReLU-op1"]),
        ("op", "name", ["Default/ReLU-op1", "Default/Mul-op2", "Gradients/Default/ReluGrad-op3"]),
        ("Relu", "type", ["Gradients/Default/ReluGrad-op3"]),
        ("weight", "kind", ["conv1.weight"]),
        ("gradient", "kind", ["Gradients/Default/ReluGrad-op3"]),
        ("net.py:16", "stack", ["Default/ReLU-op1"]),
        ("# - /p/net.py:16  x = self", "stack", ["Default/ReLU-op1"]),
        ("loss = net(x)", "stack", ["Default/ReLU-op1", "Default/Mul-op2"]),
        ("absent", "stack", []),
        (".*", "name", []),
    ],
)
def test_a_part_is_enough(query: str, by: str, expected: list[str]) -> None:
    assert names(search(network(), query, by=by)) == expected  # type: ignore[arg-type]


def test_case_may_be_ignored() -> None:
    assert names(search(network(), "relu", case_sensitive=False)) == [
        "Default/ReLU-op1",
        "Gradients/Default/ReluGrad-op3",
    ]
    assert names(search(network(), "RELU", by="type", regex=True, case_sensitive=False)) == names(
        search(network(), "relu", case_sensitive=False)
    )
    assert names(search(network(), "Weight", by="kind", case_sensitive=False)) == ["conv1.weight"]


def test_a_regular_expression_need_not_match_the_whole() -> None:
    assert names(search(network(), r"^Default/.*-op\d$", regex=True)) == ["Default/ReLU-op1", "Default/Mul-op2"]
    assert names(search(network(), r"py:\d\b", by="stack", regex=True)) == ["Default/ReLU-op1", "Default/Mul-op2"]
    assert names(search(network(), "gradient|weight", by="kind", regex=True)) == [
        "conv1.weight",
        "Gradients/Default/ReluGrad-op3",
    ]


def test_several_graphs_are_searched_in_order() -> None:
    assert len(search([network(), network()], "Mul")) == 2


@pytest.mark.parametrize(
    ("query", "options", "message"),
    [
        ("(", {"regex": True}, "not a valid regular expression"),
        ("x", {"by": "colour"}, "'colour'"),
        ("wheight", {"by": "kind"}, "kinds are weight"),
    ],
)
def test_wrong_questions_say_what_is_wrong(query: str, options: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        search(network(), query, **options)  # type: ignore[arg-type]
