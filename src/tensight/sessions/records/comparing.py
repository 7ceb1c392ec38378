"""Comparisons of two runs: options, progress and results.

In records of a pair, fields without a suffix belong to run A, the reference; fields of run B end in ``_b``.
"""

from __future__ import annotations

from enum import Enum
from typing import Annotated, Literal

from pydantic import Field

from tensight.sessions.records.base import Number, Record
from tensight.sessions.records.graphs import Frame
from tensight.sessions.records.tensors import Statistics

ComparisonVerdict = Literal["same", "different", "not comparable"]
ComparedPhase = Literal["forward", "backward", "update"]
Side = Literal["a", "b"]


class ComparisonState(str, Enum):
    """State of a comparison."""

    WAITING = "waiting"
    """Waits for another comparison."""
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    """`message` contains the reason."""
    CLOSED = "closed"
    """It was cancelled or discarded; occurs in events only."""

    @property
    def is_unfinished(self) -> bool:
        """Whether the comparison waits or runs."""
        return self in (ComparisonState.WAITING, ComparisonState.RUNNING)


class ComparisonOptions(Record):
    """Which parts of two runs to compare, and what counts as equal."""

    ranks: tuple[int, ...] | None = Field(default=None, max_length=1000)
    """By default the ranks that both have."""
    steps: tuple[int, ...] | None = Field(default=None, max_length=10_000)
    """From 1; by default the steps that both have."""
    rtol: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """Relative difference of a tensor that counts as equal; by default derived from element types and inputs."""
    atol: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """Norm of a difference that always counts as equal."""
    exact: bool = False
    """Whether a difference of a single bit is a finding."""
    tolerances: dict[str, Annotated[float, Field(ge=0, allow_inf_nan=False)]] = Field(
        default_factory=dict, max_length=1000
    )
    """`rtol` of operators, by name; ``*`` and ``?`` are wildcards."""
    mapping: dict[str, str] = Field(default_factory=dict, max_length=10_000)
    """Maps names or scopes of A to those of B."""


class ComparedRun(Record):
    """One side of a comparison."""

    dump: str
    """Its `name` in the list of dumps."""
    title: str
    """Display name."""
    session: str | None = None
    """Id of the session that has it open."""
    framework: str = ""
    live: bool = False
    """Whether it is a training that was paused when the comparison began."""
    step: int | None = None
    """The step at which that training was stopped."""
    note: str = ""
    """A note for users about this side; may be empty."""


class TensorDifferenceRecord(Record):
    """Difference of two tensors."""

    text: str
    """The difference in a few words."""
    is_comparable: bool
    """Whether the shapes match, in any layout."""
    bit_equal: bool
    from_values: bool
    """Whether the elements were compared; otherwise the numbers are lower bounds, from statistics."""
    relative: Number = None
    """Norm of the difference over the larger norm; null if only one of the two has NaN or infinite elements."""
    absolute: Number = None
    """Norm of the difference."""
    max_absolute: Number = None
    max_relative: Number = None
    max_ulps: Number = None
    """Largest difference of an element in units in the last place of the narrower element type."""
    cosine: Number = None
    norm_ratio: Number = None
    """Norm of B over norm of A."""
    over_1_permille: Number = None
    """Fraction of elements whose relative difference is above 1 ‰."""
    over_5_permille: Number = None
    shapes: tuple[tuple[int, ...], tuple[int, ...]]
    dtypes: tuple[str, str]
    layout: str = ""
    """How B was rearranged to match A: ``NHWC``, ``transposed``, ``axes 0,2,1``, ``reshaped``; otherwise empty."""


class ComparedSlot(TensorDifferenceRecord):
    """An input or output of a pair of operators."""

    name: str
    """Name of the node that produced it."""
    slot: int
    address: str | None = None
    """Address in A; null if it was not recorded."""
    address_b: str | None = None


class ComparedTensorRecord(Record):
    """A weight or a network input in both runs."""

    name: str
    name_b: str
    rule: str
    agrees: bool
    """Equal up to rounding to the narrower element type."""
    address: str | None = None
    address_b: str | None = None
    difference: TensorDifferenceRecord | None = None
    """Null if one of them is unknown."""


