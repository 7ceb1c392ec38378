"""The common result of reading any checkpoint format: named tensors, other data, and problems."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from tensight.checkpoints.content import Content, FileContent, PartOfContent, StridedContent, transposed
from tensight.tensors.narrow_types import NARROW_NAMES, narrow_dtype

if TYPE_CHECKING:
    from types import TracebackType

    from numpy.typing import NDArray

    from tensight.dumps.storage import OpenFile
    from tensight.errors import Problem

Scalar = None | bool | int | float | complex | str
"""Data of a checkpoint other than tensors, after flattening lists and dictionaries."""


@lru_cache(maxsize=64)
def dtype_named(name: str) -> np.dtype[Any]:
    """Return the element type with a name such as "float32", "bfloat16" or "float8_e4m3fn"."""
    return narrow_dtype(name) if name in NARROW_NAMES else np.dtype(name)


@dataclass(frozen=True, slots=True)
class Entry:
    """A tensor of a checkpoint.

    Attributes
    ----------
    name : str
        Keys that lead to it, joined by dots.
    dtype : numpy.dtype
    shape : tuple of int
    content : Content
    file : str
        The checkpoint file that contains it, relative to the checkpoint's folder; the first of several.
    """

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    content: Content
    file: str = ""

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def size_bytes(self) -> int:
        """Size of all elements in bytes."""
        return self.size * self.dtype.itemsize

    @property
    def memory(self) -> tuple[object, ...] | None:
        """A key that is equal for entries with shared elements; None if the format cannot share them."""
        if isinstance(self.content, FileContent):
            return (self.content.file.path, self.content.offset, self.shape, self.dtype.str) if self.size else None
        if isinstance(self.content, StridedContent):
            lies = self.content
            return (lies.file.path, lies.offset, self.shape, self.dtype.str, lies.strides) if self.size else None
        return None

    def read(self, start: int = 0, count: int | None = None) -> NDArray[Any]:
        """Return elements in C order, by default all.

        Parameters
        ----------
        start, count : int
            First element and number of elements.

        Returns
        -------
        ndarray, 1-D
        """
        values = np.empty(self.size - start if count is None else count, self.dtype)
        return self.read_into(start, values)

    def read_into(self, start: int, values: NDArray[Any]) -> NDArray[Any]:
        """Fill a contiguous array of this dtype with the elements from `start` on, and return it."""
        if values.size:
            self.content.read_into(start * self.dtype.itemsize, values.view(np.uint8).data)
        return values

    def transposed(self) -> Entry | None:
        """Return a matrix with its axes swapped; None if it cannot be read in parts."""
        content = transposed(self.content, self.shape, self.dtype.itemsize)
        if content is None:
            return None
        return Entry(self.name, self.dtype, self.shape[::-1], content, self.file)

    def rows(self, first: int, count: int) -> Entry:
        """Return some of the rows, along the first dimension."""
        row = prod(self.shape[1:]) * self.dtype.itemsize
        content = PartOfContent(self.content, first * row, count * row)
        name = f"{self.name}[{first}:{first + count}]"
        return Entry(name, self.dtype, (count, *self.shape[1:]), content, self.file)


@dataclass(slots=True, eq=False)
class Checkpoint:
    """A checkpoint that is open for reading. Use it in a ``with`` statement.

    Attributes
    ----------
    path : str
    format : str
        "safetensors", "PyTorch", "PyTorch, distributed", "MindSpore", "NumPy".
    entries : dict of str to Entry
        In file order.
    values : dict of str to Scalar
        All other data: settings, counters, texts.
    problems : list of Problem
        Parts that could not be used.
    files : tuple of str
        The files that contain tensors, relative to the checkpoint's folder.
    """

    path: str
    format: str
    entries: dict[str, Entry] = field(default_factory=dict)
    values: dict[str, Scalar] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    files: tuple[str, ...] = ()
    opened: list[OpenFile] = field(default_factory=list, repr=False)

    @property
    def size_bytes(self) -> int:
        """Size of the elements of all tensors in bytes."""
        return sum(entry.size_bytes for entry in self.entries.values())

    @property
    def tied(self) -> tuple[tuple[str, ...], ...]:
        """Groups of two or more names that share their elements."""
        groups: dict[object, list[str]] = {}
        for entry in self.entries.values():
            if entry.memory is not None:
                groups.setdefault(entry.memory, []).append(entry.name)
        return tuple(tuple(names) for names in groups.values() if len(names) > 1)

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the files."""
        while self.opened:
            self.opened.pop().close()
