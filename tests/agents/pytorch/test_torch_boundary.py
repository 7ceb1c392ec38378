"""What PyTorch does with a training besides training it: traces, exports, compiles, distributes. Nothing is changed."""

from __future__ import annotations

import copy
import io
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import distributed, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.fx.experimental.proxy_tensor import make_fx

from tensight.agents.torch import boundary
from tests.agents.pytorch import trainings
from tests.agents.pytorch.captured_operators import captured, operators
from tests.agents.pytorch.networks import Mlp
from tests.agents.pytorch.seen_steps import Seen
from tests.agents.pytorch.test_torch_tensor_kinds import Doubled
from tests.agents.pytorch.trainings import Training
from tests.agents.pytorch.watched_training import PATIENCE_S, Person, debug

if TYPE_CHECKING:
    from tensight.client import Session
    from tests.server.running import RunningServer

pytestmark = pytest.mark.filterwarnings("ignore")  # of what PyTorch has not finished, or gives up
CAPTURES = ("modules", "ops")


def watch(session: Session) -> None:
    session.watch_recommended()
    session.watch("weight_change_too_large", abs_mean_update_ratio_gt=1e30)


def fake(model: nn.Module, inputs: torch.Tensor) -> None:
    with FakeTensorMode(allow_non_fake_inputs=True):
        model(inputs).sum()
        other = nn.Linear(2, 2)
        other(torch.ones(2)).sum().backward()
        torch.optim.AdamW(other.parameters()).step()


TRANSFORMATIONS: dict[str, Callable[[nn.Module, torch.Tensor], Any]] = {
    "trace": torch.jit.trace,
    "script": lambda model, inputs: torch.jit.script(nn.Sequential(nn.Linear(16, 2), nn.ReLU()))(inputs),
    "symbolic trace": lambda model, inputs: torch.fx.symbolic_trace(model),
    "trace of operators": lambda model, inputs: make_fx(lambda given: model(given))(inputs),
    "trace of fake operators": lambda model, inputs: make_fx(
        lambda given: model(given), tracing_mode="fake", _allow_non_fake_inputs=True
    )(inputs),
    "export": lambda model, inputs: torch.export.export(model, (inputs,)),
    # Its other exporter is `torch.export`, above.
    "ONNX": lambda model, inputs: torch.onnx.export(model, (inputs,), io.BytesIO(), dynamo=False),
    "fake": fake,
    "functionalize": lambda model, inputs: torch.func.functionalize(lambda given: model(given))(inputs),
}


def transformed() -> Training:
    """A training that has something else done with its model before each step, one after the other."""
    torch.manual_seed(trainings.SEED)
    batch = trainings.batches_of(*trainings.points(), 16)
    model = Mlp(16, 32, 32, trainings.CLASSES)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    todo = list(TRANSFORMATIONS.values())

    def loss_of(number: int) -> torch.Tensor:
        inputs, labels = batch(number)
        todo[number % len(todo)](model, inputs)
        return nn.functional.cross_entropy(model(inputs), labels)

    return trainings.descend(model, optimizer, loss_of)


def of_ones_own_tensors() -> Training:
    """A training whose weights are tensors of a class with operators of its own, and no memory."""
    torch.manual_seed(trainings.SEED)
    model = nn.Linear(4, 2, bias=False)
    model.weight = nn.Parameter(Doubled(model.weight.detach()))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return trainings.descend(model, optimizer, lambda _: model(Doubled(torch.randn(3, 4))).square().mean())


def lazy() -> Training:
    """A training of modules that learn their shapes from the first batch."""
    torch.manual_seed(trainings.SEED)
    model = nn.Sequential(nn.LazyLinear(8), nn.Tanh(), nn.LazyLinear(2))
    optimizers: list[torch.optim.Optimizer] = []

    def step(_: int) -> torch.Tensor:
        loss = model(torch.randn(3, 4)).square().mean()
        if not optimizers:
            optimizers.append(torch.optim.SGD(model.parameters(), lr=0.1))
        optimizers[0].zero_grad()
        loss.backward()
        optimizers[0].step()
        return loss

    return Training((model,), (), step)


