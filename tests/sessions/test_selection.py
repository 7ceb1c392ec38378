"""Which nodes a watchpoint watches."""

from __future__ import annotations

from functools import reduce
from operator import or_
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensight.agents.core.graph_messages import graph_message
from tensight.agents.core.program import Program, TracedNode
from tensight.agents.core.slots import DeclaredNode, SlotTable, TensorSlot
from tensight.agents.core.watching.selection import Selection, layers_of
from tensight.dumps import open_dump
from tensight.errors import InputError
from tensight.graph import Graph, OutputSlot, data_type_number, parse_graph_proto
from tensight.sessions.graph_index import GraphIndex
from tensight.sessions.records import Edit
from tensight.sessions.selection import (
    MOST_EDITS_BY_TEXT,
    WatchedNodes,
    effective_edits,
    parse_selection,
    selection_text,
    selection_words,
    watched,
)
from tensight.watchpoints import Selector, layers_of_graphs, selected_nodes
from tensight.wire import ReceivedWatchpoint
from tests.sessions.still_session import constant, cpu_seconds, operator, parameter, shared_large_graph

NETWORK = Graph(
    "kernel_graph_0",
    [
        parameter("conv1.weight"),
        parameter("conv1.bias"),
        constant("Default--data-3"),
        operator("Default/network/conv1/Conv2D-op1", "conv1.weight", "Default--data-3"),
        operator("Default/network/conv1/BiasAdd-op2", "Default/network/conv1/Conv2D-op1", "conv1.bias"),
        operator("Default/network/conv10/ReLU-op3", "Default/network/conv1/BiasAdd-op2"),
        operator("Default/Return-op4", "Default/network/conv10/ReLU-op3"),
        operator("MakeTuple-op5", "Default/Return-op4"),
    ],
)
OPERATORS = {node.name for node in NETWORK.operators}
PARAMETERS = {"conv1.weight", "conv1.bias"}


def names(base: str, *edits: Edit, graph: Graph = NETWORK) -> set[str]:
    index = GraphIndex(graph)
    return set(WatchedNodes(index, watched(index, parse_selection(base), effective_edits(edits), (graph,))).names)


def test_all_are_operators_and_parameters_but_never_constants() -> None:
    assert names("all") == OPERATORS | PARAMETERS


def test_none_is_nothing_until_an_edit_adds_some() -> None:
    assert names("none") == set()
    assert names("none", Edit(path="conv1.bias")) == {"conv1.bias"}


def test_a_scope_means_everything_below_and_not_what_only_begins_alike() -> None:
    assert names("none", Edit(path="Default/network/conv1")) == {
        "Default/network/conv1/Conv2D-op1",
        "Default/network/conv1/BiasAdd-op2",
    }


def test_the_last_edit_that_covers_a_node_decides() -> None:
    assert names(
        "none",
        Edit(path="Default"),
        Edit(add=False, path="Default/network"),
        Edit(path="Default/network/conv10/ReLU-op3"),
    ) == {"Default/Return-op4", "Default/network/conv10/ReLU-op3"}


def test_the_empty_path_is_everything() -> None:
    assert names("weights", Edit(path="")) == OPERATORS | PARAMETERS
    assert names("all", Edit(add=False, path="")) == set()


def test_the_groups_of_the_tree_can_be_edited_but_constants_stay_out() -> None:
    assert names("none", Edit(path="@parameters")) == PARAMETERS
    assert names("none", Edit(path="@constants"), Edit(path="Default--data-3")) == set()


def test_a_text_narrows_an_edit_in_any_case() -> None:
    assert names("none", Edit(path="", containing="CONV1")) == {
        *PARAMETERS,
        *(name for name in OPERATORS if "conv1" in name),
    }
    assert names("all", Edit(add=False, path="Default/network", containing="relu")) == (OPERATORS | PARAMETERS) - {
        "Default/network/conv10/ReLU-op3"
    }
    assert names("none", Edit(path="conv1.weight", containing="bias")) == set()


