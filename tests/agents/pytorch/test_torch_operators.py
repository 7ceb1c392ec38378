"""What the operator capture sees of a step: names, edges, lines of code, and which steps are the same."""

from __future__ import annotations

import contextlib
import copy
import random
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - as everybody calls it
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset
from torch.utils.flop_counter import FlopCounterMode

import tensight.torch
from tensight.analysis import Analysis
from tensight.dumps import open_dump
from tests.agents.pytorch.captured_operators import captured, operators

if TYPE_CHECKING:
    from collections.abc import Callable


class Net(nn.Module):
    """Two layers in a container, one of them used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
        self.head = nn.Linear(4, 2)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden = self.layers(self.layers(inputs))
        hidden = hidden * 2  # doubled
        return self.head(hidden)


class Halved(torch.autograd.Function):
    """An operator of one's own."""

    @staticmethod
    def forward(ctx: Any, inputs: torch.Tensor) -> torch.Tensor:  # noqa: ARG004 - given by torch
        return inputs / 2  # halved

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:  # noqa: ARG004 - given by torch
        return gradient * 0.5  # gradient of halved


INPUTS = torch.linspace(-1, 1, 12).reshape(3, 4)
LINES = Path(__file__).read_text().splitlines()


def line_of(comment: str) -> int:
    return next(number for number, line in enumerate(LINES, 1) if line.endswith(f"# {comment}"))


def training(
    optimizer_type: Callable[..., torch.optim.Optimizer] = torch.optim.SGD, **options: Any
) -> tuple[Net, torch.optim.Optimizer, Callable[[], None]]:
    torch.manual_seed(0)
    model = Net()
    optimizer = optimizer_type(model.parameters(), lr=0.1, **options)

    def step() -> None:
        optimizer.zero_grad()
        F.mse_loss(model(INPUTS), torch.ones(3, 2)).backward()
        optimizer.step()

    return model, optimizer, step


def test_names_tell_the_module_and_which_call_of_it() -> None:
    model, _, step = training()
    with captured(model) as seen:
        nodes = operators(seen.step(step))
    assert list(nodes)[:7] == [
        "Default/layers/0/t-op0",
        "Default/layers/0/addmm-op0",
        "Default/layers/1/relu-op0",
        "Default/layers/0/t-op1",
        "Default/layers/0/addmm-op1",
        "Default/layers/1/relu-op1",
        "Default/mul-op0",
    ]
    assert nodes["Default/mul-op0"].attributes["other"] == 2
    assert "Default/mse_loss-op0" in nodes


def test_inputs_are_linked_to_weights_to_operators_and_to_what_came_from_outside() -> None:
    model, _, step = training()
    with captured(model) as seen:
        trace = seen.step(step)
    nodes = operators(trace)
    first, second = nodes["Default/layers/0/addmm-op0"], nodes["Default/layers/0/addmm-op1"]
    assert first.inputs == (("layers.0.bias", 0), ("input0", 0), ("Default/layers/0/t-op0", 0))
    assert second.inputs[1] == ("Default/layers/1/relu-op0", 0)
    assert nodes["Default/layers/0/t-op0"].inputs == (("layers.0.weight", 0),)
    assert next((node.name, node.role, node.outputs[0].shape) for node in trace.inputs) == ("input0", "input", (3, 4))
    known = {node.name for node in (*trace.inputs, *trace.operators)} | set(dict(model.named_parameters()))
    gradients = {
        f"Gradients/Default/{name.replace('.', '/')}/AccumulateGrad-op0" for name, _ in model.named_parameters()
    }
    assert {source[0] for node in trace.operators for source in node.inputs if source} <= known | gradients


