"""An iteration that is written at once appears as a whole, is read back, and goes as a whole."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tensight.dumps import open_dump, read_tensor
from tensight.dumps.recorder import DumpRecorder, RankRecorder
from tensight.graph import Graph
from tests.dumps.dump_writer import GraphWriter, part

RELU = "Default/network/ReLU-op2"
LONG = f"Default/network/{'Long' * 60}-op1"
ARRAYS: list[Any] = [
    np.arange(6, dtype=np.float32).reshape(2, 3),
    np.arange(24.0).reshape(2, 3, 4).transpose(2, 0, 1),
    np.arange(6, dtype=">i4"),
    np.array(1.5),
    np.empty((0, 4), np.int8),
    np.array([True, False]),
    np.array([1 + 2j, np.nan], np.complex64),
    np.array([1.5, np.inf], ml_dtypes.bfloat16),
    np.array([1.5, -0.0, 448], ml_dtypes.float8_e4m3fn),
    np.array([1.5, np.inf], ml_dtypes.float8_e5m2),
]


def started(tmp_path: Path) -> tuple[RankRecorder, Graph]:
    rank = DumpRecorder(tmp_path / "dump", tmp_path / "arriving").rank(0)
    writer = GraphWriter("kernel_graph_0", "0")
    writer.parameter("conv1.weight").operator(LONG, inputs=("conv1.weight",)).operator(RELU, inputs=("1",))
    file = rank.new_graph()
    file.write([writer.body + part(2, writer.name) + part(6, writer.root)])
    graph = file.parse("the test")
    rank.keep_graphs([(file, graph)])
    return rank, graph


@pytest.mark.parametrize("name", [RELU, LONG, "conv1.weight"])
@pytest.mark.parametrize("array", ARRAYS, ids=lambda array: f"{array.dtype}{array.shape}")
def test_arrays_of_any_kind_are_read_back(tmp_path: Path, array: np.ndarray[Any, Any], name: str) -> None:
    rank, graph = started(tmp_path)
    node = graph.node(name)
    head = rank.head(graph, node)
    writer = rank.begin_iteration(graph.root_id, 3)
    for slot in range(2):
        writer.add(head, slot, array)
    writer.add(head, 0, array[..., :0] if array.ndim else array, is_input=True)
    writer.keep()
    (found,) = (file for file in open_dump(tmp_path / "dump").tensors() if file.slot == 0 and file.io == "output")
    assert found.node == node.name
    np.testing.assert_array_equal(read_tensor(found), array)
    assert read_tensor(found).dtype == array.dtype.newbyteorder("=")
    declared = array.dtype.name if "float8" in array.dtype.name or array.dtype == ml_dtypes.bfloat16 else ""
    assert rank.find_tensor(graph, node, 0, 3) == (Path(found.path), declared)
    other = rank.find_tensor(graph, node, 0, 3, is_input=True)
    assert other is not None
    assert other[0] != Path(found.path)
    assert rank.find_tensor(graph, node, 2, 3) is rank.find_tensor(graph, node, 0, 4) is None


def test_nothing_is_seen_of_an_iteration_that_is_not_complete(tmp_path: Path) -> None:
    rank, graph = started(tmp_path)
    writer = rank.begin_iteration(0, 0)
    writer.add("ReLU.ReLU-op2", 0, np.ones(3))
    assert not list((tmp_path / "dump").rglob("*.npy"))
    assert rank.find_tensor(graph, graph.node(RELU), 0, 0) is None
    writer.discard()
    assert not list(tmp_path.rglob("*.npy"))
    writer = rank.begin_iteration(0, -1)
    writer.add("ReLU.ReLU-op2", 0, np.ones(3))
    writer.keep()
    assert [path.parent.name for path in (tmp_path / "dump").rglob("*.npy")] == ["init"]


def test_an_iteration_goes_at_once(tmp_path: Path) -> None:
    rank, _ = started(tmp_path)
    for iteration in (1, 2):
        writer = rank.begin_iteration(0, iteration)
        writer.add("ReLU.ReLU-op2", 0, np.ones(3))
        writer.keep()
    gone = rank.take_out_iteration(0, 1)
    assert gone is not None
    assert len(list(gone.iterdir())) == 1
    assert gone.parent == tmp_path / "arriving"
    assert open_dump(tmp_path / "dump").iterations() == (2,)
    assert rank.take_out_iteration(0, 1) is None
    DumpRecorder(tmp_path / "dump", tmp_path / "arriving")
    assert not list((tmp_path / "arriving").iterdir())


def test_an_iteration_is_never_written_over(tmp_path: Path) -> None:
    rank, _ = started(tmp_path)
    writer = rank.begin_iteration(0, 1)
    writer.add("ReLU.ReLU-op2", 0, np.ones(3))
    writer.keep()
    again = rank.begin_iteration(0, 1)
    again.add("ReLU.ReLU-op2", 0, np.zeros(3))
    with pytest.raises(OSError, match="not empty"):
        again.keep()
    again.discard()
    (file,) = open_dump(tmp_path / "dump").tensors()
    np.testing.assert_array_equal(read_tensor(file), np.ones(3))


def test_the_same_elements_are_written_once_where_that_is_possible(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rank, graph = started(tmp_path)
    head = rank.head(graph, graph.node(RELU))

    def refused(*_: object) -> None:
        raise OSError("no links here")

    for iteration, links in ((0, 2), (1, 1)):
        writer = rank.begin_iteration(0, iteration)
        name = writer.add(head, 0, np.ones(3))
        if not writer.add_again(name, np.dtype(np.float64), head, 0, is_input=True):
            writer.add(head, 0, np.ones(3), is_input=True)
        writer.keep()
        for is_input in (False, True):
            file = rank.find_tensor(graph, graph.node(RELU), 0, iteration, is_input=is_input)
            assert file is not None
            path, _ = file
            assert path.stat().st_nlink == links
            np.testing.assert_array_equal(np.load(path), np.ones(3))
        monkeypatch.setattr(os, "link", refused)
