"""The reference page of the conditions says what the catalogue says; a new condition or parameter needs its row."""

from __future__ import annotations

from pathlib import Path

import pytest

from tensight.watchpoints import CONDITIONS, LIVE_RECOMMENDED, Condition, Parameter, SelectorKind, recommended
from tensight.watchpoints.checks import format_value

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "conditions.md").read_text(encoding="utf-8")
NOTHING = "\u2013"
ROWS = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in PAGE.splitlines() if line.startswith("|")]


def row_of(name: str, columns: int) -> list[str]:
    rows = [row for row in ROWS if f"`{name}`" in row[0] and len(row) == columns]
    assert rows, f"docs/reference/conditions.md has no row with {columns} cells for {name}"
    return rows[0]


def parameters() -> dict[str, Parameter]:
    return {p.name: p for c in CONDITIONS.values() for p in c.parameters}


@pytest.mark.parametrize("declared", CONDITIONS.values(), ids=lambda c: c.id)
def test_every_condition_has_its_row(declared: Condition) -> None:
    assert row_of(declared.id, 5) == [
        f"`{declared.id}`",
        declared.abbreviation or NOTHING,
        f"{declared.wire_number} `{declared.wire_name}`",
        declared.target.value,
        ", ".join(f"`{p.name}`" for p in declared.parameters) or NOTHING,
    ]


@pytest.mark.parametrize("declared", parameters().values(), ids=lambda p: p.name)
def test_every_parameter_has_its_row(declared: Parameter) -> None:
    default = NOTHING if declared.default is None else format_value(declared.default)
    name, values, shown_default, formula = row_of(declared.name, 4)
    assert (name, values, shown_default) == (f"`{declared.name}`", declared.values.value, default)
    if declared.quantity is not None and declared.comparator is not None and declared.name not in ("param", "rtol"):
        assert formula == f"{declared.quantity.formula} {declared.comparator.value} value"


@pytest.mark.parametrize("declared", [c for c in CONDITIONS.values() if c.flag is not None], ids=lambda c: c.id)
def test_every_condition_without_thresholds_says_when_it_hits(declared: Condition) -> None:
    assert declared.flag is not None
    formula = declared.flag.formula if declared.id == "operator_overflow" else f"{declared.flag.formula} > 0"
    assert row_of(declared.id, 2)[1] == formula


def test_every_recommended_check_for_running_trainings_is_listed() -> None:
    table = PAGE[PAGE.index("## The recommended set for running trainings") :]
    for spec in LIVE_RECOMMENDED:
        row = f"| `{spec.selection}` | {spec.severity.value} | {spec.persistence} |"
        assert any(spec.check.condition.id in line and row in line for line in table.splitlines()), spec.name


def test_every_selection_is_listed() -> None:
    table = PAGE[PAGE.index("## Selections") :]
    assert all(f"`{kind.value}" in table for kind in SelectorKind)


def test_every_recommended_check_is_listed() -> None:
    table = PAGE[PAGE.index("## The recommended set") :]
    for spec in recommended():
        assert spec.check.condition.id in table
        assert f"| `{spec.selection}` | {spec.severity.value} |" in table
