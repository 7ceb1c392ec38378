"""Others that watch a training, and values that live long: python beside.py function-mode|dispatch-mode|...

function-mode, dispatch-mode, subclass, saved-tensors, global-hooks, profiled, large-contexts, reentrant,
double-backward, several-forwards, evaluated-between, adapters-checkpointed.
"""

from __future__ import annotations

import sys
import warnings
from typing import Any

import torch
from learning import CLASSES, points, report
from torch import nn
from torch.nn import functional as F  # noqa: N812 - as everybody calls it
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint


def network(width: int = 32) -> nn.Sequential:
    return nn.Sequential(nn.Linear(16, width), nn.GELU(), nn.Linear(width, width), nn.GELU(), nn.Linear(width, CLASSES))


def batches(steps: int) -> Any:
    for step in range(steps):
        rows = torch.arange(32) + step * 32 % 256
        yield inputs[rows], labels[rows]


def learn(model: nn.Module, losses: list[float], steps: int = 20) -> None:
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    for values, classes in batches(steps):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(values), classes)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    report(losses, model, optimizer)


class Perturbing(TorchFunctionMode):
    """Adds a little to every fiftieth result, and counts."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls += 1
        result = function(*args, **(kwargs or {}))
        if self.calls % 50 == 0 and type(result) is torch.Tensor and result.is_floating_point() and result.dim() == 2:
            result = result + 1e-3
        return result


class Counting(TorchDispatchMode):
    """Counts operators."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: dict[str, int] = {}

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls[str(function)] = self.calls.get(str(function), 0) + 1
        return function(*args, **(kwargs or {}))


class Tagged(torch.Tensor):
    """A tensor that counts what is done with it."""

    calls = 0

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        Tagged.calls += 1
        return super().__torch_function__(function, types, args, kwargs)


def function_mode() -> None:
    model, losses = network(), []
    with Perturbing() as mode:
        learn(model, losses)
    print("calls", mode.calls)


def dispatch_mode() -> None:
    model, losses = network(), []
    with Counting() as mode:
        learn(model, losses)
    print(sorted(mode.calls.items()))


def subclass() -> None:
    global inputs
    inputs = inputs.as_subclass(Tagged)
    learn(network(), [])
    print("calls", Tagged.calls)


def saved_tensors() -> None:
    """What is saved for the backward pass is packed as bfloat16, and counted."""
    count = 0

    def pack(value: torch.Tensor) -> torch.Tensor:
        nonlocal count
        count += 1
        return value.bfloat16() if value.dtype == torch.float32 else value

    def unpack(value: torch.Tensor) -> torch.Tensor:
        return value.float() if value.dtype == torch.bfloat16 else value

    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        learn(network(), [])
    print("packed", count)


def global_hooks() -> None:
    count = [0]

    def hook(module: nn.Module, *_: Any) -> None:
        count[0] += 1

    handles = [
        torch.nn.modules.module.register_module_forward_hook(hook),
        torch.nn.modules.module.register_module_full_backward_hook(hook),
    ]
    learn(network(), [])
    for handle in handles:
        handle.remove()
    print("hooks", count[0])


