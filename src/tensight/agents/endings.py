"""How a training has ended: by itself, or by an exception, as far as the interpreter tells."""

from __future__ import annotations

import sys

_MOST_TEXT = 300


def is_interactive() -> bool:
    """Whether a person types what is run, in a notebook or at a prompt: an exception then ends a part of it only."""
    return hasattr(sys, "ps1")


def uncaught() -> BaseException | None:
    """Return the exception that ends this process, as the interpreter knows while it ends."""
    return None if is_interactive() else getattr(sys, "last_value", None)


def described(error: BaseException | None) -> str:
    """Return an exception in a line; empty if there is none, or it is how a script ends in an orderly way.

    Parameters
    ----------
    error : BaseException or None
    """
    if error is None or (isinstance(error, SystemExit) and error.code in (None, 0)):
        return ""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:_MOST_TEXT]}" if text else type(error).__name__
