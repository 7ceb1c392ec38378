"""Computes statistics of tensors on their device, without waiting for each: all are transferred together.

Reductions that are only queued turn each tensor into a vector of eleven numbers and a few of its elements; `settle`
fetches the vectors of a device in one transfer. Sums are in double precision, as in the compiled scan. The content hash
is made from these numbers and elements, which show their order, so hashes are only comparable on the same device.
"""

from __future__ import annotations

import hashlib
import math
from typing import TYPE_CHECKING, Any

import torch

from tensight.tensors import MEASURES, TensorStatistics
from tensight.tensors.schema import Moments, measures_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tensight.agents.core.columns import StatisticsColumns

_DOUBLE = torch.float64

_SAMPLES = 16
"""Elements of each tensor in its content hash: sums are the same in any order."""

_SPREAD = 2_654_435_761
"""A prime, whose multiples are spread evenly over any number of elements (Knuth's multiplicative hash)."""

PIECE = 2**23
"""Elements of which the numbers are computed at a time."""

_MOST_POSITIONS = 4096
"""Numbers of elements whose positions are kept, for sequences whose lengths vary."""

_positions: dict[tuple[int, torch.device], torch.Tensor] = {}


class DeviceStatistics:
    """Rows that devices are still computing.

    Parameters
    ----------
    names : mapping of dtype to str
        NumPy's names of the dtypes that have statistics.
    """

    def __init__(self, names: Mapping[torch.dtype, str]) -> None:
        self._names = names
        self._vectors: dict[int, tuple[torch.Tensor, str, tuple[int, ...], int]] = {}

    @property
    def is_behind(self) -> bool:
        """Whether there are rows that have not been fetched."""
        return bool(self._vectors)

    def add(self, slot_id: int, tensor: torch.Tensor) -> bool:
        """Queue the statistics of a plain tensor; False if its dtype has none."""
        name = self._names.get(tensor.dtype)
        if name is None:
            return False
        self._vectors[slot_id] = numbers_of(tensor.detach()), name, tuple(tensor.shape), tensor.nbytes
        return True

    def settle(self, columns: StatisticsColumns) -> None:
        """Fetch all queued statistics, and write the rows."""
        queued, self._vectors = self._vectors, {}
        by_device: dict[torch.device, list[int]] = {}
        for slot_id, (vector, *_) in queued.items():
            by_device.setdefault(vector.device, []).append(slot_id)
        for slot_ids in by_device.values():
            rows = torch.stack([queued[slot_id][0] for slot_id in slot_ids]).cpu().tolist()
            for slot_id, numbers in zip(slot_ids, rows, strict=True):
                _, name, shape, size_bytes = queued[slot_id]
                columns.put(slot_id, _statistics(numbers, name, shape, size_bytes))


def numbers_of(tensor: torch.Tensor) -> torch.Tensor:
    """Return the numbers for `_statistics`, as a vector on the tensor's device, without waiting for it.

    These are the numbers of NaN, -Inf, Inf, negative and positive elements; then of the finite ones the minimum, the
    maximum, the sums of x, |x| and (x - p)², and the norm, where p is the sum divided by the number of all elements.
    Each reduction is a kernel, and most tensors are so small that their number is what it costs. A large tensor is read
    in pieces, because each element takes up to 30 bytes of the device's memory.
    """
    if not tensor.numel():
        return torch.zeros(11 + _SAMPLES, dtype=_DOUBLE, device=tensor.device)
    pieces = _pieces(tensor)
    if len(pieces) == 1:
        double = _doubles(tensor)
        numbers, samples = _numbers_of_piece(double), double.index_select(0, _sampled(len(double), double.device))
        squares = _squares_around(double, numbers[7] / tensor.numel())
    else:
        parts = torch.stack([_numbers_of_piece(_doubles(piece)) for piece in pieces])
        extremes, norm = (parts[:, 5].amin(), parts[:, 6].amax()), torch.linalg.vector_norm(parts[:, 9])
        numbers = torch.cat((parts[:, :5].sum(0), torch.stack((*extremes, *parts[:, 7:9].sum(0), norm))))
        pivot = numbers[7] / tensor.numel()
        squares = torch.stack([_squares_around(_doubles(piece), pivot) for piece in pieces]).sum()
        samples = _samples_of(tensor)
    return torch.cat((numbers[:9], squares.reshape(1), numbers[9:], samples.nan_to_num(0, 0, 0)))


