"""Statistics of the change of a tensor between two iterations."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tensight.errors import InputError
from tensight.tensors import layout
from tensight.tensors.elements import Route, as_native, doubles_of, element_type
from tensight.tensors.native import kernels
from tensight.tensors.scratch import change_totals
from tensight.tensors.statistics_row import segments_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from tensight.tensors.elements import ElementType

UPDATE_RATIO_EPSILON = 1e-9
"""MindInsight adds this to the mean size of the previous values (conditions 18 and 19), ignoring its parameter."""

# Between these magnitudes the squares of differences are safely in the range of float64.
_LARGE, _SMALL = 2.0**480, 2.0**-450


@dataclass(frozen=True, slots=True)
class ChangeStatistics:
    """The differences between the elements x of a tensor and its previous elements p.

    Differences are computed in double precision. The four numbers from `mean_abs_change` on are over the pairs of
    finite elements, and NaN if there are none.

    Attributes
    ----------
    count : int
        Number of pairs.
    mean_abs_change : float
        Mean of ``|x - p|``.
    mean_abs_previous : float
        Mean of ``|p|``.
    max_abs_change : float
        Largest ``|x - p|``.
    l2_change : float
        Square root of the sum of ``|x - p|**2``.
    required_rtol : float
        Smallest relative tolerance for which all ``|x - p| <= atol + rtol * |p|``: infinite if there is none (a zero
        changed), NaN if an element is not finite.
    atol : float
        The absolute tolerance of `required_rtol`.
    complete : bool
        False if reading stopped early; then `required_rtol` is a lower bound and the other numbers are NaN.
    """

    count: int
    mean_abs_change: float
    mean_abs_previous: float
    max_abs_change: float
    l2_change: float
    required_rtol: float
    atol: float
    complete: bool

    @property
    def update_ratio(self) -> float:
        """``mean|x - p| / (mean|p| + 1e-9)``, the number of the conditions "change too large" and "too small"."""
        return self.mean_abs_change / (self.mean_abs_previous + UPDATE_RATIO_EPSILON)


@dataclass(frozen=True, slots=True)
class ChangePartial:
    """The change of one segment of `count` pairs: as in `ChangeStatistics`, over its `finite` pairs."""

    count: int
    finite: int
    mean_abs_change: float
    mean_abs_previous: float
    max_abs_change: float
    l2_change: float
    required_rtol: float


def scan_change_segment(current: NDArray[Any], previous: NDArray[Any], *, atol: float) -> ChangePartial:
    """Compare one segment with the same segment before; mostly without holding the GIL.

    Parameters
    ----------
    current, previous : ndarray, 1-D, of the same length
        Dtypes may differ.
    atol : float
        Absolute tolerance, at least 0.

    Raises
    ------
    InputError
        Lengths differ, a dtype has no statistics, or `atol` is negative or NaN.
    """
    _require_comparable(current, previous, atol)
    kinds = element_type(current.dtype), element_type(previous.dtype)
    new, old = as_native(current, kinds[0]), as_native(previous, kinds[1])
    compiled = kernels()
    if compiled is not None and Route.MAGNITUDE not in (kinds[0].route, kinds[1].route):
        totals, address = change_totals()
        pair = kinds[0].kind, new.ctypes.data, kinds[1].kind, old.ctypes.data, new.size
        compiled.compare(*pair, address, atol)
        partial = _partial(new.size, totals.tolist())
        if partial is not None:
            return partial
    return _compare_portable(_in_double(new, kinds[0]), _in_double(old, kinds[1]), atol)


def _require_comparable(current: NDArray[Any], previous: NDArray[Any], atol: float) -> None:
    if current.size != previous.size:
        raise InputError(
            f"cannot compare {current.size:,} elements with {previous.size:,}; give two tensors of the same size"
        )
    if not atol >= 0:
        raise InputError(f"atol is {atol}; give a number of at least 0")


def _partial(count: int, totals: list[float]) -> ChangePartial | None:
    """Return the result of the kernel, or None if an element is not finite or a square is out of float64's range."""
    largest = totals[layout.CHANGE_MAXIMUM]
    if not count or not all(map(math.isfinite, totals[: layout.REQUIRED_RTOL])) or 0 < largest < _SMALL:
        return None
    return ChangePartial(
        count=count,
        finite=count,
        mean_abs_change=totals[layout.CHANGE_TOTAL] / count,
        mean_abs_previous=totals[layout.PREVIOUS_TOTAL] / count,
        max_abs_change=largest,
        l2_change=math.sqrt(totals[layout.CHANGE_SQUARES]),
        required_rtol=totals[layout.REQUIRED_RTOL],
    )


