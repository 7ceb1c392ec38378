"""Selecting nodes and tensors of real dumps."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tensight.debugger import (
    DebuggerParamTypeError,
    DebuggerParamValueError,
    DebuggerTensor,
    DumpAnalyzer,
    RankDirNotFound,
)

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("mem_limit", [1, -2048, 2**31, True])
def test_an_impossible_memory_limit_is_refused(dump_200: Path, mem_limit: int) -> None:
    with pytest.raises(DebuggerParamValueError, match=re.escape("[2048, 2147483647]")):
        DumpAnalyzer(dump_200, mem_limit=mem_limit)


def test_a_memory_limit_that_is_no_integer_is_refused(dump_200: Path) -> None:
    with pytest.raises(DebuggerParamTypeError, match="mem_limit should be int or None"):
        DumpAnalyzer(dump_200, mem_limit="4096")  # type: ignore[arg-type]


def test_a_folder_without_ranks_is_no_dump(dump_200: Path, tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "missing", dump_200 / "rank_0", dump_200.parent):
        with pytest.raises(RankDirNotFound, match=f"No rank directory found under {re.escape(str(folder))}"):
            DumpAnalyzer(folder)


def test_ranks_and_iterations_are_listed(old: DumpAnalyzer) -> None:
    assert old.get_ranks() == [0]
    assert old.get_iterations() == old.get_iterations(0) == old.get_iterations({0}) == [0, 1, 2, 3]
    assert old.get_iterations([]) == []


@pytest.mark.parametrize("ranks", [1, [0, 1], {-1}])
def test_an_unknown_rank_is_refused(old: DumpAnalyzer, ranks: Any) -> None:
    with pytest.raises(DebuggerParamValueError, match=re.escape("The value should be in [0]")):
        old.get_iterations(ranks)


@pytest.mark.parametrize("ranks", ["0", (0,), 1.0, [None]])
def test_a_selection_of_another_type_is_refused(old: DumpAnalyzer, ranks: Any) -> None:
    with pytest.raises(DebuggerParamTypeError, match="The type of ranks should be int"):
        old.select_nodes("", ranks=ranks)


def test_names_are_found_by_substring_and_by_regular_expression(old: DumpAnalyzer) -> None:
    plain = old.select_nodes("conv.weight")
    assert plain
    assert all("conv.weight" in node.name for node in plain)
    assert old.select_nodes("CONV.WEIGHT") == []
    assert old.select_nodes("CONV.WEIGHT", case_sensitive=False) == plain
    assert old.select_nodes(r"conv\.weight$", use_regex=True) == [n for n in plain if n.name.endswith("conv.weight")]
    assert old.select_nodes("conv\\.") == []


@pytest.mark.parametrize("name", ["old", "new"])
def test_the_line_of_code_finds_the_planted_operator(
    name: str, request: pytest.FixtureRequest, planted: dict[str, Any]
) -> None:
    analyzer: DumpAnalyzer = request.getfixturevalue(name)
    sick = planted["sick-2.0.0" if name == "old" else "sick-2.10.0"]["planted"]["inf"]
    found = analyzer.select_nodes(f"{sick['file']}:{sick['line']}", select_by="code_stack")
    assert sick["operator"] in [node.name for node in found]
    (node,) = (node for node in found if node.name == sick["operator"])
    assert any(line.file_path == sick["file"] and line["line_no"] == sick["line"] for line in node.stack)


def test_wrong_queries_are_refused(old: DumpAnalyzer) -> None:
    with pytest.raises(DebuggerParamTypeError, match="query_string should be str"):
        old.select_nodes(1)  # type: ignore[arg-type]
    with pytest.raises(DebuggerParamTypeError, match="use_regex should be bool"):
        old.select_nodes("a", use_regex=1)  # type: ignore[arg-type]
    with pytest.raises(DebuggerParamValueError, match="`node_name` or `code_stack`"):
        old.select_nodes("a", select_by="type")
    with pytest.raises(re.error):
        old.select_nodes("(", use_regex=True)


def test_tensors_are_outputs_by_node_slot_and_iteration(old: DumpAnalyzer) -> None:
    (node,) = old.select_nodes("MakeTuple-op", use_regex=False)[:1]
    tensors = old.select_tensors(node.name, iterations=[2, 0], slots=[1, 0])
    assert [(t.slot, t.iteration) for t in tensors] == [(0, 2), (0, 0), (1, 2), (1, 0)]
    assert old.select_tensors(node.name, slots=[99]) == []
    with pytest.raises(DebuggerParamValueError, match=re.escape("[0, 1, 2, 3]")):
        old.select_tensors("", iterations=4)
    with pytest.raises(TypeError, match="slots"):
        old.select_tensors("", slots={0})  # type: ignore[arg-type]


def test_inputs_are_the_outputs_of_the_input_nodes(old: DumpAnalyzer) -> None:
    node = next(n for n in old.select_nodes("Conv2D-op") if not n.name.startswith("Gradients"))
    inputs = old.get_input_nodes(node)
    assert [t.node for t in node.get_input_tensors(iterations=0)] == inputs
    assert [t.node for t in node.get_input_tensors(iterations=0, slots=[1])] == inputs[1:2]
    assert all(node in old.get_output_nodes(source) for source in inputs)
    assert old.list_affected_nodes(node.get_output_tensors()[0]) == old.get_output_nodes(node)


def test_every_dumped_output_has_a_value(old: DumpAnalyzer, new: DumpAnalyzer) -> None:
    for analyzer in (old, new):
        dumped = {t.address for t in analyzer.dump.tensors(iterations=[1]) if t.io == "output"}
        values = [t for t in analyzer.select_tensors("", iterations=1) if not t.node.source.is_constant]
        assert sum(t.value() is not None for t in values) == len(dumped)


def test_values_are_read_only_arrays(old: DumpAnalyzer) -> None:
    value = old.select_tensors("conv.weight", iterations=0)[0].value()
    assert type(value) is np.ndarray
    assert not value.flags.writeable


def test_texts_are_those_of_the_original(old: DumpAnalyzer) -> None:
    tensor = old.select_tensors("network.conv.weight", iterations=3)[0]
    node = f"rank: 0\ngraph_name: kernel_graph_0\nnode_name: {tensor.node.name}"
    assert str(tensor.node) == node
    assert str(tensor) == f"{node}\nslot: 0\niteration: 3"


def test_objects_that_mean_the_same_are_equal(old: DumpAnalyzer, dump_200: Path) -> None:
    first, second = old.select_tensors("network.conv.weight", iterations=[0, 1])[:2]
    assert first == DebuggerTensor(first.node, 0, 0)
    assert len({first, second, DebuggerTensor(first.node, 0, 1)}) == 2
    assert DebuggerTensor(first.node, 0, None).value() is None
    assert DebuggerTensor(first.node, 5, 0).value() is None


def test_a_node_of_an_equal_dump_is_recognised_and_another_refused(
    old: DumpAnalyzer, new: DumpAnalyzer, dump_200: Path
) -> None:
    node = DumpAnalyzer(dump_200).select_nodes("network.conv.weight")[0]
    assert [n.name for n in old.get_output_nodes(node)] == [n.name for n in node.owner.output_nodes(node)]
    with pytest.raises(DebuggerParamValueError, match="is not in the dump"):
        new.get_input_nodes(node)
    with pytest.raises(DebuggerParamTypeError, match="node should be Node"):
        old.get_input_nodes("conv")  # type: ignore[arg-type]


def test_load_operators_are_called_by_their_id_in_old_graphs_only(old: DumpAnalyzer, new: DumpAnalyzer) -> None:
    for node in old.select_nodes("/Load-op"):
        assert node.name.endswith(f"/Load-op{node.source.id}")
    for node in new.select_nodes("/Load-op"):
        assert node.name == node.source.full_name
