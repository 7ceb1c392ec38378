"""Plans of a run: what a person wants its processes to do, until that is done or something stops them.

A plan decides for each process that waits whether it is to go on, and how. Whether it may go now, so that all ranks
stay together, is decided by the `RunController`, which carries out one plan at a time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from tensight import wire

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tensight.sessions.live.process import TrainingProcess
    from tensight.wire.debugger_pb2 import EventReply


class RunPlan(ABC):
    """What a person wants the processes of a run to do.

    Attributes
    ----------
    commanded : set of TrainingProcess
        Those to which a command of this plan was sent.
    """

    trains = True
    """Whether the training goes on; else only something is computed of the step at which it is stopped."""

    def __init__(self) -> None:
        self.commanded: set[TrainingProcess] = set()

    @abstractmethod
    def command(self, process: TrainingProcess) -> EventReply | None:
        """Return the next command of a waiting process; None if it is where it should be."""

    def remark(self) -> str:
        """Return what a person should know when all processes are where they should be; empty if nothing."""
        return ""


class Steps(RunPlan):
    """Run on until a step, or until something stops it.

    Parameters
    ----------
    target : int or None
        The step, as all ranks count it together; None for no end.
    stops_each_step : bool
        Whether every process stops after each step, and asks whether to go on.

    Attributes
    ----------
    target : int or None
    """

    def __init__(self, target: int | None, *, stops_each_step: bool = False) -> None:
        super().__init__()
        self.target = target
        self._stops_each_step = stops_each_step

    def until(self, target: int) -> Steps:
        """Return the same plan, with its end there if that comes before its own."""
        nearer = target if self.target is None else min(self.target, target)
        return Steps(nearer, stops_each_step=self._stops_each_step)

    def command(self, process: TrainingProcess) -> EventReply | None:
        """Return the command for one step; a process that counts steps and can be paused gets one for all of them."""
        left = None if self.target is None else self.target - process.done
        if left is not None and left <= 0:
            return None
        can = process.identity.abilities
        if process.is_alone and can.steps and can.pause and not self._stops_each_step:
            return wire.run_step(-1 if left is None else left)
        # Of the last step and the one before it a person sees values.
        return wire.run_step(more=can.pause and (left is None or left > 2))


class NextNode(RunPlan):
    """Run to the next operator, each rank for itself."""

    def command(self, process: TrainingProcess) -> EventReply | None:
        """Return the command once for each process."""
        return None if process in self.commanded else wire.run_node()


class PreviousNode(RunPlan):
    """Go back in the step that is done, each rank for itself.

    Parameters
    ----------
    targets : mapping of TrainingProcess to str
        Full name of the operator to go back to; empty for the one before.
    """

    def __init__(self, targets: Mapping[TrainingProcess, str]) -> None:
        super().__init__()
        self._targets = targets
        self._begun_at = {process: process.node for process in targets}

    def command(self, process: TrainingProcess) -> EventReply | None:
        """Return the command once for each process."""
        if process in self.commanded or process not in self._targets:
            return None
        return wire.run_back(self._targets[process])

    def remark(self) -> str:
        """Return that there is nothing to go back to, if nothing has moved."""
        if any(process.node != node for process, node in self._begun_at.items()):
            return ""
        (target, node), *_ = ((self._targets[process], node) for process, node in self._begun_at.items())
        if target:
            return f"{target} has not run in this step before the training reached {node or 'its end'}"
        return f"{node} is the first operator of its step" if node else "no operator was seen in this step"


class RunToNode(RunPlan):
    """Run until some processes are stopped at an operator; the others go along, step by step.

    Parameters
    ----------
    targets : mapping of TrainingProcess to str
        Full name of the operator.
    """

    def __init__(self, targets: Mapping[TrainingProcess, str]) -> None:
        super().__init__()
        self._targets = targets

    def command(self, process: TrainingProcess) -> EventReply | None:
        """Return the command to the operator, or to the next one for a process that cannot find it itself."""
        target = self._targets.get(process)
        if target is None:
            under_way = any(one.is_live and not self._has_arrived(one) for one in self._targets)
            return wire.run_step() if under_way else None
        if self._has_arrived(process):
            return None
        return wire.run_node(target if process.identity.abilities.run_to_node else "")

    def _has_arrived(self, process: TrainingProcess) -> bool:
        # A process may be stopped at the operator already when it is commanded to run there: in the next step, then.
        return process.is_waiting and process in self.commanded and process.node == self._targets[process]


class Recheck(RunPlan):
    """Check all watchpoints once more, on the values of the step at which the processes are stopped."""

    trains = False

    def command(self, process: TrainingProcess) -> EventReply | None:
        """Return the command once for each process."""
        return None if process in self.commanded else wire.recheck()