def _in_double(elements: NDArray[Any], kind: ElementType) -> NDArray[Any]:
    """Return elements as float64, or as complex128 if they are complex."""
    if kind.route is Route.MAGNITUDE:
        with np.errstate(invalid="ignore"):
            return elements.astype(np.complex128)
    return doubles_of(elements, kind)


def _compare_portable(new: NDArray[Any], old: NDArray[Any], atol: float) -> ChangePartial:
    """Compare with NumPy: without kernels, and for cases that they do not handle (NaN, Inf, extreme sizes, complex)."""
    finite = np.isfinite(new) & np.isfinite(old)
    all_finite = bool(finite.all())
    if not all_finite:
        new, old = new[finite], old[finite]
    required = 0.0 if all_finite else math.nan
    with np.errstate(divide="ignore", over="ignore", under="ignore"):
        change, size = np.abs(new - old), np.abs(old)
        beyond = change > atol
        if all_finite and beyond.any():
            required = float(((change[beyond] - atol) / size[beyond]).max())
    return ChangePartial(
        count=finite.size,
        finite=change.size,
        mean_abs_change=_mean(change),
        mean_abs_previous=_mean(size),
        max_abs_change=float(change.max()) if change.size else math.nan,
        l2_change=_norm(change),
        required_rtol=required,
    )


def _mean(sizes: NDArray[np.float64]) -> float:
    """Return the mean of non-negative numbers, without overflow of their sum."""
    if not sizes.size:
        return math.nan
    with np.errstate(under="ignore"):
        return float(sizes.mean()) if sizes.max() < 2.0**900 else float((sizes / sizes.size).sum())


def _norm(sizes: NDArray[np.float64]) -> float:
    """Return the L2 norm of non-negative numbers, without overflow or underflow of the squares."""
    largest = float(sizes.max()) if sizes.size else 0.0
    if largest == 0 or math.isinf(largest):
        return largest
    if _SMALL <= largest <= _LARGE:
        return math.sqrt(float(np.square(sizes).sum()))
    with np.errstate(under="ignore"):
        return largest * math.sqrt(float(np.square(sizes / largest).sum()))


def merge_changes(partials: Iterable[ChangePartial], *, atol: float, complete: bool = True) -> ChangeStatistics:
    """Return the change of a tensor from those of its segments, in any order.

    Parameters
    ----------
    partials : iterable of ChangePartial
    atol : float
        The absolute tolerance with which the segments were compared.
    complete : bool
        False if these are not all segments.
    """
    parts = list(partials)
    count = sum(part.count for part in parts)
    finite = [part for part in parts if part.finite]
    required = max((part.required_rtol for part in parts), default=0.0)
    if any(math.isnan(part.required_rtol) for part in parts):
        required = math.nan
    numbers = (math.nan,) * 4
    if finite and complete:
        numbers = _numbers(finite)
    return ChangeStatistics(count, *numbers, required_rtol=required, atol=atol, complete=complete)


def _numbers(parts: list[ChangePartial]) -> tuple[float, float, float, float]:
    """Return mean change, mean size before, largest change and L2 norm of the change."""
    pairs = sum(part.finite for part in parts)
    return (
        math.fsum(part.mean_abs_change * (part.finite / pairs) for part in parts),
        math.fsum(part.mean_abs_previous * (part.finite / pairs) for part in parts),
        max(part.max_abs_change for part in parts),
        math.hypot(*sorted(part.l2_change for part in parts)),
    )


def scan_changes(
    pairs: Iterable[tuple[NDArray[Any], NDArray[Any]]], *, atol: float, stop_above: float | None = None
) -> ChangeStatistics:
    """Compare segments one after the other, and stop as soon as `required_rtol` exceeds `stop_above`.

    Parameters
    ----------
    pairs : iterable of (current, previous)
        Current and previous segments of the tensor.
    atol : float
        Absolute tolerance, at least 0.
    stop_above : float, optional
        A relative tolerance; None reads to the end.
    """
    parts = []
    for current, previous in pairs:
        parts.append(scan_change_segment(current, previous, atol=atol))
        if stop_above is not None and parts[-1].required_rtol > stop_above:
            return merge_changes(parts, atol=atol, complete=False)
    return merge_changes(parts, atol=atol)


def changes(current: NDArray[Any], previous: NDArray[Any], *, atol: float = 1e-8) -> ChangeStatistics:
    """Return the change of a whole tensor.

    Parameters
    ----------
    current, previous : ndarray
        Arrays of the same number of elements, which are paired in C order; shapes and dtypes may differ.
    atol : float
        Absolute tolerance for `ChangeStatistics.required_rtol`.

    Raises
    ------
    InputError
        Numbers of elements differ, a dtype has no statistics, or `atol` is negative or NaN.
    """
    current, previous = np.asarray(current), np.asarray(previous)
    _require_comparable(current, previous, atol)
    return scan_changes(zip(segments_of(current), segments_of(previous), strict=True), atol=atol)
