"""The interface to a framework's tensors; each adapter has a reader."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tensight.agents.columns import StatisticsColumns


class Framework(NamedTuple):
    """The framework and device of a training.

    Attributes
    ----------
    name : str
        ``torch``.
    version : str
    backend : str
        ``CPU`` or ``GPU``.
    device : int
        Number of the device.
    rank, world_size : int
    """

    name: str
    version: str
    backend: str = "CPU"
    device: int = 0
    rank: int = 0
    world_size: int = 1


class TensorReader(Protocol):
    """Reads tensors of a framework. Nothing here changes a tensor or waits for a device, except `host`."""

    def describe(self, tensor: Any) -> tuple[str, tuple[int, ...], int]:
        """Return NumPy's name of the dtype, the shape and the size in bytes; an empty name if it has no statistics."""

    def size_bytes(self, tensor: Any) -> int | None:
        """Return the size in bytes, None if there are no values; called for every kept tensor, so it is fast."""

    def version(self, tensor: Any) -> int:
        """Return a number that grows whenever the tensor is written to in place."""

    def host(self, tensor: Any) -> NDArray[Any] | None:
        """Return the values in C order, without a copy if possible; None if they cannot be read."""

    def copy(self, tensor: Any, into: Any = None) -> Any:
        """Return a separate tensor with the same values, on the same device; None if they cannot be read.

        `into` is the result of an earlier call that is no longer needed: it is overwritten and returned if it has the
        same type and shape, which saves an allocation.
        """

    def scan(self, tensor: Any, columns: StatisticsColumns, slot_id: int, *, hashed: bool = True) -> bool:
        """Write the statistics of a tensor to the row of a slot; False if it has none. A device may still compute them.

        Parameters
        ----------
        tensor : object
        columns : StatisticsColumns
        slot_id : int
        hashed : bool
            Whether a content hash is needed.
        """

    def has_non_finite(self, tensor: Any) -> bool:
        """Whether any value is NaN or Inf, determined as fast as possible."""

    def settle(self, columns: StatisticsColumns) -> None:
        """Wait for all rows that devices still compute."""
