"""Difference of two tensors: from their elements if both runs have them, otherwise a lower bound from statistics.

Errors are norms of the difference: ``relative`` is ``‖a − b‖ / max(‖a‖, ‖b‖)`` over the elements that are finite in
both tensors. Statistics give a lower bound, by the reverse triangle inequality: ``‖a − b‖ ≥ |‖a‖ − ‖b‖|``, and, since
the mean is a linear form, ``‖a − b‖ ≥ √n · |mean(a) − mean(b)|``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import permutations
from typing import TYPE_CHECKING, Any

import numpy as np

from tensight.compare.runs.steps import NO_ROW
from tensight.tensors.schema import NON_FINITE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tensight.compare.runs.steps import RunToCompare

UNIT_ROUNDOFF = {
    "float64": 2.0**-53,
    "float32": 2.0**-24,
    "float16": 2.0**-11,
    "bfloat16": 2.0**-8,
    "complex64": 2.0**-24,
    "complex128": 2.0**-53,
    "float8_e4m3fn": 2.0**-4,
    "float8_e4m3fnuz": 2.0**-4,
    "float8_e5m2": 2.0**-3,
    "float8_e5m2fnuz": 2.0**-3,
}
"""Largest relative error of rounding to an element type, to nearest."""

_MOST_LAYOUT_DIMENSIONS = 5
_TELLING = ("l2_norm", "mean", "abs_mean", "std", "min", "max")
"""Statistics; to compare tensors without values, at least one must be bounded in both runs."""

_COARSE = 1e-6
"""Relative difference of statistics above which elements certainly differ; other tools compute them in float32."""

_SUMMED = 1e-12
"""Relative difference that statistics of equal tensors may have."""


@dataclass(frozen=True, slots=True)
class TensorDifference:
    """The difference of two tensors.

    Attributes
    ----------
    is_bit_equal : bool
        Whether all elements are known to be equal, and of the same element type.
    are_bits_known : bool
        Whether bit equality could be decided, from elements, hashes or statistics.
    from_values : bool
        Whether elements or hashes were compared; otherwise the numbers are lower bounds from statistics, or NaN where
        statistics give none.
    relative : float
        Norm of the difference over the larger norm; 0 for equal tensors, infinite if their NaN or infinite elements
        differ.
    absolute : float
        Norm of the difference.
    max_absolute, max_relative : float
        Largest difference of two elements, absolute and relative to the larger of the two.
    cosine : float
        Cosine of the angle between the two tensors as vectors.
    norm_ratio : float
        ``‖b‖ / ‖a‖``.
    over_1, over_5 : float
        Share of elements whose relative difference is above 1 ‰ and 5 ‰.
    max_ulps : float
        Largest difference of two elements in units in the last place of the narrower element type.
    norm, spread : float
        The larger of the two norms, and of the two norms around the mean.
    shapes : tuple of (tuple of int, tuple of int)
    dtypes : tuple of (str, str)
    layout : str
        How the axes of B were reordered to fit A, such as ``NHWC`` or ``transposed``; empty if they fit already.
    has_equal_non_finite : bool
        Whether both have NaN or infinite elements, at the same positions.
    count : int
        Number of elements of A.
    rows : tuple of (int, int)
        Rows of their statistics; `NO_ROW` if they were compared without statistics.
    """

    is_bit_equal: bool
    are_bits_known: bool
    from_values: bool
    relative: float
    absolute: float
    max_absolute: float
    max_relative: float
    cosine: float
    norm_ratio: float
    over_1: float
    over_5: float
    max_ulps: float
    norm: float
    spread: float
    shapes: tuple[tuple[int, ...], tuple[int, ...]]
    dtypes: tuple[str, str]
    layout: str = ""
    has_equal_non_finite: bool = False
    count: int = 0
    rows: tuple[int, int] = (NO_ROW, NO_ROW)

    @property
    def roundoff(self) -> float:
        """Unit roundoff of the narrower element type; 0 for integers and booleans."""
        return max(UNIT_ROUNDOFF.get(dtype, 0.0) for dtype in self.dtypes)

    @property
    def norms(self) -> tuple[float, float]:
        """The norms of both tensors."""
        ratio = self.norm_ratio
        if ratio != ratio:
            return 0.0, self.norm
        return (self.norm, self.norm * ratio) if ratio <= 1 else (self.norm / ratio, self.norm)

    @property
    def is_comparable(self) -> bool:
        """Whether the shapes fit, in any layout."""
        return self.relative == self.relative

    @property
    def may_be_reordered(self) -> bool:
        """Whether all statistics agree, and the content does not: at most the order and the last digits differ."""
        return not (self.from_values or self.is_bit_equal) and self.are_bits_known and self.absolute == 0

    @property
    def spread_relative(self) -> float:
        """Norm of the difference over the norm around the mean: the error that normalisations amplify."""
        return self.absolute / self.spread if self.spread > 0 else self.relative


_Bounds = dict[str, tuple[float, float]]


def difference(
    run_a: RunToCompare, row_a: int, run_b: RunToCompare, row_b: int, *, only_statistics: bool = False
) -> TensorDifference | None:
    """Compare two tensors.

    Parameters
    ----------
    run_a, run_b : RunToCompare
    row_a, row_b : int
        Rows of their statistics.
    only_statistics : bool
        Whether to compare statistics only, without reading elements.

    Returns
    -------
    TensorDifference or None
        None if nothing is known about one of them.
    """
    if row_a == NO_ROW or row_b == NO_ROW or not run_a.is_known(row_a) or not run_b.is_known(row_b):
        return None
    diff = _difference(run_a, row_a, run_b, row_b, only_statistics=only_statistics)
    return None if diff is None else replace(diff, rows=(row_a, row_b))


def _difference(
    run_a: RunToCompare, row_a: int, run_b: RunToCompare, row_b: int, *, only_statistics: bool
) -> TensorDifference | None:
    shapes, dtypes = (run_a.shape(row_a), run_b.shape(row_b)), (run_a.dtype(row_a), run_b.dtype(row_b))
    hash_a, hash_b = run_a.content_hash(row_a), run_b.content_hash(row_b)
    if hash_a and hash_a == hash_b and dtypes[0] == dtypes[1] and math.prod(shapes[0]) == math.prod(shapes[1]):
        return _equal(run_a, row_a, shapes, dtypes)
    if math.prod(shapes[0]) != math.prod(shapes[1]) or sorted(_long(shapes[0])) != sorted(_long(shapes[1])):
        return _incomparable(shapes, dtypes)
    if not only_statistics and run_a.has_values(row_a) and run_b.has_values(row_b):
        a, b = run_a.values(row_a), run_b.values(row_b)
        if a is not None and b is not None:
            return compare_values(a, b, dtypes)
    return _from_statistics(run_a.bounds(row_a), run_b.bounds(row_b), shapes, dtypes, hashed=bool(hash_a and hash_b))


def difference_of_fused(
    run_whole: RunToCompare, row: int, run_parts: RunToCompare, rows: Sequence[int], *, is_transposed: bool
) -> TensorDifference | None:
    """Compare a fused tensor with its parts, the tensors that are its rows.

    Parameters
    ----------
    run_whole, run_parts : RunToCompare
        The runs of the fused tensor and of its parts.
    row : int
        Row of the fused tensor's statistics.
    rows : sequence of int
        Rows of the statistics of its parts, in order.
    is_transposed : bool
        Whether the fused tensor is stored transposed.

    Returns
    -------
    TensorDifference or None
        None if the elements of any of them cannot be read.
    """
    whole, parts = run_whole.values(row), [run_parts.values(part_row) for part_row in rows]
    read = [part for part in parts if part is not None]
    if whole is None or len(read) < len(parts):
        return None
    joined = np.concatenate(read)
    whole = whole.T if is_transposed else whole
    return compare_values(whole, joined, (run_whole.dtype(row), run_parts.dtype(rows[0])))


def compare_values(
    a: NDArray[np.float64], b: NDArray[np.float64], dtypes: tuple[str, str] = ("float64", "float64")
) -> TensorDifference:
    """Compare the elements of two tensors.

    Parameters
    ----------
    a, b : float64 array
        Of equal shape, or with the same axes in a different order.
    dtypes : tuple of (str, str)
        Element types in which they were stored.
    """
    shapes = (a.shape, b.shape)
    b, layout = _fit(a, b)
    flat_a, flat_b = a.reshape(-1), b.reshape(-1)
    finite = np.isfinite(flat_a) & np.isfinite(flat_b)
    whole = bool(finite.all())
    same_non_finite = whole or bool(np.array_equal(flat_a[~finite], flat_b[~finite], equal_nan=True))
    if not whole:
        flat_a, flat_b = flat_a[finite], flat_b[finite]
    with np.errstate(all="ignore"):
        apart = np.abs(flat_a - flat_b)
        larger = np.maximum(np.abs(flat_a), np.abs(flat_b))
        relatives = np.divide(apart, larger, out=np.zeros_like(apart), where=larger > 0)
        norm_a, norm_b = _norm(flat_a), _norm(flat_b)
        norm, absolute = max(norm_a, norm_b), _norm(apart)
        dot = float(np.dot(flat_a / norm_a, flat_b / norm_b)) if norm_a and norm_b else math.nan
    spread = max(_spread(flat_a, norm_a), _spread(flat_b, norm_b))
    unit = max(UNIT_ROUNDOFF.get(dtype, 0.0) for dtype in dtypes)
    relative = absolute / norm if norm else 0.0
    return TensorDifference(
        is_bit_equal=not apart.any() and same_non_finite and dtypes[0] == dtypes[1],
        are_bits_known=True,
        from_values=True,
        relative=relative if same_non_finite else math.inf,
        absolute=absolute if same_non_finite else math.inf,
        max_absolute=float(apart.max(initial=0.0)),
        max_relative=float(relatives.max(initial=0.0)),
        cosine=dot,
        norm_ratio=norm_b / norm_a if norm_a else math.nan,
        over_1=float((relatives > 1e-3).mean()) if len(relatives) else 0.0,
        over_5=float((relatives > 5e-3).mean()) if len(relatives) else 0.0,
        max_ulps=_ulps(apart, larger, unit),
        norm=norm,
        spread=spread,
        shapes=shapes,
        dtypes=dtypes,
        layout=layout,
        has_equal_non_finite=same_non_finite and not whole,
        count=a.size,
    )


def _ulps(apart: NDArray[np.float64], larger: NDArray[np.float64], unit: float) -> float:
    if not unit or not len(apart):
        return math.nan
    _, exponent = np.frexp(larger)
    spacing = np.ldexp(2 * unit, exponent - 1)
    return float(np.divide(apart, spacing, out=np.zeros_like(apart), where=larger > 0).max())


def _norm(values: NDArray[np.float64]) -> float:
    largest = float(np.abs(values).max(initial=0.0))
    return largest * math.sqrt(float(np.square(values / largest).sum())) if largest else 0.0


def _spread(values: NDArray[np.float64], norm: float) -> float:
    return _norm(values - values.mean()) if len(values) and norm else 0.0


def _long(shape: tuple[int, ...]) -> list[int]:
    return [length for length in shape if length != 1]


def _fit(a: NDArray[np.float64], b: NDArray[np.float64]) -> tuple[NDArray[np.float64], str]:
    """Reorder the axes of B to fit A; if several orders fit, take the one with the nearest values."""
    if a.shape == b.shape or a.ndim != b.ndim or a.ndim > _MOST_LAYOUT_DIMENSIONS:
        return b.reshape(a.shape) if a.shape != b.shape and _long(a.shape) == _long(b.shape) else _squeezed(a, b), ""
    orders = [
        axes
        for axes in permutations(range(b.ndim))
        if tuple(b.shape[axis] for axis in axes) == a.shape and axes != tuple(range(b.ndim))
    ]
    if not orders:
        return b.reshape(a.shape), "reshaped"
    axes = min(orders, key=lambda order: float(np.nansum(np.abs(a - b.transpose(order)))))
    return b.transpose(axes), _layout_name(axes)


def _squeezed(a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
    return b if a.shape == b.shape else b.reshape(a.shape)


def _layout_name(axes: tuple[int, ...]) -> str:
    if axes == (0, 3, 1, 2):
        return "NHWC"
    return "transposed" if axes == (1, 0) else f"axes {','.join(map(str, axes))}"


def in_layout(b: NDArray[Any], shape: tuple[int, ...], layout: str) -> NDArray[Any]:
    """Return B with its axes reordered to fit A, as a comparison determined; a view if possible.

    Parameters
    ----------
    b : array
        Elements of B.
    shape : tuple of int
        Shape of A.
    layout : str
        Layout of the comparison's `TensorDifference`.
    """
    axes = {"NHWC": (0, 3, 1, 2), "transposed": (1, 0)}.get(layout)
    if layout.startswith("axes "):
        axes = tuple(int(axis) for axis in layout.removeprefix("axes ").split(","))
    return (b if axes is None else b.transpose(axes)).reshape(shape)


def _equal(
    run: RunToCompare,
    row: int,
    shapes: tuple[tuple[int, ...], tuple[int, ...]],
    dtypes: tuple[str, str],
) -> TensorDifference:
    statistics = run.statistics(row)
    norm, spread, n = _number(statistics["l2_norm"]), _number(statistics["std"]), statistics["count"]
    return TensorDifference(
        is_bit_equal=True,
        are_bits_known=True,
        from_values=True,
        relative=0.0,
        absolute=0.0,
        max_absolute=0.0,
        max_relative=0.0,
        cosine=1.0,
        norm_ratio=1.0,
        over_1=0.0,
        over_5=0.0,
        max_ulps=0.0,
        norm=norm,
        spread=spread * math.sqrt(max(n - 1, 0)),
        shapes=shapes,
        dtypes=dtypes,
        has_equal_non_finite=statistics["nan_count"] + statistics["neg_inf_count"] + statistics["pos_inf_count"] > 0,
        count=int(n),
    )


def _incomparable(shapes: tuple[tuple[int, ...], tuple[int, ...]], dtypes: tuple[str, str]) -> TensorDifference:
    nothing = (math.nan,) * 11
    return TensorDifference(False, True, False, *nothing, shapes=shapes, dtypes=dtypes)


def _from_statistics(
    a: _Bounds,
    b: _Bounds,
    shapes: tuple[tuple[int, ...], tuple[int, ...]],
    dtypes: tuple[str, str],
    *,
    hashed: bool,
) -> TensorDifference | None:
    if not any(_is_bounded(a[name]) and _is_bounded(b[name]) for name in _TELLING):
        return None
    n = math.prod(shapes[0])
    same_non_finite = all(_apart(a, b, name) == 0 for name in NON_FINITE)
    norm_a, norm_b = _middle(a["l2_norm"]), _middle(b["l2_norm"])
    norm = max(norm_a, norm_b)
    root = math.sqrt(n)
    edges = max(_apart(a, b, "min"), _apart(a, b, "max"))
    absolute = max(
        _apart(a, b, "l2_norm"),
        root * _apart(a, b, "mean"),
        root * _apart(a, b, "abs_mean"),
        math.sqrt(max(n - 1, 0)) * _apart(a, b, "std"),
        edges,
    )
    return TensorDifference(
        is_bit_equal=False,
        are_bits_known=hashed or absolute > _COARSE * norm or not same_non_finite,
        from_values=False,
        relative=(absolute / norm if norm else 0.0) if same_non_finite else math.inf,
        absolute=absolute if same_non_finite else math.inf,
        max_absolute=edges,
        max_relative=math.nan,
        cosine=math.nan,
        norm_ratio=norm_b / norm_a if norm_a else math.nan,
        over_1=math.nan,
        over_5=math.nan,
        max_ulps=math.nan,
        norm=norm,
        spread=max(_middle(side["std"]) for side in (a, b)) * math.sqrt(max(n - 1, 0)),
        shapes=shapes,
        dtypes=dtypes,
        has_equal_non_finite=same_non_finite and any(a[name][0] > 0 for name in NON_FINITE),
        count=n,
    )


def _is_bounded(bounds: tuple[float, float]) -> bool:
    return math.isfinite(bounds[0]) and math.isfinite(bounds[1])


def _apart(a: _Bounds, b: _Bounds, name: str) -> float:
    """Return by how much a statistic differs at least; 0 if that is unknown."""
    (low_a, high_a), (low_b, high_b) = a[name], b[name]
    apart = max(low_a - high_b, low_b - high_a)
    # The sums of statistics may have been added up in different orders.
    return apart if apart > _SUMMED * max(map(abs, (low_a, high_a, low_b, high_b))) else 0.0


def _middle(bounds: tuple[float, float]) -> float:
    low, high = bounds
    return _number((low + high) / 2) if math.isfinite(low) and math.isfinite(high) else _number(low)


def _number(value: float) -> float:
    return value if math.isfinite(value) else 0.0
