"""Numbers of MindSpore's tensors and of dumped ones, read so that no operator runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tensight.agents.facts.samples import rows_read, sampled
from tensight.tensors.narrow_types import widened

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tensight.agents.core.reader import TensorReader


class Reading:
    """Reads tensors.

    Parameters
    ----------
    reader : TensorReader
    """

    def __init__(self, reader: TensorReader) -> None:
        self._reader = reader

    def array(self, tensor: Any) -> NDArray[Any] | None:
        """Return the values of a tensor, as float32 if NumPy lacks their dtype; None if they cannot be read.

        The array may share the tensor's memory.
        """
        values = self._reader.host(tensor)
        return None if values is None else widened(values)

    def part(self, tensor: Any) -> NDArray[Any] | None:
        """Return the values of a tensor, or of a large one the first so many rows; None if they cannot be read."""
        values = self.array(tensor)
        return values if values is None or not values.ndim else values[rows_read(values.shape)]

    def sample(self, tensor: Any) -> NDArray[Any]:
        """Return a copy of evenly spaced elements of a tensor; it is empty if they cannot be read."""
        values = self.array(tensor)
        return np.empty(0, np.float32) if values is None else sample_of(values)

    def number(self, tensor: Any) -> float:
        """Return the mean of a tensor, which is its value if it has one element; NaN if it cannot be read."""
        values = self.array(tensor)
        return float(values.astype(np.float64).mean()) if values is not None and values.size else float("nan")


def sample_of(values: NDArray[Any]) -> NDArray[Any]:
    """Return a copy of evenly spaced elements of an array."""
    flat = values.reshape(-1)
    return flat[sampled(flat.size)].copy()


def norm_of(values: NDArray[Any]) -> float:
    """Return the L2 norm of an array."""
    if values.dtype != np.float64 and not np.iscomplexobj(values):
        values = values.astype(np.float32, copy=False)
    return float(np.linalg.norm(values.reshape(-1)))
