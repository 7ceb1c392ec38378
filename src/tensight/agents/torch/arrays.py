"""Reads PyTorch's tensors without visible operators: nothing is recorded or written to.

Tensors in this process's memory are read in place, whatever their strides. The statistics of tensors on a device are
computed there (`device`).
"""

from __future__ import annotations

import ctypes
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.nn.parameter import is_lazy

from tensight.agents.core.finite import has_non_finite, has_non_finite_at
from tensight.agents.torch.device import DeviceStatistics
from tensight.graph import OutputSlot
from tensight.graph.data_types import data_type_number
from tensight.tensors.elements import ELEMENT_NAMES, dtype_named
from tensight.tensors.shared_scan import merged_axes

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from numpy.typing import NDArray

    from tensight.agents.core.columns import StatisticsColumns

PLAIN = frozenset({torch.Tensor, torch.nn.Parameter})
"""PyTorch's own classes of tensors with elements in memory."""

_count_of_modes: Callable[[], int] = torch._C._len_torch_dispatch_stack
_is_excluded: Callable[[Any], bool] = torch._C._dispatch_tls_is_dispatch_key_excluded
_VERSIONS = torch._C.DispatchKey.ADInplaceOrView
_is_wrapped: Callable[[torch.Tensor], bool] = torch._C._functorch.is_functorch_wrapped_tensor
_innermost_transform: Callable[[], Any] = torch._C._functorch.peek_interpreter_stack


def _names() -> dict[torch.dtype, str]:
    names = {
        getattr(torch, name): name
        for name in ("float32", "float64", "float16", "bfloat16", "uint8", "int8", "int16", "int32", "int64", "bool")
    }
    names |= {torch.complex64: "complex64", torch.complex128: "complex128"}
    for name in ("uint16", "uint32", "uint64", "float8_e4m3fn", "float8_e5m2"):
        if hasattr(torch, name):
            names[getattr(torch, name)] = name
    return names


NUMPY_NAMES: dict[torch.dtype, str] = _names()
"""Names in NumPy or ml_dtypes of the dtypes that have statistics."""

READ_WHERE_THEY_LIE = (
    tuple(PLAIN),
    {dtype: ELEMENT_NAMES.index(name) for dtype, name in NUMPY_NAMES.items() if not dtype.is_complex},
)
"""Types and dtypes of tensors that the statistics columns read themselves. Complex ones may be conjugated."""

_DTYPES = {name: dtype_named(name) for name in NUMPY_NAMES.values()}


def version_of(tensor: torch.Tensor) -> int:
    """Return the version of a tensor, which grows with each write in place; 0 in inference mode."""
    try:
        number: int = tensor._version
    except RuntimeError:
        # Tensors of inference mode have no version.
        return 0
    return number


def content_key(tensor: torch.Tensor) -> Hashable | None:
    """Return a key that is equal for tensors with the same elements of memory, in the same order.

    Axes of length one, and how axes are split, do not matter. None if that is uncertain, or the memory is not in this
    process.
    """
    try:
        if type(tensor) not in PLAIN or not tensor.is_cpu or tensor.is_neg():
            return None
        if tensor.is_complex() and tensor.is_conj():
            return None
        if tensor.is_contiguous():
            return tensor.data_ptr(), tensor.dtype, tensor.numel()
        axes = merged_axes(tensor.shape, tensor.stride())
        return tensor.data_ptr(), tensor.dtype, tuple(axes)
    except (RuntimeError, NotImplementedError):
        # Sparse, nested and wrapped tensors do not support it.
        return None


HOLDING_BYTES = 2560
"""What the objects take at most that hold the memory of a tensor, beside that: measured with 10,000 small layers."""


