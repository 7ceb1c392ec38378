"""Searches in a folder that another process runs or has run, read without changing anything."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import warnings
from typing import TYPE_CHECKING
from urllib.parse import quote

from tensight.errors import InputError
from tensight.search.attributes import CONFIGURATION
from tensight.search.storages import StudyStorageError
from tensight.search.studies import StudyReading
from tensight.sessions.discovery import SEARCH_DATABASE
from tensight.sessions.records import SearchRecord

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import optuna

    from tensight.search.configuration import Configuration
    from tensight.sessions.records import SearchResult

NEEDED = ("optuna", "yaml")
"""Modules of the extra `search` that reading needs."""

LOCKED_FOR_S = 5
"""Seconds to wait for a worker that is writing."""


def require_search(*more: str) -> None:
    """Raise InputError if a module is not installed that reading a search needs, or one of `more`."""
    missing = [name for name in (*NEEDED, *more) if importlib.util.find_spec(name) is None]
    if missing:
        are_missing = f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not installed"
        packages = " ".join("PyYAML" if name == "yaml" else name for name in missing)
        raise InputError(f"{are_missing}; run pip install {packages}", code="package-missing")


def list_studies(folder: Path, name: str) -> list[SearchRecord]:
    """Return summaries of the searches of a folder; one with a problem if its database cannot be read.

    Parameters
    ----------
    folder : Path
        Contains the database.
    name : str
        Prefix of the names of the records.
    """
    modified = _modified(folder)
    try:
        require_search()
        with _opened(folder) as storage:
            names = [study.study_name for study in storage.get_all_studies()]
            return [_record(folder, storage, f"{name}/{study}", study, modified) for study in names]
    except (StudyStorageError, InputError) as error:
        return [SearchRecord(name=f"{name}/", modified=modified, problem=str(error))]


def read_study(folder: Path, study: str) -> SearchResult:
    """Return the state and the results of a search.

    Raises
    ------
    StudyStorageError
        The database cannot be read, or contains no such study of `tensight search`.
    InputError
        A module that searches need is not installed.
    """
    require_search()
    from tensight.search.results import read_result

    with _opened(folder) as storage:
        configuration, reading = _reading(folder, storage, study)
        return read_result(configuration, reading)


def _record(
    folder: Path, storage: optuna.storages.RDBStorage, name: str, study: str, modified: float | None
) -> SearchRecord:
    from tensight.search.results import state_of, target_records

    try:
        configuration, reading = _reading(folder, storage, study)
    except StudyStorageError as error:
        return SearchRecord(name=name, study=study, modified=modified, problem=str(error))
    states = [state_of(trial) for trial in reading.trials()]
    best = reading.best()
    return SearchRecord(
        name=name,
        study=study,
        targets=target_records(configuration),
        trials=len(states) - states.count("waiting"),
        complete=states.count("complete"),
        pruned=states.count("pruned"),
        failed=states.count("failed"),
        running=states.count("running"),
        best=tuple(best[0].values) if best else (),
        modified=modified,
    )


def _reading(folder: Path, storage: optuna.storages.RDBStorage, name: str) -> tuple[Configuration, StudyReading]:
    import optuna
    from pydantic import ValidationError

    from tensight.search.configuration import Configuration

    where = folder / SEARCH_DATABASE
    try:
        study = optuna.load_study(study_name=name, storage=storage, sampler=optuna.samplers.RandomSampler())
    except KeyError:
        raise StudyStorageError(f"{where}: there is no study {name[:200]!r}") from None
    written = study.user_attrs.get(CONFIGURATION)
    if written is None:
        raise StudyStorageError(
            f"{where}: the study {name!r} does not say what is searched, another program or an earlier version made"
            " it; `tensight search --config` on it adds that"
        )
    try:
        # Via JSON, where a pair is a list.
        configuration = Configuration.model_validate_json(json.dumps(written))
    except ValidationError as error:
        what = error.errors()[0]["msg"]
        raise StudyStorageError(f"{where}: the configuration of {name!r} cannot be used: {what}") from None
    return configuration, StudyReading(configuration, f"sqlite:///{where}", study)


@contextlib.contextmanager
def _opened(folder: Path) -> Iterator[optuna.storages.RDBStorage]:
    import optuna
    import sqlalchemy

    path = folder / SEARCH_DATABASE
    # Folder names may contain "?" and "%".
    url = f"sqlite:///file:{quote(str(path.absolute()))}?mode=ro&uri=true"
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    storage = None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            storage = optuna.storages.RDBStorage(
                url, engine_kwargs={"connect_args": {"timeout": LOCKED_FOR_S}}, skip_table_creation=True
            )
            yield storage
    except (sqlalchemy.exc.SQLAlchemyError, optuna.exceptions.OptunaError, RuntimeError, ValueError) as error:
        what = str(error).splitlines()[0][:300] if str(error) else type(error).__name__
        raise StudyStorageError(f"{path}: it cannot be read as the database of a search: {what}") from None
    finally:
        if storage is not None:
            storage.remove_session()
            storage.engine.dispose()


def _modified(folder: Path) -> float | None:
    try:
        return (folder / SEARCH_DATABASE).stat().st_mtime
    except OSError:
        return None
