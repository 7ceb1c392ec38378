"""A trial: its process group, its output, its values, and its end."""

from __future__ import annotations

import contextlib
import math
import os
import shlex
import signal
import subprocess
import time
import uuid
from typing import TYPE_CHECKING, Any

from tensight.search.attributes import COMMAND, EXIT_CODE, FOLDER, HALF_LOSS, ILLNESS, NOWHERE, SESSION, STEPS, WARNINGS
from tensight.search.commands import command_words, fill
from tensight.search.configuration import SYSTEM_PARAMETERS
from tensight.search.hyper_config import VARIABLE, hyper_config_text
from tensight.search.studies import Outcome
from tensight.search.targets import make_reader

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from tensight.search.configuration import Configuration, Value
    from tensight.search.studies import Suggestion
    from tensight.search.targets import Reading
    from tensight.search.watching import Watch

OUTPUT = "output.log"
"""File in the folder of a trial: its output."""

RECORDING = "recording"
"""Folder in the folder of a trial: the recorded steps."""

END_WITHIN_S = 5.0
"""Seconds between SIGTERM and SIGKILL."""

LINES_KEPT = 8
_TAIL_BYTES = 8192


def custom_lineage(values: Mapping[str, Value]) -> dict[str, Value]:
    """Return the values that SummaryCollector should record, because it does not know them itself."""
    return {name: value for name, value in values.items() if name not in SYSTEM_PARAMETERS}


