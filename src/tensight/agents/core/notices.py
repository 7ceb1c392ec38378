"""Messages to the user in the terminal: single lines on stderr, never an exception.

They go through the logger ``tensight.agents``, so that a script can redirect them or turn them off: the course of
debugging (`report`) has the level INFO, what the user should know (`log`) the level WARNING.
"""

from __future__ import annotations

import logging
import select
import sys
import threading
import time
import unicodedata
from contextlib import suppress
from typing import TextIO

LOGGER = "tensight.agents"

_MOST_REMEMBERED = 1_000
_BURST_S = 0.1
"""Lines at shorter intervals follow each other directly, without a progress bar between them."""

_logged: set[str] = set()
_quieted = threading.Event()


class _Stderr(logging.StreamHandler):  # type: ignore[type-arg]
    """Writes to the current stderr; if that is closed or full, the training is not disturbed."""

    def __init__(self) -> None:
        super().__init__(sys.stderr)
        self.setFormatter(logging.Formatter("tensight: %(message)s"))
        self._written_s = 0.0

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        if self.stream is not None and _has_room(self.stream):
            super().emit(record)
            self._written_s = time.monotonic()

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        encoding = getattr(self.stream, "encoding", None) or "utf-8"
        text = text.encode(encoding, "backslashreplace").decode(encoding, "replace")
        follows = time.monotonic() - self._written_s < _BURST_S
        return f"\n{text}" if _has_bar() and not follows else text

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802, ARG002 - logging's name
        return


def log(text: str) -> None:
    """Write a line that the user should know."""
    _write(logging.WARNING, text)


def log_once(text: str) -> None:
    """Write a line unless the same line was written before."""
    if text not in _logged and len(_logged) < _MOST_REMEMBERED:
        _logged.add(text)
        log(text)


def report(text: str) -> None:
    """Write a line about the ordinary course of debugging."""
    _write(logging.INFO, text)


def set_quiet(*, is_quiet: bool) -> None:
    """Suppress the lines of `report` from now on, or write them again if they were suppressed here.

    A level that the script has given to the logger stays.
    """
    logger = _logger()
    before, after = (logging.INFO, logging.WARNING) if is_quiet else (logging.WARNING, logging.INFO)
    if is_quiet != _quieted.is_set() and logger.level == before:
        logger.setLevel(after)
        (_quieted.set if is_quiet else _quieted.clear)()


def _write(level: int, text: str) -> None:
    _logger().log(level, "%s", "".join(map(_visible, " ".join(text.split("\n")))))


def _logger() -> logging.Logger:
    logger = logging.getLogger(LOGGER)
    if not logger.handlers:
        logger.addHandler(_Stderr())
        logger.propagate = False
        if logger.level == logging.NOTSET:
            logger.setLevel(logging.INFO)
    return logger


def _visible(char: str) -> str:
    """Return a character in a form that a terminal displays and does not interpret."""
    is_command = unicodedata.category(char)[0] == "C" and char != "\t"
    return ascii(char)[1:-1] if is_command else char


def _has_room(stream: TextIO) -> bool:
    """Whether a line can be written without blocking: a pipe that is not read fills up."""
    try:
        descriptor = stream.fileno()
    except (OSError, ValueError, AttributeError):
        # For example, the stream of a notebook.
        return True
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    return any(event & select.POLLOUT for _, event in poll.poll(0))


def _has_bar() -> bool:
    """Whether the terminal has a progress bar of tqdm, which leaves the cursor within a line."""
    tqdm = getattr(sys.modules.get("tqdm.std"), "tqdm", None)
    with suppress(Exception):
        return any(not (bar.disable or bar.gui) for bar in list(getattr(tqdm, "_instances", ())))
    return False
