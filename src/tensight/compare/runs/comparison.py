"""Comparison of two runs step by step, up to the first operator that differs on its own."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tensight.compare.losses import RTOL
from tensight.compare.runs.divergence import StepComparer, fused_difference
from tensight.compare.runs.matching import (
    Rule,
    copied_from,
    is_anonymous,
    match_steps,
    precisions,
    unknown_names,
)
from tensight.compare.runs.measures import difference
from tensight.compare.runs.ranks import across_ranks
from tensight.compare.runs.result import ComparedTensor, Finding, RunComparison
from tensight.compare.runs.splitting import keep_what_adds_up, parts_of_batches
from tensight.compare.runs.steps import NO_ROW, Operation, Phase, RunToCompare, accumulated_parameter
from tensight.compare.runs.tolerance import AMPLIFICATION, ROUNDING, Tolerance
from tensight.compare.verdict import Verdict
from tensight.errors import InputError
from tensight.graph.optimizers import is_gathered
from tensight.graph.steps import step_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from tensight.analysis import Analysis
    from tensight.compare.runs.divergence import StepComparison
    from tensight.compare.runs.matching import Matching
    from tensight.compare.runs.measures import TensorDifference
    from tensight.compare.runs.steps import Step

_FEWEST_PROVING = 8
"""Unnamed inputs with fewer elements are considered settings of an operator, not data."""

_MOST_CARRIED = 0.05
"""Relative error of a gradient from which on the states and weights updated with it are not checked."""

_MOST_DIFFERENT_WEIGHTS = 0.5
"""Share of differing initial weights above which the runs are not comparable."""


_OF_PHASE = {Phase.FORWARD: Finding.FORWARD, Phase.BACKWARD: Finding.BACKWARD, Phase.UPDATE: Finding.UPDATE}


def compare_runs(
    a: Analysis,
    b: Analysis,
    *,
    ranks: Sequence[int] | None = None,
    steps: Sequence[int] | None = None,
    tolerance: Tolerance | None = None,
    mapping: Mapping[str, str] | None = None,
    exact: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> list[RunComparison]:
    """Compare two runs, rank by rank.

    Parameters
    ----------
    a, b : Analysis
        Dumps, recordings or traces.
    ranks : sequence of int, optional
        Ranks to compare; by default those in both runs.
    steps : sequence of int, optional
        Steps to compare, counted from 1; by default those in both runs.
    tolerance : Tolerance, optional
        Allowed errors; by default derived from element types and from the errors of an operator's inputs.
    mapping : mapping of str to str, optional
        Names or scopes of A and their counterparts in B.
    exact : bool
        Whether a difference of one bit is a finding.
    progress : callable, optional
        Called with the amount of work done and the total; it may raise to stop the comparison.

    Returns
    -------
    list of RunComparison
        One for each rank.

    Raises
    ------
    InputError
        The runs have no rank in common.
    """
    common = [rank for rank in a.dump.ranks if rank in b.dump.ranks and (ranks is None or rank in ranks)]
    if not common:
        raise InputError(
            f"the runs have no rank in common: A has {', '.join(map(str, a.dump.ranks))},"
            f" B has {', '.join(map(str, b.dump.ranks))}"
        )
    comparer = _Comparer(tolerance or Tolerance(), mapping or {}, _Progress(progress, len(common)), exact=exact)
    results = [comparer.compare(RunToCompare(a, rank), RunToCompare(b, rank), steps) for rank in common]
    across_ranks(results)
    return results


def noise_floor(a: Analysis, repeats: Sequence[Analysis], ranks: Sequence[int] | None = None) -> dict[str, float]:
    """Return how far repeated runs of A differ from A in operator outputs and weights.

    Parameters
    ----------
    a : Analysis
        The reference run.
    repeats : sequence of Analysis
        Runs of the same, unchanged program.
    ranks : sequence of int, optional
        Ranks to compare; by default those in both runs.

    Returns
    -------
    dict of str to float
        Largest relative error by name, over all steps and repeated runs.
    """
    floor: dict[str, float] = {}
    for repeat in repeats:
        for result in compare_runs(a, repeat, ranks=ranks, tolerance=Tolerance(rtol=math.inf)):
            errors = [
                (compared.pair.a.name, diff)
                for step in result.steps
                for compared in step.compared
                for _, diff in compared.outputs
            ]
            errors += [(tensor.name_a, tensor.difference) for tensor in result.weights if tensor.difference is not None]
            for name, diff in errors:
                if diff.is_comparable and math.isfinite(diff.relative):
                    floor[name] = max(floor.get(name, 0.0), diff.relative)
    return floor


class _Progress:
    """Progress of a comparison: ranks, their steps and the pairs of a step, combined into one number."""

    _PARTS = 1000

    def __init__(self, report: Callable[[int, int], None] | None, ranks: int) -> None:
        self._report, self._ranks = report, ranks
        self._rank = -1
        self._step, self._steps = 0, 1

    def begin_rank(self, steps: int) -> None:
        """Advance to the next rank."""
        self._rank += 1
        self._step, self._steps = -1, max(steps, 1)

    def begin_step(self) -> None:
        """Advance to the next step of the rank."""
        self._step += 1
        self.report(0, 1)

    def report(self, done: int, total: int) -> None:
        """Report how many pairs of the step have been compared."""
        if self._report is not None:
            parts = self._PARTS * (self._rank * self._steps + self._step) + self._PARTS * done // max(total, 1)
            self._report(parts, self._PARTS * self._ranks * self._steps)


class _Comparer:
    def __init__(self, tolerance: Tolerance, mapping: Mapping[str, str], progress: _Progress, *, exact: bool) -> None:
        self._tolerance, self._mapping, self._progress, self._exact = tolerance, mapping, progress, exact

    def compare(self, a: RunToCompare, b: RunToCompare, steps: Sequence[int] | None) -> RunComparison:
        """Compare one rank."""
        result = RunComparison(a.rank)
        chosen = None if steps is None else set(steps)
        of_a, of_b = set(a.iterations), set(b.iterations)
        both = [
            iteration
            for iteration in a.iterations
            if iteration in of_b and (chosen is None or step_of(iteration) in chosen)
        ]
        result.only_steps_a = tuple(step_of(iteration) for iteration in a.iterations if iteration not in of_b)
        result.only_steps_b = tuple(step_of(iteration) for iteration in b.iterations if iteration not in of_a)
        self._progress.begin_rank(len(both))
        if not both:
            return _end(result, Verdict.NOT_COMPARABLE, Finding.NOTHING_IN_COMMON)
        for count, iteration in enumerate(both):
            self._progress.begin_step()
            step_a, step_b = a.step(iteration), b.step(iteration)
            matching = match_steps(a, step_a, b, step_b, self._mapping, result.matching if count else None)
            result.parts = parts_of_batches(a, step_a, b, step_b)
            if self._mapping:
                result.unknown = self._unknown(result.unknown, (step_a, step_b), is_first=count == 0)
            if result.parts is not None:
                keep_what_adds_up(matching)
            result.matching, result.step = matching, step_of(iteration)
            result.precisions = precisions(a, b, matching.pairs)
            if not matching.pairs:
                return _end(result, Verdict.NOT_COMPARABLE, Finding.NOTHING_IN_COMMON)
            if self._is_misaligned(result, a, step_a, b, step_b, is_first=count == 0):
                return result
            comparer = StepComparer(
                a,
                step_a,
                b,
                step_b,
                matching,
                self._tolerance,
                is_first=count == 0,
                is_split=result.parts is not None,
                amplified=result.steps[-1].amplified if result.steps else (),
            )
            comparison = comparer.compare(self._progress.report)
            result.steps.append(comparison)
            if comparison.first_bit is not None and result.first_bit is None:
                result.first_bit, result.first_bit_step = comparison.first_bit, step_of(iteration)
            first = comparison.first_bit if self._exact and comparison.first_bit is not None else comparison.first
            different = [] if first is not None else self._after(result, a, step_a, b, step_b)
            if different or (first is not None and _follows_gradients(first.pair.a)):
                read_once = _read_by_updates_of_one_run(matching, (a, b), (step_a, step_b))
                if read_once:
                    result.tensors = read_once
                    return _end(result, Verdict.DIFFERENT, Finding.UPDATE)
            if first is not None:
                result.first = first
                return _end(result, Verdict.DIFFERENT, _OF_PHASE[first.pair.a.phase])
            if different:
                result.tensors = different
                are_gathered = all(is_gathered(tensor.name_a) for tensor in different)
                return _end(result, Verdict.DIFFERENT, Finding.FORWARD if are_gathered else Finding.UPDATE)
            if self._have_drifted(result, comparison):
                return _end(result, Verdict.DIFFERENT, Finding.LOSSES)
        result.step = None
        if not any(compared.outputs for step in result.steps for compared in step.compared):
            return _end(result, Verdict.NOT_COMPARABLE, Finding.NOTHING_IN_COMMON)
        return result

    def _unknown(
        self, unknown: tuple[tuple[str, str], ...], steps: tuple[Step, Step], *, is_first: bool
    ) -> tuple[tuple[str, str], ...]:
        """Return the names of the user's mapping that were in no step so far, each with its run."""
        names = [[*self._mapping], [*self._mapping.values()]]
        left = [unknown_names(step, of_run) for step, of_run in zip(steps, names, strict=True)]
        of_step = [
            (run, name) for run, of_run, new in zip("AB", names, left, strict=True) for name in of_run if name in new
        ]
        return tuple(entry for entry in of_step if is_first or entry in unknown)

    def _is_misaligned(
        self, result: RunComparison, a: RunToCompare, step_a: Step, b: RunToCompare, step_b: Step, *, is_first: bool
    ) -> bool:
        """Compare the inputs and weights at the start of a step; if they differ, set the verdict and return True."""
        data = self._tensors(result.matching, a, step_a.data, b, step_b.data)
        different = [tensor for tensor in data if not tensor.agrees and result.parts is None]
        if not is_first:
            amplified = result.steps[-1].amplified if result.steps else ()
            changed = self._changed_between(result.matching, a, step_a, b, step_b, amplified)
            if changed:
                result.tensors = changed
                _end(result, Verdict.DIFFERENT, Finding.BETWEEN_STEPS)
                return True
        if different:
            result.tensors = different
            _end(result, Verdict.NOT_COMPARABLE if is_first else Verdict.DIFFERENT, Finding.DATA)
            return True
        if not is_first:
            return False
        weights = self._tensors(result.matching, a, step_a.weights, b, step_b.weights)
        weights += self._fused(result.matching, (a, b), (step_a, step_b))
        result.data, result.weights = data, weights
        different = [tensor for tensor in weights if not tensor.agrees]
        if not different:
            return False
        result.tensors = different
        varying = [tensor for tensor in weights if tensor.difference is not None and tensor.difference.spread > 0]
        is_most = len(different) > _MOST_DIFFERENT_WEIGHTS * len(varying)
        _end(result, Verdict.NOT_COMPARABLE if is_most else Verdict.DIFFERENT, Finding.INITIAL_WEIGHTS)
        return True

    def _changed_between(
        self,
        matching: Matching,
        a: RunToCompare,
        step_a: Step,
        b: RunToCompare,
        step_b: Step,
        amplified: Collection[str],
    ) -> list[ComparedTensor]:
        """Return weights and states that the runs read with a difference that they did not have after the last step.

        Operators that ran in both before anything was read, such as a clamp, are compared like all others. What both
        runs have changed may follow from the weights that it is a copy or an average of.
        """
        before_a, before_b = a.before(step_a.iteration), b.before(step_b.iteration)
        by_pairs = {name for pair in matching.pairs for name in pair.a.written_beforehand}
        changed = []
        for name, row in step_a.weights.items():
            other = matching.parameter_in_b(name)
            if other is None or name in by_pairs:
                continue
            row_b, old_row, old_row_b = (
                step_b.weights.get(other, NO_ROW),
                before_a.get(name, NO_ROW),
                before_b.get(other, NO_ROW),
            )
            diff = None if (row, row_b) == (old_row, old_row_b) else difference(a, row, b, row_b)
            if diff is None or not diff.is_comparable or self._agrees(name, diff):
                continue
            old = difference(a, old_row, b, old_row_b)
            if old is None and name not in a.trained:
                # It was not known before, such as the weights of a model that is called for the first time.
                changed.append(ComparedTensor(name, other, _rule(matching, name), diff, agrees=False))
            if old is None or not old.is_comparable:
                continue
            changes = (difference(a, old_row, a, row), difference(b, old_row_b, b, row_b))
            runs = tuple(run for run, change in zip("AB", changes, strict=True) if change and not change.is_bit_equal)
            origin = copied_from(matching, name) if len(runs) > 1 else None
            if origin in amplified:
                continue
            inherited = None if origin is None else _weights_apart(matching, origin, a, step_a, b, step_b)
            error = max((each.relative for each in (old, inherited) if each is not None), default=0.0)
            growth = AMPLIFICATION if old.from_values else 4 * AMPLIFICATION
            limit = self._limit(name, diff) + growth * error
            if diff.absolute > limit * diff.norm + self._tolerance.atol:
                changed.append(ComparedTensor(name, other, _rule(matching, name), diff, agrees=False, changed_in=runs))
        return changed

    def _after(
        self, result: RunComparison, a: RunToCompare, step_a: Step, b: RunToCompare, step_b: Step
    ) -> list[ComparedTensor]:
        """Return weights and states that differ after a step but were not written by a matched operator."""
        matching, compared = result.matching, result.steps[-1].compared
        written = {slot.name for entry in compared for slot, _ in entry.outputs if slot.is_parameter}
        gradients = {
            name: entry for entry in compared if (name := accumulated_parameter(entry.pair.a.node)) is not None
        }
        forward = (entry.worst for entry in compared if entry.pair.a.phase is Phase.FORWARD)
        of_forward = max((worst[1].relative for worst in forward if worst and worst[1].is_comparable), default=0.0)
        rows_a, rows_b = a.after(step_a.iteration), b.after(step_b.iteration)
        different = []
        for name, row in rows_a.items():
            other = matching.parameter_in_b(name)
            if other is None or name in written or name in step_a.data or name in step_a.unseen:
                continue
            diff = difference(a, row, b, rows_b.get(other, NO_ROW))
            if diff is None or not diff.is_comparable or diff.is_bit_equal:
                continue
            origin = copied_from(matching, name)
            if origin in result.steps[-1].amplified:
                continue
            gradient = gradients.get(name) or gradients.get(name.partition(".")[2])
            carried, scale = 0.0, diff.norm
            if gradient is not None and gradient.worst is not None:
                carried = gradient.worst[1].relative
            elif is_gathered(name):
                carried, scale = of_forward, scale + _deviation(a, name, rows_a)
            else:
                # It may have differed before, or be a copy or an average of what did.
                before = [_weights_apart(matching, read, a, step_a, b, step_b) for read in (name, origin) if read]
                carried = max((each.relative for each in before if each is not None), default=0.0)
            chosen = self._tolerance.chosen(name)
            limit = chosen if chosen is not None else ROUNDING * diff.roundoff + 2 * AMPLIFICATION * carried
            if carried < _MOST_CARRIED and diff.absolute > limit * scale + self._tolerance.atol:
                different.append(ComparedTensor(name, other, _rule(matching, name), diff, agrees=False))
        return different

    def _have_drifted(self, result: RunComparison, comparison: StepComparison) -> bool:
        """Return whether the losses of a step differ by more than they may where runs are called the same.

        Each operator may add a difference that rounding explains, and these may grow over many steps.
        """
        losses = result.matching.losses
        compared = next((entry for entry in comparison.compared if entry.pair is losses), None)
        if compared is None or compared.worst is None or not compared.worst[1].is_comparable:
            return False
        diff = compared.worst[1]
        result.largest_loss = max(result.largest_loss, diff.norm)
        limit = max(RTOL, self._limit(compared.pair.a.name, diff))
        # The last digits of a loss that has nearly vanished are those of much larger numbers.
        return diff.absolute > limit * (diff.norm + RTOL * result.largest_loss) + self._tolerance.atol

    def _tensors(
        self,
        matching: Matching,
        a: RunToCompare,
        rows_a: Mapping[str, int],
        b: RunToCompare,
        rows_b: Mapping[str, int],
    ) -> list[ComparedTensor]:
        compared = []
        for name, row in rows_a.items():
            counterpart = matching.parameters.get(name)
            if counterpart is None or (is_anonymous(name) and a.statistics(row)["count"] < _FEWEST_PROVING):
                continue
            other, rule = counterpart
            diff = difference(a, row, b, rows_b.get(other, NO_ROW))
            compared.append(ComparedTensor(name, other, rule, diff, diff is None or self._agrees(name, diff)))
        return compared

    def _fused(
        self, matching: Matching, runs: tuple[RunToCompare, RunToCompare], steps: tuple[Step, Step]
    ) -> list[ComparedTensor]:
        """Compare parameters that are fused in one run and split in the other."""
        compared = []
        for fused in matching.fused:
            name_a, name_b = (" + ".join(names) for names in fused.names)
            diff = fused_difference(fused, runs, steps)
            agrees = diff is None or self._agrees(name_a, diff)
            compared.append(ComparedTensor(name_a, name_b, Rule.FUSED, diff, agrees))
        return compared

    def _agrees(self, name: str, diff: TensorDifference) -> bool:
        if self._exact:
            return diff.is_bit_equal or not diff.are_bits_known
        if not diff.is_comparable:
            return False
        limit = self._limit(name, diff)
        return diff.absolute <= (limit * diff.norm if diff.norm else 0.0) + self._tolerance.atol

    def _limit(self, name: str, diff: TensorDifference) -> float:
        """Return the relative error of a weight or an input that counts as equal."""
        chosen = self._tolerance.chosen(name)
        return chosen if chosen is not None else ROUNDING * diff.roundoff + 4 * self._tolerance.noise.get(name, 0.0)


