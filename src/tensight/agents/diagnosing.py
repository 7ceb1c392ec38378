"""Collects the facts of a training for rules, and writes them where `tensight diagnose` finds them."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from tensight.agents.notices import log
from tensight.diagnosis.facts import Facts

ALWAYS = 64
"""Number of first steps of which everything is read."""

EVERY = 20
"""Interval in steps at which later ones are read in any case."""

SHARE = 0.2
"""Maximum share of the training's time that is used to read further ones, and to write them."""

WRITE_EVERY_S = 2.0
"""Minimum interval between two copies of the facts on disk."""


class Diagnosing:
    """The facts of a training in this process.

    Parameters
    ----------
    folder : str
        Where they are written.
    rank : int
    most_steps : int or None
        Number of steps after which the training is ended; None for all.

    Attributes
    ----------
    facts : Facts
    reads : bool
        Whether everything is read of the step that runs.
    """

    def __init__(self, folder: str, rank: int, most_steps: int | None) -> None:
        self.facts = Facts(rank)
        self.reads = True
        self._path = Path(folder) / f"facts-{rank}-{os.getpid()}.json"
        self._most_steps = most_steps
        self._began_s = time.monotonic()
        self._next_write_s = self._began_s + WRITE_EVERY_S
        self._cost_s = 0.0

    def begin_again(self) -> None:
        """Forget what was read before the first step of an optimizer."""
        before, self.facts = self.facts, Facts(self.facts.rank)
        self.facts.framework, self.facts.absent = before.framework, before.absent

    def step_done(self, step: int, cost_s: float) -> None:
        """Note that a step was read; decide what is read of the next one.

        Parameters
        ----------
        step : int
        cost_s : float
            What that took.
        """
        self._cost_s += cost_s
        now = time.monotonic()
        is_due = (step + 1) % EVERY == 0 or (step + 1) & step == 0
        self.reads = step < ALWAYS or is_due or self._cost_s < SHARE * (now - self._began_s)
        is_last = self._most_steps is not None and step >= self._most_steps
        if is_last or now > self._next_write_s:
            self.write()
            written = time.monotonic()
            # Those of a large model take long to write.
            self._next_write_s = written + max(WRITE_EVERY_S, (written - now) / SHARE)
        if is_last:
            # A script could catch any exception.
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(0)

    def write(self, *, is_over: bool = False) -> None:
        """Write all facts, in place of what was written before."""
        self.facts.is_over = is_over
        try:
            temporary = self._path.with_suffix(".part")
            temporary.write_text(json.dumps(self.facts.as_record()))
            temporary.replace(self._path)
        except OSError as error:
            log(f"the facts of this training cannot be written to {self._path}: {error}")
