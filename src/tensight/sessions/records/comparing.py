"""Two runs that are compared: what is asked, how far it is, and what was found.

Of a pair, fields without a suffix are those of run A, the reference; those of run B end in ``_b``.
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
    """What a comparison is doing."""

    WAITING = "waiting"
    """Another comparison is made first."""
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    """`message` says why."""
    CLOSED = "closed"
    """It was cancelled, or forgotten; only events say so."""

    @property
    def is_unfinished(self) -> bool:
        """Whether there will be more to know."""
        return self in (ComparisonState.WAITING, ComparisonState.RUNNING)


class ComparisonOptions(Record):
    """What is compared of two runs, and what counts as equal."""

    ranks: tuple[int, ...] | None = Field(default=None, max_length=1000)
    """By default those that both have."""
    steps: tuple[int, ...] | None = Field(default=None, max_length=10_000)
    """From 1; by default those that both have."""
    rtol: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """Relative difference of a tensor that counts as equal; by default derived from element types and inputs."""
    atol: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """Norm of a difference that always counts as equal."""
    exact: bool = False
    """A difference of one bit is a finding."""
    tolerances: dict[str, Annotated[float, Field(ge=0, allow_inf_nan=False)]] = Field(
        default_factory=dict, max_length=1000
    )
    """`rtol` of some operators, by name; ``*`` and ``?`` are allowed."""
    mapping: dict[str, str] = Field(default_factory=dict, max_length=10_000)
    """Names or scopes of A, and what they are called in B."""


class ComparedRun(Record):
    """One side of a comparison."""

    dump: str
    """Its `name` in the list of dumps."""
    title: str
    """What a person calls it."""
    session: str | None = None
    """Id of the session that has it open now."""
    framework: str = ""
    live: bool = False
    """A training that was paused when the comparison began."""
    step: int | None = None
    """The step at which that training stood."""
    note: str = ""
    """What a person must know about this side, a sentence; empty if nothing."""


class TensorDifferenceRecord(Record):
    """How far two tensors are apart."""

    text: str
    """In a few words."""
    is_comparable: bool
    """Whether the shapes fit, in any layout."""
    bit_equal: bool
    from_values: bool
    """Whether the elements were compared; else the numbers are lower bounds, from statistics."""
    relative: Number = None
    """Norm of the difference over the larger norm; null where only one of the two has NaN or infinite elements."""
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
    """Share of elements whose relative difference is above 1 ‰."""
    over_5_permille: Number = None
    shapes: tuple[tuple[int, ...], tuple[int, ...]]
    dtypes: tuple[str, str]
    layout: str = ""
    """How the axes of B were ordered to fit A: ``NHWC``, ``transposed``, ``axes 0,2,1``, ``reshaped``; else empty."""


class ComparedSlot(TensorDifferenceRecord):
    """A tensor that a pair of operators read or wrote."""

    name: str
    """Of the node that made it."""
    slot: int
    address: str | None = None
    """In A; null if nothing was recorded."""
    address_b: str | None = None


class ComparedTensorRecord(Record):
    """A weight or an input of the network in both runs."""

    name: str
    name_b: str
    rule: str
    agrees: bool
    """Equal up to rounding to the narrower element type."""
    address: str | None = None
    address_b: str | None = None
    difference: TensorDifferenceRecord | None = None
    """Null if nothing is known of one of them."""


class ComparedOperator(Record):
    """A pair of operators that was compared."""

    name: str
    name_b: str
    type: str
    type_b: str
    step: int
    position: int
    """Place in the order of execution of A's step, from 1."""
    phase: ComparedPhase
    rule: str
    """Which rule matched them."""
    text: str = ""
    """How far the worst output is apart, in a few words; empty if nothing is known."""
    relative: Number = None
    """Of the worst output."""
    added: Number = None
    """By how much the error of the worst output exceeds that of the worst input."""
    allowed: Number = None
    """Error that rounding and the errors of the inputs explain."""
    is_divergent: bool = False
    """The inputs agree, or explain less than there is."""
    source: Frame | None = None
    """The line of code in A."""
    inputs: tuple[ComparedSlot, ...] = ()
    outputs: tuple[ComparedSlot, ...] = ()
    """The worst first."""
    through: tuple[str, ...] = ()
    """Operators without a counterpart between the inputs and this pair."""


class Proof(Record):
    """How many tensors agree before the first step."""

    inputs: int
    inputs_that_agree: int
    weights: int
    weights_that_agree: int


class UnmatchedCounts(Record):
    """How much has no counterpart in the other run."""

    operators: int = 0
    operators_b: int = 0
    parameters: int = 0
    parameters_b: int = 0
    steps: int = 0
    steps_b: int = 0


