"""The first operator whose inputs agree and whose output does not.

An operator without a counterpart is a gap. Its readers are judged by the inputs of the gap: the outputs of the nearest
matched operator on every path back from the reader.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from tensight.compare.renaming import plain_name
from tensight.compare.runs.amplification import divides_by_magnitude, keeps_signs_only, may_hold_rounding_alone
from tensight.compare.runs.matching import Rule, is_anonymous, precisions
from tensight.compare.runs.measures import UNIT_ROUNDOFF, TensorDifference, difference, difference_of_fused
from tensight.compare.runs.steps import NO_ROW, Operation, Phase, Slot, accumulated_parameter
from tensight.compare.runs.tolerance import AMPLIFICATION, ROUNDING, allowed_error
from tensight.graph.operator_facts import VIEWS, comparable_type, plain_type

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping

    from numpy.typing import NDArray

    from tensight.compare.runs.matching import Fused, Matching, Pair
    from tensight.compare.runs.steps import RunToCompare, Step
    from tensight.compare.runs.tolerance import Tolerance

_MISTAKEN_ABOVE = 1e-3
"""Relative difference of outputs from which on two operators may have been matched by mistake."""

_PASSED_ON = 1e-5
"""Share of an operator's difference up to which a tensor computed from it counts as equal."""

_MUCH_SMALLER = 0.1
"""The same at most, where errors of the operator's inputs may explain the difference."""

_SPLIT = 1e-3
"""Relative difference of weight gradients that summing over the parts of a batch may cause."""

_SPLIT_OF_LARGEST = 1e-6
"""The same, relative to the largest gradient of the step: smaller gradients may be pure rounding error."""

_MASKED_ABOVE = 1e-3
"""Relative error of an element of a gradient or a state above which its update is not compared."""

_SAME_FACTOR = 1e-3
"""Relative difference of the factors by which gradients of two weights were scaled, if that is one factor."""

_UNSEEN = 4
"""Factor by which an error may exceed its lower bound from statistics."""

_BY_NAME = (Rule.NAME, Rule.NAME_WITHOUT_COUNTERS)

_JOINS = frozenset({"stack", "cat", "concat"})
"""Operators that join tensors."""

_AVERAGES = frozenset({"exp_avg", "momentum_buffer"})
"""States of optimizers to which gradients are added."""


@dataclass(frozen=True, slots=True)
class Compared:
    """A pair of operators and the differences of their tensors.

    Attributes
    ----------
    pair : Pair
    outputs : tuple of (Slot, TensorDifference)
        The worst first. Slots are A's.
    inputs : tuple of (Slot, TensorDifference)
        Inputs of the operators, traced back through gaps.
    allowed : float
        Relative error of the worst output that rounding and the errors of the inputs explain.
    added : float
        By how much the relative error of the worst output exceeds that of the worst input.
    through : tuple of Operation
        Operators of A and B without a counterpart between the inputs and this pair.
    is_divergent : bool
        Whether an output differs more than rounding and the errors of the inputs explain.
    """

    pair: Pair
    outputs: tuple[tuple[Slot, TensorDifference], ...]
    inputs: tuple[tuple[Slot, TensorDifference], ...]
    allowed: float
    added: float
    through: tuple[Operation, ...] = ()
    is_divergent: bool = False

    @property
    def worst(self) -> tuple[Slot, TensorDifference] | None:
        """The output with the largest difference; an output that differs on its own precedes others."""
        return self.outputs[0] if self.outputs else None

    @property
    def is_bit_equal(self) -> bool:
        """Whether all outputs that could be compared are bit-equal."""
        return all(diff.is_bit_equal for _, diff in self.outputs)

    @property
    def differs_in_bits(self) -> bool:
        """Whether an output is known to differ in at least one bit."""
        return any(diff.are_bits_known and not diff.is_bit_equal for _, diff in self.outputs)


@dataclass(slots=True)
class StepComparison:
    """The comparison of all pairs of a step.

    Attributes
    ----------
    iteration : int
        From 0.
    compared : list of Compared
        In order of execution.
    first : Compared or None
        The first operator that diverges.
    also : list of Compared
        Later operators that also diverge although their inputs agree.
    first_bit : Compared or None
        The first operator whose inputs are bit-equal and whose output is not.
    amplified : tuple of str
        Weights of A whose updates differed so far, and were not judged: their optimizer may have made full steps of
        elements of the gradient that are rounding errors alone. Also the running means that follow from them.
    narrowest : str
        The floating-point type with the largest roundoff that operators of the step return, in either run.
    """

    iteration: int
    compared: list[Compared] = field(default_factory=list)
    first: Compared | None = None
    also: list[Compared] = field(default_factory=list)
    first_bit: Compared | None = None
    amplified: tuple[str, ...] = ()
    narrowest: str = "float32"


