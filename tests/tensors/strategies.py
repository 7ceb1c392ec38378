"""Arrays of every element type, with the values that go wrong."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from .reference import BFLOAT16

_OTHER = ">" if sys.byteorder == "little" else "<"
_PLAIN = ["?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "c8", "c16"]
DTYPES = [np.dtype(code) for code in _PLAIN]
DTYPES += [dtype.newbyteorder(_OTHER) for dtype in DTYPES if dtype.itemsize > 1]
DTYPES += [BFLOAT16]
REAL_DTYPES = [dtype for dtype in DTYPES if dtype.kind != "c"]


@st.composite
def arrays(draw: st.DrawFn, dtypes: list[np.dtype[Any]] = DTYPES, shape: tuple[int, ...] | None = None) -> np.ndarray:
    """Arrays of up to three dimensions, some with steps or transposed; or of `shape`."""
    dtype = draw(st.sampled_from(dtypes))
    wanted = shape if shape is not None else draw(hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=7))
    brain = dtype == BFLOAT16
    array = draw(hnp.arrays(np.dtype(np.uint16) if brain else dtype, wanted))
    array = array.view(BFLOAT16) if brain else array
    if shape is None and array.ndim > 1 and draw(st.booleans()):
        array = array.T[::2]
    return array
