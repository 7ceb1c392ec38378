"""Runs a search: asks for trials, runs several at a time, and stores their outcomes."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
import uuid
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tensight.search import guard
from tensight.search.studies import HEARTBEAT_EVERY_S, Outcome
from tensight.search.trials import TrialProcess
from tensight.search.watching import Watch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tensight.client import Server
    from tensight.search.configuration import Configuration
    from tensight.search.studies import Study, Suggestion
    from tensight.search.targets import Reading

CHECK_EVERY_S, CHECK_FOR_NEWS_EVERY_S = 0.05, 0.005
"""Intervals between polls of each trial, and between checks for news, which cause an earlier poll."""

ASK_AGAIN_EVERY_S = 1.0
"""Seconds between requests for a trial while there is none."""

OTHERS_RUN = "other workers run the last trials; waiting, in case one of them dies (Ctrl-C ends this one)"


@dataclass(frozen=True)
class Debugger:
    """The debug server of a search.

    Attributes
    ----------
    server : Server
    host, port : str, int
        Address to which trainings attach.
    """

    server: Server
    host: str
    port: int


@dataclass(frozen=True)
class Ended:
    """A trial that has ended.

    Attributes
    ----------
    suggestion : Suggestion
    outcome : Outcome
    duration_s : float
    """

    suggestion: Suggestion
    outcome: Outcome
    duration_s: float


class Search:
    """Runs trials of a study until it has enough.

    Parameters
    ----------
    configuration : Configuration
    study : Study
    base : Path
        Folder of the search.
    resolve : callable
        Returns a program with its arguments for the words of a command.
    debugger : Debugger or None
        None to run without the debugger.
    guard : Guard
        Ends the trials if the search is killed.
    """

    def __init__(
        self,
        configuration: Configuration,
        study: Study,
        base: Path,
        resolve: Callable[[list[str]], list[str]],
        debugger: Debugger | None,
        guard: Guard,
    ) -> None:
        self._configuration = configuration
        self._study = study
        self._base = base
        self._resolve = resolve
        self._debugger = debugger
        self._guard = guard
        self._active: list[tuple[TrialProcess, float]] = []
        self._next_heartbeat = 0.0
        self._next_ask = 0.0

    def run(self, most: int, jobs: int, ended: Callable[[Ended], None], notify: Callable[[str], None]) -> None:
        """Run trials until the study has enough.

        Parameters
        ----------
        most : int
            Number of trials of the study in all, including those of other workers and of earlier runs.
        jobs : int
            Number of trials that run at a time.
        ended : callable
            Called with each trial that has ended.
        notify : callable
            Called with notices for the user.

        Raises
        ------
        KeyboardInterrupt
            The user has stopped the search; running trials were ended, and will be tried again.
        """
        self._study.fill_grid()
        pause = threading.Event()
        is_notified = False
        try:
            while True:
                was_idle = not self._active
                others_run = was_idle and self._study.others_run(most)
                self._begin(most, jobs, ended)
                if self._active:
                    self._poll(ended)
                    self._send_heartbeat()
                    self._wait(pause)
                elif others_run:
                    # If their worker dies, they are tried again here.
                    if not is_notified:
                        notify(OTHERS_RUN)
                    is_notified = True
                    pause.wait(ASK_AGAIN_EVERY_S)
                elif was_idle:
                    return
        finally:
            self._stop()

    def _wait(self, pause: threading.Event) -> None:
        """Wait until it is time to poll again; a trial that should end only wastes time until then."""
        end = time.monotonic() + CHECK_EVERY_S
        while time.monotonic() < end and not any(trial.has_news() for trial, _ in self._active):
            pause.wait(CHECK_FOR_NEWS_EVERY_S)

    def _begin(self, most: int, jobs: int, ended: Callable[[Ended], None]) -> None:
        while len(self._active) < jobs and time.monotonic() >= self._next_ask:
            suggestion = self._study.ask(most)
            if suggestion is None:
                self._next_ask = time.monotonic() + ASK_AGAIN_EVERY_S
                return
            try:
                trial = self._process(suggestion)
            except OSError as error:
                # A command that cannot be started is a failed trial, as any other failure.
                outcome = Outcome(reason=f"it cannot be started: {error.strerror or error}")
                self._study.tell(suggestion, outcome)
                ended(Ended(suggestion, outcome, 0.0))
                continue
            except BaseException:
                self._study.set_aside(suggestion.number, "it could not be started", again=True)
                raise
            self._guard.add(trial.process_group)
            self._active.append((trial, time.monotonic()))

    def _process(self, suggestion: Suggestion) -> TrialProcess:
        watch = None
        if self._debugger is not None:
            watch = Watch(
                self._debugger.server,
                f"{self._configuration.study_name}-{suggestion.number}",
                self._debugger.host,
                self._debugger.port,
                prunes=self._configuration.watch == "prune",
                record=self._configuration.record,
                whole_steps=self._study.whole_steps(),
            )
        return TrialProcess(suggestion, self._configuration, self._base, self._resolve, watch)

    def _poll(self, ended: Callable[[Ended], None]) -> None:
        for active in list(self._active):
            trial, began = active
            suggestion = trial.suggestion
            outcome = trial.poll(partial(self._judge, trial))
            if outcome is not None:
                self._study.tell(suggestion, outcome)
                self._active.remove(active)
                self._guard.remove(trial.process_group)
                self._next_ask = 0.0
                ended(Ended(suggestion, outcome, time.monotonic() - began))

    def _judge(self, trial: TrialProcess, readings: list[Reading]) -> str:
        """Report intermediate values, and return why to end the trial; empty to let it go on."""
        for reading in readings:
            is_pruned = self._study.report(trial.suggestion, reading.step, reading.value, trial.recent_loss())
            reason = self._judge_lost(trial, reading)
            if is_pruned and not reason:
                pruner = self._configuration.effective_pruner.name
                reason = f"{pruner}: {self._shown(reading)} is worse than that of others"
            if reason:
                return reason
        return self._judge_lost(trial, None)

    def _judge_lost(self, trial: TrialProcess, reading: Reading | None) -> str:
        """Return why to end a trial without progress: its target, or without targets its loss, is bad, too."""
        watch = trial.watch
        if watch is None or not watch.may_be_lost:
            return ""
        if reading is not None:
            rank = self._study.rank(trial.suggestion, reading.step, reading.value)
            shown = self._shown(reading)
        elif watch.half_loss is not None:
            rank = self._study.rank_of_loss(trial.suggestion, watch.half_loss)
            shown = f"its loss {watch.half_loss:.5g} after half of its steps"
        else:
            return ""
        return "" if rank is None else watch.end_as_lost(f"{shown} is worse than that of {rank}")

    def _shown(self, reading: Reading) -> str:
        return f"{self._configuration.all_targets[0].name} {reading.value:.5g} at step {reading.step}"

    def _send_heartbeat(self) -> None:
        if time.monotonic() >= self._next_heartbeat:
            self._next_heartbeat = time.monotonic() + HEARTBEAT_EVERY_S
            self._study.heartbeat([trial.suggestion for trial, _ in self._active])

    def _stop(self) -> None:
        """End the running trials, and queue them again."""
        for trial, _ in self._active:
            trial.end()
            self._study.set_aside(trial.suggestion.number, "the search was stopped", again=True)
        self._active.clear()


class Guard:
    """A process that ends everything that a search has started if the search is killed.

    Parameters
    ----------
    process : Popen
        Reads the lines that the search writes.
    """

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def add(self, group: int) -> None:
        """Register a process group, which is ended if the search is killed."""
        self._tell(f"add {group}")

    def remove(self, group: int) -> None:
        """Unregister a process group that has ended."""
        self._tell(f"remove {group}")

    def add_folder(self, folder: Path) -> None:
        """Register a temporary folder, which is removed if the search is killed."""
        self._tell(f"folder {folder}")

    def end(self) -> None:
        """End the guard and leave everything as it is: the search has ended."""
        self._tell("end")

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None  # noqa: S101 - a pipe was asked for
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(f"{line}\n")
            self._process.stdin.flush()


@contextlib.contextmanager
def guarded() -> Iterator[Guard]:
    """End the processes started within the context if this process is killed."""
    mark = uuid.uuid4().hex
    process = subprocess.Popen(  # noqa: S603 - ourselves
        [sys.executable, "-I", "-S", str(Path(guard.__file__)), mark],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
        env={"PATH": os.environ.get("PATH", "")},
    )
    before = os.environ.get(guard.MARK)
    os.environ[guard.MARK] = mark
    watching = Guard(process)
    try:
        yield watching
        watching.end()
    finally:
        if before is None:
            del os.environ[guard.MARK]
        else:
            os.environ[guard.MARK] = before
        assert process.stdin is not None  # noqa: S101 - a pipe was asked for
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        process.wait()
