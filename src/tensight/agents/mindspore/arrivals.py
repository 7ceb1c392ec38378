"""Reports files that have just been written to subfolders of watched folders, through Linux's inotify.

Python libraries for inotify start a process to locate the C library, which we must not do in a user's training.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import struct

_CLOSED_AFTER_WRITING, _CREATED, _IS_FOLDER, _ONLY_FOLDERS = 0x8, 0x100, 0x40000000, 0x01000000
_GONE = 0x8000
_EVENT = struct.Struct("iIII")
_AT_ONCE_BYTES = 2**16


class Arrivals:
    """Files that are written to the iteration folders of graphs. It can be polled like a file.

    Raises
    ------
    OSError
        The system has no inotify, or the limit of this user is reached.
    """

    def __init__(self) -> None:
        try:
            self._system = ctypes.CDLL(None, use_errno=True)
            self._descriptor: int = self._system.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
        except (AttributeError, TypeError) as error:
            raise OSError(errno.ENOSYS, "there is no inotify here") from error
        if self._descriptor < 0:
            raise _last_error()
        self._parents: dict[int, str] = {}
        self._folders: dict[int, str] = {}

    def fileno(self) -> int:
        """Return the file descriptor that becomes readable when there is news."""
        return self._descriptor

    def watch(self, parent: str) -> None:
        """Report files that are written to subfolders of a folder; only subfolders that are created from now on."""
        self._parents[self._add(parent, _CREATED)] = parent

    def news(self) -> list[tuple[str, str]]:
        """Return folder and name of each file that was closed after writing, oldest first."""
        files: list[tuple[str, str]] = []
        with contextlib.suppress(BlockingIOError):
            while events := os.read(self._descriptor, _AT_ONCE_BYTES):
                self._sort(events, files)
        return files

    def close(self) -> None:
        """Stop watching."""
        os.close(self._descriptor)

    def _sort(self, events: bytes, files: list[tuple[str, str]]) -> None:
        at = 0
        while at < len(events):
            watch, mask, _, name_bytes = _EVENT.unpack_from(events, at)
            at += _EVENT.size + name_bytes
            if mask & _GONE:
                self._folders.pop(watch, None)
                continue
            name = os.fsdecode(events[at - name_bytes : at].rstrip(b"\0"))
            if mask & _IS_FOLDER and watch in self._parents:
                folder = f"{self._parents[watch]}/{name}"
                with contextlib.suppress(OSError):  # it may be gone already
                    self._folders[self._add(folder, _CLOSED_AFTER_WRITING)] = folder
            elif watch in self._folders:
                files.append((self._folders[watch], name))

    def _add(self, folder: str, mask: int) -> int:
        watch: int = self._system.inotify_add_watch(self._descriptor, os.fsencode(folder), mask | _ONLY_FOLDERS)
        if watch < 0:
            raise _last_error()
        return watch


def _last_error() -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))
