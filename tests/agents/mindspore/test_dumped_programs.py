"""Graphs that MindSpore wrote become programs, and files of real dumps find their slots in them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tensight.agents.core.graph_messages import execution_order, graph_message
from tensight.agents.core.program import Program
from tensight.agents.core.slots import NO_SLOT, SlotTable
from tensight.agents.mindspore.graph_programs import GraphPrograms
from tensight.dumps import open_dump
from tensight.dumps.execution import parse_order
from tensight.graph import kinds, parse_graph, parse_graph_proto
from tensight.graph import ms_graph_pb2 as pb
from tensight.graph.data_types import DT_TENSOR
from tensight.graph.optimizers import parameter_roles

if TYPE_CHECKING:
    from collections.abc import Callable

    from tensight.agents.mindspore.graph_programs import DumpedProgram
    from tensight.dumps import TensorFile
    from tensight.graph import Graph

SICK = ("sick-2.0.0", "sick-2.10.0")
HEALTHY = ("healthy-2.0.0", "healthy-2.10.0")


class Dumped:
    """A dump of one rank as an adapter sees it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        rank = folder / "rank_0"
        self.files = {int(path.stem.rpartition("_")[2]): str(path) for path in (rank / "graphs").glob("*.pb")}
        self._orders = rank / "execution_order"
        (self._tensors,) = (path for path in rank.iterdir() if path.name in ("Sick", "Healthy"))
        self.slot_table = SlotTable()
        self.programs = GraphPrograms(self.slot_table)

    def order_of(self, graph: int) -> tuple[str, ...]:
        return parse_order((self._orders / f"ms_execution_order_graph_{graph}.csv").read_text())

    def learn(self, *graphs: int) -> None:
        self.programs.learn({number: self.files[number] for number in graphs or self.files}, self.order_of)

    def program(self, graph: int = 0) -> DumpedProgram:
        found = self.programs.program(graph)
        assert found is not None
        return found

    def graph(self, number: int = 0) -> Graph:
        with open(self.files[number], "rb") as file:
            return parse_graph(file.read(), where="here")

    def add(self, graph: pb.GraphProto, number: int, folder: Path) -> DumpedProgram:
        """Learn one more graph, that runs what the first one does."""
        file = folder / f"ms_output_trace_code_graph_{number}.pb"
        file.write_bytes(pb.ModelProto(graph=graph).SerializeToString())
        known = {node.full_name.decode() for node in graph.node}
        order = tuple(name for name in self.order_of(0) if name in known)
        self.programs.learn({**self.files, number: str(file)}, lambda _: order)
        return self.program(int(graph.root_name))

    def launch(self, graph: int = 0, iteration: int = 1) -> list[str]:
        return sorted(os.listdir(self._tensors / str(graph) / str(iteration)))


@pytest.fixture
def dumped(unpacked: Callable[[str], Path]) -> Callable[[str], Dumped]:
    return lambda name: Dumped(unpacked(name))


@pytest.mark.parametrize("name", [*SICK, *HEALTHY])
def test_every_file_has_the_place_of_the_node_that_the_dump_finds_for_it(
    name: str, dumped: Callable[[str], Dumped]
) -> None:
    own = dumped(name)
    own.learn()
    launches: dict[tuple[int, int], list[TensorFile]] = {}
    for tensor in open_dump(own.folder).tensors():
        if tensor.iteration >= 0:
            launches.setdefault((tensor.graph_id, tensor.iteration), []).append(tensor)
    assert len(launches) > 3
    for (graph, _), tensors in launches.items():
        program, written = own.program(graph), own.graph(graph)
        shown = parse_graph_proto(graph_message(program.program), where="here")
        files = [os.path.basename(tensor.path) for tensor in tensors]
        for tensor, number in zip(tensors, program.slot_ids_of(files), strict=True):
            assert tensor.node is not None
            if tensor.op_type == "Adam" and tensor.io == "output":
                # It writes to its parameters, and nothing to its outputs.
                assert number == NO_SLOT
                continue
            tensor_slot = own.slot_table[number]
            assert shown.node(tensor_slot.node.name).id == written.node(tensor.node).id
            assert (tensor_slot.slot, tensor_slot.io) == (tensor.slot, tensor.io)
        assert [slot_id for file in files for slot_id in program.slot_ids_of([file])] == program.slot_ids_of(files)


