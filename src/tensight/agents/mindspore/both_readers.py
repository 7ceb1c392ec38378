"""Reads MindSpore tensors and dumped tensors: in a PyNative training, functions of `jit` run as graphs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tensight.agents.mindspore.arrays import MindSporeReader
from tensight.agents.mindspore.dumped import DumpedReader, DumpedTensor

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tensight.agents.core.columns import StatisticsColumns


class BothReaders:
    """`TensorReader` that calls the reader for the type of each tensor."""

    def __init__(self) -> None:
        self._dumped = DumpedReader()
        self._arrays = MindSporeReader()

    def _of(self, tensor: Any) -> DumpedReader | MindSporeReader:
        return self._dumped if type(tensor) is DumpedTensor else self._arrays

    def describe(self, tensor: Any) -> tuple[str, tuple[int, ...], int]:
        """Return NumPy's name of the dtype, the shape and the size in bytes; an empty name if it has no statistics."""
        return self._of(tensor).describe(tensor)

    def hold(self, tensor: Any) -> tuple[Any, int, int]:
        """Return the tensor, its identity, and its size in bytes."""
        return self._of(tensor).hold(tensor)

    def version(self, tensor: Any) -> int:
        """Return a number that changes when the tensor is written to in place, or is gone."""
        return self._of(tensor).version(tensor)

    def host(self, tensor: Any) -> NDArray[Any] | None:
        """Return the values in C order; None if they cannot be read."""
        return self._of(tensor).host(tensor)

    def copy(self, tensor: Any, into: Any = None) -> Any:
        """Return a tensor with the same values that is never overwritten."""
        return self._of(tensor).copy(tensor, into)

    def scan(self, tensor: Any, columns: StatisticsColumns, slot_id: int, *, hashed: bool = True) -> bool:
        """Write the statistics of a tensor to the row of a slot; False if it has none."""
        return self._of(tensor).scan(tensor, columns, slot_id, hashed=hashed)

    def has_non_finite(self, tensor: Any) -> bool:
        """Whether any value is NaN or Inf."""
        return self._of(tensor).has_non_finite(tensor)

    def settle(self, columns: StatisticsColumns) -> None:
        """Wait for the rows that devices still compute."""
        self._arrays.settle(columns)