def test_operators_of_the_backward_pass_belong_to_those_of_the_forward_pass() -> None:
    model, _, step = training()
    with captured(model) as seen:
        trace = seen.step(step)
    nodes = operators(trace)
    gradient = nodes["Gradients/Default/layers/1/threshold_backward-op0"]
    assert gradient.attributes["forward"] == "Default/layers/1/relu-op1"
    # What autograd has saved is what the forward pass made.
    assert gradient.inputs[1] == ("Default/layers/1/relu-op1", 0)
    doubled = nodes["Gradients/Default/mul-op0"]
    assert (doubled.attributes["forward"], doubled.stack[0].line) == ("Default/mul-op0", line_of("doubled"))
    assert trace.gradient_sources["head.bias"] == (("Gradients/Default/head/view-op0", 0),)


def test_the_stack_of_a_gradient_of_ones_own_is_the_line_of_the_backward_function() -> None:
    weight = torch.ones(3, requires_grad=True)
    with captured(Net()) as seen:
        nodes = operators(seen.step(lambda: Halved.apply(weight).sum().backward()))
    assert nodes["Default/div-op0"].stack[0].line == line_of("halved")
    assert nodes["Gradients/Default/mul-op0"].stack[0].line == line_of("gradient of halved")


def test_operators_of_an_optimizer_belong_to_the_weight_that_they_update() -> None:
    model, _, step = training(torch.optim.Adam, foreach=False)
    with captured(model) as seen:
        seen.step(step)
        trace = seen.step(step)
    nodes = operators(trace)
    update = nodes["Optimizer/head/weight/addcdiv_-op0"]
    assert update.inputs[0] == ("head.weight", 0)
    moment = nodes["Optimizer/head/weight/lerp_-op0"]
    assert moment.inputs == (
        ("exp_avg.head.weight", 0),
        ("Gradients/Default/head/weight/AccumulateGrad-op0", 0),
    )
    assert update.inputs[1] == ("Optimizer/head/weight/lerp_-op0", 0)


def test_gradients_have_the_same_sources_when_only_the_update_of_a_step_is_new() -> None:
    torch.manual_seed(0)
    square = [nn.Linear(8, 8) for _ in range(4)]
    model = nn.Sequential(square[0], nn.GELU(), square[1], nn.GELU(), square[2], nn.GELU(), square[3])
    optimizer = torch.optim.AdamW(model.parameters())

    def step() -> None:
        optimizer.zero_grad()
        model(torch.randn(8, 8)).square().mean().backward()
        optimizer.step()

    with captured(model) as seen:
        first, second = seen.step(step), seen.step(step)
    assert len(first.operators) != len(second.operators), "Adam makes its states in the first step"
    assert second.gradient_sources == first.gradient_sources


@pytest.mark.parametrize("options", [{"foreach": True}, {"fused": True}], ids=str)
def test_an_optimizer_that_updates_all_weights_at_once_writes_to_each(options: dict[str, bool]) -> None:
    model, _, step = training(torch.optim.AdamW, **options)
    with captured(model) as seen:
        for _ in range(2):
            trace = seen.step(step)
    written = [
        node
        for name, node in operators(trace).items()
        if name.startswith("Optimizer/AdamW/") and ("head.weight", 0) in node.inputs
    ]
    assert written
    assert all(len(node.outputs) >= 4 for node in written)


def test_a_step_that_runs_the_same_is_the_same() -> None:
    model, _, step = training()
    with captured(model) as seen:
        traces = [seen.step(step) for _ in range(4)]
    assert len({id(trace) for trace in traces}) == 1


def test_a_step_that_takes_another_way_is_another_until_it_comes_back() -> None:
    model, _, step = training()

    def other() -> None:
        step()
        torch.ones(2).exp()

    def third() -> None:
        torch.ones(2).exp()
        step()

    with captured(model) as seen:
        first = seen.step(step)
        longer = seen.step(other)
        assert seen.step(step) is first
        different = seen.step(third)
        assert [seen.step(run) for run in (other, third, step)] == [longer, different, first]
    assert len(longer.operators) == len(different.operators) == len(first.operators) + 2
    assert list(operators(longer))[: len(first.operators)] == list(operators(first))
    assert set(operators(different)) == set(operators(longer))


