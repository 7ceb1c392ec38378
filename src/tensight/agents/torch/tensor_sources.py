"""The sources of the tensors of a step: the node and the output that each of them came from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.multiprocessing.reductions import StorageWeakRef

if TYPE_CHECKING:
    from tensight.agents.core.program import Source

Geometry = tuple[int, tuple[int, ...], tuple[int, ...], torch.dtype]


class _Seen(NamedTuple):
    """A tensor, held weakly, because its identity may be reused for another tensor."""

    reference: Any
    source: Source
    time: int


class _Memory:
    """The contents of a storage: views of it, and the source that wrote to it last, if any."""

    __slots__ = ("is_unset", "reference", "source", "time", "views")

    def __init__(self, reference: StorageWeakRef) -> None:
        self.reference = reference
        self.is_unset = False
        self.source: Source | None = None
        self.time = -1
        self.views: dict[Geometry, Source] = {}


class TensorSources:
    """The sources of the tensors that a step has made or read so far.

    A tensor is found by identity. Autograd returns new objects for tensors that it saved; those are found by their
    memory. The operator that wrote to that memory last is the source of every tensor in it.
    """

    def __init__(self) -> None:
        self._tensors: dict[int, _Seen] = {}
        self._memories: dict[int, _Memory] = {}
        self._time = 0

    def put(self, tensor: torch.Tensor, source: Source, *, written: bool = False, unset: bool = False) -> None:
        """Note the source of a tensor.

        Parameters
        ----------
        tensor : Tensor
        source : Source
        written : bool
            Whether this source has made or overwritten its elements; false for a view.
        unset : bool
            Whether its elements are uninitialized.
        """
        self._time += 1
        self._tensors[id(tensor)] = _Seen(torch._C._WeakTensorRef(tensor), source, self._time)
        memory = self._memory(tensor, make=True)
        if memory is None:
            return
        if written:
            memory.source, memory.time, memory.is_unset = source, self._time, unset
            memory.views.clear()
        elif memory.source is None:
            memory.source = source
        memory.views[geometry(tensor)] = source

    def forget(self, tensor: torch.Tensor) -> None:
        """Drop all references to a tensor; afterwards it is found by its memory."""
        self._tensors.pop(id(tensor), None)

    def find(self, tensor: torch.Tensor) -> Source | None:
        """Return the source of a tensor; None if no operator of this step has made or read it."""
        seen = self._tensors.get(id(tensor))
        if seen is not None and seen.reference.expired():
            seen = None
        memory = self._memory(tensor)
        if memory is None:
            return None if seen is None else seen.source
        if seen is not None and seen.time >= memory.time:
            return seen.source
        return memory.views.get(geometry(tensor), memory.source)

    def is_object(self, tensor: torch.Tensor, source: Source) -> bool:
        """Whether a tensor is the same object that was put here with a source."""
        seen = self._tensors.get(id(tensor))
        return seen is not None and seen.source == source and not seen.reference.expired()

    def is_unset(self, tensor: torch.Tensor) -> bool:
        """Whether the memory of a tensor that was made in this step is still uninitialized."""
        memory = self._memory(tensor)
        return memory is not None and memory.is_unset

    def is_written(self, tensor: torch.Tensor) -> bool:
        """Whether an operator of this step has written to the memory of a tensor."""
        memory = self._memory(tensor)
        return memory is not None and memory.time >= 0

    def may_be_set(self, tensor: torch.Tensor) -> None:
        """Note that the memory of a tensor may have been written to."""
        memory = self._memory(tensor)
        if memory is not None:
            memory.is_unset = False

    def _memory(self, tensor: torch.Tensor, *, make: bool = False) -> _Memory | None:
        storage = storage_of(tensor)
        if storage is None:
            return None
        memory = self._memories.get(storage._cdata)
        if memory is not None and memory.reference.expired():
            memory = None
        if memory is None and make:
            memory = self._memories[storage._cdata] = _Memory(StorageWeakRef(storage))
        return memory


def storage_of(tensor: torch.Tensor) -> torch.UntypedStorage | None:
    """Return the storage of a tensor; None for one that has several, or none."""
    if tensor.layout is not torch.strided or tensor.is_nested:
        return None
    try:
        return tensor.untyped_storage()
    except (NotImplementedError, RuntimeError):
        return None


def geometry(tensor: torch.Tensor) -> Geometry:
    """Return the layout of a tensor in its storage: offset, shape, strides, dtype."""
    return tensor.storage_offset(), tuple(tensor.shape), tensor.stride(), tensor.dtype
