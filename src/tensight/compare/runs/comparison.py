"""Comparison of two runs step by step, up to the first operator that differs on its own."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tensight.compare.runs.divergence import StepComparer, fused_difference
from tensight.compare.runs.matching import Rule, accumulated_parameter, is_anonymous, match_steps, precisions
from tensight.compare.runs.measures import difference
from tensight.compare.runs.ranks import across_ranks
from tensight.compare.runs.result import ComparedTensor, Finding, RunComparison
from tensight.compare.runs.splitting import keep_what_adds_up, parts_of_batches
from tensight.compare.runs.steps import NO_ROW, Phase, RunToCompare
from tensight.compare.runs.tolerance import AMPLIFICATION, ROUNDING, Tolerance
from tensight.compare.verdict import Verdict
from tensight.errors import InputError
from tensight.graph.optimizers import is_gathered
from tensight.graph.steps import step_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tensight.analysis import Analysis
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
        written: set[str] = set()
        for count, iteration in enumerate(both):
            self._progress.begin_step()
            step_a, step_b = a.step(iteration), b.step(iteration)
            matching = match_steps(a, step_a, b, step_b, self._mapping)
            result.parts = parts_of_batches(a, step_a, b, step_b)
            if result.parts is not None:
                keep_what_adds_up(matching)
            result.matching, result.step = matching, step_of(iteration)
            result.precisions = precisions(a, b, matching.pairs)
            if not matching.pairs:
                return _end(result, Verdict.NOT_COMPARABLE, Finding.NOTHING_IN_COMMON)
            if self._is_misaligned(result, a, step_a, b, step_b, is_first=count == 0, written=written):
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
            )
            comparison = comparer.compare(self._progress.report)
            result.steps.append(comparison)
            if comparison.first_bit is not None and result.first_bit is None:
                result.first_bit, result.first_bit_step = comparison.first_bit, step_of(iteration)
            first = comparison.first_bit if self._exact and comparison.first_bit is not None else comparison.first
            if first is not None:
                result.first = first
                return _end(result, Verdict.DIFFERENT, _OF_PHASE[first.pair.a.phase])
            different = self._after(result, a, step_a, b, step_b)
            if different:
                result.tensors = different
                return _end(result, Verdict.DIFFERENT, Finding.UPDATE)
            written = {slot.name for op in step_a.operations for slot in op.outputs if slot.is_parameter}
        result.step = None
        if not any(compared.outputs for step in result.steps for compared in step.compared):
            return _end(result, Verdict.NOT_COMPARABLE, Finding.NOTHING_IN_COMMON)
        return result

    def _is_misaligned(
        self,
        result: RunComparison,
        a: RunToCompare,
        step_a: Step,
        b: RunToCompare,
        step_b: Step,
        *,
        is_first: bool,
        written: set[str],
    ) -> bool:
        """Compare the inputs and weights at the start of a step; if they differ, set the verdict and return True."""
        data = self._tensors(result.matching, a, step_a.data, b, step_b.data)
        weights = self._tensors(result.matching, a, step_a.weights, b, step_b.weights)
        if is_first:
            weights += self._fused(result.matching, (a, b), (step_a, step_b))
            result.data, result.weights = data, weights
        different = [tensor for tensor in data if not tensor.agrees and result.parts is None]
        if different:
            result.tensors = different
            _end(result, Verdict.NOT_COMPARABLE if is_first else Verdict.DIFFERENT, Finding.DATA)
            return True
        different = [tensor for tensor in weights if not tensor.agrees and (is_first or tensor.name_a not in written)]
        if not different:
            return False
        result.tensors = different
        if not is_first:
            _end(result, Verdict.DIFFERENT, Finding.BETWEEN_STEPS)
            return True
        varying = [tensor for tensor in weights if tensor.difference is not None and tensor.difference.spread > 0]
        is_most = len(different) > _MOST_DIFFERENT_WEIGHTS * len(varying)
        _end(result, Verdict.NOT_COMPARABLE if is_most else Verdict.DIFFERENT, Finding.INITIAL_WEIGHTS)
        return True

    def _after(
        self, result: RunComparison, a: RunToCompare, step_a: Step, b: RunToCompare, step_b: Step
    ) -> list[ComparedTensor]:
        """Return weights and states that differ after a step but were not written by a matched operator."""
        matching, compared = result.matching, result.steps[-1].compared
        written = {slot.name for entry in compared for slot, _ in entry.outputs if slot.is_parameter}
        gradients = {name: entry for entry in compared if (name := accumulated_parameter(entry.pair.a)) is not None}
        rows_a, rows_b = a.after(step_a.iteration), b.after(step_b.iteration)
        different = []
        for name, row in rows_a.items():
            other = matching.parameter_in_b(name)
            if other is None or name in written or is_gathered(name) or name in step_a.data:
                continue
            diff = difference(a, row, b, rows_b.get(other, NO_ROW))
            if diff is None or not diff.is_comparable or diff.is_bit_equal:
                continue
            gradient = gradients.get(name) or gradients.get(name.partition(".")[2])
            carried = 0.0 if gradient is None or gradient.worst is None else gradient.worst[1].relative
            chosen = self._tolerance.chosen(name)
            limit = chosen if chosen is not None else ROUNDING * diff.roundoff + 2 * AMPLIFICATION * carried
            if carried < _MOST_CARRIED and diff.absolute > limit * diff.norm + self._tolerance.atol:
                rule = matching.parameters[name][1] if name in matching.parameters else Rule.NAME
                different.append(ComparedTensor(name, other, rule, diff, agrees=False))
        return different

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
        chosen = self._tolerance.chosen(name)
        limit = chosen if chosen is not None else ROUNDING * diff.roundoff + 4 * self._tolerance.noise.get(name, 0.0)
        return diff.absolute <= (limit * diff.norm if diff.norm else 0.0) + self._tolerance.atol


def _end(result: RunComparison, verdict: Verdict, finding: Finding) -> RunComparison:
    result.verdict, result.finding = verdict, finding
    return result
