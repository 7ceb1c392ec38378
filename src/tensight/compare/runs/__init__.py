"""Comparison of two runs: matching, proof of alignment, first operator whose inputs agree and whose output does not."""

from __future__ import annotations

from tensight.compare.runs.comparison import compare_runs, noise_floor
from tensight.compare.runs.divergence import Compared, StepComparison
from tensight.compare.runs.matching import Matching, Pair, Rule
from tensight.compare.runs.measures import TensorDifference
from tensight.compare.runs.ranks import first_of_all
from tensight.compare.runs.result import ComparedTensor, Finding, RunComparison
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
    "first_of_all",
    "noise_floor",
]
