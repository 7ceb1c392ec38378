"""The database of a search: created atomically, and shared by several workers."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tensight.errors import TensightError

if TYPE_CHECKING:
    import optuna
    import sqlalchemy

OPENED_WITHIN = 5
"""Attempts to open a database."""

AGAIN_AFTER_S = 0.2
"""Seconds between two attempts."""

_LOCKED_FOR_S = 100
"""Seconds that a worker waits for others that write to a file of SQLite."""


class StudyStorageError(TensightError):
    """The storage of a search cannot be opened or does not fit."""

    code = "search-unreadable"


def open_storage(url: str, heartbeat_every_s: int, grace_s: int) -> optuna.storages.RDBStorage:
    """Open the database of a search, or create it.

    Parameters
    ----------
    url : str
        As a URL of SQLAlchemy.
    heartbeat_every_s, grace_s : int
        Seconds between two heartbeats of a worker, and without a heartbeat until its trial counts as lost.

    Raises
    ------
    StudyStorageError
        It cannot be opened.
    """
    import optuna
    import sqlalchemy

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    attempts = OPENED_WITHIN
    while True:
        try:
            return _open(url, heartbeat_every_s, grace_s)
        except (  # noqa: PERF203 - to try again is what the loop is for
            sqlalchemy.exc.SQLAlchemyError,
            optuna.exceptions.OptunaError,
            ImportError,
            RuntimeError,
            ValueError,
        ) as error:
            attempts -= 1
            # If workers begin together, one creates the tables on a server, and others find them incomplete.
            if not isinstance(error, sqlalchemy.exc.DBAPIError) or not attempts:
                what = str(error).splitlines()[0][:300]
                raise StudyStorageError(f"{without_password(url)}: the storage cannot be opened: {what}") from None
            time.sleep(AGAIN_AFTER_S)


def without_password(url: str) -> str:
    """Return the address of a database for display."""
    import sqlalchemy

    try:
        return sqlalchemy.engine.make_url(url).render_as_string(hide_password=True)
    except sqlalchemy.exc.ArgumentError:
        return url


def _open(url: str, heartbeat_every_s: int, grace_s: int) -> optuna.storages.RDBStorage:
    import sqlalchemy

    address = sqlalchemy.engine.make_url(url)
    is_sqlite = address.get_backend_name() == "sqlite"
    file = address.database if is_sqlite else None
    has_file = file not in (None, "", ":memory:")
    if file and has_file and not file.startswith("file:"):
        _make_at_once(Path(file))
    storage = _storage(
        url,
        engine_kwargs={"connect_args": {"timeout": _LOCKED_FOR_S}} if is_sqlite else {"pool_pre_ping": True},
        heartbeat_interval=heartbeat_every_s,
        grace_period=grace_s,
    )
    if has_file:
        _lock_before_reading(storage.engine)
    return storage


def _storage(url: str, **options: Any) -> optuna.storages.RDBStorage:
    import optuna

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return optuna.storages.RDBStorage(url, **options)


def _make_at_once(path: Path) -> None:
    """Create a database that has all its tables and indexes as soon as the file exists.

    Optuna creates them one by one, and assumes that existing tables are complete. If it is killed before the index that
    keeps the names of studies unique, the next search creates a second study of this name, and neither can be opened.
    """
    if path.exists():
        return
    # Another worker may have been faster. Without hard links, Optuna creates the file at its final path; if the folder
    # cannot be written, Optuna reports that.
    with (
        contextlib.suppress(OSError),
        tempfile.TemporaryDirectory(prefix=f".{path.name}-", dir=path.parent) as folder,
    ):
        made = Path(folder, path.name)
        storage = _storage(f"sqlite:///{made}")
        storage.remove_session()
        storage.engine.dispose()
        os.link(made, path)


def _lock_before_reading(engine: sqlalchemy.Engine) -> None:
    """Let each transaction of SQLite lock the database at its beginning.

    Optuna assigns a trial to a worker by reading its state FOR UPDATE, which SQLite does not support: two workers could
    both read that a trial waits, and both run it.
    """
    from sqlalchemy import event

    def leave_beginning_to_us(connection: Any, _record: object) -> None:
        connection.isolation_level = None

    def begin(connection: sqlalchemy.Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    event.listen(engine, "connect", leave_beginning_to_us)
    event.listen(engine, "begin", begin)
    # Connections that are open already have Python's behaviour.
    engine.dispose()
