"""What a recorder writes, `open_dump` reads."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tensight.dumps import CONSTANTS, Device, open_dump, read_tensor
from tensight.dumps.recorder import DumpRecorder, RankRecorder, RecordedRow
from tensight.errors import GraphError
from tensight.graph import Graph, TensorAddress
from tensight.graph.protobuf_fields import length_delimited_fields
from tests.dumps.dump_writer import GraphWriter, part

SCOPE = "Default/network/conv1-Conv2d"
MODEL_GRAPH = 4


def recorder(tmp_path: Path) -> DumpRecorder:
    return DumpRecorder(
        tmp_path / "run" / "dump", tmp_path / "run" / "arriving", framework_version="2.0.0", device_target="GPU"
    )


def proto(writer: GraphWriter) -> bytes:
    """The GraphProto alone, as it comes over the wire."""
    return writer.body + part(2, writer.name) + part(6, writer.root)


def network(name: str = "kernel_graph_0", root: str = "0") -> GraphWriter:
    graph = GraphWriter(name, root)
    graph.parameter("conv1.weight").parameter("inputs0").constant("cst1", "Default--data-3")
    graph.operator(f"{SCOPE}/Conv2D-op1", inputs=("inputs0", "conv1.weight"))
    graph.operator("Default/network/ReLU-op2", inputs=("1",))
    return graph


def receive(rank: RankRecorder, *writers: GraphWriter, orders: dict[str, tuple[str, ...]] | None = None) -> list[Graph]:
    received = []
    for writer in writers:
        file = rank.new_graph()
        data = proto(writer)
        file.write([data[:10], memoryview(data)[10:]])
        received.append((file, file.parse("the test")))
    rank.keep_graphs(received, orders)
    return [graph for _, graph in received]


def keep(rank: RankRecorder, graph: Graph, node: str, iteration: int, array: Any, slot: int = 0, **io: bool) -> Path:
    writer = rank.new_tensor(array.dtype, array.shape)
    writer.write([array.tobytes()])
    assert writer.missing_bytes == 0
    return rank.keep_tensor(writer, graph, graph.node(node), slot, iteration, **io)


def test_graphs_and_tensors_are_read_back_with_their_addresses(tmp_path: Path) -> None:
    rank = recorder(tmp_path).rank(0)
    (graph,) = receive(rank, network())
    values = {
        f"{SCOPE}/Conv2D-op1": np.arange(6, dtype=np.float32).reshape(2, 3),
        "conv1.weight": np.array(7.5),
        "Default/network/ReLU-op2": np.empty((0, 4), np.int8),
    }
    for node, array in values.items():
        keep(rank, graph, node, 4, array)

    dump = open_dump(tmp_path / "run")
    assert [node.name for node in dump.graphs(0)[0].nodes] == [node.name for node in graph.nodes]
    found = {tensor.address: read_tensor(tensor) for tensor in dump.tensors()}
    assert set(found) == {TensorAddress(0, "kernel_graph_0", node, 0, 4) for node in values}
    for address, array in found.items():
        assert address is not None
        np.testing.assert_array_equal(array, values[address.node])
        assert array.dtype == values[address.node].dtype
    assert dump.problems == []


def test_the_dump_says_how_and_where_it_was_made(tmp_path: Path) -> None:
    run = recorder(tmp_path)
    for number, server in ((0, "alpha"), (1, "beta")):
        receive(run.rank(number, Device(number, server, 3)), network())
    dump = open_dump(tmp_path / "run")
    assert dump.ranks == (0, 1)
    assert (dump.metadata.framework_version, dump.metadata.device_target) == ("2.0.0", "GPU")
    assert dump.metadata.saved_data == "full"
    assert dump.devices() == (Device(0, "alpha", 3), Device(1, "beta", 3))


def test_inputs_and_constants_keep_their_place(tmp_path: Path) -> None:
    rank = recorder(tmp_path).rank(0)
    (graph,) = receive(rank, network())
    keep(rank, graph, f"{SCOPE}/Conv2D-op1", 0, np.ones(2, np.float16), slot=1, is_input=True)
    keep(rank, graph, "Default--data-3", 9, np.zeros(1, np.int64))
    addresses = [tensor.address for tensor in open_dump(tmp_path / "run").tensors()]
    assert addresses == [
        TensorAddress(0, "kernel_graph_0", "Default--data-3", 0, CONSTANTS),
        TensorAddress(0, "kernel_graph_0", f"{SCOPE}/Conv2D-op1", 1, 0, "input"),
    ]


def test_operators_that_end_alike_are_told_apart(tmp_path: Path) -> None:
    rank = recorder(tmp_path).rank(0)
    writer = GraphWriter()
    for scope in ("Default/a", "Default/b", "Default/b/Conv2D-op1"):
        writer.operator(f"{scope}/Conv2D-op1", "Conv2D")
    writer.operator("Conv2D-op1", "Conv2D").operator("aten::mm.default_1", "aten::mm.default")
    (graph,) = receive(rank, writer)
    for value, node in enumerate(graph.operators):
        keep(rank, graph, node.name, 0, np.array([value], np.int32))
    found = {tensor.node: int(read_tensor(tensor)[0]) for tensor in open_dump(tmp_path / "run").tensors()}
    assert found == {node.name: value for value, node in enumerate(graph.operators)}


def test_names_too_long_for_a_file_and_names_that_are_paths_are_read_back(tmp_path: Path) -> None:
    rank = recorder(tmp_path).rank(0)
    long_name = "Default/" + "inner_network/" * 30 + "MatMul-op1"
    # Twice, so that the last part of the name is not enough.
    nodes = [long_name, long_name.replace("inner", "outer"), "../../../etc/Passwd-op7"]
    writer = GraphWriter()
    for node in nodes:
        writer.operator(node)
    (graph,) = receive(rank, writer)
    for node in nodes:
        path = keep(rank, graph, node, 0, np.ones(1, np.float32))
        assert path.parent == tmp_path / "run" / "dump" / "rank_0" / "network" / "0" / "0"
    assert {tensor.node for tensor in open_dump(tmp_path / "run").tensors()} == set(nodes)


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2])
def test_what_numpy_has_no_name_for_is_read_back_as_such(tmp_path: Path, dtype: type) -> None:
    rank = recorder(tmp_path).rank(0)
    (graph,) = receive(rank, network())
    array = np.array([1.5, -2, np.nan], dtype)
    keep(rank, graph, "conv1.weight", 1, array)
    (tensor,) = open_dump(tmp_path / "run").tensors()
    assert read_tensor(tensor).dtype == dtype
    assert read_tensor(tensor).tobytes() == array.tobytes()


def test_several_graphs_each_have_their_own_folder_and_file(tmp_path: Path) -> None:
    rank = recorder(tmp_path).rank(0)
    first, second, third = receive(
        rank, network("kernel_graph_0"), network("kernel_graph_1", "1"), network("another_1", "1")
    )
    for graph in (first, second):
        keep(rank, graph, "Default/network/ReLU-op2", 0, np.full(2, graph.graph_id, np.float32))
    dump = open_dump(tmp_path / "run")
    assert {graph.name for graph in dump.graphs(0)} == {first.name, second.name, third.name}
    assert {tensor.graph_id: read_tensor(tensor)[0] for tensor in dump.tensors()} == {0: 0, 1: 1}


def test_execution_order_and_history_are_read_back(tmp_path: Path) -> None:
    rank = recorder(tmp_path).rank(0)
    order = ("Default/network/ReLU-op2", f"{SCOPE}/Conv2D-op1", "two\nlines")
    (graph,) = receive(rank, network(), orders={"kernel_graph_0": order})
    rank.record_executions(0, range(3))
    rank.record_executions(0, [3])
    keep(rank, graph, "conv1.weight", 1, np.ones(1))
    keep(rank, graph, "conv1.weight", 3, np.ones(1))
    dump = open_dump(tmp_path / "run")
    assert dump.execution_order(0) == order[:2]
    assert dump.history(0) == {0: (0, 1, 2, 3)}
    # Iteration 2 ran, but was not kept: what is there of iteration 1 is not the previous value.
    assert dump.previous(dump.tensors(iterations=[3])[0]) is None
    assert rank.order.names == order[:2]


def test_a_name_with_a_lone_surrogate_is_escaped_in_the_order_as_in_the_graph(tmp_path: Path) -> None:
    rank = recorder(tmp_path).rank(0)
    receive(rank, network(), orders={"kernel_graph_0": ["Default/caf\udce9/ReLU-op2"]})
    file = tmp_path / "run" / "dump" / "rank_0" / "execution_order" / "ms_execution_order_graph_0.csv"
    assert file.read_text().splitlines()[1:] == [r"Default/caf\udce9/ReLU-op2"]


def test_statistics_are_read_back_beside_values(tmp_path: Path) -> None:
    rank = recorder(tmp_path).rank(0)
    (graph,) = receive(rank, network())
    keep(rank, graph, "conv1.weight", 2, np.ones(4, np.float32))

    def row(op_type: str, name: str, **known: Any) -> RecordedRow:
        return RecordedRow(op_type, name, "output", 0, "float32", (4,), 16, **known)

    rows = [
        row("Conv2D", f"{SCOPE}/Conv2D-op1", max=2.5, min=-1.0, count=4, nan_count=1),
        row("Parameter", "conv1.weight", max=1.0),
        row("ReLU", "Default/network/ReLU-op2", mean=np.nan),
    ]
    rank.record_statistics(0, 2, rows[:1])
    rank.record_statistics(0, 2, rows)
    dump = open_dump(tmp_path / "run")
    recorded = {tensor.node: tensor.recorded for tensor in dump.recorded_tensors()}
    assert set(recorded) == {f"{SCOPE}/Conv2D-op1", "Default/network/ReLU-op2"}
    found = recorded[f"{SCOPE}/Conv2D-op1"]
    assert found is not None
    assert dict(found.values) == {"max": 2.5, "min": -1.0, "count": 4, "nan count": 1}
    assert (found.data_type, found.shape, found.data_size) == ("float32", (4,), 16)
    assert dump.problems == []


def test_a_graph_sent_again_replaces_the_first(tmp_path: Path) -> None:
    rank = recorder(tmp_path).rank(0)
    receive(rank, network())
    writer = network().operator("Default/network/Tanh-op3", inputs=("2",))
    (graph,) = receive(rank, writer)
    assert rank.graphs == (graph,)
    dump = open_dump(tmp_path / "run")
    assert [len(graph.operators) for graph in dump.graphs(0)] == [3]


def test_a_recorder_goes_on_with_what_an_earlier_one_wrote(tmp_path: Path) -> None:
    rank = recorder(tmp_path).rank(3)
    order = ("Default/network/ReLU-op2", f"{SCOPE}/Conv2D-op1")
    receive(rank, network(), network("kernel_graph_1", "1"), orders={"kernel_graph_0": order})
    rank.new_tensor(np.dtype("f4"), (4,)).write([bytes(7)])

    again = recorder(tmp_path).rank(3)
    assert os.listdir(tmp_path / "run" / "arriving") == []
    assert [graph.name for graph in again.graphs] == ["kernel_graph_0", "kernel_graph_1"]
    assert again.order.names[:2] == order
    receive(again, network("kernel_graph_1", "1").operator("Default/Tanh-op3"))
    assert [len(graph.operators) for graph in open_dump(tmp_path / "run").graphs(3)] == [2, 3]


def test_a_damaged_graph_file_does_not_stop_a_recorder_from_going_on(tmp_path: Path) -> None:
    receive(recorder(tmp_path).rank(0), network(), network("kernel_graph_1", "1"))
    folder = tmp_path / "run" / "dump" / "rank_0" / "graphs"
    (folder / "ms_output_trace_code_graph_0.pb").write_bytes(b"\xff\xff")
    (folder / "ms_output_trace_code_graph_7.pb").write_bytes(b"")
    rank = recorder(tmp_path).rank(0)
    assert [graph.name for graph in rank.graphs] == ["kernel_graph_1"]
    assert len(rank.problems) == 2


def test_what_is_not_complete_never_appears_in_the_dump(tmp_path: Path) -> None:
    rank = recorder(tmp_path).rank(0)
    receive(rank, network())
    before = sorted(path for path in (tmp_path / "run" / "dump").rglob("*") if path.is_file())
    graph, tensor = rank.new_graph(), rank.new_tensor(np.dtype("f4"), (4,))
    graph.write([b"\x0a\x7f"])
    tensor.write([bytes(7)])
    assert sorted(path for path in (tmp_path / "run" / "dump").rglob("*") if path.is_file()) == before
    with pytest.raises(GraphError, match="the test"):
        graph.parse("the test")
    with pytest.raises(GraphError, match="empty"):
        rank.new_graph().parse("the test")
    graph.discard()
    tensor.discard()
    tensor.discard()


def test_files_are_only_for_their_owner(tmp_path: Path) -> None:
    rank = recorder(tmp_path).rank(0)
    (graph,) = receive(rank, network())
    path = keep(rank, graph, "conv1.weight", 0, np.ones(1))
    assert path.stat().st_mode & 0o077 == 0
    assert (tmp_path / "run" / "dump").stat().st_mode & 0o077 == 0


def test_many_pieces_are_written_without_losing_one(tmp_path: Path) -> None:
    rank = recorder(tmp_path).rank(0)
    (graph,) = receive(rank, network())
    array = np.random.default_rng(0).standard_normal(5000)
    writer = rank.new_tensor(array.dtype, array.shape)
    data = memoryview(array.tobytes())
    writer.write([data[start : start + 8] for start in range(0, len(data), 8)])
    writer.write([])
    rank.keep_tensor(writer, graph, graph.node("conv1.weight"), 0, -1)
    initial = list((tmp_path / "run" / "dump" / "rank_0" / "network" / "0" / "init").iterdir())
    np.testing.assert_array_equal(np.load(initial[0]), array)


@pytest.mark.parametrize("source", ["dump_200", "dump_210", "dump_200_second"])
def test_a_dump_of_mindspore_recorded_anew_has_the_same_tensors(
    source: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    folder: Path = request.getfixturevalue(source)
    original = open_dump(folder)
    rank = recorder(tmp_path).rank(0)
    received = []
    for path in sorted((folder / "rank_0" / "graphs").glob("*.pb")):
        for number, content in length_delimited_fields(path.read_bytes()):
            if number == MODEL_GRAPH:
                file = rank.new_graph()
                file.write([content])
                received.append((file, file.parse(path.name)))
    rank.keep_graphs(received)
    graphs = {graph.name: graph for graph in rank.graphs}
    expected = {}
    for tensor in original.tensors(iterations=[CONSTANTS, 0, 1]):
        if tensor.node is not None:
            array = read_tensor(tensor)
            expected[tensor.address] = (array.dtype, array.shape, array.tobytes())
            is_input = tensor.io == "input"
            keep(rank, graphs[tensor.graph], tensor.node, tensor.iteration, array, tensor.slot, is_input=is_input)
    found = {}
    for tensor in open_dump(tmp_path / "run").tensors():
        array = read_tensor(tensor)
        found[tensor.address] = (array.dtype, array.shape, array.tobytes())
    assert len(expected) > 50
    assert found == expected
