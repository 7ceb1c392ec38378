"""Arrays of every element type, with the values that go wrong."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from .reference import BFLOAT16, FLOAT8

_OTHER = ">" if sys.byteorder == "little" else "<"
_PLAIN = ["?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "c8", "c16"]
DTYPES = [np.dtype(code) for code in _PLAIN]
DTYPES += [dtype.newbyteorder(_OTHER) for dtype in DTYPES if dtype.itemsize > 1]
EXTENSIONS = [BFLOAT16, *FLOAT8]
DTYPES += EXTENSIONS
REAL_DTYPES = [dtype for dtype in DTYPES if dtype.kind != "c"]


@st.composite
def arrays(draw: st.DrawFn, dtypes: list[np.dtype[Any]] = DTYPES, shape: tuple[int, ...] | None = None) -> np.ndarray:
    """Arrays of up to three dimensions, some with steps or transposed; or of `shape`. Their addresses are any."""
    dtype = draw(st.sampled_from(dtypes))
    wanted = shape if shape is not None else draw(hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=7))
    bits = np.dtype(f"u{dtype.itemsize}") if dtype in EXTENSIONS else dtype
    array = at_address(draw(hnp.arrays(bits, wanted)).view(dtype), draw(st.integers(0, 64)))
    if shape is None and array.ndim > 1 and draw(st.booleans()):
        array = array.T[::2]
    return array


def at_address(array: np.ndarray, address: int) -> np.ndarray:
    """Return a copy whose elements begin so many bytes behind a cache line."""
    memory = np.empty(array.nbytes + 128, np.uint8)
    begin = -memory.ctypes.data % 64 + address
    copy = memory[begin : begin + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy
