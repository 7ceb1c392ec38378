"""Reads MindSpore's tensors without side effects in MindSpore: no operator runs, nothing is recorded or written.

Values in this process's memory are read in place. Operators run asynchronously in other threads, so each read waits for
those that compute the tensor. `Tensor.asnumpy` is only called for a tensor that was never on a device: before 2.9 it
otherwise writes to arrays that the training got from an earlier call.
"""

from __future__ import annotations

import ctypes
import zlib
from typing import TYPE_CHECKING, Any

import mindspore
import numpy as np
from mindspore import Tensor

from tensight.agents.core.finite import has_non_finite, has_non_finite_at
from tensight.graph import OutputSlot
from tensight.graph.data_types import data_type_number
from tensight.tensors.elements import dtype_named

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tensight.agents.core.columns import StatisticsColumns

_NAMES = {
    "Float16": "float16",
    "Float32": "float32",
    "Float64": "float64",
    "BFloat16": "bfloat16",
    "Float8E4M3FN": "float8_e4m3fn",
    "Float8E5M2": "float8_e5m2",
    "Int8": "int8",
    "Int16": "int16",
    "Int32": "int32",
    "Int64": "int64",
    "UInt8": "uint8",
    "UInt16": "uint16",
    "UInt32": "uint32",
    "UInt64": "uint64",
    "Bool": "bool",
    "Complex64": "complex64",
    "Complex128": "complex128",
}
_DTYPES = {name: dtype_named(name) for name in _NAMES.values()}
_NUMBERS = {name: data_type_number(f"DT_{name.upper()}") or 0 for name in _NAMES.values()}

_WORDS = 509
"""Words of 8 bytes that a large tensor is summed into: a prime, so that swapped values end up in different words."""

_ROWS = 8
"""A tensor is large from this many times `_WORDS` words on."""

_NO_DEVICE = "has no device"
"""Part of MindSpore's error message for a tensor that was never on a device."""

_known_names: dict[Any, str] = {}


def name_of(dtype: Any) -> str:
    """Return NumPy's name of a dtype of MindSpore; empty if it has no statistics."""
    name = _known_names.get(dtype)
    if name is None:
        name = _known_names[dtype] = _NAMES.get(str(dtype), "")
    return name


