"""The study of a search in its storage: the next trials, their outcomes, and trials whose worker has died.

Several workers, on several machines, may work on one study. The storage assigns each trial to one of them.
"""

from __future__ import annotations

import contextlib
import math
import os
import socket
import warnings
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from tensight.search.attributes import (
    ASKING,
    ATTEMPT,
    COMBINATION,
    CONFIGURATION,
    LOSSES,
    REASON,
    SET_ASIDE,
    STEPS,
    WORKER,
)
from tensight.search.peers import Peers
from tensight.search.samplers import make_pruner, make_sampler
from tensight.search.spaces import combinations, suggest
from tensight.search.storages import StudyStorageError, open_storage, without_password
from tensight.sessions.live.connection import beginning_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import optuna
    from optuna.trial import FrozenTrial

    from tensight.search.configuration import Configuration, Value

HEARTBEAT_EVERY_S = 10
GRACE_S = 120
"""Seconds without a heartbeat after which a trial of another machine counts as lost."""

MOST_ATTEMPTS = 3
"""Number of times that a trial is tried if its workers die."""

_LONGEST_TEXT = 2000
"""Characters of an attribute that every database accepts."""


@dataclass(frozen=True)
class Suggestion:
    """A trial to run.

    Attributes
    ----------
    trial : optuna.Trial
    values : dict of str to value
        Values of its parameters.
    """

    trial: optuna.Trial
    values: dict[str, Value]

    @property
    def number(self) -> int:
        """The number of the trial in its study, from 0."""
        return self.trial.number


@dataclass(frozen=True)
class Outcome:
    """The outcome of a trial.

    Attributes
    ----------
    values : tuple of float
        Values of the targets; empty if the trial was pruned or has failed.
    is_pruned : bool
        Whether it was ended because it was bad. A trial without values that was not pruned has failed.
    reason : str
        Why it was pruned or has failed.
    attributes : dict of str to value
        Further attributes to store.
    """

    values: tuple[float, ...] = ()
    is_pruned: bool = False
    reason: str = ""
    attributes: dict[str, Any] = field(default_factory=dict)


class StudyReading:
    """Read access to a study of Optuna.

    Parameters
    ----------
    configuration : Configuration
    url : str
        URL of the storage.
    study : optuna.Study
    """

    def __init__(self, configuration: Configuration, url: str, study: optuna.Study) -> None:
        self._configuration = configuration
        self.url = url
        self._study = study

    @property
    def shown_url(self) -> str:
        """The URL of the storage without its password."""
        return without_password(self.url)

    def trials(self) -> list[FrozenTrial]:
        """Return the trials that count, ordered by number."""
        return [trial for trial in self._study.get_trials(deepcopy=False) if not trial.user_attrs.get(SET_ASIDE)]

    def best(self) -> list[FrozenTrial]:
        """Return the best trial; with several targets, the Pareto-optimal ones."""
        try:
            return self._study.best_trials if len(self._study.directions) > 1 else [self._study.best_trial]
        except ValueError:
            return []

    def importance(self) -> dict[str, float]:
        """Return how much each parameter matters, as Optuna estimates it; empty if there are too few trials.

        With several targets it is the mean over them.
        """
        from optuna.importance import get_param_importances
        from optuna.trial import TrialState

        if len(self._study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))) < 4:
            return {}
        sums: dict[str, float] = {}
        targets = range(len(self._study.directions))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # Importance cannot always be estimated, for example of parameters that never changed.
            with contextlib.suppress(ValueError, RuntimeError):
                for target in targets:
                    shares = get_param_importances(self._study, target=partial(_value_of, target))
                    for name, share in shares.items():
                        sums[name] = sums.get(name, 0.0) + share / len(targets)
                return dict(sorted(sums.items(), key=lambda item: -item[1]))
        return {}


