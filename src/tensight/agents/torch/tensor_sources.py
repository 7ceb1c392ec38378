"""Where the tensors of a step came from: which output of which node each of them is now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.multiprocessing.reductions import StorageWeakRef

if TYPE_CHECKING:
    from tensight.agents.program import Source

Geometry = tuple[int, tuple[int, ...], tuple[int, ...], torch.dtype]


class _Seen(NamedTuple):
    """A tensor, held weakly: an address alone may meanwhile be another tensor's."""

    reference: Any
    source: Source
    time: int


class _Memory:
    """What lies in a storage: views of it, and who wrote to it last, if anybody did."""

    __slots__ = ("is_unset", "reference", "source", "time", "views")

    def __init__(self, reference: StorageWeakRef) -> None:
        self.reference = reference
        self.is_unset = False
        self.source: Source | None = None
        self.time = -1
        self.views: dict[Geometry, Source] = {}


class TensorSources:
    """The sources of the tensors that a step has made or read so far.

    A tensor is found by identity. Autograd hands out other objects for tensors that it saved; those are found by the
    memory they lie in. Whoever wrote to that memory last is the source of every tensor in it.
    """

    def __init__(self) -> None:
        self._tensors: dict[int, _Seen] = {}
        self._memories: dict[int, _Memory] = {}
        self._time = 0

    def put(self, tensor: torch.Tensor, source: Source, *, written: bool = False, unset: bool = False) -> None:
        """Note where a tensor came from.

        Parameters
        ----------
        tensor : Tensor
        source : Source
        written : bool
            Whether its elements were written by this source: made, or overwritten; a view only shows those of another.
        unset : bool
            Of what was made whether its elements are as its memory happened to be.
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
        """Hold no reference to a tensor; its source is that of the memory that it will be in."""
        self._tensors.pop(id(tensor), None)

    def find(self, tensor: torch.Tensor) -> Source | None:
        """Return where a tensor came from; None if nothing of this step made it or read it."""
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
        """Whether a tensor is the very object that was put here as coming from a source."""
        seen = self._tensors.get(id(tensor))
        return seen is not None and seen.source == source and not seen.reference.expired()

    def is_unset(self, tensor: torch.Tensor) -> bool:
        """Whether nobody has written to the memory of a tensor since it was made in this step."""
        memory = self._memory(tensor)
        return memory is not None and memory.is_unset

    def is_written(self, tensor: torch.Tensor) -> bool:
        """Return whether an operator of this step has written to the memory of a tensor."""
        memory = self._memory(tensor)
        return memory is not None and memory.time >= 0

    def may_be_set(self, tensor: torch.Tensor) -> None:
        """Note that somebody may have written to the memory of a tensor."""
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
    """Return the memory of a tensor; None for one that has several, or none."""
    if tensor.layout is not torch.strided or tensor.is_nested:
        return None
    try:
        return tensor.untyped_storage()
    except (NotImplementedError, RuntimeError):
        return None


def geometry(tensor: torch.Tensor) -> Geometry:
    """Return how a tensor lies in its memory."""
    return tensor.storage_offset(), tuple(tensor.shape), tensor.stride(), tensor.dtype