class TorchReader:
    """A `TensorReader` of PyTorch's tensors.

    Parameters
    ----------
    is_on_device : callable (tensor) -> bool
        Whether statistics are computed on the tensor's device, instead of in this process.
    """

    def __init__(self, is_on_device: Callable[[torch.Tensor], bool] = lambda tensor: not tensor.is_cpu) -> None:
        self._is_on_device = is_on_device
        self._device = DeviceStatistics(NUMPY_NAMES)

    def describe(self, tensor: torch.Tensor) -> tuple[str, tuple[int, ...], int]:
        """Return NumPy's name of the dtype, the shape and the size in bytes; no name if the dtype has no statistics."""
        if type(tensor) in PLAIN and tensor.layout is torch.strided and not tensor.is_nested:
            return NUMPY_NAMES.get(tensor.dtype, ""), tuple(tensor.shape), tensor.nbytes
        with _unnoticed():
            stored = _stored(tensor)
            if stored is None:
                return "", (), 0
            return NUMPY_NAMES.get(stored.dtype, ""), tuple(stored.shape), stored.nbytes

    def hold(self, tensor: torch.Tensor) -> tuple[torch.Tensor, int, int] | None:
        """Return a detached tensor with the same memory, its storage, and what both take; None if it has no memory.

        Its version is that of the tensor. Autograd's functions, which would keep alive all that they have saved, and
        whose expectations of a weight's shape would hold for its next shape, do not belong to it.
        """
        try:
            if type(tensor) in PLAIN and not (_count_of_modes() or _shares_no_versions()):
                memory = tensor.detach()
                storage = memory.untyped_storage()
                return memory, storage._cdata, storage.nbytes() + HOLDING_BYTES
        except (RuntimeError, NotImplementedError):
            # Sparse tensors consist of others; within functorch's transforms, those detached are wrapped.
            pass
        with _unnoticed():
            plain = _held(tensor)
            if plain is None or _is_wrapped(plain):
                return None
            return _hold_unusual(plain.detach())

    def version(self, tensor: torch.Tensor) -> int:
        """Return the version of a tensor, which grows with each write in place."""
        return version_of(tensor)

    def host(self, tensor: torch.Tensor) -> NDArray[Any] | None:
        """Return the values in C order, without a copy if possible; None if they cannot be read."""
        try:
            if (
                type(tensor) in PLAIN
                and tensor.is_cpu
                and tensor.is_contiguous()
                and tensor.dtype in NUMPY_NAMES
                and not tensor._is_zerotensor()
            ):
                return _array(tensor) if is_in_memory(tensor) else None
        except (RuntimeError, NotImplementedError):
            # Sparse, nested and wrapped tensors do not support it.
            pass
        with _unnoticed():
            try:
                stored = _stored(tensor)
                if stored is None or stored.dtype not in NUMPY_NAMES:
                    return None
                if not is_in_memory(stored):
                    return None
                if not stored.is_cpu:
                    stored = stored.detach().cpu()
                return np.ascontiguousarray(_array(stored)).reshape(tuple(stored.shape))
            except (RuntimeError, NotImplementedError):
                return None

    def copy(self, tensor: torch.Tensor, into: torch.Tensor | None = None) -> torch.Tensor | None:
        """Return a copy of a tensor on the same device, in the memory of an older copy if that fits."""
        with _unnoticed():
            held = _held(tensor)
            if held is None or not is_in_memory(held):
                return None
            source = held.detach()
            if (
                into is not None
                and into.shape == source.shape
                and into.dtype == source.dtype
                and into.device == source.device
            ):
                return into.copy_(source)
            return source.clone()

    def scan(self, tensor: torch.Tensor, columns: StatisticsColumns, slot_id: int, *, hashed: bool = True) -> bool:
        """Write the statistics of a tensor to the row of a slot; False if it has none. A device may finish later."""
        if columns.scan_tensor(slot_id, tensor, hashed=hashed):
            return True
        try:
            if type(tensor) in PLAIN and tensor.is_cpu and tensor.is_contiguous() and not tensor.is_neg():
                name, address = NUMPY_NAMES.get(tensor.dtype), tensor.data_ptr()
                is_there = address and is_in_memory(tensor)
                if name is not None and is_there and not (tensor.is_complex() and tensor.is_conj()):
                    return columns.scan_address(slot_id, address, name, tensor.shape, tensor.numel(), hashed=hashed)
        except (RuntimeError, NotImplementedError):
            # Sparse, nested and wrapped tensors do not support it.
            pass
        return self._scan_unusual(tensor, columns, slot_id, hashed)

    def has_non_finite(self, tensor: torch.Tensor) -> bool:
        """Whether the values contain NaN or Inf.

        Always true for a tensor on a device, because checking it would mean waiting for the device.
        """
        try:
            if type(tensor) in PLAIN and tensor.is_cpu and tensor.is_contiguous():
                name, address = NUMPY_NAMES.get(tensor.dtype), tensor.data_ptr()
                if name is not None and address and is_in_memory(tensor):
                    return has_non_finite_at(address, name, tensor.numel())
        except (RuntimeError, NotImplementedError):
            # Sparse, nested and wrapped tensors do not support it.
            pass
        with _unnoticed():
            if self._is_on_device(tensor):
                return True
        values = self.host(tensor)
        return values is not None and has_non_finite(values)

    def settle(self, columns: StatisticsColumns) -> None:
        """Wait for all rows that devices are still computing."""
        if self._device.is_behind:
            with _unnoticed():
                self._device.settle(columns)

    def _scan_unusual(self, tensor: torch.Tensor, columns: StatisticsColumns, slot_id: int, hashed: bool) -> bool:
        with _unnoticed():
            if self._is_on_device(tensor):
                stored = _stored(tensor)
                return stored is not None and self._device.add(slot_id, stored)
            if self._scan_strided(tensor, columns, slot_id, hashed):
                return True
        values = self.host(tensor)
        return values is not None and columns.scan(slot_id, values, hashed=hashed)

    def _scan_strided(self, tensor: torch.Tensor, columns: StatisticsColumns, slot_id: int, hashed: bool) -> bool:
        """Write the row of a strided tensor in place; False if the tensor cannot be read that way."""
        try:
            if type(tensor) not in PLAIN or not tensor.is_cpu or tensor.dtype not in NUMPY_NAMES or tensor.is_neg():
                return False
            if tensor._is_zerotensor() or not is_in_memory(tensor):
                return False
            name, address = NUMPY_NAMES[tensor.dtype], tensor.data_ptr()
            return columns.scan_strided(slot_id, address, name, tuple(tensor.shape), tensor.stride(), hashed=hashed)
        except (RuntimeError, NotImplementedError):
            return False


