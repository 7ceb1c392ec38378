"""Facts of a training for rules: which steps are read, and where that is written and sent."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from tensight.agents.notices import log
from tensight.diagnosis.lines import AGAIN, OVER, FactsFile, about, line_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path


class Budget(NamedTuple):
    """How many steps are read.

    Attributes
    ----------
    always : int
        Number of first steps of which everything is read.
    every : int
        Interval at which later ones are read in any case; 0 for none. Those at powers of two are.
    share : float
        Maximum share of the training's time for the others.
    always_s : float
        Maximum time in seconds for the first ones; then they count as the others.
    """

    always: int
    every: int
    share: float
    always_s: float


FOR_DIAGNOSIS = Budget(64, 20, 0.5, 60.0)
BESIDE = Budget(8, 0, 0.01, 2.0)
"""For a training that someone debugs, records or traces."""


class Diagnosing:
    """The facts of a training in this process.

    Parameters
    ----------
    rank : int
    folders : sequence of Path
        Where they are written.
    send : callable (line) -> None
        Sends them to the debug server, if that wants them.
    is_sent : callable () -> bool
        Whether it does.
    budget : Budget
    most_steps : int, optional
        Number of steps after which the training is ended; by default it runs to its end.

    Attributes
    ----------
    rank : int
    reads : bool
        Whether everything is read of the step that runs.
    """

    def __init__(
        self,
        rank: int,
        folders: Sequence[Path],
        send: Callable[[bytes], None],
        is_sent: Callable[[], bool],
        budget: Budget,
        most_steps: int | None = None,
    ) -> None:
        self.rank = rank
        self._files = [FactsFile(folder, rank, os.getpid()) for folder in folders]
        self._send = send
        self._is_sent = is_sent
        self._budget = budget
        self._most_steps = most_steps
        self._lines: list[bytes] = []
        self._began_s = time.monotonic()
        self._cost_s = 0.0
        self._steps = 0
        self.reads = False
        self.decide()

    @property
    def is_received(self) -> bool:
        """Whether facts are written or sent."""
        return bool(self._files) or self._is_sent()

    def add(self, subject: str, step: int, rows: Sequence[Mapping[str, Any]]) -> None:
        """Add what was read of a subject in a step."""
        if rows and self.is_received:
            self._lines.append(line_of(subject, step, rows))

    def tell(self, framework: str, absent: Mapping[str, str]) -> None:
        """Tell which framework trains, and which facts are not known of it, each with the reason."""
        self._lines.append(about(framework, absent))

    def begin_again(self) -> None:
        """Forget what was read before the first step of an optimizer."""
        self._lines.append(AGAIN)
        self._steps = 0

    def step_done(self, step: int, cost_s: float) -> None:
        """Note that a step was read; decide what is read of the next one. It may end the process.

        Parameters
        ----------
        step : int
        cost_s : float
            What that took, in seconds.
        """
        began = time.monotonic()
        self._hand_over()
        now = time.monotonic()
        self._cost_s += cost_s + now - began
        self._steps += 1
        self.decide()
        if self._most_steps is not None and step >= self._most_steps:
            # A script could catch any exception.
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(0)

    def decide(self) -> None:
        """Decide whether everything is read of the step that begins."""
        budget, done = self._budget, self._steps
        is_due = bool(budget.every and (done + 1) % budget.every == 0) or (done + 1) & done == 0
        is_within = self._cost_s < budget.share * (time.monotonic() - self._began_s)
        is_first = done < budget.always and self._cost_s < budget.always_s
        self.reads = self.is_received and (is_first or is_due or is_within)

    def close(self) -> None:
        """Write and send what is left: the training has ended."""
        self._lines.append(OVER)
        self._hand_over()

    def _hand_over(self) -> None:
        lines, self._lines = self._lines, []
        if self._is_sent():
            for line in lines:
                self._send(line)
        try:
            for file in self._files:
                file.write(lines)
        except OSError as error:
            log(f"the facts of this training are no longer written: {error}")
            self._files = []
