"""The result of a comparison of two runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from tensight.compare.runs.matching import Matching
from tensight.compare.verdict import Verdict

if TYPE_CHECKING:
    from tensight.compare.runs.divergence import Compared, StepComparison
    from tensight.compare.runs.matching import Rule
    from tensight.compare.runs.measures import TensorDifference


class Finding(Enum):
    """How a comparison of two runs ended."""

    NOTHING = "nothing"
    NOTHING_IN_COMMON = "nothing in common"
    DATA = "data"
    INITIAL_WEIGHTS = "initial weights"
    BETWEEN_STEPS = "weights between steps"
    FORWARD = "forward"
    BACKWARD = "backward"
    UPDATE = "update"
    LOSSES = "losses"
    ANOTHER_RANK = "another rank"


@dataclass(frozen=True, slots=True)
class ComparedTensor:
    """A parameter or an input of the network in both runs.

    Attributes
    ----------
    name_a, name_b : str
    rule : Rule
    difference : TensorDifference or None
        None if nothing is known about one of them.
    agrees : bool
        Whether the two are equal up to rounding to the narrower element type.
    changed_in : tuple of str
        If that is the finding, the runs, ``A`` and ``B``, that changed it between the updates of two steps, or the run
        in which alone an update reads a gradient of it.
    """

    name_a: str
    name_b: str
    rule: Rule
    difference: TensorDifference | None
    agrees: bool
    changed_in: tuple[str, ...] = ()


@dataclass(slots=True)
class RunComparison:
    """The result of comparing one rank of two runs.

    Attributes
    ----------
    rank : int
    verdict : Verdict
    finding : Finding
    step : int or None
        Step of the finding, counted from 1.
    first : Compared or None
        The first operator whose inputs agree and whose output does not.
    tensors : list of ComparedTensor
        The weights or inputs that differ, if these are the finding.
    weights, data : list of ComparedTensor
        The proof of alignment: weights before the first step and the inputs of the network in it.
    steps : list of StepComparison
        The steps that were compared; none after the finding.
    matching : Matching
        Matching of the last step that was compared.
    first_bit : Compared or None
        The first operator whose inputs are bit-equal and whose output is not, even if rounding explains it.
    first_bit_step : int or None
        Step of this operator, counted from 1.
    parts : tuple of (int, int) or None
        Number of parts into which A and B split each batch, if these differ.
    precisions : tuple of (str, str) or None
        Element types of most matrix products of A and of B, if these differ.
    only_steps_a, only_steps_b : tuple of int
        Steps that the other run does not have.
    from_rank : int or None
        Rank that differs before this one and contributes to the first operator that differs on this one.
    unknown : tuple of (str, str)
        Run, and name in the user's mapping that the run does not have.
    largest_loss : float
        The largest loss so far in either run.
    """

    rank: int
    verdict: Verdict = Verdict.SAME
    finding: Finding = Finding.NOTHING
    step: int | None = None
    first: Compared | None = None
    tensors: list[ComparedTensor] = field(default_factory=list)
    weights: list[ComparedTensor] = field(default_factory=list)
    data: list[ComparedTensor] = field(default_factory=list)
    steps: list[StepComparison] = field(default_factory=list)
    matching: Matching = field(default_factory=Matching)
    first_bit: Compared | None = None
    first_bit_step: int | None = None
    parts: tuple[int, int] | None = None
    precisions: tuple[str, str] | None = None
    only_steps_a: tuple[int, ...] = ()
    only_steps_b: tuple[int, ...] = ()
    from_rank: int | None = None
    unknown: tuple[tuple[str, str], ...] = ()
    largest_loss: float = 0.0

    @property
    def is_bit_equal(self) -> bool:
        """Whether the runs are the same, and no compared output is known to differ in a bit."""
        return self.verdict is Verdict.SAME and not any(
            compared.differs_in_bits for step in self.steps for compared in step.compared
        )
