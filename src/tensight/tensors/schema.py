"""The single declaration of a row of statistics.

All code that stores, sends or shows statistics takes their names, types, order and labels from here: columns in memory
(`COLUMNS`), blocks on the wire, rows of traces, tables in SQL, the page (``ui/src/api/statistics.json``, written by
``make api``). A new measure is added after the last one; it is unknown in older files and messages.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, get_type_hints

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray


class Moments(NamedTuple):
    """The totals of the finite elements: floats for one tensor, arrays with a number per tensor for many.

    Attributes
    ----------
    finite : int or float array
        Number of finite elements; results are only used where it is at least 1.
    others : float or float array
        The divisor of a sample variance: one less, infinite instead of 0.
    minimum, maximum : float or array
    mean : float or array
    absolute_total : float or array
        Sum of the absolute values.
    squared_deviation : float or array
        Sum of the squared distances from the mean.
    sqrt : callable
        Square root of a float or an array.
    """

    finite: Any
    others: Any
    minimum: Any
    maximum: Any
    mean: Any
    absolute_total: Any
    squared_deviation: Any
    sqrt: Callable[[Any], Any]


class Words(NamedTuple):
    """The texts for a statistic in one language.

    Attributes
    ----------
    label : str
        Short label.
    title : str
    meaning : str
        A short explanation.
    """

    label: str
    title: str = ""
    meaning: str = ""


class Measure(NamedTuple):
    """A statistic of the finite elements of a tensor.

    Attributes
    ----------
    of : callable (Moments) -> float or array
    is_scaled : bool
        Whether it is computed from sums, which are scaled if squares would leave the range of float64.
    """

    of: Callable[[Moments], Any]
    is_scaled: bool = True


class Derived(NamedTuple):
    """A number that is computed from others of a row.

    Attributes
    ----------
    of : tuple of str
        Names of the others.
    compute : callable (array, ...) -> array
        Function of float64 arrays, NaN where a number is unknown.
    """

    of: tuple[str, ...]
    compute: Callable[..., Any]


@dataclass(frozen=True, slots=True)
class TensorStatistics:
    """The statistics of a tensor, from one pass over it.

    The six counts add up to `count`. Numbers from `min` on are over the finite elements, and NaN if there are none. The
    value of a complex element is its magnitude, that of a bool 0 or 1.

    Attributes
    ----------
    dtype : str
        "float32", "bfloat16", "bool"…
    shape : tuple of int
    size_bytes : int
        Size of the elements.
    count : int
        Number of elements.
    nan_count, neg_inf_count, pos_inf_count : int
    zero_count, negative_count, positive_count : int
        Counts of finite elements; -0.0 is a zero.
    min, max, mean, abs_mean : float
    std : float
        Sample standard deviation (divisor n - 1); 0 for a single element.
    l2_norm : float
    content_hash : int
        Unsigned 64 bits; equal for equal elements of the same dtype, for any shape, byte order and number of threads.
        0 if not computed.
    """

    dtype: str
    shape: tuple[int, ...]
    size_bytes: int
    count: Annotated[int, Words("Elements", "Elements", "How many elements"), Words("元素数", "元素数", "元素个数")]
    nan_count: Annotated[int, Words("NaN"), Words("NaN")]
    neg_inf_count: Annotated[int, Words("-Inf"), Words("-Inf")]
    pos_inf_count: Annotated[int, Words("+Inf"), Words("+Inf")]
    zero_count: Annotated[int, Words("Zero"), Words("零")]
    negative_count: Annotated[int, Words("Negative"), Words("负数")]
    positive_count: Annotated[int, Words("Positive"), Words("正数")]
    min: Annotated[
        float,
        Measure(lambda of: of.minimum + 0.0, is_scaled=False),  # a negative zero becomes positive
        Words("Min", "Minimum", "Smallest finite element"),
        Words("最小值", "最小值", "有限元素的最小值"),
    ]
    max: Annotated[
        float,
        Measure(lambda of: of.maximum + 0.0, is_scaled=False),
        Words("Max", "Maximum", "Largest finite element"),
        Words("最大值", "最大值", "有限元素的最大值"),
    ]
    mean: Annotated[
        float,
        Measure(lambda of: of.mean + 0.0),
        Words("Mean", "Mean", "Mean of the finite elements"),
        Words("均值", "均值", "有限元素的均值"),
    ]
    abs_mean: Annotated[
        float,
        Measure(lambda of: of.absolute_total / of.finite),
        Words("Mean |x|", "Mean absolute value", "Mean absolute value of the finite elements"),
        Words("绝对值均值", "绝对值均值", "有限元素的绝对值均值"),
    ]
    std: Annotated[
        float,
        Measure(lambda of: of.sqrt(of.squared_deviation / of.others)),
        Words("Std", "Standard deviation", "Standard deviation of the finite elements"),
        Words("标准差", "标准差", "有限元素的标准差"),
    ]
    l2_norm: Annotated[
        float,
        Measure(lambda of: of.sqrt(of.squared_deviation + of.finite * of.mean * of.mean)),
        Words("L2 norm", "L2 norm", "L2 norm of the finite elements"),
        Words("L2 范数", "L2 范数", "有限元素的 L2 范数"),
    ]
    content_hash: int

    @property
    def non_finite_count(self) -> int:
        """Number of elements that are NaN or infinite."""
        return self.nan_count + self.neg_inf_count + self.pos_inf_count

    @property
    def finite_count(self) -> int:
        """Number of elements that are neither NaN nor infinite."""
        return self.count - self.non_finite_count

    @property
    def is_bool(self) -> bool:
        """Whether the elements are bools; true counts as positive, false as zero."""
        return self.dtype == "bool"

    def as_row(self) -> dict[str, Any]:
        """Return the fields by name, in declared order."""
        return {each.name: getattr(self, each.name) for each in fields(self)}


_HINTS = get_type_hints(TensorStatistics, include_extras=True)
_METADATA = {name: hint.__metadata__ for name, hint in _HINTS.items() if hasattr(hint, "__metadata__")}

WORDS = {name: (metadata[-2], metadata[-1]) for name, metadata in _METADATA.items()}
"""The texts for each statistic, in English and in Chinese."""

MEASURES_OF: dict[str, Measure] = {name: metadata[0] for name, metadata in _METADATA.items() if len(metadata) > 2}
"""The computation of each measure, by name, in declared order."""

MEASURES = tuple(MEASURES_OF)
"""Names of the statistics of the finite elements."""

FIRST_MEASURES = ("min", "max", "mean", "abs_mean", "std", "l2_norm")
"""Measures that every version writes and sends."""

COUNTS = tuple(name for name in WORDS if name not in MEASURES_OF)
"""The number of elements, and of each kind of elements."""

KINDS = COUNTS[1:]
"""The counts that add up to the number of elements."""

NON_FINITE = ("nan_count", "neg_inf_count", "pos_inf_count")
"""The counts of elements that are not finite."""

NUMBERS = ("size_bytes", *COUNTS, *MEASURES)
"""All numbers of a row except the content hash."""

COLUMNS = (
    *((name, np.int64) for name in COUNTS),
    *((name, np.float64) for name in MEASURES),
    ("content_hash", np.uint64),
)
"""Names and types of the columns of a row, for a structured dtype."""


def _percentage(*counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the percentage of some kinds of elements; the last argument is the number of all elements."""
    *kinds, count = counts
    return sum(kinds) * np.where(count > 0, 100 / count, np.nan)


