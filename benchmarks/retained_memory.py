"""How much a training's peak memory grows by the values that are kept of it: at most by the memory budget.

    python benchmarks/retained_memory.py [NAME ...] [--budget 50] [--captures modules ops]

Each program runs alone, with nothing kept (a budget of 0), and with values kept of all that its steps compute: they are
recorded. Each run is a process forked from one that has imported everything; its peak is that of its resident memory,
after the models were made. What the debugger itself takes is the difference to a budget of 0, at most 48 MB here; the
difference between the two budgets must not exceed the budget. The exit code is 1 if any does.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import socket
import sys
import tempfile
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import tensight.agents.torch.operators
import tensight.dumps.recorder  # noqa: F401 - imported here, so that both are in each process
from tensight.agents.core.settings import AgentSettings
from tensight.agents.torch.debugger import Debugger

if TYPE_CHECKING:
    from collections.abc import Callable

MB = 1_000_000
ROWS, WIDTH = 256, 4096
"""Of the activations, which take 4 MB each."""
DEPTH, STEPS = 6, 4
MOST_OF_ITS_OWN_MB = 48
MMAP_THRESHOLD_BYTES = 65536
"""Tensors from this size on are given back to the system when they are freed: a peak is then that of what is alive."""
_M_MMAP_THRESHOLD = -3


class Layer(nn.Module):
    """A cheap layer with large activations."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, tensor: torch.Tensor) -> torch.Tensor:
        return torch.tanh(tensor * self.weight)


