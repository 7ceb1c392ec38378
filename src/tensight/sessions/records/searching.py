"""Records of hyper-parameter searches: their parameters, trials and results."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from tensight.sessions.records.base import Number, Record

SearchValue = bool | int | float | str
TrialState = Literal["complete", "pruned", "failed", "running", "waiting"]


class SearchParameter(Record):
    """A hyper-parameter, as configured."""

    name: str
    kind: Literal["float", "int", "choice"]
    low: Number = None
    high: Number = None
    """End of the range, exclusive."""
    log: bool = False
    """Whether values are sampled uniformly in the logarithm."""
    choices: tuple[SearchValue, ...] = ()
    when: dict[str, Any] = Field(default_factory=dict)
    """Values of other parameters for which this parameter exists."""


class SearchTarget(Record):
    """A quantity that a search minimizes or maximizes."""

    name: str
    goal: Literal["minimize", "maximize"]


class TrialIllness(Record):
    """A condition that hit in a trial."""

    condition: str
    severity: str
    node: str
    """The first node in execution order on which it hit."""
    step: int
    line: str = ""
    """``file:line`` of user code; empty if unknown."""
    tensors: int = 1
    """Number of tensors on which it hit in the same step."""


class TrialResult(Record):
    """A trial of a search."""

    number: int
    """From 0."""
    state: TrialState
    params: dict[str, SearchValue]
    values: tuple[float, ...] = ()
    """Values of the targets; empty unless it is complete."""
    reason: str = ""
    """Why it was pruned or has failed."""
    illness: TrialIllness | None = None
    """The hit for which the debugger ended it."""
    warnings: tuple[TrialIllness, ...] = ()
    """Hits for which the debugger did not end it."""
    began: float | None = None
    """Seconds since 1970."""
    duration_s: float | None = None
    exit_code: int | None = None
    summary_dir: str = ""
    """Its folder."""
    recording: str = ""
    """Name of its recorded run in the list of dumps; empty if there is none that the server can open."""
    command: str = ""
    """Its command line."""
    session: str = ""
    """Its session on the debug server of the search."""
    intermediate: dict[int, Number] = Field(default_factory=dict)
    """Values of the first target by step, as reported to the pruner."""


class SearchResult(Record):
    """The results of a search so far."""

    study: str
    storage: str
    """URL of the database, without a password."""
    parameters: tuple[SearchParameter, ...]
    targets: tuple[SearchTarget, ...]
    trials: tuple[TrialResult, ...]
    best: tuple[int, ...]
    """Numbers of the best trials: one, or the Pareto front for several targets."""
    best_command: str
    """Command line that runs the best trial again; empty if there is none."""
    best_yaml: str
    """The parameters of the best trial."""
    importance: dict[str, float]
    """Importance of each parameter, averaged over the targets; the sum is 1. Empty if it cannot be determined yet."""

    def as_data(self) -> dict[str, Any]:
        """Return the record as data for JSON."""
        return self.model_dump(mode="json")

    def trial(self, number: int) -> TrialResult:
        """Return a trial by its number."""
        return next(trial for trial in self.trials if trial.number == number)


class SearchRecord(Record):
    """Summary of a search."""

    name: str
    """Its folder relative to the base directory, a slash, and the name of the study; used to request its results."""
    study: str = ""
    targets: tuple[SearchTarget, ...] = ()
    trials: int = 0
    """Number of trials that count, including running ones."""
    complete: int = 0
    pruned: int = 0
    failed: int = 0
    running: int = 0
    best: tuple[float, ...] = ()
    """Values of the targets of the (first) best trial; empty if there is none."""
    modified: float | None = None
    """When the database was last written; seconds since 1970."""
    problem: str = ""
    """Why it cannot be read; empty if it can."""
