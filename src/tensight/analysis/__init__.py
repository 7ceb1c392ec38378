"""Analysis of many tensors at once: the statistics table of a dump, its checks, and the origins of anomalies."""

from __future__ import annotations

from tensight.analysis.analysis import Analysis, CheckRequest
from tensight.analysis.anomalies import Anomaly, InputState
from tensight.analysis.check import CheckResult, check, coverage_of, natural_selector
from tensight.analysis.coverage import Coverage
from tensight.analysis.engine import Engine, Progress, ThreadEngine
from tensight.analysis.origin import Unplaced, in_nodes, origins, unplaced
from tensight.analysis.origins import Origin, OriginInput
from tensight.analysis.query import query
from tensight.analysis.statistics_table import StatisticsTable, file_key
from tensight.graph import user_frame

__all__ = [
    "Analysis",
    "Anomaly",
    "CheckRequest",
    "CheckResult",
    "Coverage",
    "Engine",
    "InputState",
    "Origin",
    "OriginInput",
    "Progress",
    "StatisticsTable",
    "ThreadEngine",
    "Unplaced",
    "check",
    "coverage_of",
    "file_key",
    "in_nodes",
    "natural_selector",
    "origins",
    "query",
    "unplaced",
    "user_frame",
]
