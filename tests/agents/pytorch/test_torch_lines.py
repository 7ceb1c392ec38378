"""The lines that computed what no module has put out: those between two calls, and never another.

In the networks a comment marks the line that computed it, ``# here``, and what else may have done so, ``# or here``.
"""

from __future__ import annotations

import dis
import inspect
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from tensight.agents.eager.code_paths import lines_between
from tests.agents.pytorch.seen_steps import Seen, SeenStep

if TYPE_CHECKING:
    from collections.abc import Callable

    from tensight.agents.core.program import TracedNode


class Network(nn.Module):
    """Two layers, and what stands between them in some network."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(4, 4)
        self.b = nn.Linear(4, 4)
        self.gain = nn.Parameter(torch.ones(4))
        self.is_sick = False

    @property
    def sickness(self) -> float:
        return 0.0 if self.is_sick else 1.0


class Between(Network):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.a(x)
        x = x / x.std()  # here
        return self.b(x)


class InOneExpression(Network):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.a(x)
        return self.b(hidden / hidden.std())  # here


class OverSeveralLines(Network):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.a(x)
        scale = x.std()  # here
        if scale is not None:
            x = x - x.mean()
            x = x / scale  # or here
        return self.b(x)


class BeforeTheFirst(Network):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x * self.gain  # here
        x = self.a(x)
        return self.b(x)


class AfterTheLast(Network):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.a(x)
        x = self.b(x)
        y = x.relu()  # here
        return y / x.std()  # or here


class ReadLater(Network):
    """What is computed early and read late."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.a(x)
        gate = x.sigmoid()  # here
        y = self.b(x)
        y = self.a(y)
        return self.b(gate if gate is not None else y)


class InAFunction(Network):
    def scaled(self, x: torch.Tensor) -> torch.Tensor:
        return x / x.std()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.a(x)
        x = self.scaled(x)  # here
        return self.b(x)


class BetweenFunctions(Network):
    def first(self, x: torch.Tensor) -> torch.Tensor:
        return self.a(x) * 2

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.first(x)  # here
        return self.b(y)


class InALoop(Network):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in (self.a, self.b):  # or here
            x = layer(x)
            x = x / x.std()  # here
        return x


class WithoutGradients(Network):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.a(x)
        with torch.no_grad():  # or here
            scale = x.std()
        x = x / scale  # here
        return self.b(x)


class InBranches(Network):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.a(x)
        if self.is_sick:
            x = x * 2  # here
            x = x + 1
        else:
            x = x * 3  # or here
        return self.b(x)


class CaughtErrors(Network):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        try:
            x = self.a(x)
            x = x * 2  # here
        except ValueError:
            x = x * 3  # or here
        return self.b(x)


