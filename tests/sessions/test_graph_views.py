"""Graphs as people look at them: the tree, the search, a node, pictures; on real graphs and on a very large one."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tensight.dumps import Dump, open_dump
from tensight.errors import InputError
from tensight.graph import Edge, EdgeKind, Graph, Node, OutputSlot, TensorAddress, search
from tensight.graph import ms_graph_pb2 as pb
from tensight.sessions.errors import NotFoundError, StateError
from tensight.sessions.graph_index import GraphIndex
from tensight.sessions.graph_pictures import edge_label, graph_level, relation_graph
from tensight.sessions.graph_views import GraphView, NodeQuery, graph_record, search_page
from tensight.sessions.hit_list import HitList, SessionHit
from tensight.sessions.records import GraphEdge, GraphLevel, GraphRecord, HitRecord, RelationGraph, Slot, TreeEntry
from tensight.sessions.selection import WatchedNodes, watched
from tensight.sessions.value_texts import value_text
from tests.sessions.still_session import (
    FLOAT,
    constant,
    cpu_seconds,
    large_graph,
    operator,
    parameter,
    shared_large_graph,
)

HIT = HitRecord(watchpoint=1, condition="tensor_overflow", abbreviation="TO")


def view_of(graph: Graph, hits: HitList | None = None) -> GraphView:
    return GraphView(0, GraphIndex(graph), hits or HitList())


@pytest.fixture(scope="module")
def sick(dump_200: Path) -> Dump:
    return open_dump(dump_200)


@pytest.fixture(scope="module")
def large() -> GraphView:
    view = view_of(shared_large_graph())
    view.tree_page("", 0, 10)
    return view


# tree -----------------------------------------------------------------------------------------------------------------


def walk(view: GraphView, scope: str = "") -> list[TreeEntry]:
    entries = []
    for entry in view.tree_page(scope, 0, 100_000).entries:
        entries.append(entry)
        if entry.kind in ("scope", "parameters", "constants"):
            below = walk(view, entry.path)
            assert entry.children == len(view.tree_page(entry.path, 0, 100_000).entries)
            assert entry.nodes == sum(one.kind in ("operator", "parameter", "constant") for one in below)
            entries += below
    return entries


def test_opening_everything_shows_every_node_once(sick: Dump, dump_210_second: Path) -> None:
    for graph in (*sick.graphs(0), *open_dump(dump_210_second).graphs(0)):
        entries = walk(view_of(graph))
        shown = Counter(entry.path for entry in entries if entry.kind in ("operator", "parameter", "constant"))
        assert shown == Counter(node.name for node in graph.nodes)
        assert len({(entry.kind, entry.path) for entry in entries}) == len(entries)


def test_the_root_shows_scopes_then_parameters_and_constants_then_operators_without_a_scope() -> None:
    graph = Graph(
        "g", [parameter("w"), constant("c"), operator("Default/a/A-op1", "w"), operator("B/B-op2"), operator("C-op3")]
    )
    rows = [(entry.kind, entry.path, entry.label) for entry in view_of(graph).tree_page("", 0, 100).entries]
    assert rows == [
        ("scope", "Default", "Default"),
        ("scope", "B", "B"),
        ("parameters", "@parameters", "parameters"),
        ("constants", "@constants", "constants"),
        ("operator", "C-op3", "C-op3"),
    ]


def test_pages_of_a_scope_follow_each_other(sick: Dump) -> None:
    view = view_of(sick.graphs(0)[0])
    whole = view.tree_page("@parameters", 0, 1000)
    parts = [view.tree_page("@parameters", offset, 7) for offset in range(0, whole.total, 7)]
    assert tuple(entry for part in parts for entry in part.entries) == whole.entries
    assert {part.total for part in parts} == {whole.total}
    assert view.tree_page("@parameters", 10_000, 7).entries == ()


def test_a_row_says_what_a_person_looks_for() -> None:
    dynamic = Node("Gradients/a/Mul-op1", "Mul", "Gradients/a", outputs=(OutputSlot(11, "float32", (-1, 2)),))
    hits = HitList()
    hits.replace(1, [SessionHit(0, "g", dynamic.name, 0, 0, HIT), SessionHit(1, "g", dynamic.name, 0, 0, HIT)])
    view = view_of(Graph("g", [dynamic]), hits)
    assert view.tree_page("Gradients/a", 0, 10).entries == (
        TreeEntry(
            path="Gradients/a/Mul-op1",
            label="Mul-op1",
            kind="operator",
            graph="g",
            type="Mul",
            roles=("gradient",),
            nodes=1,
            dynamic_shape=True,
            hits=1,
        ),
    )
    assert [entry.hits for entry in view.tree_page("", 0, 10).entries] == [1]


def test_a_scope_that_is_not_there_is_not_found() -> None:
    with pytest.raises(NotFoundError, match="no scope 'Defualt'"):
        view_of(Graph("g", [operator("Default/A-op1")])).tree_page("Defualt", 0, 10)


def test_a_graph_is_told_in_numbers(sick: Dump) -> None:
    (graph,) = sick.graphs(0)
    assert graph_record(3, graph) == GraphRecord(
        rank=3,
        name="kernel_graph_0",
        graph_id=graph.graph_id,
        root_id=graph.root_id,
        nodes=len(graph.nodes),
        operators=103,
        parameters=len(graph.parameters),
    )


def test_a_scope_nested_two_hundred_deep_can_be_opened_to_the_end() -> None:
    view = view_of(Graph("g", [operator("/".join(["s"] * 500) + "/A-op1")]))
    assert [entry.kind for entry in walk(view)].count("operator") == 1


# search ---------------------------------------------------------------------------------------------------------------


def found(graph: Graph, **query: object) -> list[str]:
    page = search_page([view_of(graph)], NodeQuery(**query), 0, 1_000_000)  # type: ignore[arg-type]
    assert page.total == len(page.nodes)
    return [node.entry.path for node in page.nodes]


@pytest.mark.parametrize(
    ("query", "by", "text"),
    [
        ({"name": "RELU"}, "name", "relu"),
        ({"op_type": "mat"}, "type", "mat"),
        ({"kind": "weight"}, "kind", "weight"),
        ({"kind": "gradient"}, "kind", "gradient"),
        ({"kind": "activation"}, "kind", "activation"),
        ({"kind": "constant"}, "kind", "constant"),
        ({"kind": "optimizer_state"}, "kind", "optimizer_state"),
        ({"kind": "frozen_weight"}, "kind", "frozen_weight"),
        ({"kind": "tensor"}, "kind", "tensor"),
        ({"stack": "sick_network.py:31"}, "stack", "sick_network.py:31"),
    ],
)
def test_each_criterion_finds_what_the_graph_room_finds(sick: Dump, query: dict[str, str], by: str, text: str) -> None:
    (graph,) = sick.graphs(0)
    expected = [node.name for node in search(graph, text, by=by, case_sensitive=False)]  # type: ignore[arg-type]
    assert expected
    assert found(graph, **query) == expected


def test_a_node_must_match_everything(sick: Dump) -> None:
    (graph,) = sick.graphs(0)
    both = found(graph, name="probe", op_type="Mul")
    assert both == [name for name in found(graph, name="probe") if graph.node(name).type.find("Mul") >= 0]
    assert found(graph, name="probe", op_type="Mul", kind="parameter") == []


def test_case_and_regular_expressions_are_obeyed(sick: Dump) -> None:
    (graph,) = sick.graphs(0)
    assert found(graph, op_type="relu", case_sensitive=True) == []
    assert found(graph, op_type="^relu$", regex=True) == found(graph, op_type="^ReLU$", regex=True, case_sensitive=True)
    assert found(graph, name=r"conv\.(weight|bias)$", regex=True, kind="parameter")
    assert found(graph, stack=r"sick_network\.py:3[12] ", regex=True)
    assert found(graph, name="conv.", kind="operator") == []


def test_operators_and_parameters_are_kinds_too(sick: Dump) -> None:
    (graph,) = sick.graphs(0)
    assert len(found(graph, kind="operator")) == len(graph.operators)
    assert len(found(graph, kind="parameter")) == len(graph.parameters)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ({"kind": "weights"}, "not a kind of node"),
        ({"name": "x" * 1001}, "the name has 1,001 characters"),
        ({"stack": "x" * 1001}, "the text of the stack"),
    ],
)
def test_a_query_that_nothing_could_match_is_refused(query: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        NodeQuery(**query)  # type: ignore[arg-type]


def test_a_wrong_regular_expression_says_so() -> None:
    with pytest.raises(InputError, match="'\\(' cannot be used as a regular expression"):
        found(Graph("g", [operator("A-op1")]), name="(", regex=True)


def test_pages_of_a_search_run_through_all_graphs(dump_200_second: Path) -> None:
    views = [view_of(graph) for graph in open_dump(dump_200_second).graphs(0)]
    query = NodeQuery(name="op")
    whole = search_page(views, query, 0, 100_000)
    assert len({node.graph for node in whole.nodes}) > 1
    parts = [search_page(views, query, offset, 9) for offset in range(0, whole.total, 9)]
    assert [node for part in parts for node in part.nodes] == list(whole.nodes)


# a node ---------------------------------------------------------------------------------------------------------------


def test_an_operator_is_told_with_inputs_as_they_are_dumped_and_its_line(sick: Dump, planted: dict) -> None:
    (graph,) = sick.graphs(0)
    plant = planted["sick-2.0.0"]["planted"]["inf"]
    record = view_of(graph).node_record(plant["operator"], 17)
    assert (record.type, record.kind, record.position) == ("Log", "operator", 17)
    own = [frame for frame in record.stack if frame.is_user_code]
    assert [(frame.file, frame.line) for frame in own] == [(plant["file"], plant["line"])]
    assert record.outputs[0].dtype == "float32"
    assert record.inputs[0].peer in graph
    assert record.inputs[0].shape == record.outputs[0].shape
    assert record.consumer_count == len(record.consumers) > 0


def test_inputs_are_seen_through_what_only_passes_values_on() -> None:
    pair = Node("MakeTuple-op3", "MakeTuple", inputs=(Edge("A-op1"), Edge("w")))
    graph = Graph(
        "g",
        [
            parameter("w"),
            operator("A-op1", slots=2),
            Node("Load-op2", "Load", inputs=(Edge("w"), Edge("order"))),
            pair,
            Node(
                "B-op4",
                "B",
                inputs=(Edge("Load-op2"), Edge("MakeTuple-op3"), Edge("A-op1", EdgeKind.CONTROL), Edge("gone")),
            ),
        ],
    )
    inputs = view_of(graph).node_record("B-op4", None).inputs
    assert inputs == (
        Slot(slot=0, io="input", dtype="float32", shape=(32, 64), peer="w"),
        Slot(slot=1, io="input", dtype="float32", shape=(32, 64), peer="A-op1"),
        Slot(slot=2, io="input", dtype="float32", shape=(32, 64), peer="w"),
        Slot(slot=3, io="input", peer="A-op1", control=True),
        Slot(slot=4, io="input", peer="gone"),
    )


def test_only_the_first_thousand_consumers_are_named() -> None:
    graph = Graph("g", [parameter("w"), *(operator(f"A-op{number}", "w") for number in range(1500))])
    record = view_of(graph).node_record("w", None)
    assert (len(record.consumers), record.consumer_count) == (1000, 1500)


def test_attributes_and_values_are_short_texts() -> None:
    attributes = [
        pb.AttributeProto(name=b"keep_dims", value=pb.ValueProto(dtype=1, bool_val=True)),
        pb.AttributeProto(name=b"long", value=pb.ValueProto(dtype=13, str_val=b"x" * 5000)),
    ]
    node = Node("A-op1", "A", raw_attributes=tuple(one.SerializeToString() for one in attributes))
    value = pb.ValueProto(dtype=19, int_vals=range(5000))
    number = Node("c", "Const", raw_value=value.SerializeToString())
    view = view_of(Graph("g", [node, number]))
    record = view.node_record("A-op1", None)
    assert record.attributes["keep_dims"] == "True"
    assert len(record.attributes["long"]) == 1024
    assert view.node_record("c", None).value.startswith("[0, 1, 2,")
    assert view.node_record("c", None).value.endswith("63, …]")


def test_a_tensor_in_the_graph_shows_its_numbers_if_they_are_few() -> None:
    def text(data_type: int, dims: list[int], content: bytes) -> str:
        tensor = pb.TensorProto(data_type=data_type, dims=dims, tensor_content=content)
        node = Node("c", "Const", raw_value=pb.ValueProto(dtype=14, tensor_val=tensor).SerializeToString())
        return view_of(Graph("g", [node])).node_record("c", None).value

    assert text(4, [2], b"\1\0\0\0\2\0\0\0") == "int32[2] 1, 2"
    assert text(46, [], b"\x80\x3f") == "bfloat16[] 1.0"
    assert text(1843, [2], b"\x38\xb0") == "float8_e4m3fn[2] 1.0, -0.5"
    assert text(1852, [], b"\x3c") == "float8_e5m2[] 1.0"
    assert text(11, [1000], b"\0" * 4000) == "float32[1000]"
    assert text(11, [2], b"\0" * 7) == "float32[2]"
    assert text(48, [2], b"\0") == "int4[2]"
    assert text(99, [2], b"") == "tensor[2]"


def test_nested_values_of_any_size_have_a_text() -> None:
    nested: object = [{"a": (1,)}, "x" * 3000]
    for _ in range(80):
        nested = [nested] * 100
    assert len(value_text(nested)) <= 1024


def test_a_node_that_is_not_there_is_not_found_and_similar_ones_are_named(sick: Dump) -> None:
    with pytest.raises(NotFoundError, match="similar"):
        view_of(sick.graphs(0)[0]).node_record("Default/ReLU-op124", None)


# pictures -------------------------------------------------------------------------------------------------------------

CHAIN = Graph(
    "g",
    [
        parameter("w"),
        constant("c"),
        operator("Default/a/x/A-op1", "w", "c"),
        operator("Default/a/x/B-op2", "Default/a/x/A-op1"),
        operator("Default/a/C-op3", "Default/a/x/B-op2", "Default/a/x/A-op1"),
        Node(
            "Default/b/D-op4",
            "D",
            "Default/b",
            inputs=(Edge("Default/a/C-op3"), Edge("Default/a/x/A-op1", EdgeKind.CONTROL)),
            outputs=(FLOAT, FLOAT),
        ),
        operator("E-op5", "Default/b/D-op4", "w"),
    ],
)


def drawn(level: GraphLevel) -> tuple[list[str], list[str], dict[tuple[str, str, bool], int]]:
    return (
        [entry.path for entry in level.entries],
        [entry.path for entry in level.outside],
        {(edge.source, edge.target, edge.control): edge.count for edge in level.edges},
    )


def picture(graph: Graph, scope: str, limit: int = 1500) -> GraphLevel:
    return graph_level(view_of(graph), scope, limit, 100_000)


def test_the_root_draws_scopes_and_groups_with_their_edges_as_one() -> None:
    assert drawn(picture(CHAIN, "")) == (
        ["Default", "@parameters", "@constants", "E-op5"],
        [],
        {
            ("@parameters", "Default", False): 1,
            ("@parameters", "E-op5", False): 1,
            ("@constants", "Default", False): 1,
            ("Default", "E-op5", False): 1,
        },
    )


def test_an_open_scope_draws_its_rows_and_what_is_next_to_it_outside() -> None:
    assert drawn(picture(CHAIN, "Default/a")) == (
        ["Default/a/x", "Default/a/C-op3"],
        ["w", "c", "Default/b"],
        {
            ("Default/a/x", "Default/a/C-op3", False): 2,
            ("w", "Default/a/x", False): 1,
            ("c", "Default/a/x", False): 1,
            ("Default/a/C-op3", "Default/b", False): 1,
            ("Default/a/x", "Default/b", True): 1,
        },
    )


def test_outside_of_a_deep_scope_neighbours_are_the_nearest_that_do_not_hold_it() -> None:
    entries, outside, edges = drawn(picture(CHAIN, "Default/a/x"))
    assert entries == ["Default/a/x/A-op1", "Default/a/x/B-op2"]
    assert sorted(outside) == ["Default/a/C-op3", "Default/b", "c", "w"]
    assert edges["Default/a/x/A-op1", "Default/b", True] == 1


def nested(graph: Graph, *opened: str, limit: int = 1500, beside: bool = False) -> GraphLevel:
    return graph_level(view_of(graph), "", limit, 100_000, opened=opened, beside=beside)


def test_scopes_that_are_open_within_a_picture_are_drawn_with_exact_edges() -> None:
    level = nested(CHAIN, "Default/a", "Default", "Default/b")
    assert [entry.path for entry in level.entries] == ["Default", "@parameters", "@constants", "E-op5"]
    assert [(one.scope, [entry.path for entry in one.entries]) for one in level.opened] == [
        ("Default", ["Default/a", "Default/b"]),
        ("Default/a", ["Default/a/x", "Default/a/C-op3"]),
        ("Default/b", ["Default/b/D-op4"]),
    ]
    assert drawn(level)[2] == {
        ("@parameters", "Default/a/x", False): 1,
        ("@parameters", "E-op5", False): 1,
        ("@constants", "Default/a/x", False): 1,
        ("Default/a/x", "Default/a/C-op3", False): 2,
        ("Default/a/x", "Default/b/D-op4", True): 1,
        ("Default/a/C-op3", "Default/b/D-op4", False): 1,
        ("Default/b/D-op4", "E-op5", False): 1,
    }


def test_a_scope_that_is_not_there_or_lies_in_a_closed_one_is_not_opened() -> None:
    assert nested(CHAIN, "Default/a", "gone") == picture(CHAIN, "")


def test_parameters_can_be_drawn_beside_the_operators_that_read_them() -> None:
    level = nested(CHAIN, "Default", "Default/a", "Default/a/x", beside=True)
    assert [entry.path for entry in level.outside] == ["w", "c"]
    assert {edge for edge in drawn(level)[2] if edge[0] in {"w", "c", "@parameters", "@constants"}} == {
        ("w", "Default/a/x/A-op1", False),
        ("c", "Default/a/x/A-op1", False),
        ("w", "E-op5", False),
    }
    within = graph_level(view_of(CHAIN), "Default/a/x", 1500, 100_000, beside=True)
    assert sorted(entry.path for entry in within.outside) == ["Default/a/C-op3", "Default/b", "c", "w"]
    closed = nested(CHAIN, beside=True)
    assert [entry.path for entry in closed.outside] == ["w"]
    assert drawn(closed)[2]["@constants", "Default", False] == 1


def test_the_rows_of_an_open_scope_are_limited_too_and_the_rest_belongs_to_the_scope() -> None:
    rows = [operator(f"s/A-op{number}", *([f"s/A-op{number - 1}"] if number else [])) for number in range(50)]
    level = nested(Graph("g", [*rows, operator("B-op", "s/A-op49")]), "s", limit=10)
    (inside,) = level.opened
    assert (len(inside.entries), inside.truncated) == (10, True)
    assert drawn(level)[2]["s/A-op9", "s", False] == 1
    assert drawn(level)[2]["s", "B-op", False] == 1


def test_a_group_can_be_opened_like_a_scope() -> None:
    assert drawn(picture(CHAIN, "@parameters")) == (
        ["w"],
        ["E-op5", "Default"],
        {("w", "Default", False): 1, ("w", "E-op5", False): 1},
    )


def test_a_single_edge_is_labelled_with_what_it_carries() -> None:
    edges = picture(CHAIN, "Default/a/x").edges
    (single,) = (edge for edge in edges if edge.target == "Default/a/x/B-op2")
    assert single == GraphEdge(source="Default/a/x/A-op1", target="Default/a/x/B-op2", label="float32[32,64]")
    (control,) = (edge for edge in edges if edge.control)
    assert control.label == ""


@pytest.mark.parametrize(
    ("outputs", "label"),
    [
        ((OutputSlot(11, "float32", (-1, 2)),), "float32[?,2]"),
        ((OutputSlot(11, "float32", ()),), "float32[]"),
        ((OutputSlot(11, "float32", None),), "float32"),
        ((FLOAT, FLOAT), "2 tensors"),
        ((), ""),
    ],
)
def test_labels_of_edges(outputs: tuple[OutputSlot, ...], label: str) -> None:
    assert edge_label(Node("a", "A", outputs=outputs)) == label


def test_many_parameters_outside_are_one_group() -> None:
    weights = [parameter(f"w{number}") for number in range(60)]
    graph = Graph("g", [*weights, operator("Default/A-op1", *(weight.name for weight in weights))])
    entries, outside, edges = drawn(picture(graph, "Default"))
    assert (entries, outside) == (["Default/A-op1"], ["@parameters"])
    assert edges == {("@parameters", "Default/A-op1", False): 60}


def test_a_picture_never_has_more_than_was_asked_for() -> None:
    graph = Graph("g", [operator(f"A-op{number}", *([f"A-op{number - 1}"] if number else [])) for number in range(50)])
    level = picture(graph, "", 10)
    assert (len(level.entries), level.truncated, len(level.edges)) == (10, True, 9)
    whole = picture(graph, "", 50)
    assert (len(whole.entries), whole.truncated) == (50, False)
    outside = Graph("g", [operator("s/A-op0"), *(operator(f"B-op{number}", "s/A-op0") for number in range(50))])
    level = picture(outside, "s", 10)
    assert (len(level.outside), len(level.edges), level.truncated) == (10, 10, True)


def test_too_large_a_graph_is_not_drawn() -> None:
    with pytest.raises(StateError, match="has 7 nodes; graphs of up to 6 are drawn"):
        graph_level(view_of(CHAIN), "", 10, 6)


def test_every_edge_of_a_real_graph_is_drawn_somewhere(sick: Dump) -> None:
    (graph,) = sick.graphs(0)
    view = view_of(graph)
    drawn_edges = 0
    for path, stretch in view.index.scopes.items():
        level = graph_level(view, path, 5000, 100_000)
        known = {entry.path for entry in (*level.entries, *level.outside)}
        assert all({edge.source, edge.target} <= known for edge in level.edges)
        inner = {entry.path for entry in level.entries}
        drawn_edges += sum(edge.count for edge in level.edges if edge.source in inner and edge.target in inner)
        assert not level.truncated
        assert len(level.entries) == len(view.rows(stretch))
    # An edge is inside exactly one scope: the smallest one that holds both of its ends in two rows.
    ends = [(edge.source, node.name) for node in graph.nodes for edge in node.inputs if edge.source in graph]
    assert drawn_edges == len(ends)


# relations ------------------------------------------------------------------------------------------------------------


def relations(graph: Graph, node: str, slot: int = 0, **options: int) -> RelationGraph:
    address = TensorAddress(0, "g", node, slot, 3)
    return relation_graph(view_of(graph), address, **{"hops": 1, "limit": 200, **options})


def test_relations_are_inputs_and_consumers_of_the_slot() -> None:
    index = pb.ValueProto(dtype=5, int_val=1).SerializeToString()
    graph = Graph(
        "g",
        [
            operator("A-op1"),
            operator("Split-op2", "A-op1", slots=2),
            Node("one", "Const", raw_value=index),
            operator("TupleGetItem-op3", "Split-op2", "one"),
            operator("Tuple-op4", "Split-op2"),
        ],
    )
    of_first = relations(graph, "Split-op2", 0)
    assert {node.name: node.distance for node in of_first.nodes} == {"A-op1": -1, "Split-op2": 0, "Tuple-op4": 1}
    of_second = relations(graph, "Split-op2", 1)
    assert {node.name for node in of_second.nodes} == {"A-op1", "Split-op2", "TupleGetItem-op3", "Tuple-op4"}
    assert of_first.edges == (
        GraphEdge(source="A-op1", target="Split-op2", label="float32[32,64]"),
        GraphEdge(source="Split-op2", target="Tuple-op4", label="2 tensors"),
    )


def test_relations_reach_as_far_as_asked_and_stop_at_the_limit() -> None:
    graph = Graph("g", [operator(f"A-op{number}", *([f"A-op{number - 1}"] if number else [])) for number in range(20)])
    far = relations(graph, "A-op10", hops=3)
    assert [node.distance for node in far.nodes] == [-3, -2, -1, 0, 1, 2, 3]
    assert not far.truncated
    near = relations(graph, "A-op10", hops=3, limit=4)
    assert [node.distance for node in near.nodes] == [-2, -1, 0, 1]
    assert near.truncated


def test_relations_show_which_conditions_hit_on_each_slot() -> None:
    hits = HitList()
    hits.replace(4, [SessionHit(0, "g", "Default/b/D-op4", 1, 3, HIT)])
    view = view_of(CHAIN, hits)
    found = relation_graph(view, TensorAddress(0, "g", "Default/a/C-op3", 0, 3), 1, 200)
    abbreviations = {node.name: node.abbreviations for node in found.nodes if node.abbreviations}
    assert abbreviations == {"Default/b/D-op4": {1: ("TO",)}}


@pytest.mark.parametrize(("hops", "limit"), [(0, 10), (11, 10), (1, 0)])
def test_relations_out_of_reach_are_refused(hops: int, limit: int) -> None:
    with pytest.raises(InputError, match="1 to 10 hops"):
        relations(CHAIN, "E-op5", hops=hops, limit=limit)


def test_a_slot_that_is_not_there_is_not_found() -> None:
    with pytest.raises(NotFoundError, match="no slot 2"):
        relations(CHAIN, "Default/b/D-op4", 2)
    with pytest.raises(NotFoundError, match="no node"):
        relations(CHAIN, "F", 0)


# a very large graph ---------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_large_graph_is_searched_in_less_than_a_second_at_first() -> None:
    graph = large_graph()
    assert cpu_seconds(lambda: search_page([view_of(graph)], NodeQuery(name="relu"), 0, 100)) < 10


@pytest.mark.long
@pytest.mark.parametrize(
    "query",
    [
        NodeQuery(name="layer77"),
        NodeQuery(op_type="matmul"),
        NodeQuery(stack="net3.py:44"),
        NodeQuery(name=".*(a+)+$", regex=True),
        NodeQuery(name="x+x+x+x+y", regex=True),
    ],
)
def test_searches_of_a_large_graph_take_no_minutes(large: GraphView, query: NodeQuery) -> None:
    assert cpu_seconds(lambda: search_page([large], query, 0, 100)) < 10


@pytest.mark.long
def test_the_tree_of_a_large_graph_opens_in_milliseconds_with_marks_and_hits(large: GraphView) -> None:
    hits = HitList()
    names = [node.name for node in large.index.graph.operators[:10_000]]
    hits.replace(1, [SessionHit(0, "kernel_graph_0", name, 0, 0, HIT) for name in names])
    view = GraphView(0, large.index, hits, WatchedNodes(large.index, watched(large.index, None, ())).watching)
    view.tree_page("", 0, 1000)
    for scope in ("", "Default/network", "@parameters", "Default/network/block0/layer1"):
        assert min(cpu_seconds(lambda: view.tree_page(scope, 0, 1000)) for _ in range(5)) < 0.5  # noqa: B023


@pytest.mark.long
def test_a_level_of_a_large_graph_is_drawn_in_less_than_a_second(large: GraphView) -> None:
    graph_level(large, "", 1500, 100_000)
    for scope in ("Default/network", "Default/network/block7", "Default/network/block7/layer71/part0", "@parameters"):
        assert cpu_seconds(lambda: graph_level(large, scope, 1500, 100_000)) < 10  # noqa: B023
