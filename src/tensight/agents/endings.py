"""How a training has ended: by itself, or by an exception, as far as the interpreter tells."""

from __future__ import annotations

import atexit
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_MOST_TEXT = 300


def is_interactive() -> bool:
    """Whether a person types what is run, in a notebook or at a prompt: an exception then ends a part of it only."""
    return hasattr(sys, "ps1")


def at_end(call: Callable[[], None]) -> None:
    """Have a function called when this process ends; what was given last is called first.

    Parameters
    ----------
    call : callable
        May be called twice.
    """
    atexit.register(call)
    process = sys.modules.get("multiprocessing.process")
    if process is not None and process.parent_process() is not None:
        # A child that was forked ends without the handlers of `atexit`.
        from multiprocessing.util import Finalize

        Finalize(None, call, exitpriority=0)


def uncaught() -> BaseException | None:
    """Return the exception that ends this process, as the interpreter knows while it ends."""
    if is_interactive():
        return None
    # The function of a child of `multiprocessing` is still being left.
    return sys.exc_info()[1] or getattr(sys, "last_value", None)


def described(error: BaseException | None) -> str:
    """Return an exception in a line; empty if there is none, or it is how a script ends in an orderly way.

    Parameters
    ----------
    error : BaseException or None
    """
    if isinstance(error, SystemExit):
        if error.code in (None, 0):
            return ""
        # Who has caught an exception, and ends the process for it.
        error = error.__context__ or error
    if error is None:
        return ""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:_MOST_TEXT]}" if text else type(error).__name__
