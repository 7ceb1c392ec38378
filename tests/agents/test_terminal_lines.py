"""Lines at the terminal never disturb a training, whatever its stderr is, and begin where no other line is."""

from __future__ import annotations

import io
import logging
import os
import sys
import threading
from contextlib import contextmanager, redirect_stderr, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tqdm import tqdm

from tensight.agents.core import notices
from tests.agents.agent_stage import PATIENCE_S, until
from tests.agents.training_process import TrainingProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tensight.client import Server, Session
    from tests.server.running import RunningServer


@pytest.fixture(autouse=True)
def logger(monkeypatch: pytest.MonkeyPatch) -> Iterator[logging.Logger]:
    """Let no line seem to follow one of another test, and none be left out because another test was quiet."""
    logger = notices._logger()
    for handler in logger.handlers:
        monkeypatch.setattr(handler, "_written_s", 0.0, raising=False)
    level = logger.level
    logger.setLevel(logging.INFO)
    monkeypatch.setattr(notices, "_quieted", threading.Event())
    yield logger
    logger.setLevel(level)


@contextmanager
def piped() -> Iterator[Callable[[], bytes]]:
    """Let stderr be a pipe; what was written to it, and not read yet, is read by what this gives."""
    reading, writing = os.pipe()
    with open(writing, "w", encoding="ascii", errors="strict") as stderr, open(reading, "rb"), redirect_stderr(stderr):
        yield lambda: os.read(reading, 2**20)


def test_a_pipe_that_nobody_reads_holds_no_training() -> None:
    with piped() as read:
        for number in range(5_000):
            notices.log(f"line {number} " + "x" * 100)
        said = read().decode().splitlines()
        assert said[0].startswith("tensight: line 0 ")
        assert 100 < len(said) < 5_000
        notices.log("somebody reads again")
        assert read() == b"tensight: somebody reads again\n"


def test_what_a_terminal_cannot_write_or_would_obey_is_written_as_escapes() -> None:
    with piped() as read:
        notices.log("网络 \x1b[31mred\x07\nnext\tcolumn")
        assert read() == b"tensight: \\u7f51\\u7edc \\x1b[31mred\\x07 next\tcolumn\n"


@pytest.mark.parametrize("stderr", ["none", "closed", "broken"])
def test_without_a_stderr_nothing_happens(stderr: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with suppress(BrokenPipeError), open(writing, "w") as stream:
        if stderr == "closed":
            stream.close()
        with redirect_stderr(None if stderr == "none" else stream):
            notices.log("nobody is told")


def test_a_line_begins_below_a_progress_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = io.StringIO()
    monkeypatch.setattr(sys, "stderr", terminal)
    with tqdm(total=2, file=terminal, ncols=40) as bar:
        bar.update()
        notices.log("stopped")
        notices.report("waits")
    before, *lines = terminal.getvalue().split("\n")
    assert before.startswith("\r")
    assert lines[:2] == ["tensight: stopped", "tensight: waits"]
    monkeypatch.setattr(notices, "_BURST_S", 0.0)
    notices.log("the bar is gone")
    assert terminal.getvalue().endswith("\ntensight: the bar is gone\n")


def test_who_wants_quiet_hears_of_trouble_only(logger: logging.Logger, capsys: pytest.CaptureFixture[str]) -> None:
    for text, is_quiet in (("a", False), ("b", True), ("c", True), ("d", False), ("e", False)):
        notices.set_quiet(is_quiet=is_quiet)
        notices.report(text)
    assert logger.level == logging.INFO
    notices.set_quiet(is_quiet=True)
    notices.log("no debug server")
    assert [line[-1] for line in capsys.readouterr().err.splitlines()] == ["a", "d", "e", "r"]


@pytest.mark.parametrize("level", [logging.DEBUG, logging.WARNING, logging.ERROR])
def test_a_level_that_the_script_has_chosen_stays(logger: logging.Logger, level: int) -> None:
    logger.setLevel(level)
    for is_quiet in (False, True, False):
        notices.set_quiet(is_quiet=is_quiet)
        assert logger.level == level


SICK = """
from tests.agents.numpy_training import *
debugger = NumpyDebugger(Network(nan_at=3), AgentSettings.from_environment(connect_within_s=30.0))
debugger.attach()
debugger.train(5)
"""


@pytest.mark.parametrize("quiet", ["", "1"])
def test_a_person_at_the_terminal_reads_where_the_training_can_be_watched_why_it_stops_and_that_it_goes_on(
    agent_server: RunningServer, person: Server, tmp_path: Path, quiet: str
) -> None:
    host, _, port = str(agent_server.debugger).rpartition(":")
    (tmp_path / f"sick{quiet}.py").write_text(SICK)
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "TENSIGHT_DEBUGGER_HOST": host,
        "TENSIGHT_DEBUGGER_PORT": port,
        "TENSIGHT_RECOMMENDED": "1",
        "TENSIGHT_QUIET": quiet,
    }
    with TrainingProcess([sys.executable, f"sick{quiet}.py"], tmp_path, environment=environment) as run:
        session = person.wait_for_session(PATIENCE_S, name=f"sick{quiet}")
        assert session.wait(PATIENCE_S).step == 3
        expected = [] if quiet else expected_lines(session, f"{agent_server.url}/?run={session.id}")
        written = tmp_path / "training.stderr"
        until(lambda: len(written.read_text().splitlines()) >= len(expected), "the stop is told")
        session.delete_watchpoints()
        session.continue_()
        outcome = run.outcome()
    assert (outcome.code, outcome.errors) == (0, [])
    assert outcome.notices == [*expected, *([] if quiet else ["tensight: the training goes on"])]


def expected_lines(session: Session, page: str) -> list[str]:
    """Return what is written when the training attaches and stops, from what a person is shown."""
    (origin, *_), hits = session.origins(), list(session.hits())
    first, tensors = hits[0].tensors[0].hits[0].condition, session.summary.hits
    assert origin.line
    return [
        f"tensight: attached to the debug server; the training can be watched at {page}",
        f"tensight: stopped after step 3 by {first} on {tensors} tensors: {origin.sentence}",
        f"tensight: {origin.line.file}:{origin.line.lines}; the training waits at {page}",
    ]
