"""Comparison of the values of pairs of tensors, in blocks and by several threads.

Each thread reads the blocks of both tensors into buffers that it reuses, so memory depends neither on the number nor on
the size of the tensors. Bits are compared first; differences are measured only in blocks that are not identical.
"""

from __future__ import annotations

import ctypes
import math
import threading
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from tensight.analysis.engine import ThreadEngine
from tensight.tensors import TensorStatistics, merge, merge_changes, scan_change_segment, scan_segment

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from tensight.analysis.engine import Progress
    from tensight.checkpoints import Entry
    from tensight.tensors import ChangePartial, Partial

BLOCK_ELEMENTS = 2**19
"""Smaller blocks would fit in the second-level cache, but the interpreter's overhead costs more than that saves."""

_ITEM_BLOCKS = 8
"""Blocks of a work item: enough that threads rarely contend, and few enough that they finish together."""

_FEW = 256
_ROUNDINGS = {"bfloat16": np.dtype(ml_dtypes.bfloat16), "float16": np.dtype(np.float16)}
_FLOATS = ("float64", "float32", "float16", "bfloat16")

_compare_memory = ctypes.CDLL(None).memcmp
_compare_memory.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
_compare_memory.restype = ctypes.c_int


@dataclass(frozen=True, slots=True)
class ValueDifference:
    """The differences of two tensors A and B with the same number of elements.

    Attributes
    ----------
    count : int
        Number of elements.
    changed : int
        Elements that differ: in any bit if the dtypes are the same, except that NaN equals NaN.
    both_nan : int
        Elements that are NaN in both.
    relative_norm : float
        Norm of the difference divided by the norm of A, over pairs of finite elements; NaN if A is all zeros and B is
        not.
    l2_change : float
        Norm of the difference.
    max_abs : float
        Largest difference.
    required_rtol : float
        Smallest relative tolerance within which B equals A (see `ChangeStatistics`); infinite if a zero or a
        non-finite element differs.
    a, b : TensorStatistics
        Statistics of both tensors; equal if no bit differs.
    rounded : str
        "bfloat16" or "float16" if B is A rounded to that dtype, "" otherwise.
    rounded_back : str
        The same for A being B rounded.
    changed_files : tuple of str
        If B is stored in several files, those that contain elements that differ.
    """

    count: int
    changed: int
    both_nan: int
    relative_norm: float
    l2_change: float
    max_abs: float
    required_rtol: float
    a: TensorStatistics
    b: TensorStatistics
    rounded: str = ""
    rounded_back: str = ""
    changed_files: tuple[str, ...] = ()

    @property
    def is_same(self) -> bool:
        """Whether no element differs."""
        return not self.changed


class _Buffers(threading.local):
    """The memory into which each thread reads blocks."""

    def __init__(self) -> None:
        self.a = np.empty(16 * BLOCK_ELEMENTS, np.uint8)
        self.b = np.empty(16 * BLOCK_ELEMENTS, np.uint8)
        self.differs = np.empty(BLOCK_ELEMENTS, np.bool_)


_buffers = _Buffers()


