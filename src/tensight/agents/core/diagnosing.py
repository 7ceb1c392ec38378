"""Facts of a training for rules: which steps are read, and where that is written and sent."""

from __future__ import annotations

import math
import os
import sys
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from tensight.agents.core.notices import log
from tensight.diagnosis.lines import AGAIN, KIND, OVER, about, line_of
from tensight.ranks import RankFile

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from tensight.agents.core.user_rules import UserRules


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
"""For a training that is recorded or traced."""


class Limit(NamedTuple):
    """How much of a training's time its facts take, whatever is to be read.

    Attributes
    ----------
    share : float
        Share of the time.
    steps : float
        What may be spent ahead of that share: the time of so many steps.
    """

    share: float
    steps: float


LIVE = Limit(0.01, 4.0)
"""For a training that someone debugs."""


class Thinning(NamedTuple):
    """Which steps are read where many ranks write for a long time: the same ones on all, and ever fewer of them.

    Attributes
    ----------
    share : float
        Maximum share of the training's time.
    ahead_s : float
        Time in seconds that may be spent before that share allows it.
    notes : bool
        Whether the other steps are noted.
    """

    share: float
    ahead_s: float
    notes: bool

    def is_due(self, step: int) -> bool:
        """Return whether a step, counted from 1, is read: the first 31, then four runs of four while they double."""
        doubled = 1 << (step.bit_length() - 1)
        return doubled < _RUN**2 or (step - doubled) % (doubled // 4) < _RUN


def alone(rank: int) -> Thinning:
    """Return the budget of a rank that watches itself; the first one also notes the steps between."""
    return Thinning(0.01, 10.0, rank == 0)


_RUN = 4
"""Minimum number of steps in a row of which everything is read: many facts compare a step with the one before."""

_TIMED = 8
"""Number of steps of which the shortest shows how long steps are: the first ones take longer."""

_SEARCH_S = 0.2
"""Time in seconds that the first search among all objects may take."""


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
    budget : Budget, Limit or Thinning
    most_steps : int, optional
        Number of steps after which the training is ended; by default it runs to its end.
    rules : UserRules, optional
        Those of the user, which are applied here.

    Attributes
    ----------
    rank : int
    reads : bool
        Whether everything is read of the step that runs.
    notes : bool
        Whether anything is: its losses, learning rates and calls.
    """

    def __init__(
        self,
        rank: int,
        folders: Sequence[Path],
        send: Callable[[bytes], None],
        is_sent: Callable[[], bool],
        budget: Budget | Limit | Thinning,
        most_steps: int | None = None,
        rules: UserRules | None = None,
    ) -> None:
        self.rank = rank
        self._files = [RankFile(folder, KIND, rank, os.getpid()) for folder in folders]
        self._send = send
        self._is_sent = is_sent
        self._budget = budget
        self._most_steps = most_steps
        self._rules = rules
        self._lines: list[bytes] = []
        self._began_s = self._step_began_s = time.monotonic()
        self._cost_s = self._cost_of_reading_s = self._cost_of_noting_s = 0.0
        self._search_s, self._searched_s = _SEARCH_S, 0.0
        self._shortest_s = math.inf
        self._resumes_s = 0.0
        self._steps = 0
        self.reads = self.notes = False
        self.decide()

    @property
    def is_received(self) -> bool:
        """Whether facts are written or sent."""
        return bool(self._files) or self._is_sent()

    def add(self, subject: str, step: int, rows: Sequence[Mapping[str, Any]]) -> None:
        """Add what was read of a subject in a step."""
        if rows and self.is_received:
            self._lines.append(line_of(subject, step, rows))
            if self._rules is not None:
                self._rules.add(subject, step, rows)

    def tell(self, framework: str, absent: Mapping[str, str]) -> None:
        """Tell which framework trains, and which facts are not known of it, each with the reason."""
        self._lines.append(about(framework, absent))
        if self._rules is not None:
            self._rules.tell(framework, absent)

    def begin_again(self) -> None:
        """Forget what was read before the first step of an optimizer."""
        self._lines.append(AGAIN)
        if self._rules is not None:
            self._rules.begin_again()
        self._steps, self._resumes_s = 0, 0.0

    def searches(self) -> bool:
        """Whether objects of the training may be looked for among all objects, which takes a while."""
        return isinstance(self._budget, Budget) or self._cost_s + self._search_s < self._allowed_s(time.monotonic())

    def searched(self, cost_s: float) -> None:
        """Note how long such a search has taken, in seconds, as part of a step."""
        self._search_s = self._searched_s = cost_s

    def step_done(self, step: int, cost_s: float = 0.0) -> None:
        """Note that a step was read or noted, or neither; decide about the next one. It may end the process.

        Parameters
        ----------
        step : int
        cost_s : float
            What that took, in seconds.
        """
        began = time.monotonic()
        if began < self._resumes_s and not self._lines:
            # Even little would be much of steps that are this short.
            self._steps += 1
            return
        if self._rules is not None:
            # They have a share of the time of their own.
            self._lines += self._rules.lines_of(step)
            began = time.monotonic()
        self._hand_over()
        now = time.monotonic()
        cost_s += now - began
        self._cost_s += cost_s
        if self.reads:
            # A single step that was held up says nothing about others.
            before_s = self._cost_of_reading_s or math.inf
            self._cost_of_reading_s = min(cost_s - self._searched_s, 2 * before_s)
        elif self.notes:
            self._cost_of_noting_s = cost_s
        if self._steps:
            self._shortest_s = max(min(self._shortest_s, now - self._step_began_s - cost_s), 0.0)
        else:
            # What comes before the first step, such as waiting for a server, is no training.
            self._began_s = now
        self._step_began_s, self._searched_s = now, 0.0
        self._steps += 1
        self.decide()
        if self._most_steps is not None and step >= self._most_steps:
            # A script could catch any exception.
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(0)

    def decide(self) -> None:
        """Decide what is read of the step that begins."""
        if not self.is_received:
            self.reads = self.notes = False
        elif isinstance(self._budget, Budget):
            budget, done = self._budget, self._steps
            is_due = bool(budget.every and (done + 1) % budget.every == 0) or (done + 1) & done == 0
            is_within = self._cost_s < budget.share * (time.monotonic() - self._began_s)
            is_first = done < budget.always and self._cost_s < budget.always_s
            self.reads, self.notes = is_first or is_due or is_within, True
        elif isinstance(self._budget, Thinning):
            is_within = self._cost_s < self._allowed_s(time.monotonic())
            self.reads = self._budget.is_due(self._steps + 1) and is_within
            self.notes = self.reads or (self._budget.notes and is_within)
        elif not self._steps:
            self.reads = self.notes = True
        else:
            self._decide_within(self._budget)

    def _decide_within(self, limit: Limit) -> None:
        now, has_read = time.monotonic(), self.reads
        spent_s = self._cost_s + (1 if has_read else _RUN) * self._cost_of_reading_s
        self.reads = spent_s < self._allowed_s(now)
        mean_s = (now - self._began_s) / max(self._steps - 1, 1)
        # After a run of steps that were read one is noted, to see what that takes.
        self.notes = self.reads or has_read or self._cost_of_noting_s < 0.5 * limit.share * mean_s
        if not self.notes and self._steps > _TIMED:
            self._resumes_s = now + (spent_s - self._allowed_s(now)) / limit.share

    def _allowed_s(self, now: float) -> float:
        """Return the time in seconds that facts may have taken so far."""
        if isinstance(self._budget, Thinning):
            return max(self._budget.ahead_s, self._budget.share * (now - self._began_s))
        ahead_s = 0.0
        if isinstance(self._budget, Limit) and self._steps > _TIMED:
            ahead_s = self._budget.steps * self._shortest_s
        return self._budget.share * (now - self._began_s) + ahead_s

    def close(self) -> None:
        """Write and send what is left: the training has ended."""
        if self._rules is not None:
            self._lines += self._rules.last_lines()
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
