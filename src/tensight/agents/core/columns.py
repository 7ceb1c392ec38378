"""Statistics of all slots in columns: the compiled scan writes them in place, without an object for each tensor.

A row contains the counts and sums of a scan (`tensors.layout`); means, deviations, norms and hashes are computed from
it for many rows at once, when they are needed (`rows`). The results are those of `tensors.statistics`, bit for bit.
"""

from __future__ import annotations

import ctypes
import math
import mmap
import platform
import sys
import threading
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tensight.agents.core.rows import NO_TYPE, Rows, raw_row
from tensight.errors import InputError
from tensight.tensors import EXPLOSION_LIMIT, SEGMENT_ELEMENTS, layout, portable, scan_segment
from tensight.tensors.elements import ELEMENT_NAMES, as_native, element_named, element_type
from tensight.tensors.native import kernels
from tensight.tensors.shared_scan import ALONE, merged_axes
from tensight.tensors.statistics_row import joined, rescan_if_out_of_range, segments_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from numpy.typing import ArrayLike, NDArray

    from tensight.tensors import TensorStatistics
    from tensight.tensors.elements import ElementType
    from tensight.tensors.native import CompiledRows, Kept
    from tensight.tensors.shared_scan import Team

NEVER = -2
"""Iteration of a row that was never written."""

MOST_ROWS = 2**20
"""Maximum number of rows. A scan writes to them without the interpreter lock, so they can never move."""

_READY_AT_FIRST = 256
_NO_HASH = layout.NO_HASH
_NO_RESERVE = 0x4000 if sys.platform == "linux" and platform.machine() in ("x86_64", "aarch64") else 0
"""``MAP_NORESERVE``: pages that are never used do not count when the training forks, as for a data loader's workers."""

_FIRST_REALS = np.zeros(layout.REALS)
_FIRST_REALS[[layout.MINIMUM, layout.MAXIMUM]] = math.inf, -math.inf


class _Kind(NamedTuple):
    """How elements of a dtype are scanned: in place, if in native byte order."""

    code: int
    element: ElementType
    is_native: bool
    is_double: bool


def _kind(dtype: np.dtype[Any]) -> _Kind:
    element = element_type(dtype)
    is_native = dtype == element.native or element.is_bool
    return _Kind(element.kind, element, is_native, element.route.is_double)


_BY_NAME = {name: _kind(element_named(name).native) for name in ELEMENT_NAMES if name != "bool"}
# By the code of an element type; the last entry is for rows that were never written, whose code is -1.
_IS_FLOAT = np.array([*("float" in name or "complex" in name for name in ELEMENT_NAMES), False])
_BY_NAME["bool"] = _kind(np.dtype(np.bool_))