def _shares_no_versions() -> bool:
    """Whether detached tensors have versions of their own: in inference mode, and in handlers of dispatch modes."""
    return torch.is_inference_mode_enabled() or _is_excluded(_VERSIONS)


class _unnoticed:  # noqa: N801 - used like a function
    """Hides our operators from torch functions, dispatch modes, transforms, inference mode and autograd."""

    __slots__ = ("_guards", "_had_gradients")

    def __enter__(self) -> None:
        self._guards: list[Any] = []
        self._enter(torch._C.DisableTorchFunction())
        self._enter(torch._C._DisableTorchDispatch())
        if _innermost_transform() is not None:
            self._enter(torch._C._DisableFuncTorch())
        if torch.is_inference_mode_enabled():
            self._enter(torch._C._InferenceMode(False))
        if _is_excluded(_VERSIONS):
            self._enter(torch._C._SetExcludeDispatchKeyGuard(_VERSIONS, False))
        self._had_gradients = torch.is_grad_enabled()
        torch._C._set_grad_enabled(False)

    def _enter(self, guard: Any) -> None:
        guard.__enter__()
        self._guards.append(guard)

    def __exit__(self, *error: object) -> None:
        torch._C._set_grad_enabled(self._had_gradients)
        for guard in reversed(self._guards):
            guard.__exit__(*error)


def _hold_unusual(tensor: torch.Tensor) -> tuple[torch.Tensor, int, int] | None:
    """Return a tensor, its storage or its identity, and the size of its storage or of what it consists of."""
    try:
        storage = tensor.untyped_storage()
    except (RuntimeError, NotImplementedError):
        pass
    else:
        return tensor, storage._cdata, storage.nbytes() + HOLDING_BYTES
    if tensor.layout is torch.sparse_coo:
        parts = [tensor._values(), tensor._indices()]
    elif tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        parts = [tensor.values(), tensor.crow_indices(), tensor.col_indices()]
    elif tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        parts = [tensor.values(), tensor.ccol_indices(), tensor.row_indices()]
    elif tensor.layout is torch._mkldnn:
        return tensor, id(tensor), tensor.nbytes + HOLDING_BYTES
    else:
        return None
    return tensor, id(tensor), sum(part.untyped_storage().nbytes() for part in parts) + HOLDING_BYTES


