"""The statistics row the slow and obvious way: one element at a time in exact or extended arithmetic.

Shares nothing with the package: values are Python numbers, sums are `fractions.Fraction` or `math.fsum`.
"""

from __future__ import annotations

import math
import sys
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
FLOAT8 = [np.dtype(ml_dtypes.float8_e4m3fn), np.dtype(ml_dtypes.float8_e5m2)]


def as_doubles(array: np.ndarray[Any, Any]) -> list[float]:
    """Return what stands for each element, in C order, as double."""
    if array.dtype == np.bool_:
        return [float(byte != 0) for byte in np.ascontiguousarray(array).view(np.uint8).ravel().tolist()]
    if array.dtype.kind == "c":
        return [_magnitude(complex(element)) for element in array.ravel()]
    return [float(element) for element in array.ravel().tolist()]


def _magnitude(number: complex) -> float:
    if math.isnan(number.real) or math.isnan(number.imag):
        return math.nan
    size = math.hypot(number.real, number.imag)
    return size if math.isinf(number.real) or math.isinf(number.imag) else min(size, sys.float_info.max)


def root(number: Fraction) -> float:
    """Return the square root of a fraction of any size."""
    if not number:
        return 0.0
    exponent = (number.numerator.bit_length() - number.denominator.bit_length()) // 2
    scaled = number / Fraction(4) ** exponent
    try:
        return math.ldexp(math.sqrt(scaled), exponent)
    except OverflowError:
        return math.inf


def statistics_row(array: np.ndarray[Any, Any]) -> dict[str, Any]:
    """Return every field of TensorStatistics but the hash."""
    values = as_doubles(array)
    finite = [value for value in values if math.isfinite(value)]
    row: dict[str, Any] = {
        "dtype": array.dtype.name,
        "shape": array.shape,
        "size_bytes": array.nbytes,
        "count": len(values),
        "nan_count": sum(map(math.isnan, values)),
        "neg_inf_count": values.count(-math.inf),
        "pos_inf_count": values.count(math.inf),
        "zero_count": sum(value == 0 for value in finite),
        "negative_count": sum(value < 0 for value in finite),
        "positive_count": sum(value > 0 for value in finite),
    }
    names = ("min", "max", "mean", "abs_mean", "std", "l2_norm")
    if not finite:
        return row | dict.fromkeys(names, math.nan)
    exact = [Fraction(value) for value in finite]
    count = len(exact)
    mean = sum(exact) / count
    spread = sum((value - mean) ** 2 for value in exact)
    numbers = (
        min(finite),
        max(finite),
        float(mean),
        float(sum(map(abs, exact)) / count),
        root(spread / (count - 1)) if count > 1 else 0.0,
        root(sum(value * value for value in exact)),
    )
    return row | dict(zip(names, numbers, strict=True))


def in_range(array: np.ndarray[Any, Any], low: float, high: float) -> int:
    return sum(low <= value <= high for value in as_doubles(array))


def change_row(current: np.ndarray[Any, Any], previous: np.ndarray[Any, Any], atol: float) -> dict[str, Any]:
    """Return every field of ChangeStatistics for a complete comparison of real tensors."""
    pairs = list(zip(as_doubles(current), as_doubles(previous), strict=True))
    finite = [(x, p) for x, p in pairs if math.isfinite(x) and math.isfinite(p)]
    names = ("mean_abs_change", "mean_abs_previous", "max_abs_change", "l2_change")
    row: dict[str, Any] = {"count": len(pairs), "atol": atol, "complete": True} | dict.fromkeys(names, math.nan)
    if finite:
        changes = [abs(x - p) for x, p in finite]
        count = len(finite)
        numbers = (
            float(sum(map(Fraction, changes)) / count) if max(changes) < math.inf else math.inf,
            float(sum(Fraction(abs(p)) for _, p in finite) / count),
            max(changes),
            root(sum(Fraction(change) ** 2 for change in changes)) if max(changes) < math.inf else math.inf,
        )
        row |= dict(zip(names, numbers, strict=True))
    row["required_rtol"] = (
        math.nan if len(finite) < len(pairs) else max((_rtol(x, p, atol) for x, p in pairs), default=0)
    )
    return row


def _rtol(x: float, p: float, atol: float) -> float:
    change = abs(x - p)
    if change <= atol:
        return 0.0
    return (change - atol) / abs(p) if p and (change - atol) / abs(p) < math.inf else math.inf