@dataclass(slots=True, eq=False)
class _Totals:
    """The results of the blocks of a pair so far, guarded by a lock."""

    a: Entry
    b: Entry | None
    atol: float
    lock: threading.Lock = field(default_factory=threading.Lock)
    changed: int = 0
    both_nan: int = 0
    scans_a: list[Partial] = field(default_factory=list)
    scans_b: list[Partial] = field(default_factory=list)
    changes: list[ChangePartial] = field(default_factory=list)
    not_rounded: set[tuple[str, bool]] = field(default_factory=set)
    changed_files: set[str] = field(default_factory=set)

    def add_block(self, number: int, start: int, count: int, file: str) -> None:
        """Read and compare one block."""
        block_a = _read(self.a, start, count, _buffers.a)
        scan_a = scan_segment(_scannable(block_a), number, hashed=False)
        if self.b is None:
            with self.lock:
                self.scans_a.append(scan_a)
            return
        block_b = _read(self.b, start, count, _buffers.b)
        if block_a.dtype == block_b.dtype and _same_bits(block_a, block_b):
            with self.lock:
                self.scans_a.append(scan_a)
                self.scans_b.append(scan_a)
                self.both_nan += scan_a.nan
            return
        self._add_difference(number, block_a, block_b, scan_a, file)

    def _add_difference(
        self, number: int, block_a: NDArray[Any], block_b: NDArray[Any], scan_a: Partial, file: str
    ) -> None:
        scan_b = scan_segment(_scannable(block_b), number, hashed=False)
        x, y = _scannable(block_a), _scannable(block_b)
        if scan_a.finite == scan_b.finite == block_a.size:
            changed, both_nan = _count_changed(block_a, block_b), 0
            change = scan_change_segment(y, x, atol=self.atol)
        else:
            apart = _apart(x, y)
            both_nan = int(np.count_nonzero(np.isnan(x) & np.isnan(y)))
            changed = int(np.count_nonzero(apart))
            # Equal infinities and NaN in both do not count as differences.
            finite = np.isfinite(x) & np.isfinite(y)
            change = scan_change_segment(y[finite], x[finite], atol=self.atol)
            if np.count_nonzero(apart & ~finite):
                change = replace(change, required_rtol=math.inf)
        roundings = self._roundings(block_a, block_b) if changed else set()
        with self.lock:
            self.scans_a.append(scan_a)
            self.scans_b.append(scan_b)
            self.changes.append(change)
            self.changed += changed
            self.both_nan += both_nan
            self.not_rounded |= roundings
            if changed and file:
                self.changed_files.add(file)

    def _roundings(self, block_a: NDArray[Any], block_b: NDArray[Any]) -> set[tuple[str, bool]]:
        """Return the roundings that this block rules out, as pairs of dtype and whether A would be the rounded one."""
        ruled_out = set()
        for name, narrow in _ROUNDINGS.items():
            for back in (False, True):
                wide, result = (block_b, block_a) if back else (block_a, block_b)
                if (name, back) not in self.not_rounded and not _is_rounded(wide, result, narrow):
                    ruled_out.add((name, back))
        return ruled_out

    def difference(self) -> ValueDifference:
        """Return the difference, after all blocks were added."""
        b = self.b or self.a
        stats_a = merge(self.scans_a, dtype=_scanned_dtype(self.a.dtype), shape=self.a.shape)[0]
        stats_b = merge(self.scans_b or self.scans_a, dtype=_scanned_dtype(b.dtype), shape=b.shape)[0]
        change = merge_changes(self.changes, atol=self.atol)
        l2_change = 0.0 if not self.changed else change.l2_change
        relative = l2_change / stats_a.l2_norm if stats_a.l2_norm else (math.nan if self.changed else 0.0)
        required = change.required_rtol if self.changed else 0.0
        beyond = stats_a.non_finite_count != stats_b.non_finite_count
        rounded = ["", ""]
        if self.changed and not beyond and l2_change:
            for name in _ROUNDINGS:
                for back in (False, True):
                    if (name, back) not in self.not_rounded and not rounded[back]:
                        rounded[back] = name
        return ValueDifference(
            count=self.a.size,
            changed=self.changed,
            both_nan=self.both_nan,
            relative_norm=relative,
            l2_change=l2_change,
            max_abs=change.max_abs_change if self.changed else 0.0,
            required_rtol=math.inf if beyond or math.isnan(required) else required,
            a=stats_a,
            b=stats_b,
            rounded=rounded[0],
            rounded_back=rounded[1],
            changed_files=tuple(sorted(self.changed_files)),
        )


def compare_values(
    pairs: Sequence[tuple[Entry, Entry | None]],
    *,
    atol: float = 0.0,
    threads: int | None = None,
    progress: Progress | None = None,
) -> list[ValueDifference]:
    """Compare the values of pairs of tensors.

    Parameters
    ----------
    pairs : sequence of (Entry, Entry or None)
        Two tensors with the same number of elements, which are compared in C order; if the second is None, only the
        statistics of the first are computed.
    atol : float
        Absolute tolerance of `ValueDifference.required_rtol`.
    threads : int, optional
        By default the number of cores available to this process.
    progress : callable, optional
        Called with the number of bytes read so far and the total number.

    Raises
    ------
    CheckpointError
        A file was truncated while it was read, or compressed data in it is damaged.
    """
    totals = [_Totals(a, b, atol) for a, b in pairs]
    items = [item for total in totals for item in _work(total)]
    ThreadEngine(threads).run(items, _do, weight=lambda item: item[2], progress=progress)
    return [total.difference() for total in totals]


