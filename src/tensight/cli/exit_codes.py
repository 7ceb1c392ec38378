"""How commands end."""

from __future__ import annotations

FOUND, WRONG_INPUT, INTERRUPTED = 1, 2, 130
"""Exit codes beside 0: a check hit; the usage or the input is wrong; stopped by the person."""


class Stopped(BaseException):
    """The person pressed Ctrl-C during a command; at a KeyboardInterrupt typer would end without a word."""
