"""Computations on the values of tensors: statistics, changes, slices, histograms, heat maps, differences."""

from tensight.tensors.change_statistics import (
    ChangePartial,
    ChangeStatistics,
    changes,
    merge_changes,
    scan_change_segment,
    scan_changes,
)
from tensight.tensors.differences import Difference, difference
from tensight.tensors.heat_maps import heat_map
from tensight.tensors.histograms import Histogram, histogram
from tensight.tensors.layout import EXPLOSION_LIMIT, SEGMENT_ELEMENTS
from tensight.tensors.schema import COUNTS, KINDS, MEASURES, NUMBERS, TensorStatistics
from tensight.tensors.slices import parse_slice, slice_text
from tensight.tensors.statistics_row import Partial, merge, scan_segment, statistics
from tensight.tensors.units import unit_axis, unit_percentage, unit_size
from tensight.tensors.views import View, ViewKind, ViewResult, Which, compute_view

__all__ = [
    "COUNTS",
    "EXPLOSION_LIMIT",
    "KINDS",
    "MEASURES",
    "NUMBERS",
    "SEGMENT_ELEMENTS",
    "ChangePartial",
    "ChangeStatistics",
    "Difference",
    "Histogram",
    "Partial",
    "TensorStatistics",
    "View",
    "ViewKind",
    "ViewResult",
    "Which",
    "changes",
    "compute_view",
    "difference",
    "heat_map",
    "histogram",
    "merge",
    "merge_changes",
    "parse_slice",
    "scan_change_segment",
    "scan_changes",
    "scan_segment",
    "slice_text",
    "statistics",
    "unit_axis",
    "unit_percentage",
    "unit_size",
]
