"""A training without any framework: two layers in NumPy, and the adapter that debugs it.

    python numpy_training.py --port 50051 --steps 10

Its nodes are those of an operator-level adapter: forward, loss, gradients, optimizer. Everything that an adapter for a
real framework must do is done here in the plainest way.
"""

from __future__ import annotations

import argparse
import linecache
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tensight.agents.core.agent import Agent
from tensight.agents.core.program import Program, StackFrame, TracedNode
from tensight.agents.core.reader import Framework
from tensight.agents.core.settings import AgentSettings
from tensight.agents.core.slots import Need
from tensight.graph import OutputSlot
from tensight.wire import data_type_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from tensight.agents.core.columns import StatisticsColumns

FORWARD = ("Default/fc1/MatMul-op0", "Default/fc1/ReLU-op0", "Default/fc2/MatMul-op0", "Default/Loss-op0")
LOSS = FORWARD[-1]
SPLIT = "Default/Split-op0"
GRADIENTS = ("Gradients/Default/fc2/MatMulGrad-op0", "Gradients/Default/fc1/MatMulGrad-op0")
WEIGHTS = ("fc1.weight", "fc2.weight")
MOMENTS = ("momentum_buffer.fc1.weight", "momentum_buffer.fc2.weight")


class ArrayReader:
    """Reads NumPy arrays. Who writes to one in place says so with `wrote`."""

    def __init__(self) -> None:
        self._versions: dict[int, int] = {}

    def wrote(self, tensor: NDArray[Any]) -> None:
        self._versions[id(tensor)] = self._versions.get(id(tensor), 0) + 1

    def describe(self, tensor: NDArray[Any]) -> tuple[str, tuple[int, ...], int]:
        return tensor.dtype.name, tensor.shape, tensor.nbytes

    def hold(self, tensor: NDArray[Any]) -> tuple[NDArray[Any], int, int]:
        return tensor, id(tensor), tensor.nbytes

    def version(self, tensor: NDArray[Any]) -> int:
        return self._versions.get(id(tensor), 0)

    def host(self, tensor: NDArray[Any]) -> NDArray[Any]:
        return np.asarray(tensor, order="C")

    def copy(self, tensor: NDArray[Any], into: Any = None) -> NDArray[Any]:
        if into is None or into.shape != tensor.shape or into.dtype != tensor.dtype:
            return tensor.copy()
        into[...] = tensor
        return into

    def scan(self, tensor: NDArray[Any], columns: StatisticsColumns, slot_id: int, *, hashed: bool = True) -> bool:
        return columns.scan(slot_id, tensor, hashed=hashed)

    def has_non_finite(self, tensor: NDArray[Any]) -> bool:
        return not bool(np.isfinite(tensor).all())

    def settle(self, columns: StatisticsColumns) -> None:
        pass


