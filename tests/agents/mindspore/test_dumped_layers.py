"""What watchpoints select in a training on MindSpore, by the graphs of real ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tensight.agents.core.watching.selection import layers_of
from tensight.graph import NodeKind, kinds
from tensight.graph.layers import graph_layers
from tensight.sessions.graph_index import GraphIndex
from tensight.sessions.selection import WatchedNodes, watched
from tensight.watchpoints import Selector, selected_nodes
from tensight.watchpoints.recommended import LIVE_RECOMMENDED
from tests.agents.mindspore.test_dumped_programs import HEALTHY, SICK, Dumped
from tests.agents.test_watching_steps import Process, found

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tensight.agents.core.program import Program
    from tensight.graph import Graph, Layers

DENSE = {"network.hidden.weight", "network.middle.weight", "network.out.weight"}
CONVOLUTIONAL = {
    *(f"network.{name}.weight" for name in ("conv", "dead.conv", "fc1", "fc2", "probe.inner", "probe.outer")),
}


class Network:
    """The program of a dump, and a process in which its nodes are slots."""

    def __init__(self, folder: Path) -> None:
        dumped = Dumped(folder)
        dumped.learn()
        self.program: Program = dumped.program().program
        self.graph: Graph = dumped.graph()
        self.layers: Layers = layers_of(self.program)
        self.process = Process()
        self.process.watches.learn(self.program)
        self.names = {node.name for node in self.program.nodes if node.role != "constant"}
        for node in self.program.nodes:
            if node.role != "constant":
                self.process.slot_id(node.name, node.type, node.role)

    def selected(self, selection: str) -> set[str]:
        """Return what a watchpoint watches: everything that it finds NaN in."""
        assert self.process.watch("tensor_overflow", selection) == ""
        values = {slot_id: [float("nan")] for slot_id in range(len(self.process.slot_table))}
        return {name for _, name in found(self.process.step(values))}


@pytest.fixture
def network(unpacked: Callable[[str], Path]) -> Callable[[str], Network]:
    return lambda name: Network(unpacked(name))


@pytest.mark.parametrize("name", [*SICK, *HEALTHY])
def test_layers_are_those_of_the_dump(name: str, network: Callable[[str], Network]) -> None:
    one = network(name)
    own, dumped = one.layers, graph_layers(one.graph)
    assert own.hidden == dumped.hidden
    assert own.matrices == dumped.matrices
    assert own.matrix_gradients == dumped.matrix_gradients
    assert own.may_mask == dumped.may_mask
    assert own.backward == dumped.backward
    assert own.zero_provenances == dumped.zero_provenances


@pytest.mark.parametrize("name", [*SICK, *HEALTHY])
def test_weights_gradients_and_activations_are_those_of_the_dump(name: str, network: Callable[[str], Network]) -> None:
    one = network(name)
    selections = {
        "trainable_weights": NodeKind.WEIGHT,
        "gradients": NodeKind.GRADIENT,
        "activations": NodeKind.ACTIVATION,
    }
    for selection, kind in selections.items():
        expected = {node.name for node in one.graph.nodes if kind in kinds(one.graph, node) and node.name in one.names}
        assert one.selected(selection) == expected
        assert expected


SELECTIONS = (
    *("all", "weights", "trainable_weights", "gradients", "activations", "activation:relu,tanh", "hidden"),
    *("hidden_activation:relu", "matrices", "inner_matrices", "matrix_gradients", "type:MatMul,conv2d", "name:fc.*op"),
)


@pytest.mark.parametrize("name", [*SICK, *HEALTHY])
def test_a_selector_means_the_same_in_a_training_a_session_and_a_dump(
    name: str, network: Callable[[str], Network]
) -> None:
    one = network(name)
    index = GraphIndex(one.graph)
    for selection in SELECTIONS:
        selector = Selector.parse(selection)
        dumped = selected_nodes(one.graph, selector, (one.graph,))
        shown = WatchedNodes(index, watched(index, selector, (), (one.graph,))).names
        assert shown == dumped
        assert one.selected(selection) == dumped & one.names, selection


@pytest.mark.parametrize("name", SICK)
def test_a_convolutional_network(name: str, network: Callable[[str], Network]) -> None:
    one = network(name)
    assert one.selected("matrices") == CONVOLUTIONAL
    # Beside the others runs another branch, or what is made of the data alone.
    assert one.selected("inner_matrices") == {"network.probe.inner.weight"}
    assert set(one.layers.matrix_gradients.values()) == CONVOLUTIONAL
    assert len(one.selected("hidden_activation:relu,relu6")) == 3
    gradients = one.selected("matrix_gradients")
    assert len(gradients) == len(CONVOLUTIONAL)
    assert all(gradient.startswith("Gradients/") for gradient in gradients)
    hidden = one.selected("hidden")
    types = {node.type for node in one.program.nodes if node.name in hidden}
    assert {"Conv2D", "BiasAdd", "ReLU", "Concat"} <= types
    assert types.isdisjoint({"ReluGrad", "ApplyMomentum", "Conv2DBackpropFilter", "Log"})


@pytest.mark.parametrize("name", HEALTHY)
def test_a_perceptron_trained_by_adam(name: str, network: Callable[[str], Network]) -> None:
    one = network(name)
    assert one.selected("matrices") == DENSE
    assert one.selected("inner_matrices") == DENSE - {"network.out.weight"}
    assert set(one.layers.matrix_gradients.values()) == DENSE
    assert {node.rpartition("/")[2].partition("-")[0] for node in one.selected("hidden_activation:tanh")} == {"Tanh"}
    assert {node.rpartition("/")[2].partition("-")[0] for node in one.selected("hidden_activation:sigmoid")} == {
        "Sigmoid"
    }
    assert one.layers.depths["network.hidden.weight"] < one.layers.depths["network.out.weight"]


@pytest.mark.parametrize("name", [*SICK, *HEALTHY])
def test_every_recommended_watchpoint_but_those_of_other_functions_finds_something_to_watch(
    name: str, network: Callable[[str], Network]
) -> None:
    one = network(name)
    without = (
        {"hidden_activation:tanh", "hidden_activation:sigmoid"} if name in SICK else {"hidden_activation:relu,relu6"}
    )
    for spec in LIVE_RECOMMENDED:
        assert bool(one.selected(str(spec.selection))) == (str(spec.selection) not in without)
