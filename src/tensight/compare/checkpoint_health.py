"""Checks of a single checkpoint: NaN, lost optimizer states, weights of one number."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tensight.compare.checkpoint_roles import is_parameter, is_step, moment_of
from tensight.compare.checkpoint_values import compare_values
from tensight.compare.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tensight.analysis.engine import Progress
    from tensight.checkpoints import Checkpoint
    from tensight.errors import Problem
    from tensight.tensors import TensorStatistics


@dataclass(frozen=True, slots=True)
class Finding:
    """A noteworthy fact about one checkpoint, or about two.

    Attributes
    ----------
    kind : str
        Kind of finding, such as "not finite", "optimizer state lost", "stale shard".
    text : str
        The finding in one sentence.
    names : tuple of str
        Tensors or values that it concerns.
    is_note : bool
        Whether it is information only, not a fault.
    """

    kind: str
    text: str
    names: tuple[str, ...] = ()
    is_note: bool = False


@dataclass(frozen=True, slots=True)
class CheckpointHealth:
    """The result of checking one checkpoint.

    Attributes
    ----------
    verdict : Verdict
        `Verdict.DIFFERENT` if any finding is a fault rather than a note.
    statistics : dict of str to TensorStatistics
        Statistics by the name of the tensor.
    findings : tuple of Finding
    """

    verdict: Verdict
    statistics: dict[str, TensorStatistics]
    findings: tuple[Finding, ...]


def check_checkpoint(
    checkpoint: Checkpoint, *, threads: int | None = None, progress: Progress | None = None
) -> CheckpointHealth:
    """Check one checkpoint.

    Parameters
    ----------
    checkpoint : Checkpoint
    threads : int, optional
        By default the number of cores available to this process.
    progress : callable, optional
        Called with the number of bytes read so far and the total number.

    Raises
    ------
    CheckpointError
        A file cannot be read to its end.
    """
    entries = list(checkpoint.entries.values())
    measured = compare_values([(entry, None) for entry in entries], threads=threads, progress=progress)
    statistics = {entry.name: difference.a for entry, difference in zip(entries, measured, strict=True)}
    steps = _Steps(checkpoint, statistics)
    findings = [
        *problems_of(checkpoint.problems, ""),
        *not_finite(statistics, ""),
        *_lost_states(checkpoint, statistics, steps),
        *_constant(checkpoint, statistics, steps),
    ]
    wrong = any(not finding.is_note for finding in findings)
    return CheckpointHealth(Verdict.DIFFERENT if wrong else Verdict.SAME, statistics, by_weight(findings))


def by_weight(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Return findings with the faults before the notes."""
    return tuple(sorted(findings, key=lambda finding: finding.is_note))


def problems_of(problems: Sequence[Problem], which: str) -> list[Finding]:
    """Return the parts of a checkpoint that cannot be used, as findings."""
    return [Finding("damaged", f"{which}{problem}", (problem.where,)) for problem in problems]


def not_finite(statistics: Mapping[str, TensorStatistics], which: str) -> list[Finding]:
    """Return findings about tensors with NaN or Inf; masks may hold -Inf."""
    nan = [name for name, row in statistics.items() if row.nan_count]
    infinite = [name for name, row in statistics.items() if row.non_finite_count and not row.nan_count]
    findings = []
    if nan:
        findings.append(Finding("not finite", f"{which}NaN in {tensors_text(nan)}: {few(nan)}", tuple(nan)))
    masks = [name for name in infinite if not statistics[name].pos_inf_count and "mask" in name]
    infinite = [name for name in infinite if name not in masks]
    if infinite:
        text = f"{which}Inf in {tensors_text(infinite)}: {few(infinite)}"
        findings.append(Finding("not finite", text, tuple(infinite)))
    return findings


class _Steps:
    """The largest step counter of a checkpoint, and the name of it."""

    def __init__(self, checkpoint: Checkpoint, statistics: Mapping[str, TensorStatistics]) -> None:
        self.amount = 0.0
        self._name = "step"
        for name in checkpoint.entries:
            moment = moment_of(name)
            is_counter = moment[1] == "step" if moment is not None else is_step(name) and statistics[name].count == 1
            if is_counter:
                self._add(name, statistics[name].max)
        for name, value in checkpoint.values.items():
            if is_step(name) and isinstance(value, (int, float)):
                self._add(name, value)

    def _add(self, name: str, value: float) -> None:
        if value > self.amount:
            self.amount, self._name = value, name.rpartition(".")[2]

    def __str__(self) -> str:
        """Return the counter in words: ``step 500``."""
        return f"{self._name} {self.amount:,.0f}"