class Made(nn.Module):
    """Makes something of a tensor."""

    def __init__(self, make: Callable[[torch.Tensor], Any]) -> None:
        super().__init__()
        self.make = make

    def forward(self, given: Any) -> Any:
        return self.make(given)


UNUSUAL: dict[str, tuple[Callable[[torch.Tensor], Any], Callable[[Any], torch.Tensor]]] = {
    "sparse": (torch.Tensor.to_sparse, torch.Tensor.to_dense),
    "sparse rows": (torch.Tensor.to_sparse_csr, torch.Tensor.to_dense),
    "nested": (
        lambda given: torch.nested.as_nested_tensor([given[:1], given[1:]]),
        lambda given: given.to_padded_tensor(0.0),
    ),
    "jagged": (
        lambda given: torch.nested.as_nested_tensor([given[:1], given[1:]], layout=torch.jagged),
        lambda given: given.values(),
    ),
    "quantised": (
        lambda given: torch.quantize_per_tensor(given.detach(), 0.1, 0, torch.qint8),
        lambda given: given.dequantize(),
    ),
    "complex": (torch.fft.fft, lambda given: given.conj().imag),
    "meta": (lambda given: given.to("meta"), lambda given: torch.ones(given.shape)),
}
"""What a module may return, and what the next one makes of it."""


def unusual() -> Training:
    """A training whose modules return tensors of all kinds, one after the other."""
    torch.manual_seed(trainings.SEED)
    first, last = nn.Linear(4, 4), nn.Linear(4, 1)
    between = nn.ModuleList(nn.Sequential(Made(make), Made(read)) for make, read in UNUSUAL.values())
    model = nn.ModuleList([first, between, last])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def loss_of(_: int) -> torch.Tensor:
        hidden = first(torch.randn(3, 4))
        results = torch.stack([each(hidden).sum() for each in between])
        return last(hidden).square().mean() + results.mean().square()

    return trainings.descend(model, optimizer, loss_of)


def adapted() -> Training:
    """Learns to learn: a step of descent inside of the loss, for several tasks at once."""
    torch.manual_seed(trainings.SEED)
    model = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)

    def loss_with(weights: dict[str, torch.Tensor], x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return nn.functional.mse_loss(torch.func.functional_call(model, weights, (x,)), y)

    def loss_of_task(weights: dict[str, torch.Tensor], x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        slopes = torch.func.grad(loss_with)(weights, x[:5], y[:5])
        return loss_with({name: weights[name] - 0.05 * slopes[name] for name in weights}, x[5:], y[5:])

    def loss_of(_: int) -> torch.Tensor:
        x = torch.rand(4, 10, 1)
        y = torch.sin(x + torch.rand(4, 1, 1))
        weights = dict(model.named_parameters())
        return torch.func.vmap(loss_of_task, in_dims=(None, 0, 0))(weights, x, y).mean()

    return trainings.descend(model, optimizer, loss_of)


def of_two_threads() -> Training:
    """Two models of one class, each trained in a thread of its own at the same time."""
    torch.manual_seed(trainings.SEED)
    batch = trainings.batches_of(*trainings.points(), 16)
    models = [Mlp(16, 32, 32, trainings.CLASSES) for _ in range(2)]
    optimizers = [torch.optim.AdamW(model.parameters(), lr=1e-3) for model in models]
    begin = threading.Barrier(2)

    def train(model: nn.Module, optimizer: torch.optim.Optimizer, numbers: Iterable[int]) -> torch.Tensor:
        begin.wait(PATIENCE_S)
        for number in numbers:
            inputs, labels = batch(number)
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(inputs), labels)
            loss.backward()
            optimizer.step()
        return loss

    def step(number: int) -> torch.Tensor:
        with ThreadPoolExecutor(1) as threads:
            other = threads.submit(train, models[1], optimizers[1], range(5))
            loss = train(models[0], optimizers[0], [number])
            return loss + other.result()

    return Training(tuple(models), (optimizers[0],), step)


def sharded() -> Training:
    """FSDP2."""
    torch.manual_seed(trainings.SEED)
    model = Mlp(16, 32, 32, trainings.CLASSES)
    for layer in model.modules():
        if isinstance(layer, nn.Linear):
            fully_shard(layer)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    return trainings.supervised(model, optimizer, trainings.batches_of(*trainings.points(), 16))


def tensor_parallel() -> Training:
    """Tensor parallelism."""
    torch.manual_seed(trainings.SEED)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, trainings.CLASSES))
    parallelize_module(model, init_device_mesh("cpu", (1,)), {"0": ColwiseParallel(), "2": RowwiseParallel()})
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    return trainings.supervised(model, optimizer, trainings.batches_of(*trainings.points(), 16))


