"""The memory that offline sessions of a server may use for values and indices of dumps."""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING, Any

import numpy as np

from tensight.dumps import read_tensor, tensor_header
from tensight.sessions.errors import LimitError

if TYPE_CHECKING:
    from collections.abc import Hashable

    from numpy.typing import NDArray

    from tensight.dumps import TensorFile

TENSOR_BYTES = 1600
"""Bytes per tensor of a dump's list of tensors, including its row of statistics; measured."""

SMALL_BYTES = 256 * 2**10
"""Files up to this size are read again each time."""


class ValueMemory:
    """Memory that all offline sessions of a server share: ``--offline-debugger-mem-limit``.

    It accounts for the lists of tensors of open dumps, and for values that must be loaded whole (from binary files of
    Ascend devices and from remote storage) as long as they are referenced. npy files on a local disk are memory-mapped
    and do not count: the operating system reclaims their memory when needed. Unused values are cached while there is
    room; the least recently used are dropped first.

    Parameters
    ----------
    most_bytes : int
        The limit.
    """

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self._held_bytes = 0
        self._lock = threading.RLock()  # re-entrant: a finalizer of an array may run while this thread holds it
        self._kept: dict[Hashable, NDArray[Any]] = {}

    @property
    def held_bytes(self) -> int:
        """Bytes in use or cached."""
        return self._held_bytes

    def hold(self, size_bytes: int, what: str) -> None:
        """Reserve memory until `release`.

        Raises
        ------
        LimitError
            Not enough memory is left.
        """
        with self._lock:
            while self._held_bytes + size_bytes > self.most_bytes and self._kept:
                # If the array is still referenced elsewhere, its memory is not released yet.
                del self._kept[next(iter(self._kept))]
            if self._held_bytes + size_bytes > self.most_bytes:
                raise LimitError(
                    f"{what} needs {size_bytes:,} bytes; {self._held_bytes:,} of the {self.most_bytes:,} that dumps "
                    "may take are in use: close a session, or start the server with a larger "
                    "--offline-debugger-mem-limit"
                )
            self._held_bytes += size_bytes

    def release(self, size_bytes: int) -> None:
        """Release reserved memory."""
        with self._lock:
            self._held_bytes -= size_bytes

    def read(self, owner: Hashable, file: TensorFile) -> NDArray[Any]:
        """Return a tensor's values, read-only; see `tensight.dumps.read_tensor`.

        Parameters
        ----------
        owner : hashable
            Owner of the cached values; `forget` drops them.
        file : TensorFile

        Raises
        ------
        LimitError
            It does not fit into the memory that is left.
        TensorFileError
            The file cannot be read.
        """
        if "://" not in file.path and file.name.endswith((".npy", ".bin")):
            return read_tensor(file)
        key = (owner, file.path, file.io, file.slot)
        with self._lock:
            kept = self._kept.pop(key, None)
            if kept is not None:
                self._kept[key] = kept
                return kept
        size_bytes = tensor_header(file).data_bytes
        self.hold(size_bytes, str(file.address or file.name))
        try:
            array = read_tensor(file)
        except BaseException:
            self.release(size_bytes)
            raise
        weakref.finalize(_owner_of_memory(array), self.release, size_bytes).atexit = False
        if size_bytes > SMALL_BYTES:
            with self._lock:
                self._kept[key] = array
        return array

    def forget(self, owner: Hashable) -> None:
        """Drop the cached values of an owner."""
        with self._lock:
            for key in [key for key in self._kept if isinstance(key, tuple) and key[0] == owner]:
                del self._kept[key]


def _owner_of_memory(array: NDArray[Any]) -> NDArray[Any]:
    """Return the array that owns the memory: views of views refer to it, not to each other."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array