class StatisticsColumns:
    """One row of statistics for each slot, as last written.

    Rows are written by the training's thread. Other threads take a copy (`take`) while that thread waits.

    Attributes
    ----------
    iteration : ndarray of int64
        In which each row was written, NEVER if it never was; at least as long as `reserve` has ensured. It is replaced
        by another view when there are more slots.
    """

    def __init__(self) -> None:
        self._current_iteration = -1
        self._team: Team | None = None
        self._tensors: tuple[tuple[type, ...], dict[Any, int]] = (), {}
        self._kinds: dict[np.dtype[Any], _Kind] = {}
        self._growing = threading.Lock()
        self._reals = _rows_in_memory(np.float64, layout.REALS)
        self._counts = _rows_in_memory(np.int64, layout.COUNTS)
        self._iterations, self._codes, self._exponents = (_rows_in_memory(np.int64, 1)[:, 0] for _ in range(3))
        self._shapes: list[tuple[int, ...]] = []
        self._ready = 0
        self._rows: CompiledRows | None = None
        self._spare: StatisticsColumns | None = None
        self.iteration = self._iterations[:0]
        self.reserve(_READY_AT_FIRST)

    @property
    def current_iteration(self) -> int:
        """Iteration in which rows are written, -1 at first; set by the code that counts steps."""
        return self._current_iteration

    @current_iteration.setter
    def current_iteration(self, iteration: int) -> None:
        self._current_iteration = iteration
        if self._rows is not None:
            self._rows.iteration = iteration

    @property
    def team(self) -> Team | None:
        """Threads that help with large tensors; None at first: then the caller scans alone."""
        return self._team

    @team.setter
    def team(self, team: Team | None) -> None:
        self._team = team
        if self._rows is not None:
            self._rows.set_team(*(team or ALONE))

    def read_where_they_lie(self, types: tuple[type, ...], kinds: Mapping[Any, int]) -> None:
        """Set which tensors `scan_tensor` can read.

        Parameters
        ----------
        types : tuple of type
            Of tensors with the interface of PyTorch's.
        kinds : mapping of dtype to int
            Indices in `ELEMENT_NAMES`.
        """
        self._tensors = types, dict(kinds)
        if self._rows is not None:
            self._rows.set_tensors(*self._tensors)

    def scan_tensor(self, slot_id: int, tensor: object, *, hashed: bool) -> bool:
        """Write the row of a slot from a tensor, if it can be read in place; else do nothing, and return False."""
        rows = self._rows
        return rows is not None and rows.write_tensor(slot_id, 0 if hashed else _NO_HASH, tensor)

    def has_row(self, slot_id: int) -> bool:
        """Whether the row of a slot was written in this iteration."""
        return slot_id < self._ready and bool(self._iterations[slot_id] == self._current_iteration)

    def has_changed(self, slot_id: int, tensor: object) -> bool:
        """Whether a tensor that `scan_tensor` can read has another content than when the step before ended.

        False if that is unknown: the row of the slot is older, or has no hash.
        """
        is_known = slot_id < self._ready and self._iterations[slot_id] == self._current_iteration - 1
        if not is_known or not self.has_hash(slot_id) or self._rows is None:
            return False
        if self._spare is None:
            self._spare = StatisticsColumns()
            self._spare.read_where_they_lie(*self._tensors)
            self._spare._compiled_rows()
        self._spare.team = self._team
        if not self._spare.scan_tensor(0, tensor, hashed=True):
            return False
        return bool(self._spare._counts[0, layout.HASH] != self._counts[slot_id, layout.HASH])

    def observer(
        self, seen: list[int], otherwise: Callable[..., None], books: Kept | None = None
    ) -> Callable[..., None]:
        """Return a function that observes tensors without calls of Python, if `scan_tensor` can read them.

        Parameters
        ----------
        seen : list of int
            Receives the slot ids.
        otherwise : callable (slot_id, tensor, need, same)
            Observes every other tensor.
        books : Kept, optional
            Records of kept values (`Retention.books`); without it ``otherwise`` gets tensors whose values are needed.
        """
        rows = self._rows or self._compiled_rows()
        return otherwise if rows is None else rows.observer(seen, otherwise, books).observe

    def reserve(self, slot_count: int) -> None:
        """Provide rows for this many slots; scans do so automatically.

        Raises
        ------
        InputError
            There are more than `MOST_ROWS`.
        """
        if slot_count <= self._ready:
            return
        if slot_count > MOST_ROWS:
            raise InputError(f"there are more than {MOST_ROWS:,} slots; those beyond have no statistics")
        with self._growing:
            start, end = self._ready, min(max(slot_count, 2 * self._ready), MOST_ROWS)
            if end > start:
                self._reals[start:end] = _FIRST_REALS
                self._iterations[start:end] = NEVER
                self._codes[start:end] = NO_TYPE
                self._shapes += [()] * (end - start)
                self.iteration = self._iterations[:end]
                self._ready = end
                if self._rows is not None:
                    self._rows.ready = end

    def scan(self, slot_id: int, array: NDArray[Any], *, hashed: bool = True) -> bool:
        """Write the row of a slot.

        Parameters
        ----------
        slot_id : int
        array : ndarray
            Of any shape, strides and byte order.
        hashed : bool
            Whether a content hash is needed; otherwise the row may be without one.

        Returns
        -------
        bool
            False if its dtype has no statistics; the row then stays as it is.
        """
        kind = self._kinds.get(array.dtype)
        if kind is None:
            kind = _kind_or_none(array.dtype)
            if kind is None:
                return False
            self._kinds[array.dtype] = kind
        if kind.is_native and array.flags.c_contiguous and array.size <= SEGMENT_ELEMENTS:
            self._scan_direct(slot_id, kind, array.ctypes.data, array.shape, array.size, hashed)
        else:
            self._scan_any(slot_id, kind, array, hashed)
        return True

    def scan_address(
        self, slot_id: int, address: int, dtype: str, shape: tuple[int, ...], count: int, *, hashed: bool = True
    ) -> bool:
        """Write the row of a slot from the address of its elements.

        Parameters
        ----------
        slot_id : int
        address : int
            Of the elements, in C order without gaps and native byte order; they must stay there during the scan.
        dtype : str
            NumPy's name, or that of ml_dtypes.
        shape : tuple of int
        count : int
            Number of elements.
        hashed : bool
            Whether a content hash is needed; otherwise the row may be without one.

        Returns
        -------
        bool
            False if the dtype has no statistics; the row then stays as it is.
        """
        kind, rows = _BY_NAME.get(dtype), self._rows
        if kind is None:
            return False
        if rows is not None and rows.write(slot_id, kind.code, address, count, 0 if hashed else _NO_HASH, shape):
            return True
        if count <= SEGMENT_ELEMENTS:
            self._scan_direct(slot_id, kind, address, shape, count, hashed)
        else:
            self._scan_any(slot_id, kind, array_at(address, kind.element, shape, count), hashed)
        return True

    def scan_strided(
        self, slot_id: int, address: int, dtype: str, shape: tuple[int, ...], strides: tuple[int, ...], *, hashed: bool
    ) -> bool:
        """Write the row of a slot from elements that are not contiguous, without a copy of them.

        Parameters
        ----------
        slot_id : int
        address : int
            Of the first element; they must stay there during the scan.
        dtype : str
            NumPy's name, or that of ml_dtypes.
        shape : tuple of int
        strides : tuple of int
            In elements, none below 0.
        hashed : bool
            Whether a content hash is needed; otherwise the row may be without one.

        Returns
        -------
        bool
            False if they must be made contiguous first; the row then stays as it is.
        """
        kind, count, axes = _BY_NAME.get(dtype), math.prod(shape), merged_axes(shape, strides)
        rows = self._rows or self._compiled_rows()
        if kind is None or kind.is_double or rows is None or not count or not axes:
            return False
        self.reserve(slot_id + 1)
        first_block = 0 if hashed else _NO_HASH
        return rows.write(slot_id, kind.code, address, count, first_block, shape, *chain.from_iterable(axes))

    def scan_segments(
        self, slot_id: int, dtype: str, shape: tuple[int, ...], segments: Iterable[NDArray[Any]], *, hashed: bool = True
    ) -> bool:
        """Write the row of a slot from a tensor that is never in memory as a whole.

        Parameters
        ----------
        slot_id : int
        dtype : str
            NumPy's name, or that of ml_dtypes.
        shape : tuple of int
        segments : iterable of ndarray
            Its elements in C order, 1-D, ``SEGMENT_ELEMENTS`` at a time; each is scanned before the next is requested.
        hashed : bool
            Whether a content hash is needed; otherwise the row may be without one.

        Returns
        -------
        bool
            False if the dtype has no statistics; the row then stays as it is.
        """
        kind = _BY_NAME.get(dtype)
        if kind is None:
            return False
        self._scan_segments(slot_id, kind, shape, segments, hashed)
        return True

    def copy_row(
        self, source: int, target: int, of: StatisticsColumns | None = None, shape: tuple[int, ...] | None = None
    ) -> None:
        """Copy the row of one slot to another, by default within these columns.

        Parameters
        ----------
        source, target : int
            Slot ids of the same elements in the same order.
        of : StatisticsColumns, optional
            Columns that contain the source; these by default.
        shape : tuple of int, optional
            Of the target; that of the source by default.
        """
        if of is None and self._rows is not None and self._rows.copy(source, target, shape):
            return
        rows = of or self
        self.reserve(target + 1)
        self._reals[target] = rows._reals[source]
        self._counts[target] = rows._counts[source]
        shape = rows._shapes[source] if shape is None else shape
        self._mark(target, int(rows._codes[source]), shape, int(rows._exponents[source]))

    def put(self, slot_id: int, statistics: TensorStatistics) -> None:
        """Write the row of a slot from statistics that were computed elsewhere."""
        self.reserve(slot_id + 1)
        self._reals[slot_id], self._counts[slot_id] = raw_row(statistics)
        self._mark(slot_id, _BY_NAME[statistics.dtype].code, statistics.shape, 0)

    def take(self, slot_ids: ArrayLike) -> Rows:
        """Return a copy of the rows of slots, in their order."""
        ids = np.asarray(slot_ids, np.int64)
        if ids.size:
            self.reserve(int(ids.max()) + 1)
        shapes = self._shapes
        return Rows(
            codes=self._codes[ids],
            reals=self._reals[ids],
            raw_counts=self._counts[ids],
            exponents=self._exponents[ids],
            slot_ids=ids,
            iterations=self._iterations[ids],
            shapes=[shapes[slot_id] for slot_id in ids.tolist()],
        )

    def columns(self, slot_ids: ArrayLike) -> dict[Any, NDArray[Any]]:
        """Return the statistics of slots by name, for the evaluation of watchpoints; see `Rows.columns`."""
        return self.take(slot_ids).columns()

    def statistics(self, slot_id: int) -> TensorStatistics | None:
        """Return the row of a slot; None if it was never written."""
        return next(self.take([slot_id]).statistics())

    def non_finite(self, slot_id: int) -> bool:
        """Whether the row of a slot counts NaN or infinite elements."""
        return slot_id < self._ready and bool(self._counts[slot_id, layout.NAN : layout.POSITIVE_INFINITE + 1].any())

    def is_non_finite(self, slot_id: int) -> bool:
        """Return whether the row of a slot, written in this iteration, counts NaN or Inf."""
        if not self.has_row(slot_id):
            return False
        return bool(self._counts[slot_id, layout.NAN : layout.POSITIVE_INFINITE + 1].any())

    def anomalies(self, slot_count: int) -> NDArray[np.bool_]:
        """Return which of the first slots have a row of this iteration with NaN, Inf or exploded values.

        Parameters
        ----------
        slot_count : int
            Their number.
        """
        slot_count = min(slot_count, self._ready)
        counts, reals = self._counts[:slot_count], self._reals[:slot_count]
        non_finite = counts[:, layout.NAN : layout.POSITIVE_INFINITE + 1].any(axis=1)
        largest = np.maximum(reals[:, layout.MAXIMUM], -reals[:, layout.MINIMUM])
        is_anomaly: NDArray[np.bool_] = non_finite | (largest > EXPLOSION_LIMIT) & _IS_FLOAT[self._codes[:slot_count]]
        is_anomaly &= self._iterations[:slot_count] == self.current_iteration
        return is_anomaly

    def has_hash(self, slot_id: int) -> bool:
        """Whether the row of a slot has a content hash."""
        return slot_id < self._ready and bool(self._counts[slot_id, layout.HASH])

    def _mark(self, slot_id: int, code: int, shape: tuple[int, ...], exponent: int) -> None:
        self._shapes[slot_id] = shape
        self._codes[slot_id] = code
        self._exponents[slot_id] = exponent
        self._iterations[slot_id] = self.current_iteration

    def _scan_direct(
        self, slot_id: int, kind: _Kind, address: int, shape: tuple[int, ...], count: int, hashed: bool
    ) -> None:
        """Scan at most a segment of elements that the kernel can read in place."""
        rows = self._rows or self._compiled_rows()
        if rows is None:
            self._scan_any(slot_id, kind, array_at(address, kind.element, shape, count), hashed)
            return
        if slot_id >= self._ready:
            self.reserve(slot_id + 1)
        if not rows.write(slot_id, kind.code, address, count, 0 if hashed else _NO_HASH, shape):
            exponent = self._rescan(slot_id, array_at(address, kind.element, (count,), count), kind)
            self._mark(slot_id, kind.code, shape, exponent)

    def _scan_any(self, slot_id: int, kind: _Kind, array: NDArray[Any], hashed: bool) -> None:
        """Scan elements that must be copied or joined first, or for which there are no kernels."""
        if array.size > SEGMENT_ELEMENTS:
            self._scan_segments(slot_id, kind, array.shape, segments_of(array), hashed)
            return
        self.reserve(slot_id + 1)
        elements = as_native(array, kind.element)
        if self._rows is not None or self._compiled_rows() is not None:
            self._scan_direct(slot_id, kind, elements.ctypes.data, array.shape, elements.size, hashed)
            return
        reals, counts = self._reals[slot_id], self._counts[slot_id]
        reals[:] = _FIRST_REALS
        counts[:] = 0
        portable.scan(elements, kind.element, 0, (), reals, counts)
        exponent = self._rescan(slot_id, elements, kind) if kind.is_double else 0
        self._mark(slot_id, kind.code, array.shape, exponent)

    def _scan_segments(
        self, slot_id: int, kind: _Kind, shape: tuple[int, ...], segments: Iterable[NDArray[Any]], hashed: bool
    ) -> None:
        self.reserve(slot_id + 1)
        team = self.team
        parts = [scan_segment(segment, index, hashed=hashed, team=team) for index, segment in enumerate(segments)]
        whole = joined(parts)
        row = self._counts[slot_id]
        row[layout.FINITE], row[layout.NAN] = whole.finite, whole.nan
        row[layout.NEGATIVE_INFINITE], row[layout.POSITIVE_INFINITE] = whole.negative_infinite, whole.positive_infinite
        row[layout.NEGATIVE], row[layout.POSITIVE] = whole.negative, whole.positive
        row.view(np.uint64)[layout.HASH] = whole.block_hashes & (2**64 - 1)
        reals = self._reals[slot_id]
        reals[layout.TOTAL], reals[layout.ABSOLUTE_TOTAL] = whole.total, whole.absolute_total
        reals[layout.SQUARED_DEVIATION] = whole.squared_deviation
        reals[layout.MINIMUM], reals[layout.MAXIMUM] = whole.minimum, whole.maximum
        self._mark(slot_id, kind.code, shape, whole.exponent)

    def _rescan(self, slot_id: int, elements: NDArray[Any], kind: _Kind) -> int:
        """Sum again if squares left the range of float64; return the exponent of the scale."""
        reals = self._reals[slot_id].tolist()
        exponent = rescan_if_out_of_range(elements, kind.element, reals)
        if exponent:
            self._reals[slot_id] = reals
        return exponent

    def _compiled_rows(self) -> CompiledRows | None:
        """Return the compiled writer of rows, if there are kernels; it is kept once there is one."""
        compiled = kernels()
        if compiled is not None:
            rows = compiled.Rows(
                self._reals.ctypes.data,
                self._counts.ctypes.data,
                self._iterations.ctypes.data,
                self._codes.ctypes.data,
                self._exponents.ctypes.data,
                self._shapes,
            )
            rows.ready, rows.iteration = self._ready, self._current_iteration
            rows.set_team(*(self._team or ALONE))
            rows.set_tensors(*self._tensors)
            self._rows = rows
        return self._rows


def _rows_in_memory(dtype: Any, width: int) -> NDArray[Any]:
    """Return rows of zeros, of which only those written to take memory. A forked process has its own."""
    size_bytes = MOST_ROWS * width * np.dtype(dtype).itemsize
    memory = mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE)
    rows: NDArray[Any] = np.frombuffer(memory, dtype)
    return rows.reshape(MOST_ROWS, width)


def _kind_or_none(dtype: np.dtype[Any]) -> _Kind | None:
    try:
        return _kind(dtype)
    except InputError:
        return None


def array_at(address: int, element: ElementType, shape: tuple[int, ...], count: int) -> NDArray[Any]:
    """Return an array over memory that belongs to other code."""
    dtype: np.dtype[Any] = np.dtype(np.bool_) if element.is_bool else element.native
    if not count:
        return np.empty(shape, dtype)
    memory = (ctypes.c_char * (count * dtype.itemsize)).from_address(address)
    array: NDArray[Any] = np.frombuffer(memoryview(memory), dtype, count)
    return array.reshape(shape)