class ComparedOperator(Record):
    """A compared pair of operators."""

    name: str
    name_b: str
    type: str
    type_b: str
    step: int
    position: int
    """Position in the execution order of A's step, from 1."""
    phase: ComparedPhase
    rule: str
    """The rule that matched them."""
    text: str = ""
    """The difference of the worst output in a few words; empty if unknown."""
    relative: Number = None
    """Relative difference of the worst output."""
    added: Number = None
    """Excess of the error of the worst output over that of the worst input."""
    allowed: Number = None
    """Error that rounding and the errors of the inputs explain."""
    is_divergent: bool = False
    """Whether the inputs agree, or do not explain the error."""
    source: Frame | None = None
    """The line of code in A."""
    inputs: tuple[ComparedSlot, ...] = ()
    outputs: tuple[ComparedSlot, ...] = ()
    """Sorted, the worst first."""
    through: tuple[str, ...] = ()
    """Operators without a counterpart between the inputs and this pair."""


class Proof(Record):
    """Numbers of tensors that agree before the first step."""

    inputs: int
    inputs_that_agree: int
    weights: int
    weights_that_agree: int


class UnmatchedCounts(Record):
    """Numbers of operators, parameters and steps without a counterpart in the other run."""

    operators: int = 0
    operators_b: int = 0
    parameters: int = 0
    parameters_b: int = 0
    steps: int = 0
    steps_b: int = 0


class RankComparison(Record):
    """The comparison of a rank."""

    rank: int
    verdict: ComparisonVerdict
    finding: Literal[
        "nothing",
        "nothing in common",
        "data",
        "initial weights",
        "weights between steps",
        "forward",
        "backward",
        "update",
        "losses",
        "another rank",
    ]
    sentence: str
    notes: tuple[str, ...] = ()
    """Notes for users that help to interpret the verdict."""
    step: int | None = None
    """The step with the finding."""
    first: ComparedOperator | None = None
    """The first operator whose inputs agree and whose output does not."""
    first_bit: ComparedOperator | None = None
    """The first operator whose inputs are bit-equal and whose output is not, even if rounding explains it."""
    first_bit_step: int | None = None
    differing: int = 0
    """Number of differing weights or inputs, if these are the finding."""
    tensors: tuple[ComparedTensorRecord, ...] = ()
    """The first of these."""
    proof: Proof
    matched: dict[str, int] = Field(default_factory=dict)
    """Numbers of matched pairs of operators in the last compared step, by rule."""
    unmatched: UnmatchedCounts = UnmatchedCounts()
    steps: tuple[int, ...] = ()
    """Compared steps, in a summary at most the last 1,000; no step after the finding is compared."""
    steps_only_a: tuple[int, ...] = ()
    """Steps that B does not have, in a summary at most the first 1,000."""
    steps_only_b: tuple[int, ...] = ()
    from_rank: int | None = None
    """The rank that differs before this one, and contributes to the first operator that differs on this one."""


class RankComparisonDetail(RankComparison):
    """The comparison of a rank, with everything that was compared in its last step."""

    only_a: tuple[str, ...] = ()
    """Operators without a counterpart."""
    only_b: tuple[str, ...] = ()
    parameters_only_a: tuple[str, ...] = ()
    parameters_only_b: tuple[str, ...] = ()
    compared: tuple[ComparedOperator, ...] = ()


class ComparisonRecord(Record):
    """Summary of a comparison of two runs."""

    id: str
    created: float
    a: ComparedRun
    """The reference."""
    b: ComparedRun
    """The run to compare with it."""
    options: ComparisonOptions = ComparisonOptions()
    state: ComparisonState
    message: str = ""
    """Reason of a failure."""
    what: str = ""
    """Description of the current work."""
    done: int = 0
    """Amount of it that is done."""
    total: int = 0
    """Total amount; 0 if unknown."""
    verdict: ComparisonVerdict | None = None
    """The worst of all ranks; null until the comparison is done."""
    sentence: str = ""
    """The verdict on that rank as a sentence."""
    ranks: tuple[RankComparison, ...] = ()


