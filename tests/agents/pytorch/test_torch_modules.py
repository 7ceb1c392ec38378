"""Calls of modules as nodes: their names, links, values and gradients, in all the ways in which people call modules."""

from __future__ import annotations

import copy
import pickle
import threading
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest
import torch
import torch._dynamo
from torch import nn
from torch.nn import functional as F  # noqa: N812 - as everybody calls it
from torch.utils.checkpoint import checkpoint

from tests.agents.pytorch.seen_steps import Seen


def train(model: nn.Module, *inputs: torch.Tensor, steps: int = 2) -> Seen:
    """Train a model, so that what it returns sums up to less, and return what was seen."""
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    with Seen(model, optimizer) as seen:
        for _ in range(steps):
            optimizer.zero_grad()
            output = model(*inputs)
            output.square().mean().backward()
            optimizer.step()
    return seen


def links(seen: Seen, name: str) -> list[str]:
    """Names of what a node reads, weights left out."""
    node = seen.steps[-1].node(name)
    return [source[0] for source in node.inputs if source is not None and "." not in source[0]]


class Functional(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(self.first(x))
        return self.second(hidden) + hidden


def test_leaves_are_nodes_and_sequences_leave_no_node() -> None:
    model = nn.Sequential(OrderedDict(fc1=nn.Linear(3, 4), relu=nn.ReLU(), fc2=nn.Linear(4, 2)))
    seen = train(model, torch.randn(5, 3))
    assert seen.steps[-1].names("Default/") == [
        "Default/fc1/Linear-op0",
        "Default/relu/ReLU-op0",
        "Default/fc2/Linear-op0",
        "Default/Loss-op0",
    ]
    assert links(seen, "Default/relu/ReLU-op0") == ["Default/fc1/Linear-op0"]
    assert seen.steps[-1].node("Default/fc1/Linear-op0").inputs == (
        ("fc1_input_0", 0),
        ("fc1.weight", 0),
        ("fc1.bias", 0),
    )


def test_what_a_forward_computes_between_its_modules_is_a_node_at_its_place() -> None:
    torch.manual_seed(0)
    model = Functional()
    x = torch.randn(5, 4)
    with torch.no_grad():
        hidden = torch.tanh(model.first(x))
        output = model.second(hidden) + hidden
    seen = train(model, x, steps=1)
    step = seen.steps[0]
    assert step.names("Default/")[:4] == [
        "Default/first/Linear-op0",
        "Default/Functional-op0",
        "Default/second/Linear-op0",
        "Default/Functional-op1",
    ]
    assert links(seen, "Default/second/Linear-op0") == ["Default/Functional-op0"]
    assert set(links(seen, "Default/Functional-op1")) == {"Default/second/Linear-op0", "Default/Functional-op0"}
    assert step.of("Default/Functional-op0").mean == pytest.approx(float(hidden.double().mean()))
    assert step.of("Default/Functional-op1").max == pytest.approx(float(output.max()))


def test_the_gradient_of_a_node_is_that_at_its_inputs() -> None:
    torch.manual_seed(0)
    model = Functional()
    x = torch.randn(5, 4)
    twin = copy.deepcopy(model)
    first = twin.first(x)
    hidden = torch.tanh(first)
    expected = torch.autograd.grad((twin.second(hidden) + hidden).square().mean(), first)[0]
    seen = train(model, x, steps=1)
    grad = seen.steps[0].of("Gradients/Default/FunctionalGrad-op0")
    assert grad.l2_norm == pytest.approx(float(expected.double().norm()))
    assert links(seen, "Gradients/Default/first/LinearGrad-op0")[0] == "Gradients/Default/FunctionalGrad-op0"
    order = seen.steps[0].names("Gradients/")
    assert order.index("Gradients/Default/second/LinearGrad-op0") < order.index("Gradients/Default/FunctionalGrad-op0")


def test_a_module_that_is_called_twice_has_two_nodes() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.cell(self.cell(x))

    seen = train(Twice(), torch.randn(2, 4))
    assert seen.steps[-1].names("Default/cell") == ["Default/cell/Linear-op0", "Default/cell/Linear-op1"]
    assert links(seen, "Default/cell/Linear-op1") == ["Default/cell/Linear-op0"]
    assert "Gradients/Default/cell/LinearGrad-op1" in seen.steps[-1].names("Gradients/")


def test_shared_modules_and_weights_have_one_name() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(6, 4)
            self.head = nn.Linear(4, 6, bias=False)
            self.head.weight = self.words.weight
            self.same = self.head

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.same(self.words(x))

    seen = train(Tied(), torch.randint(0, 6, (5,)))
    weights = [node.name for node in seen.steps[-1].program.nodes if node.role == "weight"]
    assert weights == ["words.weight"]
    assert seen.steps[-1].node("Default/head/Linear-op0").inputs[1] == ("words.weight", 0)


def test_outputs_in_tuples_dictionaries_and_dataclasses_are_slots() -> None:
    @dataclass
    class Output:
        logits: torch.Tensor
        nothing: None
        states: tuple[torch.Tensor, ...]

    class Head(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(3))

        def forward(self, x: torch.Tensor, *, mask: torch.Tensor | None = None) -> Output:
            assert mask is not None
            return Output(x * self.weight, None, (x + 1, {"deep": x + 2}["deep"]))

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = nn.LSTM(3, 3)
            self.head = Head()

        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor | None]:
            output, _ = self.lstm(x)
            found = self.head(output, mask=torch.ones(2))
            return {"logits": found.logits + found.states[1], "none": None}

    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with Seen(model, optimizer) as seen:
        for _ in range(2):
            optimizer.zero_grad()
            model(torch.randn(4, 2, 3))["logits"].sum().backward()
            optimizer.step()
    step = seen.steps[-1]
    assert len(seen.steps) == 2
    assert step.program is seen.steps[0].program
    assert [slot.shape for slot in step.node("Default/lstm/LSTM-op0").outputs] == [(4, 2, 3), (1, 2, 3), (1, 2, 3)]
    assert len(step.node("Default/head/Head-op0").outputs) == 3
    assert step.of("Default/head/Head-op0", 2).count == 24