class Study(StudyReading):
    """A study of Optuna, created or opened.

    Parameters
    ----------
    configuration : Configuration
    url : str
        URL of the storage, as in SQLAlchemy.
    must_exist : bool
        Whether a missing study is an error.

    Raises
    ------
    StudyStorageError
        The storage cannot be opened, or contains another study of this name.
    """

    def __init__(self, configuration: Configuration, url: str, *, must_exist: bool = False) -> None:
        self._storage = open_storage(url, HEARTBEAT_EVERY_S, GRACE_S)
        self._losses: dict[int, dict[str, float]] = {}
        super().__init__(configuration, url, self._open(configuration, url, must_exist=must_exist))

    def _open(self, configuration: Configuration, url: str, *, must_exist: bool) -> optuna.Study:
        import optuna

        name = configuration.study_name
        directions = [target.direction for target in configuration.all_targets]
        pruner = make_pruner(configuration.effective_pruner)
        is_new = False
        if not must_exist:
            with contextlib.suppress(optuna.exceptions.DuplicatedStudyError):
                optuna.create_study(storage=self._storage, study_name=name, directions=directions)
                is_new = True
        try:
            study = optuna.load_study(study_name=name, storage=self._storage, pruner=pruner)
        except KeyError:
            raise StudyStorageError(
                f"{without_password(url)}: there is no study {name!r}; `tensight search --config` creates one"
            ) from None
        if [direction.name.lower() for direction in study.directions] != directions:
            raise StudyStorageError(
                f"{without_password(url)}: the study {name!r} has other targets;"
                " write another `name` into the configuration"
            )
        if not must_exist:
            # Readers on other machines do not have the file of the configuration.
            written = configuration.model_dump(mode="json", by_alias=True, exclude_defaults=True)
            if study.user_attrs.get(CONFIGURATION) != written:
                study.set_user_attr(CONFIGURATION, written)
        study.sampler = make_sampler(configuration.tuner, _seed(configuration, study, is_new=is_new))
        return study

    # --- the next trial ---

    def fill_grid(self) -> None:
        """Queue a trial for each combination of a grid that neither has one nor was lost too often."""
        if self._configuration.tuner.name != "grid":
            return
        # Another worker may do the same at the same time: of two trials of a combination the later one is never run.
        present: set[int | None] = set()
        attempts: dict[int | None, int] = {}
        for trial in self._study.get_trials(deepcopy=False):
            combination = trial.user_attrs.get(COMBINATION)
            if not trial.user_attrs.get(SET_ASIDE):
                present.add(combination)
            elif trial.params:
                attempts[combination] = attempts.get(combination, 0) + 1
        for index, values in enumerate(combinations(self._configuration.parameters)):
            if index not in present and attempts.get(index, 0) < MOST_ATTEMPTS:
                self._study.enqueue_trial(values, user_attrs={COMBINATION: index})

    def ask(self, most: int) -> Suggestion | None:
        """Return the next trial; None if there are enough, or the grid has no more.

        Parameters
        ----------
        most : int
            Number of trials of the study in all.
        """
        from optuna.trial import TrialState

        self.give_up_lost()
        while True:
            trials = self._study.get_trials(deepcopy=False)
            waiting = [trial for trial in trials if trial.state == TrialState.WAITING]
            if _counted(trials) >= most or (self._configuration.tuner.name == "grid" and not waiting):
                return None
            trial = self._begin()
            reason = self._superfluous(trial.number, most)
            if not reason:
                return Suggestion(trial, self._suggest(trial))
            self.set_aside(trial.number, reason)

    def _begin(self) -> optuna.Trial:
        worker = _this_worker()
        # A trial has no worker for a moment after it begins: if this worker dies then, others know that it was asking.
        asking = f"{ASKING} {worker['host']} {worker['pid']} {id(self)}"
        self._study.set_user_attr(asking, worker)
        with warnings.catch_warnings():
            # We record heartbeats ourselves.
            warnings.simplefilter("ignore")
            trial = self._study.ask()
        self._storage.record_heartbeat(self._id_of(trial.number))
        trial.set_user_attr(WORKER, worker)
        self._study.set_user_attr(asking, None)
        return trial

    def _superfluous(self, number: int, most: int) -> str:
        """Return why other workers made a new trial superfluous; empty if they did not."""
        *earlier, trial = self._study.get_trials(deepcopy=False)[: number + 1]
        if _counted(earlier) >= most:
            return "other workers have begun enough trials"
        if self._configuration.tuner.name != "grid":
            return ""
        combination = trial.user_attrs.get(COMBINATION)
        if combination is None:
            return "other workers have begun all combinations of the grid"
        others = [other for other in earlier if other.user_attrs.get(COMBINATION) == combination]
        if all(other.user_attrs.get(SET_ASIDE) for other in others):
            return ""
        return "another trial has this combination of the grid"

    def _suggest(self, trial: optuna.Trial) -> dict[str, Value]:
        from optuna.trial import TrialState

        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return suggest(trial, self._configuration.parameters)
        except ValueError as error:
            self._study.tell(trial, state=TrialState.FAIL)
            raise StudyStorageError(
                f"{self.shown_url}: the parameters differ from those of the study"
                f" {self._study.study_name!r} ({error}); write another `name` into the configuration"
            ) from None

    def others_run(self, most: int) -> bool:
        """Whether other workers still run trials that count, which would be tried again if those workers died."""
        from optuna.trial import TrialState

        trials = self._study.get_trials(deepcopy=False)
        running = [trial.number for trial in trials if trial.state == TrialState.RUNNING]
        return any(_counted(trials[:number]) < most for number in running)

    def _id_of(self, number: int) -> int:
        """Return the id of a trial in the storage."""
        study = self._storage.get_study_id_from_name(self._study.study_name)
        return self._storage.get_trial_id_from_study_id_trial_number(study, number)

    def counted(self) -> int:
        """Return the number of trials that run or have ended."""
        return _counted(self._study.get_trials(deepcopy=False))

    def ended(self) -> int:
        """Return the number of trials that count and have ended; others may be running."""
        return _counted([trial for trial in self._study.get_trials(deepcopy=False) if trial.state.is_finished()])

    def whole_steps(self) -> int | None:
        """Return the maximum number of steps of a complete trial, as the debugger counts them; None if unknown."""
        return max((trial.user_attrs.get(STEPS, 0) for trial in self._complete()), default=0) or None

    # --- outcomes ---

    def note(self, suggestion: Suggestion, name: str, value: Any) -> None:
        """Store an attribute of a running trial; ignored if the trial was set aside meanwhile."""
        from optuna.exceptions import UpdateFinishedTrialError

        with contextlib.suppress(UpdateFinishedTrialError):
            suggestion.trial.set_user_attr(name, _short(value))

    def report(self, suggestion: Suggestion, step: int, value: float, loss: float | None = None) -> bool:
        """Report an intermediate value, and return whether the trial should be pruned.

        Parameters
        ----------
        suggestion : Suggestion
        step : int
        value : float
        loss : float or None
            The loss that the debugger sees at that time, which may prevent pruning.
        """
        if len(self._configuration.all_targets) > 1:
            return False
        trial = suggestion.trial
        with warnings.catch_warnings():
            # A step that is reported twice keeps its first value.
            warnings.simplefilter("ignore")
            trial.report(value, step)
            is_worse = trial.should_prune()
        if is_worse:
            peers = self._peers(suggestion)
            is_worse = peers.is_before_end(step) and not peers.is_spared(step, value, loss)
        if loss is not None and math.isfinite(loss):
            # Writing takes time, during which a trial that should end goes on; so this comes last.
            self._losses.setdefault(suggestion.number, {})[str(step)] = loss
            self.note(suggestion, LOSSES, self._losses[suggestion.number])
        return is_worse

    def rank(self, suggestion: Suggestion, step: int, value: float) -> str | None:
        """Return how many other trials are better if a trial without progress is lost; else None; see `Peers.rank`."""
        if len(self._configuration.all_targets) > 1:
            return None
        return self._peers(suggestion).rank(step, value)

    def rank_of_loss(self, suggestion: Suggestion, loss: float) -> str | None:
        """Return the same if no trial reports a target before its end; see `Peers.rank_of_loss`."""
        if len(self._configuration.all_targets) > 1:
            return None
        return self._peers(suggestion).rank_of_loss(loss)

    def _peers(self, suggestion: Suggestion) -> Peers:
        return Peers(self._configuration, suggestion.number, self._study.get_trials(deepcopy=False))

    def _complete(self) -> list[FrozenTrial]:
        from optuna.trial import TrialState

        return self._study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))

    def tell(self, suggestion: Suggestion, outcome: Outcome) -> None:
        """Store the outcome of a trial, unless its worker was taken for dead and the trial was tried again."""
        from optuna.trial import TrialState

        for name, value in {**outcome.attributes, REASON: outcome.reason}.items():
            self.note(suggestion, name, value)
        state = TrialState.COMPLETE if outcome.values else TrialState.PRUNED if outcome.is_pruned else TrialState.FAIL
        with contextlib.suppress(ValueError):
            self._study.tell(suggestion.trial, list(outcome.values) or None, state=state)

    def set_aside(self, number: int, reason: str, *, again: bool = False) -> None:
        """Mark a running trial as one that does not count; idempotent, also for two workers at once.

        Parameters
        ----------
        number : int
        reason : str
        again : bool
            Queue its values again.
        """
        from optuna.exceptions import UpdateFinishedTrialError
        from optuna.trial import TrialState

        trial = self._running(number)
        if trial is None:
            return
        try:
            trial_id = self._id_of(number)
            self._storage.set_trial_user_attr(trial_id, SET_ASIDE, True)
            self._storage.set_trial_user_attr(trial_id, REASON, reason)
            self._storage.set_trial_state_values(trial_id, TrialState.FAIL)
        except UpdateFinishedTrialError:
            return
        attempt = int(trial.user_attrs.get(ATTEMPT, 1))
        if again and COMBINATION in trial.user_attrs:
            self.fill_grid()
        elif again and trial.params and attempt < MOST_ATTEMPTS:
            self._study.enqueue_trial(trial.params, user_attrs={ATTEMPT: attempt + 1})

    def _running(self, number: int) -> FrozenTrial | None:
        from optuna.trial import TrialState

        trial = next((trial for trial in self._study.get_trials(deepcopy=False) if trial.number == number), None)
        return trial if trial is not None and trial.state == TrialState.RUNNING else None

    # --- workers ---

    def heartbeat(self, suggestions: Sequence[Suggestion]) -> None:
        """Tell other machines that trials are still running."""
        for suggestion in suggestions:
            self._storage.record_heartbeat(self._id_of(suggestion.number))

    def give_up_lost(self) -> None:
        """Queue trials again whose worker has died: on this machine at once, on others after a grace period."""
        from optuna.trial import TrialState

        running = self._study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
        silent = self._silent() if running else set()
        orphans = self._orphans(running)
        for trial in running:
            if trial.number in orphans or _is_lost(trial, silent):
                self.set_aside(trial.number, "its worker has died", again=True)

    def _orphans(self, running: Sequence[FrozenTrial]) -> set[int]:
        """Return the numbers of trials whose worker has died before it could store its name in them."""
        from optuna.trial import TrialState

        nameless = {trial.number for trial in running if WORKER not in trial.user_attrs}
        if not nameless:
            return set()
        asking = [worker for name, worker in self._study.user_attrs.items() if name.startswith(ASKING) and worker]
        if not asking or not all(_is_gone(worker) for worker in asking):
            return set()
        # A worker that had asked before that was read, and is alive, has stored its name by now.
        now = self._study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
        return {trial.number for trial in now if trial.number in nameless and WORKER not in trial.user_attrs}

    def _silent(self) -> set[int]:
        """Return the numbers of trials that have sent no heartbeat for too long, by the clock of the database."""
        study = self._storage.get_study_id_from_name(self._study.study_name)
        # Optuna's public function would end them itself, including those of this machine that still run.
        stale = self._storage._get_stale_trial_ids(study)
        return {self._storage.get_trial_number_from_id(trial) for trial in stale}


