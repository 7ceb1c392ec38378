"""What the tests of engines compute: functions of a module, as workers need them."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

from tensight.errors import InputError


def doubled(number: int) -> int:
    return 2 * number


def raising(number: int) -> int:
    if number == 3:
        raise InputError("task 3 is wrong")
    return number


def killed_once(folder: Path, number: int) -> int:
    """Kill the process at the first attempt of one task."""
    if number == 4:
        try:
            (folder / "killed").touch(exist_ok=False)
        except FileExistsError:
            return 2 * number
        os.kill(os.getpid(), signal.SIGKILL)
    return 2 * number


def killed_with(deadly: int, number: int) -> int:
    if number == deadly:
        os.kill(os.getpid(), signal.SIGKILL)
    return 2 * number


def slow(folder: str) -> None:
    """Say which process this is, and go on until it is ended."""
    with open(f"{folder}/started", "a", encoding="utf-8") as file:
        file.write(f"{os.getpid()} ")
    threading.Event().wait()
