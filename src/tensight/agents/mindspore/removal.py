"""Removes the files of launches: small ones at once, large ones while the training goes on.

Freeing the memory of large files takes longer than reading them, and needs no interpreter lock. Passing small files to
another thread takes longer than removing them.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from queue import SimpleQueue
from typing import TYPE_CHECKING

from tensight.agents.core.process.thread_priority import lower_thread_priority
from tensight.agents.mindspore.launches import unlink

if TYPE_CHECKING:
    from tensight.agents.mindspore.launches import LaunchFolder

LARGE_BYTES = 2**21
"""Launches of at least this size are removed in the background."""

_MOST_WAITING = 3
"""Launches; then the training waits, because memory would fill up."""

_NICENESS = 10

_Task = tuple["LaunchFolder", list[str]]


class Removal:
    """Removes files of folders, on behalf of the training's thread."""

    def __init__(self) -> None:
        self._sizes: dict[tuple[int, int], int] = {}
        self._tasks: SimpleQueue[_Task | None] = SimpleQueue()
        self._room = threading.Semaphore(_MOST_WAITING)
        self._removed: deque[_Task] = deque()
        self._thread: threading.Thread | None = None

    def remove(self, folder: LaunchFolder, names: list[str]) -> bool:
        """Remove files of a folder; return whether they are gone. If not, `removed` returns them later."""
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
        """Return what was removed in the background since the last call."""
        tasks = []
        while self._removed:
            tasks.append(self._removed.popleft())
        return tasks

    def size_bytes(self, folder: LaunchFolder, names: list[str]) -> int:
        """Return the approximate size of files, which hardly changes between launches of a graph."""
        kind = folder.graph, len(names)
        size = self._sizes.get(kind)
        if size is None:
            size = self._sizes[kind] = sum(_size_bytes(name, folder.descriptor) for name in names)
        return size

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
