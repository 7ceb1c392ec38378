"""How much memory the offline sessions of a server may fill with what they read from dumps."""

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
"""What the list of a dump's tensors needs for each of them, with its row of statistics; measured."""

SMALL_BYTES = 256 * 2**10
"""Files up to this size are read anew each time."""


class ValueMemory:
    """Memory that all offline sessions of a server share: ``--offline-debugger-mem-limit``.

    What counts are values that have to be held as a whole (those in the binary files of Ascend devices, and on remote
    storage), from being read until nobody uses them any more, and the lists of the tensors of open dumps. npy files on
    a local disk are mapped: the operating system takes their memory back whenever it needs it, so they do not count.
    Values that are not in use stay as long as there is room, the one used last the longest.

    Parameters
    ----------
    most_bytes : int
        How much there is.
    """

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self._held_bytes = 0
        self._lock = threading.RLock()  # an array may die, and say so, while this thread is in here
        self._kept: dict[Hashable, NDArray[Any]] = {}

    @property
    def held_bytes(self) -> int:
        """How much is in use or kept."""
        return self._held_bytes

    def hold(self, size_bytes: int, what: str) -> None:
        """Take memory until `release`.

        Raises
        ------
        LimitError
            There is not so much left.
        """
        with self._lock:
            while self._held_bytes + size_bytes > self.most_bytes and self._kept:
                # Nobody may be using it; if somebody is, its memory is not free yet.
                del self._kept[next(iter(self._kept))]
            if self._held_bytes + size_bytes > self.most_bytes:
                raise LimitError(
                    f"{what} needs {size_bytes:,} bytes; {self._held_bytes:,} of the {self.most_bytes:,} that dumps "
                    "may take are in use: close a session, or start the server with a larger "
                    "--offline-debugger-mem-limit"
                )
            self._held_bytes += size_bytes

    def release(self, size_bytes: int) -> None:
        """Give memory back."""
        with self._lock:
            self._held_bytes -= size_bytes

    def read(self, owner: Hashable, file: TensorFile) -> NDArray[Any]:
        """Return a tensor's values, read-only; see `tensight.dumps.read_tensor`.

        Parameters
        ----------
        owner : hashable
            For whom; `forget` lets go of what is kept for it.
        file : TensorFile

        Raises
        ------
        LimitError
            It does not fit beside what is in use.
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
        """Let go of what is kept for an owner."""
        with self._lock:
            for key in [key for key in self._kept if isinstance(key, tuple) and key[0] == owner]:
                del self._kept[key]


def _owner_of_memory(array: NDArray[Any]) -> NDArray[Any]:
    """Return the array whose end is the end of the memory: views of views refer to it, not to each other."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array