class ComparedOperatorPage(Record):
    """Pairs of operators."""

    total: int
    offset: int = 0
    first: int | None = None
    """Index of the first divergence among all selected pairs, from 0; null if it is not among them."""
    rows: tuple[ComparedOperator, ...]


class UnmatchedRow(Record):
    """An operator or a parameter that only one run has."""

    name: str
    kind: Literal["operator", "parameter"]
    type: str = ""
    """Type of the operator."""
    phase: ComparedPhase | None = None


class UnmatchedPage(Record):
    """Operators and parameters that only one run has."""

    total: int
    offset: int = 0
    rows: tuple[UnmatchedRow, ...]


class AddedError(Record):
    """Error of a scope, an operator or a parameter."""

    path: str
    """Path in the tree."""
    kind: Literal["scope", "operator", "parameter", "parameters"]
    """``parameters`` is the group of the parameters at the root."""
    added: Number = None
    """Added error; for a scope, the largest below it. Null if unknown."""
    relative: Number = None
    """Relative difference, accumulated; for a scope, the largest below it."""
    non_finite: bool = False
    """Whether only one run has NaN or infinite elements, at or below: an error beyond any number."""
    divergent: int = 0
    """Number of operators whose inputs agree and whose outputs do not."""
    compared: int = 0
    unmatched: int = 0
    """Number of operators without a counterpart."""


class ScopeErrors(Record):
    """Errors directly below a scope."""

    scope: str
    total: int
    """Number of all entries."""
    entries: tuple[AddedError, ...]
    """At most 5,000, those with the largest added errors."""


class AddedErrors(Record):
    """Errors of parts of a graph in a step."""

    rank: int
    step: int
    largest: Number = None
    """Largest added error of an operator in the step."""
    scopes: tuple[ScopeErrors, ...]


class ComparedStatistics(Record):
    """Statistics of two tensors and of their difference."""

    address: str
    address_b: str
    layout: str = ""
    """How B was rearranged to match A."""
    a: Statistics
    b: Statistics
    difference: Statistics | None = None
    """Statistics of B minus A; null if one of them has no values."""
    measures: TensorDifferenceRecord | None = None
    """Null if the comparison did not compare these two tensors."""


class LossPoint(Record):
    """The losses at a step."""

    step: int
    a: Number = None
    """Null for NaN and infinities."""
    b: Number = None
    relative_difference: Number = None
    """Lower bound; null if one of them is NaN or infinite and the other is not."""
    allowed_difference: Number = None
    is_outside: bool = False


class ComparedLosses(Record):
    """Comparison of two loss curves, and the likely cause of their difference."""

    verdict: ComparisonVerdict
    divergence: str
    """Kind of divergence, as an identifier."""
    sentence: str
    meaning: str = ""
    departs_at: int | None = None
    """First step at which the difference exceeds the earlier rounding differences."""
    leaves_at: int | None = None
    """First step outside the tolerance."""
    unit: str = "step"
    compared: int = 0
    """Number of steps that both have."""
    only_a: int = 0
    only_b: int = 0
    equal: int = 0
    both_nan: int = 0
    outside: int = 0
    largest_relative_difference: Number = None
    tolerance: str = ""
    notes: tuple[str, ...] = ()
    points: tuple[LossPoint, ...] = ()


class SetupDifferenceRecord(Record):
    """A difference between the set-ups of two trainings."""

    importance: Literal["results", "rounding", "rest"]
    """Whether it can change results, only rounding, or neither."""
    part: str
    what: str
    a: str = ""
    b: str = ""


class ComparedSetups(Record):
    """Comparison of the set-ups of two trainings."""

    verdict: ComparisonVerdict
    sentence: str
    differences: tuple[SetupDifferenceRecord, ...] = ()
    equal: tuple[str, ...] = ()
    """Parts that both recorded and that are equal."""
    not_recorded: tuple[str, ...] = ()
