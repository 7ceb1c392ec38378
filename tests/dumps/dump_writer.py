"""Writes small dumps in MindSpore's rank layout, from the specification and without any code of the reader."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from pathlib import Path

FLOAT32 = 11
TENSOR = 14


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def part(number: int, value: bytes | str | int) -> bytes:
    """One protobuf field: a number, or text, bytes or a message."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def tensor_type(shape: tuple[int, ...], element: int = FLOAT32) -> bytes:
    dims = b"".join(part(1, part(1, size)) for size in shape)
    return part(1, TENSOR) + part(2, part(1, element) + part(2, dims))


@dataclass
class GraphWriter:
    """A graph file: a ModelProto with one graph."""

    name: str = "kernel_graph_0"
    root: str = "0"
    body: bytes = b""
    order: list[str] = field(default_factory=list)

    def parameter(self, name: str, shape: tuple[int, ...] = (4,)) -> GraphWriter:
        self.body += part(3, part(1, name) + part(2, tensor_type(shape)))
        return self

    def constant(self, key: str, full_name: str) -> GraphWriter:
        self.body += part(5, part(1, key) + part(2, part(1, FLOAT32)) + part(3, full_name))
        return self

    def operator(
        self, full_name: str, op_type: str = "", inputs: tuple[str, ...] = (), shape: tuple[int, ...] = (4,)
    ) -> GraphWriter:
        """Add an operator; its inputs are names of parameters and constants' keys, or numbers of operators, from 1."""
        scope, _, short = full_name.rpartition("/")
        data = b"".join(part(1, part(1, name)) for name in inputs)
        data += part(2, str(len(self.order) + 1)) + part(3, op_type or short.partition("-")[0]) + part(4, scope)
        self.body += part(1, data + part(6, tensor_type(shape)) + part(8, full_name))
        self.order.append(full_name)
        return self

    def data(self) -> bytes:
        return part(1, 1) + part(4, self.body + part(2, self.name) + part(6, self.root))


def npy_bytes(array: Any) -> bytes:
    out = io.BytesIO()
    np.save(out, np.asarray(array), allow_pickle=False)
    return out.getvalue()


class DumpWriter:
    """A dump folder."""

    def __init__(self, root: Path, version: str = "2.0.0", net_name: str = "Net") -> None:
        self.root = root
        self.net_name = net_name
        self.version = version
        self.clock = 1_700_000_000_000_000

    def rank(self, rank: int = 0) -> Path:
        folder = self.root / f"rank_{rank}"
        if folder.is_dir():
            return folder
        for name in (".dump_metadata", "graphs", "execution_order"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        settings = {"common_dump_settings": {"net_name": self.net_name, "input_output": 0, "iteration": "all"}}
        (folder / ".dump_metadata" / "data_dump.json").write_text(json.dumps(settings))
        machine = {"device_target": "CPU", "ms_version": self.version}
        (folder / ".dump_metadata" / "config.json").write_text(json.dumps(machine))
        return folder

    def graph(self, graph: GraphWriter, graph_id: int = 0, rank: int = 0) -> None:
        folder = self.rank(rank)
        (folder / "graphs" / f"ms_output_trace_code_graph_{graph_id}.pb").write_bytes(graph.data())
        lines = "\n".join(["NodeExecutionOrder-FullNameWithScope", *graph.order])
        (folder / "execution_order" / f"ms_execution_order_graph_{graph_id}.csv").write_text(lines + "\n")

    def history(self, *iterations: int, graph_id: int = 0, rank: int = 0) -> None:
        path = self.rank(rank) / "execution_order" / f"ms_global_execution_order_graph_{graph_id}.csv"
        path.write_text("".join(f"{iteration}\n" for iteration in iterations))

    def folder(self, iteration: int | str, graph_id: int = 0, rank: int = 0) -> Path:
        folder = self.rank(rank) / self.net_name / str(graph_id) / str(iteration)
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def tensor(
        self,
        iteration: int | str,
        head: str,
        array: Any = (1.0, 2.0),
        *,
        io: str = "output",
        slot: int = 0,
        dtype: str = "",
        timestamp: int | None = None,
        graph_id: int = 0,
        rank: int = 0,
    ) -> Path:
        """Write a tensor; ``head`` is ``{op_type}.{op_name}``. Returns the file."""
        self.clock += 50
        moment = self.clock if timestamp is None else timestamp
        name = f"{head}.0.0.{moment}.{io}.{slot}.DefaultFormat{dtype and '.' + dtype}.npy"
        path = self.folder(iteration, graph_id, rank) / name
        path.write_bytes(npy_bytes(array if isinstance(array, np.ndarray) else np.array(array, np.float32)))
        return path
