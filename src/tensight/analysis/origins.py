"""Origins of anomalies, as returned to callers."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tensight.analysis.anomalies import Anomaly, InputState
from tensight.graph import SourceFrame, TensorAddress, user_frame
from tensight.graph.layer_node import FROM_COMPILED_CODE
from tensight.graph.node import PARAMETER
from tensight.graph.steps import step_of
from tensight.watchpoints.causes import Since  # noqa: TC001 - pydantic reads the annotations of what is stored


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
        Its row in the statistics table, -1 if it was not dumped.
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
        The kind of anomaly.
    address : TensorAddress
        The first output that shows it; for an optimizer's operator without outputs, the parameter that it wrote to.
    operator : str
        Name of the operator, or of the parameter if the anomaly came from outside the step.
    op_type : str
        Type of the operator; "Parameter" if the anomaly came from outside the step.
    frames : tuple of SourceFrame
        The operator's stack, innermost frame first.
    inputs : tuple of OriginInput
        The operator's inputs.
    row : int
        Row of the first output in the statistics table.
    position : int
        Position of the output in the order of execution.
    candidates : tuple of str
        Empty if the origin is certain. Otherwise the nodes where the anomaly may have begun: this one, and producers
        whose values were not dumped or whose recorded statistics do not suffice.
    arrived : bool
        Whether the anomaly came from outside the step or rank: in a network input, in a weight from the previous
        step, or from another rank.
    also : tuple of str
        Other nodes where the same anomaly began in the same iteration from inputs that are known and do not have it,
        in execution order. The cause may be the same, as for an operator and its gradient.
    from_rank : int or None
        The rank that sent it.
    changed : bool
        Whether the anomaly came in with a parameter that was written after the last update, other than by the
        optimizer.
    unseen : tuple of (int, int) or None
        First and last of the unobserved iterations that ran directly before, in which the anomaly may have begun, as
        in a ring of the last steps that starts after the fault. None if there is no such iteration.
    may_read_unseen : bool
        Whether the operator may read tensors that are not observed, such as the targets of a loss.
    leads : bool or None
        Whether NaN, Inf or the hit of a watchpoint was computed from it; None if unknown.
    calls_with_same_line : int
        For how many calls of a cell the operator's line was recorded; with more than 1, it may be that of another call.
    since : Since or None
        Since when it has lasted, if it was followed through several steps of which only the last is described here.
    is_left_out : bool
        Whether it went no further, because every operator that reads its NaN or Inf leaves them out.
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
    since: Since | None = None
    calls_with_same_line: int = 1
    is_left_out: bool = False

    @property
    def certain(self) -> bool:
        """Whether it is certain that no input shows the anomaly."""
        return not self.candidates and not self.may_read_unseen

    @property
    def user_frame(self) -> SourceFrame | None:
        """The frame that is most likely the user's own code."""
        return user_frame(self.frames)

    @property
    def is_older(self) -> bool:
        """Whether the anomaly certainly existed before the step: it came in with a parameter from unobserved steps."""
        is_kept = self.op_type == PARAMETER and "." in self.operator
        return self.unseen is not None and self.arrived and is_kept and not self.changed

    @property
    def sentence(self) -> str:
        """The finding in one sentence."""
        no_further = "; it went no further: what reads it leaves it out" if self.is_left_out else ""
        return self._finding + no_further + self._reservation + self._reservation_about_line

    @property
    def _reservation(self) -> str:
        """The uncertainty that unobserved earlier steps leave."""
        if self.unseen is None or self.since is not None:
            return ""
        first, last = map(step_of, self.unseen)
        if first == 1:
            was = "was" if self.is_older else "may have been"
            return f"; step {self.address.step} is the first observed one, so it {was} there before"
        steps = f"step {first} was" if first == last else f"steps {first} to {last} were"
        return f"; {steps} not observed, so it may have begun before"

    @property
    def _reservation_about_line(self) -> str:
        calls = self.calls_with_same_line
        if calls == 1 or self.user_frame is None:
            return ""
        return f"; MindSpore gives the same line for {calls} calls here, so it may be the line of another one"

    @property
    def _when(self) -> str:
        if self.since is None:
            return f"step {self.address.step}"
        return f"step {step_of(self.since.iteration)}" + (" or earlier" if self.since.may_be_older else "")

    @property
    def _finding(self) -> str:
        where = f"{self._when} in {self.operator}"
        if self.from_rank is not None:
            return f"{self.anomaly.words} came from rank {self.from_rank} at {where}"
        if self.changed:
            since = "since the last update" if self.address.iteration else "since the debugger first saw it"
            return f"{self.anomaly.words} came in at {where}, which was changed {since}, outside of the optimizer"
        frame = self.user_frame
        file = "" if frame is None else re.split(r"[/\\]", frame.file)[-1]
        if self.arrived:
            is_of_compiled_code = self.operator.startswith(FROM_COMPILED_CODE)
            if is_of_compiled_code:
                where += ", which compiled code has made or read without being observed"
            else:
                where += ", which nothing observed in this step computed"
            if frame is not None:
                lines = f"lines {frame.line} to {frame.end_line}" if frame.is_range else f"line {frame.line}"
                where += f"; it is read by {lines} of {file}"
            came_in = "was first seen" if is_of_compiled_code else "came in"
            return f"{self.anomaly.words} {came_in} at {where}"
        if frame is not None and frame.is_range:
            where += f", between lines {frame.line} and {frame.end_line} of {file}"
        if self.certain:
            began = "began" if self.unseen is None or self.since is not None else "was first seen"
            return f"{self.anomaly.words} {began} at {where} ({self.anomaly.absent_from_inputs})"
        if not self.candidates:
            unless = "unless it came from targets or other tensors without gradients"
            return f"{self.anomaly.words} began at {where}, {unless}"
        if any(entry.state is InputState.NOT_DUMPED for entry in self.inputs):
            return f"{self.anomaly.words} was first seen at {where}; not all of its inputs are known"
        return f"{self.anomaly.words} was first seen at {where}; the recorded statistics of its inputs do not decide it"