class Contexts(torch.autograd.Function):
    """Keeps two large tensors in its context."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor) -> torch.Tensor:
        ctx.scratch = torch.ones(ROWS, WIDTH)
        ctx.save_for_backward(torch.ones(ROWS, WIDTH))
        return tensor * 2

    @staticmethod
    def backward(_: Any, gradient: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return gradient * 2


class InContexts(Layer):
    """Passes what it computes through a function with a large context."""

    def forward(self, tensor: torch.Tensor) -> torch.Tensor:
        return Contexts.apply(super().forward(tensor)[:, :64].repeat(1, WIDTH // 64))  # type: ignore[no-any-return]


class Checkpointed(nn.Module):
    """Computes its layers again in the backward pass."""

    def __init__(self, *, is_reentrant: bool) -> None:
        super().__init__()
        self.inner = nn.Sequential(Layer(), Layer())
        self.is_reentrant = is_reentrant

    def forward(self, tensor: torch.Tensor) -> torch.Tensor:
        return checkpoint(self.inner, tensor, use_reentrant=self.is_reentrant)  # type: ignore[no-any-return]


class Sliced(nn.Module):
    """Returns small views of large memory."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = Layer()

    def forward(self, tensor: torch.Tensor) -> torch.Tensor:
        return self.layer(tensor.repeat(1, WIDTH // 8))[:, :8]  # type: ignore[no-any-return]


class Unrolled(nn.Module):
    """Calls one layer again and again."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = Layer()

    def forward(self, tensor: torch.Tensor) -> torch.Tensor:
        state = tensor
        for _ in range(8):
            state = self.cell(state + tensor)
        return state


def batch(width: int = WIDTH) -> torch.Tensor:
    return torch.randn(ROWS, width)


def loss_of(model: nn.Module, width: int = WIDTH) -> torch.Tensor:
    return model(batch(width)).square().mean()  # type: ignore[no-any-return]


def update(model: nn.Module, optimizer: torch.optim.Optimizer, width: int = WIDTH) -> None:
    optimizer.zero_grad()
    loss_of(model, width).backward()
    optimizer.step()


def update_narrow(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    update(model, optimizer, 8)


def update_with_forward(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    update(model, optimizer)
    for _ in range(3):
        model(batch())  # whose backward pass never runs


def update_with_requiring_input(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    model(batch().requires_grad_()).square().mean().backward()
    optimizer.step()


def penalize(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    inputs = batch().requires_grad_()
    loss = model(inputs).square().mean()
    (gradient,) = torch.autograd.grad(loss, inputs, create_graph=True)
    (loss + gradient.square().mean()).backward()
    optimizer.step()


def compare_forwards(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    first, second, third = (model(batch()) for _ in range(3))
    ((first - second).square() - (first - third).square()).mean().backward()
    optimizer.step()


def infer_between(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    update(model, optimizer)
    with torch.no_grad():
        model(batch())
    with torch.inference_mode():
        model(batch())


def accumulate(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    for _ in range(4):
        loss_of(model).backward()
    optimizer.step()


def grow(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    update(model, optimizer)
    for parameter in model.parameters():
        # The same shape, but other memory; a shape that grows would need other batches.
        parameter.data = torch.cat([parameter.data[1:], parameter.data[:1]])


def layers(kind: Callable[[], nn.Module] = Layer) -> nn.Module:
    return nn.Sequential(*(kind() for _ in range(DEPTH)))


PROGRAMS: dict[str, tuple[Callable[[], nn.Module], Callable[[nn.Module, torch.optim.Optimizer], None]]] = {
    "plain": (layers, update),
    "contexts": (lambda: layers(InContexts), update),
    "forward-without-backward": (lambda: layers(InContexts), update_with_forward),
    "checkpointing": (lambda: layers(lambda: Checkpointed(is_reentrant=False)), update),
    "reentrant-checkpointing": (lambda: layers(lambda: Checkpointed(is_reentrant=True)), update_with_requiring_input),
    "double-backward": (layers, penalize),
    "several-forwards": (layers, compare_forwards),
    "inference-between": (layers, infer_between),
    "accumulation": (layers, accumulate),
    "small-views": (lambda: layers(Sliced), update_narrow),
    "unrolled": (Unrolled, update),
    "other-memory": (layers, grow),
}


def peak_mb(name: str, capture: str, budget_mb: int, folder: Path) -> float:
    """Return by how much the resident memory of a program grows at most; without a capture it runs alone."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.write(writing, str(_grown_mb(name, capture, budget_mb, folder)).encode())
            code = 0
        finally:
            os._exit(code)
    os.close(writing)
    with open(reading, "rb") as pipe:
        text = pipe.read().decode()
    os.waitpid(child, 0)
    return float(text or "nan")


def _grown_mb(name: str, capture: str, budget_mb: int, folder: Path) -> float:
    torch.manual_seed(0)
    make, step = PROGRAMS[name]
    model = make()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    debugged: Any = nullcontext()
    if capture:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        debugged = Debugger(
            [],
            AgentSettings(
                port=port,
                capture=capture,  # type: ignore[arg-type]
                record="ring:2",
                record_folder=str(folder / f"{name}-{capture}-{budget_mb}"),
                memory_budget_bytes=budget_mb * MB,
            ),
        )
    before = _status_kb("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    with debugged:
        for _ in range(STEPS):
            step(model, optimizer)
    return (_status_kb("VmHWM") - before) * 1024 / MB


def _status_kb(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", choices=[*PROGRAMS, []], metavar="NAME")
    parser.add_argument("--budget", type=int, default=50, help="MB")
    parser.add_argument("--captures", nargs="+", choices=["modules", "ops"], default=["modules", "ops"])
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, MMAP_THRESHOLD_BYTES)
    heads = ("alone", "budget 0", f"budget {arguments.budget}", "grown by values")
    print(f"{'peak memory, MB':26}{'capture':8}" + "".join(f"{head:>17}" for head in heads), flush=True)
    is_exceeded = False
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments.names or PROGRAMS:
            alone = peak_mb(name, "", 0, Path(folder))
            for capture in arguments.captures:
                nothing, kept = (peak_mb(name, capture, budget, Path(folder)) for budget in (0, arguments.budget))
                fits = kept - nothing <= arguments.budget and nothing - alone <= MOST_OF_ITS_OWN_MB
                is_exceeded |= not fits
                numbers = "".join(f"{number:17.1f}" for number in (alone, nothing, kept, kept - nothing))
                print(f"{name:26}{capture:8}{numbers}{'' if fits else '  exceeded'}", flush=True)
    return int(is_exceeded)


if __name__ == "__main__":
    sys.exit(main())