def test_an_edit_of_another_graph_changes_nothing_here() -> None:
    assert names("none", Edit(path="", graph="kernel_graph_1")) == set()
    assert names("none", Edit(path="conv1.bias", graph="kernel_graph_0")) == {"conv1.bias"}


def test_a_path_that_is_not_there_changes_nothing() -> None:
    assert names("all", Edit(add=False, path="Default/net")) == OPERATORS | PARAMETERS


def test_ticking_to_and_fro_leaves_one_edit() -> None:
    edits = [Edit(add=bool(turn % 2), path="Default/network") for turn in range(15_000)]
    assert effective_edits(edits) == (edits[-1],)


def test_an_edit_of_everything_makes_earlier_ones_needless() -> None:
    last = Edit(add=False, path="")
    assert effective_edits([Edit(path="a"), Edit(path="b", containing="x"), last]) == (last,)


def test_too_many_edits_are_refused() -> None:
    with pytest.raises(InputError, match="10,001 edits"):
        effective_edits(Edit(path=f"node{number}") for number in range(10_001))
    with pytest.raises(InputError, match="501 of them by text"):
        effective_edits(Edit(path="", containing=f"n{number}") for number in range(MOST_EDITS_BY_TEXT + 1))
    with pytest.raises(InputError, match="the text of an edit has 1,001 characters"):
        effective_edits([Edit(path="", containing="x" * 1001)])


