"""Exit codes of commands."""

from __future__ import annotations

FOUND, WRONG_INPUT, INTERRUPTED = 1, 2, 130
"""Exit codes besides 0: a check hit; the usage or the input is wrong; stopped with Ctrl-C."""


class Stopped(BaseException):
    """Ctrl-C was pressed during a command; typer would end silently on a KeyboardInterrupt."""
