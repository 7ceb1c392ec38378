"""Ends what a search has started when the search itself is killed; run as a script, by any Python.

The search writes a line ``add PID`` for each process group, and ``remove PID`` when that has ended. When the search
goes away, in whatever manner, the end of the input is read, and the groups that are left are ended.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time

GRACE_S = 5.0


def guard() -> None:
    """Read until the search has gone, then end what it has left."""
    groups: set[int] = set()
    for line in sys.stdin:
        word, _, number = line.partition(" ")
        (groups.add if word == "add" else groups.discard)(int(number))
    _signal(groups, signal.SIGTERM)
    end = time.monotonic() + GRACE_S
    while groups and time.monotonic() < end:
        time.sleep(0.05)
        groups = {group for group in groups if _is_there(group)}
    _signal(groups, signal.SIGKILL)


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
    # Ctrl-C is for the search, which ends its trials itself.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    guard()
