"""The memory that this process may still take."""

from __future__ import annotations

import resource
from contextlib import suppress
from pathlib import Path

_PAGE_BYTES = resource.getpagesize()
_CGROUP_2 = Path("/sys/fs/cgroup")
_CGROUP_1 = Path("/sys/fs/cgroup/memory")
_UNKNOWN_BYTES = 2**30
"""Assumed to be free if the system does not tell."""


def free_bytes() -> int:
    """Return the memory that is free for this process, within the machine, its container and its own limits.

    Memory that only caches files counts as free, because the system releases it on demand.
    """
    amounts = [bytes_ for bytes_ in (_machine(), _container(), _limits()) if bytes_ is not None]
    return max(min(amounts, default=_UNKNOWN_BYTES), 0)


def _machine() -> int | None:
    with suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/meminfo").read_text("ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return None


def _container() -> int | None:
    for folder, limit, used, cache in (
        (_CGROUP_2, "memory.max", "memory.current", "inactive_file"),
        (_CGROUP_1, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ):
        with suppress(OSError, ValueError):  # "max" where there is no limit
            most = int((folder / limit).read_text("ascii"))
            return most - int((folder / used).read_text("ascii")) + _cached(folder / "memory.stat", cache)
    return None


def _cached(file: Path, name: str) -> int:
    with suppress(OSError, ValueError):
        for line in file.read_text("ascii").splitlines():
            word, _, number = line.partition(" ")
            if word == name:
                return int(number)
    return 0


def _limits() -> int | None:
    amounts = []
    with suppress(OSError, ValueError, IndexError):
        pages, _, *_rest = map(int, Path("/proc/self/statm").read_text("ascii").split())
        used = {resource.RLIMIT_AS: pages, resource.RLIMIT_DATA: _rest[3]}
        for limit, taken in used.items():
            most = resource.getrlimit(limit)[0]
            if most != resource.RLIM_INFINITY:
                amounts.append(most - taken * _PAGE_BYTES)
    return min(amounts, default=None)
