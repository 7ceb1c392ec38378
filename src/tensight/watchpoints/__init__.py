"""The checks: the catalogue of conditions, watchpoints and their hits, the recommended set, advice.

This package neither reads tensors nor depends on how a statistic was obtained.
"""

from __future__ import annotations

from tensight.watchpoints.advice import ADVICE, Advice, advice
from tensight.watchpoints.catalogue import CONDITIONS, condition, conditions_by_wire_number, register, unregister
from tensight.watchpoints.checks import ConditionCheck, Needs, Threshold
from tensight.watchpoints.columns import Columns, UnitRule
from tensight.watchpoints.conditions import (
    Comparator,
    Condition,
    Parameter,
    ParameterKind,
    Platform,
    Target,
    ValueRange,
)
from tensight.watchpoints.description import describe
from tensight.watchpoints.error_codes import ErrorCode, error_words
from tensight.watchpoints.evaluation import Evaluation, Status, evaluate
from tensight.watchpoints.parsing import parse_check, parse_watch
from tensight.watchpoints.quantities import QUANTITIES, Quantity, Source
from tensight.watchpoints.ranges import range_count_bounds, range_count_from_statistics
from tensight.watchpoints.recommended import (
    LIVE_RECOMMENDED,
    RECOMMENDED,
    Recommendation,
    recommended,
    recommended_watchpoints,
)
from tensight.watchpoints.selection import (
    NodeFacts,
    layers_of_graphs,
    matcher,
    needs_layers,
    node_rule,
    selected_nodes,
)
from tensight.watchpoints.watchpoint import (
    ALL_TENSORS,
    MOST_PERSISTENCE,
    Hit,
    Selector,
    SelectorKind,
    Severity,
    Watchpoint,
    hits,
)

__all__ = [
    "ADVICE",
    "ALL_TENSORS",
    "CONDITIONS",
    "LIVE_RECOMMENDED",
    "MOST_PERSISTENCE",
    "QUANTITIES",
    "RECOMMENDED",
    "Advice",
    "Columns",
    "Comparator",
    "Condition",
    "ConditionCheck",
    "ErrorCode",
    "Evaluation",
    "Hit",
    "Needs",
    "NodeFacts",
    "Parameter",
    "ParameterKind",
    "Platform",
    "Quantity",
    "Recommendation",
    "Selector",
    "SelectorKind",
    "Severity",
    "Source",
    "Status",
    "Target",
    "Threshold",
    "UnitRule",
    "ValueRange",
    "Watchpoint",
    "advice",
    "condition",
    "conditions_by_wire_number",
    "describe",
    "error_words",
    "evaluate",
    "hits",
    "layers_of_graphs",
    "matcher",
    "needs_layers",
    "node_rule",
    "parse_check",
    "parse_watch",
    "range_count_bounds",
    "range_count_from_statistics",
    "recommended",
    "recommended_watchpoints",
    "register",
    "selected_nodes",
    "unregister",
]
