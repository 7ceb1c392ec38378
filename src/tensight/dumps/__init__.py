"""Runs at rest: dumps that MindSpore wrote, on a disk or wherever fsspec reaches."""

from __future__ import annotations

from tensight.dumps.dump import Dump, open_dump
from tensight.dumps.metadata import FRAMEWORKS, Device, DumpMetadata
from tensight.dumps.npy_files import TensorHeader
from tensight.dumps.overflow import OverflowRecord
from tensight.dumps.reading import OpenTensor, open_tensor, read_segments, read_tensor, tensor_header
from tensight.dumps.statistic_csv import StatisticRow
from tensight.dumps.tensor_file import CONSTANTS, TensorFile
from tensight.dumps.trace_files import TracedRow

__all__ = [
    "CONSTANTS",
    "FRAMEWORKS",
    "Device",
    "Dump",
    "DumpMetadata",
    "OpenTensor",
    "OverflowRecord",
    "StatisticRow",
    "TensorFile",
    "TensorHeader",
    "TracedRow",
    "open_dump",
    "open_tensor",
    "read_segments",
    "read_tensor",
    "tensor_header",
]