def bits(training: Training) -> list[bytes]:
    """What it arrived at; of distributed tensors the part that is here."""
    found = []
    for tensor in training.tensors():
        local = tensor.to_local() if isinstance(tensor, DTensor) else tensor
        local = local.data.inner if isinstance(local.data, Doubled) else local
        found.append(local.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return [*found, torch.get_rng_state().numpy().tobytes()]


@contextmanager
def one_rank() -> Iterator[None]:
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    try:
        yield
    finally:
        distributed.destroy_process_group()


def trains_as_alone(
    server: RunningServer,
    make: Callable[[], Training],
    capture: str,
    steps: int,
    watch: Callable[[Session], Any] = watch,
) -> None:
    alone = make()
    alone.run(steps)
    training = make()
    finding = debug(server, training, steps, person=Person(watch), capture=capture)
    assert finding.ended, finding.summary()
    assert finding.step == steps
    assert bits(training) == bits(alone)


@pytest.mark.long
@pytest.mark.parametrize("capture", CAPTURES)
@pytest.mark.parametrize("watch", [watch, lambda _: None], ids=["watched", "unwatched"])
def test_a_model_is_traced_exported_and_faked_in_a_training(
    torch_server: RunningServer, watch: Callable[[Session], Any], capture: str
) -> None:
    trains_as_alone(torch_server, transformed, capture, 2 * len(TRANSFORMATIONS), watch)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("capture", CAPTURES)
def test_two_models_that_train_at_the_same_time_train_as_alone(torch_server: RunningServer, capture: str) -> None:
    trains_as_alone(torch_server, of_two_threads, capture, 8)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("capture", CAPTURES)
def test_transforms_of_functions_compute_the_same(torch_server: RunningServer, capture: str) -> None:
    trains_as_alone(torch_server, adapted, capture, 6)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("capture", CAPTURES)
@pytest.mark.parametrize("make", [of_ones_own_tensors, lazy, unusual])
def test_tensors_without_memory_are_left_alone(
    torch_server: RunningServer, make: Callable[[], Training], capture: str
) -> None:
    trains_as_alone(torch_server, make, capture, 6)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("capture", CAPTURES)
@pytest.mark.parametrize("make", [sharded, tensor_parallel])
def test_distributed_tensors_are_read_where_their_part_is(
    torch_server: RunningServer, make: Callable[[], Training], capture: str
) -> None:
    with one_rank():
        trains_as_alone(torch_server, make, capture, 6)


def test_the_part_of_a_distributed_weight_has_statistics() -> None:
    with one_rank():
        training = tensor_parallel()
        weight = training.models[0][0].weight
        with Seen(*training.models, *training.optimizers) as seen:
            training.run(2)
            assert seen.steps[1].of("0.weight").mean == pytest.approx(float(weight.to_local().double().mean()))


def scripted() -> nn.Module:
    return torch.jit.script(nn.Sequential(nn.Linear(4, 4), nn.ReLU()))


def traced() -> nn.Module:
    return torch.jit.trace(nn.Sequential(nn.Linear(4, 4), nn.ReLU()), torch.randn(1, 4))


def of_torchscript(make: Callable[[], nn.Module]) -> Training:
    """A training of a model that TorchScript runs a part of."""
    torch.manual_seed(trainings.SEED)
    model = nn.Sequential(make(), nn.Linear(4, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    return trainings.descend(model, optimizer, lambda _: model(torch.randn(3, 4)).square().mean())


@pytest.mark.sampled(4)
@pytest.mark.parametrize("make", [scripted, traced])
@pytest.mark.parametrize("capture", CAPTURES)
def test_a_model_of_torchscript_trains_as_alone(
    torch_server: RunningServer, make: Callable[[], nn.Module], capture: str
) -> None:
    trains_as_alone(torch_server, lambda: of_torchscript(make), capture, 6)


@pytest.mark.parametrize("make", [scripted, traced])
def test_what_torchscript_runs_is_one_node_with_all_its_weights(make: Callable[[], nn.Module]) -> None:
    training = of_torchscript(make)
    with Seen(*training.models, *training.optimizers) as seen:
        training.run(2)
    step = seen.steps[1]
    assert step.names("Default/0") == ["Default/0/Sequential-op0"]
    assert {("0.0.weight", 0), ("0.0.bias", 0)} <= set(step.node("Default/0/Sequential-op0").inputs)
    assert step.of("0.0.weight").nan_count == 0


@pytest.mark.parametrize("make", [scripted, traced])
def test_operators_that_torchscript_runs_are_those_of_its_module(make: Callable[[], nn.Module]) -> None:
    training = of_torchscript(make)
    with captured(*training.models) as seen:
        # TorchScript compiles again after its first call.
        for _ in range(3):
            nodes = operators(seen.step(lambda: training.run(1)))
            within = [node for name, node in nodes.items() if name.startswith("Default/0/")]
            read = {source for node in within for source in node.inputs}
            assert {("0.0.weight", 0), ("0.0.bias", 0)} <= read
            assert ("Default/0/relu-op0", 0) in nodes["Default/1/addmm-op0"].inputs


@pytest.mark.long
@pytest.mark.parametrize("capture", CAPTURES)
def test_a_compiled_update_ends_a_step_and_computes_the_same(torch_server: RunningServer, capture: str) -> None:
    def training() -> Training:
        torch._dynamo.reset()
        torch.manual_seed(trainings.SEED)
        model = Mlp(16, 32, 32, trainings.CLASSES)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        batch = trainings.batches_of(*trainings.points(), 16)
        update = torch.compile(optimizer.step, backend="aot_eager")

        def step(number: int) -> torch.Tensor:
            inputs, labels = batch(number)
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(inputs), labels)
            loss.backward()
            update()
            return loss

        return Training((model,), (optimizer,), step)

    trains_as_alone(torch_server, training, capture, 6)


@pytest.mark.long
@pytest.mark.parametrize("capture", CAPTURES)
def test_what_is_saved_in_a_debugged_training_loads_where_tensight_is_not_installed(
    torch_server: RunningServer, tmp_path: Path, capture: str
) -> None:
    torch.manual_seed(trainings.SEED)
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    saved = tmp_path / "saved.pt"

    def loss_of(_: int) -> torch.Tensor:
        inputs = torch.randn(3, 4, requires_grad=True)
        loss = model(inputs).square().mean()
        torch.save((model, optimizer, inputs, copy.deepcopy((model, optimizer))), saved)
        return loss

    debug(torch_server, trainings.descend(model, optimizer, loss_of), 3, person=Person(watch), capture=capture)
    script = (
        "import sys; sys.modules['tensight'] = None\n"
        "import torch; model, optimizer, inputs, _ = torch.load(sys.argv[1], weights_only=False)\n"
        "model(inputs).sum().backward(); optimizer.step(); print(len(optimizer.state))"
    )
    command = [sys.executable, "-c", script, str(saved)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert ended.stdout == "4\n"


def test_whoever_cannot_be_asked_whether_pytorch_traces_ends_no_training(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> bool:
        raise RuntimeError("changed in a newer version")

    errors: list[Exception] = []
    guarded = boundary.Boundary(errors.append)
    monkeypatch.setattr(boundary, "is_transforming", fails)
    weight = nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([weight], 0.1)
    guarded.follow_steps(lambda *_: None, lambda *_: None)
    try:
        assert guarded.hook(lambda: 1)() is None
        assert guarded.call(lambda: 1) is None
        weight.sum().backward()
        optimizer.step()
    finally:
        guarded.leave()
    assert len(errors) == 4
