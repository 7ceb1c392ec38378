"""What tells one network from another."""

from __future__ import annotations

from tensight.graph.fingerprint import fingerprint
from tests.graph.graphs import INTEGER, graph, operator, parameter

MANY = 25_000


def test_networks_with_the_same_parameters_are_the_same_in_any_order_and_however_many_there_are() -> None:
    parameters = [parameter(f"layer{number}.weight") for number in range(MANY)]
    one, other = parameters[: MANY // 2], parameters[MANY // 2 :]
    network = fingerprint([graph(*parameters, operator("Default/Add-op0", "layer0.weight"))])
    assert fingerprint([graph(*other), graph(operator("Default/Mul-op0", "layer0.weight"), *one)]) == network
    assert fingerprint([graph(*parameters[1:])]) != network
    assert fingerprint([graph(*parameters[1:], parameter("layer0.weight", INTEGER))]) != network


def test_without_parameters_the_operators_count() -> None:
    adds = fingerprint([graph(operator("Default/Add-op0"))])
    assert fingerprint([graph(operator("Default/Add-op0"))]) == adds
    assert fingerprint([graph(operator("Default/Mul-op0"))]) != adds