_Item = tuple[_Totals, list[tuple[int, int, int, str]], int]
"""A pair; some of its blocks, each as number, first element, number of elements and file of B; bytes to read."""


def _work(total: _Totals) -> Iterator[_Item]:
    a, b = total.a, total.b
    item_bytes = a.dtype.itemsize + (b.dtype.itemsize if b is not None else 0)
    blocks = list(_blocks(total))
    is_sequential = a.content.is_sequential or (b is not None and b.content.is_sequential)
    step = len(blocks) if is_sequential else _ITEM_BLOCKS
    for first in range(0, len(blocks), step or 1):
        part = blocks[first : first + step]
        yield total, part, sum(count for _, _, count, _ in part) * item_bytes


def _blocks(total: _Totals) -> Iterator[tuple[int, int, int, str]]:
    """Yield the blocks of a pair; no block spans two files of B."""
    entry = total.b or total.a
    number = 0
    if not entry.size:
        yield 0, 0, 0, ""
    for begin, end, file in entry.content.stretches():
        first, last = begin // entry.dtype.itemsize, end // entry.dtype.itemsize
        for start in range(first, last, BLOCK_ELEMENTS):
            yield number, start, min(BLOCK_ELEMENTS, last - start), file.rpartition("/")[2]
            number += 1


def _do(item: _Item) -> None:
    total, blocks, _ = item
    for block in blocks:
        total.add_block(*block)


def _read(entry: Entry, start: int, count: int, buffer: NDArray[np.uint8]) -> NDArray[Any]:
    return entry.read_into(start, buffer[: count * entry.dtype.itemsize].view(entry.dtype))


@lru_cache(maxsize=64)
def _scanned_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(np.float32) if dtype.name.startswith("float8") else dtype


def _scannable(values: NDArray[Any]) -> NDArray[Any]:
    """Return values in a dtype that the kernels support."""
    wide = _scanned_dtype(values.dtype)
    return values if wide == values.dtype else values.astype(wide)


def _same_bits(a: NDArray[Any], b: NDArray[Any]) -> bool:
    return a.nbytes == 0 or _compare_memory(a.ctypes.data, b.ctypes.data, a.nbytes) == 0


_WORDS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


def _count_changed(a: NDArray[Any], b: NDArray[Any]) -> int:
    """Return how many elements of two finite arrays differ."""
    word = _WORDS.get(a.dtype.itemsize)
    if a.dtype == b.dtype and word is not None:
        differs = np.not_equal(a.view(word), b.view(word), out=_buffers.differs[: a.size])
        return int(np.count_nonzero(differs))
    return int(np.count_nonzero(_scannable(a) != _scannable(b)))


def _apart(x: NDArray[Any], y: NDArray[Any]) -> NDArray[np.bool_]:
    with np.errstate(invalid="ignore"):
        return np.asarray((x != y) & ~(np.isnan(x) & np.isnan(y)))


@lru_cache(maxsize=64)
def _is_float(dtype: np.dtype[Any]) -> bool:
    return dtype.name in _FLOATS


def _is_rounded(wide: NDArray[Any], result: NDArray[Any], narrow: np.dtype[Any]) -> bool:
    """Tell whether `result` is `wide` rounded to `narrow`."""
    if not (_is_float(wide.dtype) and _is_float(result.dtype)) or wide.dtype.itemsize <= 2:
        return False
    if result.dtype.itemsize == 2 and result.dtype != narrow:
        return False
    return _equals_rounded(wide[:_FEW], result[:_FEW], narrow) and _equals_rounded(wide, result, narrow)


def _equals_rounded(wide: NDArray[Any], result: NDArray[Any], narrow: np.dtype[Any]) -> bool:
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        return not _apart(wide.astype(narrow).astype(np.float64), result.astype(np.float64)).any()
