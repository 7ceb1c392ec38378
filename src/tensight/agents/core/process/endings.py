"""How a training has ended: normally, or with an exception, as far as the interpreter shows it."""

from __future__ import annotations

import atexit
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_MOST_TEXT = 300


def is_interactive() -> bool:
    """Whether code is typed in a notebook or at a prompt, where an exception ends only a part of it."""
    return hasattr(sys, "ps1")


def at_end(call: Callable[[], None]) -> None:
    """Call a function when this process ends; the function that was registered last is called first.

    Parameters
    ----------
    call : callable
        May be called twice.
    """
    atexit.register(call)
    process = sys.modules.get("multiprocessing.process")
    if process is not None and process.parent_process() is not None:
        # A forked child ends without the handlers of `atexit`.
        from multiprocessing.util import Finalize

        Finalize(None, call, exitpriority=0)


def uncaught() -> BaseException | None:
    """Return the exception that ends this process, according to the interpreter."""
    if is_interactive():
        return None
    # In a child of `multiprocessing`, its function has not returned yet.
    return sys.exc_info()[1] or getattr(sys, "last_value", None)


def described(error: BaseException | None) -> str:
    """Return an exception as one line; empty if there is none, or if it ends a script normally.

    Parameters
    ----------
    error : BaseException or None
    """
    if isinstance(error, SystemExit):
        if error.code in (None, 0):
            return ""
        # The script has caught an exception, and exits because of it.
        error = error.__context__ or error
    if error is None:
        return ""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:_MOST_TEXT]}" if text else type(error).__name__
