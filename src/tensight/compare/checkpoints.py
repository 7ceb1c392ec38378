"""Comparison of two checkpoints: differences, updates, and signs of faults."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tensight.checkpoints.content import BoxesContent
from tensight.compare.checkpoint_health import (
    Finding,
    by_weight,
    few,
    is_zero,
    not_finite,
    problems_of,
    tensors_text,
)
from tensight.compare.checkpoint_matching import FILE, SAME_NAME, SCHEME, VALUES, Matching, Pair, match_entries
from tensight.compare.checkpoint_roles import (
    is_generator,
    is_generator_name,
    is_parameter,
    is_step,
    moment_of,
    parameters_by_number,
)
from tensight.compare.checkpoint_samples import (
    MUCH_NEARER,
    SMALLEST_TIED,
    correlation,
    digest,
    holds_another,
    is_square,
    sample_is_nearer,
    tied_groups,
    with_turned_squares,
)
from tensight.compare.checkpoint_values import ValueDifference, compare_values
from tensight.compare.verdict import Verdict
from tensight.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from tensight.analysis.engine import Progress
    from tensight.checkpoints import Checkpoint, Entry, Scalar

_FAR = 0.05
"""A tensor that changed by more than this share of its norm may contain the values of another one."""

_MOST_OF_ONE_SHAPE = 256
_UNRELATED = 0.7
"""Difference beside the norm, from which on two tensors may have nothing in common."""

_UNRELATED_CORRELATION = 0.1
_ABOUT_THE_FILE = ("__metadata__.format", "__metadata__.crc_num", "__metadata__.remove_redundancy")
"""Values that writers of safetensors add and that are unrelated to the training."""


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
    matching = with_turned_squares(match_entries(a, b, mapping, values=digest))
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
        return by_weight(
            [
                *problems_of(self.a.problems, "A: "),
                *problems_of(self.b.problems, "B: "),
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
                *self._equal(rearranged),
                *self._unsure(),
            ]
        )

    def _missing(self) -> list[Finding]:
        findings = []
        for which, other, entries in (("A", "B", self.matching.only_a), ("B", "A", self.matching.only_b)):
            names = [entry.name for entry in entries if moment_of(entry.name) is None]
            if names:
                text = f"only {which} has {tensors_text(names)}, {other} does not: {few(names)}"
                findings.append(Finding("missing", text, tuple(names)))
        return findings

    def _not_finite(self) -> list[Finding]:
        rows_a = {pair.pair.a.name: row.a for pair, row in self.measured}
        rows_b = {pair.pair.b.name: row.b for pair, row in self.measured}
        both = [pair.name for pair, row in self.measured if row.both_nan and row.is_same]
        findings = not_finite({name: row for name, row in rows_b.items() if name not in both}, "B: ")
        findings += not_finite({name: row for name, row in rows_a.items() if name not in both}, "A: ")
        if both:
            text = f"NaN in both at the same places, which counts as equal, in {tensors_text(both)}: {few(both)}"
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
            return [Finding("no optimizer", f"B has no optimizer states, A has {few(list(lost))}", is_note=True)]
        more = [entry.name for entry in self.matching.only_b if moment_of(entry.name) is not None]
        if lost and more:
            names = [name for slot in lost.values() for name in slot]
            text = f"optimizer states that could not be paired: in A {few(names, 2)}, in B {few(more, 2)}"
            return [Finding("optimizer state without a pair", text, (*names, *more))]
        for slot, names in lost.items():
            text = (
                f"B has no {slot} of {len(names):,} of {total[slot]:,} parameters, A has: "
                f"{few(self._of_parameters(names))}"
            )
            findings.append(Finding("optimizer state lost", text, tuple(names)))
        if more:
            text = f"B has optimizer states that A does not have: {few(more)}"
            findings.append(Finding("optimizer state added", text, tuple(more)))
        reset: dict[str, list[str]] = defaultdict(list)
        for pair, row in self.measured:
            moment = moment_of(pair.pair.a.name)
            if moment is not None and moment[1] != "step" and is_zero(row.b) and not is_zero(row.a):
                reset[moment[1]].append(pair.pair.b.name)
        for slot, names in reset.items():
            of_names = few(self._of_parameters(names))
            text = f"{slot} of {len(names):,} of {total[slot]:,} parameters is zero in B, and not in A: {of_names}"
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
                    f"all {len(still[file]):,} tensors of {file} are as in A, while those of {few(apart)} "
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
            text = f"{old} in A and {new} in B: {tensors_text(names)}{how}: {few(names)}"
            findings.append(Finding("dtype", text, names))
        return findings

    def _rearranged(self) -> list[Finding]:
        """Return findings about tensors that contain the values of another tensor, or their own transposed."""
        far = [
            (pair, row)
            for pair, row in self.measured
            if row.changed and row.count >= SMALLEST_TIED and not row.relative_norm < _FAR
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
                source = holds_another(pair.pair, others, samples)
                if source is not None:
                    text = f"{pair.pair.b.name} in B holds what is {source.name} in A"
                    findings.append(Finding("swapped", text, (pair.pair.b.name, source.name)))
        return findings

    def _turned(self, pair: Pair, row: ValueDifference) -> Finding | None:
        """Return a finding if a square matrix was transposed."""
        turned = pair.a.transposed() if is_square(pair) else None
        if turned is None or not sample_is_nearer(turned, pair):
            return None
        (difference,) = compare_values([(turned, pair.b)], threads=1)
        if difference.is_same or difference.l2_change < MUCH_NEARER * row.l2_change:
            exactly = "exactly" if difference.is_same else "nearly"
            return Finding("transposed", f"{pair.b.name} in B is {exactly} A's transposed", (pair.b.name,))
        return None

    def _rounded(self) -> list[Finding]:
        findings = []
        for back, which, other in ((False, "B", "A"), (True, "A", "B")):
            names: dict[str, list[str]] = defaultdict(list)
            for pair, row in self.measured:
                to = row.rounded_back if back else row.rounded
                if to and pair.pair.has_same_dtype and not (is_zero(row.a) or is_zero(row.b)):
                    names[to].append(pair.pair.b.name)
            for to, rounded in names.items():
                text = f"{which} holds {other}'s values rounded to {to} in {tensors_text(rounded)}: {few(rounded)}"
                findings.append(Finding("rounded", text, tuple(rounded)))
        return findings

    def _became_constant(self) -> list[Finding]:
        zero, constant = [], []
        for pair, row in self.measured:
            if moment_of(pair.pair.a.name) is not None or row.count < 2 or row.b.finite_count < row.count:
                continue
            if is_zero(row.b) and not is_zero(row.a):
                zero.append(pair.pair.b.name)
            elif row.b.min == row.b.max and row.a.min < row.a.max:
                constant.append(pair.pair.b.name)
        findings = []
        if zero:
            findings.append(Finding("zero", f"all zeros in B and not in A: {few(zero)}", tuple(zero)))
        if constant:
            text = f"one number only in B and not in A: {few(constant)}"
            findings.append(Finding("constant", text, tuple(constant)))
        return findings

    def _tied(self) -> list[Finding]:
        """Return findings about tensors that were tied in A and are not tied in B."""
        to_b = {pair.pair.a.name: pair.pair.b for pair in self.pairs}
        tied_b = {frozenset(group) for group in self.b.tied}
        findings = []
        for group in tied_groups(self.a):
            others = [to_b[name] for name in group if name in to_b]
            names = tuple(entry.name for entry in others)
            if len(others) < 2 or any(set(names) <= held for held in tied_b):
                continue
            differences = compare_values([(others[0], other) for other in others[1:]], threads=1)
            if all(difference.is_same for difference in differences):
                if set(group) in map(set, self.a.tied):
                    text = f"one tensor in A, stored apart in B with equal values: {few(names)}"
                    findings.append(Finding("tied", text, names, is_note=True))
                continue
            far = max(difference.relative_norm for difference in differences)
            text = f"tied in A, but no longer in B, where they differ by {far:.3g} of their norm: {few(names)}"
            findings.append(Finding("no longer tied", text, names))
        return findings

    def _counters(self) -> list[Finding]:
        """Return findings about step counters that differ."""
        counters: dict[tuple[float, float], list[str]] = defaultdict(list)
        for name, old, new in self._counted():
            if old != new:
                counters[old, new].append(name)
        of_optimizer = {old for name, old, _ in self._counted() if moment_of(name)}
        # Another counter of steps shows that B is not the earlier one; an epoch may be the same.
        is_later = any(
            new > old or (new == old and old in of_optimizer)
            for name, old, new in self._counted()
            if not moment_of(name)
        )
        findings = []
        for (old, new), names in counters.items():
            is_back = new < old
            few_names = few(self._of_parameters(names))
            if is_back and all(moment_of(name) for name in names):
                why = "" if is_later else ", or B is the earlier one"
                text = (
                    f"the step counter of the optimizer went back from {_number(old)} to {_number(new)}: its state was "
                    f"not taken over{why}: {few_names}"
                )
            elif is_back:
                text = (
                    f"step counter went back from {_number(old)} to {_number(new)}: B is the earlier one, or it was "
                    f"not taken over: {few_names}"
                )
            else:
                text = f"step counter {_number(old)} in A, {_number(new)} in B: {few_names}"
            findings.append(Finding("step", text, tuple(names), is_note=not is_back))
        return findings

    def _counted(self) -> Iterator[tuple[str, float, float]]:
        """Yield the step counters that both have: name, value in A, value in B."""
        for pair, row in self.measured:
            name = pair.pair.a.name
            if row.count == 1 and (is_step(name) or (moment_of(name) or ("", ""))[1] == "step"):
                yield name, row.a.max, row.b.max
        for name, old in self.a.values.items():
            new = self.b.values.get(name)
            if is_step(name) and isinstance(old, (int, float)) and isinstance(new, (int, float)):
                yield name, old, new

    def _generators(self) -> list[Finding]:
        names = [pair.pair.b.name for pair, row in self.measured if row.changed and is_generator(pair.pair.b)]
        names += [value.name for value in self.values if is_generator_name(value.name)]
        if not names:
            return []
        text = f"another state of the random generator in B: {few(names)}"
        # If the steps differ, a different state is expected.
        return [Finding("generator state", text, tuple(names), is_note=bool(self._counters()))]

    def _equal(self, explained: Sequence[Finding]) -> list[Finding]:
        """Return a finding about parameters that are equal in both while others differ.

        Two checkpoints do not show whether a tensor ever moved, only whether it did so between them.
        """
        names = {name for finding in explained for name in finding.names}
        parameters = [(pair, row) for pair, row in self.measured if is_parameter(pair.pair.a)]
        still = [pair.name for pair, row in parameters if not row.changed]
        moved = sum(
            row.changed > 0 and not (row.rounded or row.rounded_back) and pair.pair.b.name not in names
            for pair, row in parameters
        )
        if not still or not moved:
            return []
        steps = [(old, new) for _, old, new in self._counted() if new > old]
        is_most = len(still) >= moved
        others = f"{moved:,} other{' differs' if moved == 1 else 's differ'}"
        if steps:
            old, new = max(steps, key=lambda step: step[1])
            text = (
                f"{tensors_text(still)} did not move from step {_number(old)} to {_number(new)}, {others}: {few(still)}"
            )
            return [Finding("not updated", text, tuple(still), is_note=is_most)]
        are = "is" if len(still) == 1 else "are"
        text = f"{tensors_text(still)} {are} equal in A and B, {others}: {few(still)}"
        return [Finding("equal", text, tuple(still), is_note=True)]

    def _unsure(self) -> list[Finding]:
        """Return a note on tensors that were paired without their values, which have nothing in common."""
        names = [
            pair.name
            for pair, row in self.measured
            if pair.pair.rule not in (SAME_NAME, FILE, SCHEME, VALUES)
            and row.count >= SMALLEST_TIED
            and row.relative_norm > _UNRELATED
            and abs(correlation(pair.pair.a, pair.pair.b)) < _UNRELATED_CORRELATION
        ]
        if not names:
            return []
        text = (
            f"{tensors_text(names)} with values that have nothing in common may not belong together, or in another "
            f"order of their rows (--mapping pairs by hand): {few(names)}"
        )
        return [Finding("unsure pair", text, tuple(names), is_note=True)]


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


def _number(value: object) -> str:
    return f"{value:,.10g}" if isinstance(value, float) else str(value)
