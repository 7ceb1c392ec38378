"""The debugger of a training, for any framework: it begins once, ends steps, and never disturbs the training."""

from __future__ import annotations

import functools
import os
import threading
import weakref
from abc import ABC, abstractmethod
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from tensight.agents.core.connection.commands import Terminated
from tensight.agents.core.notices import log_once, report
from tensight.agents.core.process.endings import is_interactive, uncaught
from tensight.agents.core.process.termination import is_of_handler
from tensight.agents.core.process.workers import pool_of_worker
from tensight.errors import TensightError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType

    from typing_extensions import Self

    from tensight.agents.core.agent import Agent
    from tensight.agents.core.settings import AgentSettings

_active: list[weakref.ref[TrainingDebugger]] = []


class TrainingDebugger(ABC):
    """Debugs a training, from `start` or the beginning of a ``with`` block on.

    Parameters
    ----------
    settings : AgentSettings
    agent_of : callable
        Creates the agent, from the arguments of `Agent`.
    is_requested : bool
        Whether the script itself requests the debugger; if not, as in all processes that inherit its environment,
        workers are left alone.
    """

    def __init__(self, settings: AgentSettings, agent_of: Callable[..., Agent], *, is_requested: bool = True) -> None:
        self._settings = settings
        self._is_requested = is_requested
        self._process_id = os.getpid()
        self._agent_of = agent_of
        self._agent: Agent | None = None
        self._ended_by_update = False
        self._ended_by_call = False
        self._is_over = False
        self._has_block = False
        self._error: BaseException | None = None
        self._thread = threading.get_ident()

    # --- what a script uses ---

    @property
    def agent(self) -> Agent | None:
        """The agent that observes the training; None before it has begun."""
        return self._agent

    def __enter__(self) -> Self:
        self._has_block = True
        try:
            self.start()
        except BaseException:
            # Python does not call `__exit__` if entering the block fails.
            self.close_at_exit()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.ended_by(error)
        self.close()

    def step(self) -> None:
        """End a step, unless an optimizer has ended one since the last call."""
        with self._guarded():
            self._end_open_step()
        if self._ended_by_update:
            self._ended_by_update = False
            return
        self._ended_by_call = True
        self._end_step(False)

    def start(self) -> None:
        """Begin to debug what the training calls from now on, in this thread.

        A debugger that was started in the same way before is closed: in a notebook, the cell is run again.
        """
        with self._guarded():
            self._start()

    def _start(self) -> None:
        for other in active_debuggers():
            if other.is_left_alone:
                other._leave()
            elif self._takes_over(other):
                report("debugging starts again; what was debugged before no longer is")
                other.close()
        if any(type(other) is type(self) for other in active_debuggers()):
            log_once("this training is being debugged already; the second debugger does nothing")
            self._is_over = True
            return
        _active.append(weakref.ref(self))
        self._begin()

    def ended_by(self, error: BaseException | None) -> None:
        """Note the exception that has ended the training, if any; `close` reports it to the server."""
        self._error = error

    def close(self) -> None:
        """End debugging; the training goes on without it."""
        if self._is_over:
            return
        # Run each of them, even if another fails.
        for part in (self._end_open_step, self._leave, self._close_agent, self._clean_up):
            _do_orderly(part)

    def close_at_exit(self) -> None:
        """Do the same while the interpreter exits, where Ctrl-C only means that the user is in a hurry."""
        with suppress(KeyboardInterrupt):
            self.ended_by(uncaught())
            self.close()

    @property
    def is_left_alone(self) -> bool:
        """Whether this process is a worker of a training, for which the debugger was not requested."""
        is_requested = self._is_requested and os.getpid() == self._process_id
        return not is_requested and bool(pool_of_worker())

    # --- what an adapter does ---

    @abstractmethod
    def _begin(self) -> None:
        """Follow the training, or wait until there is something to follow."""

    @abstractmethod
    def _detach(self) -> None:
        """Remove everything from the framework, even if attaching failed half-way."""

    @abstractmethod
    def _report_step(self, agent: Agent, skipped: bool) -> None:
        """Report to the agent that a step has ended, and what it computed.

        Parameters
        ----------
        agent : Agent
        skipped : bool
            Whether a loss scaler has skipped the update.
        """

    def _end_open_step(self) -> None:  # noqa: B027 - optional for adapters
        """End a step that is over, if the adapter has deferred that decision."""

    def _clean_up(self) -> None:  # noqa: B027 - optional for adapters
        """Remove what is left after nothing is observed any more."""

    # --- what adapters use ---

    def _end_by_update(self, skipped: bool) -> None:
        self._ended_by_update = True
        self._end_step(skipped)

    def _end_step(self, skipped: bool) -> None:
        if self._agent is not None and not self._is_over:
            with self._guarded():
                self._report_step(self._agent, skipped)

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """Keep all exceptions from the training, except that the user ends or interrupts it.

        After an interruption debugging goes on: with the next cell of a notebook, or in a script that handles it.
        """
        try:
            yield
        except Exception as error:
            self._give_up(error)
        except Terminated:
            # Without a block around the training, nothing else ends debugging. Ctrl-C meanwhile means: faster.
            ends_here = not self._is_over
            with suppress(KeyboardInterrupt):
                self.close()
            if ends_here and is_interactive():
                report("debugging has ended; to debug the next training here, start it again, or restart the kernel")
            raise

    def _give_up(self, error: Exception) -> None:
        """Detach and leave the training undisturbed."""
        if is_of_handler(error):
            raise error
        why = str(error) if isinstance(error, TensightError) else f"internal error: {error!r}"
        log_once(f"debugging ends here and the training goes on: {why}")
        self.close()

    def _takes_over(self, other: TrainingDebugger) -> bool:
        """Whether the script has started both in this thread, and neither with a block."""
        return (
            type(other) is type(self)
            and self._is_requested
            and other._is_requested
            and not (self._has_block or other._has_block)
            and self._thread == other._thread
        )

    def _close_agent(self) -> None:
        if self._agent is not None:
            self._agent.ended_by(self._error)
            self._agent.close()

    def _leave_children(self) -> None:
        """Detach in the child of a fork, which is not a training."""
        os.register_at_fork(after_in_child=functools.partial(_leave, weakref.ref(self)))

    def _leave(self) -> None:
        self._is_over = True
        _active[:] = [other for other in _active if other() not in (self, None)]
        self._detach()


def active_debuggers() -> list[TrainingDebugger]:
    """Return the debuggers of trainings in this process."""
    debuggers = [reference() for reference in _active]
    return [debugger for debugger in debuggers if debugger is not None]


def _do_orderly(part: Callable[[], None]) -> None:
    """Run a part of the end of debugging; log its error, if any."""
    try:
        part()
    except Exception as error:
        log_once(f"debugging could not be ended in an orderly way: {error!r}")


def _leave(reference: weakref.ref[TrainingDebugger]) -> None:
    debugger = reference()
    if debugger is not None and not debugger._is_over:
        debugger._leave()