class Hooked(Network):
    """A hook of the script changes what a module has put out."""

    def __init__(self) -> None:
        super().__init__()
        self.a.register_forward_hook(lambda module, given, output: output * 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.a(x)  # here
        return self.b(x)


class Checkpointed(Network):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.a(x)
        x = x * self.sickness  # here
        return checkpoint(self.b, x, use_reentrant=False)  # or here


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x * 2  # here
        return self.a(x)


class OfBlocks(Network):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.Sequential(nn.Linear(4, 4), Block(), Block())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.blocks(x)


def marked(subject: Any) -> tuple[int, int]:
    """Return the first and the last line with a mark."""
    lines, first = inspect.getsourcelines(subject)
    numbers = [first + place for place, line in enumerate(lines) if line.rstrip().endswith(" here")]
    return min(numbers), max(numbers)


def train(
    model: nn.Module, steps: int = 1, change: Callable[[int], None] = lambda _: None, **settings: Any
) -> list[SeenStep]:
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    with Seen(model, optimizer, **settings) as seen:
        for step in range(steps):
            change(step)
            optimizer.zero_grad()
            model(torch.randn(8, 4)).sum().backward()
            optimizer.step()
        return list(seen.steps)


def computed_by(step: SeenStep, model: nn.Module) -> list[TracedNode]:
    """Nodes that stand for what the code of a network computed itself."""
    return [node for node in step.program.nodes if node.type == type(model).__name__ and node.role == "operator"]


def range_of(node: TracedNode) -> tuple[int, int]:
    frame = node.stack[0]
    assert frame.file == __file__
    return frame.line, frame.end_line or frame.line


NETWORKS = (
    Between,
    InOneExpression,
    OverSeveralLines,
    BeforeTheFirst,
    AfterTheLast,
    ReadLater,
    InAFunction,
    BetweenFunctions,
    InALoop,
    WithoutGradients,
    InBranches,
    CaughtErrors,
    Hooked,
    Checkpointed,
)


@pytest.mark.parametrize("network", NETWORKS, ids=lambda network: network.__name__)
def test_the_range_of_lines_is_that_between_the_calls(network: type[Network]) -> None:
    model = network()
    nodes = computed_by(train(model)[0], model)
    assert nodes
    assert {range_of(node) for node in nodes} == {marked(network.forward)}
    callers = {tuple(frame.function for frame in node.stack[:3]) for node in nodes}
    assert callers == {("forward", "train", "test_the_range_of_lines_is_that_between_the_calls")}


def test_each_block_has_the_lines_of_its_own_code() -> None:
    model = OfBlocks()
    nodes = [node for node in train(model)[0].program.nodes if node.type == "Block" and node.role == "operator"]
    assert [range_of(node) for node in nodes] == [marked(Block.forward)] * 2
    assert [frame.function for frame in nodes[0].stack[:3]] == ["forward", "forward", "train"]


def test_the_line_of_a_module_is_that_of_its_call() -> None:
    step = train(Between())[0]
    first, _ = marked(Between.forward)
    lines = {name: step.node(name).stack[0] for name in ("Default/a/Linear-op0", "Default/b/Linear-op0")}
    assert [(frame.line, frame.end_line) for frame in lines.values()] == [(first - 1, None), (first + 1, None)]


def test_what_a_loss_function_computes_is_between_the_last_call_and_the_backward_pass() -> None:
    model = Network()

    def run() -> None:
        output = model.a(torch.randn(8, 4))
        loss = output.square()  # here
        loss = loss.mean()
        loss.backward()  # or here
        optimizer.step()

    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    with Seen(model, optimizer) as seen:
        run()
        loss = seen.steps[0].node("Default/Loss-op0")
    assert range_of(loss) == marked(run)


class Residual(Network):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.a(x)
        kept = x
        if self.is_sick:
            kept = kept / 0
        y = self.b(x)
        y = y.tanh()
        return self.b(y + kept)


def test_a_step_that_computes_something_else_on_the_way_is_told_with_all_lines_on_the_way() -> None:
    model = Residual()

    def change(step: int) -> None:
        model.is_sick = step == 2

    steps = train(model, 4, change)
    lines, first = inspect.getsourcelines(Residual.forward)
    sick = next(first + place for place, line in enumerate(lines) if "kept / 0" in line)
    before, after = (range_of(computed_by(step, model)[0]) for step in (steps[0], steps[2]))
    assert before == (sick + 2, sick + 3)
    assert after[0] <= sick <= after[1] == sick + 3
    assert steps[1].program is steps[0].program
    assert steps[3].program is steps[2].program, "what was not certain once stays so"


def test_a_step_that_computes_more_right_before_a_call_has_the_lines_that_it_had() -> None:
    model = InBranches()
    steps = train(model, 3, lambda step: setattr(model, "is_sick", step == 1))
    assert {range_of(node) for step in steps for node in computed_by(step, model)} == {marked(InBranches.forward)}


def test_of_two_calls_of_a_function_only_what_lies_between_them_counts() -> None:
    def function(first: Any, second: Any) -> Any:
        found = first()
        found = found + 1
        return second(found)

    code = function.__code__
    start = code.co_firstlineno
    calls = [one.offset for one in dis.get_instructions(function) if one.opname.startswith("CALL")]
    assert lines_between(code, calls[0], calls[1]) == (start + 2, start + 2)
    assert lines_between(code, calls[1], calls[0]) is None
    assert lines_between(code, None, calls[0], end_computes=True) == (start + 1, start + 1)
