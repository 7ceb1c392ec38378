"""Rows of statistics that are written in place are those of `tensors.statistics`."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tensight.agents.columns import NEVER, StatisticsColumns
from tensight.tensors import SEGMENT_ELEMENTS, TensorStatistics, statistics

if TYPE_CHECKING:
    from collections.abc import Sequence

BOTH_WAYS = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
DTYPES = [np.dtype(code) for code in ("?", "i1", "u2", "i4", "i8", "u8", "f2", "f4", "f8", "c8", "c16", ">f4", ">i2")]
BRAIN = np.dtype(ml_dtypes.bfloat16)


@pytest.fixture(params=["compiled", "numpy"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("TENSIGHT_KERNELS", request.param)
    return str(request.param)


@st.composite
def tensors(draw: st.DrawFn) -> np.ndarray[Any, Any]:
    dtype = draw(st.sampled_from([*DTYPES, BRAIN]))
    shape = draw(hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=6))
    array = draw(hnp.arrays(np.uint16 if dtype == BRAIN else dtype, shape))
    array = array.view(BRAIN) if dtype == BRAIN else array
    if array.ndim > 1 and draw(st.booleans()):
        array = array.T[::2]
    return array


def assert_same(found: TensorStatistics | None, expected: TensorStatistics) -> None:
    assert found is not None
    for field in fields(TensorStatistics):
        mine, theirs = getattr(found, field.name), getattr(expected, field.name)
        both_nan = isinstance(mine, float) and math.isnan(mine) and math.isnan(theirs)
        assert both_nan or (mine == theirs and type(mine) is type(theirs)), (field.name, mine, theirs)


@BOTH_WAYS
@given(arrays=st.lists(tensors(), min_size=1, max_size=4))
def test_rows_are_those_of_the_statistics_of_each_array(way: str, arrays: Sequence[np.ndarray[Any, Any]]) -> None:
    columns = StatisticsColumns()
    for place, array in enumerate(arrays):
        assert columns.scan(7 * place, array)
    for place, array in enumerate(arrays):
        assert_same(columns.statistics(7 * place), statistics(array))
