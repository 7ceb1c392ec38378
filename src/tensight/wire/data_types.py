"""Element types and shapes in messages."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from tensight.graph import data_type_number, numpy_dtype_name
from tensight.tensors.elements import dtype_named
from tensight.tensors.narrow_types import dtype_name
from tensight.wire.errors import WireError
from tensight.wire.protocol import MOST_DIMENSIONS

if TYPE_CHECKING:
    from collections.abc import Iterable

_COMPLEX: dict[int, np.dtype[Any]] = {1064: np.dtype("<c8"), 1128: np.dtype("<c16")}
"""MindSpore's debugger has no numbers for complex types; these are Tensight's."""

_NUMBERS = {dtype.name: number for number, dtype in _COMPLEX.items()}

_LARGEST_TENSOR_BYTES = 2**63 - 1


@lru_cache(maxsize=128)
def numpy_dtype(data_type: int) -> np.dtype[Any] | None:
    """Return the little-endian dtype of a DataType; None if its elements are not whole bytes."""
    if data_type in _COMPLEX:
        return _COMPLEX[data_type]
    name = numpy_dtype_name(data_type)
    return None if name in ("", "int4") else dtype_named(name).newbyteorder("<")


def data_type_of(dtype: np.dtype[Any] | str) -> int:
    """Return the DataType number of a dtype with any byte order, or of a dtype's name; 0 if it has none."""
    name = dtype if isinstance(dtype, str) else dtype_name(dtype)
    number = _NUMBERS.get(name) or data_type_number(f"DT_{name.upper()}")
    return number if number is not None and numpy_dtype(number) is not None else 0


def shape_of(dims: Iterable[int], item_bytes: int = 1) -> tuple[int, ...]:
    """Validate and return the shape of a received tensor.

    Parameters
    ----------
    dims : iterable of int
    item_bytes : int
        Size of an element; unknown sizes count as 1.

    Raises
    ------
    WireError
        The shape is impossible: more than 64 dimensions, a negative one, or more bytes than can be addressed.
    """
    shape = tuple(dims)
    if len(shape) > MOST_DIMENSIONS:
        raise WireError(f"a tensor has {len(shape):,} dimensions; at most {MOST_DIMENSIONS} are accepted")
    if any(length < 0 for length in shape):
        raise WireError(f"a tensor has the shape {list(shape)}; no dimension can be negative")
    # without zeros: NumPy refuses such shapes even if there are no elements
    if math.prod(length or 1 for length in shape) * item_bytes > _LARGEST_TENSOR_BYTES:
        raise WireError(f"a tensor has the shape {list(shape)}; that many elements cannot be addressed")
    return shape
