"""What the graph of a branch is given, by the graphs of one call."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from tensight.agents.core.slots import SlotTable
from tensight.agents.mindspore.branch_inputs import branch_inputs
from tensight.agents.mindspore.graph_programs import GraphPrograms
from tensight.agents.mindspore.launches import Launch
from tensight.graph import ms_graph_pb2 as pb
from tensight.graph.data_types import DT_TENSOR
from tensight.graph.declared import Given

if TYPE_CHECKING:
    from pathlib import Path

    from tensight.agents.core.program import Source
    from tensight.agents.mindspore.launches import Files

FIRST, SECOND = "Gradients/Default/MatMul-op0", "Gradients/Default/MatMul-op1"
Shape = tuple[int, ...]


def float_tensor(shape: Shape) -> bytes:
    kind = pb.TypeProto(data_type=DT_TENSOR)
    kind.tensor_type.elem_type = 11
    for length in shape:
        kind.tensor_type.shape.dim.add(size=length)
    return kind.SerializeToString()


def graph(number: int, given: dict[str, Shape], computed: dict[str, Shape], returned: tuple[str, ...]) -> pb.GraphProto:
    """Return a graph of operators that read all that it is given."""
    message = pb.GraphProto(name=b"kernel_graph%d" % number, root_name=b"%d" % number)
    for name, shape in given.items():
        message.parameters.add(name=name.encode(), type=float_tensor(shape))
    for name, shape in computed.items():
        node = message.node.add(name=name.encode(), op_type=b"MatMul", full_name=name.encode())
        node.output_type = float_tensor(shape)
        for source in given:
            node.input.add(name=source.encode())
    whole = message.node.add(name=b"whole", op_type=b"MakeTuple", full_name=b"Default/MakeTuple-op%d" % number)
    for name in returned:
        whole.input.add(name=name.encode())
    return message


def found(folder: Path, *graphs: pb.GraphProto, ran: tuple[int, ...] = (0, 1, 2)) -> dict[str, Given]:
    """Return what is found in graphs that MindSpore has written into a folder, some of which ran in turn."""
    programs = GraphPrograms(SlotTable())
    files = {}
    for number, message in enumerate(graphs):
        files[number] = str(folder / f"ms_output_trace_code_graph_{number}.pb")
        (folder / f"ms_output_trace_code_graph_{number}.pb").write_bytes(
            pb.ModelProto(graph=message).SerializeToString()
        )
    programs.learn(files, lambda number: tuple(node.full_name.decode() for node in graphs[number].node))
    learned = [programs.program(number) for number in files]
    launches = [
        Launch(number, 0, "", (), (), cast("Files", None), began=10 * index + 1, ended=10 * index + 5)
        for index, number in enumerate(ran)
        if number < len(graphs)
    ]
    return branch_inputs([program for program in learned if program is not None], launches)


def certainly(given: Given) -> set[Source]:
    """Return the values of which one is given for certain."""
    return {(source.node, source.slot) for source in given.sources} if given.is_complete else set()


def around(first: Shape, second: Shape) -> pb.GraphProto:
    return graph(0, {"x": (2, 2)}, {FIRST: first, SECOND: second}, (FIRST, SECOND))


def test_a_value_comes_from_the_only_operator_whose_result_looks_like_it(tmp_path: Path) -> None:
    branch = graph(1, {"Parameter_7": (4, 3), "Parameter_8": (4, 3)}, {"Default/Mul-op0": (2,)}, ("Parameter_8",))
    other = graph(2, {"Parameter_9": (4, 3)}, {"Default/Mul-op1": (2,)}, ("Parameter_9",))
    given = found(tmp_path, around((4, 3), (3, 2)), branch, other)
    assert set(given) == {"Parameter_7", "Parameter_8", "Parameter_9"}
    assert all(certainly(one) == {(FIRST, 0)} for one in given.values())


def test_of_several_that_look_alike_it_is_one(tmp_path: Path) -> None:
    branch = graph(1, {"Parameter_7": (4, 3)}, {"Default/Mul-op0": (2,)}, ("Default/Mul-op0",))
    assert certainly(found(tmp_path, around((4, 3), (4, 3)), branch)["Parameter_7"]) == {(FIRST, 0), (SECOND, 0)}


def test_what_runs_later_gives_nothing(tmp_path: Path) -> None:
    branch = graph(1, {"Parameter_7": (4, 3)}, {"Default/Mul-op0": (4, 3)}, ("Default/Mul-op0",))
    outer = around((4, 3), (3, 2))
    assert certainly(found(tmp_path, outer, branch)["Parameter_7"]) == {(FIRST, 0)}
    assert found(tmp_path, outer, branch, ran=(1, 0))["Parameter_7"] == Given((), is_complete=False)


def test_a_single_number_may_be_a_constant_that_no_graph_has(tmp_path: Path) -> None:
    outer = graph(0, {"x": (2, 2)}, {FIRST: (), "Default/Mul-op5": (4, 3)}, (FIRST, "Default/Mul-op5"))
    branch = graph(1, {"Parameter_7": (), "Parameter_8": (4, 3)}, {"Default/Mul-op0": (2,)}, ("Parameter_8",))
    given = found(tmp_path, outer, branch)
    assert not given["Parameter_7"].is_complete
    assert certainly(given["Parameter_8"]) == {("Default/Mul-op5", 0)}


def test_inputs_of_the_network_are_nothing_that_a_graph_has_computed(tmp_path: Path) -> None:
    branch = graph(1, {"labels": (4, 3), "Parameter_7": (3, 2)}, {"Default/Mul-op0": (2,)}, ("Default/Mul-op0",))
    assert set(found(tmp_path, around((4, 3), (3, 2)), branch)) == {"Parameter_7"}
