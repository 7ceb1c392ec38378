"""The log: one line for each event, for people or machines, without commands to a terminal, and bounded."""

from __future__ import annotations

import json
import logging
from datetime import datetime, timedelta
from pathlib import Path

import pytest
import structlog

from tensight.server import logs
from tensight.server.logs import server_log
from tensight.sessions.errors import StorageError

SECOND = timedelta(seconds=1)


def written(workspace: Path) -> list[str]:
    return (workspace / "log" / "tensight.log").read_text().splitlines()


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))  # Python 3.10 does not know the Z


def test_events_of_logging_and_structlog_are_alike(tmp_path: Path) -> None:
    with server_log(tmp_path, "json", on_stderr=False):
        logging.getLogger("tensight.sessions").info("attached", extra={"session": "1"})
        structlog.get_logger("tensight.sessions").info("attached", session="1")
    first, second = (json.loads(line) for line in written(tmp_path))
    first.pop("message", None)  # made by pytest's own handler
    assert abs(moment(first.pop("timestamp")) - moment(second.pop("timestamp"))) < SECOND
    assert first == second == {"event": "attached", "session": "1", "level": "info", "logger": "tensight.sessions"}


def test_people_read_text_on_stderr_and_in_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with server_log(tmp_path, "text"):
        logging.getLogger("tensight.x").warning("slow %s", "disk", extra={"seconds": 3})
    (line,) = written(tmp_path)
    assert "[warning  ] slow disk" in line
    assert "seconds=3" in line
    assert capsys.readouterr().err.strip() == line


def test_names_of_strangers_cannot_command_a_terminal(tmp_path: Path) -> None:
    with server_log(tmp_path, "text", on_stderr=False):
        logging.getLogger("tensight").warning("job \x1b[2J\n2026 forged", extra={"name_given": "\x9b31m\r"})
    (line,) = written(tmp_path)
    assert r"\x1b[2J\n2026 forged" in line
    assert "\x9b" not in line


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_a_traceback_shows_no_values(tmp_path: Path, log_format: logs.Format) -> None:
    with server_log(tmp_path, log_format, on_stderr=False):
        secret = "swordfish"[::-1]
        try:
            raise ValueError(len(secret))
        except ValueError:
            logging.getLogger("tensight").exception("failed")
    text = "\n".join(written(tmp_path))
    assert "ValueError" in text
    assert "hsifdrows" not in text


def test_chatter_of_libraries_is_left_out(tmp_path: Path) -> None:
    with server_log(tmp_path, "text", on_stderr=False):
        logging.getLogger("uvicorn.error").info("Started server process")
        logging.getLogger("uvicorn.error").warning("odd")
        logging.getLogger("tensight").debug("detail")
    assert [line for line in written(tmp_path) if "odd" in line] == written(tmp_path)


def test_old_files_are_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "FILE_BYTES", 1000)
    with server_log(tmp_path, "json", on_stderr=False):
        for number in range(100):
            logging.getLogger("tensight").info("x" * 100, extra={"number": number})
    files = sorted((tmp_path / "log").iterdir())
    assert len(files) == 1 + logs.FILES_KEPT
    assert all(file.stat().st_size <= 1000 for file in files)


def test_a_disk_that_takes_nothing_stops_nobody(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "tensight.log").symlink_to("/dev/full")
    with server_log(tmp_path, "text", on_stderr=False):
        logging.getLogger("tensight").info("lost")
    assert capfd.readouterr().err == ""


def test_a_log_that_cannot_be_opened_is_explained(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("")
    with pytest.raises(StorageError, match=r"log/tensight\.log cannot be written: "), server_log(tmp_path, "text"):
        pass


def test_logging_is_as_before_afterwards(tmp_path: Path) -> None:
    root = logging.getLogger()
    before = (root.level, list(root.handlers), logging.raiseExceptions)
    with server_log(tmp_path, "text", on_stderr=False):
        assert root.handlers != before[1]
    assert (root.level, list(root.handlers), logging.raiseExceptions) == before
