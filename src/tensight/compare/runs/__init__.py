"""Two runs compared: matching, proof of alignment, the first operator whose inputs agree and whose output does not."""

from __future__ import annotations

from tensight.compare.runs.comparison import ComparedTensor, Finding, RunComparison, compare_runs, noise_floor
from tensight.compare.runs.divergence import Compared, StepComparison
from tensight.compare.runs.matching import Matching, Pair, Rule
from tensight.compare.runs.measures import TensorDifference
from tensight.compare.runs.tolerance import Tolerance

__all__ = [
    "Compared",
    "ComparedTensor",
    "Finding",
    "Matching",
    "Pair",
    "Rule",
    "RunComparison",
    "StepComparison",
    "TensorDifference",
    "Tolerance",
    "compare_runs",
    "noise_floor",
]
