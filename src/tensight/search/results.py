"""What came of a search, as one record for the terminal, for `--json`, and for other programs."""

from __future__ import annotations

import shlex
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from tensight.search.commands import command_words, names_in
from tensight.search.hyper_config import VARIABLE, hyper_config_text
from tensight.search.studies import COMMAND, EXIT_CODE, FOLDER, ILLNESS, REASON, SESSION, WARNINGS
from tensight.search.trials import custom_lineage

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

    from tensight.search.configuration import Configuration, Value
    from tensight.search.studies import Study


@dataclass(frozen=True)
class TrialResult:
    """A trial of a study.

    Attributes
    ----------
    number : int
        From 0.
    state : str
        "complete", "pruned", "failed", "running" or "waiting".
    params : dict of str to value
    values : tuple of float
        Of the targets; empty unless it is complete.
    reason : str
        Why it was pruned or has failed.
    illness : dict or None
        What the debugger found that ended it: condition, severity, node, step, line, tensors.
    warnings : list of dict
        What the debugger found and did not end it for.
    duration_s : float or None
    exit_code : int or None
    summary_dir : str
        Its folder.
    command : str
        As it was run.
    session : str
        On the debug server of the search.
    intermediate : dict of int to float
        Values of the first target by step, as they were reported to the pruner.
    """

    number: int
    state: str
    params: dict[str, Value]
    values: tuple[float, ...] = ()
    reason: str = ""
    illness: dict[str, Any] | None = None
    warnings: list[dict[str, Any]] = field(default_factory=list)
    duration_s: float | None = None
    exit_code: int | None = None
    summary_dir: str = ""
    command: str = ""
    session: str = ""
    intermediate: dict[int, float] = field(default_factory=dict)


@dataclass(frozen=True)
class SearchResult:
    """What came of a search.

    Attributes
    ----------
    study : str
    storage : str
        Its URL.
    targets : list of dict
        Name and goal of each.
    trials : list of TrialResult
    best : list of int
        Numbers of the best trials: one, or of several targets those than which no other is better in all.
    best_command : str
        What runs the best trial once more; empty if there is none.
    importance : dict of str to float
        Of each parameter to the target, the sum being 1; empty if it cannot be told yet.
    """

    study: str
    storage: str
    targets: list[dict[str, str]]
    trials: list[TrialResult]
    best: list[int]
    best_command: str
    importance: dict[str, float]

    def as_data(self) -> dict[str, Any]:
        """Return it for JSON."""
        return asdict(self)

    def trial(self, number: int) -> TrialResult:
        """Return a trial by its number."""
        return next(trial for trial in self.trials if trial.number == number)


def read_result(configuration: Configuration, study: Study) -> SearchResult:
    """Return what has come of a study so far."""
    best = study.best()
    return SearchResult(
        study=configuration.study_name,
        storage=study.shown_url,
        targets=[{"name": target.name, "goal": target.direction} for target in configuration.all_targets],
        trials=[_trial_result(trial) for trial in study.trials()],
        best=[trial.number for trial in best],
        best_command=_command(configuration, best[0]) if best else "",
        importance=study.importance(),
    )


def _trial_result(trial: FrozenTrial) -> TrialResult:
    state = trial.state.name.lower()
    kept = trial.user_attrs
    return TrialResult(
        number=trial.number,
        state="failed" if state == "fail" else state,
        params=dict(trial.params),
        values=tuple(trial.values) if state == "complete" else (),
        reason=kept.get(REASON, ""),
        illness=kept.get(ILLNESS),
        warnings=list(kept.get(WARNINGS, ())),
        duration_s=None if trial.duration is None else trial.duration.total_seconds(),
        exit_code=kept.get(EXIT_CODE),
        summary_dir=kept.get(FOLDER, ""),
        command=kept.get(COMMAND, ""),
        session=kept.get(SESSION, ""),
        intermediate=dict(trial.intermediate_values),
    )


def _command(configuration: Configuration, trial: FrozenTrial) -> str:
    """Return the command of a trial; the folder is the one that it had.

    What the command does not name is in the environment, for scripts that ask `HyperConfig`.
    """
    folder = trial.user_attrs.get(FOLDER, "")
    values = {**trial.params, "trial": trial.number, "summary_dir": folder}
    command = shlex.join(command_words(configuration.command, values))
    if set(trial.params) <= names_in(configuration.command):
        return command
    lineage = custom_lineage(trial.params)
    return f"{VARIABLE}={shlex.quote(hyper_config_text(trial.params, folder, lineage))} {command}"