def test_a_value_that_is_written_to_in_place_afterwards_has_the_row_of_what_it_was() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(inplace=True), nn.Linear(8, 2))
    x = torch.randn(6, 4)
    before = model[0](x).detach()
    seen = train(model, x, steps=1)
    step = seen.steps[0]
    assert step.of("Default/0/Linear-op0").min == pytest.approx(float(before.min()))
    assert step.of("Default/1/ReLU-op0").min == 0.0
    assert links(seen, "Default/1/ReLU-op0") == ["Default/0/Linear-op0"]
    assert links(seen, "Default/2/Linear-op0") == ["Default/1/ReLU-op0"]


def test_a_function_that_writes_in_place_between_modules_is_a_node() -> None:
    class InPlace(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(4, 4)
            self.second = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.second(F.relu_(self.first(x)))

    seen = train(InPlace(), torch.randn(3, 4))
    assert links(seen, "Default/second/Linear-op0") == ["Default/InPlace-op0"]
    assert links(seen, "Default/InPlace-op0") == ["Default/first/Linear-op0"]
    assert seen.steps[0].program is seen.steps[1].program


@pytest.mark.parametrize("reentrant", [True, False])
def test_what_is_computed_again_for_a_checkpoint_is_no_other_call(reentrant: bool) -> None:
    class Checkpointed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Linear(4, 4)
            self.block = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return checkpoint(self.block, self.stem(x), use_reentrant=reentrant)

    seen = train(Checkpointed(), torch.randn(3, 4), steps=3)
    step = seen.steps[-1]
    assert [name for name in step.names("Default/") if "Linear" in name] == [
        "Default/stem/Linear-op0",
        "Default/block/0/Linear-op0",
        "Default/block/2/Linear-op0",
    ]
    # Gradients within the block are seen, too, though its first pass took no part in them.
    assert ("Gradients/Default/block/1/TanhGrad-op0", 0, "output") in step.rows
    assert {one.program.number for one in seen.steps} <= {1, 2}


def test_steps_that_run_other_modules_are_other_programs() -> None:
    class Choosing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.left = nn.Linear(2, 2)
            self.right = nn.Linear(2, 2)
            self.number = 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.number += 1
            return self.left(x) if self.number % 2 else self.right(x)

    seen = train(Choosing(), torch.randn(3, 2), steps=5)
    assert [step.program.name for step in seen.steps] == [f"kernel_graph_{number}" for number in (0, 1, 0, 1, 0)]
    assert seen.steps[1].names("Default/right") == ["Default/right/Linear-op0"]
    assert ("Default/right/Linear-op0", 0, "output") not in seen.steps[2].rows


def test_steps_with_other_lengths_are_one_program() -> None:
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with Seen(model, optimizer) as seen:
        for length in (3, 5, 1):
            model(torch.randn(length, 2)).sum().backward()
            optimizer.step()
    assert {step.program.number for step in seen.steps} == {1}
    assert seen.steps[1].of("Default/Linear-op0").shape == (5, 2)


def test_more_ways_than_are_drawn_are_said_once(capfd: pytest.CaptureFixture[str]) -> None:
    class Growing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell = nn.Linear(2, 2)
            self.number = 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.number += 1
            for _ in range(self.number):
                x = self.cell(x)
            return x

    seen = train(Growing(), torch.randn(3, 2), steps=40)
    assert len({step.program.number for step in seen.steps}) == 32
    assert len(seen.steps) == 40
    assert capfd.readouterr().err.count("different ways") == 1


def test_parts_without_gradients_have_nodes_and_no_gradients() -> None:
    class Frozen(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.backbone = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
            self.head = nn.Linear(3, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.no_grad():
                features = self.backbone(x)
            return self.head(features)

    seen = train(Frozen(), torch.randn(3, 3))
    step = seen.steps[-1]
    assert links(seen, "Default/head/Linear-op0") == ["Default/backbone/1/ReLU-op0"]
    assert step.names("Gradients/Default/backbone/0/LinearGrad") == []


def test_evaluations_beside_the_training_are_no_part_of_a_step() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with Seen(model, optimizer) as seen:
        for _ in range(3):
            model.train()
            optimizer.zero_grad()
            model(torch.randn(2, 3)).sum().backward()
            optimizer.step()
            model.eval()
            with torch.no_grad():
                for _ in range(4):
                    model(torch.randn(2, 3))
    assert {step.program.number for step in seen.steps} == {1}
    assert seen.steps[-1].names("Default/0") == ["Default/0/Linear-op0"]


def test_an_exception_that_a_script_catches_in_mid_forward_does_no_harm() -> None:
    class Sometimes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
            self.fails = False

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.inner(x)
            if self.fails:
                raise MemoryError
            return x * 2

    model = Sometimes()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with Seen(model, optimizer) as seen:
        for number in range(3):
            if number == 1:
                model.fails = True
                with pytest.raises(MemoryError):
                    model(torch.randn(2, 2))
                model.fails = False
            model(torch.randn(2, 2)).sum().backward()
            optimizer.step()
    assert [step.program.number for step in seen.steps] == [1, 2, 1]
    assert seen.steps[2].names("Default/Sometimes") == ["Default/Sometimes-op0"]


def test_other_threads_are_passed_through() -> None:
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with Seen(model, optimizer) as seen:
        for _ in range(2):
            thread = threading.Thread(target=lambda: model(torch.ones(1, 2)))
            model(torch.randn(2, 2)).sum().backward()
            thread.start()
            thread.join()
            optimizer.step()
    assert seen.steps[-1].names("Default/Linear") == ["Default/Linear-op0"]


def test_models_are_copied_and_pickled_as_ever_while_they_are_debugged() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with Seen(model, optimizer) as seen:
        model(torch.randn(2, 2)).sum().backward()
        twin = copy.deepcopy(model)
        again = pickle.loads(pickle.dumps(model))  # noqa: S301 - our own
        optimizer.step()
        twin(torch.ones(1, 2))
    assert seen.steps[0].names("Default/0") == ["Default/0/Linear-op0"]
    assert torch.equal(again[0].weight, twin[0].weight)


def test_nothing_remains_in_pytorch_afterwards() -> None:
    from torch.nn.modules import module as hooks
    from torch.optim import optimizer as optimizers

    before = torch.autograd.backward, torch.amp.GradScaler.step
    train(nn.Linear(2, 2), torch.randn(2, 2))
    assert not hooks._global_forward_hooks
    assert not hooks._global_forward_pre_hooks
    assert not optimizers._global_optimizer_post_hooks
    assert (torch.autograd.backward, torch.amp.GradScaler.step) == before


def test_the_users_line_is_that_which_called_the_module() -> None:
    seen = train(Functional(), torch.randn(2, 4), steps=1)
    stack = seen.steps[0].node("Default/first/Linear-op0").stack
    assert stack[0].code == "hidden = torch.tanh(self.first(x))"
    assert stack[0].function == "forward"
    gradient = seen.steps[0].node("Gradients/Default/first/weight/AccumulateGrad-op0")
    assert gradient.stack == stack


def test_float16_and_bfloat16_autocast_are_seen_in_their_types() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with Seen(model, optimizer) as seen:
        for dtype in (torch.bfloat16, torch.float16):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype):
                loss = model(torch.randn(3, 4)).float().sum()
            loss.backward()
            optimizer.step()
    assert seen.steps[0].of("Default/0/Linear-op0").dtype == "bfloat16"
    assert seen.steps[1].of("Default/0/Linear-op0").dtype == "float16"
    assert seen.steps[1].of("0.weight").dtype == "float32"


def test_channels_last_has_the_same_rows_as_contiguous() -> None:
    def rows(layout: torch.memory_format) -> list[float]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()).to(memory_format=layout)
        seen = train(model, torch.randn(2, 3, 8, 8).contiguous(memory_format=layout), steps=1)
        row = seen.steps[0].of("Default/0/Conv2d-op0")
        return [row.mean, row.min, row.max, row.std]

    assert rows(torch.channels_last) == pytest.approx(rows(torch.contiguous_format), rel=1e-4)


def test_a_frozen_encoder_in_attention_is_linked_through_autograd() -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.0)
    seen = train(layer, torch.randn(2, 3, 8))
    assert links(seen, "Default/linear2/Linear-op0")
    attention = seen.steps[-1].node("Default/self_attn/MultiheadAttention-op0")
    assert ("self_attn.in_proj_weight", 0) in attention.inputs
    assert np.isfinite(seen.steps[-1].of("Gradients/Default/self_attn/in_proj_weight/AccumulateGrad-op0").l2_norm)


