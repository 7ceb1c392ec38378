"""Comparison of two checkpoints, and checks of a single one: differences, updates, and signs of faults."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tensight.checkpoints.content import BoxesContent
from tensight.compare.checkpoint_matching import FUSED, SAME_NAME, Matching, Pair, match_entries
from tensight.compare.checkpoint_roles import (
    is_generator,
    is_generator_name,
    is_parameter,
    is_step,
    moment_of,
    parameters_by_number,
)
from tensight.compare.checkpoint_values import ValueDifference, compare_values
from tensight.compare.verdict import Verdict
from tensight.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from tensight.analysis.engine import Progress
    from tensight.checkpoints import Checkpoint, Entry, Scalar
    from tensight.errors import Problem
    from tensight.tensors import TensorStatistics

_SAMPLE = 4096
"""Number of elements that are compared first, to decide whether two tensors have the same values."""

_FAR = 0.05
"""A tensor that changed by more than this share of its norm may contain the values of another one."""

_MUCH_NEARER = 0.1
_MOST_OF_ONE_SHAPE = 256
_ABOUT_THE_FILE = ("__metadata__.format", "__metadata__.crc_num", "__metadata__.remove_redundancy")
"""Values that writers of safetensors add and that are unrelated to the training."""

_SMALLEST_TIED = 16
"""Tensors with fewer elements may be equal by chance."""


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
class ComparedPair:
    """A pair of tensors and how they differ.

    Attributes
    ----------
    pair : Pair
    difference : ValueDifference or None
        None if their shapes do not match.
    is_within : bool
        Whether B equals A within the tolerance; True where nothing differs.
    """

    pair: Pair
    difference: ValueDifference | None
    is_within: bool

    @property
    def is_same(self) -> bool:
        """Whether shape, dtype and every element are the same."""
        return self.difference is not None and self.difference.is_same and self.pair.has_same_dtype

    @property
    def name(self) -> str:
        """The names of both tensors, once if they are the same."""
        a, b = self.pair.a.name, self.pair.b.name
        return a if a == b else f"{a} → {b}"


@dataclass(frozen=True, slots=True)
class ChangedValue:
    """A value other than a tensor that differs: a setting, a counter, a text.

    Attributes
    ----------
    name : str
    a, b : scalar
    only_in : str
        "A" or "B" if the other does not have it, "" otherwise.
    """

    name: str
    a: Scalar
    b: Scalar
    only_in: str = ""


@dataclass(frozen=True, slots=True)
class CheckpointComparison:
    """The result of comparing two checkpoints.

    Attributes
    ----------
    verdict : Verdict
    pairs : tuple of ComparedPair
    only_a, only_b : tuple of Entry
        Tensors that only one of them has.
    values : tuple of ChangedValue
    findings : tuple of Finding
        Faults first, then notes.
    matching : Matching
    """

    verdict: Verdict
    pairs: tuple[ComparedPair, ...]
    only_a: tuple[Entry, ...]
    only_b: tuple[Entry, ...]
    values: tuple[ChangedValue, ...]
    findings: tuple[Finding, ...]
    matching: Matching


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


def compare_checkpoints(
    a: Checkpoint,
    b: Checkpoint,
    *,
    mapping: Mapping[str, str] | None = None,
    rtol: float = 0.0,
    atol: float = 0.0,
    threads: int | None = None,
    progress: Progress | None = None,
) -> CheckpointComparison:
    """Compare two checkpoints.

    Parameters
    ----------
    a, b : Checkpoint
    mapping : mapping of str to str, optional
        Names in A, and the names of the same tensors in B.
    rtol, atol : float
        Every element x of B must satisfy ``|x - a| <= atol + rtol * |a|``, or the checkpoints differ. By default
        all bits must be the same, except that NaN always equals NaN.
    threads : int, optional
        By default the number of cores available to this process.
    progress : callable, optional
        Called with the number of bytes read so far and the total number.

    Raises
    ------
    InputError
        A tolerance is negative, or the mapping contains a name that a checkpoint does not have.
    CheckpointError
        A file cannot be read to its end.
    """
    if not (rtol >= 0 and atol >= 0):
        raise InputError(f"rtol is {rtol}, atol is {atol}; give numbers of at least 0")
    matching = _with_turned_squares(match_entries(a, b, mapping, values=_digest))
    comparable = [pair for pair in matching.pairs if pair.is_comparable]
    differences = compare_values(
        [(pair.a, pair.b) for pair in comparable], atol=atol, threads=threads, progress=progress
    )
    by_pair = dict(zip(map(id, comparable), differences, strict=True))
    pairs = []
    for pair in matching.pairs:
        difference = by_pair.get(id(pair))
        is_within = difference is not None and (difference.is_same or difference.required_rtol <= rtol)
        pairs.append(ComparedPair(pair, difference, is_within))
    values = _changed_values(a, b)
    findings = _Comparison(a, b, pairs, matching, values).findings()
    return CheckpointComparison(
        _verdict(a, b, pairs, matching, values),
        tuple(pairs),
        matching.only_a,
        matching.only_b,
        values,
        findings,
        matching,
    )


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
    findings = [
        *_problems(checkpoint.problems, ""),
        *_not_finite(statistics, ""),
        *_lost_states(checkpoint, statistics),
        *_constant(checkpoint, statistics),
    ]
    wrong = any(not finding.is_note for finding in findings)
    return CheckpointHealth(Verdict.DIFFERENT if wrong else Verdict.SAME, statistics, _sorted(findings))


def _verdict(
    a: Checkpoint, b: Checkpoint, pairs: Sequence[ComparedPair], matching: Matching, values: Sequence[ChangedValue]
) -> Verdict:
    if a.entries and b.entries and not any(pair.difference for pair in pairs):
        return Verdict.NOT_COMPARABLE
    same = all(pair.is_within and pair.pair.has_same_dtype for pair in pairs)
    if not same or values or matching.only_a or matching.only_b:
        return Verdict.DIFFERENT
    # Whether the unreadable rest is the same is unknown.
    return Verdict.NOT_COMPARABLE if a.problems or b.problems else Verdict.SAME


def _sorted(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    return tuple(sorted(findings, key=lambda finding: finding.is_note))


def _problems(problems: Sequence[Problem], which: str) -> list[Finding]:
    return [Finding("damaged", f"{which}{problem}", (problem.where,)) for problem in problems]


def _not_finite(statistics: Mapping[str, TensorStatistics], which: str) -> list[Finding]:
    nan = [name for name, row in statistics.items() if row.nan_count]
    infinite = [name for name, row in statistics.items() if row.non_finite_count and not row.nan_count]
    findings = []
    if nan:
        findings.append(Finding("not finite", f"{which}NaN in {_tensors(nan)}: {_few(nan)}", tuple(nan)))
    masks = [name for name in infinite if not statistics[name].pos_inf_count and "mask" in name]
    infinite = [name for name in infinite if name not in masks]
    if infinite:
        findings.append(Finding("not finite", f"{which}Inf in {_tensors(infinite)}: {_few(infinite)}", tuple(infinite)))
    return findings


def _constant(checkpoint: Checkpoint, statistics: Mapping[str, TensorStatistics]) -> list[Finding]:
    """Return notes on matrices that are all zeros or one number."""
    zero, constant = [], []
    for name, row in statistics.items():
        entry = checkpoint.entries[name]
        if len(entry.shape) < 2 or row.count < 2 or row.finite_count < row.count or not is_parameter(entry):
            continue
        if row.zero_count == row.count:
            zero.append(name)
        elif row.min == row.max:
            constant.append(name)
    findings = []
    if zero:
        findings.append(Finding("zero", f"{_tensors(zero)} all zeros: {_few(zero)}", tuple(zero), is_note=True))
    if constant:
        text = f"{_tensors(constant)} of one number only: {_few(constant)}"
        findings.append(Finding("constant", text, tuple(constant), is_note=True))
    return findings


def _lost_states(checkpoint: Checkpoint, statistics: Mapping[str, TensorStatistics]) -> list[Finding]:
    """Return findings about zero or missing optimizer states; they are normal only before the first step."""
    slots: dict[str, list[str]] = defaultdict(list)
    parameters: dict[str, set[str]] = defaultdict(set)
    step = 0.0
    for name in checkpoint.entries:
        moment = moment_of(name)
        if (moment is not None and moment[1] == "step") or (
            moment is None and is_step(name) and statistics[name].count == 1
        ):
            step = max(step, statistics[name].max)
        elif moment is not None:
            slots[moment[1]].append(name)
            parameters[moment[1]].add(moment[0])
    for name, value in checkpoint.values.items():
        if is_step(name) and isinstance(value, (int, float)):
            step = max(step, value)
    findings = []
    if not step > 0:
        return []
    for slot, names in slots.items():
        zero = [name for name in names if statistics[name].zero_count == statistics[name].count]
        if zero and len(zero) == len(names):
            text = f"every {slot} is zero at step {step:,.0f}: the states were lost, or every gradient was zero"
            findings.append(Finding("optimizer state lost", text, tuple(zero)))
        elif zero:
            text = f"{slot} of {len(zero):,} of {len(names):,} parameters is zero at step {step:,.0f}: {_few(zero)}"
            findings.append(Finding("optimizer state zero", text, tuple(zero), is_note=True))
    everywhere = set().union(*parameters.values()) if parameters else set()
    for slot, having in parameters.items():
        missing = sorted(everywhere - having)
        if missing and slot in ("exp_avg", "exp_avg_sq"):
            text = f"{slot} is missing for {len(missing):,} of {len(everywhere):,} parameters: {_few(missing)}"
            findings.append(Finding("optimizer state lost", text, tuple(missing)))
    findings += _without_state(checkpoint, everywhere)
    return findings


def _without_state(checkpoint: Checkpoint, having: set[str]) -> list[Finding]:
    """Return a note on parameters in a PyTorch optimizer's groups for which it has no state."""
    listed = {
        str(value) for name, value in checkpoint.values.items() if "param_groups." in name and ".params." in f"{name}."
        and name.rpartition(".")[2].isdigit() and isinstance(value, int)
    }  # fmt: skip
    missing = sorted(listed - having, key=int)
    if not missing or not having & listed:
        return []
    text = (
        f"{len(missing):,} of {len(listed):,} parameters of the optimizer have no state: "
        f"never updated, or lost: number {_few(missing)}"
    )
    return [Finding("optimizer state missing", text, tuple(missing), is_note=True)]