def _constant(checkpoint: Checkpoint, statistics: Mapping[str, TensorStatistics], steps: _Steps) -> list[Finding]:
    """Return findings about matrices that are all zeros or one number.

    Zeros are how some weights begin. A matrix of another number makes all units the same, which no training does.
    """
    zero: list[str] = []
    constant: list[str] = []
    alike: list[str] = []
    for name, row in statistics.items():
        entry = checkpoint.entries[name]
        if len(entry.shape) < 2 or row.count < 2 or row.finite_count < row.count or not is_parameter(entry):
            continue
        if row.zero_count == row.count:
            zero.append(name)
        elif row.min == row.max:
            is_matrix = min(entry.shape[:2]) > 1 and "mask" not in name and steps.amount > 0
            (alike if is_matrix else constant).append(name)
    findings = []
    if alike:
        text = f"{tensors_text(alike)} of one number only, at {steps}: {few(alike)}"
        findings.append(Finding("constant", text, tuple(alike)))
    if zero:
        findings.append(Finding("zero", f"{tensors_text(zero)} all zeros: {few(zero)}", tuple(zero), is_note=True))
    if constant:
        text = f"{tensors_text(constant)} of one number only: {few(constant)}"
        findings.append(Finding("constant", text, tuple(constant), is_note=True))
    return findings


def _lost_states(checkpoint: Checkpoint, statistics: Mapping[str, TensorStatistics], steps: _Steps) -> list[Finding]:
    """Return findings about zero or missing optimizer states; they are normal only before the first step."""
    slots: dict[str, list[str]] = defaultdict(list)
    parameters: dict[str, set[str]] = defaultdict(set)
    for name in checkpoint.entries:
        moment = moment_of(name)
        if moment is not None and moment[1] != "step":
            slots[moment[1]].append(name)
            parameters[moment[1]].add(moment[0])
    findings = _without_state(checkpoint, steps)
    if not steps.amount > 0:
        return findings
    for slot, names in slots.items():
        zero = [name for name in names if statistics[name].zero_count == statistics[name].count]
        if zero and len(zero) == len(names):
            text = f"every {slot} is zero at {steps}: the states were lost, or every gradient was zero"
            findings.append(Finding("optimizer state lost", text, tuple(zero)))
        elif zero:
            text = f"{slot} of {len(zero):,} of {len(names):,} parameters is zero at {steps}: {few(zero)}"
            findings.append(Finding("optimizer state zero", text, tuple(zero), is_note=True))
    everywhere = set().union(*parameters.values()) if parameters else set()
    for slot, having in parameters.items():
        missing = sorted(everywhere - having)
        if missing and slot in ("exp_avg", "exp_avg_sq"):
            text = f"{slot} is missing for {len(missing):,} of {len(everywhere):,} parameters: {few(missing)}"
            findings.append(Finding("optimizer state lost", text, tuple(missing)))
    return findings


@dataclass(slots=True)
class _Optimizer:
    """What the groups of a PyTorch optimizer say: its parameters, and whether it keeps a state of them."""

    parameters: set[str] = field(default_factory=set)
    keeps_state: bool = False


_GROUP = re.compile(r"(?P<optimizer>.*?)param_groups\.\d+\.(?P<key>.+)")
_PARAMETER = re.compile(r"params\.\d+")


def _without_state(checkpoint: Checkpoint, steps: _Steps) -> list[Finding]:
    """Return findings about parameters in a PyTorch optimizer's groups for which it has no state."""
    optimizers: dict[str, _Optimizer] = defaultdict(_Optimizer)
    for name, value in checkpoint.values.items():
        match = _GROUP.fullmatch(name)
        if match is None:
            continue
        optimizer = optimizers[match["optimizer"]]
        if _PARAMETER.fullmatch(match["key"]) and isinstance(value, int):
            optimizer.parameters.add(str(value))
        # Of PyTorch's optimizers, only SGD without momentum keeps none.
        optimizer.keeps_state |= match["key"] in ("eps", "betas.0") or (match["key"] == "momentum" and bool(value))
    findings = []
    for prefix, optimizer in optimizers.items():
        begin = f"{prefix}state."
        having = {name[len(begin) :].partition(".")[0] for name in checkpoint.entries if name.startswith(begin)}
        missing = sorted(optimizer.parameters - having, key=int)
        if not missing:
            continue
        if having:
            text = (
                f"{len(missing):,} of {len(optimizer.parameters):,} parameters of the optimizer have no state: "
                f"never updated, or lost: number {few(missing)}"
            )
            findings.append(Finding("optimizer state missing", text, tuple(missing), is_note=True))
        elif optimizer.keeps_state and steps.amount > 0:
            text = f"the optimizer has no state of any of its {len(missing):,} parameters, at {steps}: it was lost"
            findings.append(Finding("optimizer state lost", text, tuple(missing)))
        elif optimizer.keeps_state:
            text = (
                f"the optimizer has no state of any of its {len(missing):,} parameters: it has made no step, or its "
                "state was lost"
            )
            findings.append(Finding("optimizer state missing", text, tuple(missing), is_note=True))
    return findings


def is_zero(row: TensorStatistics) -> bool:
    """Tell whether all elements are zero."""
    return row.count > 0 and row.zero_count == row.count


def tensors_text(names: Sequence[Any]) -> str:
    """Return a number of tensors in words."""
    return f"{len(names):,} tensor" + ("" if len(names) == 1 else "s")


def few(names: Sequence[str], most: int = 4) -> str:
    """Return the first names and, if there are more, their number."""
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown}, … ({len(names):,})"
