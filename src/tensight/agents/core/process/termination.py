"""Handles SIGTERM while a training is held: its sender does not want the training to wait for a debugger.

If nothing handles the signal, the system ends the process. A script, or a trainer such as Lightning's, may handle it by
raising an exception, or by setting a flag that is checked after the batch; while the training is held, that is never.
"""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

_raised: list[Exception] = []
"""The exception that a handler of the training has raised in the middle of our code."""


def is_of_handler(error: BaseException) -> bool:
    """Whether an exception was raised by the training's own handler of SIGTERM, and must not be caught here."""
    return any(error is raised for raised in _raised)


class Termination:
    """Notices when the process is asked to end while the training is held.

    Parameters
    ----------
    on_signal : callable
        Called in this case, before the training's own handler; it must end what holds the training.

    Attributes
    ----------
    is_requested : bool
        Whether the process was asked to end. The training must not be held any more.
    """

    def __init__(self, on_signal: Callable[[], None]) -> None:
        self._on_signal = on_signal
        self._error: Exception | None = None
        self.is_requested = False

    @contextmanager
    def noticed(self) -> Iterator[None]:
        """Notice the signal in this block, if the training handles it in Python.

        An exception of its handler is raised at the end of the block: in the middle, other code might catch it.
        """
        handler = signal.getsignal(signal.SIGTERM)
        if threading.current_thread() is not threading.main_thread() or not callable(handler):
            yield
            return

        def notice(number: int, frame: FrameType | None) -> None:
            self.is_requested = True
            self._on_signal()
            try:
                handler(number, frame)
            except Exception as error:
                self._error = error

        signal.signal(signal.SIGTERM, notice)
        try:
            yield
        finally:
            if signal.getsignal(signal.SIGTERM) is notice:
                signal.signal(signal.SIGTERM, handler)
        error, self._error = self._error, None
        if error is not None:
            _raised[:] = [error]
            raise error
