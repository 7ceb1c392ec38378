"""The result of a comparison of two runs in sentences."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tensight.compare.runs.measures import UNIT_ROUNDOFF
from tensight.compare.runs.result import Finding
from tensight.compare.runs.steps import Operation, Phase
from tensight.compare.verdict import Verdict
from tensight.graph import user_frame
from tensight.graph.optimizers import is_gathered

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tensight.compare.runs.divergence import Compared
    from tensight.compare.runs.measures import TensorDifference
    from tensight.compare.runs.result import ComparedTensor, RunComparison

_MOST_NAMED = 3
_OF_WEIGHTS = "AccumulateGrad"
_FEWEST_SCALED = 3
_SAME_FACTOR = 1e-2
"""Relative tolerance for the factors of gradients to count as equal; wide enough for half precision."""


def sentence(result: RunComparison) -> str:
    """Return the verdict on one rank in one sentence.

    Parameters
    ----------
    result : RunComparison
    """
    return _SENTENCES[result.finding](result)


def notes(result: RunComparison) -> list[str]:
    """Return remarks that are needed to read the verdict, one sentence each."""
    if result.finding is Finding.ANOTHER_RANK:
        return []
    return [
        *_limits(result),
        *_first_bit(result),
        *_around_the_first(result),
        *_beside_the_first(result),
        *_scaled_gradients(result),
        *_only_steps(result),
        *_written_by(result),
        *_unknown(result),
    ]


def _limits(result: RunComparison) -> Iterator[str]:
    """Yield what could not be compared, or only less strictly."""
    if result.finding not in (Finding.DATA, Finding.NOTHING_IN_COMMON) and not result.data:
        yield "The inputs of the network were not recorded in both runs, so it is not proven that they are equal."
    if result.parts is not None:
        yield (
            f"A processes a batch in {_parts_text(result.parts[0])}, B in {_parts_text(result.parts[1])}: only weight"
            " gradients, updates and weights were compared."
        )
    amount = len(result.matching.fused)
    if amount:
        yield (
            f"{amount} parameter{'s are' if amount > 1 else ' is'} fused in one run and split in the other; their"
            " gradients and updates were not compared."
        )
    if result.precisions is not None:
        of_a, of_b = result.precisions
        yield (
            f"Most matrix products are {of_a} in A and {of_b} in B: differences that rounding to the narrower type"
            " explains are not reported."
        )
    yield from _amplified(result)


def _amplified(result: RunComparison) -> Iterator[str]:
    """Yield the weights whose updates differ and were not judged, with the step in which the first did."""
    first = next((step for step in result.steps if step.amplified), None)
    if first is None:
        return
    weights = [name for name in result.steps[-1].amplified if not is_gathered(name)]
    yield (
        f"From step {first.iteration + 1} on, updates of {_joined(weights)} differ and were not judged: elements of the"
        " gradients may be rounding errors alone, of which the optimizer makes full steps, and only statistics were"
        " recorded."
    )


def _first_bit(result: RunComparison) -> Iterator[str]:
    """Yield the operator at which runs that are the same begin to differ by rounding."""
    if result.verdict is not Verdict.SAME or result.first_bit is None:
        return
    worst = result.first_bit.worst
    apart = "" if worst is None else f", by {number_text(worst[1].relative)} relative"
    if worst is not None and not worst[1].from_values:
        apart = f": {difference_text(worst[1])}"
    operator = operator_text(result.first_bit.pair.a)
    yield f"Step {result.first_bit_step}: {operator} is the first that differs in any bit{apart}."


def _around_the_first(result: RunComparison) -> Iterator[str]:
    """Yield what is unknown about the inputs of the first operator that diverges."""
    first = result.first
    if first is not None and first.through:
        yield f"Between its inputs and it are operators without a counterpart: {_listed(first.through)}."
    unknown = [] if first is None else _unknown_inputs(result, first)
    if unknown:
        yield f"Of its inputs, {_joined(unknown)} could not be compared."
    elif first is not None and not first.inputs:
        yield "Its inputs could not be compared."
    by_statistics = [] if first is None else _known_by_statistics(first)
    if first is not None and by_statistics and first.pair.a.phase is not Phase.UPDATE:
        yield (
            f"Of {_joined(by_statistics)} only statistics were recorded, which do not show the order of the elements:"
            " what computes its inputs may differ in that."
        )


def _unknown_inputs(result: RunComparison, first: Compared) -> list[str]:
    """Return the parameters and states that an operator reads and that were not recorded in both runs."""
    compared = {slot.name for slot, _ in first.inputs}
    left = {
        *compared,
        *result.matching.parameters_only_a,
        *(name for fused in result.matching.fused for name in fused.names[0]),
    }
    return [slot.name for slot in first.pair.a.inputs if slot.is_parameter and slot.name not in left]


def _known_by_statistics(compared: Compared) -> list[str]:
    """Return the names of the inputs whose statistics agree, and whose content is not known to."""
    return [slot.name for slot, diff in compared.inputs if not (diff.from_values or diff.is_bit_equal)]


def _joined(names: Sequence[str]) -> str:
    """Return the first few names and the number of the others."""
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def _beside_the_first(result: RunComparison) -> Iterator[str]:
    """Yield the other operators of the step that diverge on their own."""
    if not result.steps:
        return
    step, first = result.steps[-1], result.first
    if first is not None and first.pair.a.phase is Phase.UPDATE:
        updates = [entry for entry in step.compared if entry.pair.a.phase is Phase.UPDATE]
        amount = sum(1 for entry in updates if entry.is_divergent)
        yield f"{amount} of {len(updates)} updates of this step differ although gradients and states agree."
    elif step.also:
        operators = _listed([entry.pair.a for entry in step.also])
        yield f"Later operators of this step whose inputs agree and whose outputs differ: {operators}."


def _listed(operators: Sequence[Operation]) -> str:
    """Return the first few operators and the number of the others."""
    return _joined([operator_text(op) for op in operators])


def _only_steps(result: RunComparison) -> Iterator[str]:
    for steps, run in ((result.only_steps_a, "A"), (result.only_steps_b, "B")):
        if steps:
            compared = ", which was not compared" if len(steps) == 1 else ", which were not compared"
            yield f"Only {run} has {_steps_text(steps)}{compared}."


def _written_by(result: RunComparison) -> Iterator[str]:
    """Yield the operator without a counterpart that wrote a weight that differs."""
    if result.finding is not Finding.UPDATE or result.first is not None:
        return
    changed = {name for tensor in result.tensors for name in (tensor.name_a, tensor.name_b)}
    for operators, run, other in ((result.matching.only_a, "A", "B"), (result.matching.only_b, "B", "A")):
        writer = next((op for op in operators if any(slot.name in changed for slot in op.outputs)), None)
        if writer is not None:
            yield f"In {run} it is written by {operator_text(writer)}, which matched nothing in {other}."


def _unknown(result: RunComparison) -> Iterator[str]:
    """Yield what a mapping by hand names in vain."""
    for run in "AB":
        names = [f'"{name}"' for of, name in result.unknown if of == run]
        if names:
            yield f"The mapping names what {run} does not have, as an operator, module or parameter: {_joined(names)}."


def _scaled_gradients(result: RunComparison) -> Iterator[str]:
    """Yield what it means if all weight gradients are those of A times the same factor."""
    first = result.first
    if first is None or first.pair.a.type != _OF_WEIGHTS:
        return
    gradients = [entry for entry in result.steps[-1].compared if entry.pair.a.type == _OF_WEIGHTS]
    ratios = [entry.worst[1].norm_ratio for entry in gradients if entry.worst is not None and not entry.is_bit_equal]
    low, high = min(ratios, default=math.nan), max(ratios, default=math.nan)
    is_one_number = 0 < high < low * (1 + _SAME_FACTOR) and not math.isclose(low, 1, rel_tol=_SAME_FACTOR)
    if is_one_number and len(ratios) >= _FEWEST_SCALED and len(ratios) == len(gradients):
        yield (
            f"All {len(ratios)} gradients of weights in B are {low:.4g} times those of A: as after clipping,"
            " with another scale of the loss, or where gradients of several batches are summed in one run and averaged"
            " in the other."
        )


def operator_text(op: Operation) -> str:
    """Return an operator's name, type and line of code."""
    frame = user_frame(op.node.frames)
    line = f", {frame.file.rpartition('/')[2]}:{frame.lines}" if frame is not None and frame.line is not None else ""
    return f"{op.name} ({op.type}{line})"


