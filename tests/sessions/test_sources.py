"""The lines of code behind the nodes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tensight.dumps import open_dump
from tensight.errors import InputError
from tensight.graph import Graph
from tensight.sessions.programs import Program, Programs
from tensight.sessions.records import Frame, SourceFile, SourceLine, SourcePage
from tensight.sessions.sources import SourceIndex, Sources, frame_records, node_of_use, user_line
from tests.sessions.still_session import cpu_seconds, operator, parameter, shared_large_graph

LIBRARY = "#   In file /usr/lib/python3/site-packages/mindspore/nn/layer.py:70/    return self.op(x)/"
NET = "# - In file /home/me/net.py:16/    x = self.relu(x)/"
MAIN = "# In file /home/me/main.py:9~11/    loss = net(x)/"
GRAPH = Graph(
    "g",
    [
        parameter("w"),
        operator("A-op1", stack=(LIBRARY, NET, MAIN)),
        operator("B-op2", stack=(LIBRARY, NET, MAIN)),
        operator("C-op3", stack=(MAIN, "", "# heading:")),
        operator("D-op4"),
    ],
)


def program(*graphs: Graph) -> Program:
    return Programs().of(graphs)


def test_files_come_with_their_lines_the_persons_own_first() -> None:
    page = SourceIndex([program(GRAPH)]).page("", 0, 10, {"/home/me/net.py"})
    assert page == SourcePage(
        total=3,
        files=(
            SourceFile(
                file="/home/me/main.py",
                lines=(SourceLine(line=9, end_line=11, code="loss = net(x)", nodes=3),),
            ),
            SourceFile(
                file="/home/me/net.py",
                has_text=True,
                lines=(SourceLine(line=16, code="x = self.relu(x)", has_substack=True, nodes=2),),
            ),
            SourceFile(
                file="/usr/lib/python3/site-packages/mindspore/nn/layer.py",
                is_library=True,
                lines=(SourceLine(line=70, code="return self.op(x)", nodes=2),),
            ),
        ),
    )


@pytest.mark.parametrize(
    ("query", "files"),
    [
        ("RELU", ["/home/me/net.py"]),
        ("net.py:16", ["/home/me/net.py"]),
        ("/home/", ["/home/me/main.py", "/home/me/net.py"]),
        ("main.py:9 loss", ["/home/me/main.py"]),
        ("nothing", []),
    ],
)
def test_a_query_is_a_part_of_path_line_and_code_in_any_case(query: str, files: list[str]) -> None:
    page = SourceIndex([program(GRAPH)]).page(query, 0, 10)
    assert [file.file for file in page.files] == files
    assert page.total == len(files)


def test_pages_follow_each_other() -> None:
    index = SourceIndex([program(GRAPH)])
    assert [index.page("", offset, 1).files[0].file.rpartition("/")[2] for offset in range(3)] == [
        "main.py",
        "net.py",
        "layer.py",
    ]
    assert index.page("", 3, 1).files == ()
    assert index.page("", 3, 1).total == 3


def test_a_query_that_is_too_long_is_refused() -> None:
    with pytest.raises(InputError, match="the query has 1,001 characters"):
        SourceIndex([program(GRAPH)]).page("x" * 1001, 0, 10)


def test_a_node_counts_once_for_a_line_that_its_stack_has_twice() -> None:
    graph = Graph("g", [operator("A-op1", stack=(NET, MAIN, NET))])
    lines = [line.nodes for file in SourceIndex([program(graph)]).page("", 0, 10).files for line in file.lines]
    assert lines == [1, 1]


def test_all_ranks_count(dump_200: Path) -> None:
    (graph,) = open_dump(dump_200).graphs(0)
    one, two = (
        SourceIndex([program(graph)]).page("", 0, 1000),
        SourceIndex([program(graph), program(graph)]).page("", 0, 1000),
    )
    assert [line.nodes * 2 for file in one.files for line in file.lines] == [
        line.nodes for file in two.files for line in file.lines
    ]


def test_a_real_graph_has_the_lines_that_the_graph_room_finds(dump_200: Path) -> None:
    (graph,) = open_dump(dump_200).graphs(0)
    page = SourceIndex([program(graph)]).page("", 0, 1000)
    counts = {(file.file, line.line): line.nodes for file in page.files for line in file.lines}
    assert counts == {at: len(nodes) for at, nodes in graph.source_lines().items()}


def test_the_persons_own_line_is_marked() -> None:
    frames = frame_records(GRAPH.node("A-op1").frames)
    assert [(frame.line, frame.is_user_code) for frame in frames] == [(70, False), (16, True), (9, False)]
    assert user_line(GRAPH.node("A-op1")) == frames[1]
    assert user_line(GRAPH.node("C-op3")) == Frame(
        file="/home/me/main.py", line=9, end_line=11, code="loss = net(x)", is_user_code=True
    )
    assert user_line(GRAPH.node("D-op4")) is None
    assert user_line(None) is None


def test_sources_are_gathered_anew_only_for_other_graphs() -> None:
    sources = Sources()
    one = program(GRAPH)
    first = sources.of((one,))
    assert sources.of((one,)) is first
    assert sources.of((one, one)) is not first


def test_gathering_and_searching_the_lines_of_a_large_graph_take_no_minutes() -> None:
    made: list[SourceIndex] = []
    gathered = cpu_seconds(lambda: made.append(SourceIndex([program(shared_large_graph())])))
    (index,) = made
    searched = cpu_seconds(lambda: index.page("net3.py:44 ", 0, 10))
    page = index.page("net3.py:44 ", 0, 10)
    assert sum(line.nodes for file in page.files for line in file.lines) > 200
    assert gathered < 10
    assert searched < 0.5


def test_a_parameter_that_is_loaded_first_is_used_where_what_was_loaded_is() -> None:
    graph = Graph(
        "g",
        [
            parameter("w"),
            operator("Load-op1", "w"),
            operator("Default/Other-op2", stack=(MAIN,)),
            operator("Default/MatMul-op3", "Load-op1", stack=(NET, MAIN)),
            operator("Gradients/Default/MatMul-op4", "Load-op1", stack=(MAIN,)),
            operator("Default/optimizer-SGD/SGD-op5", "w", stack=(MAIN,)),
        ],
    )
    found = node_of_use(graph, graph.node("w"), lambda node: graph.nodes.index(node))
    assert found is graph.node("Default/MatMul-op3")
