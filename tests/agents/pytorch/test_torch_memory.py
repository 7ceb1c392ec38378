"""What is kept of a training's tensors is their memory: what autograd holds is freed as without the debugger."""

from __future__ import annotations

import gc
import weakref
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from tensight.agents.core.retention import Retention
from tensight.agents.core.settings import AgentSettings
from tensight.agents.torch.arrays import HOLDING_BYTES, TorchReader
from tensight.agents.torch.debugger import Debugger
from tests.processes.ports import kept_port

if TYPE_CHECKING:
    from pathlib import Path

CAPTURES = ("modules", "ops")


def recorded(folder: Path, capture: str) -> Debugger:
    """Return a debugger that keeps the values of each step; there is no server."""
    return Debugger([], AgentSettings(port=kept_port(), capture=capture, record="ring:2", record_folder=folder / "run"))


class Scratch:
    """What a custom function keeps beside tensors."""


class Doubled(torch.autograd.Function):
    """Doubles, and keeps an object in its context."""

    kept: list[weakref.ref[Scratch]]

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor) -> torch.Tensor:
        ctx.scratch = Scratch()
        Doubled.kept.append(weakref.ref(ctx.scratch))
        return tensor * 2

    @staticmethod
    def backward(_: Any, gradient: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return gradient * 2


class Doubling(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, tensor: torch.Tensor) -> torch.Tensor:
        return Doubled.apply(self.linear(tensor))  # type: ignore[no-any-return]


def alive() -> int:
    gc.collect()
    return sum(reference() is not None for reference in Doubled.kept)


@pytest.mark.parametrize("capture", CAPTURES)
def test_graphs_are_freed_though_the_values_that_they_computed_are_kept(capture: str, tmp_path: Path) -> None:
    Doubled.kept = []
    model = nn.Sequential(Doubling(), nn.ReLU(), Doubling())
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    with recorded(tmp_path, capture) as debugger:
        for step in range(4):
            for _ in range(2):
                model(torch.randn(2, 4))  # a forward pass whose backward pass never runs
                assert alive() == 0
                loss = model(torch.randn(2, 4)).sum()
                loss.backward()
                del loss
                assert alive() == 0
            optimizer.step()
            optimizer.zero_grad()
            assert debugger.agent is not None
            assert debugger.agent.step == step + 1
            assert debugger.agent.observed.retention.kept_bytes > 0
            assert alive() == 0


def grow(model: nn.Sequential, generator: torch.Generator) -> None:
    """Widen the hidden layer in place, as a growing vocabulary does."""
    with torch.no_grad():
        for weight, addition, axis in (
            (model[0].weight, torch.randn(4, 8, generator=generator), 0),
            (model[0].bias, torch.zeros(4), 0),
            (model[2].weight, torch.randn(1, 4, generator=generator), 1),
        ):
            weight.data = torch.cat([weight.data, addition], axis)
            weight.grad = None


def prune(model: nn.Sequential, _: torch.Generator) -> None:
    """Remove half of the hidden layer in place."""
    for weight, axis in ((model[0].weight, 0), (model[0].bias, 0), (model[2].weight, 1)):
        weight.data = weight.data.narrow(axis, 0, 8).clone()
        weight.grad = None


def losses_of_changed(change: Any, debugged: Any, *, within_a_step: bool) -> list[float]:
    """Return the losses of a training that changes the shapes of its weights in place."""
    generator = torch.Generator().manual_seed(5)
    torch.manual_seed(5)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
    inputs = torch.randn(64, 8, generator=generator)
    losses = []
    with debugged:
        for _ in range(2):
            optimizer = torch.optim.Adam(model.parameters(), 1e-2)
            for _ in range(3):
                optimizer.zero_grad()
                loss = functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
            if within_a_step:
                # What pruning by importance does: a backward pass that no update follows.
                importance = model(inputs).square().mean()
                importance.backward()
                del importance
            del loss
            change(model, generator)
    return losses


@pytest.mark.parametrize("capture", CAPTURES)
@pytest.mark.parametrize("within_a_step", [False, True], ids=["between steps", "within a step"])
@pytest.mark.parametrize("change", [grow, prune])
def test_weights_may_change_their_shapes_in_place(
    change: Any, within_a_step: bool, capture: str, tmp_path: Path
) -> None:
    alone = losses_of_changed(change, nullcontext(), within_a_step=within_a_step)
    assert losses_of_changed(change, recorded(tmp_path, capture), within_a_step=within_a_step) == alone


def test_views_count_with_the_memory_that_they_keep_alive_and_only_once() -> None:
    kept = Retention(TorchReader(), 10_000 + 2 * HOLDING_BYTES)
    whole = torch.zeros(1000)
    kept.keep(0, whole[:1])
    assert kept.kept_bytes == 4000 + HOLDING_BYTES
    kept.keep(1, whole[10:20])
    kept.keep(2, whole.view(10, 100).T)
    assert kept.kept_bytes == 4000 + HOLDING_BYTES
    kept.turn_over()
    kept.keep(0, whole)
    assert kept.kept_bytes == 4000 + HOLDING_BYTES
    kept.keep(1, torch.zeros(1600))
    kept.keep(2, torch.zeros(100))
    assert kept.previous(0) is kept.previous(1) is None  # the oldest gave way
    assert kept.kept_bytes <= kept.budget_bytes
    for _ in range(2):
        kept.turn_over()
    assert kept.kept_bytes == 0


def test_a_value_is_that_of_its_moment_where_a_tensor_gets_other_memory() -> None:
    kept = Retention(TorchReader(), 10_000)
    weight = nn.Parameter(torch.ones(3))
    kept.keep(0, weight)
    weight.data = torch.zeros(5)
    value = kept.current(0)
    assert value is not None
    assert value.tolist() == [1, 1, 1]


@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad, nullcontext])
def test_what_is_written_over_is_missing_wherever_it_was_kept(mode: Any) -> None:
    kept = Retention(TorchReader(), 10_000)
    weight = nn.Parameter(torch.ones(3))
    with mode():
        kept.keep(0, weight)
    assert kept.current(0) is not None
    with torch.no_grad():
        weight.add_(1)
    assert kept.current(0) is None


