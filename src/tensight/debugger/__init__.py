"""A drop-in replacement for ``mindinsight.debugger`` and ``mindinsight.parser``: change only the import in scripts.

The differences are listed in ``docs/reference/python-api.md``.
"""

from __future__ import annotations

from tensight.debugger.analyzer import DumpAnalyzer
from tensight.debugger.conditions import (
    ConditionBase,
    OperatorOverflowCondition,
    TensorAllZeroCondition,
    TensorChangeAboveThresholdCondition,
    TensorChangeBelowThresholdCondition,
    TensorOverflowCondition,
    TensorRangeCondition,
    TensorTooLargeCondition,
    TensorTooSmallCondition,
    TensorUnchangedCondition,
)
from tensight.debugger.exceptions import (
    DebuggerError,
    DebuggerParamTypeError,
    DebuggerParamValueError,
    RankDirNotFound,
)
from tensight.debugger.hits import HitDetail, Parameter, Watchpoint, WatchpointHit
from tensight.debugger.nodes import DebuggerTensor, Node, SourceLine
from tensight.debugger.parser import DumpParser, OpDevicePath, OpPath, OpPathManager
from tensight.debugger.statistics import TensorStatistic

__all__ = [
    "ConditionBase",
    "DebuggerError",
    "DebuggerParamTypeError",
    "DebuggerParamValueError",
    "DebuggerTensor",
    "DumpAnalyzer",
    "DumpParser",
    "HitDetail",
    "Node",
    "OpDevicePath",
    "OpPath",
    "OpPathManager",
    "OperatorOverflowCondition",
    "Parameter",
    "RankDirNotFound",
    "SourceLine",
    "TensorAllZeroCondition",
    "TensorChangeAboveThresholdCondition",
    "TensorChangeBelowThresholdCondition",
    "TensorOverflowCondition",
    "TensorRangeCondition",
    "TensorStatistic",
    "TensorTooLargeCondition",
    "TensorTooSmallCondition",
    "TensorUnchangedCondition",
    "Watchpoint",
    "WatchpointHit",
]