class MindSporeReader:
    """`TensorReader` for MindSpore tensors, and for copies of them in NumPy arrays."""

    def __init__(self) -> None:
        self._lies_here = mindspore.get_context("device_target") == "CPU"
        # Before 2.9 some tensors have no address, and asking for it makes MindSpore log an error on stderr.
        base = Tensor(np.zeros(1, np.float32)).asnumpy().base
        self._all_have_addresses = type(base).__name__ == "_DeviceAddress"

    def describe(self, tensor: Any) -> tuple[str, tuple[int, ...], int]:
        """Return NumPy's name of the dtype, the shape and the size in bytes; an empty name if it has no statistics."""
        if type(tensor) is np.ndarray:
            return _name_of_array(tensor), tensor.shape, tensor.nbytes
        return name_of(tensor.dtype), tuple(tensor.shape), tensor.nbytes

    def hold(self, tensor: Any) -> tuple[Any, int, int]:
        """Return the tensor, its identity, and its size in bytes; called for every kept tensor, so it must be fast."""
        return tensor, id(tensor), tensor.nbytes

    def version(self, tensor: Any) -> int:
        """Return a number that changes when the tensor is written to in place.

        MindSpore counts only some of these writes, so values in this process's memory are summed.
        """
        if type(tensor) is np.ndarray:
            return 0
        if not self._lies_here:
            return int(getattr(tensor, "_version", 0))
        if tensor.is_contiguous():
            address = self._address(tensor)
            if address:
                return _checksum((ctypes.c_char * tensor.nbytes).from_address(address))
        values = self.host(tensor)
        return 0 if values is None or not values.nbytes else _checksum(values.reshape(-1).view(np.uint8).data)

    def host(self, tensor: Any) -> NDArray[Any] | None:
        """Return the values in C order, without a copy if possible; None if they cannot be read."""
        if type(tensor) is np.ndarray:
            return tensor
        name = name_of(tensor.dtype)
        if not name or getattr(tensor, "has_init", False):
            return None
        address = self._address(tensor)
        if address:
            values = _array(tensor, address, _DTYPES[name])
            return np.ascontiguousarray(values).reshape(tuple(tensor.shape))
        try:
            array: NDArray[Any] = tensor.asnumpy()
        except (RuntimeError, TypeError, ValueError):
            return None
        if array.dtype != _DTYPES[name]:
            if array.dtype.itemsize != _DTYPES[name].itemsize:
                return None
            # MindSpore has its own bfloat16 and 8-bit float dtypes.
            array = np.ascontiguousarray(array).view(_DTYPES[name])
        return np.ascontiguousarray(array).reshape(tuple(tensor.shape))

    def copy(self, tensor: Any, into: Any = None) -> Any:
        """Return an array with the same values; reuse `into` if it fits."""
        values = self.host(tensor)
        if values is None:
            return np.empty(0, np.float32)
        if type(into) is np.ndarray and into.shape == values.shape and into.dtype == values.dtype:
            np.copyto(into, values)
            return into
        return values.copy()

    def scan(self, tensor: Any, columns: StatisticsColumns, slot_id: int, *, hashed: bool = True) -> bool:
        """Write the statistics of a tensor to the row of a slot; False if it has none."""
        if type(tensor) is not np.ndarray and tensor.is_contiguous():
            name = name_of(tensor.dtype)
            address = self._address(tensor) if name else 0
            if address:
                return columns.scan_address(slot_id, address, name, tuple(tensor.shape), tensor.size, hashed=hashed)
        values = self.host(tensor)
        return values is not None and columns.scan(slot_id, values, hashed=hashed)

    def has_non_finite(self, tensor: Any) -> bool:
        """Whether any value is NaN or Inf, determined as fast as possible."""
        if type(tensor) is not np.ndarray and tensor.is_contiguous():
            name = name_of(tensor.dtype)
            address = self._address(tensor) if name else 0
            if address:
                return has_non_finite_at(address, name, tensor.size)
        values = self.host(tensor)
        return values is not None and has_non_finite(values)

    def settle(self, columns: StatisticsColumns) -> None:
        """Do nothing: no row is computed on a device."""

    def _address(self, tensor: Any) -> int:
        """Return the address of the elements in this process's memory; 0 if they are elsewhere or not allocated yet."""
        if not self._lies_here or not tensor.size:
            return 0
        if not self._all_have_addresses:
            try:
                tensor.untyped_storage()
            except RuntimeError as error:
                # On a CPU this always fails, and the message gives the reason.
                if _NO_DEVICE in str(error):
                    return 0
            # These versions do not include the offset of a view either.
            begin = int(tensor.data_ptr())
            return begin and begin + int(tensor.storage_offset()) * int(tensor.itemsize)
        return int(tensor.data_ptr())


def outline(tensor: Any) -> OutputSlot:
    """Return dtype and shape of a tensor as graphs describe them."""
    return OutputSlot.of_tensor(_NUMBERS.get(name_of(tensor.dtype), 0), tuple(map(int, tensor.shape)))


def _checksum(memory: Any) -> int:
    """Return a number that changes if any byte changes, in a tenth of the time of a CRC over all bytes."""
    rows, rest = divmod(len(memory), 8 * _WORDS)
    if rows < _ROWS:
        return zlib.crc32(memory)
    words = np.frombuffer(memory, np.uint64, rows * _WORDS).reshape(rows, _WORDS)
    sums = zlib.crc32(np.add.reduce(words, axis=0))
    return zlib.crc32(memoryview(memory)[-rest:], sums) if rest else sums


def _array(tensor: Any, address: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return the elements of a tensor in this process's memory, without a copy."""
    shape = tuple(tensor.shape)
    strides: tuple[int, ...] | None = None
    extent = tensor.nbytes
    if not tensor.is_contiguous():
        strides = tuple(stride * dtype.itemsize for stride in tensor.stride())
        extent = sum((length - 1) * stride for length, stride in zip(shape, strides, strict=True)) + dtype.itemsize
    memory = (ctypes.c_char * extent).from_address(address)
    # The memory belongs to the tensor, which must live as long as the array.
    memory._tensor = tensor  # type: ignore[attr-defined]
    array: NDArray[Any] = np.ndarray(shape, dtype, memory, 0, strides)
    return array


def _name_of_array(array: NDArray[Any]) -> str:
    name = array.dtype.name
    return name if name in _DTYPES else ""
