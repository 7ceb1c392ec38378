"""Removes the files of launches: small ones at once, large ones while the training goes on.

To give the memory of large files back takes longer than to read them, and needs no interpreter. To hand small files to
another thread takes longer than to remove them.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from queue import SimpleQueue
from typing import TYPE_CHECKING

from tensight.agents.mindspore.launches import unlink
from tensight.agents.thread_priority import lower_thread_priority

if TYPE_CHECKING:
    from tensight.agents.mindspore.launches import LaunchFolder

LARGE_BYTES = 2**21
"""From here on a launch is removed in the background."""

_MOST_WAITING = 3
"""Launches; then the training waits, or memory would fill up."""

_NICENESS = 10

_Task = tuple["LaunchFolder", list[str]]


class Removal:
    """Removes files of folders, for the thread that trains."""

    def __init__(self) -> None:
        self._sizes: dict[tuple[int, int], int] = {}
        self._tasks: SimpleQueue[_Task | None] = SimpleQueue()
        self._room = threading.Semaphore(_MOST_WAITING)
        self._removed: deque[_Task] = deque()
        self._thread: threading.Thread | None = None

    def remove(self, folder: LaunchFolder, names: list[str]) -> bool:
        """Remove files of a folder; return whether they are gone. If not, `removed` tells when."""
        if self.size_bytes(folder, names) < LARGE_BYTES:
            unlink(names, folder.descriptor)
            return True
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="tensight-ring", daemon=True)
            self._thread.start()
        self._room.acquire()
        self._tasks.put((folder, names))
        return False

    def removed(self) -> list[_Task]:
        """Return what was removed in the background since."""
        found = []
        while self._removed:
            found.append(self._removed.popleft())
        return found

    def size_bytes(self, folder: LaunchFolder, names: list[str]) -> int:
        """Return about how much files take: those of a graph are alike from launch to launch."""
        kind = folder.graph, len(names)
        known = self._sizes.get(kind)
        if known is None:
            known = self._sizes[kind] = sum(_size_bytes(name, folder.descriptor) for name in names)
        return known

    def close(self) -> None:
        """Wait until everything is removed."""
        if self._thread is not None:
            self._tasks.put(None)
            self._thread.join()
            self._thread = None

    def _work(self) -> None:
        lower_thread_priority(_NICENESS)
        while True:
            task = self._tasks.get()
            if task is None:
                return
            folder, names = task
            unlink(names, folder.descriptor)
            self._removed.append(task)
            self._room.release()


def _size_bytes(name: str, descriptor: int) -> int:
    try:
        return os.stat(name, dir_fd=descriptor).st_size
    except OSError:
        return 0
