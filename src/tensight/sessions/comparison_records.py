"""Records of a comparison of two runs, for the JSON output of the command and for the HTTP API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tensight.compare.runs.steps import NO_ROW
from tensight.compare.runs.words import difference_text, notes, sentence
from tensight.graph.steps import step_of
from tensight.sessions.offline.index import address_of
from tensight.sessions.records import (
    ComparedLosses,
    ComparedOperator,
    ComparedSetups,
    ComparedSlot,
    ComparedTensorRecord,
    LossPoint,
    Proof,
    RankComparison,
    RankComparisonDetail,
    SetupDifferenceRecord,
    TensorDifferenceRecord,
    UnmatchedCounts,
)
from tensight.sessions.sources import user_line

if TYPE_CHECKING:
    from tensight.analysis import Analysis
    from tensight.compare.losses import LossComparison
    from tensight.compare.runs import Compared, RunComparison, TensorDifference
    from tensight.compare.runs.result import ComparedTensor
    from tensight.compare.runs.steps import Slot
    from tensight.compare.setups import SetupComparison

MOST_TENSORS = 100
"""Differing weights or inputs in the summary of a rank."""

MOST_STEPS = 1000
"""Steps listed in the summary of a rank."""


class ComparisonRecords:
    """Creates records of a comparison.

    Parameters
    ----------
    a, b : Analysis
    """

    def __init__(self, a: Analysis, b: Analysis) -> None:
        self._files = a.statistics_table.files, b.statistics_table.files

    def rank(self, result: RunComparison) -> RankComparison:
        """Return the summary of a rank."""
        return RankComparison(**self._rank(result, MOST_TENSORS, MOST_STEPS))

    def rank_detail(self, result: RunComparison) -> RankComparisonDetail:
        """Return the comparison of a rank, with all operators of the last compared step."""
        matching = result.matching
        return RankComparisonDetail(
            **self._rank(result, None, None),
            only_a=tuple(op.name for op in matching.only_a),
            only_b=tuple(op.name for op in matching.only_b),
            parameters_only_a=tuple(matching.parameters_only_a),
            parameters_only_b=tuple(matching.parameters_only_b),
            compared=tuple(self.operators(result)) if result.steps else (),
        )

    def operators(self, result: RunComparison) -> list[ComparedOperator]:
        """Return the operators of the last compared step, in execution order."""
        last = result.steps[-1]
        return [self.operator(compared, step_of(last.iteration)) for compared in last.compared]

    def operator(self, compared: Compared, step: int) -> ComparedOperator:
        """Return the record of a pair of operators."""
        worst = compared.worst
        return ComparedOperator(
            name=compared.pair.a.name,
            name_b=compared.pair.b.name,
            type=compared.pair.a.type,
            type_b=compared.pair.b.type,
            step=step,
            position=compared.pair.a.position + 1,
            phase=compared.pair.a.phase.value,
            rule=compared.pair.rule.value,
            text="" if worst is None else difference_text(worst[1]),
            relative=None if worst is None else worst[1].relative,
            added=None if worst is None or not worst[1].is_comparable else compared.added,
            allowed=compared.allowed,
            is_divergent=compared.is_divergent,
            source=user_line(compared.pair.a.node),
            inputs=tuple(self._slot(slot, difference) for slot, difference in compared.inputs),
            outputs=tuple(self._slot(slot, difference) for slot, difference in compared.outputs),
            through=tuple(op.name for op in compared.through),
        )

    def tensor(self, tensor: ComparedTensor) -> ComparedTensorRecord:
        """Return the record of a weight or a network input."""
        address, address_b = (None, None) if tensor.difference is None else self._addresses(tensor.difference)
        return ComparedTensorRecord(
            name=tensor.name_a,
            name_b=tensor.name_b,
            rule=tensor.rule.value,
            agrees=tensor.agrees,
            address=address,
            address_b=address_b,
            difference=None if tensor.difference is None else difference_record(tensor.difference),
        )

    def _rank(self, result: RunComparison, tensors: int | None, steps: int | None) -> dict[str, Any]:
        matching, compared = result.matching, [step_of(step.iteration) for step in result.steps]
        first_bit = None
        if result.first_bit is not None and result.first_bit_step is not None:
            first_bit = self.operator(result.first_bit, result.first_bit_step)
        first = None
        if result.first is not None and result.step is not None:
            first = self.operator(result.first, result.step)
        return {
            "rank": result.rank,
            "verdict": result.verdict.value,
            "finding": result.finding.value,
            "sentence": sentence(result),
            "notes": tuple(notes(result)),
            "step": result.step,
            "first": first,
            "first_bit": first_bit,
            "first_bit_step": result.first_bit_step,
            "differing": len(result.tensors),
            "tensors": tuple(map(self.tensor, result.tensors[:tensors])),
            "proof": Proof(
                inputs=len(result.data),
                inputs_that_agree=sum(tensor.agrees for tensor in result.data),
                weights=len(result.weights),
                weights_that_agree=sum(tensor.agrees for tensor in result.weights),
            ),
            "matched": {rule.value: amount for rule, amount in matching.rules.items()},
            "unmatched": UnmatchedCounts(
                operators=len(matching.only_a),
                operators_b=len(matching.only_b),
                parameters=len(matching.parameters_only_a),
                parameters_b=len(matching.parameters_only_b),
                steps=len(result.only_steps_a),
                steps_b=len(result.only_steps_b),
            ),
            "steps": tuple(compared if steps is None else compared[-steps:]),
            "steps_only_a": result.only_steps_a[:steps],
            "steps_only_b": result.only_steps_b[:steps],
            "from_rank": result.from_rank,
        }

    def _slot(self, slot: Slot, difference: TensorDifference) -> ComparedSlot:
        address, address_b = self._addresses(difference)
        return ComparedSlot(
            name=slot.name, slot=slot.index, address=address, address_b=address_b, **_difference_fields(difference)
        )

    def _addresses(self, difference: TensorDifference) -> tuple[str | None, str | None]:
        address_a, address_b = (
            None if row == NO_ROW else str(address_of(files[row]))
            for files, row in zip(self._files, difference.rows, strict=True)
        )
        return address_a, address_b


def difference_record(difference: TensorDifference) -> TensorDifferenceRecord:
    """Return the record of a difference of two tensors."""
    return TensorDifferenceRecord(**_difference_fields(difference))


def _difference_fields(difference: TensorDifference) -> dict[str, Any]:
    return {
        "text": difference_text(difference),
        "is_comparable": difference.is_comparable,
        "bit_equal": difference.is_bit_equal,
        "from_values": difference.from_values,
        "relative": difference.relative,
        "absolute": difference.absolute,
        "max_absolute": difference.max_absolute,
        "max_relative": difference.max_relative,
        "max_ulps": difference.max_ulps,
        "cosine": difference.cosine,
        "norm_ratio": difference.norm_ratio,
        "over_1_permille": difference.over_1,
        "over_5_permille": difference.over_5,
        "shapes": difference.shapes,
        "dtypes": difference.dtypes,
        "layout": difference.layout,
    }


def loss_record(comparison: LossComparison, points: int) -> ComparedLosses:
    """Return the record of a comparison of two loss curves, with at most `points` steps, evenly spaced."""
    data = comparison.as_data(points)
    chosen: Any = data.pop("points")
    return ComparedLosses.model_validate({**data, "points": tuple(LossPoint(**point) for point in chosen)})


def setup_record(comparison: SetupComparison) -> ComparedSetups:
    """Return the record of a comparison of two set-ups."""
    data = comparison.as_data()
    differences: Any = data.pop("differences")
    return ComparedSetups.model_validate(
        {**data, "differences": tuple(SetupDifferenceRecord(**difference) for difference in differences)}
    )