class _Comparison:
    """Writes the findings of a comparison."""

    def __init__(
        self,
        a: Checkpoint,
        b: Checkpoint,
        pairs: Sequence[ComparedPair],
        matching: Matching,
        values: Sequence[ChangedValue],
    ) -> None:
        self.a, self.b, self.pairs, self.matching, self.values = a, b, pairs, matching, values
        self.measured = [(pair, pair.difference) for pair in pairs if pair.difference is not None]

    def findings(self) -> tuple[Finding, ...]:
        """Return all findings, faults before notes."""
        rearranged = self._rearranged()
        return _sorted(
            [
                *_problems(self.a.problems, "A: "),
                *_problems(self.b.problems, "B: "),
                *self._missing(),
                *self._not_finite(),
                *self._states(),
                *self._shards(),
                *self._forms(),
                *rearranged,
                *self._rounded(),
                *self._became_constant(),
                *self._tied(),
                *self._counters(),
                *self._generators(),
                *self._not_updated(),
            ]
        )

    def _missing(self) -> list[Finding]:
        findings = []
        for which, other, entries in (("A", "B", self.matching.only_a), ("B", "A", self.matching.only_b)):
            names = [entry.name for entry in entries if moment_of(entry.name) is None]
            if names:
                text = f"only {which} has {_tensors(names)}, {other} does not: {_few(names)}"
                findings.append(Finding("missing", text, tuple(names)))
        return findings

    def _not_finite(self) -> list[Finding]:
        rows_a = {pair.pair.a.name: row.a for pair, row in self.measured}
        rows_b = {pair.pair.b.name: row.b for pair, row in self.measured}
        both = [pair.name for pair, row in self.measured if row.both_nan and row.is_same]
        findings = _not_finite({name: row for name, row in rows_b.items() if name not in both}, "B: ")
        findings += _not_finite({name: row for name, row in rows_a.items() if name not in both}, "A: ")
        if both:
            text = f"NaN in both at the same places, which counts as equal, in {_tensors(both)}: {_few(both)}"
            findings.append(Finding("not finite", text, tuple(both), is_note=True))
        return findings

    def _states(self) -> list[Finding]:
        """Return findings about optimizer states that were lost, added or reset."""
        lost: dict[str, list[str]] = defaultdict(list)
        total: Counter[str] = Counter()
        for name in self.a.entries:
            moment = moment_of(name)
            if moment is not None:
                total[moment[1]] += 1
        for entry in self.matching.only_a:
            moment = moment_of(entry.name)
            if moment is not None:
                lost[moment[1]].append(entry.name)
        findings = []
        if lost and not any(moment_of(name) or "param_groups" in name for name in [*self.b.entries, *self.b.values]):
            return [Finding("no optimizer", f"B has no optimizer states, A has {_few(list(lost))}", is_note=True)]
        more = [entry.name for entry in self.matching.only_b if moment_of(entry.name) is not None]
        if lost and more:
            names = [name for slot in lost.values() for name in slot]
            text = f"optimizer states that could not be paired: in A {_few(names, 2)}, in B {_few(more, 2)}"
            return [Finding("optimizer state without a pair", text, (*names, *more))]
        for slot, names in lost.items():
            text = (
                f"B has lost {slot} of {len(names):,} of {total[slot]:,} parameters: {_few(self._of_parameters(names))}"
            )
            findings.append(Finding("optimizer state lost", text, tuple(names)))
        if more:
            text = f"B has optimizer states that A does not have: {_few(more)}"
            findings.append(Finding("optimizer state added", text, tuple(more)))
        reset: dict[str, list[str]] = defaultdict(list)
        for pair, row in self.measured:
            moment = moment_of(pair.pair.a.name)
            if moment is not None and moment[1] != "step" and _is_zero(row.b) and not _is_zero(row.a):
                reset[moment[1]].append(pair.pair.b.name)
        for slot, names in reset.items():
            few = _few(self._of_parameters(names))
            text = f"{slot} of {len(names):,} of {total[slot]:,} parameters was reset to zero in B: {few}"
            findings.append(Finding("optimizer state lost", text, tuple(names)))
        return findings

    def _of_parameters(self, names: Sequence[str]) -> list[str]:
        """Return the names in A of the parameters that optimizer states belong to."""
        by_number = parameters_by_number(self.a)
        parameters = [(moment_of(name) or (name, ""))[0] for name in names]
        return [by_number.get(parameter, name) for parameter, name in zip(parameters, names, strict=True)]

    def _shards(self) -> list[Finding]:
        """Return findings about files that did not change with the others, or the only file that differs."""
        moved: dict[str, list[str]] = defaultdict(list)
        still: dict[str, list[str]] = defaultdict(list)
        for pair, row in self.measured:
            if not is_parameter(pair.pair.a) and moment_of(pair.pair.a.name) is None:
                continue
            entry = pair.pair.b
            files = {stretch[2].rpartition("/")[2] for stretch in entry.content.stretches()}
            if len(files) == 1 and not isinstance(entry.content, BoxesContent):
                files = {entry.file}
            for file in files - {""}:
                is_moved = file in row.changed_files if row.changed_files else bool(row.changed)
                (moved if is_moved else still)[file].append(pair.name)
        files = moved.keys() | still.keys()
        stale = sorted(file for file in files if file not in moved)
        apart = sorted(file for file in files if file in moved)
        findings = []
        if stale and apart and all(len(moved[file]) > len(still[file]) for file in apart):
            for file in stale:
                text = (
                    f"all {len(still[file]):,} tensors of {file} are as they were in A, while those of {_few(apart)} "
                    "moved: a stale shard, or nothing in it is trained"
                )
                findings.append(Finding("stale shard", text, tuple(still[file])))
        if len(apart) == 1 and len(files) > 1:
            file = apart[0]
            names = moved[file]
            total = len(names) + len(still[file])
            text = f"all that differs lies in one file, {file}: {len(names):,} of its {total:,} tensors"
            findings.append(Finding("differing shard", text, tuple(names)))
        return findings

    def _forms(self) -> list[Finding]:
        """Return findings about shapes and dtypes that differ."""
        findings = []
        for pair in self.pairs:
            a, b = pair.pair.a, pair.pair.b
            if not pair.pair.is_comparable:
                text = f"{pair.name}: shape {list(a.shape)} in A, {list(b.shape)} in B"
                findings.append(Finding("shape", text, (b.name,)))
            elif a.shape != b.shape:
                text = (
                    f"{pair.name}: shape {list(a.shape)} in A, {list(b.shape)} in B, with the same number of elements"
                )
                findings.append(Finding("shape", text, (b.name,), is_note=pair.pair.rule != SAME_NAME))
            elif pair.pair.is_transposed and pair.pair.rule == SAME_NAME:
                how = (
                    "the values are A's transposed" if pair.is_within else "the values differ from A's transposed, too"
                )
                text = f"{pair.name}: shape {list(a.shape[::-1])} in A, {list(b.shape)} in B; {how}"
                findings.append(Finding("transposed", text, (b.name,)))
        changed: dict[tuple[str, str], list[ComparedPair]] = defaultdict(list)
        for pair in self.pairs:
            if not pair.pair.has_same_dtype:
                changed[pair.pair.a.dtype.name, pair.pair.b.dtype.name].append(pair)
        for (old, new), pairs in changed.items():
            names = tuple(pair.pair.b.name for pair in pairs)
            rounded = [
                pair for pair in pairs if pair.difference and (pair.difference.rounded or pair.difference.is_same)
            ]
            how = f"; {len(rounded):,} of them hold A's values rounded" if rounded else ""
            text = f"{old} in A and {new} in B: {_tensors(names)}{how}: {_few(names)}"
            findings.append(Finding("dtype", text, names))
        return findings

    def _rearranged(self) -> list[Finding]:
        """Return findings about tensors that contain the values of another tensor, or their own transposed."""
        far = [
            (pair, row)
            for pair, row in self.measured
            if row.changed and row.count >= _SMALLEST_TIED and not row.relative_norm < _FAR
        ]
        findings = []
        by_shape: dict[object, list[Pair]] = defaultdict(list)
        for pair, _ in self.measured:
            by_shape[pair.pair.b.shape].append(pair.pair)
        samples: dict[int, NDArray[np.float64]] = {}
        for pair, row in far:
            turned = self._turned(pair.pair, row)
            if turned is not None:
                findings.append(turned)
                continue
            others = by_shape[pair.pair.b.shape]
            if len(others) <= _MOST_OF_ONE_SHAPE:
                source = _holds_another(pair.pair, others, samples)
                if source is not None:
                    text = f"{pair.pair.b.name} in B holds what is {source.name} in A"
                    findings.append(Finding("swapped", text, (pair.pair.b.name, source.name)))
        return findings

    def _turned(self, pair: Pair, row: ValueDifference) -> Finding | None:
        """Return a finding if a square matrix was transposed."""
        turned = pair.a.transposed() if _is_square(pair) else None
        if turned is None or not _sample_is_nearer(turned, pair):
            return None
        (difference,) = compare_values([(turned, pair.b)], threads=1)
        if difference.is_same or difference.l2_change < _MUCH_NEARER * row.l2_change:
            exactly = "exactly" if difference.is_same else "nearly"
            return Finding("transposed", f"{pair.b.name} in B is {exactly} A's transposed", (pair.b.name,))
        return None

    def _rounded(self) -> list[Finding]:
        findings = []
        for back, which, other in ((False, "B", "A"), (True, "A", "B")):
            names: dict[str, list[str]] = defaultdict(list)
            for pair, row in self.measured:
                to = row.rounded_back if back else row.rounded
                if to and pair.pair.has_same_dtype and not (_is_zero(row.a) or _is_zero(row.b)):
                    names[to].append(pair.pair.b.name)
            for to, rounded in names.items():
                text = f"{which} holds {other}'s values rounded to {to} in {_tensors(rounded)}: {_few(rounded)}"
                findings.append(Finding("rounded", text, tuple(rounded)))
        return findings

    def _became_constant(self) -> list[Finding]:
        zero, constant = [], []
        for pair, row in self.measured:
            if moment_of(pair.pair.a.name) is not None or row.count < 2 or row.b.finite_count < row.count:
                continue
            if _is_zero(row.b) and not _is_zero(row.a):
                zero.append(pair.pair.b.name)
            elif row.b.min == row.b.max and row.a.min < row.a.max:
                constant.append(pair.pair.b.name)
        findings = []
        if zero:
            findings.append(Finding("zero", f"all zeros in B and not in A: {_few(zero)}", tuple(zero)))
        if constant:
            text = f"one number only in B and not in A: {_few(constant)}"
            findings.append(Finding("constant", text, tuple(constant)))
        return findings

    def _tied(self) -> list[Finding]:
        """Return findings about tensors that were tied in A and are not tied in B."""
        to_b = {pair.pair.a.name: pair.pair.b for pair in self.pairs}
        tied_b = {frozenset(group) for group in self.b.tied}
        findings = []
        for group in _tied_groups(self.a):
            others = [to_b[name] for name in group if name in to_b]
            names = tuple(entry.name for entry in others)
            if len(others) < 2 or any(set(names) <= held for held in tied_b):
                continue
            differences = compare_values([(others[0], other) for other in others[1:]], threads=1)
            if all(difference.is_same for difference in differences):
                if set(group) in map(set, self.a.tied):
                    text = f"one tensor in A, stored apart in B with equal values: {_few(names)}"
                    findings.append(Finding("tied", text, names, is_note=True))
                continue
            far = max(difference.relative_norm for difference in differences)
            text = f"tied in A, but no longer in B, where they differ by {far:.3g} of their norm: {_few(names)}"
            findings.append(Finding("no longer tied", text, names))
        return findings

    def _counters(self) -> list[Finding]:
        """Return findings about step counters that differ."""
        counters: dict[tuple[object, object], list[str]] = defaultdict(list)
        for pair, row in self.measured:
            name = pair.pair.a.name
            if row.changed and row.count == 1 and (is_step(name) or (moment_of(name) or ("", ""))[1] == "step"):
                counters[row.a.max, row.b.max].append(name)
        for value in self.values:
            if is_step(value.name) and isinstance(value.a, (int, float)) and isinstance(value.b, (int, float)):
                counters[value.a, value.b].append(value.name)
        findings = []
        for (old, new), names in counters.items():
            back = isinstance(old, (int, float)) and isinstance(new, (int, float)) and new < old
            how = " (it went back)" if back else ""
            text = f"step counter {_number(old)} in A, {_number(new)} in B{how}: {_few(names)}"
            findings.append(Finding("step", text, tuple(names), is_note=not back))
        return findings

    def _generators(self) -> list[Finding]:
        names = [pair.pair.b.name for pair, row in self.measured if row.changed and is_generator(pair.pair.b)]
        names += [value.name for value in self.values if is_generator_name(value.name)]
        if not names:
            return []
        text = f"another state of the random generator in B: {_few(names)}"
        # If the steps differ, a different state is expected.
        return [Finding("generator state", text, tuple(names), is_note=bool(self._counters()))]

    def _not_updated(self) -> list[Finding]:
        """Return a finding about parameters that are the same in both while most others changed."""
        parameters = [(pair, row) for pair, row in self.measured if is_parameter(pair.pair.a)]
        still = [pair.name for pair, row in parameters if not row.changed]
        moved = sum(row.changed > 0 and not (row.rounded or row.rounded_back) for _, row in parameters)
        if not still or moved <= len(still):
            return []
        text = f"{_tensors(still)} did not move while {moved:,} others did: {_few(still)}"
        return [Finding("not updated", text, tuple(still))]