DERIVED = {
    "non_finite_count": Derived(NON_FINITE, lambda *counts: sum(counts)),
    "abs_max": Derived(("min", "max"), lambda low, high: np.fmax(np.abs(low), np.abs(high))),
    "zero_percent": Derived(("zero_count", "count"), _percentage),
    "negative_percent": Derived(("negative_count", "count"), _percentage),
    "non_finite_percent": Derived((*NON_FINITE, "count"), _percentage),
}
"""Numbers that are computed from those of a row, by name."""

PERCENTAGES = tuple(name for name, each in DERIVED.items() if each.compute is _percentage)
"""Derived numbers that are percentages of the elements."""


def derived(name: str, columns: Mapping[str, NDArray[np.float64]]) -> NDArray[np.float64]:
    """Return one of `DERIVED`.

    Parameters
    ----------
    name : str
    columns : mapping of str to float64 array, shape (n,)
        The numbers from which it is computed, optionally others; NaN where a number is unknown.
    """
    of, compute = DERIVED[name]
    with np.errstate(all="ignore"):
        values: NDArray[np.float64] = compute(*(columns[each] for each in of))
    return values


_SCALED = tuple(index for index, measure in enumerate(MEASURES_OF.values()) if measure.is_scaled)
_FUNCTIONS = tuple(measure.of for measure in MEASURES_OF.values())


def measures_of(moments: Moments, exponent: int) -> list[float]:
    """Return the measures of one tensor, in the order of `MEASURES`; NaN if no element is finite.

    Parameters
    ----------
    moments : Moments
        Floats; sums are over values divided by ``2**exponent``, squared deviations over their squares.
    exponent : int
    """
    if not moments.finite:
        return [math.nan] * len(MEASURES)
    measures = [of(moments) for of in _FUNCTIONS]
    if exponent:
        for index in _SCALED:
            measures[index] = _times_power(measures[index], exponent)
    return measures


def measures_of_many(moments: Moments, exponents: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the measures of many tensors, shape (n, len(MEASURES)); NaN where no element is finite.

    Parameters
    ----------
    moments : Moments
        Arrays of shape (n,); see `measures_of`.
    exponents : ndarray of int64, shape (n,)
    """
    measures = np.empty((len(exponents), len(MEASURES)))
    with np.errstate(all="ignore"):
        for index, of in enumerate(_FUNCTIONS):
            measures[:, index] = of(moments)
        scaled = np.flatnonzero(exponents)
        if scaled.size:
            at = np.ix_(scaled, np.array(_SCALED))
            measures[at] = np.ldexp(measures[at], exponents[scaled, None])
    measures[moments.finite == 0] = np.nan
    return measures


def _times_power(number: float, exponent: int) -> float:
    """Return ``number * 2**exponent``, infinite if that overflows."""
    try:
        return math.ldexp(number, exponent)
    except OverflowError:
        return math.copysign(math.inf, number)


def as_json() -> dict[str, Any]:
    """Return the schema for the page: names in order, and their texts in both languages."""
    languages = {
        language: {name: both[index]._asdict() for name, both in WORDS.items()}
        for index, language in enumerate(("en", "zh"))
    }
    return {"counts": list(COUNTS), "measures": list(MEASURES), "words": languages}
