"""The interface to a framework's tensors; each adapter has a reader."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Hashable

    from numpy.typing import NDArray

    from tensight.agents.core.columns import StatisticsColumns


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
    free_bytes : int or None
        Memory that was free on the device when the training was found; None if it is the host's, or unknown.
    """

    name: str
    version: str
    backend: str = "CPU"
    device: int = 0
    rank: int = 0
    world_size: int = 1
    free_bytes: int | None = None


class TensorReader(Protocol):
    """Reads tensors of a framework. Nothing here changes a tensor or waits for a device, except `host`."""

    def describe(self, tensor: Any) -> tuple[str, tuple[int, ...], int]:
        """Return NumPy's name of the dtype, the shape and the size in bytes; an empty name if it has no statistics."""

    def hold(self, tensor: Any) -> tuple[Any, Hashable, int] | None:
        """Return what keeps the memory of a tensor alive; None if it has none. Called for every kept tensor.

        Returns
        -------
        object
            A tensor with the same elements and the same version, but without the history of its computation, if it has
            one that keeps other memory alive; else the tensor itself.
        hashable
            Equal for tensors that share memory, as long as one of them is held.
        int
            Size of that memory in bytes.
        """

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
