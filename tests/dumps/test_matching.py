"""Which node a file belongs to."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tensight.dumps import Dump, open_dump, read_segments, read_tensor, tensor_header
from tests.dumps import ascend_writer as device
from tests.dumps.dump_writer import DumpWriter, GraphWriter, npy_bytes

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def writer(tmp_path: Path) -> DumpWriter:
    return DumpWriter(tmp_path / "run")


def nodes_of(dump: Dump) -> list[str | None]:
    return [tensor.node for tensor in dump.tensors()]


def messages(dump: Dump) -> str:
    return "\n".join(map(str, dump.problems))


def test_short_names_find_operators_and_dotted_names_parameters(writer: DumpWriter) -> None:
    writer.graph(
        GraphWriter()
        .parameter("fc1.weight")
        .parameter("moments.fc1.weight")
        .parameter("inputs0")
        .operator("Default/net/fc1-Dense/MatMul-op7", inputs=("inputs0", "fc1.weight"))
    )
    for head in ("MatMul.MatMul-op7", "Parameter.fc1.weight", "Parameter.moments.fc1.weight", "Parameter.inputs0"):
        writer.tensor(0, head)
    dump = open_dump(writer.root)
    assert nodes_of(dump) == ["Default/net/fc1-Dense/MatMul-op7", "fc1.weight", "moments.fc1.weight", "inputs0"]
    assert dump.problems == []
    assert str(dump.tensors()[0].address) == "0/kernel_graph_0/Default/net/fc1-Dense/MatMul-op7:0@1"


def test_joined_names_find_operators_and_parameters(writer: DumpWriter) -> None:
    writer.graph(
        GraphWriter("kernel_graph0")
        .parameter("fc1.weight")
        .operator("Default/net-Net/_backbone-Net/fc.1-Dense/MatMul-op0")
    )
    writer.tensor(0, "MatMul.Default_net-Net__backbone-Net_fc_1-Dense_MatMul-op0", dtype="Float32")
    writer.tensor(0, "Parameter.fc1_weight", dtype="Float32")
    dump = open_dump(writer.root)
    assert nodes_of(dump) == ["Default/net-Net/_backbone-Net/fc.1-Dense/MatMul-op0", "fc1.weight"]


@pytest.mark.parametrize("full_name", ["Default--data-3", "Default_data-3"])
def test_constants_find_their_nodes_in_both_spellings(writer: DumpWriter, full_name: str) -> None:
    writer.graph(GraphWriter().constant("cst1", full_name).operator("Default/Add-op0", inputs=("cst1",)))
    writer.tensor("constants", "Parameter.data-3")
    writer.tensor(0, "Add.Add-op0")
    dump = open_dump(writer.root)
    assert nodes_of(dump) == [full_name, "Default/Add-op0"]
    assert [tensor.iteration for tensor in dump.tensors()] == [-1, 0]
    assert dump.tensors(iterations=[0])[0].op_type == "Add"
    assert dump.tensors(iterations=[-1])[0].is_constant
    assert dump.previous(dump.tensors()[0]) is None


def test_folded_constants_without_a_node_are_no_problem(writer: DumpWriter) -> None:
    writer.graph(GraphWriter().operator("Default/Add-op0"))
    writer.tensor("constants", "Parameter.data-8")
    writer.tensor(0, "Add.Add-op0")
    dump = open_dump(writer.root)
    assert nodes_of(dump) == [None, "Default/Add-op0"]
    assert dump.problems == []
    assert dump.summary()["ranks"][0]["constants_without_node"] == 1


def test_two_nodes_of_one_short_name_and_type_are_ambiguous(writer: DumpWriter) -> None:
    writer.graph(GraphWriter().operator("Default/a/Add-op1").operator("Default/b/Add-op1"))
    writer.tensor(0, "Add.Add-op1")
    dump = open_dump(writer.root)
    assert nodes_of(dump) == [None]
    assert "ambiguous: 1 of 1 files" in messages(dump)
    assert "kernel_graph_0/Default/a/Add-op1, kernel_graph_0/Default/b/Add-op1" in messages(dump)
    assert dump.tensors()[0].address is None


def test_as_many_dumps_as_nodes_that_follow_one_another_are_given_out_in_order(writer: DumpWriter) -> None:
    graph = GraphWriter().operator("Default/a/Add-op1").operator("Default/Mul-op2", inputs=("1",))
    writer.graph(graph.operator("Default/b/Add-op1", inputs=("2",)))
    writer.tensor(0, "Add.Add-op1", [2.0], timestamp=20)
    writer.tensor(0, "Add.Add-op1", [1.0], timestamp=10)
    dump = open_dump(writer.root)
    assert [(tensor.node, float(read_tensor(tensor)[0])) for tensor in dump.tensors()] == [
        ("Default/a/Add-op1", 1.0),
        ("Default/b/Add-op1", 2.0),
    ]
    assert dump.problems == []


def test_as_many_dumps_as_nodes_that_may_run_in_any_order_stay_ambiguous(writer: DumpWriter) -> None:
    writer.graph(GraphWriter().operator("Default/a/Add-op1").operator("Default/b/Add-op1"))
    writer.tensor(0, "Add.Add-op1", timestamp=20)
    writer.tensor(0, "Add.Add-op1", timestamp=10)
    dump = open_dump(writer.root)
    assert nodes_of(dump) == [None]
    assert "ambiguous: 2 of 2 files" in messages(dump)


def test_the_operator_type_decides_between_nodes_of_one_short_name(writer: DumpWriter) -> None:
    writer.graph(GraphWriter().operator("Default/a/x-op1", "Add").operator("Default/b/x-op1", "Mul"))
    writer.tensor(0, "Mul.x-op1")
    assert nodes_of(open_dump(writer.root)) == ["Default/b/x-op1"]


def test_the_number_of_slots_decides_between_nodes_of_one_short_name(writer: DumpWriter) -> None:
    graph = GraphWriter().parameter("p").parameter("q")
    writer.graph(graph.operator("Default/a/Add-op1", inputs=("p",)).operator("Default/b/Add-op1", inputs=("p", "q")))
    writer.tensor(0, "Add.Add-op1", io="input", slot=1)
    assert nodes_of(open_dump(writer.root)) == ["Default/b/Add-op1"]


def test_a_short_name_of_another_type_is_no_match(writer: DumpWriter) -> None:
    writer.graph(GraphWriter().operator("Default/a/Add-op1"))
    writer.tensor(0, "Mul.Add-op1")
    dump = open_dump(writer.root)
    assert nodes_of(dump) == [None]
    assert "another type: Mul.Add-op1" in messages(dump)


def test_names_that_become_equal_when_joined_are_told_apart_by_type_or_called_ambiguous(writer: DumpWriter) -> None:
    graph = GraphWriter("kernel_graph0").operator("Default/a/b/Add-op0").operator("Default/a_b/Add-op0")
    writer.graph(graph.operator("Default/c/d-op0", "Mul").operator("Default/c_d-op0", "Sub"))
    writer.tensor(0, "Add.Default_a_b_Add-op0", dtype="Float32")
    writer.tensor(0, "Sub.Default_c_d-op0", dtype="Float32")
    dump = open_dump(writer.root)
    assert nodes_of(dump) == ["Default/c_d-op0", None]
    assert "Default/a/b/Add-op0" in messages(dump)
    assert "Default/a_b/Add-op0" in messages(dump)


def test_a_graph_of_another_run_is_reported_with_counts(writer: DumpWriter) -> None:
    writer.graph(GraphWriter().operator("Default/Add-op1").operator("Default/Mul-op2"))
    for head in ("Add.Add-op1", "Add.Add-op91", "Mul.Mul-op92", "Sub.Sub-op93", "Div.Div-op94"):
        writer.tensor(0, head)
        writer.tensor(1, head)
    dump = open_dump(writer.root)
    assert sum(node is None for node in nodes_of(dump)) == 8
    assert "rank_0/Net/0: 8 of 10 files match no node of the graph: Add.Add-op91, Div.Div-op94" in messages(dump)
    assert "and 1 more" in messages(dump)


def numbered(writer: DumpWriter, graph: list[int], files: list[int], dtypes: dict[int, str] | None = None) -> list[Any]:
    """Dump operators ``Default_Cast-op{file}`` of a graph that numbers them otherwise; return nodes by file number."""
    built = GraphWriter("kernel_graph0")
    for number in graph:
        built.operator(f"Default/Cast-op{number}", inputs=())
    writer.graph(built)
    for number in files:
        writer.tensor(0, f"Cast.Default_Cast-op{number}", dtype=(dtypes or {}).get(number, "Float32"))
    by_name = {tensor.op_name: tensor.node for tensor in open_dump(writer.root).tensors()}
    return [by_name[f"Default_Cast-op{number}"] for number in files]


def test_files_numbered_otherwise_than_the_graph_are_matched_in_order(writer: DumpWriter) -> None:
    assert numbered(writer, [5, 6, 8, 9, 7], [0, 1, 2, 3, 4]) == [f"Default/Cast-op{n}" for n in (5, 6, 8, 9, 7)]


def test_numbers_of_a_graph_that_counts_anew_in_every_scope_are_trusted_only_if_it_counts_upwards(
    writer: DumpWriter,
) -> None:
    graph = GraphWriter("kernel_graph0").operator("Default/MatMul-op0", inputs=())
    for number in (2, 0, 1):
        graph.operator(f"Gradients/Default/MatMul-op{number}", inputs=())
    writer.graph(graph)
    files = ("Default_MatMul-op0", *(f"Gradients_Default_MatMul-op{number}" for number in range(3)))
    for name in files:
        writer.tensor(0, f"MatMul.{name}", dtype="Float32")
    by_name = {tensor.op_name: tensor.node for tensor in open_dump(writer.root).tensors()}
    assert [by_name[name] for name in files] == [
        "Default/MatMul-op0",
        *(f"Gradients/Default/MatMul-op{number}" for number in (2, 0, 1)),
    ]


def test_numbers_that_are_unique_in_a_graph_are_trusted_in_any_order(writer: DumpWriter) -> None:
    numbers = [2, 0, 1]
    assert numbered(writer, numbers, [0, 1, 2]) == [f"Default/Cast-op{number}" for number in sorted(numbers)]


def test_no_number_is_trusted_where_one_is_wrong(writer: DumpWriter) -> None:
    assert numbered(writer, [1, 2], [0, 1]) == ["Default/Cast-op1", "Default/Cast-op2"]


def test_numbers_are_trusted_where_all_are_known(writer: DumpWriter) -> None:
    assert numbered(writer, [0, 1, 2], [0, 2]) == ["Default/Cast-op0", "Default/Cast-op2"]


def test_wrong_numbers_of_another_count_stay_ambiguous(writer: DumpWriter) -> None:
    assert numbered(writer, [1, 2, 3], [0, 1]) == [None, None]
    assert "ambiguous: 2 of 2 files" in messages_after_indexing(writer)


def test_wrong_numbers_whose_types_disagree_stay_ambiguous(writer: DumpWriter) -> None:
    assert numbered(writer, [2, 3], [0, 1], {0: "Float16"}) == [None, None]


def messages_after_indexing(writer: DumpWriter) -> str:
    dump = open_dump(writer.root)
    dump.tensors()
    return messages(dump)


def test_a_parameter_shared_by_sub_graphs_belongs_to_the_root_graph(writer: DumpWriter) -> None:
    writer.graph(GraphWriter("kernel_graph_1", "2").parameter("w").operator("Default/Add-op1"), 1)
    writer.graph(GraphWriter("kernel_graph_2", "2").parameter("w").operator("Default/Mul-op2"), 2)
    writer.tensor(0, "Parameter.w", graph_id=2)
    writer.tensor(0, "Add.Add-op1", graph_id=2)
    dump = open_dump(writer.root)
    assert [(tensor.graph, tensor.node) for tensor in dump.tensors()] == [
        ("kernel_graph_1", "Default/Add-op1"),
        ("kernel_graph_2", "w"),
    ]
    assert dump.problems == []


def test_parameters_of_one_name_but_different_shape_are_ambiguous(writer: DumpWriter) -> None:
    writer.graph(GraphWriter("kernel_graph_1", "2").parameter("inputs0", (2,)), 1)
    writer.graph(GraphWriter("kernel_graph_2", "2").parameter("inputs0", (3,)), 2)
    writer.tensor(0, "Parameter.inputs0", graph_id=2)
    assert nodes_of(open_dump(writer.root)) == [None]


def test_graphs_with_folders_of_their_own_do_not_share_names(writer: DumpWriter) -> None:
    for graph_id in (0, 1):
        writer.graph(GraphWriter(f"kernel_graph_{graph_id}", str(graph_id)).operator("Default/Add-op1"), graph_id)
        writer.tensor(0, "Add.Add-op1", graph_id=graph_id)
    dump = open_dump(writer.root)
    assert [tensor.graph for tensor in dump.tensors()] == ["kernel_graph_0", "kernel_graph_1"]
    assert dump.problems == []


def test_tensors_of_a_folder_without_a_graph_are_kept_without_a_node(writer: DumpWriter) -> None:
    writer.graph(GraphWriter().operator("Default/Add-op1"))
    writer.tensor(0, "Add.Add-op1", graph_id=7)
    dump = open_dump(writer.root)
    assert nodes_of(dump) == [None]
    assert "rank_0/Net/7: no graph has this number" in messages(dump)


def test_a_long_name_is_found_through_the_mapping(writer: DumpWriter) -> None:
    scope = "Default/" + "x" * 300
    writer.graph(GraphWriter("kernel_graph0").operator(f"{scope}/Add-op0"))
    folder = writer.folder(0)
    (folder / "123456.npy").write_bytes(npy_bytes(np.ones(3)))
    original = f"Add.Default_{'x' * 300}_Add-op0.0.0.77.output.0.DefaultFormat.Float32.npy"
    (folder / "mapping.csv").write_text(f"123456,{original}\n999,../outside.npy\n")
    dump = open_dump(writer.root)
    tensor = dump.tensors()[0]
    assert (tensor.node, tensor.timestamp, tensor.path) == (f"{scope}/Add-op0", 77, str(folder / "123456.npy"))
    assert read_tensor(tensor).shape == (3,)
    assert "mapping.csv: 1 lines are not of the form digits,name" in messages(dump)


def test_the_newest_of_repeated_dumps_is_shown_and_the_others_listed(writer: DumpWriter) -> None:
    writer.graph(GraphWriter().operator("Default/Add-op1"))
    for moment, value in ((200, 2.0), (300, 3.0), (100, 1.0)):
        writer.tensor(0, "Add.Add-op1", [value], timestamp=moment)
    dump = open_dump(writer.root)
    (tensor,) = dump.tensors()
    assert tensor.timestamp == 300
    assert [older.timestamp for older in tensor.older] == [200, 100]
    assert [float(read_tensor(older)[0]) for older in tensor.older] == [2.0, 1.0]
    assert dump.summary()["ranks"][0]["files"] == 3


def test_every_slot_of_an_ascend_file_is_a_tensor_of_its_node(writer: DumpWriter) -> None:
    writer.graph(GraphWriter().operator("Default/net/Conv2D-op1"))
    host = np.arange(2 * 3 * 4 * 5).reshape(2, 3, 4, 5).astype(np.float16)
    data = device.dump_data(
        inputs=[device.device_tensor(host, "NC1HWC0", 16)],
        outputs=[device.host_tensor(np.ones((3, 2), np.float32))],
    )
    (writer.folder(0) / "Conv2D.Default_net_Conv2D-op1.3.4.1700000000000000").write_bytes(data)
    dump = open_dump(writer.root)
    given, made = dump.tensors()
    assert dump.problems == []
    assert {given.node, made.node} == {"Default/net/Conv2D-op1"}
    assert (given.io, given.slot, given.format, given.task_id, given.stream_id) == ("input", 0, "NC1HWC0", 3, 4)
    assert (made.io, made.slot, made.format, made.declared_dtype) == ("output", 0, "ND", "FLOAT")
    assert tensor_header(given).shape == host.shape
    np.testing.assert_array_equal(read_tensor(given), host)
    np.testing.assert_array_equal(np.concatenate(list(read_segments(made, 4))), np.ones(6))


def test_a_converted_tensor_beside_its_binary_is_shown_once(writer: DumpWriter) -> None:
    writer.graph(GraphWriter().operator("Default/net/Add-op1"))
    data = device.dump_data(inputs=[], outputs=[device.host_tensor(np.ones(4, np.float32))])
    (writer.folder(0) / "Add.Default_net_Add-op1.3.4.1700").write_bytes(data)
    (writer.folder(0) / "Add.Add-op1.3.4.1700.output.0.NCHW.npy").write_bytes(npy_bytes(np.ones(4, np.float32)))
    (tensor,) = open_dump(writer.root).tensors()
    assert tensor.name.endswith(".npy")
    assert len(tensor.older) == 1


def test_a_damaged_ascend_file_is_a_problem_and_the_rest_is_read(writer: DumpWriter) -> None:
    writer.graph(GraphWriter().operator("Default/net/Add-op1"))
    (writer.folder(0) / "Add.Default_net_Add-op1.3.4.1700").write_bytes(b"\xff" * 30)
    writer.tensor(0, "Add.Add-op1")
    dump = open_dump(writer.root)
    assert nodes_of(dump) == ["Default/net/Add-op1"]
    assert "not an Ascend dump file" in messages(dump)


def test_raw_files_of_the_first_versions_find_their_nodes(writer: DumpWriter) -> None:
    writer.graph(GraphWriter().operator("Default/net/Add-op1"))
    name = "Default--net--Add-op1_output_0_shape_4_Float32_DefaultFormat.bin"
    (writer.folder(0) / name).write_bytes(np.ones(4, np.float32).tobytes())
    (tensor,) = open_dump(writer.root).tensors()
    assert tensor.node == "Default/net/Add-op1"
    assert read_tensor(tensor).shape == (4,)


def test_files_that_are_no_tensors_are_passed_over_or_listed(writer: DumpWriter) -> None:
    writer.graph(GraphWriter().operator("Default/Add-op1"))
    writer.tensor(0, "Add.Add-op1")
    for name in ("statistic.csv", "Opdebug.Node_OpDebug.1.2.3", "Add.Add-op1.json", "convert_failed_file_list.txt"):
        (writer.folder(0) / name).write_bytes(b"")
    dump = open_dump(writer.root)
    assert len(dump.tensors()) == 1
    assert dump.problems == []
    (writer.folder(0) / "notes.txt").write_bytes(b"")
    (writer.folder(0) / "Add.Add-op1.0.0.5.sideways.0.ND.npy").write_bytes(b"")
    assert "2 files are not named like tensors: " in messages_after_indexing(writer)


def test_names_that_are_no_text_or_would_steer_a_terminal_do_no_harm(writer: DumpWriter) -> None:
    writer.graph(GraphWriter().operator("Default/Add-op1"))
    good = writer.tensor(0, "Add.Add-op1")
    for name in (b"Add.Add-op1\xff.0.0.5.output.0.ND.npy", b"Add.\x1b[2J.0.0.5.output.0.ND.npy", b"\n.txt"):
        (writer.folder(0) / os.fsdecode(name)).write_bytes(good.read_bytes())
    dump = open_dump(writer.root)
    assert len(dump.tensors()) == 2
    assert messages(dump).replace("\n", "").isprintable()
    messages(dump).encode()
    assert len(dump.problems) == 3