def _held(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return the tensor of PyTorch's own classes with the elements; None if no such tensor in this process is known.

    A tensor subclass with its own operators has no memory, or its memory contains other values. Only distributed
    tensors are supported, by their local shard.
    """
    if type(tensor) in PLAIN:
        return tensor
    if type(tensor).__torch_dispatch__ is torch.Tensor.__torch_dispatch__:
        return None if is_lazy(tensor) else tensor
    distributed = sys.modules.get("torch.distributed.tensor")
    if distributed is None or not isinstance(tensor, distributed.DTensor):
        return None
    local = tensor._local_tensor
    return local if type(local) in PLAIN else None


def is_in_memory(tensor: torch.Tensor) -> bool:
    """Whether a tensor's storage contains all its elements: memory may be freed before its tensors."""
    if torch._is_functional_tensor(tensor):
        return False
    if tensor.layout is not torch.strided or tensor.is_nested:
        return True
    try:
        size_bytes = tensor.untyped_storage().nbytes()
    except (RuntimeError, NotImplementedError):
        return False
    count, start = tensor.numel(), tensor.storage_offset()
    if not count:
        return True
    if tensor.is_contiguous():
        end = start + count
    else:
        end = start + 1
        for length, step in zip(tensor.shape, tensor.stride(), strict=True):
            end += (length - 1) * step
    return bool(end * tensor.itemsize <= size_bytes)


def _stored(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return a plain tensor with the elements; None if there is none in this process."""
    held = _held(tensor)
    if held is None:
        return None
    tensor = held
    if tensor.is_meta or tensor.is_nested:
        return None
    if tensor.is_quantized:
        return tensor.detach().dequantize()
    if tensor.layout is torch.sparse_coo:
        return tensor.detach().coalesce().values()
    if tensor.layout is torch.strided:
        # PyTorch's zero tensors have no memory.
        return torch.zeros(tensor.shape, dtype=tensor.dtype) if tensor._is_zerotensor() else tensor
    if tensor.layout in (torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc):
        return tensor.detach().values()
    return tensor.detach().to_dense()


def _array(tensor: torch.Tensor) -> NDArray[Any]:
    """Return an array that shares the memory of a strided tensor in this process."""
    name = NUMPY_NAMES[tensor.dtype]
    dtype = _DTYPES[name]
    shape = tuple(tensor.shape)
    if 0 in shape:
        return np.empty(shape, dtype)
    strides: tuple[int, ...] | None = None
    extent = tensor.nbytes
    if not tensor.is_contiguous():
        strides = tuple(stride * dtype.itemsize for stride in tensor.stride())
        extent = sum((length - 1) * stride for length, stride in zip(shape, strides, strict=True)) + dtype.itemsize
    memory = (ctypes.c_char * extent).from_address(tensor.data_ptr())
    # The array keeps the tensor, and so its memory, alive.
    memory._tensor = tensor  # type: ignore[attr-defined]
    array: NDArray[Any] = np.ndarray(shape, dtype, memory, 0, strides)
    if tensor.is_complex() and tensor.is_conj():
        array = np.conj(array)
    return -array if tensor.is_neg() else array


_DATA_TYPES: dict[torch.dtype, int] = {
    dtype: number
    for dtype, name in NUMPY_NAMES.items()
    if (number := data_type_number(f"DT_{name.upper()}")) is not None
}


def outline(tensor: torch.Tensor) -> OutputSlot:
    """Return the dtype and shape of a tensor, as a slot of a graph."""
    try:
        return OutputSlot.of_tensor(_DATA_TYPES.get(tensor.dtype, 0), tuple(map(int, tensor.shape)))
    except (RuntimeError, NotImplementedError, TypeError, AttributeError):
        # Nested tensors have no shape; that of jagged and traced ones is not made of numbers.
        return OutputSlot.of_tensor(_DATA_TYPES.get(tensor.dtype, 0), None)
