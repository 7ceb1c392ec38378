"""Outputs that are the same for every sample, and the layer behind which samples no longer differ."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from tensight.diagnosis.rules.loss_functions import are_always, finding_of, functions_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tensight.diagnosis.facts import Facts
    from tensight.diagnosis.findings import Finding

_DISTANCES = ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "bce", "bce_with_logits")
_LONG = 60
"""Number of steps after which outputs should differ; a last layer that begins as zeros needs some."""

_AT_LAST = 5
"""Number of the last steps that were read in which they must not."""

_ALIKE = 0.003
"""Deviation of outputs between samples, as a share of that of the targets, that tells no samples apart."""

_LOST = 0.05
"""Share of the differences between samples that a layer has left which loses them."""


def alike(facts: Facts) -> Iterator[Finding]:
    """Find a model that puts out the same for every sample although its targets differ."""
    functions = list(functions_of(facts))
    if len(functions) != 1 or "loss_functions.input_spread" in facts.absent:
        return
    _, rows = functions[0]
    late = rows[-_AT_LAST:]
    if len(late) < _AT_LAST or rows[-1]["step"] - rows[0]["step"] < _LONG or are_always(rows, "is_of_outputs", True):
        return
    targets = [_wanted(row) for row in late]
    if not all(row["input_spread"] < _ALIKE * target for row, target in zip(late, targets, strict=True)):
        return
    values = {"output": late[-1]["input_spread"], "steps": int(rows[-1]["step"])}
    message = "alike_classes" if math.isnan(late[-1]["target_spread"]) else "alike"
    lost = _lost(facts)
    if lost is not None:
        values |= lost
        message += "_behind"
    yield finding_of("loss-stays", "likely", rows, message, **values, target=targets[-1])


def _wanted(row: dict[str, Any]) -> float:
    """Return by how much the targets of a step differ between samples; of classes it is 1 nat; 0 if they do not."""
    if row["function"] in _DISTANCES:
        return float(np.nan_to_num(row["target_spread"]))
    return 1.0 if row["function"] in ("cross_entropy", "nll_loss") and len(row["target_classes"].split()) > 1 else 0.0


def _lost(facts: Facts) -> dict[str, Any] | None:
    """Return the layer between whose input and that of the next one most of the differences are lost."""
    table = facts["layers"]
    if not len(table):
        return None
    rows = table["step"] == table.steps[-1]
    names, spreads = table["name"][rows].tolist(), table["spread"][rows]
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = spreads[1:] / spreads[:-1]
    if not np.isfinite(shares).any():
        return None
    at = int(np.nanargmin(shares))
    if not shares[at] < _LOST:
        return None
    return {
        "layer": names[at],
        "next": names[at + 1],
        "before": float(spreads[at]),
        "after": float(spreads[at + 1]),
    }