@pytest.mark.parametrize("text", ["all", "weights", "trainable_weights", "gradients", "name:conv1.*", "none"])
def test_a_selection_is_read_as_it_is_written(text: str) -> None:
    assert selection_text(parse_selection(text)) == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("weihgts", "there is no selector"),
        ("name:(", "is not a valid regular expression"),
        ("name:(?=x)", "look-around"),
        (r"name:(a)\1", "references"),
        ("name:" + "x" * 1001, "1,001 characters"),
        ("weights:all", "takes no"),
    ],
)
def test_a_selection_that_cannot_be_used_is_refused(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_selection(text)


def test_words_say_what_is_watched() -> None:
    edits = (Edit(path="a"),)
    assert selection_words(parse_selection("weights"), ()) == "the weights"
    assert selection_words(parse_selection("weights"), edits) == "the weights, with changes"
    assert selection_words(None, edits) == "chosen nodes"
    assert selection_words(parse_selection("name:conv.*"), ()) == "the nodes whose names match 'conv.*'"
    assert selection_words(parse_selection("type:MatMul,Conv2D"), ()) == "the outputs of the operators MatMul, Conv2D"


def test_every_selector_finds_what_it_finds_in_a_dump(dump_200: Path, dump_210_second: Path) -> None:
    texts = ("all", "weights", "trainable_weights", "gradients", "activations", "activation:relu", "type:MatMul,ReLU")
    for dump in (open_dump(dump_200), open_dump(dump_210_second)):
        graphs = dump.graphs(0)
        for graph in graphs:
            index = GraphIndex(graph)
            for text in (*texts, "name:(?i)conv.*weight|Mat"):
                selector = Selector.parse(text)
                expected = {
                    name for name in selected_nodes(graph, selector, graphs) if name in graph and "data-" not in name
                }
                found = WatchedNodes(index, watched(index, selector, (), graphs)).names
                assert found == expected, (graph.name, text)


def test_scopes_are_watched_in_part_in_whole_or_never() -> None:
    index = GraphIndex(NETWORK)
    nodes = WatchedNodes(index, watched(index, None, (Edit(path="Default/network/conv1"),)))
    states = {path: nodes.watching.of_stretch(stretch) for path, stretch in index.scopes.items()}
    assert states == {
        "": "some",
        "Default": "some",
        "Default/network": "some",
        "Default/network/conv1": "all",
        "Default/network/conv10": "none",
        "@parameters": "none",
        "@constants": "never",
    }
    assert nodes.watching.of_node(index.positions["Default--data-3"]) == "never"
    assert nodes.watching.of_node(index.positions["Default/network/conv1/Conv2D-op1"]) == "all"
    assert nodes.count == 2


PATHS = ["", "@parameters", "@constants", "Default", "Default/network", "Default/network/conv1", "conv1.weight"]
EDITS = st.builds(
    Edit,
    add=st.booleans(),
    path=st.sampled_from([*PATHS, *sorted(OPERATORS)]),
    graph=st.sampled_from(["", "kernel_graph_0", "other"]),
    containing=st.sampled_from(["", "conv1", "ReLU", "zzz"]),
)


def covers(edit: Edit, name: str) -> bool:
    node = NETWORK.node(name)
    inside = (
        edit.path == ""
        or edit.path == name
        or (node.is_operator and (node.scope + "/").startswith(edit.path + "/"))
        or (node.is_parameter and edit.path == "@parameters")
    )
    return inside and edit.graph in ("", NETWORK.name) and edit.containing.lower() in name.lower()


@settings(deadline=None)
@given(st.lists(EDITS, max_size=8), st.sampled_from(["none", "all", "weights"]))
def test_edits_are_as_if_each_node_looked_for_the_last_one_that_covers_it(edits: list[Edit], base: str) -> None:
    start = names(base)
    expected = set()
    for name in OPERATORS | PARAMETERS:
        last = next((edit for edit in reversed(edits) if covers(edit, name)), None)
        if last.add if last is not None else name in start:
            expected.add(name)
    assert names(base, *edits) == expected


def test_names_that_look_like_groups_or_are_empty_stay_apart() -> None:
    odd = Graph("g", [operator("@parameters/A-op1"), operator("/B-op2"), operator("//C-op3"), parameter("p")])
    index = GraphIndex(odd)
    assert sorted(node.name for node in index.order) == ["//C-op3", "/B-op2", "@parameters/A-op1", "p"]
    assert len(index.scopes) == len({id(stretch) for stretch in index.scopes.values()})
    assert names("none", Edit(path="@parameters"), graph=odd) == {"p"}
    for stretch in index.scopes.values():
        assert all(child.path != stretch.path for child in stretch.scopes)


def test_a_hostile_regular_expression_takes_no_time() -> None:
    graph = Graph("g", [operator(f"Default/{'a' * 40}{number}b-op{number}") for number in range(2000)])
    assert names("name:b.*x", graph=graph) == set()
    assert cpu_seconds(lambda: names("name:(a+)+$", graph=graph)) < 10


@pytest.mark.long
def test_ten_thousand_edits_of_a_large_graph_take_less_than_a_second() -> None:
    graph = shared_large_graph()
    index = GraphIndex(graph)
    edits = effective_edits(
        Edit(add=bool(number % 3), path=node.name) for number, node in enumerate(graph.operators[:9_900])
    )
    edits += tuple(Edit(path="", containing=f"layer{number}/") for number in range(20))
    watched(index, None, edits[-1:])
    assert cpu_seconds(lambda: watched(index, parse_selection("all"), edits)) < 20
    mask = watched(index, parse_selection("all"), edits)
    assert 0 < np.count_nonzero(mask) < len(graph)


FLOAT = OutputSlot.of_tensor(data_type_number("DT_FLOAT32") or 0, (4, 4))
WHOLE = OutputSlot.of_tensor(data_type_number("DT_INT32") or 0, (4, 4))
SCOPES = (
    "Default/net",
    "Gradients/Default/net",
    "Optimizer/net",
    "Expand",
    "Default/optimizer-Adam",
    "Default/Gradients",
)
TYPES = (
    *(
        "Linear",
        "ReLU",
        "relu_",
        "ClipGrad",
        "ReluGrad",
        "AccumulateGrad",
        "ApplyAdam",
        "Tanh",
        "MatMul",
        "where",
        "Add",
    ),
    *("GeluExt", "Cast"),
)
ROLES = ("weight", "weight", "frozen_weight", "state", "buffer", "input", "constant")
SELECTIONS = (
    *("all", "weights", "trainable_weights", "gradients", "activations", "activation:relu,tanh", "hidden"),
    *(
        "hidden_activation:relu,gelu",
        "matrices",
        "inner_matrices",
        "matrix_gradients",
        "type:linear,ClipGrad,parameter",
    ),
    *("name:^Default/.*Grad", r"name:(?i)relu-op\d$", r"name:^w\w+$"),
)


@st.composite
def programs(draw: st.DrawFn, number: int = 0) -> Program:
    """Return a program of anything: every type in every scope, read by everything that comes later."""
    nodes = [
        TracedNode(
            f"{role[0]}{at}.wéight" if at % 2 else f"{role[0]}{at}",
            "Const" if role == "constant" else "Parameter",
            role,
            outputs=(draw(st.sampled_from([FLOAT, WHOLE])),),
        )
        for at, role in enumerate(draw(st.lists(st.sampled_from(ROLES), max_size=6)))
    ]
    for at in range(draw(st.integers(0, 10))):
        sources = st.one_of(st.none(), st.sampled_from([(node.name, 0) for node in nodes]) if nodes else st.none())
        kind, scope = draw(st.sampled_from(TYPES)), draw(st.sampled_from(SCOPES))
        inputs = tuple(draw(st.lists(sources, max_size=3)))
        outputs = (draw(st.sampled_from([FLOAT, WHOLE])),) * draw(st.integers(1, 2))
        nodes.append(TracedNode(f"{scope}/{kind}-op{at}", kind, "operator", inputs, outputs))
    return Program(f"kernel_graph_{number}", number, tuple(nodes))


@settings(deadline=None, max_examples=2 * settings().max_examples)
@given(st.data())
def test_a_selector_means_the_same_in_a_training_a_session_and_a_dump(data: st.DataObject) -> None:
    several = [data.draw(programs(number)) for number in range(data.draw(st.integers(1, 2)))]
    graphs = tuple(parse_graph_proto(graph_message(program), where=program.name) for program in several)
    layers = reduce(or_, map(layers_of, several))
    assert layers_of_graphs(graphs) == layers
    trained = {node.name for program in several for node in program.nodes if node.role == "weight"}
    for text in SELECTIONS:
        selector = Selector.parse(text)
        selects = Selection(ReceivedWatchpoint(1, 1, None, selector, frozenset(), {}), layers)
        for program, graph in zip(several, graphs, strict=True):
            index = GraphIndex(graph)
            shown = WatchedNodes(index, watched(index, selector, (), graphs)).names
            assert shown == selected_nodes(graph, selector, graphs), text
            slot_table = SlotTable()
            for at, node in enumerate(program.nodes):
                role = "weight" if node.name in trained else node.role
                tensor_slot = TensorSlot(at, DeclaredNode(at, node.name, node.type, role), 0, "output")
                assert selects(tensor_slot) == (node.name in shown), (text, node.name)
                assert selects.of_class(slot_table.class_of(tensor_slot)) in (None, node.name in shown)
                slot_table.slot_id(slot_table.node(node.name, node.type, role), 0)
            columns = slot_table.columns()
            is_backward = columns.of_classes(lambda each: each.is_gradient) | columns.named(layers.backward)
            all_at_once = selects.over(columns, is_backward).tolist()
            assert all_at_once == [node.name in shown for node in program.nodes], text


def test_a_module_of_the_forward_pass_may_be_called_after_gradients() -> None:
    graph = Graph(
        "kernel_graph_0",
        [
            parameter("fc.weight"),
            operator("Default/fc/Linear-op0", "fc.weight"),
            operator("Default/clip/ClipGrad-op0", "Default/fc/Linear-op0"),
            operator("Gradients/Default/fc/Linear-op0", "Default/clip/ClipGrad-op0"),
            operator("Default/ReluGrad-op1", "Gradients/Default/fc/Linear-op0"),
        ],
    )
    assert names("gradients", graph=graph) == {"Gradients/Default/fc/Linear-op0", "Default/ReluGrad-op1"}


@pytest.mark.parametrize("pattern", ["name:a{,3}", "name:[[:alpha:]]+"])
def test_a_pattern_that_means_something_else_to_a_training_process_is_refused(pattern: str) -> None:
    with pytest.raises(InputError, match="means different things"):
        parse_selection(pattern)