def test_a_step_that_goes_another_way_in_the_middle_is_linked_to_how_it_began() -> None:
    model, _, _ = training()

    def forward(*, squared: bool) -> None:
        made = model(INPUTS)
        parts = made.split(1, 1)
        (parts[1].square() if squared else parts[1].exp()).sum().backward()

    with captured(model) as seen:
        seen.step(lambda: forward(squared=False))
        trace = seen.step(lambda: forward(squared=True))
    nodes = operators(trace)
    assert nodes["Default/pow-op0"].inputs == (("Default/split-op0", 1),)
    assert nodes["Gradients/Default/head/mm-op0"].attributes["forward"] == "Default/head/addmm-op0"
    assert [node.name for node in trace.inputs] == ["input0"]


def test_a_weight_in_the_place_of_a_tensor_from_outside_is_another_input() -> None:
    model, _, _ = training()
    average = copy.deepcopy(model.layers[0])

    def step(*, is_first: bool) -> None:
        for weight, averaged in zip(model.layers[0].parameters(), average.parameters(), strict=True):
            averaged.detach()
            if is_first:
                averaged.detach().copy_(weight)
            weight.detach()

    with captured(model) as seen:
        seen.step(lambda: step(is_first=True))
        trace = seen.step(lambda: step(is_first=False))
    inputs = [node.inputs[0][0] for node in operators(trace).values() if node.type == "detach"]
    assert inputs == ["input0", "layers.0.weight", "input1", "layers.0.bias"]


def test_operators_of_the_same_kind_in_another_module_make_another_step() -> None:
    branches = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])
    with captured(branches) as seen:
        names = [list(operators(seen.step(lambda at=at: branches[at](INPUTS)))) for at in (0, 1, 0, 1)]
    assert names[0] == names[2] == ["Default/0/t-op0", "Default/0/addmm-op0"]
    assert names[1] == names[3] == ["Default/1/t-op0", "Default/1/addmm-op0"]


def test_reading_a_number_is_no_operator() -> None:
    model, _, step = training()
    with captured(model) as seen:
        first = seen.step(step)

        def printed() -> None:
            step()
            assert f"{model.head.bias.square().sum().item():.1f}"

        assert seen.step(printed) is not first

        def read() -> None:
            step()
            assert float(LOSS) == LOSS.item() == 2

        assert seen.step(read) is first


LOSS = torch.tensor(2.0)


class Noise(Dataset[torch.Tensor]):
    """Samples whose making takes another way each time."""

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> torch.Tensor:
        sample = torch.full((4,), float(index))
        for _ in range(random.randrange(4)):  # noqa: S311 - only to differ
            sample = sample + 1
        return sample


def test_a_gradient_that_the_update_overwrites_is_recorded_as_the_update_read_it(tmp_path: Path) -> None:
    model, optimizer, step = training(momentum=0.9, nesterov=True, foreach=True)
    norms = []
    optimizer.register_step_pre_hook(lambda *_: norms.append(float(model.head.weight.grad.norm())))  # type: ignore[union-attr]
    where = {"record": "full", "record_folder": str(tmp_path / "run")}
    with tensight.torch.debug(model, optimizer, capture="ops", quiet=True, port=1, **where):
        for _ in range(3):
            step()
    table = Analysis(open_dump(str(tmp_path / "run")), cache_dir=tmp_path / "cache").statistics()
    recorded = {
        file.iteration: float(table.rows["l2_norm"][row])
        for row, file in enumerate(table.files)
        if file.node == "Gradients/Default/head/weight/AccumulateGrad-op0" and file.io == "output"
    }
    assert [recorded[iteration] for iteration in range(3)] == pytest.approx(norms)


@pytest.mark.parametrize("workers", [0, 1])
def test_loading_data_is_no_part_of_a_step(workers: int) -> None:
    model, _, _ = training()
    random.seed(1)
    with captured(model) as seen:
        traces = []
        for batch in DataLoader(Noise(), batch_size=2, num_workers=workers):
            model(batch).sum().backward()
            traces.append(seen.end())
    assert len({id(trace) for trace in traces}) == 1
    assert "Default/stack-op0" not in operators(traces[0])
    assert traces[0].inputs[0].outputs[0].shape == (2, 4)


