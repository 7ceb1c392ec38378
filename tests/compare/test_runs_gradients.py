"""Two trainings whose gradients are rounding errors, are clipped, or exist in one of them only."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import tensight.torch
from tensight.analysis import Analysis
from tensight.compare import Verdict
from tensight.compare.runs import Finding, RunComparison, compare_runs
from tensight.compare.runs.words import notes, sentence
from tensight.dumps import open_dump

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

STEPS, WIDTH = 3, 8


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Sums are added up in the same order, but where a test changes that."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class Attention(nn.Module):
    """Attention, as one operator or written out: the same up to rounding."""

    def __init__(self, *, is_fused: bool) -> None:
        super().__init__()
        self.qkv, self.is_fused = nn.Linear(WIDTH, 3 * WIDTH), is_fused

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(x).chunk(3, -1)
        if self.is_fused:
            return nn.functional.scaled_dot_product_attention(q, k, v)
        return ((q @ k.transpose(-1, -2)) / WIDTH**0.5).softmax(-1) @ v


class Network(nn.Module):
    """The keys' bias, and that of the layer before the batch norm, have gradients that are zero up to rounding."""

    def __init__(self, *, is_fused: bool = True) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.stem = nn.Linear(WIDTH, WIDTH)
        self.attention = Attention(is_fused=is_fused)
        self.middle, self.norm, self.head = nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH), nn.Linear(WIDTH, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.attention(self.stem(x)).mean(1)
        return self.head(torch.tanh(self.norm(self.middle(hidden))))


def adam(network: nn.Module, rate: float = 1e-2) -> torch.optim.Optimizer:
    return torch.optim.Adam([p for p in network.parameters() if p.requires_grad], rate)


def train(
    folder: Path,
    network: Network,
    capture: str,
    optimizer_of: Callable[[nn.Module], torch.optim.Optimizer] = adam,
    *,
    max_norm: float | None = None,
    averages: bool = False,
    has_values: bool = False,
    parts: int = 1,
    frozen_after: int | None = None,
    steps: int = STEPS,
) -> Analysis:
    """Trace or record some steps; gradients are clipped to a norm if one is given."""
    generator = torch.Generator().manual_seed(3)
    optimizer = optimizer_of(network)
    average = AveragedModel(network, multi_avg_fn=get_ema_multi_avg_fn(0.9)) if averages else None
    where = {"record": "full", "record_folder": str(folder)} if has_values else {"trace": str(folder)}
    with tensight.torch.debug(network, optimizer, capture=capture, quiet=True, port=1, **where):
        for step in range(steps):
            inputs, targets = torch.randn(6, 5, WIDTH, generator=generator), torch.arange(6) % 4
            optimizer.zero_grad()
            for part, wanted in zip(inputs.chunk(parts), targets.chunk(parts), strict=True):
                (nn.functional.cross_entropy(network(part), wanted) / parts).backward()
            if max_norm is not None:
                nn.utils.clip_grad_norm_(network.parameters(), max_norm)
            optimizer.step()
            if average is not None:
                average.update_parameters(network)
            if step == frozen_after:
                network.middle.requires_grad_(False)
    return Analysis(open_dump(str(folder)), cache_dir=folder.parent / f"{folder.name}-cache")


def compare(a: Analysis, b: Analysis) -> RunComparison:
    (result,) = compare_runs(a, b)
    return result


both_captures = pytest.mark.parametrize("capture", ["modules", "ops"])


@both_captures
@pytest.mark.parametrize("averages", [False, True])
def test_full_steps_that_adam_makes_of_rounding_errors_are_no_difference(
    capture: str, averages: bool, tmp_path: Path
) -> None:
    a = train(tmp_path / "a", Network(), capture, averages=averages)
    b = train(tmp_path / "b", Network(is_fused=False), capture, averages=averages)
    result = compare(a, b)
    assert result.verdict is Verdict.SAME, sentence(result)
    (note,) = [note for note in notes(result) if "were not judged" in note]
    assert "bias" in note
    assert "weight" not in note


@both_captures
def test_another_learning_rate_is_found_beside_rounding_errors(capture: str, tmp_path: Path) -> None:
    a = train(tmp_path / "a", Network(), capture)
    b = train(tmp_path / "b", Network(is_fused=False), capture, lambda network: adam(network, 1.02e-2))
    result = compare(a, b)
    assert (result.finding, result.step) == (Finding.UPDATE, 1), sentence(result)


def frozen() -> Network:
    network = Network()
    network.stem.requires_grad_(False)
    return network


@both_captures
@pytest.mark.parametrize("max_norm", [None, 0.01])
def test_gradients_that_only_one_run_has_are_named_although_clipping_scales_all_others(
    capture: str, max_norm: float | None, tmp_path: Path
) -> None:
    whole = train(tmp_path / "whole", Network(), capture, max_norm=max_norm)
    partial = train(tmp_path / "partial", frozen(), capture, max_norm=max_norm)
    for a, b, run in ((whole, partial, "A"), (partial, whole, "B")):
        result = compare(a, b)
        assert (result.finding, result.step) == (Finding.UPDATE, 1), sentence(result)
        assert [tensor.name_a for tensor in result.tensors] == ["stem.weight", "stem.bias"]
        assert f"only in {run} do updates read gradients of stem.weight, stem.bias" in sentence(result)


@pytest.mark.parametrize("max_norm", [None, 0.01])
def test_the_gradient_that_differs_is_named_although_clipping_scales_all_others(
    max_norm: float | None, tmp_path: Path
) -> None:
    hooked = Network()
    hooked.middle.weight.register_hook(lambda gradient: 2 * gradient)
    a = train(tmp_path / "a", Network(), "modules", max_norm=max_norm)
    result = compare(a, train(tmp_path / "b", hooked, "modules", max_norm=max_norm))
    assert (result.finding, result.step) == (Finding.BACKWARD, 1), sentence(result)
    assert result.first is not None
    assert "middle/weight/AccumulateGrad" in result.first.pair.a.name


def test_the_hook_of_a_gradient_is_noted_before_the_norm_that_it_changes(tmp_path: Path) -> None:
    hooked = Network()
    hooked.middle.weight.register_hook(lambda gradient: 2 * gradient)
    a = train(tmp_path / "a", Network(), "ops", max_norm=0.01)
    result = compare(a, train(tmp_path / "b", hooked, "ops", max_norm=0.01))
    assert (result.verdict, result.step) == (Verdict.DIFFERENT, 1), sentence(result)
    assert any("middle/weight/mul" in note for note in notes(result)), (sentence(result), notes(result))


def test_norms_of_gradients_are_the_same_in_another_order(tmp_path: Path) -> None:
    def backwards(network: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(reversed(list(network.parameters())), 1e-2)

    other = Network()
    other._modules = dict(reversed(other._modules.items()))
    a = train(tmp_path / "a", Network(), "ops", backwards, max_norm=0.01, has_values=True)
    result = compare(a, train(tmp_path / "b", other, "ops", backwards, max_norm=0.01, has_values=True))
    assert result.verdict is Verdict.SAME, sentence(result)


def test_a_weight_that_is_frozen_later_agrees_before(tmp_path: Path) -> None:
    a = train(tmp_path / "a", Network(), "modules", has_values=True, steps=6)
    result = compare(a, train(tmp_path / "b", Network(), "modules", has_values=True, steps=6, frozen_after=1))
    assert (result.finding, result.step) == (Finding.UPDATE, 3), sentence(result)
    assert "only in A do updates read gradients of middle.weight, middle.bias" in sentence(result)


class Plain(Network):
    """No layer of it depends on the other rows of a batch; the first may have another name."""

    def __init__(self, name: str = "stem") -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)  # type: ignore[assignment]
        self.first = name
        self._modules = {name if key == "stem" else key: module for key, module in self._modules.items()}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.attention(getattr(self, self.first)(x)).mean(1)
        return self.head(torch.tanh(self.norm(self.middle(hidden))))


def test_a_batch_in_two_parts_is_known_under_another_name_of_the_layer(tmp_path: Path) -> None:
    a = train(tmp_path / "a", Plain(), "modules")
    result = compare(a, train(tmp_path / "b", Plain("entry"), "modules", parts=2))
    assert (result.verdict, result.parts) == (Verdict.SAME, (1, 2)), sentence(result)


class Mixed(Plain):
    """Computes its products in bfloat16."""

    def __init__(self, eps: float = 1e-5) -> None:
        super().__init__()
        self.norm.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return super().forward(x).float()


def test_rounding_to_bfloat16_is_named_and_hides_no_other_epsilon(tmp_path: Path) -> None:
    a = train(tmp_path / "a", Mixed(), "modules")
    result = compare(a, train(tmp_path / "same", Mixed(), "modules"))
    assert result.verdict is Verdict.SAME, sentence(result)
    fused = Mixed()
    fused.attention.is_fused = False
    result = compare(a, train(tmp_path / "written_out", fused, "modules"))
    assert result.verdict is Verdict.SAME, sentence(result)
    assert "up to rounding to bfloat16" in sentence(result)
    result = compare(a, train(tmp_path / "epsilon", Mixed(eps=1e-2), "modules"))
    assert result.finding is Finding.FORWARD, sentence(result)
    assert result.first is not None
    assert "norm" in result.first.pair.a.name