class TrialProcess:
    """A running trial.

    Parameters
    ----------
    suggestion : Suggestion
    configuration : Configuration
    base : Path
        Folder of the search.
    resolve : callable
        Returns a program with its arguments for the words of a command.
    watch : Watch or None
        The debugger's view; None without the debugger.

    Raises
    ------
    OSError
        The command cannot be started.
    InputError
        There is no such command.
    """

    def __init__(
        self,
        suggestion: Suggestion,
        configuration: Configuration,
        base: Path,
        resolve: Callable[[list[str]], list[str]],
        watch: Watch | None,
    ) -> None:
        self.suggestion = suggestion
        self.folder = base / f"train_{uuid.uuid4().hex}"
        self.watch = watch
        self._configuration = configuration
        self._ending: tuple[Outcome, float] | None = None
        self._unjudged: list[Reading] = []
        self._is_termination_sent = False
        self.folder.mkdir(parents=True)
        values = {**suggestion.values, "summary_dir": str(self.folder), "trial": suggestion.number}
        words = command_words(configuration.command, values)
        self._command = shlex.join(words)
        self._readers = [
            make_reader(target, self.folder, self.output, lambda text: fill(text, values) or text, self._losses)
            for target in configuration.all_targets
        ]
        self._began = time.monotonic()
        with self.output.open("wb") as output:
            self._process = subprocess.Popen(  # noqa: S603 - what the person asked for
                resolve(words),
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                # All that it starts is ended with it, and Ctrl-C is meant for the search.
                start_new_session=True,
            )

    @property
    def output(self) -> Path:
        """The file with the output."""
        return self.folder / OUTPUT

    @property
    def process_group(self) -> int:
        """The id of its process group."""
        return self._process.pid

    def _environment(self) -> dict[str, str]:
        values = self.suggestion.values
        # The output is read while the trial runs.
        environment = {"PYTHONUNBUFFERED": "1", **os.environ}
        environment[VARIABLE] = hyper_config_text(values, str(self.folder), custom_lineage(values))
        if self.watch is not None:
            environment |= self.watch.variables(str(self.folder / RECORDING))
        return environment

    @property
    def _is_compared(self) -> bool:
        """Whether the trial may be ended because it is worse than others."""
        return self._configuration.effective_pruner.name != "none" or (self.watch is not None and self.watch.prunes)

    def _losses(self) -> Any:
        return [] if self.watch is None else self.watch.losses()

    def recent_loss(self) -> float | None:
        """Return the mean loss since the last call; None if the debugger sees no loss, or if it is the target."""
        source = self._configuration.all_targets[0].source
        if self.watch is None or (source is not None and source.agent is not None):
            return None
        return self.watch.recent_loss()

    def has_news(self) -> bool:
        """Return whether the trial has ended or reported its target, as far as a cheap check shows."""
        if self._process.poll() is not None:
            return True
        if self._ending is not None or not self._is_compared or not self._readers[0].is_quick:
            return False
        self._unjudged += self._readers[0].new()
        return bool(self._unjudged)

    def _new_readings(self, *, ended: bool = False) -> list[Reading]:
        readings, self._unjudged = [*self._unjudged, *self._readers[0].new(ended=ended)], []
        return readings

    def poll(self, judge: Callable[[list[Reading]], str]) -> Outcome | None:
        """Check the trial; return its outcome once it has ended.

        Parameters
        ----------
        judge : callable
            Takes new values of the first target, and returns why to end the trial, or an empty text.
        """
        exit_code = self._process.poll()
        if self._ending is not None:
            return self._ended_by_us(exit_code, *self._ending)
        if exit_code is not None:
            return self._ended_by_itself(exit_code, judge)
        outcome = self._lost(judge)
        if outcome is not None:
            self._ending = outcome, time.monotonic() + END_WITHIN_S
            self._tell_to_end()
        return None

    def _lost(self, judge: Callable[[list[Reading]], str]) -> Outcome | None:
        """Return the outcome of a trial that should not go on; None if it should."""
        readings = self._new_readings() if self._is_compared else []
        reason = judge(readings) if readings else ""
        if reason:
            # First of all: a trial that should end only wastes time from here on.
            self._tell_to_end()
        if self.watch is not None and self.watch.illness is None:
            knew = self.watch.may_be_lost
            self.watch.poll()
            if self.watch.illness is not None:
                # This is a better reason than that others are better.
                reason = self.watch.illness.sentence
            elif not reason and self._is_compared and (not readings or self.watch.may_be_lost != knew):
                reason = judge(readings[-1:])
        if reason:
            return Outcome(is_pruned=True, reason=reason)
        limit_s = self._configuration.timeout_s
        if limit_s is not None and time.monotonic() - self._began > limit_s:
            return Outcome(reason=f"it ran longer than timeout_s, {limit_s:g} s")
        return None

    def _ended_by_us(self, exit_code: int | None, outcome: Outcome, patience: float) -> Outcome | None:
        if exit_code is None:
            if time.monotonic() > patience:
                self._signal(signal.SIGKILL)
            return None
        self._signal(signal.SIGKILL)
        return self._closed(outcome)

    def _ended_by_itself(self, exit_code: int, judge: Callable[[list[Reading]], str]) -> Outcome:
        # Child processes that it did not wait for end with it.
        self._signal(signal.SIGKILL)
        if exit_code != 0:
            output = "\n".join(self.last_lines())
            how = f"signal {-exit_code}" if exit_code < 0 else f"exit code {exit_code}"
            return self._closed(Outcome(reason=f"{how}: {output}" if output else how), exit_code)
        if self._is_compared:
            # Other trials are compared with it; this one is complete, whatever the comparison says.
            judge(self._new_readings(ended=True))
        return self._closed(self._reached(), exit_code)

    def _reached(self) -> Outcome:
        """Return the outcome of a trial that has completed."""
        values = []
        for target, reader in zip(self._configuration.all_targets, self._readers, strict=True):
            reader.new(ended=True)
            value = reader.result(target)
            if value is None:
                return Outcome(reason=f"no value of {target.name}: {reader.where}")
            if not math.isfinite(value):
                return Outcome(is_pruned=True, reason=f"{target.name} is {value}")
            values.append(value)
        return Outcome(tuple(values))

    def _closed(self, outcome: Outcome, exit_code: int | None = None) -> Outcome:
        attributes: dict[str, Any] = {FOLDER: str(self.folder), COMMAND: self._command}
        if exit_code is not None:
            attributes[EXIT_CODE] = exit_code
        if self.watch is not None:
            attributes[WARNINGS] = [warning.as_data() for warning in self.watch.warnings]
            if self.watch.illness is not None:
                attributes[ILLNESS] = self.watch.illness.as_data()
            if self.watch.session_id:
                attributes[SESSION] = self.watch.session_id
            self.watch.close()
            if self.watch.steps:
                attributes[STEPS] = self.watch.steps
            if self.watch.nowhere is not None:
                attributes[NOWHERE] = True
            if self.watch.half_loss is not None and math.isfinite(self.watch.half_loss):
                attributes[HALF_LOSS] = self.watch.half_loss
        return Outcome(outcome.values, outcome.is_pruned, outcome.reason, attributes)

    def last_lines(self) -> list[str]:
        """Return the last lines of the output."""
        try:
            with self.output.open("rb") as file:
                file.seek(max(os.fstat(file.fileno()).st_size - _TAIL_BYTES, 0))
                text = file.read().decode("utf-8", "replace")
        except OSError:
            return []
        return [line.rstrip() for line in text.splitlines() if line.strip()][-LINES_KEPT:]

    def end(self) -> None:
        """End the trial and wait for its end: SIGTERM first, then SIGKILL."""
        for number, patience_s in ((signal.SIGTERM, END_WITHIN_S), (signal.SIGKILL, END_WITHIN_S)):
            self._signal(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(patience_s)
                break
        self._signal(signal.SIGKILL)
        if self.watch is not None:
            self.watch.close()

    def _tell_to_end(self) -> None:
        """Send SIGTERM once: a program that shuts down cleanly at the first signal may abort at a second."""
        if not self._is_termination_sent:
            self._is_termination_sent = True
            self._signal(signal.SIGTERM)

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)
