"""An iteration of a dump, written by the process that has its tensors: it appears as a whole, and goes as a whole."""

from __future__ import annotations

import hashlib
import os
import shutil
from typing import TYPE_CHECKING, Any

import numpy as np

from tensight.dumps.growing_files import write_npy
from tensight.dumps.indexing import MAPPING, STATISTICS
from tensight.dumps.names import NAMELESS, parse_mapping
from tensight.tensors.narrow_types import dtype_name

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

LONGEST_NAME_BYTES = 255

_FIXED = ".0.0."
"""Numbers of a task and of a stream, which there are none of."""


def tensor_file_name(head: str, moment: int, slot: int, dtype: np.dtype[Any], *, is_input: bool) -> str:
    """Return the name of a tensor's file.

    Parameters
    ----------
    head : str
        ``{op_type}.{op_name}``.
    moment : int
        In microseconds.
    slot : int
    dtype : numpy.dtype
    is_input : bool
        Whether `slot` is an input of the node.
    """
    io = "input" if is_input else "output"
    # Only what npy files cannot name needs its element type in the name, which older readers do not expect there.
    name = dtype_name(dtype)
    declared = f".{name}" if name in NAMELESS else ""
    return f"{head}{_FIXED}{moment}.{io}.{slot}.DefaultFormat{declared}.npy"


def fitting_name(folder: Path, name: str) -> str:
    """Return the name that a file gets in a folder: a long one becomes digits, and a line of the folder's mapping."""
    if len(os.fsencode(name)) <= LONGEST_NAME_BYTES:
        return name
    digits = str(int.from_bytes(hashlib.sha256(name.encode()).digest()[:7], "big"))
    append(folder / MAPPING, f"{digits},{name}\n")
    return f"{digits}.npy"


class IterationWriter:
    """Writes an iteration of a root graph, of which nothing is seen until it is complete. Methods raise OSError.

    Parameters
    ----------
    part : Path
        Folder in which it grows; it must not exist.
    target : Path
        Where it will be; nothing may be there.
    moment : callable
        Returns the time in microseconds, never the same twice.
    """

    def __init__(self, part: Path, target: Path, moment: Callable[[], int]) -> None:
        self._part = part
        self._target = target
        self._moment = moment
        part.mkdir(0o700)

    def add(self, head: str, slot: int, array: NDArray[Any], *, is_input: bool = False) -> str:
        """Write a tensor.

        Parameters
        ----------
        head : str
            See `RankRecorder.head`.
        slot : int
        array : ndarray
        is_input : bool
            Whether `slot` is an input of the node.

        Returns
        -------
        str
            Name of the file.
        """
        # little-endian, in C order; of an array that is both already there is no copy
        plain = np.ascontiguousarray(array, array.dtype.newbyteorder("<")).reshape(array.shape)
        name = self._name(head, slot, plain.dtype, is_input=is_input)
        write_npy(self._part / name, plain)
        return name

    def add_again(self, written: str, head: str, slot: int, array: NDArray[Any], *, is_input: bool = False) -> None:
        """Write a tensor whose elements are in the file of a name already: both then are one file."""
        name = self._name(head, slot, array.dtype, is_input=is_input)
        try:
            os.link(self._part / written, self._part / name)
        except OSError:
            # Not every file system can do that.
            self.add(head, slot, array, is_input=is_input)

    def add_statistics(self, text: str) -> None:
        """Write the statistics of tensors."""
        (self._part / STATISTICS).write_bytes(text.encode("utf-8", "replace"))

    def keep(self) -> None:
        """Put the iteration in its place."""
        os.makedirs(self._target.parent, mode=0o700, exist_ok=True)
        os.rename(self._part, self._target)

    def discard(self) -> None:
        """Delete what was written, as far as that is possible."""
        shutil.rmtree(self._part, ignore_errors=True)

    def _name(self, head: str, slot: int, dtype: np.dtype[Any], *, is_input: bool) -> str:
        return fitting_name(self._part, tensor_file_name(head, self._moment(), slot, dtype, is_input=is_input))


def find_tensor(folder: Path, head: str, slot: int, *, is_input: bool) -> tuple[Path, str] | None:
    """Return the file of a tensor in the folder of an iteration, and its element type if the name says it.

    None if there is no such file.
    """
    io = "input" if is_input else "output"
    beginning, end = head + _FIXED, f".{io}.{slot}.DefaultFormat"
    names = {name: name for name in os.listdir(folder)}
    if MAPPING in names:
        mapping, _ = parse_mapping((folder / MAPPING).read_text("utf-8", "replace"))
        names |= {original: f"{digits}.npy" for digits, original in mapping.items()}
    for name, file in names.items():
        # Between the two there is nothing but the time.
        moment, found, rest = name.removeprefix(beginning).partition(end)
        declared = rest.removesuffix(".npy").removeprefix(".")
        if not (name.startswith(beginning) and found and moment.isdigit() and rest.endswith(".npy")):
            continue
        if not declared or declared in NAMELESS:
            return folder / file, declared
    return None


def append(path: Path, text: str) -> None:
    """Append text to a file."""
    with path.open("a", encoding="utf-8", errors="replace", newline="") as file:
        file.write(text)