def test_files_of_later_steps_have_the_places_of_the_first(dumped: Callable[[str], Dumped]) -> None:
    own = dumped("sick-2.10.0")
    own.learn()
    program = own.program()
    first, second = (
        dict(zip(_untimed(own.launch(0, at)), program.slot_ids_of(own.launch(0, at)), strict=True)) for at in (0, 1)
    )
    assert first == second
    assert NO_SLOT not in first.values()
    declared = len(own.slot_table)
    program.slot_ids_of(own.launch(0, 2))
    assert len(own.slot_table) == declared


def test_what_is_no_tensor_of_the_graph_has_no_place(dumped: Callable[[str], Dumped]) -> None:
    own = dumped("sick-2.10.0")
    own.learn()
    others = [
        "statistic.csv",
        "ReLU.Default_elsewhere_ReLU-op0.0.0.1795211555589722.output.0.DefaultFormat.Float32.npy",
        "Parameter.data-3.0.0.1795211555589722.output.0.DefaultFormat.Int64.npy",
        "a.b.c.d.e.f.g.h.npy",
    ]
    assert own.program().slot_ids_of(others) == [NO_SLOT] * 4


@pytest.mark.parametrize("name", SICK)
def test_parameters_have_their_roles(name: str, dumped: Callable[[str], Dumped]) -> None:
    own = dumped(name)
    own.learn()
    roles = {node.name: node.role for node in own.program().program.nodes if node.role not in ("operator", "constant")}
    assert roles["network.conv.weight"] == roles["network.dead.conv.bias"] == "weight"
    assert roles["network.gate.weight"] == "frozen_weight"
    assert roles["inputs0"] == roles["inputs1"] == "input"
    states = {name for name, role in roles.items() if role == "state"}
    assert {"momentum", "learning_rate_group_0", "moments.network.conv.weight"} <= states
    assert states.isdisjoint(name for name in roles if name.startswith("network."))


@pytest.mark.parametrize("name", [*SICK, *HEALTHY])
def test_kinds_of_nodes_are_those_of_the_dump_shown_or_written_anew(name: str, dumped: Callable[[str], Dumped]) -> None:
    own = dumped(name)
    own.learn()
    for number in own.files:
        program, graph = own.program(number).program, own.graph(number)
        shown = parse_graph_proto(graph_message(program), where="here")
        anew = parse_graph_proto(graph_message(Program(program.name, program.number, program.nodes)), where="here")
        assert shown.name == graph.name
        assert not shown.problems
        assert [kinds(shown, node) for node in shown.nodes] == [kinds(graph, node) for node in graph.nodes]
        for node in program.nodes:
            assert kinds(shown, shown.node(node.name)) == kinds(anew, anew.node(node.name))
            if node.role != "constant":
                assert shown.node(node.name).outputs == anew.node(node.name).outputs


@pytest.mark.parametrize("name", [*SICK, *HEALTHY])
def test_operators_are_in_the_order_in_which_they_ran(name: str, dumped: Callable[[str], Dumped]) -> None:
    own = dumped(name)
    own.learn()
    order = own.order_of(0)
    assert own.program().order == order
    assert execution_order(own.program().program) == list(order)
    assert own.program().updates
    assert not any(own.program(number).updates for number in own.files if number)


def test_lines_are_the_users(dumped: Callable[[str], Dumped], planted: dict[str, Any]) -> None:
    for name in SICK:
        own = dumped(name)
        own.learn()
        nodes = {node.name: node for node in own.program().program.nodes}
        for sickness in ("inf", "nan", "dead_relu", "exploding_gradient"):
            what = planted[name]["planted"][sickness]
            frame = nodes[what["operator"]].stack[0]
            assert (frame.file, frame.line) == (what["file"], what["line"])
            assert frame.code
            assert all("site-packages" not in one.file for one in nodes[what["operator"]].stack)


