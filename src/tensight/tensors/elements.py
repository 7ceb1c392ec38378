"""Supported element types, and the values of their elements in statistics."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from tensight.errors import InputError
from tensight.tensors.narrow_types import BFLOAT16 as BFLOAT16
from tensight.tensors.narrow_types import dtype_name, narrow_dtype, widened

if TYPE_CHECKING:
    from numpy.typing import NDArray

_EXTENSIONS: dict[str, np.dtype[Any]] = {
    name: narrow_dtype(name) for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2")
}
"""Element types that are not NumPy's own."""


class Route(Enum):
    """The kind of values that represent elements in statistics; always exact up to rounding to double.

    Attributes
    ----------
    is_double : bool
        Whether the values are float64 (else float32).
    """

    FLOAT32 = "float32", False
    FLOAT64 = "float64", True
    MAGNITUDE = "magnitude of a complex number, as float64", True

    def __init__(self, _meaning: str, is_double: bool) -> None:
        self.is_double = is_double


@dataclass(frozen=True, slots=True)
class ElementType:
    """A supported element type.

    Attributes
    ----------
    name : str
        "float32", "bfloat16", "bool"…, without byte order.
    native : dtype
        The type in native byte order; uint8 for bool, so that every byte other than 0 is true.
    route : Route
        Kind of the values.
    kind : int
        Its index in `ELEMENT_NAMES`, which the compiled kernels use.
    """

    name: str
    native: np.dtype[Any]
    route: Route
    kind: int

    @property
    def is_bool(self) -> bool:
        """Whether the elements are bools, with values 0 and 1."""
        return self.name == "bool"

    @property
    def is_narrow_float(self) -> bool:
        """Whether the elements are floating-point numbers of fewer than 32 bits."""
        return self.name == "float16" or self.name in _EXTENSIONS


_ROUTES = {
    "float16": Route.FLOAT32,
    "float32": Route.FLOAT32,
    "float64": Route.FLOAT64,
    "bool": Route.FLOAT32,
    "int8": Route.FLOAT32,
    "uint8": Route.FLOAT32,
    "int16": Route.FLOAT32,
    "uint16": Route.FLOAT32,
    "int32": Route.FLOAT64,
    "uint32": Route.FLOAT64,
    "int64": Route.FLOAT64,
    "uint64": Route.FLOAT64,
    "complex64": Route.MAGNITUDE,
    "complex128": Route.MAGNITUDE,
    "bfloat16": Route.FLOAT32,
    "float8_e4m3fn": Route.FLOAT32,
    "float8_e5m2": Route.FLOAT32,
}

ELEMENT_NAMES = tuple(_ROUTES)
"""Names of all supported element types."""


@lru_cache(maxsize=256)
def element_type(dtype: np.dtype[Any]) -> ElementType:
    """Return the element type of a dtype.

    Raises
    ------
    InputError
        The elements are not numbers (text, objects, records, dates), or wider than 64-bit floats.
    """
    name = dtype_name(dtype)
    if _EXTENSIONS.get(name) == dtype:
        return ElementType(name, dtype, _ROUTES[name], ELEMENT_NAMES.index(name))
    route = _ROUTES.get(dtype.name) if dtype.kind in "biufc" else None
    if route is None:
        raise InputError(
            f"a tensor of dtype {dtype} has no statistics; give bool, an integer, a float of at most 64 bits, "
            "bfloat16, float8_e4m3fn or float8_e5m2 (all of ml_dtypes), or a complex dtype"
        )
    native = np.dtype(np.uint8) if dtype.name == "bool" else dtype.newbyteorder("=")
    return ElementType(dtype.name, native, route, ELEMENT_NAMES.index(dtype.name))


def element_named(name: str) -> ElementType:
    """Return the element type of one of `ELEMENT_NAMES`."""
    return element_type(dtype_named(name))


def dtype_named(name: str) -> np.dtype[Any]:
    """Return the dtype with a name: one of NumPy's, or an extension with statistics.

    Raises
    ------
    TypeError
        There is no such dtype.
    """
    return _EXTENSIONS.get(name) or np.dtype(name)


def as_native(segment: NDArray[Any], element: ElementType) -> NDArray[Any]:
    """Return the elements as a contiguous 1-D array in native byte order, copied only if necessary."""
    array = np.asarray(segment).reshape(-1)
    if element.is_bool:
        array = array.view(np.uint8)
    return np.ascontiguousarray(array, dtype=element.native)


def values_of(elements: NDArray[Any], element: ElementType) -> NDArray[Any]:
    """Return the float32 or float64 values of `elements` (native, 1-D) in statistics.

    The magnitude of a complex number is NaN if a part is NaN, and +inf if a part is infinite and none NaN; magnitudes
    of finite numbers beyond the range of float64 become the largest float64.
    """
    if element.route is Route.MAGNITUDE:
        return magnitudes(elements)
    if element.is_bool:
        return np.asarray(elements != 0, dtype=np.float32)
    kind = np.float64 if element.route.is_double else np.float32
    with np.errstate(invalid="ignore"):  # widening a signalling NaN warns
        return np.asarray(widened(elements), dtype=kind)


def doubles_of(elements: NDArray[Any], element: ElementType) -> NDArray[np.float64]:
    """Return the values of `elements` in statistics as float64; see `values_of`."""
    with np.errstate(invalid="ignore"):
        return np.asarray(values_of(elements, element), dtype=np.float64)


def magnitudes(elements: NDArray[Any]) -> NDArray[np.float64]:
    """Return the magnitudes of complex numbers as float64; see `values_of`."""
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        parts = elements.astype(np.complex128, copy=False)
        sizes = np.hypot(parts.real, parts.imag)
        finite = np.isfinite(parts.real) & np.isfinite(parts.imag)
        sizes[finite & np.isinf(sizes)] = np.finfo(np.float64).max
        sizes[np.isnan(parts.real) | np.isnan(parts.imag)] = np.nan
    return np.asarray(sizes)
