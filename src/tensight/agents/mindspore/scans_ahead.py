"""Scans large dumped tensors in a second thread, as soon as MindSpore has written them, while the training goes on.

Reading what was dumped takes as long as moving it through memory. A thread that reads it while the next operators run
gets it from the processor's cache, and the training hardly waits for it. At the end of a step both threads scan what is
left: the training's thread starts with the oldest, this one with the newest. Its rows are kept apart until the tensors
are observed.
"""

from __future__ import annotations

import os
import select
import threading
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING

from tensight.agents.core.columns import StatisticsColumns
from tensight.agents.core.process.thread_priority import lower_thread_priority
from tensight.agents.core.slots import Need
from tensight.agents.mindspore.arrivals import Arrivals
from tensight.agents.mindspore.dumped import DumpedReader, DumpedTensor
from tensight.agents.mindspore.launches import LaunchFolder

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tensight.agents.mindspore.launches import Launch

LARGE_BYTES = 2**19
"""Minimum size of a file that is worth passing to another thread."""

_NICENESS = 5
_MOST_FOLDERS = 16
_MOST_NUDGES = 4096
_SCANNED, _HASH = int(Need.ROW | Need.FINITE), int(Need.HASH)
_Path = tuple[str, str]


def are_worth_waking(sizes: Sequence[int]) -> bool:
    """Return whether files of these sizes, in bytes, are worth waking a thread for each one while a graph runs.

    Waking the thread holds up threads of MindSpore, which wait for each other without sleeping: files must be large on
    average to make up for it.
    """
    return sum(sizes) >= LARGE_BYTES * len(sizes)


