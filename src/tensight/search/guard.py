"""Ends the processes of a search if the search itself is killed; run as a script, by any Python.

The search writes a line ``add PID`` for each process group, ``remove PID`` when the group has ended, ``folder PATH``
for a temporary folder, and ``end`` when it has ended everything itself. If the search goes away earlier, for whatever
reason, the guard reads the end of its input and ends what is left: the groups, and every process that has inherited
the mark of the search, the guard's first argument, in the environment variable `MARK`. A child of the search keeps its
end of the pipe open until it executes its own program, so none is missed between its start and its ``add`` line.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import time

MARK = "TENSIGHT_SEARCH_MARK"
"""Environment variable of all processes that a search starts."""

GRACE_S = 5.0


def guard(mark: str) -> None:
    """Read until the search has gone, then end the processes that it has left.

    Parameters
    ----------
    mark : str
        Value of the variable `MARK` in the processes of the search.
    """
    groups: set[int] = set()
    folders: set[str] = set()
    for line in sys.stdin:
        word, _, rest = line.rstrip("\n").partition(" ")
        if word == "end":
            return
        if word == "folder":
            folders.add(rest)
        elif word == "add":
            groups.add(int(rest))
        else:
            groups.discard(int(rest))
    groups |= _marked(mark)
    _signal(groups, signal.SIGTERM)
    end = time.monotonic() + GRACE_S
    while groups and time.monotonic() < end:
        time.sleep(0.05)
        groups = {group for group in groups if _is_there(group)}
    _signal(groups | _marked(mark), signal.SIGKILL)
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


def _marked(mark: str) -> set[int]:
    """Return the process groups of all processes that have inherited the mark; empty without /proc."""
    variable = f"{MARK}={mark}".encode()
    groups: set[int] = set()
    with contextlib.suppress(OSError):
        for name in os.listdir("/proc"):
            with contextlib.suppress(OSError, ValueError):
                process = int(name)
                with open(f"/proc/{process}/environ", "rb") as file:
                    if variable in file.read().split(b"\0"):
                        groups.add(os.getpgid(process))
    return groups


def _signal(groups: set[int], number: int) -> None:
    for group in groups:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, number)


def _is_there(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


if __name__ == "__main__":
    # Ctrl-C is meant for the search, which ends its trials itself.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    guard(sys.argv[1])
