"""Each rule has trainings of three kinds that are faulty, and a healthy one that resembles them."""

from __future__ import annotations

import importlib
from collections import Counter
from pathlib import Path

from tensight.diagnosis.catalogue import RULES

ELSEWHERE = {
    "optimizer-not-prepared": "tests/diagnosis/test_accelerate.py and benchmarks/diagnosed/loops.py",
    "outputs-collapse": "tests/diagnosis/test_collapse.py",
    "replicas-differ": "benchmarks/diagnosed/ranks.py; the facts of two ranks in test_ranks.py",
    "ranks-same-data": "benchmarks/diagnosed/ranks.py; the facts of two ranks in test_ranks.py",
    "ranks-gradients": "benchmarks/diagnosed/ranks.py; the facts of two ranks in test_ranks.py",
}
"""Rules whose trainings are other programs, or in other modules, and where those are."""

MODULES = [
    importlib.import_module(f"{__package__}.{path.stem}")
    for path in sorted(Path(__file__).parent.glob("test_*.py"))
    if path.stem not in (Path(__file__).stem, "test_ranks")
]


def test_each_rule_has_faulty_trainings_of_three_kinds() -> None:
    counts = Counter(rule for module in MODULES for _, rule, _ in module.FAULTY)
    assert {rule: counts[rule] for rule in RULES if counts[rule] < 3 and rule not in ELSEWHERE} == {}


def test_each_rule_has_a_healthy_twin() -> None:
    twins = {rule for module in MODULES for _, rule in module.HEALTHY}
    assert RULES.keys() - twins - ELSEWHERE.keys() == set()


def test_the_tables_name_rules() -> None:
    named = {row[1] for module in MODULES for row in (*module.FAULTY, *module.HEALTHY)}
    assert named <= RULES.keys()
    assert ELSEWHERE.keys() <= RULES.keys() - named
