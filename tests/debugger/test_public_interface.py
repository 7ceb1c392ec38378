"""Every public name is documented, and nothing heavy is imported before it is needed."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import tensight.debugger

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "python-api.md"

CONDITION_SIGNATURES = {
    "TensorTooLargeCondition": "(abs_mean_gt=None, max_gt=None, min_gt=None, mean_gt=None)",
    "TensorTooSmallCondition": "(abs_mean_lt=None, max_lt=None, min_lt=None, mean_lt=None)",
    "TensorOverflowCondition": "()",
    "OperatorOverflowCondition": "()",
    "TensorAllZeroCondition": "(zero_percentage_ge)",
    "TensorUnchangedCondition": "(rtol=1e-5, atol=1e-8)",
    "TensorChangeBelowThresholdCondition": "(abs_mean_update_ratio_lt, epsilon=1e-9)",
    "TensorChangeAboveThresholdCondition": "(abs_mean_update_ratio_gt, epsilon=1e-9)",
}


@pytest.mark.parametrize("name", tensight.debugger.__all__)
def test_every_public_name_and_member_is_documented(name: str) -> None:
    page = PAGE.read_text(encoding="utf-8")
    words = set(re.findall(r"\w+", page))
    assert name in words
    members = [member for member in vars(getattr(tensight.debugger, name)) if not member.startswith("_")]
    assert [member for member in members if member not in words] == []


@pytest.mark.parametrize("name", tensight.debugger.__all__)
def test_every_public_class_says_what_it_is(name: str) -> None:
    assert inspect.getdoc(getattr(tensight.debugger, name))


@pytest.mark.parametrize(("name", "signature"), CONDITION_SIGNATURES.items())
def test_documented_signatures_are_those_of_the_classes(name: str, signature: str) -> None:
    assert f"`{name}{signature}`" in PAGE.read_text(encoding="utf-8")
    given = [part.split("=")[0] for part in signature.strip("()").split(", ") if part]
    assert list(inspect.signature(getattr(tensight.debugger, name)).parameters) == given


def test_importing_loads_no_heavy_library() -> None:
    heavy = ("pyarrow", "duckdb", "openpyxl", "fsspec")
    code = f"import sys, tensight.debugger; print([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
