"""Numbers of tensors, read so that nothing of the training changes: no gradient, no version, no random number."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from tensight.agents.facts.samples import rows_read, sampled
from tensight.agents.torch.arrays import PLAIN, is_in_memory
from tensight.agents.torch.framework import tensors_in

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

_OF_NUMPY = frozenset(
    (
        *(torch.float16, torch.float32, torch.float64, torch.complex64, torch.complex128),
        *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
    )
)


def is_ordinary(tensor: torch.Tensor) -> bool:
    """Whether a tensor is of PyTorch's own classes: others may have no memory, or other values in it."""
    return type(tensor) in PLAIN or isinstance(tensor, torch.nn.parameter.UninitializedTensorMixin)


def is_readable(tensor: torch.Tensor) -> bool:
    """Whether a tensor has values of its own in memory; those within `torch.func` transforms have none."""
    if not is_ordinary(tensor) or torch._C._functorch.is_functorch_wrapped_tensor(tensor) or tensor.is_nested:
        return False
    return not (tensor.is_meta or tensor.is_quantized or tensor._is_zerotensor()) and is_in_memory(tensor)


def readable_tensors(values: object) -> Iterator[torch.Tensor]:
    """Yield the tensors in values whose own values are in memory."""
    return filter(is_readable, tensors_in(values))


def strided_tensors(values: object) -> Iterator[torch.Tensor]:
    """Yield those of them that have a storage."""
    return (tensor for tensor in readable_tensors(values) if tensor.layout == torch.strided)


def storage_key(tensor: torch.Tensor) -> int:
    """Return what tells the storage of a tensor from others, as long as a weak reference to it is held."""
    return int(tensor.untyped_storage()._cdata)


def weak_storage(tensor: torch.Tensor) -> StorageWeakRef:
    """Return a reference to the storage of a tensor that does not keep it alive."""
    return StorageWeakRef(tensor.untyped_storage())


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """Return the values of a tensor without its history; of a sparse one those that it stores."""
    values = tensor.detach()
    if values.layout != torch.strided:
        values = values.coalesce().values() if values.layout == torch.sparse_coo else values.values()
    return values


def array_of(tensor: torch.Tensor) -> NDArray[Any]:
    """Return the values of a tensor on the host; those of dtypes that NumPy lacks as float32."""
    values = plain(tensor)
    array: NDArray[Any] = (values if values.dtype in _OF_NUMPY else values.float()).numpy(force=True)
    return array


def sample(tensor: torch.Tensor) -> NDArray[Any]:
    """Return a copy of evenly spaced elements of a tensor, on the host."""
    values = plain(tensor)
    kept = sampled(values.numel())
    if values.device.type == "cpu" and values.dtype in _OF_NUMPY:
        # NumPy takes a fraction of the time that PyTorch's functions take of small tensors.
        return array_of(values).reshape(-1)[kept].copy()
    return array_of(values.reshape(-1)[kept]).copy()


def part_of(tensor: torch.Tensor) -> torch.Tensor:
    """Return the values of a tensor as numbers, or of a large one the first so many rows."""
    values = plain(tensor)
    return values[rows_read(values.shape)] if values.dim() else values


def deviation_between_samples(tensor: torch.Tensor) -> float:
    """Return the standard deviation between samples, over the features of one; NaN if there are none of either."""
    if tensor.dim() < 2 or len(tensor) < 2 or not tensor.is_floating_point():
        return math.nan
    return float(part_of(tensor).float().var(0, correction=0).mean().sqrt())


def norm(tensors: Sequence[torch.Tensor]) -> list[float]:
    """Return the L2 norm of each tensor."""
    if not tensors:
        return []
    values = [plain(tensor) for tensor in tensors]
    kinds = {(value.dtype, value.device) for value in values}
    if len(kinds) == 1 and values[0].dtype in (torch.float32, torch.float64) and all(v.numel() for v in values):
        norms: list[float] = torch.stack(torch._foreach_norm(values)).tolist()
        return norms
    return [float(torch.linalg.vector_norm(value.float())) if value.numel() else 0.0 for value in values]
