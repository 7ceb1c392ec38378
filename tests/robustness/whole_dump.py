"""A small dump with every kind of file that a dump can hold, made from a real one."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

import numpy as np

from tests.dumps import ascend_writer as device
from tests.dumps.dump_writer import npy_bytes

ITERATIONS = (2, 3)
_KEPT = re.compile(
    r"(Log|Sub|ReLU|ReduceMean|ReduceSum|LogicalAnd)\..*|Mul\.Mul-op153\..*|ApplyMomentum\.ApplyMomentum-op179\..*"
    r"|Parameter\.(network\.|moments\.network\.(conv|fc2)).*|Parameter\.data-1?\d\..*"
)
_STATISTIC = (
    "Op Type,Op Name,Task ID,Stream ID,Timestamp,IO,Slot,Data Size,Data Type,Shape,Max Value,Min Value\n"
    "Log,Log-op144,0,0,1795211550271791,output,0,16,float32,\"(4,)\",1.5,-2.0\n"
)  # fmt: skip

#: Where each kind of file lies, relative to the dump.
KINDS = {
    "output": "rank_0/Sick/0/2/Log.Log-op144.*.output.0.*.npy",
    "input": "rank_0/Sick/0/2/Sub.Sub-op149.*.input.1.*.npy",
    "parameter": "rank_0/Sick/0/3/Parameter.network.probe.outer.weight.*.npy",
    "constant": "rank_0/Sick/0/constants/Parameter.data-1.*.npy",
    "long name": "rank_0/Sick/0/3/123456789.npy",
    "raw": "rank_0/Sick/0/3/Default--old--Add-op1_output_0_shape_4_3_Float32_DefaultFormat.bin",
    "ascend": "rank_0/Sick/0/3/Cast.Cast-op999.3.7.1795211550299999",
    "overflow": "rank_0/Sick/0/3/Opdebug.Node_OpDebug.3.7.1795211550300000",
    "overflow json": "rank_0/Sick/0/3/Opdebug.Node_OpDebug.4.7.1795211550300001.output.0.json",
    "mapping": "rank_0/Sick/0/3/mapping.csv",
    "statistic": "rank_0/Sick/0/3/statistic.csv",
    "graph": "rank_0/graphs/ms_output_trace_code_graph_0.pb",
    "order": "rank_0/execution_order/ms_execution_order_graph_0.csv",
    "history": "rank_0/execution_order/ms_global_execution_order_graph_0.csv",
    "settings": "rank_0/.dump_metadata/data_dump.json",
    "machine": "rank_0/.dump_metadata/config.json",
    "devices": "rank_0/.dump_metadata/hccl.json",
}


def make(source: Path, target: Path) -> Path:
    """Copy a part of the committed sick-2.0.0 dump and add what CPUs do not write."""
    network = source / "rank_0" / "Sick" / "0"
    shutil.copytree(source, target, ignore=lambda folder, names: names if Path(folder) == network else [])
    for name in ("constants", *map(str, ITERATIONS)):
        folder = target / "rank_0" / "Sick" / "0" / name
        folder.mkdir()
        for file in sorted((network / name).iterdir()):
            if _KEPT.fullmatch(file.name):
                shutil.copy2(file, folder / file.name)
    last = target / "rank_0" / "Sick" / "0" / "3"
    long_name = f"Add.{'very_long_scope_' * 20}Add-op998.0.0.1795211550299998.output.0.DefaultFormat.npy"
    (last / "mapping.csv").write_text(f"123456789,{long_name}\n")
    (last / "123456789.npy").write_bytes(npy_bytes(np.array([np.nan, 1, 2], np.float32)))
    (target / KINDS["raw"]).write_bytes(np.full((4, 3), np.inf, np.float32).tobytes())
    values = np.full((2, 20, 3, 3), np.nan, np.float16)
    (target / KINDS["ascend"]).write_bytes(
        device.dump_data([device.host_tensor(values)], [device.device_tensor(values, "NC1HWC0", 16)])
    )
    (target / KINDS["overflow"]).write_bytes(device.overflow_file(device.older_overflow_block(core=32)))
    unit = {"model_id": 1, "stream_id": 7, "task_id": 4, "task_type": 0, "pc_start": "0x1", "para_base": "0x2"}
    core = unit | {"kernel_code": "0x3", "block_idx": 1, "status": 32}
    record = {"DHA Atomic Add": unit | {"status": 0}, "L2 Atomic Add": unit | {"status": 0}, "AI Core": core}
    (target / KINDS["overflow json"]).write_text(json.dumps(record))
    (last / "statistic.csv").write_text(_STATISTIC)
    servers = [{"server_id": "10.0.0.1", "device": [{"device_id": "0", "device_ip": "10.1.0.1", "rank_id": "0"}]}]
    (target / KINDS["devices"]).write_text(json.dumps({"server_list": servers, "status": "completed"}))
    return target


def file_of(dump: Path, kind: str) -> Path:
    """Return the file of a kind in a dump that `make` made."""
    (found,) = dump.glob(KINDS[kind])
    return found


def snapshot(folder: Path) -> dict[str, tuple[object, ...]]:
    """Return everything about a folder that must not change: names, types, sizes, times, targets of links."""
    found: dict[str, tuple[object, ...]] = {}
    waiting = [os.fspath(folder)]
    while waiting:
        for entry in os.scandir(waiting.pop()):
            status = entry.stat(follow_symlinks=False)
            target = str(Path(entry.path).readlink()) if entry.is_symlink() else ""
            found[entry.path] = (status.st_mode, status.st_size, status.st_mtime_ns, status.st_ino, target)
            if entry.is_dir(follow_symlinks=False):
                waiting.append(entry.path)
    return found
