"""Plans of a run: what its processes shall do, on behalf of a user, until it is done or something stops them.

A plan decides for each waiting process whether and how it continues. The `RunController`, which carries out one plan at
a time, decides whether it may continue now, so that all ranks stay together.
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
    """A plan for the processes of a run.

    Attributes
    ----------
    commanded : set of TrainingProcess
        The processes to which a command of this plan was sent.
    """

    trains = True
    """Whether the training continues; otherwise something is computed for the step at which it is stopped."""

    def __init__(self) -> None:
        self.commanded: set[TrainingProcess] = set()

    @abstractmethod
    def command(self, process: TrainingProcess) -> EventReply | None:
        """Return the next command for a waiting process; None if it is at its target."""

    def remark(self) -> str:
        """Return a warning for users when all processes are at their targets; empty if there is none."""
        return ""


class Steps(RunPlan):
    """Run until a step, or until something stops the run.

    Parameters
    ----------
    target : int or None
        The global step; None for no end.
    stops_each_step : bool
        Whether every process stops after each step and asks for its next command.

    Attributes
    ----------
    target : int or None
    """

    def __init__(self, target: int | None, *, stops_each_step: bool = False) -> None:
        super().__init__()
        self.target = target
        self._stops_each_step = stops_each_step

    def until(self, target: int) -> Steps:
        """Return this plan with its target limited to another."""
        nearer = target if self.target is None else min(self.target, target)
        return Steps(nearer, stops_each_step=self._stops_each_step)

    def command(self, process: TrainingProcess) -> EventReply | None:
        """Return the command for a single step, or for all steps if the process can count steps and be paused."""
        left = None if self.target is None else self.target - process.done
        if left is not None and left <= 0:
            return None
        can = process.identity.abilities
        if process.is_alone and can.steps and can.pause and not self._stops_each_step:
            return wire.run_step(-1 if left is None else left)
        # Values of the last two steps are shown to users.
        return wire.run_step(more=can.pause and (left is None or left > 2))


class NextNode(RunPlan):
    """Run each rank to its next operator."""

    def command(self, process: TrainingProcess) -> EventReply | None:
        """Return the command once for each process."""
        return None if process in self.commanded else wire.run_node()


class PreviousNode(RunPlan):
    """Move each rank back within its completed step.

    Parameters
    ----------
    targets : mapping of TrainingProcess to str
        Full name of the operator to move back to; empty for the previous one.
    """

    def __init__(self, targets: Mapping[TrainingProcess, str]) -> None:
        super().__init__()
        self._targets = targets
        self._begun_at = {process: process.progress.node for process in targets}

    def command(self, process: TrainingProcess) -> EventReply | None:
        """Return the command once for each process."""
        if process in self.commanded or process not in self._targets:
            return None
        return wire.run_back(self._targets[process])

    def remark(self) -> str:
        """Return why there is nothing to move back to, if no process has moved."""
        if any(process.progress.node != node for process, node in self._begun_at.items()):
            return ""
        (target, node), *_ = ((self._targets[process], node) for process, node in self._begun_at.items())
        if target:
            return f"{target} has not run in this step before the training reached {node or 'its end'}"
        return f"{node} is the first operator of its step" if node else "no operator was seen in this step"


class RunToNode(RunPlan):
    """Run until some processes are stopped at an operator; the others follow step by step.

    Parameters
    ----------
    targets : mapping of TrainingProcess to str
        Full name of the operator.
    """

    def __init__(self, targets: Mapping[TrainingProcess, str]) -> None:
        super().__init__()
        self._targets = targets

    def command(self, process: TrainingProcess) -> EventReply | None:
        """Return the command to run to the operator, or to the next one if the process cannot find it itself."""
        target = self._targets.get(process)
        if target is None:
            under_way = any(
                target_process.is_live and not self._has_arrived(target_process) for target_process in self._targets
            )
            return wire.run_step() if under_way else None
        if self._has_arrived(process):
            return None
        return wire.run_node(target if process.identity.abilities.run_to_node else "")

    def _has_arrived(self, process: TrainingProcess) -> bool:
        # A process that is stopped at the operator already must run to it in the next step.
        is_there = process.connection.is_waiting and process.progress.node == self._targets[process]
        return is_there and process in self.commanded


class Recheck(RunPlan):
    """Check all watchpoints again, on the values of the step at which the processes are stopped."""

    trains = False

    def command(self, process: TrainingProcess) -> EventReply | None:
        """Return the command once for each process."""
        return None if process in self.commanded else wire.recheck()