def _value_of(target: int, trial: FrozenTrial) -> float:
    return float(trial.values[target])


def _seed(configuration: Configuration, study: optuna.Study, *, is_new: bool) -> int | None:
    """Return the seed for this worker: that of the configuration if it begins the study, otherwise a different one."""
    seed = configuration.tuner.args.seed
    if seed is None or is_new:
        return seed
    return (seed + 1 + 1_000_003 * len(study.trials) + os.getpid()) % 2**32


def _counted(trials: Sequence[FrozenTrial]) -> int:
    from optuna.trial import TrialState

    return sum(trial.state != TrialState.WAITING and not trial.user_attrs.get(SET_ASIDE) for trial in trials)


def _this_worker() -> dict[str, Any]:
    return {"host": socket.gethostname(), "pid": os.getpid(), "began": beginning_of(os.getpid())}


def _is_lost(trial: FrozenTrial, silent: set[int]) -> bool:
    worker = trial.user_attrs.get(WORKER)
    if worker is None:
        # The worker was killed before it could store its name in the trial.
        begun = trial.datetime_start
        return begun is not None and datetime.now() - begun > timedelta(seconds=GRACE_S)
    return _is_gone(worker) or (worker["host"] != socket.gethostname() and trial.number in silent)


def _is_gone(worker: Mapping[str, Any]) -> bool:
    """Whether a worker was a process of this machine, and has ended."""
    return worker["host"] == socket.gethostname() and beginning_of(int(worker["pid"])) != str(worker["began"])


def _short(value: Any) -> Any:
    return value[: _LONGEST_TEXT - 1] + "…" if isinstance(value, str) and len(value) > _LONGEST_TEXT else value
