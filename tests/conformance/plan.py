"""Which sections of recording.py are asked on which dump."""

from __future__ import annotations

from settings import CHECKS, RANDOM_CHECKS
from synthetic import SYNTHETIC

EVERYTHING = [
    "overview",
    "node_facts",
    "queries",
    "tensor_facts",
    "conditions",
    "hit_interface",
    "mistakes",
    "xlsx",
    "tensor_files",
]
# Enough to show what a hand-made dump is about; the thresholds themselves are covered on the others.
FEW_CHECKS = [
    "too large, one threshold",
    "too small, all four",
    "range, both percentages",
    "overflow",
    "operator overflow",
    "all zero",
    "unchanged",
    "change above",
    "change below",
    "missing values",
    "missing values of changes",
    "one iteration",
    "one rank",
    "every class",
    *RANDOM_CHECKS[:10],
]
REAL = ("sick-2.0.0", "healthy-2.0.0")


def checks(labels: list[str]) -> list[str]:
    return [f"check {label}" for label in labels]


def plan() -> dict[str, list[str]]:
    """{dump: sections}."""
    found = {name: [*EVERYTHING, *checks(list(CHECKS))] for name in REAL}
    for name in SYNTHETIC:
        if name == "statistics":
            continue
        some = ["overview", "tensor_facts", "tensor_files"]
        found[name] = [*some, *checks(list(CHECKS) if name == "dtypes" else FEW_CHECKS)]
    found["statistics"] = ["statistics"]
    found["ranks"] += ["node_facts", "queries", "xlsx"]
    return found
