"""The results of a search, as one record for the terminal, for `--json`, and for other programs."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, cast

from tensight.search.attributes import COMMAND, EXIT_CODE, FOLDER, ILLNESS, REASON, SESSION, WARNINGS
from tensight.search.commands import command_words, names_in
from tensight.search.hyper_config import VARIABLE, hyper_config_text
from tensight.search.trials import custom_lineage
from tensight.sessions.records import SearchParameter, SearchResult, SearchTarget, TrialIllness, TrialResult

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

    from tensight.search.configuration import Configuration, Parameter, Value
    from tensight.search.studies import StudyReading
    from tensight.sessions.records import TrialState


def read_result(configuration: Configuration, study: StudyReading) -> SearchResult:
    """Return the state and the results of a study."""
    best = study.best()
    return SearchResult(
        study=configuration.study_name,
        storage=study.shown_url,
        parameters=tuple(_parameter(name, parameter) for name, parameter in configuration.parameters.items()),
        targets=target_records(configuration),
        trials=tuple(_trial_result(trial) for trial in study.trials()),
        best=tuple(trial.number for trial in best),
        best_command=_command(configuration, best[0]) if best else "",
        best_yaml=yaml_text(best[0].params) if best else "",
        importance=study.importance(),
    )


def target_records(configuration: Configuration) -> tuple[SearchTarget, ...]:
    """Return the targets of a search."""
    return tuple(SearchTarget(name=target.name, goal=target.direction) for target in configuration.all_targets)


def yaml_text(params: dict[str, Value]) -> str:
    """Return parameters as YAML."""
    import yaml

    return str(yaml.safe_dump(params, sort_keys=False, allow_unicode=True))


def state_of(trial: FrozenTrial) -> TrialState:
    """Return the state of a trial in our terms."""
    name = trial.state.name.lower()
    return cast("TrialState", "failed" if name == "fail" else name)


def _parameter(name: str, parameter: Parameter) -> SearchParameter:
    low, high = parameter.bounds or (None, None)
    return SearchParameter(
        name=name,
        kind="choice" if parameter.choice is not None else parameter.type or "float",
        low=low,
        high=high,
        log=parameter.log,
        choices=parameter.choice or (),
        when=parameter.when,
    )


def _trial_result(trial: FrozenTrial) -> TrialResult:
    state = state_of(trial)
    kept = trial.user_attrs
    ill = kept.get(ILLNESS)
    return TrialResult(
        number=trial.number,
        state=state,
        params=dict(trial.params),
        values=tuple(trial.values) if state == "complete" else (),
        reason=kept.get(REASON, ""),
        illness=None if ill is None else TrialIllness(**ill),
        warnings=tuple(TrialIllness(**warning) for warning in kept.get(WARNINGS, ())),
        began=None if trial.datetime_start is None else trial.datetime_start.timestamp(),
        duration_s=None if trial.duration is None else trial.duration.total_seconds(),
        exit_code=kept.get(EXIT_CODE),
        summary_dir=kept.get(FOLDER, ""),
        command=kept.get(COMMAND, ""),
        session=kept.get(SESSION, ""),
        intermediate=dict(trial.intermediate_values),
    )


def _command(configuration: Configuration, trial: FrozenTrial) -> str:
    """Return the command of a trial, with the folder that it had.

    Parameters that the command does not name are in the environment, for scripts that use `HyperConfig`.
    """
    folder = trial.user_attrs.get(FOLDER, "")
    values = {**trial.params, "trial": trial.number, "summary_dir": folder}
    command = shlex.join(command_words(configuration.command, values))
    if set(trial.params) <= names_in(configuration.command):
        return command
    lineage = custom_lineage(trial.params)
    return f"{VARIABLE}={shlex.quote(hyper_config_text(trial.params, folder, lineage))} {command}"
