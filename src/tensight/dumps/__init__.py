"""Dumps, recordings and traces of runs, on a local disk or any storage that fsspec can read."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tensight.dumps.dump import Dump, open_dump
from tensight.dumps.metadata import Device, DumpMetadata
from tensight.dumps.overflow import OverflowRecord
from tensight.dumps.statistic_csv import StatisticRow
from tensight.dumps.tensor_file import CONSTANTS, TensorFile

if TYPE_CHECKING:
    from tensight.dumps.npy_files import TensorHeader
    from tensight.dumps.reading import OpenTensor, open_tensor, read_segments, read_tensor, tensor_header
    from tensight.dumps.trace_files import TracedRow

__all__ = [
    "CONSTANTS",
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

_WITH_NUMPY = {
    "TensorHeader": "npy_files",
    "TracedRow": "trace_files",
    **dict.fromkeys(("OpenTensor", "open_tensor", "read_segments", "read_tensor", "tensor_header"), "reading"),
}


def __getattr__(name: str) -> Any:
    """Import what reads values on first use: listing the contents of a dump does not need NumPy."""
    if name in _WITH_NUMPY:
        return getattr(import_module(f"tensight.dumps.{_WITH_NUMPY[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