def test_a_closure_that_is_evaluated_again_runs_the_same_operators() -> None:
    torch.manual_seed(0)
    model = nn.Linear(4, 2)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)
    with captured(model) as seen:
        evaluations = 0

        def closure() -> torch.Tensor:
            nonlocal evaluations
            seen.capture.begin_evaluation() if evaluations else seen.capture.mark_evaluation()
            evaluations += 1
            optimizer.zero_grad()
            loss = model(INPUTS).square().sum()
            loss.backward()
            return loss

        traces, amounts = [], []
        for _ in range(4):
            evaluations = 0
            optimizer.step(closure)
            traces.append(seen.end())
            amounts.append(evaluations)
    assert max(amounts) > 1
    nodes = operators(traces[0])
    assert "Default/addmm-op0" in nodes
    assert "Default/addmm-op1" not in nodes
    # How it searches differs from step to step, and is no part of them.
    assert not any(name.startswith("Optimizer/") for name in nodes)
    assert len({id(trace) for trace in traces}) == 1


@pytest.mark.parametrize("reentrant", [True, False])
def test_what_is_computed_again_in_the_backward_pass_is_forward(reentrant: bool) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    inputs = INPUTS.clone().requires_grad_()
    with captured(model) as seen:

        def step() -> None:
            checkpoint(model, inputs, use_reentrant=reentrant).sum().backward()

        first, second = seen.step(step), seen.step(step)
    nodes = operators(first)
    assert {"Default/0/addmm-op0", "Default/0/addmm-op1"} <= set(nodes)
    assert "Gradients/Default/0/mm-op0" in nodes
    assert first is second or list(operators(second)) == list(nodes)


def test_gradients_of_gradients_belong_to_the_same_modules() -> None:
    model, _, _ = training()

    def step() -> None:
        inputs = INPUTS.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(model(inputs).square().sum(), inputs, create_graph=True)
        gradient.square().sum().backward()

    with captured(model) as seen:
        nodes = operators(seen.step(step))
    deep = [node for node in nodes.values() if str(node.attributes.get("forward", "")).startswith("Gradients/")]
    assert deep
    assert all(node.name.startswith("Gradients/Default") for node in deep)
    assert not any("Gradients/Gradients" in name for name in nodes)


def test_weights_get_the_very_bits_that_they_get_unseen() -> None:
    def trained(watched: bool) -> list[torch.Tensor]:
        torch.manual_seed(3)
        model = nn.Sequential(nn.Conv1d(2, 4, 3), nn.BatchNorm1d(4), nn.Dropout(0.3), nn.GELU(), nn.Flatten())
        model.append(nn.Linear(24, 3))
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
        inputs = torch.randn(8, 2, 8)
        with captured(model) if watched else contextlib.nullcontext() as seen:
            for _ in range(8):
                optimizer.zero_grad()
                F.cross_entropy(model(inputs), torch.arange(8) % 3).backward()
                optimizer.step()
                if seen is not None:
                    seen.end()
        return [*model.state_dict().values(), torch.rand(3)]

    for alone, watched in zip(trained(False), trained(True), strict=True):
        assert torch.equal(alone, watched)


def test_nothing_is_entered_while_nobody_wants_to_see() -> None:
    model, _, step = training()
    with captured(model) as seen:
        for _ in range(3):
            trace = seen.step(step)
        assert torch._C._len_torch_dispatch_stack() == 1
        seen.agent.capturing = False
        seen.capture.begin_step()
        assert torch._C._len_torch_dispatch_stack() == 0
        assert seen.step(step) is trace
        seen.agent.capturing = True
        seen.capture.begin_step()
        assert seen.step(step) is trace
    assert torch._C._len_torch_dispatch_stack() == 0
    assert not nn.modules.module._global_forward_hooks