def _weights_apart(
    matching: Matching, name: str, a: RunToCompare, step_a: Step, b: RunToCompare, step_b: Step
) -> TensorDifference | None:
    """Return the difference of a weight as both runs read it."""
    other = str(matching.parameter_in_b(name))
    return difference(a, step_a.weights.get(name, NO_ROW), b, step_b.weights.get(other, NO_ROW))


def _follows_gradients(op: Operation) -> bool:
    """Return whether an operator reads the gradients of weights, or their norm, as an update or clipping does.

    The gradient of a weight is recorded as the update reads it: after clipping, which scales all by their common norm.
    """
    return op.phase is Phase.UPDATE or accumulated_parameter(op.node) is not None


def _read_by_updates_of_one_run(
    matching: Matching, runs: tuple[RunToCompare, RunToCompare], steps: tuple[Step, Step]
) -> list[ComparedTensor]:
    """Return weights that have a gradient other than zero in the updates of one run, and none in those of the other.

    None if the other run also has gradients of weights that do not match.
    """
    rows = [
        {name: op.outputs[0].row for op in step.operations if op.outputs and (name := accumulated_parameter(op.node))}
        for step in steps
    ]
    in_b = {name: matching.parameter_in_b(name) for name in rows[0]}
    in_a = {other: name for name, (other, _) in matching.parameters.items()}
    if any(name is None for name in in_b.values()) or any(name not in in_a for name in rows[1]):
        return []
    names = [(name, str(other), 0) for name, other in in_b.items() if other not in rows[1]]
    names += [(in_a[other], other, 1) for other in rows[1] if in_a[other] not in rows[0]]
    return [
        ComparedTensor(name, other, _rule(matching, name), None, agrees=False, changed_in=("AB"[side],))
        for name, other, side in names
        if runs[side].is_known(row := rows[side][(name, other)[side]]) and runs[side].statistics(row)["l2_norm"] > 0
    ]


def _deviation(run: RunToCompare, name: str, rows: Mapping[str, int]) -> float:
    """Return the norm of the standard deviations beside a running mean: means cancel, and their errors do not."""
    scope = name.rpartition(".")[0]
    variances = (row for other, row in rows.items() if other.rpartition(".")[0] == scope and "var" in other)
    statistics = (run.statistics(row) for row in variances if run.is_known(row))
    return max((math.sqrt(max(0.0, row["abs_mean"]) * row["count"]) for row in statistics), default=0.0)


def _rule(matching: Matching, name: str) -> Rule:
    return matching.parameters[name][1] if name in matching.parameters else Rule.NAME


def _end(result: RunComparison, verdict: Verdict, finding: Finding) -> RunComparison:
    result.verdict, result.finding = verdict, finding
    return result
