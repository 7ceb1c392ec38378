"""Many tensors at once: the statistics table of a dump, checking it, and finding where an anomaly began."""

from __future__ import annotations

from tensight.analysis.analysis import Analysis, CheckRequest
from tensight.analysis.cache import CACHE_VARIABLE, DumpCache, cache_for, cache_root
from tensight.analysis.check import CheckResult, check, natural_selector, selected_nodes
from tensight.analysis.engine import Engine, Progress, ThreadEngine
from tensight.analysis.origin import Anomaly, InputState, Origin, OriginInput, origins
from tensight.analysis.query import query
from tensight.analysis.statistics_table import StatisticsTable, file_key

__all__ = [
    "CACHE_VARIABLE",
    "Analysis",
    "Anomaly",
    "CheckRequest",
    "CheckResult",
    "DumpCache",
    "Engine",
    "InputState",
    "Origin",
    "OriginInput",
    "Progress",
    "StatisticsTable",
    "ThreadEngine",
    "cache_for",
    "cache_root",
    "check",
    "file_key",
    "natural_selector",
    "origins",
    "query",
    "selected_nodes",
]