class ScansAhead(threading.Thread):
    """A thread that scans what the training will observe.

    Parameters
    ----------
    needs : bytearray
        Of all slots (`SlotTable.needs`).
    """

    def __init__(self, needs: bytearray) -> None:
        super().__init__(name="tensight-scan", daemon=True)
        self._needs = needs
        self._columns = StatisticsColumns()
        self._reader = DumpedReader()
        self._changed = threading.Condition()
        self._waiting: dict[int, DumpedTensor] = {}
        self._busy: _Path | None = None
        self._scanned: dict[int, _Path] = {}
        self._expected: dict[int, dict[str, int]] = {}
        self._parents: set[str] = set()
        self._folders: dict[str, LaunchFolder] = {}
        self._arrivals: Arrivals | None = None
        with suppress(OSError):
            self._arrivals = Arrivals()
        self._woken, self._wake = os.pipe()
        os.set_blocking(self._wake, False)
        self._is_over = False

    def expect(self, launch: Launch, slot_ids: dict[str, int]) -> None:
        """Scan large tensors of a graph from its next launch on.

        Parameters
        ----------
        launch : Launch
            A launch that was dumped.
        slot_ids : dict of str to int
            Of the tensors, by their keys (`Launch.keys`).
        """
        self._expected[launch.graph] = slot_ids
        parent = os.path.dirname(launch.folder)
        if self._arrivals is not None and parent not in self._parents:
            self._parents.add(parent)
            with suppress(OSError):
                self._arrivals.watch(parent)

    def begin(self, tensors: Iterable[tuple[int, DumpedTensor]]) -> None:
        """Scan those of a step's large tensors that have not been scanned.

        Parameters
        ----------
        tensors : iterable of (slot_id, tensor)
            In the order in which they will be observed, each slot once.
        """
        with self._changed:
            for slot_id, tensor in tensors:
                tensor.ahead = _Ahead(self, slot_id)
                path = _path_of(tensor)
                is_known = path in (self._busy, self._scanned.get(slot_id))
                if not is_known and self._needs[slot_id] & _SCANNED:
                    self._let_wait(slot_id, tensor)
        self._nudge()

    def share(self, slot_id: int, tensor: DumpedTensor) -> None:
        """Let a tensor use the row that another slot has for the same file."""
        tensor.ahead = _Ahead(self, slot_id)

    def row(self, slot_id: int, tensor: DumpedTensor) -> StatisticsColumns | None:
        """Return the columns whose row of a slot is that of a tensor; None if it was not scanned."""
        path = _path_of(tensor)
        with self._changed:
            if self._waiting.pop(slot_id, None) is not None:
                return None
            while self._busy == path:
                self._changed.wait()
            return self._columns if self._scanned.get(slot_id) == path else None

    def forget(self) -> None:
        """Forget rows and waiting tensors: they belong to a step that is over."""
        with self._changed:
            self._waiting.clear()
            self._scanned.clear()

    def close(self) -> None:
        """End the thread."""
        self._is_over = True
        self._nudge()
        self.join()
        os.close(self._woken)
        os.close(self._wake)
        if self._arrivals is not None:
            self._arrivals.close()
        for folder in self._folders.values():
            folder.close()

    def _let_wait(self, slot_id: int, tensor: DumpedTensor) -> None:
        """Put a tensor before all others, replacing an older one of its slot."""
        self._waiting.pop(slot_id, None)
        self._waiting[slot_id] = tensor

    def _nudge(self) -> None:
        with suppress(BlockingIOError):
            os.write(self._wake, b"\0")

    # --- in the thread ---

    def run(self) -> None:
        """Scan what arrives, until the end."""
        lower_thread_priority(_NICENESS)
        news = select.poll()
        news.register(self._woken, select.POLLIN)
        if self._arrivals is not None:
            news.register(self._arrivals, select.POLLIN)
        while not self._is_over:
            for descriptor, _ in news.poll(0 if self._waiting else None):
                if descriptor == self._woken:
                    os.read(descriptor, _MOST_NUDGES)
                elif self._arrivals is not None:
                    self._sort(self._arrivals.news())
            self._scan_newest()

    def _sort(self, arrived: list[tuple[str, str]]) -> None:
        """Scan those of the files that arrived which will be observed."""
        needs = self._needs
        expected = chain.from_iterable(slot_ids.values() for slot_ids in list(self._expected.values()))
        if not any(needs[slot_id] & _SCANNED for slot_id in expected):
            return
        for path, name in arrived:
            with suppress(OSError, ValueError):
                folder = self._folders.get(path) or self._enter(path)
                dumped = folder.launch([name])
                launch = None if dumped is None else dumped[1]
                slot_id = -1 if launch is None else self._expected.get(launch.graph, {}).get(launch.keys[0], -1)
                if launch is not None and slot_id >= 0 and needs[slot_id] & _SCANNED:
                    with self._changed:
                        self._let_wait(slot_id, DumpedTensor(launch, 0))

    def _enter(self, path: str) -> LaunchFolder:
        graph, iteration = map(int, path.split("/")[-2:])
        folder = self._folders[path] = LaunchFolder(graph, iteration, path, is_private=False, counts_entries=False)
        if len(self._folders) > _MOST_FOLDERS:
            self._folders.pop(next(iter(self._folders))).close()
        return folder

    def _scan_newest(self) -> None:
        with self._changed:
            if not self._waiting:
                return
            slot_id, tensor = self._waiting.popitem()
            path = self._busy = _path_of(tensor)
            self._scanned.pop(slot_id, None)
        try:
            done = self._reader.scan_here(tensor, self._columns, slot_id, hashed=self._needs[slot_id] & _HASH != 0)
        except Exception:
            done = False
        with self._changed:
            if done:
                self._scanned[slot_id] = path
            self._busy = None
            self._changed.notify_all()


def _path_of(tensor: DumpedTensor) -> _Path:
    return tensor.files.folder.path, tensor.name


class _Ahead:
    """The rows of another thread, for one tensor."""

    __slots__ = ("_scans", "_slot_id")

    def __init__(self, scans: ScansAhead, slot_id: int) -> None:
        self._scans = scans
        self._slot_id = slot_id

    def scanned(self, tensor: DumpedTensor, columns: StatisticsColumns, slot_id: int, *, hashed: bool) -> bool:
        """Write the row of a slot if the tensor was scanned; return whether it was."""
        rows = self._scans.row(self._slot_id, tensor)
        if rows is None or (hashed and not rows.has_hash(self._slot_id)):
            return False
        columns.copy_row(self._slot_id, slot_id, rows)
        return True

    def has_non_finite(self, tensor: DumpedTensor) -> bool | None:
        """Whether any value is NaN or Inf; None if it was not scanned."""
        rows = self._scans.row(self._slot_id, tensor)
        return None if rows is None else rows.non_finite(self._slot_id)