def _is_zero(row: TensorStatistics) -> bool:
    return row.count > 0 and row.zero_count == row.count


def _sample(entry: Entry) -> NDArray[np.float64]:
    """Return the first elements as float64; an empty array if any is not finite or all are the same."""
    values = entry.read(0, min(entry.size, _SAMPLE))
    if values.dtype.kind == "c":
        values = values.view(values.real.dtype)
    with np.errstate(invalid="ignore"):
        numbers = values.astype(np.float64)
    if not np.isfinite(numbers).all() or (numbers == numbers[:1]).all():
        return np.empty(0)
    return numbers


def _distance(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    if a.shape != b.shape or not a.size:
        return math.inf
    with np.errstate(over="ignore"):
        return float(np.sqrt(np.square(a - b).sum()))


def _holds_another(pair: Pair, others: Sequence[Pair], samples: dict[int, NDArray[np.float64]]) -> Entry | None:
    """Return the tensor of A whose values a tensor of B contains instead of its own."""

    def sample(entry: Entry) -> NDArray[np.float64]:
        numbers = samples.get(id(entry))
        if numbers is None:
            numbers = samples[id(entry)] = _sample(entry)
        return numbers

    values = sample(pair.b)
    distance = _distance(values, sample(pair.a))
    if not math.isfinite(distance):
        return None
    nearest = min(
        (other.a for other in others if other is not pair),
        key=lambda entry: _distance(values, sample(entry)),
        default=None,
    )
    if nearest is None or not _distance(values, sample(nearest)) < _MUCH_NEARER * distance:
        return None
    return nearest


def _with_turned_squares(matching: Matching) -> Matching:
    """Transpose square matrices of A if other matrices were transposed and if their values then fit better.

    Unlike for other matrices, the shape does not tell.
    """
    if not any(pair.is_transposed and pair.rule not in (SAME_NAME, FUSED) for pair in matching.pairs):
        return matching
    pairs = []
    for pair in matching.pairs:
        turned = pair.a.transposed() if _is_square(pair) and pair.rule != SAME_NAME else None
        if turned is not None and _sample_is_nearer(turned, pair):
            pairs.append(replace(pair, a=turned, is_transposed=True))
        else:
            pairs.append(pair)
    return replace(matching, pairs=tuple(pairs))


def _is_square(pair: Pair) -> bool:
    shape = pair.a.shape
    return len(shape) == 2 and shape[0] == shape[1] and pair.rule != FUSED


def _sample_is_nearer(turned: Entry, pair: Pair) -> bool:
    values = _sample(pair.b)
    return _distance(values, _sample(turned)) < _MUCH_NEARER * _distance(values, _sample(pair.a))


def _tied_groups(checkpoint: Checkpoint) -> list[tuple[str, ...]]:
    """Return groups of names whose tensors share memory or have equal values."""
    groups = list(checkpoint.tied)
    grouped = {name for group in groups for name in group}
    alike: dict[object, list[Entry]] = defaultdict(list)
    shapes = Counter(entry.shape for entry in checkpoint.entries.values())
    for entry in checkpoint.entries.values():
        if entry.size < _SMALLEST_TIED or shapes[entry.shape] < 2 or entry.name in grouped or not is_parameter(entry):
            continue
        values = _sample(entry)
        if values.size:
            alike[entry.shape, entry.dtype, values.tobytes()].append(entry)
    for entries in alike.values():
        if len(entries) > 1:
            same = compare_values([(entries[0], other) for other in entries[1:]], threads=1)
            equal = [entry.name for entry, row in zip(entries[1:], same, strict=True) if row.is_same]
            if equal:
                groups.append((entries[0].name, *equal))
    return groups


def _digest(entry: Entry) -> bytes:
    """Return a digest of a tensor's first and last values, which identifies it under another name."""
    import hashlib

    digest = hashlib.blake2b(repr((entry.shape, entry.dtype.name)).encode(), digest_size=16)
    count = min(entry.size, _SAMPLE)
    for start in sorted({0, 0 if entry.content.is_sequential else entry.size - count}):
        digest.update(entry.read(start, count).view(np.uint8).data)
    return digest.digest()


def _changed_values(a: Checkpoint, b: Checkpoint) -> tuple[ChangedValue, ...]:
    changed = []
    for name in [*a.values, *(name for name in b.values if name not in a.values)]:
        if name in _ABOUT_THE_FILE:
            continue
        old, new = a.values.get(name), b.values.get(name)
        only_in = "B" if name not in a.values else "A" if name not in b.values else ""
        if not only_in and (old == new or (old != old and new != new)):
            continue
        changed.append(ChangedValue(name, old, new, only_in))
    return tuple(changed)


def _tensors(names: Sequence[Any]) -> str:
    return f"{len(names):,} tensor" + ("" if len(names) == 1 else "s")


def _few(names: Sequence[str], most: int = 4) -> str:
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown}, … ({len(names):,})"


def _number(value: object) -> str:
    return f"{value:,.10g}" if isinstance(value, float) else str(value)
