"""What the agent tells the person at the terminal: single lines on stderr, never an exception.

They go through the logger ``tensight.agents``, so that a script can send them elsewhere or turn them off.
"""

from __future__ import annotations

import logging
import sys

LOGGER = "tensight.agents"

_MOST_REMEMBERED = 1_000

_said: set[str] = set()


class _Stderr(logging.StreamHandler):  # type: ignore[type-arg]
    """Writes to whatever stderr is at the moment; a closed one is no reason to disturb a training."""

    def __init__(self) -> None:
        super().__init__(sys.stderr)
        self.setFormatter(logging.Formatter("tensight: %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        if self.stream is not None:
            super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802, ARG002 - logging's name
        return


def say(text: str) -> None:
    """Write a line for the person who watches the training."""
    logger = logging.getLogger(LOGGER)
    if not logger.handlers:
        logger.addHandler(_Stderr())
        logger.propagate = False
        if logger.level == logging.NOTSET:
            logger.setLevel(logging.INFO)
    logger.info("%s", " ".join(text.split("\n")))


def say_once(text: str) -> None:
    """Write a line unless the same was written before."""
    if text not in _said and len(_said) < _MOST_REMEMBERED:
        _said.add(text)
        say(text)