class RankComparison(Record):
    """What was found in one rank."""

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
        "another rank",
    ]
    sentence: str
    notes: tuple[str, ...] = ()
    """What else a person must know to read the verdict, a sentence each."""
    step: int | None = None
    """In which the finding is."""
    first: ComparedOperator | None = None
    """The first operator whose inputs agree and whose output does not."""
    first_bit: ComparedOperator | None = None
    """The first whose inputs are bit-equal and whose output is not, wherever rounding may explain it."""
    first_bit_step: int | None = None
    differing: int = 0
    """How many weights or inputs differ, where these are the finding."""
    tensors: tuple[ComparedTensorRecord, ...] = ()
    """The first of these."""
    proof: Proof
    matched: dict[str, int] = Field(default_factory=dict)
    """Pairs of operators of the last step that was compared, by the rule that matched them."""
    unmatched: UnmatchedCounts = UnmatchedCounts()
    steps: tuple[int, ...] = ()
    """Those that were compared, the last ones of many; none after the finding."""
    steps_only_a: tuple[int, ...] = ()
    """Steps that the other run does not have, the first ones of many."""
    steps_only_b: tuple[int, ...] = ()
    from_rank: int | None = None
    """The rank that differs before this one, and contributes to the first operator that differs on this one."""


class RankComparisonDetail(RankComparison):
    """What was found in one rank, with all that was compared in its last step."""

    only_a: tuple[str, ...] = ()
    """Operators that matched nothing."""
    only_b: tuple[str, ...] = ()
    parameters_only_a: tuple[str, ...] = ()
    parameters_only_b: tuple[str, ...] = ()
    compared: tuple[ComparedOperator, ...] = ()


class ComparisonRecord(Record):
    """A comparison of two runs at a glance."""

    id: str
    created: float
    a: ComparedRun
    """The reference."""
    b: ComparedRun
    """The run that is compared with it."""
    options: ComparisonOptions = ComparisonOptions()
    state: ComparisonState
    message: str = ""
    """Why it failed."""
    what: str = ""
    """What is being done."""
    done: int = 0
    """How much of that."""
    total: int = 0
    """How much there is; 0 if that is not known."""
    verdict: ComparisonVerdict | None = None
    """The worst of all ranks; null until it is done."""
    sentence: str = ""
    """The verdict on that rank."""
    ranks: tuple[RankComparison, ...] = ()


class ComparedOperatorPage(Record):
    """Pairs of operators."""

    total: int
    offset: int = 0
    first: int | None = None
    """Where among all of these the first divergence is, counted from 0; null if it is not one of them."""
    rows: tuple[ComparedOperator, ...]


class UnmatchedRow(Record):
    """An operator or a parameter that only one run has."""

    name: str
    kind: Literal["operator", "parameter"]
    type: str = ""
    """Of the operator."""
    phase: ComparedPhase | None = None


class UnmatchedPage(Record):
    """What only one run has."""

    total: int
    offset: int = 0
    rows: tuple[UnmatchedRow, ...]


class AddedError(Record):
    """By how much a scope, an operator or a parameter differs."""

    path: str
    """As the tree names it."""
    kind: Literal["scope", "operator", "parameter", "parameters"]
    """``parameters`` is the group that holds them at the root."""
    added: Number = None
    """Added error; of a scope the largest anywhere below. Null if nothing is known."""
    relative: Number = None
    """Relative difference, accumulated; of a scope the largest."""
    non_finite: bool = False
    """Only one run has NaN or infinite elements, at or below: more than any number says."""
    divergent: int = 0
    """Operators whose inputs agree and whose outputs do not."""
    compared: int = 0
    unmatched: int = 0
    """Operators without a counterpart."""


class ScopeErrors(Record):
    """What is directly below a scope."""

    scope: str
    total: int
    """How many there are."""
    entries: tuple[AddedError, ...]
    """Of very many those of the largest added errors."""


class AddedErrors(Record):
    """By how much parts of a graph differ in one step."""

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
    """How the axes of B were ordered to fit A."""
    a: Statistics
    b: Statistics
    difference: Statistics | None = None
    """Of B minus A; null if one of them has no values."""
    measures: TensorDifferenceRecord | None = None
    """Null for two tensors that the comparison did not compare."""


class LossPoint(Record):
    """The losses of one step."""

    step: int
    a: Number = None
    """Null for NaN and infinities."""
    b: Number = None
    relative_difference: Number = None
    """At least; null where one of them is NaN or infinite and the other is not."""
    allowed_difference: Number = None
    is_outside: bool = False


class ComparedLosses(Record):
    """Two loss curves, and what their difference points to."""

    verdict: ComparisonVerdict
    divergence: str
    """Where they part: a word for programs."""
    sentence: str
    meaning: str = ""
    departs_at: int | None = None
    """Step from which on a difference stands out of the rounding before it."""
    leaves_at: int | None = None
    """First step outside the tolerance."""
    unit: str = "step"
    compared: int = 0
    """Steps that both have."""
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
    """Something that is not the same around two trainings."""

    importance: Literal["results", "rounding", "rest"]
    """Whether it can change results, only rounding, or by itself nothing."""
    part: str
    what: str
    a: str = ""
    b: str = ""


class ComparedSetups(Record):
    """What differs around two trainings."""

    verdict: ComparisonVerdict
    sentence: str
    differences: tuple[SetupDifferenceRecord, ...] = ()
    equal: tuple[str, ...] = ()
    """Parts that both recorded and that do not differ."""
    not_recorded: tuple[str, ...] = ()
