"""Facts that make no sense: rules say something or nothing of them, but none fails, and none takes long."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

from tensight.diagnosis.catalogue import diagnose
from tensight.diagnosis.facts import SCHEMA, Facts
from tensight.diagnosis.lines import line_of, take
from tensight.sessions.diagnosis import diagnosis_record

VALUES: dict[str, tuple[Any, ...]] = {
    "number": (math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, 0.5, -1.0, 1e308, -1e308, 5e-324, 3.0),
    "count": (-1, 0, 1, 2, 3, 2**63 - 1, -(2**63), 7),
    "flag": (True, False),
    "text": (
        *("", "8x10", "x", "axb", "8x", "-1x3", "99999999999999999999x2", "{", "{0}", "{name}", "%s", "\0", "1 2 3"),
        *("cross_entropy", "mse_loss", "sum", "mean", "softmax", "SGD", "Adam group 0", "nan", "é" * 300, "1,2,3"),
    ),
    "hash": (0, 1, 2, 2**64 - 1),
}
NAMES = ("step", "loss", "loss 2", "0.weight", "0.bias", "{", "cross_entropy", "SGD group 0", "rank 0", "BatchNorm1d")


def hostile(rank: int, draw: random.Random) -> Facts:
    """Facts of some steps whose values are drawn; some columns are the same in all rows, as in real ones."""
    facts = Facts(rank)
    chosen = {subject: draw.sample(NAMES, draw.randint(1, 4)) for subject in SCHEMA}
    fixed = {
        (subject, fact.name): draw.choice(VALUES[fact.kind])
        for subject, schema in SCHEMA.items()
        for fact in schema
        if draw.random() < 0.5
    }
    for step in range(1, draw.choice((2, 9, 40))):
        for subject, schema in SCHEMA.items():
            rows = [
                {
                    fact.name: fixed.get((subject, fact.name), draw.choice(VALUES[fact.kind]))
                    for fact in schema[1:]
                    if draw.random() < 0.95
                }
                for _ in chosen[subject]
            ]
            named = [{"name": name, **row} for name, row in zip(chosen[subject], rows, strict=True)]
            if draw.random() < 0.95:
                take(facts, line_of(subject, step, named))
    return facts


@pytest.mark.parametrize("seed", range(16))
def test_no_rule_fails(seed: int) -> None:
    draw = random.Random(seed)  # noqa: S311 - the same in each run
    record = diagnosis_record(diagnose([hostile(rank, draw) for rank in range(draw.choice((1, 1, 2, 3)))]))
    assert record.model_dump_json()