def test_memory_of_earlier_copies_counts_until_it_is_used_again() -> None:
    kept = Retention(TorchReader(), 10_000)
    tensors, one = [torch.zeros(100), torch.zeros(100)], 400 + HOLDING_BYTES
    for slot_id in (0, 1):
        kept.copy_values(slot_id)
    for _ in range(3):
        for slot_id, tensor in enumerate(tensors):
            kept.keep(slot_id, tensor)
        kept.turn_over()
    assert kept.kept_bytes == 4 * one  # those of the last step, and those that the next ones are written to
    kept.keep(0, tensors[0])
    assert kept.kept_bytes == 4 * one
    kept.turn_over()
    assert kept.kept_bytes == 3 * one


def test_versions_are_shared_also_where_a_dispatch_mode_keeps_a_value() -> None:
    kept = Retention(TorchReader(), 10_000)
    tensor = torch.ones(3)

    class Keeping(TorchDispatchMode):
        def __torch_dispatch__(self, function: Any, _: Any, args: Any = (), kwargs: Any = None) -> Any:
            kept.keep(0, tensor)
            return function(*args, **(kwargs or {}))

    with Keeping():
        torch.zeros(1)
    assert kept.current(0) is not None
    tensor.add_(1)
    assert kept.current(0) is None


def test_values_are_kept_within_transforms_of_functions() -> None:
    kept = Retention(TorchReader(), 10_000)
    weight = torch.ones(3)

    def function(wrapped: torch.Tensor) -> torch.Tensor:
        kept.keep(0, weight)
        kept.keep(1, wrapped)
        return (wrapped * weight).sum()

    torch.func.grad(function)(torch.ones(3))
    value = kept.current(0)
    assert value is not None
    assert value.tolist() == [1, 1, 1]
    assert kept.current(1) is None
    weight.add_(1)
    assert kept.current(0) is None


@pytest.mark.parametrize("capture", CAPTURES)
def test_slots_that_appear_late_are_observed_as_those_before(
    tmp_path: Path, capture: str, capfd: pytest.CaptureFixture[str]
) -> None:
    # More optimizer states than rows that are ready at first; they are made by the first update.
    model = nn.Sequential(*(nn.Linear(2, 2) for _ in range(40)))
    optimizer = torch.optim.Adam(model.parameters())
    with recorded(tmp_path, capture):
        for _ in range(2):
            optimizer.zero_grad()
            model(torch.ones(2, 2)).sum().backward()
            optimizer.step()
    assert "not observed" not in capfd.readouterr().err


def test_many_small_values_take_no_more_than_the_budget() -> None:
    kept = Retention(TorchReader(), 10**6)
    tensors = [torch.ones(2) for _ in range(5000)]
    for slot_id, tensor in enumerate(tensors):
        kept.keep(slot_id, tensor)
    held = [slot_id for slot_id in range(len(tensors)) if kept.current(slot_id) is not None]
    # The objects that hold 8 bytes take a hundred times as much.
    assert 0 < len(held) < 1000
    assert held[-1] == len(tensors) - 1
