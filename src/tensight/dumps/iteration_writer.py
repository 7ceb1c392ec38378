"""Write an iteration of a dump from the process that has its tensors, atomically."""

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
"""Task and stream id, which do not exist here."""


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
    # Older readers do not expect the element type in the name, so only types that npy files cannot express get it.
    name = dtype_name(dtype)
    declared = f".{name}" if name in NAMELESS else ""
    return f"{head}{_FIXED}{moment}.{io}.{slot}.DefaultFormat{declared}.npy"


def fitting_name(folder: Path, name: str) -> str:
    """Return the name for a file in a folder; a name that is too long becomes digits, added to the folder's mapping."""
    if len(os.fsencode(name)) <= LONGEST_NAME_BYTES:
        return name
    digits = str(int.from_bytes(hashlib.sha256(name.encode()).digest()[:7], "big"))
    append(folder / MAPPING, f"{digits},{name}\n")
    return f"{digits}.npy"


class IterationWriter:
    """Write an iteration of a root graph, which becomes visible when complete. Methods raise OSError.

    Parameters
    ----------
    part : Path
        Temporary folder; it must not exist.
    target : Path
        Final folder; it must not exist.
    moment : callable
        Returns a strictly increasing time in microseconds.
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
        # Little-endian, in C order; an array that already is both is not copied.
        plain = np.ascontiguousarray(array, array.dtype.newbyteorder("<")).reshape(array.shape)
        name = self._name(head, slot, plain.dtype, is_input=is_input)
        write_npy(self._part / name, plain)
        return name

    def add_again(self, written: str, dtype: np.dtype[Any], head: str, slot: int, *, is_input: bool = False) -> bool:
        """Write a tensor with the elements of an existing file, as a hard link to it.

        Returns
        -------
        bool
            False if the file system does not support that.
        """
        try:
            os.link(self._part / written, self._part / self._name(head, slot, dtype, is_input=is_input))
        except OSError:
            return False
        return True

    def add_statistics(self, text: str) -> None:
        """Write the statistics of tensors."""
        (self._part / STATISTICS).write_bytes(text.encode("utf-8", "backslashreplace"))

    def keep(self) -> None:
        """Move the iteration to its final folder."""
        os.makedirs(self._target.parent, mode=0o700, exist_ok=True)
        os.rename(self._part, self._target)

    def discard(self) -> None:
        """Delete the written files; errors are ignored."""
        shutil.rmtree(self._part, ignore_errors=True)

    def _name(self, head: str, slot: int, dtype: np.dtype[Any], *, is_input: bool) -> str:
        return fitting_name(self._part, tensor_file_name(head, self._moment(), slot, dtype, is_input=is_input))


def find_tensor(folder: Path, head: str, slot: int, *, is_input: bool) -> tuple[Path, str] | None:
    """Return the file of a tensor in the folder of an iteration, and its element type if its name contains it.

    None if there is no such file.
    """
    io = "input" if is_input else "output"
    beginning, end = head + _FIXED, f".{io}.{slot}.DefaultFormat"
    names = {name: name for name in os.listdir(folder)}
    if MAPPING in names:
        mapping, _ = parse_mapping((folder / MAPPING).read_text("utf-8", "replace"))
        names |= {original: f"{digits}.npy" for digits, original in mapping.items()}
    for name, file in names.items():
        # Between the two is only the time.
        moment, separator, rest = name.removeprefix(beginning).partition(end)
        declared = rest.removesuffix(".npy").removeprefix(".")
        if not (name.startswith(beginning) and separator and moment.isdigit() and rest.endswith(".npy")):
            continue
        if not declared or declared in NAMELESS:
            return folder / file, declared
    return None


def append(path: Path, text: str) -> None:
    """Append text to a file."""
    with path.open("a", encoding="utf-8", errors="backslashreplace", newline="") as file:
        file.write(text)