@dataclass
class Network:
    """Two layers with momentum; everything is the same in every run.

    `nan_at` is the step (from 1) in whose second layer NaN appears. `other_at` are the steps that compute something
    else, and so are another program.
    """

    seed: int = 0
    width: int = 16
    nan_at: int = 0
    other_at: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        random = np.random.default_rng(self.seed)
        self.random = random
        self.weights = {
            WEIGHTS[0]: random.normal(0, 0.3, (8, self.width)).astype(np.float32),
            WEIGHTS[1]: random.normal(0, 0.3, (self.width, 4)).astype(np.float32),
        }
        self.moments = {name: np.zeros_like(weight) for name, weight in self.weights.items()}
        self.steps = 0

    def step(self, see: Callable[..., None], wrote: Callable[[Any], None]) -> None:
        """Do one step; `see` is told of every node that has run, `wrote` of what was written to in place."""
        self.steps += 1
        first, second = self.weights.values()
        batch = self.random.normal(0, 1, (32, 8)).astype(np.float32)
        wanted = batch[:, :4] * 0.5
        hidden = batch @ first
        see(FORWARD[0], "MatMul", (None, WEIGHTS[0]), (batch, first), (hidden,))
        active = np.maximum(hidden, 0)
        see(FORWARD[1], "ReLU", (FORWARD[0],), (hidden,), (active,))
        if self.steps in self.other_at:
            halves = active[:, : self.width // 2], active[:, self.width // 2 :]
            see(SPLIT, "Split", (FORWARD[1],), (active,), halves)
            active = np.concatenate(halves, axis=1)
            see("Default/Concat-op0", "Concat", ((SPLIT, 0), (SPLIT, 1)), halves, (active,))
        output = active @ second
        if self.steps == self.nan_at:
            output[0, 0] = np.nan
        see(FORWARD[2], "MatMul", (FORWARD[1], WEIGHTS[1]), (active, second), (output,))
        error = output - wanted
        loss = np.asarray(np.mean(error**2), np.float32)
        see(LOSS, "Loss", (FORWARD[2],), (output,), (loss,))
        error *= 2 / error.size
        gradients = {WEIGHTS[1]: active.T @ error}
        back = (error @ second.T) * (active > 0)
        see(GRADIENTS[0], "MatMulGrad", (LOSS, WEIGHTS[1]), (error, second), (gradients[WEIGHTS[1]], back))
        gradients[WEIGHTS[0]] = batch.T @ back
        see(GRADIENTS[1], "MatMulGrad", ((GRADIENTS[0], 1), WEIGHTS[0]), (back, first), (gradients[WEIGHTS[0]],))
        for number, (name, weight) in enumerate(self.weights.items()):
            moment = self.moments[name]
            moment *= 0.9
            moment += gradients[name]
            weight -= 0.1 * moment
            wrote(moment)
            wrote(weight)
            source = (GRADIENTS[1 - number], 0)
            see(f"Optimizer/{name}/ApplyMomentum-op0", "ApplyMomentum", (name, MOMENTS[number], source), (), ())


class NumpyDebugger:
    """Debugs a `Network`: what an adapter for a framework does.

    With `cursor` it is one that shows a step only when that is done, with `outputs_alone` one that sees no inputs.
    """

    def __init__(
        self,
        network: Network,
        settings: AgentSettings,
        *,
        cursor: bool = False,
        outputs_alone: bool = False,
        **framework: Any,
    ) -> None:
        self.network = network
        self._outputs_alone = outputs_alone
        self.reader = ArrayReader()
        self.agent = Agent(
            settings,
            Framework("numpy", np.__version__, **framework),
            self.reader,
            script="numpy_training.py",
            stops_at_nodes=settings.capture == "ops",
            cursor=cursor,
        )
        self.programs: dict[tuple[str, ...], Program] = {}
        self.nodes: list[TracedNode] = []
        self.agent.running.program = self.program
        self.parameters = [
            TracedNode(name, "Parameter", "weight", (), (_slot(value),)) for name, value in network.weights.items()
        ] + [
            TracedNode(f"momentum_buffer.{name}", "Parameter", "state", (), (_slot(value),))
            for name, value in network.moments.items()
        ]

    def attach(self) -> None:
        self._see_parameters()
        self.agent.attach(self.program())

    def train(self, steps: int) -> None:
        for _ in range(steps):
            self.step()

    def step(self) -> None:
        self.nodes = []
        self.network.step(self._see if self.agent.capturing else _see_nothing, self.reader.wrote)
        if self.agent.capturing:
            self._see_parameters()
            self.agent.step_done(self.program())
        else:
            self.agent.step_done(next(reversed(self.programs.values())))

    def program(self) -> Program:
        names = tuple(node.name for node in self.nodes)
        if names not in self.programs:
            number = len(self.programs)
            # The first program that runs takes the place of what was known before it.
            name = f"kernel_graph_{max(number - 1, 0)}"
            self.programs[names] = Program(name, number, (*self.parameters, *self.nodes))
        return self.programs[names]

    def _see_parameters(self) -> None:
        values = {
            **self.network.weights,
            **{f"momentum_buffer.{name}": value for name, value in self.network.moments.items()},
        }
        for traced in self.parameters:
            node = self.agent.slot_table.node(traced.name, traced.type, traced.role)
            self._observe(self.agent.slot_table.slot_id(node, 0), values[traced.name])

    def _see(self, name: str, type_: str, sources: tuple[Any, ...], inputs: tuple[Any, ...], outputs: Any) -> None:
        frame = sys._getframe(1)
        file, line = frame.f_code.co_filename, frame.f_lineno
        stack = (StackFrame(file, line, frame.f_code.co_name, linecache.getline(file, line).strip()),)
        links = tuple((source, 0) if isinstance(source, str) else source for source in sources)
        self.nodes.append(TracedNode(name, type_, "operator", links, tuple(map(_slot, outputs)), stack, {"width": 16}))
        agent = self.agent
        node = agent.slot_table.node(name, type_)
        need = 0
        for slot, value in enumerate(() if self._outputs_alone else inputs):
            need |= self._observe(agent.slot_table.slot_id(node, slot, "input"), value)
        for slot, value in enumerate(outputs):
            need |= self._observe(agent.slot_table.slot_id(node, slot), value)
        if agent.stops_at_nodes or need & Need.NOW:
            agent.node_done(node)

    def _observe(self, slot_id: int, value: Any) -> int:
        need = self.agent.slot_table.needs[slot_id]
        if need:
            self.agent.observe(slot_id, value, need)
        return need


def _see_nothing(*_: Any) -> None:
    pass


def _slot(value: NDArray[Any]) -> OutputSlot:
    return OutputSlot.of_tensor(data_type_of(value.dtype), value.shape)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--nan-at", type=int, default=0)
    arguments = parser.parse_args()
    debugger = NumpyDebugger(Network(nan_at=arguments.nan_at), AgentSettings.from_environment())
    debugger.attach()
    debugger.train(arguments.steps)
    debugger.agent.close()
    print("trained", debugger.network.steps, flush=True)


if __name__ == "__main__":
    main()
