"""What the core must know of a framework's tensors; each adapter brings one reader."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tensight.agents.columns import StatisticsColumns


class Framework(NamedTuple):
    """What a training runs on.

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
        """Return the size in bytes, None if there are no values; asked for every tensor that is kept, so it is fast."""

    def version(self, tensor: Any) -> int:
        """Return a number that grows whenever the tensor is written to in place."""

    def host(self, tensor: Any) -> NDArray[Any] | None:
        """Return the values in C order, without a copy where that is possible; None if they cannot be read."""

    def copy(self, tensor: Any, into: Any = None) -> Any:
        """Return a tensor of its own with the same values, on the same device; None if they cannot be read.

        `into` is what an earlier call returned and nobody needs any more: it is written to and returned if it is of
        the same kind and shape, which saves making memory.
        """

    def scan(self, tensor: Any, columns: StatisticsColumns, slot_id: int, *, hashed: bool = True) -> bool:
        """Write the statistics of a tensor to the row of a slot; False if it has none. A device may be behind.

        Parameters
        ----------
        tensor : object
        columns : StatisticsColumns
        slot_id : int
        hashed : bool
            Whether a content hash is wanted.
        """

    def has_non_finite(self, tensor: Any) -> bool:
        """Whether there is a NaN or an Inf among the values, found out as fast as possible."""

    def settle(self, columns: StatisticsColumns) -> None:
        """Wait for the rows that devices still compute, all together."""
