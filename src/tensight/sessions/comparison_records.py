"""A comparison of two runs as records: what the command prints as JSON, and what the HTTP API answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

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
from tensight.sessions.records.comparing import ComparisonVerdict
from tensight.sessions.sources import user_line

if TYPE_CHECKING:
    from tensight.analysis import Analysis
    from tensight.compare.losses import LossComparison
    from tensight.compare.runs import Compared, RunComparison, TensorDifference
    from tensight.compare.runs.result import ComparedTensor
    from tensight.compare.runs.steps import Slot
    from tensight.compare.setups import SetupComparison

MOST_TENSORS = 100
"""Weights or inputs that differ, of a rank at a glance."""

MOST_STEPS = 1000
"""Steps that are listed of a rank at a glance."""

_VERDICTS: tuple[ComparisonVerdict, ...] = get_args(ComparisonVerdict)


class ComparisonRecords:
    """Makes records of what was found in two runs.

    Parameters
    ----------
    a, b : Analysis
    """

    def __init__(self, a: Analysis, b: Analysis) -> None:
        self._files = a.known.files, b.known.files

    def rank(self, result: RunComparison) -> RankComparison:
        """Return what was found in a rank, at a glance."""
        return RankComparison(**self._rank(result, MOST_TENSORS, MOST_STEPS))

    def rank_detail(self, result: RunComparison) -> RankComparisonDetail:
        """Return what was found in a rank, with all operators of the last step that was compared."""
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
        """Return the operators of the last step that was compared, in order of execution."""
        last = result.steps[-1]
        return [self.operator(one, step_of(last.iteration)) for one in last.compared]

    def operator(self, one: Compared, step: int) -> ComparedOperator:
        """Return a pair of operators."""
        worst = one.worst
        return ComparedOperator(
            name=one.pair.a.name,
            name_b=one.pair.b.name,
            type=one.pair.a.type,
            type_b=one.pair.b.type,
            step=step,
            position=one.pair.a.position + 1,
            phase=one.pair.a.phase.value,
            rule=one.pair.rule.value,
            text="" if worst is None else difference_text(worst[1]),
            relative=None if worst is None else worst[1].relative,
            added=None if worst is None or not worst[1].is_comparable else one.added,
            allowed=one.allowed,
            is_divergent=one.is_divergent,
            source=user_line(one.pair.a.node),
            inputs=tuple(self._slot(slot, found) for slot, found in one.inputs),
            outputs=tuple(self._slot(slot, found) for slot, found in one.outputs),
            through=tuple(op.name for op in one.through),
        )

    def tensor(self, one: ComparedTensor) -> ComparedTensorRecord:
        """Return a weight or an input of the network."""
        address, address_b = (None, None) if one.difference is None else self._addresses(one.difference)
        return ComparedTensorRecord(
            name=one.name_a,
            name_b=one.name_b,
            rule=one.rule.value,
            agrees=one.agrees,
            address=address,
            address_b=address_b,
            difference=None if one.difference is None else difference_record(one.difference),
        )

    def _rank(self, result: RunComparison, tensors: int | None, steps: int | None) -> dict[str, Any]:
        matching, compared = result.matching, [step_of(one.iteration) for one in result.steps]
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
                inputs_that_agree=sum(one.agrees for one in result.data),
                weights=len(result.weights),
                weights_that_agree=sum(one.agrees for one in result.weights),
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

    def _slot(self, slot: Slot, found: TensorDifference) -> ComparedSlot:
        address, address_b = self._addresses(found)
        return ComparedSlot(
            name=slot.name, slot=slot.index, address=address, address_b=address_b, **_difference_fields(found)
        )

    def _addresses(self, found: TensorDifference) -> tuple[str | None, str | None]:
        one, other = (
            None if row == NO_ROW else str(address_of(files[row]))
            for files, row in zip(self._files, found.rows, strict=True)
        )
        return one, other


def difference_record(found: TensorDifference) -> TensorDifferenceRecord:
    """Return how far two tensors are apart."""
    return TensorDifferenceRecord(**_difference_fields(found))


def _difference_fields(found: TensorDifference) -> dict[str, Any]:
    return {
        "text": difference_text(found),
        "is_comparable": found.is_comparable,
        "bit_equal": found.is_bit_equal,
        "from_values": found.from_values,
        "relative": found.relative,
        "absolute": found.absolute,
        "max_absolute": found.max_absolute,
        "max_relative": found.max_relative,
        "max_ulps": found.max_ulps,
        "cosine": found.cosine,
        "norm_ratio": found.norm_ratio,
        "over_1_permille": found.over_1,
        "over_5_permille": found.over_5,
        "shapes": found.shapes,
        "dtypes": found.dtypes,
        "layout": found.layout,
    }


def loss_record(comparison: LossComparison, points: int) -> ComparedLosses:
    """Return a comparison of two loss curves, of many steps evenly chosen ones."""
    data = comparison.as_data(points)
    chosen: Any = data.pop("points")
    return ComparedLosses.model_validate({**data, "points": tuple(LossPoint(**point) for point in chosen)})


def setup_record(comparison: SetupComparison) -> ComparedSetups:
    """Return a comparison of two set-ups."""
    data = comparison.as_data()
    found: Any = data.pop("differences")
    return ComparedSetups.model_validate({**data, "differences": tuple(SetupDifferenceRecord(**one) for one in found)})
