"""The private folder for MindSpore's dump: its location, its lock, and its removal.

It is locked while its process lives. So the folders of killed processes are recognised with certainty, and removed when
the next training is debugged.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import stat
import tempfile
from contextlib import suppress

from tensight.agents.core.process.memory import free_bytes
from tensight.errors import InputError

MEMORY_BACKED = "/dev/shm"  # noqa: S108 - the folder in it is made by mkdtemp
PREFIX = "tensight-ring-"

LEAST_FREE_BYTES = 2**30
"""Minimum room. Containers have 64 MiB by default, which is too little for the tensors of three steps."""

_ALLOWED = re.compile(r"[A-Za-z0-9_/.-]+", re.ASCII)
"""Characters that MindSpore allows in the path of a dump."""

_ELSEWHERE = ("/var/tmp", "/tmp")  # noqa: S108 - where TMPDIR cannot be used


class RingFolder:
    """A folder that only this process uses.

    Parameters
    ----------
    base : str
        Folder in which it is created.

    Attributes
    ----------
    path : str

    Raises
    ------
    OSError
        It cannot be created.
    """

    def __init__(self, base: str) -> None:
        while True:
            self.path = tempfile.mkdtemp(prefix=PREFIX, dir=base)
            self._lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            with suppress(OSError):  # some network disks have no locks; their folders are never removed as stale
                fcntl.flock(self._lock, fcntl.LOCK_EX)
            # Before it was locked, another process may have removed it as stale.
            if os.fstat(self._lock).st_nlink:
                return
            os.close(self._lock)

    def remove(self) -> None:
        """Remove the folder with everything in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        self.let_go()

    def let_go(self) -> None:
        """Release the lock in this process; a process that shares the lock keeps it."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def make_folder() -> tuple[RingFolder, str]:
    """Create the folder in memory if there is room, else on disk.

    Returns
    -------
    RingFolder
    str
        What the user should know about its location; empty if it is in memory.

    Raises
    ------
    InputError
        There is no usable location.
    """
    room = free_on(MEMORY_BACKED)
    why = f"{MEMORY_BACKED} is not there"
    if room is not None:
        why = f"{MEMORY_BACKED} has only {room / 2**20:,.0f} MiB left"
        if room >= LEAST_FREE_BYTES:
            with suppress(OSError):
                return RingFolder(MEMORY_BACKED), ""
            why = f"{MEMORY_BACKED} cannot be written to"
    for base in _on_disk():
        with suppress(OSError):
            folder = RingFolder(base)
            return folder, (
                f"MindSpore writes the tensors of each step to {folder.path}, because {why}; that is slower if it is"
                " a disk. Give the container more shared memory (docker run --shm-size=8g), or set TMPDIR to a folder"
                " that lies in memory"
            )
    raise InputError(
        f"there is no folder for the tensors of a step: {why}, and the temporary folder {tempfile.gettempdir()} cannot"
        " be used. Set TMPDIR to a folder that can be written to; MindSpore allows letters, digits and -_/. in its path"
    )


def remove_stale() -> int:
    """Remove the folders of processes that have ended, of this user only; return their number."""
    removed = 0
    for base in dict.fromkeys((MEMORY_BACKED, *_on_disk())):
        try:
            names = os.listdir(base)
        except OSError:
            continue
        removed += sum(_remove_if_stale(os.path.join(base, name)) for name in names if name.startswith(PREFIX))
    return removed


def free_on(path: str) -> int | None:
    """Return how many bytes may still be written in a folder; None if it does not exist.

    Files in memory also count towards the limits of the container.
    """
    room = free_on_disk(path)
    return room if room is None or not path.startswith(MEMORY_BACKED) else min(room, free_bytes())


def free_on_disk(path: str) -> int | None:
    """Return the free bytes on the disk of a folder; None if it does not exist."""
    try:
        system = os.statvfs(path)
    except OSError:
        return None
    return system.f_bavail * system.f_frsize


def is_in_ring(path: str) -> bool:
    """Whether a path leads into a private folder of any process."""
    folders = os.path.abspath(path).split(os.sep)[:-1]
    return any(folder.startswith(PREFIX) for folder in folders)


def _on_disk() -> list[str]:
    """Return the base folders on disk that can be used, the best first."""
    bases = map(os.path.realpath, (tempfile.gettempdir(), *_ELSEWHERE))
    return [base for base in dict.fromkeys(bases) if _ALLOWED.fullmatch(base)]


def _remove_if_stale(path: str) -> bool:
    try:
        lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        status = os.fstat(lock)
        if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o077:
            return False
        # Fails while the process that created it lives. While we hold the lock, no other process removes the folder.
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(path, ignore_errors=True)
        return not os.path.lexists(path)
    except OSError:
        return False
    finally:
        os.close(lock)
