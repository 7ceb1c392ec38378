"""Tensors of which a dump holds a line in ``statistic.csv`` and no file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tensight.dumps import open_dump, read_tensor, tensor_header
from tensight.dumps import rank_index as rank_index_module
from tensight.errors import TensorFileError
from tests.dumps.dump_writer import DumpWriter, GraphWriter
from tests.dumps.statistics_writer import DEFAULT, FIXED, OLD, record_dump

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

HEADER = ",".join([*FIXED, "Max Value", "Min Value", "L2Norm Value"])


def line(name: str = "Add-op1", *, op_type: str = "Add", moment: int = 100, io: str = "output", slot: int = 0) -> str:
    return f'{op_type},{name},0,0,{moment},{io},{slot},16,Float32,"(4,)",2,-1,{moment}'


@pytest.fixture
def writer(tmp_path: Path) -> DumpWriter:
    made = DumpWriter(tmp_path / "dump")
    graph = GraphWriter().parameter("conv.weight")
    graph.operator("Default/net/Add-op1", inputs=("conv.weight",))
    graph.operator("Default/net/Relu-op2", op_type="ReLU", inputs=("1",))
    made.graph(graph)
    made.history(0, 1)
    return made


def write(writer: DumpWriter, *lines: str, iteration: int = 0, header: str = HEADER) -> Path:
    path = writer.folder(iteration) / "statistic.csv"
    path.write_text("\n".join([header, *lines]) + "\n")
    return path


@pytest.mark.parametrize("name", ["Add-op1", "Default/net/Add-op1", "Default_net_Add-op1"])
def test_a_line_finds_its_node_however_the_name_is_spelled(writer: DumpWriter, name: str) -> None:
    path = write(writer, line(name), line("conv.weight", op_type="Parameter"))
    dump = open_dump(writer.root)
    assert dump.tensors() == []
    operator, parameter = dump.recorded_tensors()
    assert (operator.node, operator.op_type, operator.io, operator.slot) == ("Default/net/Add-op1", "Add", "output", 0)
    assert parameter.node == "conv.weight"
    assert (operator.path, operator.size_bytes, operator.declared_dtype) == (str(path), 0, "Float32")
    assert operator.recorded is not None
    assert operator.recorded.values == {"max": 2.0, "min": -1.0, "l2norm": 100.0}
    assert operator.address is not None
    assert dump.execution_position(operator) < dump.execution_position(parameter)
    assert dump.problems == []


def test_the_newest_line_of_a_tensor_wins_and_the_others_are_kept(writer: DumpWriter) -> None:
    write(writer, line(moment=100), line(moment=300), line("Default/net/Add-op1", moment=200))
    (tensor,) = open_dump(writer.root).recorded_tensors()
    assert tensor.timestamp == 300
    assert [older.timestamp for older in tensor.older] == [200, 100]


def test_a_tensor_with_a_file_is_no_recorded_one(writer: DumpWriter) -> None:
    writer.tensor(0, "Add.Add-op1", timestamp=900)
    write(writer, line(), line(io="input"), line("Relu-op2", op_type="ReLU"))
    dump = open_dump(writer.root)
    assert len(dump.tensors()) == 1
    assert [(one.op_type, one.io) for one in dump.recorded_tensors()] == [("Add", "input"), ("ReLU", "output")]


def test_a_file_and_a_line_without_a_node_are_known_to_be_the_same_by_name_or_moment(writer: DumpWriter) -> None:
    writer.tensor(0, "Mul.Default_other_Mul-op7", timestamp=900)
    writer.tensor(0, "Div.Strange_Div-op9", timestamp=901)
    same_name = line("Default/other/Mul-op7", op_type="Mul", moment=5)
    same_moment = line("Div-op1", op_type="Div", moment=901)
    another = line("Sub-op3", op_type="Sub", moment=902)
    write(writer, same_name, same_moment, another)
    assert [one.op_name for one in open_dump(writer.root).recorded_tensors()] == ["Sub-op3"]


def test_ranks_and_iterations_restrict_the_list(writer: DumpWriter) -> None:
    write(writer, line(), iteration=0)
    write(writer, line(), iteration=1)
    dump = open_dump(writer.root)
    assert [one.iteration for one in dump.recorded_tensors()] == [0, 1]
    assert [one.iteration for one in dump.recorded_tensors(iterations=[1])] == [1]
    assert len(dump.recorded_tensors(ranks=[0])) == 2
    assert dump.recorded_tensors(ranks=[]) == []


def test_reading_the_values_says_that_there_are_none(writer: DumpWriter) -> None:
    write(writer, line())
    (tensor,) = open_dump(writer.root).recorded_tensors()
    for read in (read_tensor, tensor_header):
        with pytest.raises(TensorFileError, match=r"only statistics were recorded.*saved_data"):
            read(tensor)


def test_bad_lines_and_unknown_operators_are_problems(writer: DumpWriter) -> None:
    write(writer, line(), "nonsense", line("Foreign-op5", op_type="Foreign"))
    write(writer, line(), iteration=1, header="no,header")
    dump = open_dump(writer.root)
    assert [one.node for one in dump.recorded_tensors()] == ["Default/net/Add-op1", None]
    texts = [str(problem) for problem in dump.problems]
    assert any("statistic.csv:3" in text and "1 fields" in text for text in texts)
    assert any("not a statistics file" in text for text in texts)
    assert any("1 of 2 recorded tensors match no node" in text for text in texts)


def test_a_file_with_too_many_lines_is_cut_and_a_problem(writer: DumpWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rank_index_module, "MAX_RECORDED_TENSORS", 2)
    write(writer, *(line(slot=slot) for slot in range(5)))
    dump = open_dump(writer.root)
    assert len(dump.recorded_tensors()) == 2
    assert any("more than 2 lines" in str(problem) for problem in dump.problems)


def test_a_statistics_file_that_grows_changes_the_fingerprint(writer: DumpWriter) -> None:
    settings = writer.rank() / ".dump_metadata" / "data_dump.json"
    settings.write_text(settings.read_text().replace('"iteration"', '"saved_data": "statistic", "iteration"'))
    path = write(writer, line())
    before = open_dump(writer.root).fingerprint()
    assert open_dump(writer.root).fingerprint() == before
    with path.open("a") as file:
        file.write(line(io="input") + "\n")
    assert open_dump(writer.root).fingerprint() != before


@pytest.mark.sampled(4)
@pytest.mark.parametrize("columns", [OLD, DEFAULT], ids=["up to 2.2", "default"])
@pytest.mark.parametrize("name", ["sick-2.0.0", "sick-2.10.0", "healthy-2.0.0", "healthy-2.10.0"])
def test_lines_made_from_a_real_dump_are_its_tensors(
    name: str, columns: tuple[str, ...], unpacked: Callable[[str], Path], dump_copy: Callable[[str], Path]
) -> None:
    copy = dump_copy(name)
    record_dump(copy, columns)
    dump = open_dump(copy)
    files = [file for file in open_dump(unpacked(name)).tensors() if not file.is_constant]
    recorded = dump.recorded_tensors()
    assert [(one.address, one.op_name, one.timestamp) for one in recorded] == [
        (one.address, one.op_name, one.timestamp) for one in files
    ]
    assert [len(one.older) for one in recorded] == [len(one.older) for one in files]
    assert not dump.problems
    summary = dump.summary()["ranks"][0]
    assert (summary["recorded"], summary["recorded_unmatched"]) == (len(files), 0)
    assert all(one._replace(recorded=None) == one for one in recorded[:3])


def test_outputs_that_nobody_wrote_are_left_out_with_a_file_or_without(writer: DumpWriter) -> None:
    graph = GraphWriter().parameter("conv.weight")
    graph.operator("Default/optimizer/Adam-op3", inputs=("conv.weight",))
    writer.graph(graph)
    writer.tensor(0, "Adam.Adam-op3", timestamp=900)
    write(writer, line("Adam-op3", op_type="Adam", moment=900), line("Adam-op3", op_type="Adam", moment=900, slot=1))
    write(writer, line("Adam-op3", op_type="Adam", io="input"), iteration=1)
    dump = open_dump(writer.root)
    assert dump.tensors() == []
    assert [(one.io, one.iteration) for one in dump.recorded_tensors()] == [("input", 1)]
    assert [(one.slot, one.recorded is None) for one in dump.unwritten_tensors()] == [(0, True), (1, False)]
    assert dump.unwritten_tensors(iterations=[1]) == []
    assert dump.summary()["ranks"][0]["unwritten"] == 2
    assert len(open_dump(writer.root, with_unwritten=True).tensors()) == 1


def test_on_ascend_outputs_of_optimizers_share_memory_with_parameters(writer: DumpWriter) -> None:
    machine = writer.rank() / ".dump_metadata" / "config.json"
    machine.write_text('{"device_target": "Ascend", "ms_version": "2.0.0"}')
    write(writer, line("Default/optimizer/Adam-op3", op_type="Adam"))
    dump = open_dump(writer.root)
    assert [one.op_type for one in dump.recorded_tensors()] == ["Adam"]
    assert dump.unwritten_tensors() == []
