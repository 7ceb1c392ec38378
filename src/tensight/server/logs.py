"""The log: one line per event with its fields, as text or JSON, on stderr and in the workspace.

Logging only puts the event into a queue; a thread writes it, so that a slow disk does not stop a training.
"""

from __future__ import annotations

import logging
import queue
import sys
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from logging.handlers import QueueHandler, QueueListener, RotatingFileHandler
from pathlib import Path
from typing import Any, Literal

import structlog

from tensight.sessions.errors import StorageError

LOG_FOLDER, LOG_NAME = "log", "tensight.log"
FILE_BYTES, FILES_KEPT = 10 * 2**20, 5
MOST_WAITING = 10_000
"""Events that wait for a slow disk; further ones are dropped."""

_TRACEBACKS = structlog.processors.ExceptionRenderer(
    # No values of variables in logs: tokens are among them.
    structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
)

Format = Literal["text", "json"]
Event = MutableMapping[str, Any]


@contextmanager
def server_log(workspace: Path, log_format: Format, *, on_stderr: bool = True) -> Iterator[None]:
    """Write everything logged with `logging` or structlog within the context; at its end all is on disk.

    Parameters
    ----------
    workspace : Path
        The file is ``log/tensight.log`` in it; older files end in ``.1``, ``.2`` …
    log_format : {"text", "json"}
    on_stderr : bool
        Also write to stderr.

    Raises
    ------
    StorageError
        The file cannot be written.
    """
    handlers: list[logging.Handler] = [_file_handler(workspace, log_format)]
    if on_stderr:
        handlers.append(_stderr_handler(log_format))
    waiting: queue.Queue[Any] = queue.Queue(MOST_WAITING)
    entry = _Entry(waiting)
    listener = QueueListener(waiting, *handlers)
    root = logging.getLogger()
    level, raising = root.level, logging.raiseExceptions
    # A full disk must not fill stderr with tracebacks.
    logging.raiseExceptions = False
    root.addHandler(entry)
    root.setLevel(logging.WARNING)
    logging.getLogger("tensight").setLevel(logging.INFO)
    _configure_structlog()
    listener.start()
    try:
        yield
    finally:
        root.removeHandler(entry)
        root.setLevel(level)
        listener.stop()
        for handler in handlers:
            # Events that a full disk did not accept are lost.
            with suppress(OSError):
                handler.close()
        logging.raiseExceptions = raising
        structlog.reset_defaults()


class _Entry(QueueHandler):
    """Queues events unformatted; the formatters in the other thread need their fields."""

    def prepare(self, record: logging.LogRecord) -> logging.LogRecord:
        return record

    def enqueue(self, record: logging.LogRecord) -> None:
        with suppress(queue.Full):
            self.queue.put_nowait(record)


def _file_handler(workspace: Path, log_format: Format) -> logging.Handler:
    file = workspace / LOG_FOLDER / LOG_NAME
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handler = RotatingFileHandler(file, maxBytes=FILE_BYTES, backupCount=FILES_KEPT, encoding="utf-8")
        file.chmod(0o600)
    except OSError as error:
        raise StorageError(f"the log {file} cannot be written: {error.strerror}") from None
    handler.setFormatter(_formatter(log_format, colors=False))
    return handler


def _stderr_handler(log_format: Format) -> logging.Handler:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_formatter(log_format, colors=sys.stderr.isatty()))
    return handler


def _formatter(log_format: Format, *, colors: bool) -> logging.Formatter:
    if log_format == "json":
        rendering: list[Any] = [_TRACEBACKS, structlog.processors.JSONRenderer(default=str)]
    else:
        plain = structlog.dev.plain_traceback
        rendering = [_visible, structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=plain)]
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[*_fields(), structlog.stdlib.ExtraAdder()],
        processors=[_when, structlog.stdlib.ProcessorFormatter.remove_processors_meta, *rendering],
    )


def _fields() -> list[Any]:
    return [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
    ]


def _configure_structlog() -> None:
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *_fields(),
            structlog.stdlib.PositionalArgumentsFormatter(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
    )


def _when(_logger: object, _method: str, event: Event) -> Event:
    """Add the time of logging: formatting happens later, and once for each handler."""
    logged = datetime.fromtimestamp(event["_record"].created, timezone.utc)
    event["timestamp"] = logged.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return event


def _visible(_logger: object, _method: str, event: Event) -> Event:
    """Escape control characters for terminals: names in the log are untrusted."""
    for key, value in event.items():
        if isinstance(value, str) and not value.isprintable():
            event[key] = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in value)
    return event
