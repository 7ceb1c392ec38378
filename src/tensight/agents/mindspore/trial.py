"""What `tensight selftest` measures in a MindSpore training."""

from __future__ import annotations

import gc
import hashlib
from typing import TYPE_CHECKING, Any

from mindspore import nn

from tensight.agents.core.live_instances import live_instances
from tensight.agents.core.replacing import Replacements
from tensight.agents.mindspore.arrays import MindSporeReader
from tensight.agents.mindspore.calls import GraphCalls, wait_for_results
from tensight.agents.mindspore.environment import optimizers_in
from tensight.agents.mindspore.process_dump import ProcessDump
from tensight.agents.trial import Training

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tensight.agents.mindspore.calls import Compiled
    from tensight.agents.trial import Trial


def follow(trial: Trial) -> None:
    """Report every step to a trial from now on."""
    MindSporeTraining(trial)


class MindSporeTraining(Training):
    """A MindSpore training, whose steps end when an optimizer was called, or a graph that contains one has run.

    Parameters
    ----------
    trial : Trial
        Receives each step of the first optimizer.
    """

    framework = "mindspore"

    def __init__(self, trial: Trial) -> None:
        self._trial = trial
        self._first: int | None = None
        self._optimizers_of: dict[str, frozenset[int]] = {}
        self._replaced = Replacements()
        self._replaced.put(nn.Optimizer, "__call__", self._optimizer_called)
        self._graphs = GraphCalls(_nothing, _nothing, self._graph_called)
        self._graphs.install()

    def _optimizer_called(self, _: Callable[..., Any], optimizer: Any, *given: Any, **named: Any) -> Any:
        # This function calls all cells, and the debugger may have replaced it since.
        result = nn.Cell.__call__(optimizer, *given, **named)
        self._updated(frozenset((id(optimizer),)))
        return result

    def _graph_called(self, compiled: Compiled) -> None:
        # An optimizer that is called directly has been counted.
        if isinstance(compiled.owner, nn.Optimizer):
            return
        optimizers = self._optimizers_of.get(compiled.phase)
        if optimizers is None:
            optimizers = self._optimizers_of[compiled.phase] = optimizers_in(compiled.owner)
        self._updated(optimizers)

    def _updated(self, optimizers: frozenset[int]) -> None:
        if self._first is None:
            self._first = min(optimizers, default=None)
        if self._first in optimizers:
            self._trial.stepped(self)

    def state(self) -> Iterator[tuple[str, str]]:
        """Yield every parameter of a cell by name, including optimizers' states and batch statistics."""
        wait_for_results()
        gc.collect()
        reader = MindSporeReader()
        digests: dict[str, set[str]] = {}
        parameters = {
            id(parameter): parameter
            for cell in live_instances(nn.Cell)
            for parameter in cell.get_parameters(expand=False)
        }
        for parameter in parameters.values():
            values = reader.host(parameter)
            if values is not None:
                digests.setdefault(parameter.name, set()).add(hashlib.sha256(values.tobytes()).hexdigest())
        for name in sorted(digests):
            # Parameters of different networks may share a name.
            yield name, "".join(sorted(digests[name]))

    def bytes_in_files(self) -> int:
        """Return the bytes that MindSpore has dumped into memory."""
        ring = ProcessDump.of_this_process().ring
        return ring.used_bytes() if ring is not None and ring.is_in_memory else 0

    def close(self) -> None:
        """End debugging, and remove what MindSpore has dumped."""
        super().close()
        ring = ProcessDump.of_this_process().ring
        if ring is not None:
            ring.close()


def _nothing(_: object) -> None:
    pass
