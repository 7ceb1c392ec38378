"""The original's running mean."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensight.debugger.verdicts import running_mean


def test_the_running_mean_rounds_as_the_original_does() -> None:
    assert running_mean(np.array([2.0**63, -(2.0**63), 0.0, 1.0])) == 0.25


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=200))
def test_the_running_mean_is_a_mean(values: list[float]) -> None:
    array = np.array(values)
    assert running_mean(array) == pytest.approx(float(array.mean()), rel=1e-9, abs=1e-6)