def number_text(value: float) -> str:
    """Return a relative difference in a few digits."""
    if value != value:
        return "unknown"
    return "0" if value == 0 else f"{value:.1e}" if value < 1e-2 else f"{value:.2g}"


def difference_text(diff: TensorDifference) -> str:
    """Return the difference of two tensors in a few words."""
    if not diff.is_comparable:
        shape_a, shape_b = (_shape_text(shape) for shape in diff.shapes)
        return f"shape {shape_a} in A, {shape_b} in B"
    if diff.is_bit_equal:
        return "bit-equal" + (", NaN or Inf at the same places" if diff.has_equal_non_finite else "")
    if diff.may_be_reordered:
        return "equal statistics, other content: elements in another order, or other last digits"
    if diff.relative == float("inf"):
        return "NaN or Inf where the other run has none"
    at_least = "" if diff.from_values else "at least "
    text = f"relative difference {at_least}{number_text(diff.relative)}"
    if diff.dtypes[0] != diff.dtypes[1]:
        text += f", {diff.dtypes[0]} in A and {diff.dtypes[1]} in B"
    if diff.layout:
        text += f", axes of B as {diff.layout}"
    if diff.has_equal_non_finite:
        text += ", NaN or Inf at the same places"
    return text


def _shape_text(shape: tuple[int, ...]) -> str:
    return "×".join(map(str, shape)) or "scalar"


