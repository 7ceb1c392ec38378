"""`tensight search`: try hyper-parameters under the debugger, and drop trials with anomalies."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tensight.cli.options import Json, Quiet

if TYPE_CHECKING:
    from tensight.search.configuration import Configuration
    from tensight.search.running import Debugger, Guard
    from tensight.search.studies import Study

DEFAULT_TRIALS = 20


def search(
    config: Annotated[Path, typer.Option(metavar="FILE", help="What is searched: YAML, as mindoptimizer's.")],
    trials: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="In all, earlier ones included. (default: the file's, or 20)"),
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, max=256, metavar="N", help="Trials at a time.")] = 1,
    storage: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Database of the trials. (default search.db in the file's summary_base_dir)"),
    ] = None,
    results: Annotated[bool, typer.Option("--results", help="Run nothing; show what has come of it so far.")] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Search hyper-parameters: trials run under the debugger, and trials with anomalies are pruned at once."""
    configuration = read(config)
    study = open_study(configuration, storage, must_exist=results)
    if not results:
        most = trials or configuration.trials or default_trials(configuration)
        run_trials(configuration, study, most, jobs=jobs, quiet=quiet)
    report(configuration, study, json=json)


def read(config: Path) -> Configuration:
    """Read the configuration in a file.

    Raises
    ------
    InputError
        The file is unusable, or a package that a search needs is not installed.
    """
    from tensight.search.recorded import require_search

    require_search("cmaes", "scipy")
    from tensight.search.configuration import read_configuration

    return read_configuration(config)


def default_trials(configuration: Configuration) -> int:
    """Return the default number of trials of a search: for a grid, all combinations."""
    if configuration.tuner.name != "grid":
        return DEFAULT_TRIALS
    from tensight.search.spaces import combinations

    return len(combinations(configuration.parameters))


def folder_of(configuration: Configuration) -> Path:
    """Return the folder of a search."""
    return Path(configuration.summary_base_dir).expanduser().absolute()


def open_study(configuration: Configuration, storage: str | None, *, must_exist: bool = False) -> Study:
    """Open the study of a search, or create it."""
    from tensight.errors import InputError
    from tensight.search.studies import Study
    from tensight.sessions.discovery import SEARCH_DATABASE

    base = folder_of(configuration)
    if storage is None and "?" in str(base):
        raise InputError(f"{base}: SQLite would end the name of the folder at its '?'; write another summary_base_dir")
    url = storage or f"sqlite:///{base / SEARCH_DATABASE}"
    if not must_exist:
        base.mkdir(parents=True, exist_ok=True)
    elif storage is None and not (base / SEARCH_DATABASE).is_file():
        raise InputError(f"{base / SEARCH_DATABASE}: there is none, so nothing has been tried yet; leave --results out")
    return Study(configuration, url, must_exist=must_exist)


def run_trials(configuration: Configuration, study: Study, most: int, *, jobs: int, quiet: bool) -> None:
    """Run trials until a study has the given number, and show the progress."""
    from tensight.cli.search_report import search_progress
    from tensight.cli.starting import command_line
    from tensight.search.running import Search, guarded
    from tensight.search.samplers import notices_about

    with search_progress(configuration, study, most, jobs=jobs, quiet=quiet) as progress:
        for notice in notices_about(configuration):
            progress.notify(notice)
        with guarded() as guard, debugger_for(configuration, guard) as debugger:
            search = Search(configuration, study, folder_of(configuration), command_line, debugger, guard)
            search.run(most, jobs, progress.ended, progress.notify)


@contextlib.contextmanager
def debugger_for(configuration: Configuration, guard: Guard) -> Iterator[Debugger | None]:
    """Start a debug server for the search; yield None if its trials are not watched."""
    if configuration.watch == "off":
        yield None
        return
    import tensight
    from tensight.cli.own_server import own_server
    from tensight.search.running import Debugger

    with tempfile.TemporaryDirectory(prefix="tensight-search-") as folder:
        guard.add_folder(Path(folder))
        with own_server(Path(folder)) as record, tensight.connect(record.http) as server:
            host, _, port = (record.debugger or "").rpartition(":")
            yield Debugger(server, host, int(port))


def report(configuration: Configuration, study: Study, *, json: bool) -> None:
    """Print the results of a search; exit code 1 if no trial reached a value."""
    from tensight.cli.exit_codes import FOUND
    from tensight.search.results import read_result

    result = read_result(configuration, study)
    if json:
        from tensight.cli.output import print_json

        print_json(result.as_data())
    else:
        from tensight.cli.search_report import print_result

        print_result(result)
    if not result.best:
        raise typer.Exit(FOUND)
