"""Steps of a training seen by the operator capture alone, without a server: what ran, and what was observed of it."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import pytest
import torch

from tensight.agents.core.agent import Agent
from tensight.agents.core.reader import Framework
from tensight.agents.core.settings import AgentSettings
from tensight.agents.eager.names import Names
from tensight.agents.torch.arrays import TorchReader
from tensight.agents.torch.boundary import Boundary
from tensight.agents.torch.discovery import Discovery
from tensight.agents.torch.framework import FRAMEWORK
from tensight.agents.torch.operators import OperatorCapture

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import nn

    from tensight.agents.core.program import TracedNode
    from tensight.agents.eager.traced_programs import Trace
    from tensight.tensors import TensorStatistics


@dataclass
class Captured:
    """A training whose operators are seen.

    Attributes
    ----------
    agent : Agent
        Without a server; it wants statistics and values of everything.
    capture : OperatorCapture
    """

    agent: Agent
    capture: OperatorCapture

    def step(self, run: Callable[[], Any]) -> Trace:
        """Run a step and return what was seen of it."""
        run()
        return self.end()

    def end(self) -> Trace:
        """End the step; another one begins."""
        trace = self.capture.end_step()
        self.capture.begin_step()
        return trace

    def statistics(self, node: str, slot: int = 0) -> TensorStatistics | None:
        """Return the statistics of the output of a node."""
        slot_id = self.agent.slot_table.find(node, slot)
        if slot_id is None or slot_id >= len(self.agent.observed.columns.iteration):
            return None
        return self.agent.observed.columns.statistics(slot_id)

    def value(self, node: str, slot: int = 0) -> Any:
        """Return the value that is kept of an output."""
        slot_id = self.agent.slot_table.find(node, slot)
        return None if slot_id is None else self.agent.observed.retention.current(slot_id)


@contextmanager
def captured(*models: nn.Module) -> Iterator[Captured]:
    """See the operators of this thread until the context ends."""
    agent = Agent(AgentSettings(capture="ops"), Framework("torch", torch.__version__), TorchReader())
    agent.observed.columns.current_iteration = 0
    names = Names(FRAMEWORK)
    Discovery(names, models)
    boundary = Boundary(_fail)
    capture = OperatorCapture(agent, names, boundary)
    capture.start()
    try:
        yield Captured(agent, capture)
    finally:
        capture.stop()
        boundary.leave()
        agent.close()


def _fail(error: Exception) -> NoReturn:
    pytest.fail(f"in a hook: {error!r}")


def operators(trace: Trace) -> dict[str, TracedNode]:
    """Return the operators of a step by their names, in the order of execution."""
    return {node.name: node for node in trace.operators}