def _steps_text(steps: tuple[int, ...]) -> str:
    if len(steps) == 1:
        return f"step {steps[0]}"
    return f"{len(steps)} steps ({steps[0]} to {steps[-1]})"


def _parts_text(parts: int) -> str:
    return "one part" if parts == 1 else f"{parts} parts"


def _nothing(result: RunComparison) -> str:
    amount = len(result.steps)
    steps = f"{amount} step" + ("" if amount == 1 else "s")
    if result.only_steps_a or result.only_steps_b:
        of_both = f"In the {steps} that were compared, "
        if result.is_bit_equal:
            return f"{of_both}all tensors that both recorded are bit-equal."
        return f"{of_both}the runs are the same up to rounding{_to_type(result)}{_by_statistics(result)}."
    if result.is_bit_equal:
        return f"The runs are the same: all tensors of {steps} that both recorded are bit-equal."
    return f"The runs are the same up to rounding{_to_type(result)} in {steps}{_by_statistics(result)}."


def _to_type(result: RunComparison) -> str:
    """Return to which element type rounding is, if it is to one narrower than float32."""
    types = {step.narrowest for step in result.steps}
    narrowest = max(types, key=lambda dtype: UNIT_ROUNDOFF.get(dtype, 0.0), default="float32")
    return f" to {narrowest}" if UNIT_ROUNDOFF.get(narrowest, 0.0) > UNIT_ROUNDOFF["float32"] else ""


def _by_statistics(result: RunComparison) -> str:
    """Return that only statistics agree, where the content of some outputs differs and no elements were recorded."""
    diffs = (diff for step in result.steps for entry in step.compared for _, diff in entry.outputs)
    return "" if all(diff.from_values or diff.is_bit_equal for diff in diffs) else ", as far as statistics show"


def _nothing_in_common(result: RunComparison) -> str:
    if result.matching.pairs:
        return "The runs cannot be compared: no operator has an output that could be compared in both."
    if result.only_steps_a or result.only_steps_b:
        return "The runs cannot be compared: no step was recorded in both."
    return "The runs cannot be compared: no operator of A matches one of B."


def _data(result: RunComparison) -> str:
    which = f"{_names(result.tensors)} {'differs' if len(result.tensors) == 1 else 'differ'}"
    if result.verdict is Verdict.NOT_COMPARABLE:
        return f"The runs cannot be compared: they read other data in step {result.step} ({which})."
    return f"The runs agree until step {result.step}, where they read other data ({which})."


def _weights(result: RunComparison) -> str:
    differ = f"{len(result.tensors)} of {len(result.weights)} weights differ before step {result.step}"
    first = f"the first is {_names(result.tensors[:1])}"
    if result.verdict is Verdict.NOT_COMPARABLE:
        return f"The runs cannot be compared: {differ}; {first}."
    return f"Initial weights: {differ}; {first}."


def _between(result: RunComparison) -> str:
    """Return what was changed after the last step's update, and before this one's."""
    last = result.steps[-1].iteration + 1
    when = f"Between the updates of step {last} and step {result.step}"
    changed = f"{_names(result.tensors)}. Until then the runs agree."
    writers = _writers_beforehand(result)
    if writers:
        return f"{when}, {' and '.join(writers)}: {changed}"
    runs = sorted({run for tensor in result.tensors for run in tensor.changed_in})
    if not runs:
        return f"Step {result.step} reads weights that differ, and were not recorded before: {changed}"
    return f"{when}, weights were changed outside of the recorded operators in {' and '.join(runs)}: {changed}"


