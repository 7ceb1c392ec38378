"""The declaration of statistics, and what must follow from it."""

from __future__ import annotations

import math
from dataclasses import fields

import numpy as np
import pytest

from tensight.sessions.records import Statistics
from tensight.tensors import COUNTS, KINDS, MEASURES, NUMBERS, TensorStatistics, statistics
from tensight.tensors.schema import COLUMNS, WORDS, Moments, as_json, measures_of, measures_of_many


def test_every_number_of_a_row_is_declared_once() -> None:
    names = [field.name for field in fields(TensorStatistics)]
    assert names == ["dtype", "shape", "size_bytes", *COUNTS, *MEASURES, "content_hash"]
    assert ("size_bytes", *COUNTS, *MEASURES) == NUMBERS
    assert [name for name, _ in COLUMNS] == [*COUNTS, *MEASURES, "content_hash"]
    assert ("count", *KINDS) == COUNTS


def test_what_a_session_tells_has_every_statistic() -> None:
    assert [name for name in Statistics.model_fields if name in WORDS] == [*COUNTS, *MEASURES]


def test_every_statistic_has_words_in_both_languages() -> None:
    words = as_json()["words"]
    for language in ("en", "zh"):
        assert list(words[language]) == [*COUNTS, *MEASURES]
        assert all(said["label"] for said in words[language].values())
        assert all(words[language][name]["meaning"] for name in MEASURES)


@pytest.mark.parametrize(
    "values", [[1.5, -2.0, 0.25], [3.0], [-0.0, 0.0], [2e200, -1e200, 3e199], [1e-300, 2e-300], [math.nan], []]
)
def test_one_tensor_and_many_have_the_same_measures(values: list[float]) -> None:
    array = np.array(values)
    expected = statistics(array)
    finite = array[np.isfinite(array)]
    exponent = 0 if not finite.size else math.frexp(float(np.abs(finite).max() or 1.0))[1]
    scaled = np.ldexp(finite, -exponent)
    with np.errstate(all="ignore"):
        mean = float(scaled.sum() / np.float64(finite.size))
        deviation = float(np.square(scaled - mean).sum())
    low, high = (finite.min(), finite.max()) if finite.size else (math.inf, -math.inf)
    one = (
        finite.size,
        finite.size - 1 if finite.size > 1 else math.inf,
        low,
        high,
        mean,
        np.abs(scaled).sum(),
        deviation,
    )
    found = measures_of(Moments(*map(float, one), math.sqrt), exponent)
    many = measures_of_many(Moments(*(np.array([part] * 2, float) for part in one), np.sqrt), np.array([exponent] * 2))
    assert found == pytest.approx([getattr(expected, name) for name in MEASURES], rel=1e-12, nan_ok=True)
    assert many.tolist() == [pytest.approx(found, rel=0, nan_ok=True)] * 2