class Counting(TorchDispatchMode):
    """A mode of the user's."""

    def __init__(self) -> None:
        super().__init__()
        self.functions: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.functions.append(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


def test_modes_of_the_user_come_and_go_across_steps() -> None:
    model, _, step = training()
    with captured(model) as seen:
        first = seen.step(step)
        with Counting() as mode:
            step()
            seen.end()
            step()
        seen.end()
        assert torch._C._len_torch_dispatch_stack() == 1
        amount = len(mode.functions)
        assert seen.step(step) is first
        assert len(mode.functions) == amount > 0
    with FlopCounterMode(display=False) as flops, captured(model) as seen:
        step()
        seen.end()
    assert flops.get_total_flops() > 0


def test_operators_of_other_threads_are_left_alone() -> None:
    model, _, step = training()
    errors: list[BaseException] = []

    def elsewhere() -> None:
        try:
            copy.deepcopy(model)(INPUTS).sum().backward()
        except BaseException as error:
            errors.append(error)

    with captured(model) as seen:
        first = seen.step(step)

        def both() -> None:
            thread = threading.Thread(target=elsewhere)
            thread.start()
            thread.join()
            step()

        assert seen.step(both) is first
    assert not errors


def test_an_operator_that_fails_is_the_users_own_affair() -> None:
    model, _, step = training()

    def failing() -> None:
        with pytest.raises(RuntimeError, match="shape"):
            torch.ones(2, 3) @ torch.ones(2, 3)
        step()

    with captured(model) as seen:
        nodes = operators(seen.step(failing))
        assert operators(seen.step(failing)) == nodes
    assert "Default/mm-op0" not in nodes


def test_hooks_of_the_user_on_gradients_are_seen_with_their_line() -> None:
    model, _, step = training()
    model.head.weight.register_hook(lambda gradient: gradient * 3)  # three times
    with captured(model) as seen:
        nodes = operators(seen.step(step))
    tripled = [node for node in nodes.values() if node.stack and node.stack[0].line == line_of("three times")]
    assert [node.type for node in tripled] == ["mul"]


def test_a_compiled_function_runs_as_it_does_unseen() -> None:
    model, _, _ = training()
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    expected = model(INPUTS)
    with captured(model) as seen:
        for _ in range(3):
            result = compiled(INPUTS)
            result.sum().backward()
            trace = seen.end()
    assert torch.equal(result, expected)
    assert any(node.type == "addmm" for node in trace.operators)


def test_operators_of_a_compiled_model_have_the_line_that_calls_it_and_it_is_said(
    capfd: pytest.CaptureFixture[str],
) -> None:
    class CompiledOnce(Net):
        """What is said of a class is said once in a process."""

    model = CompiledOnce()
    compiled = torch.compile(model, backend="aot_eager")
    with captured(model) as seen:
        for _ in range(3):
            compiled(INPUTS).sum().backward()  # the only line that is known
            trace = seen.end()
    lines = {node.stack[0].line for node in trace.operators if not node.name.startswith("Gradients/")}
    assert lines == {line_of("the only line that is known")}
    assert capfd.readouterr().err.count("CompiledOnce is compiled") == 1


def test_it_is_said_that_a_model_is_compiled_in_place(capfd: pytest.CaptureFixture[str]) -> None:
    class CompiledInPlace(Net):
        """What is said of a class is said once in a process."""

    model = CompiledInPlace()
    model.compile(backend="aot_eager")
    with captured(model) as seen:
        for _ in range(2):
            model(INPUTS).sum().backward()
            seen.end()
    assert capfd.readouterr().err.count("modules of CompiledInPlace are compiled in place") == 1


def test_too_many_different_steps_end_the_search_for_more() -> None:
    with captured(Net()) as seen:
        for length in range(1, 80):
            value = torch.ones(2)
            for _ in range(length):
                value = value + 1
            trace = seen.end()
    assert len(trace.operators) <= 66
    np.testing.assert_array_equal(value, np.full(2, 80.0))
