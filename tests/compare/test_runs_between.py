"""What a step reads of an earlier one: weights written between steps, running statistics, averages, and the losses."""

from __future__ import annotations

import copy
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

import tensight.torch
from tensight.analysis import Analysis
from tensight.compare import Verdict
from tensight.compare.losses import compare_losses
from tensight.compare.runs import Finding, compare_runs
from tensight.compare.runs.words import notes, sentence
from tensight.dumps import open_dump
from tensight.sessions.recorded_losses import recorded_losses

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tensight.compare.runs import RunComparison

Write = Callable[[nn.Module], None] if TYPE_CHECKING else object

FIRST_WRITTEN = 2
"""Step after which one run begins to write to its weights."""


def clamped(model: nn.Module) -> None:
    for weight in model.parameters():
        weight.clamp_(-0.2, 0.2)


def clamped_data(model: nn.Module) -> None:
    for weight in model.parameters():
        weight.data.clamp_(-0.2, 0.2)


def shrunk(model: nn.Module) -> None:
    for weight in model.parameters():
        weight.mul_(0.99)


def replaced_data(model: nn.Module) -> None:
    for weight in model.parameters():
        weight.data = 0.99 * weight.data


def averaged(model: nn.Module) -> None:
    """Continue from an average of the weights so far."""
    average = model.__dict__.setdefault("average", [weight.clone() for weight in model.parameters()])
    for weight, mean in zip(model.parameters(), average, strict=True):
        mean.lerp_(weight, 0.1)
        weight.copy_(mean)


WRITES: dict[str, Write] = {write.__name__: write for write in (clamped, clamped_data, shrunk, replaced_data, averaged)}
OPTIMIZERS: dict[str, Callable[[nn.Module], torch.optim.Optimizer]] = {
    "sgd": lambda model: torch.optim.SGD(model.parameters(), 0.05, momentum=0.9),
    "adam": lambda model: torch.optim.AdamW(model.parameters(), 0.01),
}


def make_model() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))


def trace(
    folder: Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    write: Callable[[nn.Module], None] | None = None,
    *,
    capture: str = "modules",
    steps: int = 5,
    clip: float | None = None,
) -> Analysis:
    """Train, write to the weights after some updates, and open the trace."""
    generator = torch.Generator().manual_seed(2)
    with tensight.torch.debug(model, optimizer, trace=str(folder), capture=capture, quiet=True, port=1):
        for step in range(1, steps + 1):
            x = torch.randn(32, 8, generator=generator)
            torch.manual_seed(step)
            loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            if clip is not None:
                nn.utils.clip_grad_norm_(model.parameters(), clip)
            optimizer.step()
            if write is not None and step >= FIRST_WRITTEN:
                with torch.no_grad():
                    write(model)
    return Analysis(open_dump(str(folder)), cache_dir=folder.parent / f"{folder.name}-cache")


def compared(folder: Path, *runs: tuple[nn.Module, Any, Any], **options: Any) -> RunComparison:
    """Trace two trainings and compare them; whatever the verdict is, it does not contradict their losses."""
    analyses = [trace(folder / name, *run, **options) for name, run in zip("ab", runs, strict=True)]
    (result,) = compare_runs(*analyses)
    losses = compare_losses(*(recorded_losses(analysis.dump, "a trace") for analysis in analyses))
    assert result.verdict is not Verdict.SAME or losses.verdict is Verdict.SAME, (sentence(result), losses.sentence)
    return result


def with_optimizer(name: str, write: Any = None) -> tuple[nn.Module, torch.optim.Optimizer, Any]:
    model = make_model()
    return model, OPTIMIZERS[name](model), write