def test_nodes_are_told_one_by_one_when_the_training_may_stop_at_them() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with Seen(model, optimizer, stops_at_nodes=True) as seen:
        model(torch.randn(2, 2)).sum().backward()
        optimizer.step()
    assert seen.agent.nodes_done[:4] == [
        "Default/0/Linear-op0",
        "Default/1/ReLU-op0",
        "Default/Loss-op0",
        "Gradients/Default/LossGrad-op0",
    ]


@pytest.fixture
def compiling() -> Iterator[None]:
    """Forget what was compiled, before and afterwards."""
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("compiling")
def test_compiled_models_are_seen_from_outside_and_it_is_said(capfd: pytest.CaptureFixture[str]) -> None:
    model = Functional()
    compiled = torch.compile(model, backend="eager")
    seen = train(compiled, torch.randn(2, 4), steps=3)
    step = seen.steps[-1]
    assert step.names("Default/") == ["Default/Functional-op0", "Default/Loss-op0"]
    assert ("first.weight", 0) in step.node("Default/Functional-op0").inputs
    assert step.of("Gradients/Default/first/weight/AccumulateGrad-op0").count == 16
    assert capfd.readouterr().err.count("is compiled") == 1


@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("compiling")
def test_a_compiled_part_of_a_model_is_one_node(capfd: pytest.CaptureFixture[str]) -> None:
    model = Functional()
    model.second = torch.compile(model.second, backend="eager")  # type: ignore[assignment]
    seen = train(model, torch.randn(2, 4), steps=2)
    assert seen.steps[-1].names("Default/second") == ["Default/second/Linear-op0"]
    assert links(seen, "Default/second/Linear-op0") == ["Default/Functional-op0"]
    model = Functional()
    model.second.compile(backend="eager")
    train(model, torch.randn(2, 4), steps=2)
    assert "compiled in place" in capfd.readouterr().err


