"""Start a server that keeps running after the command that started it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import NoReturn

from tensight.errors import TensightError
from tensight.server.logs import LOG_FOLDER
from tensight.server.occupancy import Announcement, Ready
from tensight.server.settings import option_name

CRASH_NAME = "stderr.log"
"""File beside the log with the interpreter's own output when it crashes."""


class StartError(TensightError):
    """The server that was started in the background ended before it was ready."""

    code = "server-not-started"


def start_detached(given: Mapping[str, object], config: Path | None) -> Ready:
    """Start a server in a new process, and return when it is ready.

    Parameters
    ----------
    given : mapping
        The options, by field of `Settings`.
    config : Path, optional
        The TOML file that the user named.

    Raises
    ------
    StartError
        The server did not start; the message is its output on stderr.
    """
    reading, writing = os.pipe()
    command = [sys.executable, "-m", "tensight", "start", *_arguments(given, config), "--ready-fd", str(writing)]
    process = subprocess.Popen(  # noqa: S603 - ourselves
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        pass_fds=(writing,),
        start_new_session=True,
    )
    os.close(writing)
    try:
        with open(reading, encoding="utf-8") as report:
            report_text = report.read()
        return _ready(report_text) if report_text else _failed(process)
    except BaseException:
        process.terminate()
        raise


class Detachment:
    """Detach the background process from the terminal when it is ready, and report to its parent.

    Parameters
    ----------
    ready_fd : int
        File descriptor for the report.
    workspace : Path
        Folder of the log, beside which stderr is redirected.
    """

    def __init__(self, ready_fd: int, workspace: Path) -> None:
        self._ready_fd = ready_fd
        self._crashes = workspace / LOG_FOLDER / CRASH_NAME

    def on_ready(self, ready: Ready) -> None:
        """Redirect stderr to a file, and report that the server is ready."""
        with open(self._crashes, "wb") as file:
            os.dup2(file.fileno(), sys.stderr.fileno())
        with open(self._ready_fd, "w", encoding="utf-8") as report:
            json.dump(asdict(ready), report)


def _arguments(given: Mapping[str, object], config: Path | None) -> Iterable[str]:
    for field, value in given.items():
        for element in value if isinstance(value, list) else [value]:
            yield f"{option_name(field)}={element}"
    if config is not None:
        yield f"--config={config}"


def _ready(report_text: str) -> Ready:
    data = json.loads(report_text)
    return Ready(**{**data, "record": Announcement(**data["record"])})


def _failed(process: subprocess.Popen[bytes]) -> NoReturn:
    message = process.communicate()[1].decode(errors="replace").strip().removeprefix("tensight: ")
    raise StartError(message or "the server ended before it was ready, without a word")