def test_a_graph_that_is_compiled_again_for_another_batch_has_the_same_names(
    dumped: Callable[[str], Dumped], tmp_path: Path
) -> None:
    own = dumped("sick-2.10.0")
    own.learn()
    first = own.program().program
    again = own.add(_numbered(own.files[0], 7), 7, tmp_path)
    assert again.program.name == "kernel_graph7"
    assert [node.name for node in again.program.nodes] == [node.name for node in first.nodes]
    declared = len(own.slot_table)
    own.program().slot_ids_of(own.launch(0, 1))
    known = len(own.slot_table)
    assert again.slot_ids_of(own.launch(0, 1)) == own.program().slot_ids_of(own.launch(0, 1))
    assert len(own.slot_table) == known > declared


def test_an_operator_that_means_something_else_in_another_graph_has_another_name(
    dumped: Callable[[str], Dumped],
) -> None:
    own = dumped("healthy-2.10.0")
    own.learn()
    training, evaluation = own.program(0), own.program(1)
    assert set(training.order).isdisjoint(evaluation.order)
    assert evaluation.order[0].endswith("/hidden-Dense/MatMul-op1")
    shown = parse_graph_proto(graph_message(evaluation.program), where="here")
    assert [node.name for node in shown.operators if node.name in evaluation.order] != []
    assert set(evaluation.order) <= {node.name for node in shown.operators}


def test_what_a_graph_reads_from_the_one_around_it_is_the_same_parameter(
    dumped: Callable[[str], Dumped], tmp_path: Path
) -> None:
    own = dumped("sick-2.10.0")
    own.learn()
    inner = pb.GraphProto(name=b"kernel_graph3", root_name=b"3")
    inner.parameters.add(name="▸network.fc1.weight".encode(), type=_float_type(8, 216))
    inner.parameters.add(name="▸фrounds".encode(), type=_float_type())
    inner.node.add(
        name=b"1",
        op_type=b"Mul",
        scope=b"Default",
        full_name=b"Default/Mul-op77",
        input=[pb.InputProto(name="▸network.fc1.weight".encode()), pb.InputProto(name="▸фrounds".encode())],
        output_type=_float_type(8, 216),
    )
    program = own.add(inner, 3, tmp_path).program
    assert [(node.name, node.role) for node in program.nodes] == [
        ("network.fc1.weight", "weight"),
        ("фrounds", "input"),
        ("Default/Mul-op77", "operator"),
    ]
    assert program.nodes[-1].inputs == (("network.fc1.weight", 0), ("фrounds", 0))
    shown = parse_graph_proto(graph_message(program), where="here")
    assert [edge.source for edge in shown.node("Default/Mul-op77").inputs] == ["network.fc1.weight", "фrounds"]


@pytest.mark.parametrize(
    ("writers", "named"),
    [
        (["ApplyMomentum"], "Default/ApplyMomentum-op0"),
        (["ApplyMomentum", "SGD"], "Default/SGD-op1"),
        (["ApplyMomentum", "Assign"], None),
        (["Adam"], None),
        (["ApplyMomentum", "Mul"], "Default/ApplyMomentum-op0"),
    ],
)
def test_an_update_puts_out_its_weight_if_nothing_writes_to_it_later(
    dumped: Callable[[str], Dumped], tmp_path: Path, writers: list[str], named: str | None
) -> None:
    own = dumped("sick-2.10.0")
    own.learn()
    graph = pb.GraphProto(name=b"kernel_graph3", root_name=b"3")
    graph.parameters.add(name=b"network.fc1.weight", type=_float_type(8, 216))
    for number, kind in enumerate(writers):
        graph.node.add(
            name=str(number).encode(),
            op_type=kind.encode(),
            scope=b"Default",
            full_name=f"Default/{kind}-op{number}".encode(),
            input=[pb.InputProto(name=b"network.fc1.weight"), pb.InputProto(name=b"network.fc1.weight")],
            output_type=_float_type(8, 216),
        )
    graph.node.add(name=b"last", op_type=b"AssignAdd", scope=b"Default", full_name=b"Default/AssignAdd-op9")
    program = own.add(graph, 3, tmp_path)
    assert program.updated([program.parameters["network.fc1.weight"]]) == {}
    ran = own.slot_table.slot_id(own.slot_table.node("Default/AssignAdd-op9", "AssignAdd", "operator"), 0)
    updated = program.updated([ran])
    found = {
        (own.slot_table[slot_id].node.name, own.slot_table[slot_id].slot): name for slot_id, name in updated.items()
    }
    assert found == ({} if named is None else {(named, 0): "network.fc1.weight"})