def test_tensors_that_outlive_a_step_have_one_hook_of_ours_and_none_afterwards() -> None:
    class Prompted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.prompt, self.linear = Prompt(), nn.Linear(4, 4)

        def forward(self, inputs: torch.Tensor, computed: torch.Tensor) -> torch.Tensor:
            return self.linear(inputs) * self.prompt() + self.linear(computed)

    class Prompt(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(4))

        def forward(self) -> torch.Tensor:
            return self.weight

    model = Prompted()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    inputs = torch.randn(2, 4, requires_grad=True)
    computed = inputs.exp()
    tensors = (inputs, model.prompt.weight, computed)

    def hooks() -> list[int]:
        handles = [(tensor.grad_fn or tensor) for tensor in tensors]
        of_ones_own = [
            one.register_hook(lambda _: None) if isinstance(one, torch.Tensor) else one.register_prehook(lambda _: None)
            for one in handles
        ]
        counts = [len(handle.hooks_dict_ref()) - 1 for handle in of_ones_own]
        for handle in of_ones_own:
            handle.remove()
        return counts

    with Seen(model, optimizer) as seen:
        for _ in range(4):
            model(inputs, computed).sum().backward(retain_graph=True)
            optimizer.step()
            assert hooks() == [1, 1, 1]
        assert seen.steps[-1].of("Gradients/Default/prompt/PromptGrad-op0", io="input").count == 4
    assert hooks() == [0, 0, 0]


@pytest.mark.parametrize("buffered", [False, True])
def test_a_loss_that_is_made_anew_in_each_step_is_the_same_in_all(buffered: bool) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            loss = nn.CrossEntropyLoss(weight=torch.ones(3)) if buffered else nn.CrossEntropyLoss()
            return loss(self.layer(x), torch.zeros(len(x), dtype=torch.long))

    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    with Seen(model, optimizer) as seen:
        for _ in range(5):
            optimizer.zero_grad()
            model(torch.randn(5, 4)).backward()
            optimizer.step()
    assert seen.steps[1].names("Default/") == [
        "Default/layer/Linear-op0",
        "Default/CrossEntropyLoss/CrossEntropyLoss-op0",
        "Default/Loss-op0",
    ]
    assert len({id(step.program) for step in seen.steps[1:]}) == 1
