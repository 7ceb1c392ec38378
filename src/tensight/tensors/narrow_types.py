"""Floats that NumPy does not have: as dtypes of ml_dtypes, or as stand-ins if that is not installed.

The full installation includes ml_dtypes, whose arrays support arithmetic. In a training Tensight needs less: typed
bytes, and their values as float32. A stand-in is a record with one field of raw bytes, ``[("bfloat16", "V2")]``: NumPy
copies and slices it, but refuses arithmetic, so code that forgot to convert the values raises.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

_SIZES_BYTES = {
    "bfloat16": 2, "float8_e4m3fn": 1, "float8_e5m2": 1, "float8_e4m3fnuz": 1, "float8_e5m2fnuz": 1,
    "float8_e8m0fnu": 1,
}  # fmt: skip

NARROW_NAMES = frozenset(_SIZES_BYTES)
"""Names of the types, as in ml_dtypes."""


def narrow_dtype(name: str) -> np.dtype[Any]:
    """Return the dtype of one of `NARROW_NAMES`."""
    try:
        import ml_dtypes
    except ImportError:
        return np.dtype([(name, f"V{_SIZES_BYTES[name]}")])
    dtype: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
    return dtype


BFLOAT16: np.dtype[Any] = narrow_dtype("bfloat16")


def dtype_name(dtype: np.dtype[Any]) -> str:
    """Return the name of a dtype or of a stand-in, as in NumPy and ml_dtypes."""
    if dtype.names is not None and len(dtype.names) == 1 and dtype.names[0] in _SIZES_BYTES:
        return dtype.names[0]
    return dtype.name


def widened(array: NDArray[Any]) -> NDArray[Any]:
    """Return an array on which NumPy can compute: narrow floats as float32, all others unchanged."""
    name = dtype_name(array.dtype)
    if name not in _VALUES:
        return array
    if array.dtype.names is None:
        with np.errstate(invalid="ignore"):  # widening a signalling NaN warns
            return array.astype(np.float32)
    bits = np.ascontiguousarray(array).view(f"u{_SIZES_BYTES[name]}")
    return _VALUES[name](bits).reshape(array.shape)


def _values_of_bfloat16(bits: NDArray[Any]) -> NDArray[np.float32]:
    return (bits.astype(np.uint32) << 16).view(np.float32)


def _values_of_e5m2(bits: NDArray[Any]) -> NDArray[np.float32]:
    values: NDArray[np.float32] = _E5M2[bits]
    return values


def _values_of_e4m3fn(bits: NDArray[Any]) -> NDArray[np.float32]:
    values: NDArray[np.float32] = _E4M3FN[bits]
    return values


def _table_of_e4m3fn() -> NDArray[np.float32]:
    """Return the value of each byte: a sign bit, four exponent bits with bias 7, three fraction bits."""
    byte = np.arange(256)
    exponent, fraction = byte >> 3 & 15, byte & 7
    sizes = np.where(exponent == 0, np.ldexp(fraction / 8, -6), np.ldexp(1 + fraction / 8, exponent - 7))
    sizes[byte & 127 == 127] = np.nan
    return np.where(byte & 128, -sizes, sizes).astype(np.float32)


def _table_of_e5m2() -> NDArray[np.float32]:
    """Return the value of each byte, the upper half of a float16; NaN keep only their sign, as in ml_dtypes."""
    halves = (np.arange(256, dtype=np.uint16) << 8).view(np.float16)
    return np.where(np.isnan(halves), np.copysign(np.nan, halves), halves).astype(np.float32)


_E4M3FN, _E5M2 = _table_of_e4m3fn(), _table_of_e5m2()
_VALUES: dict[str, Callable[[NDArray[Any]], NDArray[np.float32]]] = {
    "bfloat16": _values_of_bfloat16,
    "float8_e4m3fn": _values_of_e4m3fn,
    "float8_e5m2": _values_of_e5m2,
}


def to_bfloat16(array: NDArray[np.float32]) -> NDArray[Any]:
    """Return float32 numbers rounded to the nearest bfloat16, in C order."""
    if BFLOAT16.names is None:
        with np.errstate(invalid="ignore"):
            return array.astype(BFLOAT16, order="C")
    bits = np.ascontiguousarray(array, np.float32).view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    # Rounding would turn the largest NaN into a zero.
    quiet = (bits >> 16) & 0x8000 | 0x7FC0
    halves = np.where(np.isnan(bits.view(np.float32)), quiet, rounded).astype(np.uint16)
    return halves.view(BFLOAT16).reshape(array.shape)
