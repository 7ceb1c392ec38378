"""Dumps as large as people fear, for what is measured in the page: graphs, and a table of statistics."""

from __future__ import annotations

import csv
import json
import random
from typing import TYPE_CHECKING, Any

from graph_parse import FORWARD, make_graph

from tensight.graph import ms_graph_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NET = "Large"
COLUMNS = (
    "Op Type", "Op Name", "Task ID", "Stream ID", "Timestamp", "IO", "Slot", "Data Size", "Data Type", "Shape",
    "Max Value", "Min Value", "Avg Value", "Count", "Zero Count", "NaN Count",
)  # fmt: skip
ROWS_OF_OPERATOR = 10
"""Nine inputs and an output."""

ABREAST = 25
"""Branches of a wide graph: it is about as wide as it is high."""


def write_graph_dump(folder: Path, nodes: int) -> Path:
    """Write a dump with the graph of `nodes` operators, without tensors; return its folder."""
    return _write(folder, make_graph(nodes))


def write_statistics_dump(folder: Path, rows: int) -> Path:
    """Write a dump of one iteration of which `rows` tensors have statistics; the maximum of each is its number."""
    graph = make_graph(rows // ROWS_OF_OPERATOR)
    _write(folder, graph)
    with (folder / "rank_0" / NET / "0" / "0" / "statistic.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(_lines(graph))
    return folder


def write_wide_dump(folder: Path, *children: int) -> Path:
    """Write a dump whose graph has a scope ``Default/wide_N`` for each number N of children, all of other types.

    Their operators stand in `ABREAST` branches, with some wires between neighbours.
    """
    chance = random.Random(5)  # noqa: S311 - no secret
    graph = pb.GraphProto(name=b"kernel_graph0", root_name=b"0")
    tensor = _tensor()
    graph.parameters.add(name=b"inputs0", type=tensor)
    made = [b"inputs0"]
    for width in children:
        last = made[-1:]
        for index in range(width):
            kind = FORWARD[index % len(FORWARD)] + str(index)
            scope = f"Default/wide_{width}"
            node = graph.node.add(
                name=str(len(made)).encode(),
                op_type=kind.encode(),
                scope=scope.encode(),
                full_name=f"{scope}/{kind}-op{index}".encode(),
                output_type=tensor,
            )
            for before in sorted({index, max(index - chance.randint(0, 1), 0)}):
                node.input.add(name=last[max(before + 1 - ABREAST, 0)])
            last.append(node.name)
            made.append(node.name)
    return _write(folder, graph)


def _tensor() -> bytes:
    tensor = pb.TypeProto(data_type=14, tensor_type=pb.TypeProto.Tensor(elem_type=11))
    tensor.tensor_type.shape.dim.extend(pb.TensorShapeProto.Dimension(size=size) for size in (8, 1024))
    return tensor.SerializeToString()


def _write(folder: Path, graph: Any) -> Path:
    rank = folder / "rank_0"
    for name in (".dump_metadata", "graphs", "execution_order", f"{NET}/0/0"):
        (rank / name).mkdir(parents=True)
    settings = {
        "common_dump_settings": {"net_name": NET, "iteration": "all", "saved_data": "statistic", "input_output": 0},
        "e2e_dump_settings": {"enable": True},
    }
    (rank / ".dump_metadata" / "data_dump.json").write_text(json.dumps(settings))
    (rank / ".dump_metadata" / "config.json").write_text(json.dumps({"device_target": "GPU", "ms_version": "2.3.0"}))
    model = pb.ModelProto(ir_version=1, graph=graph)
    (rank / "graphs" / "ms_output_trace_code_graph_0.pb").write_bytes(model.SerializeToString())
    names = "".join(f"{node.full_name.decode()}\n" for node in graph.node)
    order = rank / "execution_order"
    (order / "ms_execution_order_graph_0.csv").write_text(f"NodeExecutionOrder-FullNameWithScope\n{names}")
    (order / "ms_global_execution_order_graph_0.csv").write_text("0\n")
    return folder


def _lines(graph: Any) -> Iterator[tuple[object, ...]]:
    number = 0
    for time, node in enumerate(graph.node):
        kind, name = node.op_type.decode(), node.full_name.decode().replace("/", "_")
        for place in range(ROWS_OF_OPERATOR):
            io, slot = ("output", 0) if place == ROWS_OF_OPERATOR - 1 else ("input", place)
            number += 1
            size = 16 + number % 1000
            yield (
                kind, name, 0, 0, 1_700_000_000_000_000 + time, io, slot, 4 * size, "float32", f"({size},)",
                number, -number, 0, size, number % (size // 2), 0,
            )  # fmt: skip
