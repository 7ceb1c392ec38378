"""Trials under the debugger: the hits of the recommended watchpoints, findings, and whether the trial is lost.

A trial with a hit is stopped until it is polled: it goes on at once after a warning, and is ended after an error.
Findings, why the training does not learn, are warnings: most of them are of the script, and so of every trial.
A hit that shows that the training makes no progress is a warning, and kept as long as it is true; whether it ends the
trial depends on the results of the other trials.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tensight.agents.core.settings import as_variables
from tensight.client.errors import UnreachableError
from tensight.errors import InputError, TensightError
from tensight.search.lost_trials import (
    GETS_NOWHERE,
    beginning_of,
    gets_on,
    gradients_zero,
    half_of,
    is_late,
    weights_still,
)
from tensight.sessions.errors import NotFoundError, StateError
from tensight.sessions.records import State

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tensight.client import Server, Session
    from tensight.search.lost_trials import LostWatchpoint
    from tensight.sessions.records import HitRecord, NodeHits, SessionRecord

SURVIVABLE = frozenset({"weight_growth"})
"""Errors that do not end a trial.

In a training with a user at hand, a weight that grows tenfold in one step is worth a stop. Between wide bounds,
good trials do this in their first steps: weights that begin small, before a normalisation or in adversarial networks,
grow to their size at once. If it is an explosion, an overflow follows, or the target shows it.
"""

MOST_KEPT = 20
"""Maximum number of warnings kept of a trial."""

MOST_POINTS = 1000
"""Maximum number of points of a loss curve; the server returns no more."""

HALF_BEGINS = 0.8
"""Share of the steps until a trial is late after which losses count for `half_loss`."""

LOSSES_EVERY_S = 0.001
"""Seconds. Trials are compared by their loss at each step if that costs at most a hundredth of their time."""


@dataclass(frozen=True)
class Illness:
    """A problem that the debugger found in a trial.

    Attributes
    ----------
    condition : str
        Id of the condition that hit, or of the rule of a finding.
    severity : str
        "error" or "warning".
    node : str
        The first node in execution order on which it hit; of a finding, its sentence.
    step : int
    line : str
        ``file:line`` of the user's code; empty if unknown.
    tensors, nodes : int
        Number of tensors and nodes on which it hit in the same step.
    """

    condition: str
    severity: str
    node: str
    step: int
    line: str
    tensors: int
    nodes: int = 1

    @property
    def sentence(self) -> str:
        """The problem in one line."""
        where = f" ({self.line})" if self.line else ""
        more = f" and {self.tensors - 1} more" if self.tensors > 1 else ""
        return f"{self.condition} at step {self.step}: {self.node}{more}{where}"

    def as_data(self) -> dict[str, Any]:
        """Return it for the storage."""
        return {
            "condition": self.condition,
            "severity": self.severity,
            "node": self.node[:500],
            "step": self.step,
            "line": self.line[:500],
            "tensors": self.tensors,
        }


@dataclass
class Watch:
    """The debugger's view of one trial.

    Parameters
    ----------
    server : Server
        Server to which the training attaches.
    job : str
        Name under which the training attaches.
    host, port : str, int
        Address on which the server listens for trainings.
    prunes : bool
        Whether an error ends the trial, or a lack of progress.
    record : str
        What to record, as `tensight run --record` takes it; empty for nothing.
    whole_steps : int or None
        Steps of a complete trial; None if no trial has completed.

    Attributes
    ----------
    steps : int
        Steps that the training has done, as far as known.
    is_attached : bool
        Whether the training has attached.
    warnings : list of Illness
        Problems that do not end the trial.
    illness : Illness or None
        The problem that ends the trial.
    nowhere : Illness or None
        The hit that shows that the training makes no progress; None once it progresses again.
    half_loss : float or None
        Mean loss just before half of the steps were done; for a training with progress it is set when that has ended.
        None if the debugger saw no loss.
    """

    server: Server
    job: str
    host: str
    port: int
    prunes: bool
    record: str = ""
    whole_steps: int | None = None
    warnings: list[Illness] = field(default_factory=list)
    illness: Illness | None = None
    steps: int = 0
    nowhere: Illness | None = None
    half_loss: float | None = None
    _session: Session | None = None
    _findings: set[str] = field(default_factory=set)
    _is_prepared: bool = False
    _recent: tuple[int, float] | None = None
    """The last step whose loss was requested, and the mean of the losses so far."""
    _ends: dict[int, int] = field(default_factory=dict)
    """Watchpoints to remove, each with the step."""
    _recovery: int | None = None
    """The watchpoint that hits when the training makes progress again."""

    @property
    def is_attached(self) -> bool:
        """Whether the training has attached."""
        return self._session is not None

    @property
    def session_id(self) -> str:
        """The id of the session on the server; empty if the training has not attached."""
        return "" if self._session is None else self._session.id

    @property
    def may_be_lost(self) -> bool:
        """Whether the training makes no progress, and is not late."""
        return self.prunes and self.nowhere is not None and not is_late(self.steps, self.whole_steps)

    def end_as_lost(self, reason: str) -> str:
        """End the trial for its lack of progress; return that with the other reason."""
        assert self.nowhere is not None  # noqa: S101 - `may_be_lost` says so
        self.illness = self.nowhere
        return f"{GETS_NOWHERE[self.illness.condition]}, and {reason} ({self.illness.sentence})"

    def variables(self, folder: str) -> dict[str, str]:
        """Return the environment that puts a training under the debugger.

        Parameters
        ----------
        folder : str
            Where to record.
        """
        chosen = {
            "host": self.host,
            "port": self.port,
            "job": self.job,
            "run": self.job,
            "break_at_start": True,
            "recommended": True,
            "findings": "list",
            "quiet": True,
            "losses_every_s": LOSSES_EVERY_S,
            "record": self.record or None,
            "record_folder": folder if self.record else None,
        }
        return {"TENSIGHT_DEBUG": "1", **as_variables(chosen)}

    def poll(self) -> None:
        """Check whether the training is stopped at a hit; store the hit, and resume the training unless it is lost."""
        if self.illness is not None:
            return
        try:
            self._session = self._session or self._find()
            if self._session is None:
                return
            record = self._session.summary
            self._note_findings(self._session, record)
            self.steps = max(self.steps, record.step)
            if record.state is State.PAUSED:
                self._judge(self._session, record)
        except (NotFoundError, StateError, UnreachableError):
            """The training or the server has ended meanwhile; the exit code tells the outcome."""

    def _note_findings(self, session: Session, record: SessionRecord) -> None:
        """Store why the training does not learn, each finding once."""
        if record.findings == len(self._findings):
            return
        for finding in session.findings():
            if finding.rule in self._findings or len(self.warnings) >= MOST_KEPT:
                continue
            self._findings.add(finding.rule)
            self.warnings.append(
                Illness(
                    condition=finding.rule,
                    severity="warning",
                    node=finding.title,
                    step=finding.step,
                    line=finding.where.get("line", ""),
                    tensors=1,
                )
            )

    def _find(self) -> Session | None:
        return next((session for session in self.server.sessions() if session.name == self.job), None)

    def _judge(self, session: Session, record: SessionRecord) -> None:
        if record.hits:
            watched = {point.id: point.nodes for point in session.watchpoints()}
            for point, illness in _illnesses(list(session.hits())).items():
                if point == self._recovery:
                    self._moves(session)
                    continue
                if illness.severity == "error" and illness.condition not in SURVIVABLE and self.prunes:
                    self.illness = illness
                    return
                if len(self.warnings) < MOST_KEPT:
                    self.warnings.append(illness)
                if illness.condition in GETS_NOWHERE and illness.nodes >= watched.get(point, 0):
                    self._gets_nowhere(session, illness)
        if not self._is_prepared:
            self._prepare(session)
        self._go_on(session, record.step)

    def _gets_nowhere(self, session: Session, illness: Illness) -> None:
        """Store the hit that shows a lack of progress, and watch for progress."""
        if self.nowhere is not None or self.whole_steps is None or is_late(illness.step, self.whole_steps):
            return
        self._recovery = self._set(session, gets_on(illness.condition, self.whole_steps))
        if self._recovery is not None:
            self.nowhere = illness
            self._ends[self._recovery] = half_of(self.whole_steps)

    def _moves(self, session: Session) -> None:
        """Note that the training makes progress again."""
        if self._recovery is not None:
            session.delete_watchpoints(self._recovery)
            del self._ends[self._recovery]
        self.nowhere = self._recovery = None

    def _prepare(self, session: Session) -> None:
        """Set the watchpoints that find lost trials; the training is stopped at its start."""
        self._is_prepared = True
        self._set(session, gradients_zero())
        if self.whole_steps is not None:
            point = self._set(session, weights_still(self.whole_steps))
            if point is not None:
                # Without a state before the first update, that update is seen one step later.
                self._ends[point] = beginning_of(self.whole_steps) + 1

    def _set(self, session: Session, watchpoint: LostWatchpoint) -> int | None:
        """Set a watchpoint, and return its id; None if this training does not support it."""
        try:
            point = session.watch(
                watchpoint.condition,
                on=watchpoint.on,
                edits=(),
                name=watchpoint.name,
                severity="warning",
                enabled=True,
                persistence=watchpoint.persistence,
                **watchpoint.parameters,
            )
        except InputError:
            return None
        return point.id

    def _go_on(self, session: Session, step: int) -> None:
        if self._recovery is not None and self._ends.get(self._recovery, step + 1) <= step:
            self.half_loss = self._loss_before(step)
        for point in [point for point, end in self._ends.items() if end <= step]:
            # It costs time, and a learning rate that decays is not a problem.
            session.delete_watchpoints(point)
            del self._ends[point]
        session.continue_(min(self._ends.values()) - step if self._ends else -1)

    def _loss_before(self, step: int) -> float | None:
        """Return the mean of the losses shortly before a step; None if there are none."""
        losses = [loss for at, loss in self.losses() if HALF_BEGINS * step < at <= step]
        return sum(losses) / len(losses) if losses else None

    def losses(self) -> Sequence[tuple[int, float]]:
        """Return the known steps and losses; NaN where a loss is not finite."""
        if self._session is None:
            return []
        try:
            curves = self._session.curves(points=MOST_POINTS).curves
        except (NotFoundError, UnreachableError):
            return []
        return [
            (step, math.nan if value is None else value)
            for curve in curves
            if curve.name == "loss" and curve.slot == 0
            for step, value in zip(curve.steps, curve.values, strict=True)
        ]

    def recent_loss(self) -> float | None:
        """Return the mean of the losses that have arrived since the last call; None if there are none at all.

        Without new losses it is the mean of the last call. It is not finite if one of the losses is not.
        """
        last = self._recent[0] if self._recent is not None else -1
        new = [(step, loss) for step, loss in self.losses() if step > last]
        if new:
            self._recent = new[-1][0], sum(loss for _, loss in new) / len(new)
        return None if self._recent is None else self._recent[1]

    def close(self) -> None:
        """Let the server forget the session; the training has ended."""
        if self._session is None:
            return
        try:
            record = self._session.summary
            self.steps = max(self.steps, record.step)
            self._note_findings(self._session, record)
            if self.half_loss is None:
                self.half_loss = self._loss_before(half_of(self.steps))
            self._session.close()
        except TensightError:
            """The server has forgotten it already, or notices that the process is gone."""


def _illnesses(nodes: Sequence[NodeHits]) -> dict[int, Illness]:
    """Return the problem that each watchpoint found, by its id, errors first.

    Parameters
    ----------
    nodes : sequence of NodeHits
        In execution order.
    """
    firsts: dict[int, tuple[NodeHits, HitRecord]] = {}
    tensors: dict[int, int] = {}
    hit_nodes: dict[int, int] = {}
    for node in nodes:
        hits = [hit for tensor in node.tensors for hit in tensor.hits if hit.hit]
        for hit in hits:
            firsts.setdefault(hit.watchpoint, (node, hit))
            tensors[hit.watchpoint] = tensors.get(hit.watchpoint, 0) + 1
        for point in {hit.watchpoint for hit in hits}:
            hit_nodes[point] = hit_nodes.get(point, 0) + 1
    illnesses = {}
    for point, (node, hit) in firsts.items():
        line = "" if node.line is None else f"{node.line.file}:{node.line.line}"
        counts = tensors[point], hit_nodes[point]
        illnesses[point] = Illness(hit.condition, hit.severity, node.node, node.step, line, *counts)
    return dict(sorted(illnesses.items(), key=lambda item: item[1].severity != "error"))