def profiled() -> None:
    """Under PyTorch's profiler, which sees a capture of operators: what it counts is not printed."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU]):
        learn(network(), [], 10)


class Large(torch.autograd.Function):
    """Keeps two large tensors for its backward pass."""

    @staticmethod
    def forward(context: Any, values: torch.Tensor) -> torch.Tensor:
        context.scratch = torch.ones(2 << 20)
        context.save_for_backward(torch.ones(2 << 20))
        return values * 2

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient * 2


class WithLarge(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(6))
        self.head = nn.Linear(16, CLASSES)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            values = values + torch.tanh(Large.apply(layer(values)) / 4)
        return self.head(values)


def large_contexts() -> None:
    """Custom functions that keep 16 MB each, and a forward pass whose backward never runs."""
    model, losses = WithLarge(), []
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    for values, classes in batches(20):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(values), classes)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        model(values)
    report(losses, model, optimizer)


class Checkpointed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.head = nn.Linear(16, 32), nn.Linear(32, CLASSES)
        self.blocks = nn.ModuleList(nn.Sequential(nn.LayerNorm(32), nn.Linear(32, 32), nn.GELU()) for _ in range(4))

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        hidden = self.stem(values)
        for block in self.blocks:
            hidden = hidden + checkpoint(block, hidden, use_reentrant=True)
        return self.head(hidden)


def reentrant() -> None:
    learn(Checkpointed(), [])


def double_backward() -> None:
    """The norm of the gradient towards the input is part of the loss."""
    model, losses = network(), []
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    for values, classes in batches(25):
        values = values.clone().requires_grad_()
        loss = F.cross_entropy(model(values), classes)
        (slope,) = torch.autograd.grad(loss, values, create_graph=True)
        total = loss + 5 * slope.square().sum(1).mean()
        optimizer.zero_grad()
        total.backward()
        optimizer.step()
        losses.append(total.item())
    report(losses, model, optimizer)


def several_forwards() -> None:
    """Each step runs the network four times, with dropout, and pulls the results together."""
    model = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Dropout(0.3), nn.Linear(64, CLASSES))
    optimizer, losses = torch.optim.Adam(model.parameters(), 3e-3), []
    for values, classes in batches(25):
        logits = torch.stack([model(values) for _ in range(4)])
        spread = logits.softmax(-1).var(0).sum(-1).mean()
        loss = F.cross_entropy(logits.mean(0), classes) + spread
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    report(losses, model, optimizer)


def evaluated_between() -> None:
    """After each step the whole data is evaluated in evaluation mode, without gradients, and once with them."""
    model = nn.Sequential(nn.Linear(16, 64), nn.BatchNorm1d(64), nn.GELU(), nn.Dropout(0.2), nn.Linear(64, CLASSES))
    optimizer, losses, shown = torch.optim.Adam(model.parameters(), 3e-3), [], []
    for step, (values, classes) in enumerate(batches(20)):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(values), classes)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        model.eval()
        with torch.no_grad():
            shown.append(F.cross_entropy(model(inputs), labels).item())
        if step % 7 == 6:
            shown.append(model(inputs).sum().item())
        model.train()
    print(shown[-1])
    report(losses, model, optimizer)


def adapters_checkpointed() -> None:
    """Low-rank adapters under reentrant checkpointing, of a frozen network whose embedding's output needs gradients."""

    class Adapted(nn.Module):
        def __init__(self, base: nn.Linear) -> None:
            super().__init__()
            self.base = base.requires_grad_(False)
            self.a, self.b = nn.Linear(base.in_features, 4, bias=False), nn.Linear(4, base.out_features, bias=False)
            nn.init.zeros_(self.b.weight)

        def forward(self, values: torch.Tensor) -> torch.Tensor:
            return self.base(values) + 2 * self.b(self.a(values))

    embed = nn.Embedding(50, 32).requires_grad_(False)
    blocks = nn.ModuleList(
        nn.Sequential(Adapted(nn.Linear(32, 64)), nn.GELU(), Adapted(nn.Linear(64, 32))) for _ in range(2)
    )
    head, losses = nn.Linear(32, 50), []
    parts = nn.ModuleList([embed, blocks, head])
    optimizer = torch.optim.AdamW([p for p in parts.parameters() if p.requires_grad], 1e-2)
    text = torch.randint(0, 50, (64, 12))
    for step in range(30):
        words = text[torch.arange(16) + step * 16 % 64]
        hidden = embed(words).requires_grad_(True)
        for block in blocks:
            hidden = hidden + checkpoint(block, hidden, use_reentrant=True)
        loss = F.cross_entropy(head(hidden).flatten(0, 1), ((3 * words + 1) % 50).flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    report(losses, blocks, head, optimizer)


warnings.filterwarnings("ignore")
torch.manual_seed(22)
inputs, labels = points(288, 16)
{
    "function-mode": function_mode, "dispatch-mode": dispatch_mode, "subclass": subclass,
    "saved-tensors": saved_tensors, "global-hooks": global_hooks, "profiled": profiled,
    "large-contexts": large_contexts, "reentrant": reentrant, "double-backward": double_backward,
    "several-forwards": several_forwards, "evaluated-between": evaluated_between,
    "adapters-checkpointed": adapters_checkpointed,
}[sys.argv[1]]()  # fmt: skip