class StepComparer:
    """Compares one step of two runs.

    Parameters
    ----------
    run_a, run_b : RunToCompare
    step_a, step_b : Step
    matching : Matching
    tolerance : Tolerance
    is_first : bool
        Whether the runs begin with this step. In later steps nothing is known about parameters without a counterpart,
        because each run may have trained them differently.
    is_split : bool
        Whether the runs split a batch into different numbers of parts.
    amplified : iterable of str
        Those of the steps before.
    """

    def __init__(
        self,
        run_a: RunToCompare,
        step_a: Step,
        run_b: RunToCompare,
        step_b: Step,
        matching: Matching,
        tolerance: Tolerance,
        *,
        is_first: bool = True,
        is_split: bool = False,
        amplified: Iterable[str] = (),
    ) -> None:
        self._is_split = is_split
        self._is_first = is_first
        self._runs, self._steps = (run_a, run_b), (step_a, step_b)
        self._matching, self._tolerance = matching, tolerance
        self._differences: dict[tuple[int, int], TensorDifference | None] = {}
        self._counterpart = {pair.a.name: pair.b for pair in matching.pairs}
        self._by_name = {op.name: op for op in step_a.operations}
        self._b_by_name = {op.name: op for op in step_b.operations}
        self._b_paired = {pair.b.name for pair in matching.pairs}
        self._precisions = precisions(run_a, run_b, matching.pairs)
        self._rows_b = {**step_b.unseen, **step_b.data, **step_b.weights}
        self._amplified = list(amplified)
        self._indices_in_b: dict[str, dict[int, int]] = {}

    def compare(self, progress: Callable[[int, int], None] | None = None) -> StepComparison:
        """Compare all pairs of the step.

        Parameters
        ----------
        progress : callable, optional
            Called before each pair with the number of compared pairs and the total; it may raise to stop the
            comparison.
        """
        result = StepComparison(self._steps[0].iteration)
        pairs = self._in_order()
        for done, pair in enumerate(pairs):
            if progress is not None:
                progress(done, len(pairs))
            entry = self._compare(pair)
            if entry.is_divergent and self._is_mistaken(entry):
                self._separate(pair)
                continue
            result.compared.append(entry)
            if entry.is_divergent:
                if result.first is None:
                    result.first = entry
                elif pair.a.phase is not Phase.UPDATE and self._is_certainly_own(entry):
                    result.also.append(entry)
            if result.first_bit is None and entry.differs_in_bits and _bit_equal(entry.inputs):
                result.first_bit = entry
        if result.first is not None:
            result.first = _reordered_before(result.first, result.compared)
            result.first = _not_only_scaled(result.first, result.compared)
        result.amplified, result.narrowest = tuple(self._amplified), self._narrowest
        return result

    def _in_order(self) -> list[Pair]:
        pairs, losses = list(self._matching.pairs), self._matching.losses
        if losses is not None and losses not in pairs:
            forward = [pair for pair in pairs if pair.a.phase is Phase.FORWARD]
            pairs.insert(len(forward), losses)
        return pairs

    @cached_property
    def _largest_gradient(self) -> float:
        run = self._runs[0]
        rows = (slot.row for accumulation in self._gradients.values() for slot in accumulation.outputs)
        return max((run.statistics(row)["l2_norm"] for row in rows if run.is_known(row)), default=0.0)

    @cached_property
    def _narrowest(self) -> str:
        """The floating-point type with the largest roundoff that operators of the step return."""
        pairs = zip(self._runs, self._steps, strict=True)
        slots = ((run, slot) for run, step in pairs for op in step.operations for slot in op.outputs)
        types = {run.dtype(slot.row) for run, slot in slots if slot.row != NO_ROW}
        return max(types, key=lambda dtype: UNIT_ROUNDOFF.get(dtype, 0.0), default="float32")

    @property
    def _is_narrow(self) -> bool:
        return UNIT_ROUNDOFF.get(self._narrowest, 0.0) > UNIT_ROUNDOFF["float32"]

    def _may_be_mistaken(self, entry: Compared) -> bool:
        """Return whether the operators of a pair that differs may be unrelated."""
        pair, worst = entry.pair, entry.worst
        if pair.rule in (Rule.MAPPING, Rule.LAST) or worst is None:
            return False
        is_weak = pair.rule in (Rule.STRUCTURE, Rule.NAME_WITHOUT_COUNTERS)
        if is_weak or not entry.inputs or not worst[1].is_comparable:
            return not self._reads_the_same(entry)
        if worst[1].relative < _MISTAKEN_ABOVE:
            return False
        if entry.through:
            return True
        of_a, of_b = (types.get(op.node.scope) for types, op in zip(self._types, (pair.a, pair.b), strict=True))
        return of_a != of_b

    def _is_mistaken(self, entry: Compared) -> bool:
        """Return whether a pair whose output differs is one of unrelated operators."""
        may_be = self._may_be_mistaken(entry) and not self._is_confirmed(entry)
        return may_be or self._is_unread_and_of_others(entry.pair)

    def _is_unread_and_of_others(self, pair: Pair) -> bool:
        """Return whether nothing reads the output of a pair whose inputs do not belong together.

        Names of operators outside of modules are only numbers, which nothing confirms for copies of weights.
        """
        is_read = any(self._readers.get((slot.name, slot.index)) for slot in pair.a.outputs)
        is_by_number = pair.rule in _BY_NAME and not plain_type(pair.a.type).startswith("foreach")
        if pair.a.phase is not Phase.FORWARD or is_read or not is_by_number or pair is self._matching.losses:
            return False
        keys_a = [self._input_in_b(slot, is_of_b=False) for slot in pair.a.inputs]
        keys_b = [self._input_in_b(slot, is_of_b=True) for slot in pair.b.inputs]
        return None not in keys_a and len(keys_a) == len(keys_b) and Counter(keys_a) != Counter(keys_b)

    def _is_certainly_own(self, entry: Compared) -> bool:
        """Return whether a difference surely arises in the operator: a reliable match whose inputs agree."""
        certain = (Rule.NAME, Rule.MODULE, Rule.VALUES, Rule.INPUTS, Rule.MAPPING)
        return entry.pair.rule in certain and self._reads_the_same(entry)

    def _reads_the_same(self, entry: Compared) -> bool:
        """Return whether all inputs of both operators are known and agree, without a gap."""
        inputs_a, inputs_b = entry.pair.a.inputs, entry.pair.b.inputs
        is_whole = len(entry.inputs) == len({(slot.name, slot.index) for slot in inputs_a})
        return (
            bool(entry.inputs)
            and is_whole
            and len(inputs_a) == len(inputs_b)
            and all(map(self._is_counterpart, inputs_a, inputs_b))
            and all(_agrees(diff) for _, diff in entry.inputs)
        )

    def _is_counterpart(self, slot_a: Slot, slot_b: Slot) -> bool:
        key = self._input_in_b(slot_a, is_of_b=False)
        return key is not None and key == self._input_in_b(slot_b, is_of_b=True)

    @cached_property
    def _types(self) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
        """Types of the operators of each scope of A and of B, in order of execution."""
        by_scope: tuple[dict[str, list[str]], dict[str, list[str]]] = ({}, {})
        for step, types in zip(self._steps, by_scope, strict=True):
            for op in step.operations:
                types.setdefault(op.node.scope, []).append(comparable_type(op.type))
        return by_scope

    def _is_confirmed(self, entry: Compared) -> bool:
        """Return whether the difference of a pair persists to the end of its phase.

        Operators matched by type and position, or after operators that only one run has, may be unrelated; then the
        tensors computed from them agree later on. Agreement proves nothing where the difference is added to a tensor
        so large that rounding hides it. A single number, such as a loss, may agree by chance: then gradients of
        parameters that were read on the way to it decide.
        """
        if entry.worst is not None and not entry.worst[1].is_comparable and not entry.inputs:
            # Operators that make tensors, such as zeros, have only their numbers in common.
            return False
        is_hidden = ends_in_a_number = False
        read_on_the_way: set[str] = set()
        apart, given = (_worst([diff for _, diff in side]) for side in (entry.outputs, entry.inputs))
        limit = max(_PASSED_ON * min(1.0, apart), min(AMPLIFICATION * given, _MUCH_SMALLER * apart))
        waiting, seen = [entry.pair.a], {entry.pair.a.name}
        while waiting:
            op = waiting.pop()
            differing = self._differing(op, limit)
            if any(slot.is_parameter for slot in differing):
                return True
            readers = [
                reader
                for slot in differing
                for reader in self._readers.get((slot.name, slot.index), ())
                if reader.phase is entry.pair.a.phase
            ]
            if not readers and differing and op.name in self._counterpart:
                return True
            if differing:
                read_on_the_way |= {slot.name for slot in op.inputs if slot.is_parameter}
            else:
                ends_in_a_number = ends_in_a_number or self._is_one_number(op)
            for reader in readers:
                is_hidden = is_hidden or self._is_hidden_in(reader, differing)
                if reader.name not in seen:
                    seen.add(reader.name)
                    waiting.append(reader)
        return is_hidden or (ends_in_a_number and any(map(self._gradient_differs, read_on_the_way)))

    def _is_one_number(self, op: Operation) -> bool:
        rows = [slot.row for slot in op.outputs]
        return NO_ROW not in rows and all(self._runs[0].table.rows["count"][row] == 1 for row in rows)

    def _gradient_differs(self, parameter: str) -> bool:
        accumulation = self._gradients.get(parameter)
        if accumulation is None or accumulation.name not in self._counterpart:
            return False
        return bool(self._differing(accumulation, _MISTAKEN_ABOVE))

    @cached_property
    def _gradients(self) -> dict[str, Operation]:
        """The operators of A that accumulate the gradient of a parameter, where they have a counterpart."""
        pairs = self._matching.pairs
        return {name: pair.a for pair in pairs if (name := accumulated_parameter(pair.a.node)) is not None}

    def _is_hidden_in(self, reader: Operation, differing: list[Slot]) -> bool:
        """Return whether a difference is added to a tensor whose rounding error is larger."""
        if comparable_type(reader.type) != "add" or reader.name not in self._counterpart or not reader.outputs:
            return False
        total = self._difference(
            reader.outputs[0].row, self._row_of(self._counterpart[reader.name].outputs, reader.outputs[0])
        )
        read = {(slot.name, slot.index) for slot in reader.inputs}
        terms = [
            self._difference(slot.row, self._counter_row(slot)) for slot in differing if (slot.name, slot.index) in read
        ]
        return total is not None and any(
            term is not None and 0 < term.absolute <= ROUNDING * total.roundoff * total.norm for term in terms
        )

    def _differing(self, op: Operation, limit: float) -> list[Slot]:
        """Return the outputs of an operator of A that differ; all outputs if it has no counterpart."""
        if op.name not in self._counterpart:
            return list(op.outputs)
        others = self._counterpart[op.name].outputs
        diffs = ((slot, self._difference(slot.row, self._row_of(others, slot))) for slot in op.outputs)
        return [slot for slot, diff in diffs if diff is not None and not (_agrees(diff) or diff.relative <= limit)]

    @cached_property
    def _readers(self) -> dict[tuple[str, int], list[Operation]]:
        readers: dict[tuple[str, int], list[Operation]] = {}
        for op in self._steps[0].operations:
            for key in {(slot.name, slot.index) for slot in op.inputs}:
                readers.setdefault(key, []).append(op)
        return readers

    def _separate(self, pair: Pair) -> None:
        """Treat a pair as two operators without a counterpart."""
        del self._counterpart[pair.a.name]
        self._indices_in_b.clear()
        self._b_paired.discard(pair.b.name)
        self._matching.pairs.remove(pair)
        self._matching.only_a.append(pair.a)
        self._matching.only_b.append(pair.b)

    def _difference(self, row_a: int, row_b: int) -> TensorDifference | None:
        key = (row_a, row_b)
        if key not in self._differences:
            self._differences[key] = difference(self._runs[0], row_a, self._runs[1], row_b)
        return self._differences[key]

    def _compare(self, pair: Pair) -> Compared:
        outputs = tuple(self._outputs(pair))
        inputs, through = self._inputs(pair)
        if pair.a.phase is Phase.UPDATE:
            return self._compare_update(pair, outputs, inputs, through)
        verdicts = [
            (False, math.inf)
            if self._follows_amplified(pair.a, slot)
            else self._judge(pair, self._as_inputs_are_known(pair, slot, diff, given), given, through)
            for slot, diff in outputs
            for given in [self._inputs_of_output(pair.a, slot, inputs)]
        ]
        return _compared(pair, outputs, inputs, verdicts, through)

    def _inputs_of_output(
        self, op: Operation, slot: Slot, inputs: tuple[tuple[Slot, TensorDifference], ...]
    ) -> list[TensorDifference]:
        """Return the differences of the inputs on which an output depends: of lists, those of its own tensors."""
        of_list = [(given.name, given.index) for given in self._elementwise_inputs(op, slot)]
        diffs = {(given.name, given.index): diff for given, diff in inputs}
        if len(of_list) == len(op.inputs) or any(key not in diffs for key in of_list):
            return list(diffs.values())
        return [diffs[key] for key in of_list]

    def _follows_amplified(self, op: Operation, slot: Slot) -> bool:
        """Return whether an output reads a weight whose update was not judged, so that its error is unknown.

        A running mean reads it through the layer before. Gradients do not depend on biases.
        """
        if op.phase is not Phase.FORWARD or not self._amplified:
            return False
        readers = [op]
        if slot.is_parameter:
            readers = [source for given in op.inputs if (source := self._by_name.get(given.name)) is not None]
        follows = any(
            _parameter_shown(given, self._by_name) in self._amplified
            for reader in readers
            for given in (self._elementwise_inputs(op, slot) if reader is op else reader.inputs)
        )
        if follows and slot.is_parameter:
            self._note_amplified(slot.name)
        return follows

    def _note_amplified(self, name: str) -> None:
        if name not in self._amplified:
            self._amplified.append(name)

    def _judge(
        self, pair: Pair, diff: TensorDifference, inputs: list[TensorDifference], through: tuple[Operation, ...]
    ) -> tuple[bool, float]:
        """Return whether an output differs on its own, and the norm of the difference that is explained."""
        if not diff.is_comparable:
            # Operators on lists of tensors: one list may have more of them.
            reads_as_many = len(pair.a.inputs) == len(pair.b.inputs)
            return reads_as_many and diff.shapes[0] != diff.shapes[1] and all(map(_agrees, inputs)), 0.0
        if self._is_split and pair.a.phase is not Phase.UPDATE:
            if self._is_narrow and not self._is_first:
                # Adam amplifies the differences of the first step.
                return False, math.inf
            share = max(_SPLIT, ROUNDING * UNIT_ROUNDOFF.get(self._narrowest, 0.0))
            return diff.absolute > share * diff.norm + _SPLIT_OF_LARGEST * self._largest_gradient, share * diff.norm
        limit = allowed_error(pair.a, diff, inputs, self._tolerance, is_mixed=self._precisions is not None)
        if through and not self._is_first and self._read_unmatched_parameters(through):
            return False, math.inf
        if through:
            limit += AMPLIFICATION * _worst(inputs) * diff.norm
        return _is_beyond(diff, limit, inputs), limit

    def _as_inputs_are_known(
        self, pair: Pair, slot: Slot, diff: TensorDifference, inputs: list[TensorDifference]
    ) -> TensorDifference:
        """Compare an output by statistics if an input could only be compared by statistics."""
        if not diff.from_values or all(input_diff.from_values or input_diff.is_bit_equal for input_diff in inputs):
            return diff
        row_b = self._row_of(pair.b.outputs, slot)
        return difference(self._runs[0], slot.row, self._runs[1], row_b, only_statistics=True) or diff

    def _read_unmatched_parameters(self, through: tuple[Operation, ...]) -> bool:
        """Return whether the operators of a gap read parameters that only one run has."""
        left = {*self._matching.parameters_only_a, *self._matching.parameters_only_b}
        return any(slot.name in left for op in through for slot in op.inputs)

    def _outputs(self, pair: Pair) -> Iterator[tuple[Slot, TensorDifference]]:
        is_permuted = self._joins_in_another_order(pair)
        for slot in pair.a.outputs:
            row_b = self._row_of(pair.b.outputs, slot)
            diff = self._difference(slot.row, row_b)
            if is_permuted:
                diff = difference(self._runs[0], slot.row, self._runs[1], row_b, only_statistics=True)
            if diff is not None:
                yield slot, diff

    def _joins_in_another_order(self, pair: Pair) -> bool:
        """Return whether an operator joins the same tensors in another order, such as norms of gradients."""
        if plain_type(pair.a.type) not in _JOINS:
            return False
        keys_a = [self._input_in_b(slot, is_of_b=False) for slot in pair.a.inputs]
        keys_b = [self._input_in_b(slot, is_of_b=True) for slot in pair.b.inputs]
        return keys_a != keys_b and None not in keys_a and Counter(keys_a) == Counter(keys_b)

    def _parameter_of(self, slot: Slot, others: tuple[Slot, ...]) -> Slot | None:
        name = self._matching.parameter_in_b(slot.name)
        return next((other for other in others if other.is_parameter and other.name == name), None)

    def _inputs(self, pair: Pair) -> tuple[tuple[tuple[Slot, TensorDifference], ...], tuple[Operation, ...]]:
        """Return the inputs of both operators, traced back through gaps, and the operators of these gaps."""
        inputs: dict[tuple[str, int], tuple[Slot, TensorDifference]] = {}
        gap: dict[str, Operation] = {}
        # An operator that writes to a weight has read it as it was before.
        own_rows = {slot.name: slot.row for slot in pair.b.inputs if slot.is_parameter}
        waiting, seen = list(pair.a.inputs), {pair.a.name}
        while waiting:
            slot = waiting.pop(0)
            if slot.name in self._fused:
                diff = self._fused[slot.name]
            elif slot.is_parameter and self._matching.parameter_in_b(slot.name) in own_rows:
                diff = self._difference(slot.row, own_rows[str(self._matching.parameter_in_b(slot.name))])
            elif slot.is_parameter or slot.name in self._counterpart:
                diff = self._difference(slot.row, self._counter_row(slot))
            else:
                source = self._by_name.get(slot.name)
                if source is not None and source.name not in seen:
                    seen.add(source.name)
                    gap[source.name] = source
                    waiting += source.inputs
                continue
            if diff is not None:
                inputs.setdefault((slot.name, slot.index), (slot, diff))
        for name in self._gap_of_b(pair.b):
            gap.setdefault("B " + name, self._b_by_name[name])
        return tuple(inputs.values()), tuple(gap.values())

    def _gap_of_b(self, op: Operation) -> Iterator[str]:
        waiting, seen = list(op.inputs), {op.name}
        while waiting:
            slot = waiting.pop(0)
            source = None if slot.is_parameter else self._b_by_name.get(slot.name)
            if source is not None and source.name not in self._b_paired and source.name not in seen:
                seen.add(source.name)
                yield source.name
                waiting += source.inputs

    @cached_property
    def _fused(self) -> dict[str, TensorDifference | None]:
        """Differences of parameters that are fused in one run and split in the other, by their names in A."""
        diffs: dict[str, TensorDifference | None] = {}
        for fused in self._matching.fused:
            diff = fused_difference(fused, self._runs, self._steps)
            diffs |= dict.fromkeys(fused.names[0], diff)
        return diffs

    def _row_b(self, name: str) -> int:
        return self._rows_b.get(name, NO_ROW)

    def _compare_update(
        self,
        pair: Pair,
        outputs: tuple[tuple[Slot, TensorDifference], ...],
        inputs: tuple[tuple[Slot, TensorDifference], ...],
        through: tuple[Operation, ...],
    ) -> Compared:
        """Compare an optimizer's outputs by element, except elements whose gradient or state is too inexact."""
        if not inputs and any(slot.is_parameter for slot in pair.a.inputs):
            # Traces do not contain the states of every step; the weight that they update tells whether they differ.
            return _compared(pair, outputs, inputs, [(False, math.inf)] * len(outputs), through)
        verdicts = []
        for slot, diff in outputs:
            if diff.is_comparable:
                excess, limit = self._update_error(pair, slot, diff, inputs)
                verdicts.append((excess > limit, limit))
            else:
                verdicts.append(self._judge(pair, diff, [input_diff for _, input_diff in inputs], ()))
        return _compared(pair, outputs, inputs, verdicts, through)

    def _update_error(
        self,
        pair: Pair,
        slot: Slot,
        diff: TensorDifference,
        inputs: tuple[tuple[Slot, TensorDifference], ...],
    ) -> tuple[float, float]:
        """Return the norm of the difference that counts, and the allowed norm."""
        chosen = self._tolerance.chosen(pair.a.name)
        if chosen is not None:
            return diff.absolute, chosen * diff.norm + self._tolerance.atol
        unit = diff.roundoff
        if diff.is_bit_equal:
            return 0.0, 0.0
        update = self._masked_update(pair, slot) if diff.from_values else None
        input_diffs = [input_diff for _, input_diff in inputs]
        diff = self._as_inputs_are_known(pair, slot, diff, input_diffs)
        if update is None:
            allowed = (ROUNDING * unit + AMPLIFICATION * _worst(input_diffs)) * diff.norm
            allowed += _cancelled(pair, slot, inputs)
            if self._is_narrow and not all(input_diff.is_bit_equal for input_diff in input_diffs):
                # Statistics of gradients may agree by chance, although each element is rounded to the narrower type.
                allowed += ROUNDING * UNIT_ROUNDOFF[self._narrowest] * diff.norm
            if diff.absolute > allowed and self._may_be_amplified(pair, slot, input_diffs):
                return diff.absolute, math.inf
            return diff.absolute, allowed
        rounding = 2 * unit * update.size + ROUNDING * unit * update.moved
        apart = update.apart if diff.from_values else min(update.apart, diff.absolute)
        return apart, rounding + AMPLIFICATION * update.carried + self._tolerance.atol

    def _may_be_amplified(self, pair: Pair, slot: Slot, inputs: list[TensorDifference]) -> bool:
        """Return whether an optimizer may have made full steps of rounding errors; for tensors without elements."""
        weight = None if all(diff.is_bit_equal for diff in inputs) else self._updated(pair.a, slot)
        other = None if weight is None else self._matching.parameter_in_b(weight)
        if weight is None or other is None:
            return False
        if not (divides_by_magnitude(self._runs[0], weight) or keeps_signs_only(pair.a.type)):
            return False
        names = zip(self._runs, (weight, other), self._steps, strict=True)
        # The steps of a vector that begins at zero are all that it is.
        is_vector = slot.row != NO_ROW and len(self._runs[0].shape(slot.row)) <= 1
        may_be = (
            (is_vector and self._is_narrow)
            or self._is_rounding_alone(weight)
            or any(may_hold_rounding_alone(run, name, step.iteration) for run, name, step in names)
        )
        if may_be:
            self._note_amplified(weight)
        return may_be

    def _updated(self, op: Operation, slot: Slot) -> str | None:
        """Return the weight that an output of an optimizer's operator is, or is computed for; None if it is a state."""
        while not slot.is_parameter and op.type.endswith("_") and op.inputs:
            slot = next(iter(self._elementwise_inputs(op, slot)), op.inputs[0])
            source = self._by_name.get(slot.name)
            if source is None:
                break
            op = source
        if slot.is_parameter:
            return None if slot.name in self._runs[0].states else slot.name
        waiting, seen = [(op, slot)], set[str]()
        while waiting:
            op, slot = waiting.pop(0)
            weight = accumulated_parameter(op.node)
            if weight is not None:
                return weight
            for given in self._elementwise_inputs(op, slot):
                source = self._by_name.get(given.name)
                if source is not None and source.name not in seen and source.phase is not Phase.FORWARD:
                    seen.add(source.name)
                    waiting.append((source, given))
        return None

    def _is_rounding_alone(self, weight: str) -> bool:
        """Return whether the gradient of a vector is so small a sum that its elements are rounding errors alone."""
        run, op = self._runs[0], self._gradients.get(weight)
        slot = None if op is None or not op.outputs else op.outputs[0]
        if slot is None or not run.is_known(slot.row) or len(run.shape(slot.row)) > 1:
            return False
        amount = run.statistics(slot.row)["count"]
        while op is not None and slot is not None:
            given = [entry for entry in self._elementwise_inputs(op, slot) if run.is_known(entry.row)]
            norm = run.statistics(slot.row)["l2_norm"]
            terms = next((entry for entry in given if run.statistics(entry.row)["count"] > amount), None)
            if terms is not None:
                unit = max(UNIT_ROUNDOFF.get(run.dtype(entry.row), 0.0) for entry in (slot, terms))
                return norm <= ROUNDING * unit * run.statistics(terms.row)["l2_norm"]
            slot = next((entry for entry in given if run.statistics(entry.row)["count"] == amount), None)
            op = None if slot is None else self._by_name.get(slot.name)
        return False

    def _elementwise_inputs(self, op: Operation, slot: Slot) -> tuple[Slot, ...]:
        """Return the inputs of an operator that belong to an output: of lists of tensors, one of each list."""
        if plain_type(op.type).startswith("foreach") and slot.index < len(op.outputs):
            return _of_list(op, slot.index)
        return op.inputs

    def _masked_update(self, pair: Pair, slot: Slot) -> _Update | None:
        """Measure an update over the elements whose inputs agree; return None if that is not possible.

        Optimizers such as Adam divide each element by its own magnitude, so a gradient element that is pure rounding
        error determines an element of the weight.
        """
        a, b = self._runs[0].values(slot.row), self._runs[1].values(self._row_of(pair.b.outputs, slot))
        if a is None or b is None or a.shape != b.shape:
            return None
        counts = np.ones(a.shape, np.bool_)
        before, errors, unseen = None, [], 0.0
        is_elementwise = False
        for index, given in enumerate(pair.a.inputs):
            row_b = self._counter_row(given)
            input_a, input_b = self._runs[0].values(given.row), self._runs[1].values(row_b)
            if input_a is None or input_b is None:
                apart = self._difference(given.row, row_b)
                if apart is not None and apart.count == a.size and not apart.is_bit_equal:
                    if not apart.relative <= _MASKED_ABOVE:
                        return None
                    unseen = max(unseen, _UNSEEN * apart.relative)
                continue
            if input_a.shape != a.shape or input_b.shape != a.shape:
                continue
            is_elementwise = True
            larger = np.maximum(np.abs(input_a), np.abs(input_b))
            error = np.divide(np.abs(input_a - input_b), larger, out=np.zeros_like(larger), where=larger > 0)
            counts &= error <= _MASKED_ABOVE
            if given.name == slot.name or (index == 0 and pair.a.type.endswith("_")):
                before = input_a, error
            else:
                errors.append(error)
        if not is_elementwise:
            return None
        was, error_before = before if before is not None else (np.zeros_like(a), np.zeros_like(a))
        with np.errstate(all="ignore"):
            moved = np.abs(a - was)
            # Where gradient and state cancel, an element moves less than its inputs suggest.
            carried = max((_norm(error[counts]) for error in errors), default=0.0) * float(moved.max(initial=0.0))
            return _Update(
                apart=_norm((a - b)[counts]),
                moved=_norm(moved[counts]),
                size=_norm(a[counts]),
                carried=unseen * _norm(a[counts]) + _norm((error_before * a)[counts]) + carried,
            )

    def _row_of(self, outputs: tuple[Slot, ...], slot: Slot) -> int:
        if slot.is_parameter:
            other = self._parameter_of(slot, outputs)
        else:
            index = self._index_in_b(slot)
            other = next((output for output in outputs if output.index == index and not output.is_parameter), None)
        return NO_ROW if other is None else other.row

    def _index_in_b(self, slot: Slot) -> int | None:
        """Return which output of an operator of B corresponds to an output of its counterpart.

        Operators on lists of tensors have an output for each, and parameters may be registered in another order. None
        if that of B is not known.
        """
        op, other = self._by_name.get(slot.name), self._counterpart.get(slot.name)
        if op is None or other is None or not plain_type(op.type).startswith("foreach") or slot.index >= len(op.inputs):
            return slot.index
        if op.name not in self._indices_in_b:
            self._indices_in_b[op.name] = self._indices_of_list(op, other)
        return self._indices_in_b[op.name].get(slot.index)

    def _indices_of_list(self, op: Operation, other: Operation) -> dict[int, int]:
        """Return the index in B of each output of an operator on lists of tensors: by weights, then by other inputs."""
        indices: dict[int, int] = {}
        left = set(range(len(other.outputs)))
        for key_of in (self._weight_in_b, self._input_in_b):
            of_b = {key_of(slot, is_of_b=True): index for index in left for slot in _of_list(other, index)}
            of_b.pop(None, None)
            for index in range(len(op.outputs)):
                keys = () if index in indices else (key_of(slot, is_of_b=False) for slot in _of_list(op, index))
                index_b = next((of_b[key] for key in keys if of_b.get(key) in left), None)
                if index_b is not None:
                    indices[index] = index_b
                    left.remove(index_b)
        without = [index for index in range(len(op.outputs)) if index not in indices]
        if len(without) == len(left) == 1:
            # Behind an operator that only one run has, such as the hook of one gradient.
            indices[without[0]] = left.pop()
        return indices

    def _weight_in_b(self, slot: Slot, *, is_of_b: bool) -> Hashable:
        """Return B's name of the parameter that an input shows; None if it has none."""
        name = _parameter_shown(slot, self._b_by_name if is_of_b else self._by_name)
        if name is None or is_anonymous(name):
            return None
        return name if is_of_b else self._matching.parameter_in_b(name)

    def _input_in_b(self, slot: Slot, *, is_of_b: bool) -> Hashable:
        """Return B's name of an input, with its index; None if it has no counterpart."""
        if slot.is_parameter:
            return slot.name if is_of_b else self._matching.parameter_in_b(slot.name)
        op = self._b_by_name.get(slot.name) if is_of_b else self._counterpart.get(slot.name)
        return None if op is None else (op.name, slot.index if is_of_b else self._index_in_b(slot))

    def _counter_row(self, slot: Slot) -> int:
        if slot.is_parameter:
            name = self._matching.parameter_in_b(slot.name)
            return NO_ROW if name is None else self._row_b(name)
        other = self._counterpart.get(slot.name)
        return NO_ROW if other is None else self._row_of(other.outputs, slot)


