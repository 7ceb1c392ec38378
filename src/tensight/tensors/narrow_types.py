"""Floats that NumPy does not have: as dtypes of ml_dtypes, or as stand-ins where that is not installed.

The full installation brings ml_dtypes, whose arrays compute. In a training Tensight needs less: bytes that know what
they are, and their values as float32. A stand-in is a record of one nameless field, ``[("bfloat16", "V2")]``: NumPy
copies and slices it, and refuses to compute with it, so a place that forgot to ask for values raises.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_SIZES_BYTES = {
    "bfloat16": 2, "float8_e4m3fn": 1, "float8_e5m2": 1, "float8_e4m3fnuz": 1, "float8_e5m2fnuz": 1,
    "float8_e8m0fnu": 1,
}  # fmt: skip

NARROW_NAMES = frozenset(_SIZES_BYTES)
"""Names of the types, which are those of ml_dtypes."""


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
    """Return the name of a dtype as NumPy and ml_dtypes have it, of a stand-in, too."""
    if dtype.names is not None and len(dtype.names) == 1 and dtype.names[0] in _SIZES_BYTES:
        return dtype.names[0]
    return dtype.name


def widened(array: NDArray[Any]) -> NDArray[Any]:
    """Return an array of numbers that NumPy can compute with: bfloat16 as float32, anything else as it is."""
    if array.dtype != BFLOAT16:
        return array
    if BFLOAT16.names is None:
        with np.errstate(invalid="ignore"):  # widening a signalling NaN warns
            return array.astype(np.float32)
    bits = np.ascontiguousarray(array).view(np.uint16).astype(np.uint32) << 16
    return bits.view(np.float32).reshape(array.shape)


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
