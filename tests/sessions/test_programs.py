"""Several graphs of a rank as one program: each node once, in whichever graphs it is the same."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tensight.graph import Graph, Node, TensorAddress
from tensight.sessions.errors import NotFoundError
from tensight.sessions.graph_steps import GraphSteps
from tensight.sessions.hit_list import SessionHit
from tensight.sessions.programs import Program, Programs
from tensight.sessions.records import Edit, HitRecord, TreeEntry, WatchpointChange, WatchpointSpec
from tensight.sessions.statistics_pages import natural
from tests.sessions.live_stage import Play, Stage, network
from tests.sessions.offline_runs import debugging, go
from tests.sessions.still_session import StillSession, constant, operator, parameter

HIT = HitRecord(watchpoint=1, condition="tensor_overflow", abbreviation="TO")


def layers(*names: str, ids: int, extra: tuple[Node, ...] = ()) -> Graph:
    operators = [operator(f"Default/h/{name}/Dense-op0", "w", stack=(f"# In file /net.py:{name}/",)) for name in names]
    return Graph(f"kernel_graph_{ids}", [parameter("w"), *operators, *extra], graph_id=ids, root_id=ids)


FIRST = layers(*map(str, range(12)), ids=0, extra=(operator("Optimizer/Init-op0"),))
LATER = layers(*map(str, range(12)), ids=1)
EVALUATED = layers("12", *map(str, range(12)), ids=2, extra=(operator("Optimizer/Update-op0"),))
VARIANTS = (FIRST, LATER, EVALUATED)


class Variants(StillSession):
    """A session whose graphs are variants, of which the first ran in step 1, the second in 2 and 4, the third in 3."""

    def are_parts(self, rank: int, graph: Graph, other: Graph) -> bool:  # noqa: ARG002 - there is only one
        return graph.root_id == other.root_id

    def graph_steps(self, rank: int) -> GraphSteps:  # noqa: ARG002 - there is only one
        ran = enumerate(("kernel_graph_0", "kernel_graph_1", "kernel_graph_2", "kernel_graph_1"))
        return GraphSteps((iteration, iteration + 1, frozenset({graph})) for iteration, graph in ran)


def session_at(step: int, graphs: tuple[Graph, ...] = VARIANTS) -> Variants:
    return Variants({0: graphs}, step=step)


def tree(session: StillSession, scope: str = "", graph: str = "", watchpoint: int | None = None) -> list[TreeEntry]:
    return list(asyncio.run(session.tree(0, graph, scope, watchpoint=watchpoint)).entries)


def test_scopes_stand_in_the_order_of_execution_whatever_their_names_are() -> None:
    assert [entry.label for entry in tree(session_at(2), "Default/h", "kernel_graph_1")] == list(map(str, range(12)))
    # What a later variant adds stands where it runs there.
    assert [entry.label for entry in tree(session_at(2), "Default/h")] == ["12", *map(str, range(12))]
    assert [entry.label for entry in tree(session_at(2))] == ["Default", "Optimizer", "parameters"]


def test_a_node_of_several_variants_is_one_row_of_the_graph_that_ran() -> None:
    for step, graph in ((1, "kernel_graph_0"), (2, "kernel_graph_1"), (3, "kernel_graph_2"), (4, "kernel_graph_1")):
        (dense,) = tree(session_at(step), "Default/h/10")
        assert (dense.graph, dense.graphs) == (graph, ())
        (weight,) = tree(session_at(step), "@parameters")
        assert (weight.path, weight.graph, weight.graphs) == ("w", graph, ())


def test_what_only_some_variants_have_is_marked_with_them() -> None:
    session = session_at(1)
    marked = {entry.path: (entry.graph, entry.graphs) for entry in tree(session, "Optimizer")}
    # The newest that has it where none of those that ran has.
    assert marked == {
        "Optimizer/Init-op0": ("kernel_graph_0", ("kernel_graph_0",)),
        "Optimizer/Update-op0": ("kernel_graph_2", ("kernel_graph_2",)),
    }
    (scope,) = (entry for entry in tree(session) if entry.path == "Optimizer")
    assert (scope.nodes, scope.graph, scope.graphs) == (2, "", ("kernel_graph_0", "kernel_graph_2"))
    assert [entry.graphs for entry in tree(session, "Default/h")] == [("kernel_graph_2",), *[()] * 12]


def test_a_search_finds_each_node_once() -> None:
    session = session_at(3)
    found = asyncio.run(session.search(name="dense"))
    assert (found.total, {one.graph for one in found.nodes}) == (13, {"kernel_graph_2"})
    assert [one.entry.path.split("/")[2] for one in found.nodes] == ["12", *map(str, range(12))]
    # Of whatever variant matches.
    assert asyncio.run(session.search(stack="net.py:12")).total == 1
    assert asyncio.run(session.search(name="dense", graph="kernel_graph_1")).total == 12
    pages = [asyncio.run(session.search(offset=at, limit=5)).nodes for at in range(0, 20, 5)]
    assert len({one.entry.path for page in pages for one in page}) == sum(map(len, pages)) == 16


def test_a_node_is_described_as_it_ran_unless_a_variant_is_chosen() -> None:
    name = "Default/h/3/Dense-op0"
    graphs = ("kernel_graph_0", "kernel_graph_1", "kernel_graph_2")
    session = session_at(3)
    assert asyncio.run(session.node(0, "", name)).graph == "kernel_graph_2"
    assert asyncio.run(session.node(0, "kernel_graph_0", name)).graph == "kernel_graph_0"
    followed = asyncio.run(session.node(0, "kernel_graph_0", name, follow=True))
    assert (followed.graph, followed.graphs) == ("kernel_graph_2", graphs)
    assert asyncio.run(session.node(0, "", name, step=1)).graph == "kernel_graph_0"
    only = asyncio.run(session.node(0, "kernel_graph_0", "Optimizer/Init-op0", follow=True))
    assert (only.graph, only.graphs) == ("kernel_graph_0", ("kernel_graph_0",))
    with pytest.raises(NotFoundError, match="some that contain it: Default/h/12/Dense-op0"):
        asyncio.run(session.node(0, "", "Dense"))


def test_an_address_means_the_variant_that_ran_in_its_step() -> None:
    session = session_at(1)

    def meant(text: str) -> str:
        return str(session.meant(TensorAddress.parse(text)))

    assert meant("0//Default/h/3/Dense-op0:0@3") == "0/kernel_graph_2/Default/h/3/Dense-op0:0@3"
    assert meant("0/kernel_graph_0/Default/h/3/Dense-op0:0@4") == "0/kernel_graph_1/Default/h/3/Dense-op0:0@4"
    # Before the first step, what ran first; and nothing else has this one.
    assert meant("0/kernel_graph_1/w:0@0") == "0/kernel_graph_0/w:0@0"
    assert meant("0/kernel_graph_0/Optimizer/Init-op0:0@3") == "0/kernel_graph_0/Optimizer/Init-op0:0@3"
    assert meant("0//unheard-of:0@3") == "0//unheard-of:0@3"


def test_the_picture_without_a_graph_is_that_of_the_graph_that_ran() -> None:
    assert asyncio.run(session_at(3).level(0, "")).graph == "kernel_graph_2"
    assert asyncio.run(session_at(4).level(0, "")).graph == "kernel_graph_1"


def test_the_list_of_graphs_says_in_which_steps_they_ran() -> None:
    graphs = asyncio.run(session_at(4).graph_records(0))
    assert [[(span.first, span.last) for span in one.steps] for one in graphs] == [[(1, 1)], [(2, 2), (4, 4)], [(3, 3)]]
    assert [one.ran for one in graphs] == [False, True, False]
    known = GraphSteps([(0, 1, frozenset("a")), (5, 7, frozenset("b")), (9, 10, frozenset("b"))])
    assert (known.of("a"), known.of("b"), known.of("c")) == ([(1, 1)], [(6, 10)], [])
    assert [known.at(iteration) for iteration in (-1, 3, 8)] == [frozenset("a"), frozenset("a"), frozenset("b")]


def test_hits_and_ticks_of_a_node_are_those_of_all_its_variants() -> None:
    session = session_at(2)
    made = asyncio.run(session.create_watchpoint(WatchpointSpec(condition="TO", selection="none")))
    number = made.id
    session.hit_list.replace(2, [SessionHit(0, "kernel_graph_1", "Default/h/3/Dense-op0", 0, 1, HIT)])
    assert {entry.label: entry.hits for entry in tree(session)} == {"Default": 1, "Optimizer": 0, "parameters": 0}
    points = session.watchpoint_list
    points.change(number, WatchpointChange(edits=(Edit(path="Default/h/3"),)))
    points.resolve([0])
    assert points.count(points.get(number), [0]) == 1
    ticked = {entry.label: entry.watched for entry in tree(session, "Default/h", watchpoint=number)}
    assert ticked == {**dict.fromkeys(map(str, range(13)), "none"), "3": "all"}
    points.change(number, WatchpointChange(edits=(Edit(path="Default/h/3", graph="kernel_graph_1"),)))
    ticked = {entry.label: entry.watched for entry in tree(session, "Default/h", watchpoint=number)}
    assert ticked["3"] == "some"


def test_lines_of_code_count_a_node_once() -> None:
    sources = asyncio.run(session_at(1).sources())
    assert {line.line: line.nodes for line in sources.files[0].lines} == dict.fromkeys(range(13), 1)


def entries_of(graphs: tuple[Graph, ...], *, parts: bool) -> Program:
    return Programs(are_parts=lambda graph, other: parts).of(graphs)


def test_nodes_of_graphs_that_run_in_one_step_stay_apart_unless_they_are_one_weight() -> None:
    train = Graph(
        "train",
        [
            parameter("w"),
            parameter("x"),
            constant("c"),
            operator("Default/ReLU-op3", "x", "w"),
            operator("Default/ApplyMomentum-op4", "w", "m", "Default/ReLU-op3", "Default/ReLU-op3", "Default/ReLU-op3"),
            parameter("m"),
        ],
        graph_id=0,
        root_id=0,
    )
    other = Graph(
        "other", [parameter("w"), parameter("x"), constant("c"), operator("Default/ReLU-op3")], graph_id=1, root_id=1
    )
    apart = entries_of((train, other), parts=True)
    assert {name: len(apart.entries(name)) for name in ("w", "x", "c", "Default/ReLU-op3", "m")} == {
        "w": 1,
        "x": 2,
        "c": 2,
        "Default/ReLU-op3": 2,
        "m": 1,
    }
    assert (apart.first_of("other", "w"), apart.first_of("other", "Default/ReLU-op3")) == ("train", "other")
    session = StillSession({0: (train, other)})
    rows = [(entry.path, entry.graph) for entry in tree(session, "Default")]
    assert sorted(rows) == [
        ("Default/ApplyMomentum-op4", "train"),
        ("Default/ReLU-op3", "other"),
        ("Default/ReLU-op3", "train"),
    ]
    session.hit_list.replace(1, [SessionHit(0, "other", "Default/ReLU-op3", 0, 0, HIT)])
    assert {entry.graph: entry.hits for entry in tree(session, "Default") if "ReLU" in entry.path} == {
        "train": 0,
        "other": 1,
    }
    variants = entries_of((train, other), parts=False)
    assert {len(variants.entries(name)) for name in ("w", "x", "c", "Default/ReLU-op3", "m")} == {1}


def test_what_is_called_the_same_but_is_something_else_stays_apart() -> None:
    one = Graph("one", [Node("c", "Const", raw_value=b"\x08\x01"), Node("D/x", "ReLU", "D")])
    two = Graph("two", [Node("c", "Const", raw_value=b"\x08\x02"), Node("D/x", "Tanh", "D")])
    program = entries_of((one, two), parts=False)
    assert [len(program.entries(name)) for name in ("c", "D/x")] == [2, 2]
    assert program.graph_for("D/x", {"two"}) == "two"
    assert program.graph_for("D/x", {"two"}, "one") == "one"


def test_every_node_of_a_dump_is_there_once_and_apart_where_graphs_ran_together(dump_210_second: Path) -> None:
    async def scene() -> None:
        async with debugging(dump_210_second) as session:
            await go(session, "go_to_step", steps=2)
            graphs = session.graphs(0)
            found = (await session.search(limit=100_000)).nodes
            names = {node.name for graph in graphs for node in graph.nodes}
            assert {one.entry.path for one in found} == names
            weights = [one for one in found if one.entry.path == "network.hidden.weight"]
            assert len(weights) == 1
            relus = [one.graph for one in found if one.entry.path.endswith("activation-Tanh/Tanh-op0")]
            assert relus[:2] == ["kernel_graph0", "kernel_graph1"]
            table = await session.statistics_table(limit=10_000)
            weights = [row.graph for row in table.rows if row.node == "network.hidden.weight" and row.io == "output"]
            assert weights == ["kernel_graph0"]
            assert {row.graph for row in table.rows if row.node.endswith("activation-Tanh/Tanh-op0")} == {*relus[:2]}

    asyncio.run(scene())


def test_programs_of_an_agent_are_variants_and_graphs_of_mindspores_own_client_are_not(on_stage: Play) -> None:
    async def scene(stage: Stage) -> None:
        for process, nodes in ((stage.agent(), 1), (stage.process(), 2)):
            session = await process.attach(network(), network("kernel_graph_1", "1"))
            found = await session.search(kind="operator", limit=1000)
            named = [one.entry.path for one in found.nodes]
            assert {named.count(name) for name in named} == {nodes}

    on_stage(scene)


def test_names_sort_with_their_numbers_as_numbers() -> None:
    names = ["h.10.w", "h.9.w", "h.09.b", "h.x", "h.1.w", "h2.0"]
    assert sorted(names, key=natural) == ["h.1.w", "h.09.b", "h.9.w", "h.10.w", "h.x", "h2.0"]