def test_what_is_trained_is_known_from_all_graphs(dumped: Callable[[str], Dumped]) -> None:
    own = dumped("healthy-2.10.0")
    own.learn(1)
    evaluation = own.program(1)
    assert {node.role for node in evaluation.program.nodes if node.name.startswith("network.")} == {"weight"}
    own.learn()
    assert own.programs.program(0) is not None
    tensor_slot = own.slot_table[
        own.program(0).slot_ids_of(["Parameter.network_out_bias.0.0.1.output.0.DefaultFormat.Float32.npy"])[0]
    ]
    assert tensor_slot.node.role == "weight"


def test_a_role_that_somebody_has_declared_stays(dumped: Callable[[str], Dumped]) -> None:
    own = dumped("sick-2.10.0")
    own.slot_table.node("network.fc2.bias", "Parameter", "frozen_weight")
    own.learn()
    roles = {node.name: node.role for node in own.program().program.nodes}
    assert roles["network.fc2.bias"] == "frozen_weight"


def test_graphs_that_share_a_folder_are_one_program(dumped: Callable[[str], Dumped], tmp_path: Path) -> None:
    own = dumped("sick-2.10.0")
    own.learn()
    part = _numbered(own.files[0], 5)
    part.root_name = b"0"
    own.add(part, 5, tmp_path)
    whole = own.program(0).program
    graph = own.graph()
    operators = [node for node in whole.nodes if node.role == "operator"]
    assert len(operators) == 2 * len(own.order_of(0))
    assert len({node.name for node in operators}) == len(operators)
    assert sum(node.role == "weight" for node in whole.nodes) == len(parameter_roles(graph).trainable)
    shown = parse_graph_proto(graph_message(whole), where="here")
    assert not shown.problems
    assert len(shown.operators) == 2 * len(graph.operators)
    for node in operators:
        found = [source and (source[0].name, source[1]) for source in shown.flat_producers(shown.node(node.name))]
        made = [source for source, known in zip(found, node.inputs, strict=False) if known and "data-" not in known[0]]
        assert made == [source for source in node.inputs if source and "data-" not in source[0]]


def test_a_damaged_graph_is_left_out_until_it_is_whole(dumped: Callable[[str], Dumped], tmp_path: Path) -> None:
    own = dumped("sick-2.10.0")
    whole = Path(own.files[0]).read_bytes()
    file = tmp_path / "ms_output_trace_code_graph_0.pb"
    file.write_bytes(whole[: len(whole) // 2])
    own.files = {0: str(file)}
    own.learn()
    assert own.programs.program(0) is None
    file.write_bytes(whole)
    own.learn()
    assert own.program(0).updates


def _numbered(file: str, number: int) -> pb.GraphProto:
    """Return a graph as if it were of another number."""
    with open(file, "rb") as opened:
        graph = pb.ModelProto.FromString(opened.read()).graph
    graph.name = f"kernel_graph{number}".encode()
    graph.root_name = str(number).encode()
    return graph


def _float_type(*shape: int) -> bytes:
    message = pb.TypeProto(data_type=DT_TENSOR)
    message.tensor_type.elem_type = 11
    for length in shape:
        message.tensor_type.shape.dim.add(size=length)
    return message.SerializeToString()


def _untimed(files: list[str]) -> list[str]:
    return [".".join((*file.split(".")[:-6], *file.split(".")[-5:])) for file in files]