def _of_list(op: Operation, index: int) -> tuple[Slot, ...]:
    """Return the inputs of an operator on lists of tensors that belong to one output; a factor belongs to none."""
    amount = len(op.outputs)
    return op.inputs[index : len(op.inputs) // amount * amount : amount]


def _parameter_shown(slot: Slot, operations: Mapping[str, Operation]) -> str | None:
    """Return the parameter whose elements an input is, also as a view; None for all others."""
    while not slot.is_parameter:
        source = operations.get(slot.name)
        if source is None or plain_type(source.type) not in VIEWS or not source.inputs:
            return None
        slot = source.inputs[0]
    return slot.name


def _reordered_before(first: Compared, compared: list[Compared]) -> Compared:
    """Return the operator before the first that differs, if its elements may be in another order; else the first.

    The statistics of its output agree, unlike their content, and its inputs are bit-equal.
    """
    by_name = {entry.pair.a.name: entry for entry in compared}
    waiting, seen, sources = [first], {first.pair.a.name}, []
    while waiting:
        for slot, diff in waiting.pop().inputs:
            source = by_name.get(slot.name)
            if source is None or diff.is_bit_equal or diff.from_values or slot.name in seen:
                continue
            seen.add(slot.name)
            if diff.may_be_reordered and source.inputs and _bit_equal(source.inputs):
                sources.append(source)
            else:
                waiting.append(source)
    return min(sources, key=lambda entry: entry.pair.a.position, default=first)


def _not_only_scaled(first: Compared, compared: list[Compared]) -> Compared:
    """Return the first gradient of a weight that differs by more than the factor by which most of them differ.

    Gradients are recorded as updates read them. If they were clipped by their common norm, a difference of one of them
    scales all others.
    """
    if accumulated_parameter(first.pair.a.node) is None:
        return first
    gradients = [
        (entry, entry.worst[1].norm_ratio)
        for entry in compared
        if accumulated_parameter(entry.pair.a.node) is not None
        and entry.worst is not None
        and entry.worst[1].norm_ratio >= 0
    ]
    factor = sorted(ratio for _, ratio in gradients)[len(gradients) // 2] if gradients else 1.0
    others = [
        entry for entry, ratio in gradients if abs(ratio - factor) > factor * max(_SAME_FACTOR, 2 * entry.allowed)
    ]
    is_factor_of_most = len(others) * 2 < len(gradients)
    return others[0] if others and is_factor_of_most else first


def fused_difference(
    fused: Fused, runs: tuple[RunToCompare, RunToCompare], steps: tuple[Step, Step]
) -> TensorDifference | None:
    """Compare a fused parameter with its parts before a step; return None if their elements cannot be read."""
    side = int(fused.is_of_b)
    rows = [steps[1 - side].weights.get(part, NO_ROW) for part in fused.parts]
    return difference_of_fused(
        runs[side],
        steps[side].weights.get(fused.whole, NO_ROW),
        runs[1 - side],
        rows,
        is_transposed=fused.is_transposed,
    )


@dataclass(frozen=True, slots=True)
class _Update:
    """Norms of an optimizer's update, over the elements whose inputs agree.

    Attributes
    ----------
    apart : float
        Norm of the difference of the results.
    moved, size : float
        Norms of A's update and of its result.
    carried : float
        Norm of the difference that the errors of the previous elements, of the gradient and of the states explain.
    """

    apart: float
    moved: float
    size: float
    carried: float


def _cancelled(pair: Pair, slot: Slot, inputs: tuple[tuple[Slot, TensorDifference], ...]) -> float:
    """Return the norm of the error that is left where the terms of a sum cancel, such as a gradient and its average."""
    is_sum = comparable_type(pair.a.type).rstrip("_") in ("add", "sub", "lerp")
    if not (is_sum or (slot.is_parameter and plain_name(slot.name.partition(".")[0]) in _AVERAGES)):
        return 0.0
    is_term = [is_sum or given.name == slot.name or not given.is_parameter for given, _ in inputs]
    terms = [diff for (_, diff), counts in zip(inputs, is_term, strict=True) if counts and diff.is_comparable]
    return sum(ROUNDING * diff.roundoff * diff.norm + _UNSEEN * diff.absolute for diff in terms)


def _norm(values: NDArray[np.float64]) -> float:
    return float(np.linalg.norm(values))


def _compared(
    pair: Pair,
    outputs: tuple[tuple[Slot, TensorDifference], ...],
    inputs: tuple[tuple[Slot, TensorDifference], ...],
    verdicts: list[tuple[bool, float]],
    through: tuple[Operation, ...],
) -> Compared:
    """Return the comparison of a pair, its worst output first; outputs that differ on their own precede others."""
    ranked = sorted(
        zip(outputs, verdicts, strict=True), key=lambda entry: (entry[1][0], _order(entry[0][1])), reverse=True
    )
    outputs = tuple(output for output, _ in ranked)
    limit, worst = (ranked[0][1][1], ranked[0][0][1]) if ranked else (0.0, None)
    allowed = limit / worst.norm if worst is not None and worst.norm else 0.0
    added = 0.0 if worst is None or not worst.is_comparable else worst.relative - _worst([diff for _, diff in inputs])
    return Compared(pair, outputs, inputs, allowed, max(0.0, added), through, any(beyond for beyond, _ in verdicts))


def _is_beyond(diff: TensorDifference, limit: float, inputs: list[TensorDifference]) -> bool:
    if diff.is_bit_equal or (diff.absolute == 0 and not diff.are_bits_known):
        # In the second case, neither hashes nor values were recorded, and the statistics agree.
        return False
    if not diff.roundoff:
        # Integers and booleans are not rounded, but rounding of an input may have tipped them.
        return all(input_diff.is_bit_equal for input_diff in inputs)
    return diff.absolute > limit


def _agrees(diff: TensorDifference) -> bool:
    return diff.is_comparable and diff.relative <= max(ROUNDING * diff.roundoff, 0.0)


def _worst(diffs: list[TensorDifference]) -> float:
    return max((diff.relative for diff in diffs if diff.is_comparable), default=0.0)


def _order(diff: TensorDifference) -> float:
    return math.inf if not diff.is_comparable else diff.relative


def _bit_equal(inputs: tuple[tuple[Slot, TensorDifference], ...]) -> bool:
    return all(diff.is_bit_equal for _, diff in inputs)
