"""Numbers of tensors, read so that nothing of the training changes: no gradient, no version, no random number."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

SAMPLED = 512
"""Maximum number of elements of a tensor that are kept to compare it with itself later."""

MOST_ELEMENTS = 1 << 20
"""Maximum number of elements of a target or an input that are read."""


def is_readable(tensor: torch.Tensor) -> bool:
    """Whether a tensor has values of its own: those within `torch.func` transforms, and on device "meta", have none."""
    return not torch._C._functorch.is_functorch_wrapped_tensor(tensor) and tensor.device.type != "meta"


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """Return the values of a tensor without its history; of a distributed or sparse one those that are stored here."""
    values = tensor.detach()
    local = getattr(values, "_local_tensor", None)
    if isinstance(local, torch.Tensor):
        values = local
    if values.layout != torch.strided:
        values = values.coalesce().values() if values.layout == torch.sparse_coo else values.values()
    return values


def sample(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy of evenly spaced elements of a tensor, on the host."""
    flat = plain(tensor).reshape(-1)
    stride = -(-flat.numel() // SAMPLED) or 1
    # An odd stride meets all columns of a matrix whose rows have an even length.
    return flat[:: stride | 1 if stride > 1 else 1].to("cpu", copy=True)


def fingerprint(samples: Sequence[torch.Tensor]) -> int:
    """Return 64 bits that tell samples apart."""
    digest = hashlib.blake2b(digest_size=8)
    for values in samples:
        digest.update(memoryview(values.contiguous().view(torch.uint8).numpy()))
    return int.from_bytes(digest.digest(), "little") | 1


def part_of(tensor: torch.Tensor) -> torch.Tensor:
    """Return the values of a tensor as numbers, or of a large one the first so many rows."""
    values = plain(tensor)
    if values.numel() > MOST_ELEMENTS and values.dim():
        rows = max(MOST_ELEMENTS * values.shape[0] // values.numel(), 1)
        values = values[:rows]
    return values


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


def shape_text(shape: Sequence[Any]) -> str:
    """Return a shape as 8x10; of a scalar, an empty text."""
    return "x".join(str(int(size)) for size in shape)
