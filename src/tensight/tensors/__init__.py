"""What the values of a tensor are: statistics, changes, slices, histograms, heat maps, differences."""

from tensight.tensors.layout import SEGMENT_ELEMENTS
from tensight.tensors.statistics import Partial, TensorStatistics, merge, scan_segment, statistics
from tensight.tensors.warm import kernels_ready, warm_up

__all__ = [
    "SEGMENT_ELEMENTS",
    "Partial",
    "TensorStatistics",
    "kernels_ready",
    "merge",
    "scan_segment",
    "statistics",
    "warm_up",
]