def _pieces(tensor: torch.Tensor) -> list[torch.Tensor]:
    """Split a tensor along its longest axis until no part has too many elements."""
    count = tensor.numel()
    if count <= PIECE:
        return [tensor]
    axis = max(range(tensor.dim()), key=lambda each: tensor.shape[each])
    length = max(PIECE * tensor.shape[axis] // count, 1)
    return [piece for part in tensor.split(length, axis) for piece in _pieces(part)]


def _doubles(tensor: torch.Tensor) -> torch.Tensor:
    """Return the elements in double precision, in their order; of complex ones the absolute values."""
    return (tensor.abs() if tensor.is_complex() else tensor).double().reshape(-1)


def _numbers_of_piece(double: torch.Tensor) -> torch.Tensor:
    finite = double.nan_to_num(0, 0, 0)
    counted = (double != double, double == -math.inf, double == math.inf, finite < 0, finite > 0)
    measured = (
        double.nan_to_num(math.inf, math.inf, math.inf).amin(),
        double.nan_to_num(-math.inf, -math.inf, -math.inf).amax(),
        finite.sum(),
        torch.linalg.vector_norm(finite, 1),
        torch.linalg.vector_norm(finite),
    )
    return torch.cat((torch.stack(counted).sum(1, dtype=_DOUBLE), torch.stack(measured)))


def _squares_around(double: torch.Tensor, pivot: torch.Tensor) -> torch.Tensor:
    """Return the sum of the squares of the distances of finite elements from a number."""
    return (double - pivot).nan_to_num(0, 0, 0).square().sum()


def _samples_of(tensor: torch.Tensor) -> torch.Tensor:
    """Return some elements in double precision."""
    # PyTorch cannot choose among 8-bit floats, only convert them.
    is_narrow = tensor.is_floating_point() and tensor.itemsize == 1
    chosen = (tensor.view(torch.uint8) if is_narrow else tensor).take(_sampled(tensor.numel(), tensor.device))
    return _doubles(chosen.view(tensor.dtype) if is_narrow else chosen)


def free_bytes_of(device: torch.device) -> int | None:
    """Return the memory that is free on a device, or was freed by tensors and not yet given back; None if unknown."""
    functions: Any = getattr(torch, device.type, None)
    try:
        free = functions.mem_get_info(device)[0]
        unused = functions.memory_reserved(device) - functions.memory_allocated(device)
    except (AttributeError, RuntimeError, NotImplementedError, AssertionError):
        return None
    return int(free + unused)


def _sampled(count: int, device: torch.device) -> torch.Tensor:
    """Return the positions of the elements that are part of a hash."""
    positions = _positions.get((count, device))
    if positions is None:
        if len(_positions) >= _MOST_POSITIONS:
            _positions.clear()
        chosen = [(number * _SPREAD + count // 3) % count for number in range(_SAMPLES)]
        positions = _positions[count, device] = torch.tensor(chosen, device=device)
    return positions


def _statistics(numbers: Sequence[float], dtype: str, shape: tuple[int, ...], size_bytes: int) -> TensorStatistics:
    nan, negative_infinite, positive_infinite, negative, positive = map(int, numbers[:5])
    minimum, maximum, total, absolute, squares, norm = numbers[5:11]
    count = math.prod(shape)
    finite = count - nan - negative_infinite - positive_infinite
    mean = total / max(finite, 1)
    if not math.isfinite(total):
        squares = math.inf
    elif finite < count:
        squares = max(squares - finite * (mean - total / count) ** 2, 0)
    digest = hashlib.blake2b(repr((dtype, list(numbers))).encode(), digest_size=8).digest()
    others = finite - 1 if finite > 1 else math.inf
    moments = Moments(finite, others, minimum, maximum, mean, absolute, squares, math.sqrt)
    measures = dict(zip(MEASURES, measures_of(moments, 0), strict=True))
    if finite:
        # For doubles whose squares overflow, only the device's own norm is right.
        measures["l2_norm"] = norm
    return TensorStatistics(
        dtype=dtype,
        shape=shape,
        size_bytes=size_bytes,
        count=count,
        nan_count=nan,
        neg_inf_count=negative_infinite,
        pos_inf_count=positive_infinite,
        zero_count=finite - negative - positive,
        negative_count=negative,
        positive_count=positive,
        **measures,
        content_hash=int.from_bytes(digest, "little"),
    )
