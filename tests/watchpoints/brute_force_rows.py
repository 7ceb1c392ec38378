"""Rows of statistics computed the plain way, and the verdicts of the original's rules computed from whole tensors."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Array = NDArray[Any]


def as_doubles(tensor: Array) -> NDArray[np.float64]:
    return np.asarray(tensor).astype(np.float64).reshape(-1)


def statistics_row(tensor: Array) -> dict[Any, float]:
    x = as_doubles(tensor)
    finite = [v for v in x.tolist() if math.isfinite(v)]
    n = len(finite)
    mean = math.fsum(finite) / n if n else math.nan
    return {
        "count": x.size,
        "nan_count": int(np.isnan(x).sum()),
        "neg_inf_count": int((x == -np.inf).sum()),
        "pos_inf_count": int((x == np.inf).sum()),
        "zero_count": sum(v == 0 for v in finite),
        "negative_count": sum(v < 0 for v in finite),
        "positive_count": sum(v > 0 for v in finite),
        "min": min(finite, default=math.nan),
        "max": max(finite, default=math.nan),
        "mean": mean,
        "abs_mean": math.fsum(map(abs, finite)) / n if n else math.nan,
        "std": math.sqrt(math.fsum((v - mean) * (v - mean) for v in finite) / (n - 1))
        if n > 1
        else (0.0 if n else math.nan),
        "l2_norm": math.sqrt(math.fsum(v * v for v in finite)) if n else math.nan,
    }


def change_row(tensor: Array, previous: Array | None, atol: float) -> dict[Any, float]:
    empty = {"mean_abs_change": math.nan, "mean_abs_previous": math.nan, "required_rtol": math.nan, "complete": True}
    if previous is None:
        return {"has_previous": False, "changes_comparable": False, **empty}
    x, p = as_doubles(tensor), as_doubles(previous)
    if x.size != p.size:
        return {"has_previous": True, "changes_comparable": False, **empty}
    if not x.size or not (np.isfinite(x).all() and np.isfinite(p).all()):
        return {"has_previous": True, "changes_comparable": True, **empty}
    needed = [
        0.0 if abs(a - b) <= atol else (abs(a - b) - atol) / abs(b) if b else math.inf
        for a, b in zip(x.tolist(), p.tolist(), strict=True)
    ]
    return {
        "has_previous": True,
        "changes_comparable": True,
        "mean_abs_change": math.fsum(np.abs(x - p).tolist()) / x.size,
        "mean_abs_previous": math.fsum(np.abs(p).tolist()) / x.size,
        "required_rtol": max(needed),
        "complete": True,
    }


def count_in_range(tensor: Array, start: float, end: float) -> int:
    return sum(start <= v <= end for v in as_doubles(tensor).tolist())


def columns_of(rows: Sequence[Mapping[Any, float]]) -> dict[Any, Array]:
    return {key: np.array([row[key] for row in rows]) for key in rows[0]}


def columns_for(
    tensors: Sequence[Array],
    previous: Sequence[Array | None] | None = None,
    *,
    atol: float = 1e-8,
    ranges: Sequence[tuple[float, float]] = (),
    overflowed: Sequence[bool] | None = None,
) -> dict[Any, Array]:
    """Return all columns that any condition may ask for."""
    before = previous if previous is not None else [None] * len(tensors)
    rows: list[dict[Any, float]] = []
    for number, (x, p) in enumerate(zip(tensors, before, strict=True)):
        row = statistics_row(x) | change_row(x, p, atol)
        for start, end in ranges:
            row["in_range", start, end] = count_in_range(x, start, end)
        row["overflowed"] = overflowed[number] if overflowed is not None else False
        rows.append(row)
    return columns_of(rows)


def original_actual(parameter: str, x: Array, p: Array | None, arguments: Mapping[str, Any]) -> float:
    """Return what the original's documentation of `parameter` says about a tensor of finite elements."""
    with np.errstate(over="ignore", invalid="ignore"):
        return _original_actual(parameter.rpartition("_")[0], x, p, arguments)


def _original_actual(quantity: str, x: Array, p: Array | None, arguments: Mapping[str, Any]) -> float:
    plain = {
        "max": x.max(),
        "min": x.min(),
        "max_min": x.max() - x.min(),
        "mean": x.mean(),
        "abs_mean": np.abs(x).mean(),
        "sd": x.std(ddof=1) if x.size > 1 else 0.0,
        "zero_percentage": 100.0 * np.count_nonzero(x == 0) / x.size,
    }
    if quantity in plain:
        return float(plain[quantity])
    if quantity == "range_percentage":
        start, end = arguments["range_start_inclusive"], arguments["range_end_inclusive"]
        return 100.0 * np.count_nonzero((x >= start) & (x <= end)) / x.size
    assert quantity == "abs_mean_update_ratio"
    assert p is not None
    if p.size != x.size:
        return math.nan
    return float(np.abs(x - p).mean() / (np.abs(p).mean() + 1e-9))


def original_verdict(
    wire_number: int, legacy_name: str, arguments: Mapping[str, Any], tensor: Array, previous: Array | None
) -> tuple[bool, int, dict[str, float], dict[str, bool]]:
    """Return (hit, error code, actual values, parameters' hits) by the original's rules, from the whole tensors."""
    x = as_doubles(tensor)
    p = None if previous is None else as_doubles(previous)
    thresholds = {k: v for k, v in arguments.items() if k.endswith(("_gt", "_lt", "_ge")) or k in ("param", "rtol")}
    actual, hits = dict.fromkeys(thresholds, 0.0), dict.fromkeys(thresholds, False)
    if x.size == 0:
        return False, 0, actual, hits
    nan, inf = bool(np.isnan(x).any()), bool(np.isinf(x).any())
    if wire_number in (0, 1, 13):
        return {0: nan, 1: inf, 13: nan or inf}[wire_number], 0, actual, hits
    code = nan * 1 + inf * 2 + (4 if wire_number in (18, 19, 20) and p is None else 0)
    if code:
        return False, code, actual, hits
    if wire_number == 20:
        assert p is not None
        # An infinite previous element would equal everything in this formula; we never call that unchanged.
        comparable = p.size == x.size and bool(np.isfinite(p).all())
        with np.errstate(over="ignore"):
            close = comparable and bool(np.all(np.abs(x - p) <= arguments["atol"] + arguments["rtol"] * np.abs(p)))
        return close, 0, actual, hits
    for name, threshold in thresholds.items():
        known_as = legacy_name if name == "param" else name
        value = original_actual(known_as, x, p, arguments)
        if math.isnan(value):
            continue
        suffix = known_as.rpartition("_")[2]
        actual[name] = value
        hits[name] = {"gt": value > threshold, "lt": value < threshold, "ge": value >= threshold}[suffix]
    return any(hits.values()), 0, actual, hits
