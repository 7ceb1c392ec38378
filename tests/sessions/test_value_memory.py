"""How much memory values of dumps may take, all sessions together."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from tensight.dumps import open_dump
from tensight.errors import TensorFileError
from tensight.sessions.errors import LimitError
from tensight.sessions.offline.value_memory import ValueMemory
from tests.dumps import ascend_writer as device
from tests.dumps.dump_writer import DumpWriter, GraphWriter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tensight.dumps import TensorFile

SIZE = 400_000
"""Bytes of each value."""


@pytest.fixture
def files(tmp_path: Path) -> Sequence[TensorFile]:
    """Four values in binary files of an Ascend device, which cannot be mapped."""
    writer = DumpWriter(tmp_path)
    graph = GraphWriter()
    for number in range(1, 5):
        graph.operator(f"Default/Add-op{number}")
        values = np.full(SIZE // 4, number, np.float32)
        data = device.dump_data(outputs=[device.host_tensor(values)], op_name=f"Default/Add-op{number}")
        (writer.folder(0) / f"Add.Default_Add-op{number}.{number}.1.160000000000000{number}").write_bytes(data)
    writer.graph(graph)
    found = open_dump(tmp_path).tensors()
    assert len(found) == 4
    return found


def test_a_value_is_kept_while_there_is_room(files: Sequence[TensorFile]) -> None:
    memory = ValueMemory(2 * SIZE + 100)
    first = memory.read("1", files[0])
    np.testing.assert_array_equal(first, 1)
    assert memory.read("1", files[0]) is first
    assert memory.held_bytes == SIZE
    del first
    gc.collect()
    assert memory.held_bytes == SIZE


def test_what_was_used_longest_ago_makes_room(files: Sequence[TensorFile]) -> None:
    memory = ValueMemory(2 * SIZE)
    memory.read("1", files[0])
    memory.read("1", files[1])
    memory.read("1", files[0])
    memory.read("1", files[2])
    assert memory.held_bytes == 2 * SIZE
    memory.forget("1")
    assert memory.held_bytes == 0


def test_values_in_use_are_not_given_up_by_counting_them_away(files: Sequence[TensorFile]) -> None:
    memory = ValueMemory(2 * SIZE)
    used = [memory.read("1", files[0])[10:20], memory.read("2", files[1])]
    with pytest.raises(
        LimitError, match=r"needs 400,000 bytes; 800,000 of the 800,000 .* --offline-debugger-mem-limit"
    ):
        memory.read("1", files[2])
    assert used[0][0] == 1
    used.pop(0)
    np.testing.assert_array_equal(memory.read("1", files[2]), 3)
    assert memory.held_bytes == 2 * SIZE


def test_one_value_larger_than_the_limit_is_refused(files: Sequence[TensorFile]) -> None:
    memory = ValueMemory(SIZE - 1)
    with pytest.raises(LimitError, match="kernel_graph_0"):
        memory.read("1", files[0])
    assert memory.held_bytes == 0


def test_forgetting_one_owner_keeps_what_others_have(files: Sequence[TensorFile]) -> None:
    memory = ValueMemory(4 * SIZE)
    memory.read("1", files[0])
    other = memory.read("2", files[0])
    memory.forget("1")
    assert memory.held_bytes == SIZE
    assert memory.read("2", files[0]) is other


def test_an_npy_file_is_mapped_and_costs_nothing(tmp_path: Path) -> None:
    writer = DumpWriter(tmp_path)
    writer.graph(GraphWriter().operator("Default/Add-op1"))
    writer.tensor(0, "Add.Add-op1", np.ones(SIZE, np.float32))
    memory = ValueMemory(0)
    assert memory.read("1", open_dump(tmp_path).tensors()[0]).sum() == SIZE
    assert memory.held_bytes == 0


def test_a_file_that_cannot_be_read_takes_no_memory(files: Sequence[TensorFile]) -> None:
    memory = ValueMemory(4 * SIZE)
    path = Path(files[0].path)
    path.write_bytes(path.read_bytes()[: SIZE // 2])
    with pytest.raises(TensorFileError, match=path.name):
        memory.read("1", files[0])
    assert memory.held_bytes == 0
