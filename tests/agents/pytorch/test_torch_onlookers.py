"""What the debugger reads of a training is seen by nothing that looks on in it: modes, subclasses and hooks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from torch.nn.modules import module as global_hooks
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import tensight
from tensight.agents.core.settings import AgentSettings
from tensight.agents.torch.debugger import Debugger
from tests.processes.ports import kept_port

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from pathlib import Path

    from tests.server.running import RunningServer

STEPS = 4


def function_mode(seen: Counter[str], _: nn.Module, stack: ExitStack) -> None:
    class Mode(TorchFunctionMode):
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen[getattr(function, "__name__", str(function))] += 1
            return function(*args, **(kwargs or {}))

    stack.enter_context(Mode())


def dispatch_mode(seen: Counter[str], _: nn.Module, stack: ExitStack) -> None:
    class Mode(TorchDispatchMode):
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen[str(function)] += 1
            return function(*args, **(kwargs or {}))

    stack.enter_context(Mode())


def subclass(seen: Counter[str], *_: object) -> Callable[[torch.Tensor], torch.Tensor]:
    class Told(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen[getattr(function, "__name__", str(function))] += 1
            return super().__torch_function__(function, types, args, kwargs or {})

    return lambda tensor: tensor.as_subclass(Told)


def saved_tensors(seen: Counter[str], _: nn.Module, stack: ExitStack) -> None:
    def passed(tensor: torch.Tensor) -> torch.Tensor:
        seen["saved"] += 1
        return tensor

    stack.enter_context(torch.autograd.graph.saved_tensors_hooks(passed, passed))


def autocast(seen: Counter[str], model: nn.Module, stack: ExitStack) -> None:
    dispatch_mode(seen, model, stack)
    stack.enter_context(torch.autocast("cpu", torch.bfloat16))


def hooks_of_all_modules(seen: Counter[str], _: nn.Module, stack: ExitStack) -> Callable[[torch.Tensor], torch.Tensor]:
    for register, name in (
        (global_hooks.register_module_forward_pre_hook, "before"),
        (global_hooks.register_module_forward_hook, "after"),
        (global_hooks.register_module_full_backward_hook, "backward"),
    ):
        stack.callback(register(lambda *_, name=name: seen.update([name])).remove)
    return lambda tensor: tensor.requires_grad_()


def hooks_of_weights(seen: Counter[str], model: nn.Module, _: ExitStack) -> None:
    for weight in model.parameters():
        weight.register_hook(lambda _: seen.update(["gradient"]))
        weight.register_post_accumulate_grad_hook(lambda _: seen.update(["accumulated"]))


ONLOOKERS: tuple[Callable[..., Any], ...] = (
    function_mode,
    dispatch_mode,
    subclass,
    saved_tensors,
    autocast,
    hooks_of_all_modules,
    hooks_of_weights,
)
"""Each gets a counter, the model and a stack of contexts, and may return a function that prepares the batches."""


def train(onlooker: Callable[..., Any], debugged: AbstractContextManager[object]) -> tuple[Counter[str], list[float]]:
    """Return what an onlooker has seen of a training, and its losses."""
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.LayerNorm(16), nn.Linear(16, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=torch.tensor(0.01))
    scaler = torch.amp.GradScaler("cpu")
    seen: Counter[str] = Counter()
    losses = []
    with ExitStack() as stack:
        stack.enter_context(debugged)
        prepare = onlooker(seen, model, stack) or (lambda tensor: tensor)
        for _ in range(STEPS):
            loss = (model(prepare(torch.randn(4, 8))) ** 2).mean()
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            with torch.no_grad():
                model(prepare(torch.randn(4, 8)))
            losses.append(loss)
    return seen, [loss.item() for loss in losses]


@pytest.mark.parametrize("capture", ["modules", "ops"])
@pytest.mark.parametrize("onlooker", ONLOOKERS, ids=lambda onlooker: onlooker.__name__)
def test_an_onlooker_sees_what_it_sees_without_the_debugger(
    onlooker: Callable[..., Any], capture: str, tmp_path: Path
) -> None:
    settings = AgentSettings(port=kept_port(), capture=capture, record="ring:2", record_folder=tmp_path / "recording")
    assert train(onlooker, Debugger([], settings)) == train(onlooker, nullcontext())
    assert (tmp_path / "recording").exists()


@pytest.mark.parametrize("capture", ["modules", "ops"])
@pytest.mark.parametrize("onlooker", ONLOOKERS, ids=lambda onlooker: onlooker.__name__)
def test_an_onlooker_of_a_watched_training_sees_what_it_sees_without_the_debugger(
    onlooker: Callable[..., Any], capture: str, torch_server: RunningServer
) -> None:
    host, _, port = torch_server.debugger.rpartition(":")
    job = f"{onlooker.__name__}-{capture}"
    settings = AgentSettings(host=host, port=int(port), capture=capture, recommended=True, job=job)
    assert train(onlooker, Debugger([], settings)) == train(onlooker, nullcontext())
    with tensight.connect(torch_server.url) as server:
        assert server.session(job).summary.step == STEPS
