"""Records of searches for hyper-parameters: what was searched, what came of each trial, and what matters."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from tensight.sessions.records.base import Number, Record

SearchValue = bool | int | float | str
TrialState = Literal["complete", "pruned", "failed", "running", "waiting"]


class SearchParameter(Record):
    """A hyper-parameter, as the configuration has it."""

    name: str
    kind: Literal["float", "int", "choice"]
    low: Number = None
    high: Number = None
    """The end of the range, which is not in it."""
    log: bool = False
    """Whether the logarithm is spread evenly."""
    choices: tuple[SearchValue, ...] = ()
    when: dict[str, Any] = Field(default_factory=dict)
    """Values of other parameters under which it is there at all."""


class SearchTarget(Record):
    """What a search makes small or large."""

    name: str
    goal: Literal["minimize", "maximize"]


class TrialIllness(Record):
    """What the debugger found in a trial."""

    condition: str
    severity: str
    node: str
    """The first in the order of execution on which it hit."""
    step: int
    line: str = ""
    """``file:line`` of the person's code; empty if it is not known."""
    tensors: int = 1
    """On how many it hit in the same step."""


class TrialResult(Record):
    """A trial of a search."""

    number: int
    """From 0."""
    state: TrialState
    params: dict[str, SearchValue]
    values: tuple[float, ...] = ()
    """Of the targets; empty unless it is complete."""
    reason: str = ""
    """Why it was pruned or has failed."""
    illness: TrialIllness | None = None
    """What the debugger found that ended it."""
    warnings: tuple[TrialIllness, ...] = ()
    """What the debugger found and did not end it for."""
    began: float | None = None
    """Seconds since 1970."""
    duration_s: float | None = None
    exit_code: int | None = None
    summary_dir: str = ""
    """Its folder."""
    recording: str = ""
    """Its recorded run, by its name in the list of dumps; empty if there is none that the server can open."""
    command: str = ""
    """As it was run."""
    session: str = ""
    """On the debug server of the search."""
    intermediate: dict[int, Number] = Field(default_factory=dict)
    """Values of the first target by step, as they were reported to the pruner."""


class SearchResult(Record):
    """What came of a search so far."""

    study: str
    storage: str
    """URL of the database, without a password."""
    parameters: tuple[SearchParameter, ...]
    targets: tuple[SearchTarget, ...]
    trials: tuple[TrialResult, ...]
    best: tuple[int, ...]
    """Numbers of the best trials: one, or of several targets those than which no other is better in all."""
    best_command: str
    """What runs the best trial once more; empty if there is none."""
    best_yaml: str
    """The parameters of the best trial."""
    importance: dict[str, float]
    """Of each parameter to the target, or on average to several, the sum being 1; empty if it cannot be told yet."""

    def as_data(self) -> dict[str, Any]:
        """Return it for JSON."""
        return self.model_dump(mode="json")

    def trial(self, number: int) -> TrialResult:
        """Return a trial by its number."""
        return next(trial for trial in self.trials if trial.number == number)


class SearchRecord(Record):
    """A search that can be looked at."""

    name: str
    """Its folder relative to the base directory, a slash, and the name of the study; what looking at it asks for."""
    study: str = ""
    targets: tuple[SearchTarget, ...] = ()
    trials: int = 0
    """That count, those that run included."""
    complete: int = 0
    pruned: int = 0
    failed: int = 0
    running: int = 0
    best: tuple[float, ...] = ()
    """Targets of the best trial, of several the first; empty if there is none."""
    modified: float | None = None
    """When the database was last written; seconds since 1970."""
    problem: str = ""
    """Why it cannot be looked at; empty if it can."""
