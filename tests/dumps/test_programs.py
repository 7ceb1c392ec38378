"""What is done once for folders with the same names, and for ranks that ran the same program."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tensight.dumps import Dump, open_dump
from tensight.dumps.execution import ExecutionOrder
from tensight.dumps.indexing import FolderIndex, FolderIndexer, FolderPlans
from tensight.dumps.matching import NodeMatcher
from tensight.dumps.storage import open_storage
from tensight.graph import Graph, parse_graph
from tests.dumps.dump_writer import DumpWriter, GraphWriter


def graph() -> GraphWriter:
    writer = GraphWriter().parameter("w").constant("c", "Default/data-2")
    writer.operator("Default/net/Add-op1", inputs=("w",)).operator("Default/net/Mul-op2", inputs=("1",))
    return writer.operator("Default/net/Adam-op3", inputs=("w", "c")).operator("Default/other/Add-op1")


@pytest.fixture
def writer(tmp_path: Path) -> DumpWriter:
    writer = DumpWriter(tmp_path / "dump")
    writer.graph(graph())
    return writer


def fill(writer: DumpWriter, iteration: int, rank: int = 0) -> None:
    """Write files that are matched, unmatched, unwritten, ambiguous and no tensors."""
    for head in (
        "Mul.Mul-op2",
        "Add.Default_net_Add-op1",
        "Parameter.w",
        "Lost.Lost-op9",
        "Lost.Lost-op8",
        "Add.Add-op1",
    ):
        writer.tensor(iteration, head, np.full(iteration + 1, 2.0), rank=rank)
    writer.tensor(iteration, "Mul.Mul-op2", io="input", rank=rank, dtype="BFloat16")
    writer.tensor(iteration, "Adam.Adam-op3", rank=rank)
    folder = writer.folder(iteration, rank=rank)
    (folder / "notes.txt").write_text("")
    (folder / "folder.npy").mkdir()
    (folder / "statistic.csv").write_text("")


class Indexing:
    """Indexes the folders of a dump, with plans or each for itself."""

    def __init__(self, root: Path) -> None:
        self.storage = open_storage(root)
        data = (root / "rank_0/graphs/ms_output_trace_code_graph_0.pb").read_bytes()
        graphs: tuple[Graph, ...] = (parse_graph(data, where="graph"),)
        self.matcher = NodeMatcher(graphs, ExecutionOrder(graphs, {}), 0)
        self.plans: FolderPlans = {}

    def planned(self, iteration: int) -> FolderIndex:
        return FolderIndexer(self.storage, 0, 0, self.matcher, plans=self.plans).index(
            f"rank_0/Net/0/{iteration}", iteration
        )

    def alone(self, iteration: int) -> FolderIndex:
        return FolderIndexer(self.storage, 0, 0, self.matcher).index(f"rank_0/Net/0/{iteration}", iteration)


def test_a_folder_with_the_same_names_at_other_times_is_indexed_by_the_plan(writer: DumpWriter) -> None:
    for iteration in range(3):
        fill(writer, iteration)
    indexing = Indexing(writer.root)
    for iteration in range(3):
        index = indexing.planned(iteration)
        assert index == indexing.alone(iteration)
        assert (len(index.tensors), len(index.unwritten), len(index.unread), len(index.problems)) == (7, 1, 1, 1)
        assert index.report.matched == 4
        assert {tensor.iteration for tensor in index.tensors} == {iteration}
        assert all(Path(tensor.path).stat().st_size == tensor.size_bytes for tensor in index.tensors)
        assert str(tensor_time := index.tensors[0].timestamp) in index.tensors[0].path
        assert tensor_time > 0
    assert len(indexing.plans) == 1


def test_other_names_have_another_plan(writer: DumpWriter) -> None:
    fill(writer, 0)
    fill(writer, 1)
    writer.tensor(1, "Mul.Mul-op2", slot=1)
    indexing = Indexing(writer.root)
    assert [indexing.planned(iteration) for iteration in (0, 1)] == [indexing.alone(iteration) for iteration in (0, 1)]
    assert len(indexing.plans) == 2


def test_no_plan_is_made_where_times_and_contents_decide(writer: DumpWriter) -> None:
    for iteration in range(4):
        fill(writer, iteration)
    writer.tensor(0, "Mul.Mul-op2")
    (writer.folder(1) / "mapping.csv").write_text("12,Add.Default_other_Add-op1.0.0.5.output.0.ND.npy\n")
    writer.tensor(1, "12")
    (writer.folder(2) / "Default--net--Mul-op2_output_0_shape_2_Float32_ND.bin").write_bytes(bytes(8))
    indexing = Indexing(writer.root)
    for iteration in range(3):
        assert indexing.planned(iteration) == indexing.alone(iteration)
        assert not indexing.plans
    indexing.planned(3)
    assert len(indexing.plans) == 1


def ranks(writer: DumpWriter) -> Dump:
    for rank in range(3):
        writer.graph(graph(), rank=rank)
        fill(writer, 0, rank)
    return open_dump(writer.root)


def test_ranks_that_ran_the_same_program_share_it(writer: DumpWriter) -> None:
    dump = ranks(writer)
    assert dump.graphs(0)[0] is dump.graphs(1)[0] is dump.graphs(2)[0]
    for rank in range(3):
        tensors = dump.tensors(ranks=[rank])
        assert len(tensors) == 7
        assert {tensor.rank for tensor in tensors} == {rank}
        assert all(f"/rank_{rank}/" in tensor.path for tensor in tensors)
        positions = [dump.execution_position(tensor) for tensor in tensors]
        assert positions == sorted(positions)


def test_ranks_with_another_graph_or_order_have_their_own(writer: DumpWriter) -> None:
    ranks(writer)
    order = writer.rank(1) / "execution_order" / "ms_execution_order_graph_0.csv"
    title, *lines = order.read_text().splitlines()
    order.write_text("\n".join([title, *reversed(lines)]))
    writer.graph(graph().operator("Default/net/Mul-op7"), rank=2)
    dump = open_dump(writer.root)
    assert [dump.execution_order(rank)[0] for rank in (0, 1)] == ["Default/net/Add-op1", "Default/other/Add-op1"]
    assert len(dump.execution_order(2)) == 5
    for rank in range(3):
        tensors = dump.tensors(ranks=[rank])
        positions = [dump.execution_position(tensor) for tensor in tensors]
        assert positions == sorted(positions)


def test_every_rank_says_its_own_problems(writer: DumpWriter) -> None:
    dump = ranks(writer)
    for rank in (0, 1):
        path = writer.rank(rank) / "graphs" / "ms_output_trace_code_graph_0.pb"
        path.write_bytes(path.read_bytes()[:-9])
    dump = open_dump(writer.root)
    dump.tensors()
    damaged = [problem.where for problem in dump.problems if problem.where.endswith(".pb")]
    assert damaged == [f"rank_{rank}/graphs/ms_output_trace_code_graph_0.pb" for rank in (0, 1)]
    assert [tensor.node is None for tensor in dump.tensors()].count(False) == 4
