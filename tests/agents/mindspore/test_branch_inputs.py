"""Which gradients the graph of a branch is given, by the graphs of one call."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensight.agents.mindspore.branch_inputs import branch_inputs
from tensight.agents.mindspore.graph_programs import GraphPrograms
from tensight.agents.places import PlaceTable
from tensight.graph import ms_graph_pb2 as pb
from tensight.graph.data_types import DT_TENSOR

if TYPE_CHECKING:
    from pathlib import Path

    from tensight.agents.program import Source

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


def found(folder: Path, *graphs: pb.GraphProto) -> dict[str, Source]:
    """Return what is found in graphs that MindSpore has written into a folder."""
    programs = GraphPrograms(PlaceTable())
    files = {}
    for number, message in enumerate(graphs):
        files[number] = str(folder / f"ms_output_trace_code_graph_{number}.pb")
        (folder / f"ms_output_trace_code_graph_{number}.pb").write_bytes(
            pb.ModelProto(graph=message).SerializeToString()
        )
    programs.learn(files, lambda number: tuple(node.full_name.decode() for node in graphs[number].node))
    learned = [programs.program(number) for number in files]
    return branch_inputs([program for program in learned if program is not None])


def around(first: Shape, second: Shape) -> pb.GraphProto:
    return graph(0, {"x": (2, 2)}, {FIRST: first, SECOND: second}, (FIRST, SECOND))


def test_a_gradient_comes_from_the_only_operator_whose_result_looks_like_it(tmp_path: Path) -> None:
    branch = graph(1, {"Parameter_7": (4, 3), "Parameter_8": (4, 3)}, {"Default/Mul-op0": (2,)}, ("Parameter_8",))
    other = graph(2, {"Parameter_9": (4, 3)}, {"Default/Mul-op1": (2,)}, ("Parameter_9",))
    links = found(tmp_path, around((4, 3), (3, 2)), branch, other)
    assert links == dict.fromkeys(("Parameter_7", "Parameter_8", "Parameter_9"), (FIRST, 0))


def test_of_several_that_look_alike_none_is_chosen(tmp_path: Path) -> None:
    branch = graph(1, {"Parameter_7": (4, 3), "Parameter_8": (4, 3)}, {"Default/Mul-op0": (2,)}, ("Parameter_8",))
    assert found(tmp_path, around((4, 3), (4, 3)), branch) == {}


def test_what_another_branch_may_have_made_of_it_is_no_longer_the_gradient(tmp_path: Path) -> None:
    clipping = graph(1, {"Parameter_7": (4, 3)}, {"Default/Mul-op0": (4, 3)}, ("Default/Mul-op0",))
    links = found(tmp_path, around((4, 3), (3, 2)), clipping)
    assert links == {}


def test_single_numbers_and_what_is_no_gradient_are_left_alone(tmp_path: Path) -> None:
    outer = graph(0, {"x": (2, 2)}, {FIRST: (), "Default/Mul-op5": (4, 3)}, (FIRST, "Default/Mul-op5"))
    branch = graph(1, {"Parameter_7": (), "Parameter_8": (4, 3)}, {"Default/Mul-op0": (2,)}, ("Parameter_8",))
    assert found(tmp_path, outer, branch) == {}
