"""What a graph is given by others that ran before, and in which order graphs run."""

from __future__ import annotations

import pytest

from tensight.graph import Edge, Graph, Node, OutputSlot, parse_graph_proto
from tensight.graph import ms_graph_pb2 as pb
from tensight.graph.declared import Given, GivenSource
from tensight.graph.given import GraphRun, given_values, printed_names, read_given, serialized_given
from tensight.graph.node import CONSTANT, PARAMETER
from tensight.graph.protobuf_fields import ProtobufFormatError, length_delimited_fields
from tensight.graph.run_order import RunOrder

SHAPE = (4, 5)
PRINTED = """
subgraph @kernel_graph0() {
  %0(equiv_11_x) = PrimFunc_MatMul(%para3_inputs0, %0, Bool(0), Bool(1)) {instance name: matmul}
      : (<Tensor[Float32], (4, 6)>) -> (<Tensor[Float32], (4, 5)>)
      # Fullname with scope: (Default/dense-Dense/MatMul-op0)
      # In file train.py:15, 12~22/        h = self.dense(x)/
  %1(CNode_52) = MakeTuple(%0) cnode_attrs: {is_dynamic_len: Bool(0)}
      # Fullname with scope: (Default/MakeTuple-op5)
"""


def slot(shape: tuple[int, ...] | None = SHAPE) -> tuple[OutputSlot, ...]:
    return (OutputSlot.of_tensor(11, shape),)


def graph(name: str, given: str, *operators: str, constant: bool = False) -> Graph:
    """Return a graph that is given one value, computes others from it and returns them, with a constant if asked."""
    nodes = [Node(given, PARAMETER, outputs=slot())]
    nodes += [Node(f"{name}.value", CONSTANT, outputs=slot(None))] if constant else []
    nodes += [Node(one, one.partition("-")[0], inputs=(Edge(given),), outputs=slot()) for one in operators]
    returned = [f"{name}.value"] if constant else []
    edges = tuple(map(Edge, (*operators, *returned)))
    tuple_slots = tuple(one for _ in edges for one in slot(None))
    return Graph(name, [*nodes, Node(f"{name}.returned", "MakeTuple", inputs=edges, outputs=tuple_slots)])


def run(of: Graph, first: int, last: int | None = None, *, printed: dict[str, str] | None = None) -> GraphRun:
    return GraphRun(of, first, first if last is None else last, last is not None, printed or {})


OUTER = graph("outer", "inputs0", "MatMul-op0", "BiasAdd-op0")
NAMES = {"MatMul-op0": "x", "BiasAdd-op0": "h"}


def test_a_captured_variable_is_a_value_of_its_name() -> None:
    branch = graph("branch", "▸h", "Exp-op0")
    given = given_values(branch, [run(OUTER, 1, printed=NAMES), run(branch, 2)])
    assert given == {"▸h": Given((GivenSource("outer", "BiasAdd-op0", 0),), is_complete=True)}


def test_a_captured_variable_that_nothing_is_called_like_may_be_an_input_of_the_network() -> None:
    branch = graph("branch", "▸mask", "Exp-op0")
    assert given_values(branch, [run(OUTER, 1, printed=NAMES), run(branch, 2)]) == {
        "▸mask": Given((), is_complete=False)
    }


def test_a_captured_input_that_another_graph_reads_is_that_input() -> None:
    branch = graph("branch", "▸inputs0", "Exp-op0")
    given = given_values(branch, [run(OUTER, 1, printed=NAMES), run(branch, 2)])
    assert given["▸inputs0"] == Given((GivenSource("outer", "inputs0", 0),), is_complete=True)


def test_a_captured_variable_may_be_called_like_the_input_that_it_is_computed_from() -> None:
    outer, branch = graph("outer", "h", "Mul-op0"), graph("branch", "▸h", "Exp-op0")
    given = given_values(branch, [run(outer, 1, printed={"Mul-op0": "h"}), run(branch, 2)])["▸h"]
    assert set(given.sources) == {GivenSource("outer", "h", 0), GivenSource("outer", "Mul-op0", 0)}


def test_of_mindspore_2_0_nobody_knows_whether_a_captured_variable_is_an_input_that_only_the_branch_reads() -> None:
    branch = graph("branch", "▸mask", "Exp-op0")
    given = given_values(branch, [run(OUTER, 1), run(branch, 2)])["▸mask"]
    values = tuple(GivenSource("outer", name, 0) for name in NAMES)
    assert given == Given(values, is_complete=False)
    unnamed = graph("branch", "▸71", "Exp-op0")
    assert given_values(unnamed, [run(OUTER, 1), run(unnamed, 2)])["▸71"] == Given(values, is_complete=True)


def test_what_a_loop_is_given_is_not_certain() -> None:
    body = graph("body", "Parameter_3", "Exp-op0")
    given = given_values(body, [run(OUTER, 1), run(body, 2, 6)])["Parameter_3"]
    assert GivenSource("body", "Exp-op0", 0) in given.sources
    assert not given.is_complete


def test_what_follows_a_loop_is_given_the_value_that_is_seen() -> None:
    body, after = graph("body", "Parameter_3", "Exp-op0"), graph("after", "Parameter_9", "Mul-op0")
    given = given_values(after, [run(body, 2, 6), run(after, 7)])["Parameter_9"]
    assert given == Given((GivenSource("body", "Exp-op0", 0),), is_complete=True)


def test_a_constant_that_a_branch_may_have_returned_is_one_of_the_sources() -> None:
    after, idle = graph("after", "Parameter_9", "Mul-op0"), graph("idle", "Parameter_5", constant=True)
    given = given_values(after, [run(OUTER, 1), run(after, 7)], [idle])["Parameter_9"]
    assert GivenSource("idle", "idle.value", 0) in given.sources


def test_names_are_read_as_they_are_printed() -> None:
    assert printed_names(PRINTED) == {"Default/dense-Dense/MatMul-op0": "x", "Default/MakeTuple-op5": "CNode_52"}


def test_names_that_mindspore_2_0_prints_are_those_of_other_values() -> None:
    assert printed_names(PRINTED.replace("equiv_11_x", "equivloss")) == {}


def test_what_is_given_travels_with_the_graph() -> None:
    given = {
        "Parameter_7": Given((GivenSource("kernel_graph0", "Exp-op0", 0), GivenSource("kernel_graph0", "h", 2)), True),
        "▸mask": Given((), is_complete=False),
    }
    written = pb.GraphProto(name=b"kernel_graph0").SerializeToString() + serialized_given(given)
    assert dict(parse_graph_proto(written, where="here").given) == given


def test_a_damaged_slot_is_refused() -> None:
    written = serialized_given({"p": Given((GivenSource("", "n", 7),), is_complete=True)})
    entries = [content for _, content in length_delimited_fields(written.replace(b"7", b"x"))]
    with pytest.raises(ProtobufFormatError, match="slot"):
        read_given(entries, "")


@pytest.mark.parametrize(
    ("steps", "order"),
    [
        ([[0, 3, 1, 2]], [0, 3, 1, 2]),
        ([[0, 3, 1, 2], [0, 6, 8, 1, 2]], [0, 3, 6, 8, 1, 2]),
        ([[0, 1], [0, 1, 7]], [0, 1, 7]),
    ],
)
def test_a_graph_that_runs_for_the_first_time_stands_before_what_runs_after_it(
    steps: list[list[int]], order: list[int]
) -> None:
    ran = RunOrder()
    for step in steps:
        ran.learn(step)
    assert ran.sorted([*range(10)]) == [*order, *(number for number in range(10) if number not in order)]