@pytest.mark.sampled(8)
@pytest.mark.parametrize("capture", ["modules", "ops"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("write", WRITES.values(), ids=list(WRITES))
def test_weights_that_one_run_writes_to_between_steps_are_the_difference(
    write: Write, optimizer: str, capture: str, tmp_path: Path
) -> None:
    result = compared(tmp_path, with_optimizer(optimizer), with_optimizer(optimizer, write), capture=capture)
    assert (result.verdict, result.finding) == (Verdict.DIFFERENT, Finding.BETWEEN_STEPS), sentence(result)
    # An average begins as a copy of the weights.
    assert result.step == FIRST_WRITTEN + (2 if write is averaged else 1), sentence(result)
    assert {name for tensor in result.tensors for name in tensor.changed_in} == {"B"}, sentence(result)
    assert "0.weight" in sentence(result)
    if capture == "ops" and write is clamped:
        assert "only B runs Default/clamp_-op0" in sentence(result)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("capture", ["modules", "ops"])
@pytest.mark.parametrize("write", WRITES.values(), ids=list(WRITES))
def test_runs_that_both_write_to_their_weights_between_steps_are_bit_equal(
    write: Write, capture: str, tmp_path: Path
) -> None:
    result = compared(tmp_path, with_optimizer("adam", write), with_optimizer("adam", write), capture=capture)
    assert result.is_bit_equal, sentence(result)


def test_operators_that_both_runs_have_between_steps_are_compared_like_others(tmp_path: Path) -> None:
    def more_shrunk(model: nn.Module) -> None:
        for weight in model.parameters():
            weight.mul_(0.98)

    result = compared(tmp_path, with_optimizer("adam", shrunk), with_optimizer("adam", more_shrunk), capture="ops")
    assert result.first is not None, sentence(result)
    assert result.first.pair.a.name == "Default/mul_-op0", sentence(result)
    assert result.step == FIRST_WRITTEN + 1


class Dropped(nn.Sequential):
    """Dropout, batch norm, and one matrix used twice."""

    def __init__(self, momentum: float = 0.1) -> None:
        shared = nn.Linear(16, 16)
        super().__init__(
            nn.Linear(8, 16), nn.BatchNorm1d(16, momentum=momentum), nn.Dropout(0.2), shared, nn.ReLU(), shared,
            nn.Linear(16, 1),
        )  # fmt: skip


class Teacher(nn.Module):
    """A network beside an average of itself, which it has to resemble."""

    def __init__(self, decay: float) -> None:
        super().__init__()
        self.student = make_model()
        self.teacher = copy.deepcopy(self.student).requires_grad_(False)
        self.decay = decay

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.student(x) + 0.1 * (self.student(x) - self.teacher(x))

    def average(self) -> None:
        for mean, weight in zip(self.teacher.parameters(), self.student.parameters(), strict=True):
            mean.lerp_(weight, self.decay)


def prepared(model: nn.Module, write: Any = None) -> tuple[nn.Module, torch.optim.Optimizer, Any]:
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    return model, torch.optim.AdamW(trained, 0.01, weight_decay=0.1), write


@pytest.mark.parametrize("capture", ["modules", pytest.param("ops", marks=pytest.mark.long)])
def test_equal_runs_with_dropout_batch_norm_and_tied_weights_are_bit_equal(capture: str, tmp_path: Path) -> None:
    models = []
    for _ in range(2):
        torch.manual_seed(3)
        models.append(Dropped())
    result = compared(tmp_path, *map(prepared, models), capture=capture)
    assert result.is_bit_equal, sentence(result)


@pytest.mark.parametrize("capture", ["modules", pytest.param("ops", marks=pytest.mark.long)])
def test_an_average_of_the_weights_with_another_decay_is_the_difference(capture: str, tmp_path: Path) -> None:
    runs = [prepared(Teacher(decay), Teacher.average) for decay in (0.1, 0.1, 0.11)]
    assert compared(tmp_path / "same", *runs[:2], capture=capture).is_bit_equal
    runs[0] = prepared(Teacher(0.1), Teacher.average)
    result = compared(tmp_path / "other", runs[0], runs[2], capture=capture)
    assert (result.verdict, result.step) == (Verdict.DIFFERENT, FIRST_WRITTEN + 1), sentence(result)
    said = sentence(result)
    assert "teacher" in said if capture == "modules" else "lerp_" in said, said


AVERAGING = """
import gc, sys, torch, tensight.torch
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
def train(decay, folder):
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(decay))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with tensight.torch.debug(trace=folder, capture=sys.argv[1], quiet=True, port=1):
        for _ in range(4):
            model(torch.randn(8, 4)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            average.update_parameters(model)
for decay, folder in ((0.9, "a"), (0.9, "same"), (0.99, "other")):
    train(decay, folder)
    gc.collect()
"""


@pytest.mark.parametrize("capture", ["modules", pytest.param("ops", marks=pytest.mark.long)])
def test_an_average_beside_the_model_is_compared_though_nothing_calls_it(capture: str, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", AVERAGING, capture], cwd=tmp_path, check=True, timeout=300)
    a, same, other = (
        Analysis(open_dump(str(tmp_path / name)), cache_dir=tmp_path / f"{name}-cache")
        for name in ("a", "same", "other")
    )
    (result,) = compare_runs(a, same)
    assert result.is_bit_equal, sentence(result)
    (result,) = compare_runs(a, other)
    # The first update of the average copies the weights.
    assert (result.verdict, result.step) == (Verdict.DIFFERENT, 3), sentence(result)
    assert ("AveragedModel.module.weight" if capture == "modules" else "_foreach_lerp_") in sentence(result)


class OfAnotherFramework(nn.BatchNorm1d):
    """A batch norm with the names of MindSpore, which counts no batches."""

    def __init__(self, momentum: float) -> None:
        super().__init__(16, momentum=momentum)
        del self.num_batches_tracked
        self.num_batches_tracked = None
        self.gamma, self.beta = nn.Parameter(torch.ones(16)), nn.Parameter(torch.zeros(16))
        del self.weight, self.bias, self.running_mean, self.running_var
        self.register_buffer("moving_mean", torch.zeros(16))
        self.register_buffer("moving_variance", torch.ones(16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        means = self.moving_mean, self.moving_variance
        return nn.functional.batch_norm(x, *means, self.gamma, self.beta, self.training, self.momentum, self.eps)


OfAnotherFramework.__name__ = "BatchNorm1d"


class Ported(nn.Module):
    def __init__(self, source: nn.Sequential, momentum: float) -> None:
        super().__init__()
        self.stem, self.act, self.head = source[0], nn.ReLU(), source[3]
        self.bn = OfAnotherFramework(momentum)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.act(self.bn(self.stem(x))))


def normalized() -> nn.Sequential:
    torch.manual_seed(4)
    return nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 1))


def sgd(model: nn.Module) -> tuple[nn.Module, torch.optim.Optimizer, None]:
    return model, torch.optim.SGD(model.parameters(), 0.02), None


def test_running_statistics_of_a_renamed_batch_norm_are_compared(tmp_path: Path) -> None:
    same = compared(tmp_path / "same", sgd(normalized()), sgd(Ported(normalized(), 0.1)))
    assert same.verdict is Verdict.SAME, sentence(same)
    assert same.matching.parameters["1.running_mean"][0] == "bn.moving_mean"
    result = compared(tmp_path / "other", sgd(normalized()), sgd(Ported(normalized(), 0.9)))
    assert (result.finding, result.step) == (Finding.FORWARD, 1), sentence(result)
    assert result.first is not None
    assert (result.first.pair.a.type, result.first.pair.b.type) == ("BatchNorm1d", "BatchNorm1d")
    assert result.first.worst is not None
    slot, difference = result.first.worst
    assert slot.name == "1.running_mean"
    assert 9 * difference.norms[0] == pytest.approx(difference.norms[1])
    assert "1.running_mean does not (norm" in sentence(result)


def test_a_mapping_by_hand_is_applied_and_what_it_names_in_vain_is_said(tmp_path: Path) -> None:
    a = trace(tmp_path / "a", *sgd(normalized()))
    b = trace(tmp_path / "b", *sgd(Ported(normalized(), 0.1)))
    mapping = {"1": "bn", "Default/2/ReLU-op0": "Default/act/ReLU-op0", "layer7": "stem", "3": "header"}
    (result,) = compare_runs(a, b, mapping=mapping)
    assert result.verdict is Verdict.SAME, sentence(result)
    rules = {pair.a.name: pair.rule.value for pair in result.matching.pairs}
    assert rules["Default/2/ReLU-op0"] == "mapping"
    assert result.matching.parameters["1.running_var"] == (
        "bn.moving_variance",
        result.matching.parameters["1.weight"][1],
    )
    assert result.matching.parameters["1.weight"][1].value == "mapping"
    assert result.unknown == (("A", "layer7"), ("B", "header"))
    assert any('"layer7"' in note for note in notes(result))


class Reading(nn.Module):
    """A recurrent network whose input is brought into its order of axes, by permuting or wrongly by reshaping."""

    def __init__(self, way: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.project, self.gru, self.head = nn.Linear(2, 6), nn.GRU(6, 8), nn.Linear(8, 1)
        self.way = way

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden, _ = self.gru(self.way(self.project(x.view(len(x), 4, 2))))
        return self.head(hidden[-1])


def permuted(x: torch.Tensor) -> torch.Tensor:
    return x.permute(1, 0, 2)


def viewed(x: torch.Tensor) -> torch.Tensor:
    return x.reshape(x.shape[1], x.shape[0], x.shape[2])


@pytest.mark.parametrize("capture", ["modules", "ops"])
def test_a_view_in_place_of_a_permutation_is_named_and_not_the_layer_after_it(capture: str, tmp_path: Path) -> None:
    result = compared(tmp_path, prepared(Reading(permuted)), prepared(Reading(viewed)), capture=capture)
    assert (result.finding, result.step) == (Finding.FORWARD, 1), sentence(result)
    assert result.first is not None
    assert result.first.worst is not None
    assert result.first.worst[1].may_be_reordered
    assert all(diff.is_bit_equal for _, diff in result.first.inputs)
    assert "GRU" not in result.first.pair.a.name
    said = " ".join((sentence(result), *notes(result)))
    assert "elements in another order" in said
    if capture == "ops":
        assert "permute" in said


def test_losses_that_drift_apart_by_rounding_are_not_called_the_same(tmp_path: Path) -> None:
    """With far too large a learning rate, a training multiplies its rounding errors in every step."""

    def unstable(difference: float) -> tuple[nn.Module, torch.optim.Optimizer, None]:
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))
        with torch.no_grad():
            model[0].weight.view(-1)[0].mul_(1 + difference)
        return model, torch.optim.Adam(model.parameters(), 0.5), None

    result = compared(tmp_path, unstable(0), unstable(1.2e-7), steps=60)
    losses = [
        entry.worst[1].relative
        for step in result.steps
        for entry in step.compared
        if entry.pair.a.type == "Loss" and entry.worst is not None
    ]
    # Whether the losses or an operator differ first, and when, depends on how the processor rounds.
    assert result.verdict is Verdict.DIFFERENT, sentence(result)
    assert result.finding is not Finding.LOSSES or (losses[-1] > 1e-3 and result.step == len(losses)), sentence(result)
    assert max(losses[:-1]) < 2e-3


class Made(nn.Module):
    """A network beside which tensors are made that nothing else depends on, in this order."""

    def __init__(self, *shapes: tuple[int, ...]) -> None:
        super().__init__()
        self.inner, self.shapes = make_model(), shapes

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for shape in self.shapes:
            torch.full(shape, 0.5 + len(shape))
        return self.inner(x)


def test_tensors_that_two_runs_make_in_another_order_are_no_difference(tmp_path: Path) -> None:
    runs = prepared(Made((2, 3), (4,))), prepared(Made((4,), (2, 3), (5,)))
    result = compared(tmp_path, *runs, capture="ops", steps=2)
    assert result.verdict is Verdict.SAME, sentence(result)


def test_clipping_to_another_norm_belongs_to_the_update(tmp_path: Path) -> None:
    analyses = [
        trace(tmp_path / name, *with_optimizer("sgd"), capture="ops", steps=2, clip=clip)
        for name, clip in (("a", 0.5), ("b", 0.4))
    ]
    (result,) = compare_runs(*analyses)
    assert result.first is not None, sentence(result)
    assert (result.finding, result.first.pair.a.type) == (Finding.UPDATE, "mul"), sentence(result)


def test_a_factor_near_one_is_not_rounded_away(tmp_path: Path) -> None:
    def run(factor: float) -> tuple[nn.Module, torch.optim.Optimizer, None]:
        model = make_model()
        for weight in model.parameters():
            weight.register_hook(lambda gradient: factor * gradient)
        return model, torch.optim.SGD(model.parameters(), 0.02), None

    result = compared(tmp_path, run(1.0), run(1.04), steps=2)
    assert any("are 1.04 times those of A" in note for note in notes(result)), notes(result)