def _writers_beforehand(result: RunComparison) -> list[str]:
    """Return which operators without a counterpart wrote the tensors that differ."""
    changed = {name for tensor in result.tensors for name in (tensor.name_a, tensor.name_b)}
    writers = []
    for operators, run in ((result.matching.only_a, "A"), (result.matching.only_b, "B")):
        writer = next((op for op in operators if not changed.isdisjoint(op.written_beforehand)), None)
        if writer is not None:
            writers.append(f"only {run} runs {operator_text(writer)}")
    return writers


def _diverges(result: RunComparison) -> str:
    first = result.first
    if first is None and any(tensor.changed_in for tensor in result.tensors):
        return f"Step {result.step}, update: {_read_in_one_run(result.tensors)}"
    if first is None:
        return (
            f"Step {result.step}, {result.finding.value}: {_names(result.tensors)} after the step, although all that"
            " was recorded before it agrees."
        )
    other = f" (in B: {first.pair.b.name})" if first.pair.b.name != first.pair.a.name else ""
    what = "whose output does not"
    if first.worst is not None and first.worst[0].is_parameter:
        # Such as a running mean, or a weight after an update.
        norm_a, norm_b = first.worst[1].norms
        what = f"after which {first.worst[0].name} does not (norm {norm_a:.4g} in A, {norm_b:.4g} in B)"
    agree = "agree by their statistics" if _known_by_statistics(first) else "agree"
    operator = f"{first.pair.a.phase.value}: {operator_text(first.pair.a)}{other}"
    how = f"whose inputs {agree} and {what}" if first.inputs else "that differs"
    return f"Step {result.step}, {operator} is the first operator {how}: {_output_text(first)}."


def _read_in_one_run(tensors: list[ComparedTensor]) -> str:
    """Return which weights have a gradient in the updates of one run only."""
    parts = []
    for run in "AB":
        names = [tensor.name_a if run == "A" else tensor.name_b for tensor in tensors if run in tensor.changed_in]
        if names:
            parts.append(f"only in {run} do updates read gradients of {_joined(names)}")
    return f"{', and '.join(parts)}: in the other run they are frozen, in no optimizer, or not reached."


def _losses(result: RunComparison) -> str:
    losses = result.matching.losses
    entries = result.steps[-1].compared
    worst = next((entry.worst for entry in entries if entry.pair is losses), None)
    text = "" if worst is None else f" ({difference_text(worst[1])})"
    return (
        f"The losses differ in step {result.step}{text}, and no operator until then differs by more than its inputs and"
        " rounding explain: rounding errors have grown, or the cause is smaller than they are."
    )


def _from_another_rank(result: RunComparison) -> str:
    first = result.first
    what = "" if first is None else f", {first.pair.a.phase.value}: {operator_text(first.pair.a)}"
    return (
        f"Step {result.step}{what} differs after rank {result.from_rank} did, which contributes to it: see there first."
        " On this rank everything before it agrees."
    )


def _output_text(first: Compared) -> str:
    worst = first.worst
    if worst is None:
        return "nothing is known of it"
    text = difference_text(worst[1])
    if worst[1].may_be_reordered:
        return text
    return f"{text} (rounding explains {number_text(first.allowed)})" if worst[1].is_comparable else text


def _names(tensors: list[ComparedTensor]) -> str:
    texts = []
    for tensor in tensors[:_MOST_NAMED]:
        name = tensor.name_a if tensor.name_a == tensor.name_b else f"{tensor.name_a} (in B: {tensor.name_b})"
        texts.append(name if tensor.difference is None else f"{name}: {difference_text(tensor.difference)}")
    more = f" and {len(tensors) - _MOST_NAMED} more" if len(tensors) > _MOST_NAMED else ""
    return "; ".join(texts) + more


_SENTENCES = {
    Finding.NOTHING: _nothing,
    Finding.NOTHING_IN_COMMON: _nothing_in_common,
    Finding.DATA: _data,
    Finding.INITIAL_WEIGHTS: _weights,
    Finding.BETWEEN_STEPS: _between,
    Finding.FORWARD: _diverges,
    Finding.BACKWARD: _diverges,
    Finding.UPDATE: _diverges,
    Finding.LOSSES: _losses,
    Finding.ANOTHER_RANK: _from_another_rank,
}
