"""What the agent tells the person at the terminal: single lines on stderr, never an exception.

They go through the logger ``tensight.agents``, so that a script can send them elsewhere or turn them off: what happens
to the training (`report`) has the level INFO, what a person should know (`log`) the level WARNING.
"""

from __future__ import annotations

import logging
import select
import sys
import time
import unicodedata
from contextlib import suppress
from typing import TextIO

LOGGER = "tensight.agents"

_MOST_REMEMBERED = 1_000
_BURST_S = 0.1
"""Lines that are so near to each other follow each other, with no progress bar between them."""

_logged: set[str] = set()


class _Stderr(logging.StreamHandler):  # type: ignore[type-arg]
    """Writes to whatever stderr is at the moment; one that is closed or full is no reason to disturb a training."""

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
    """Write a line for the person who watches the training: something that they should know."""
    _write(logging.WARNING, text)


def log_once(text: str) -> None:
    """Write a line unless the same was written before."""
    if text not in _logged and len(_logged) < _MOST_REMEMBERED:
        _logged.add(text)
        log(text)


def report(text: str) -> None:
    """Write a line about what happens to the training in the ordinary course of debugging."""
    _write(logging.INFO, text)


def be_quiet() -> None:
    """Leave out what `report` is given, from now on."""
    _logger().setLevel(logging.WARNING)


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
    """Return a character as a terminal shows it, and does not obey it."""
    is_command = unicodedata.category(char)[0] == "C" and char != "\t"
    return ascii(char)[1:-1] if is_command else char


def _has_room(stream: TextIO) -> bool:
    """Whether a line can be written without waiting for whoever reads: a pipe that nobody reads is full one day."""
    try:
        descriptor = stream.fileno()
    except (OSError, ValueError, AttributeError):
        # A notebook's, for example.
        return True
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    return any(event & select.POLLOUT for _, event in poll.poll(0))


def _has_bar() -> bool:
    """Whether a progress bar of tqdm is in the terminal: it leaves the cursor within a line."""
    tqdm = getattr(sys.modules.get("tqdm.std"), "tqdm", None)
    with suppress(Exception):
        return any(not (bar.disable or bar.gui) for bar in list(getattr(tqdm, "_instances", ())))
    return False
