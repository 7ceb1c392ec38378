"""Where anomalies began, as it is handed to whoever asks."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tensight.analysis.anomalies import Anomaly, InputState
from tensight.graph import SourceFrame, TensorAddress, user_frame
from tensight.graph.node import PARAMETER
from tensight.graph.steps import step_of


@dataclass(frozen=True, slots=True)
class OriginInput:
    """One input of the operator where an anomaly began.

    Attributes
    ----------
    index : int
        Position among the operator's inputs.
    source : str
        Name of the node that produced it.
    state : InputState
        Whether it shows the anomaly.
    row : int
        Row of the statistics table that was looked at, -1 when none was dumped.
    """

    index: int
    source: str
    state: InputState
    row: int


@dataclass(frozen=True, slots=True)
class Origin:
    """Where an anomaly began on one rank.

    Attributes
    ----------
    anomaly : Anomaly
        What began.
    address : TensorAddress
        The first output that shows it; of an optimizer's operator without outputs the parameter that it wrote to.
    operator : str
        Name of the operator; of what came from outside the step that of the parameter.
    op_type : str
        Type of the operator; "Parameter" when the anomaly came from outside the step.
    frames : tuple of SourceFrame
        The operator's stack, innermost frame first as MindSpore wrote it.
    inputs : tuple of OriginInput
        The operator's inputs.
    row : int
        Row of the first output in the statistics table.
    position : int
        Position of the output in the order of execution.
    candidates : tuple of str
        Empty when the origin is certain. Else the nodes where it may have begun: this one, and producers whose
        values were not dumped, or of which too little was recorded to tell.
    arrived : bool
        True when the node only carries the anomaly in: a network input, a weight from the previous step, or what
        another rank sent.
    also : tuple of str
        Other nodes where the same anomaly began independently in the same iteration, in execution order: what went into
        them is known.
    from_rank : int or None
        The rank that sent it.
    changed : bool
        True when the anomaly came in with a parameter that is another than the last update left: somebody has written
        to it since, and no optimizer.
    unseen : tuple of (int, int) or None
        First and last of the iterations that ran directly before, and of which nothing is known: it may have begun in
        them, as in a ring of the last steps that begins after the fault. None if there is no such iteration.
    may_read_unseen : bool
        True when the operator may read tensors that nobody sees, such as the targets of a loss.
    leads : bool or None
        Whether NaN or Inf, or what a watchpoint hit on, was computed from it; None where that cannot be said.
    """

    anomaly: Anomaly
    address: TensorAddress
    operator: str
    op_type: str
    frames: tuple[SourceFrame, ...]
    inputs: tuple[OriginInput, ...]
    row: int
    position: int
    candidates: tuple[str, ...]
    arrived: bool
    also: tuple[str, ...]
    from_rank: int | None = None
    changed: bool = False
    unseen: tuple[int, int] | None = None
    may_read_unseen: bool = False
    leads: bool | None = None

    @property
    def certain(self) -> bool:
        """Whether what is known of all inputs rules out that they show the anomaly."""
        return not self.candidates and not self.may_read_unseen

    @property
    def user_frame(self) -> SourceFrame | None:
        """The frame most likely to be the person's own code."""
        return user_frame(self.frames)

    @property
    def is_older(self) -> bool:
        """Whether it is known to have been there before the step: it came in with what the network keeps, unseen."""
        is_kept = self.op_type == PARAMETER and "." in self.operator
        return self.unseen is not None and self.arrived and is_kept and not self.changed

    @property
    def sentence(self) -> str:
        """The finding in one sentence."""
        return self._finding + self._reservation

    @property
    def _reservation(self) -> str:
        """What the steps before leave open."""
        if self.unseen is None:
            return ""
        first, last = map(step_of, self.unseen)
        if first == 1:
            was = "was" if self.is_older else "may have been"
            return f"; step {self.address.step} is the first that was seen, so it {was} there before"
        steps = f"step {first} was" if first == last else f"steps {first} to {last} were"
        return f"; {steps} not seen, so it may have begun before"

    @property
    def _finding(self) -> str:
        where = f"step {self.address.step} in {self.operator}"
        if self.from_rank is not None:
            return f"{self.anomaly.words} came from rank {self.from_rank} at {where}"
        if self.changed:
            since = "since the last update" if self.address.iteration else "since the debugger first saw it"
            return f"{self.anomaly.words} came in at {where}, which was changed {since}, outside of the optimizer"
        frame = self.user_frame
        file = "" if frame is None else re.split(r"[/\\]", frame.file)[-1]
        if self.arrived:
            where += ", which nothing that was seen of this step computed"
            if frame is not None:
                lines = f"lines {frame.line} to {frame.end_line}" if frame.is_range else f"line {frame.line}"
                where += f"; it is read by {lines} of {file}"
            return f"{self.anomaly.words} came in at {where}"
        if frame is not None and frame.is_range:
            where += f", between lines {frame.line} and {frame.end_line} of {file}"
        if self.certain:
            began = "began" if self.unseen is None else "was first seen"
            return f"{self.anomaly.words} {began} at {where} ({self.anomaly.absent} went in)"
        if not self.candidates:
            unless = "unless it went in with targets or other tensors without gradients"
            return f"{self.anomaly.words} began at {where}, {unless}"
        if any(entry.state is InputState.NOT_DUMPED for entry in self.inputs):
            return f"{self.anomaly.words} was first seen at {where}; not all of its inputs are known"
        return f"{self.anomaly.words} was first seen at {where}; what was recorded of its inputs leaves it open"
