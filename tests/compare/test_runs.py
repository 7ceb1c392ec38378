"""Two recorded trainings, one of which was changed in one place: the place is named, and nothing else."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import nn

from tensight.compare import Verdict
from tensight.compare.runs import Finding, Rule, Tolerance, compare_runs
from tensight.compare.runs.measures import compare_values, in_layout
from tensight.compare.runs.words import notes, sentence
from tests.compare.two_runs import STEPS, Network, adam, make_network, mean_loss, record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tensight.analysis import Analysis


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Sums are added up in the same order, but where a test changes that."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module", params=["modules", pytest.param("ops", marks=pytest.mark.long)])
def reference(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Analysis]:
    """How the reference was captured, and its recording."""
    return request.param, record(tmp_path_factory.mktemp("runs") / "a", make_network(), capture=request.param)


def no_decay_for_norms(network: nn.Module) -> torch.optim.Optimizer:
    norms = [p for name, p in network.named_parameters() if "norm" in name]
    others = [p for name, p in network.named_parameters() if "norm" not in name]
    return torch.optim.AdamW([{"params": others}, {"params": norms, "weight_decay": 0.0}], 1e-3)


def smoothed(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), label_smoothing=0.1)


def summed(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum")


@dataclass(frozen=True)
class Change:
    """One difference between two trainings, and where it must be found."""

    finding: Finding
    step: int
    within: str
    network: Callable[[], nn.Module] = make_network
    optimizer: Callable[[nn.Module], torch.optim.Optimizer] = adam
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] = mean_loss
    options: dict[str, Any] = field(default_factory=dict)


def another_weight() -> nn.Module:
    network = make_network()
    with torch.no_grad():
        network.blocks[1].down.weight[3, 5] += 0.01
    return network


CHANGES = {
    "epsilon": Change(Finding.FORWARD, 1, "blocks/1/norm1", lambda: make_network(eps=1e-6)),
    "gelu": Change(Finding.FORWARD, 1, "blocks/1/act", lambda: make_network(approximate="tanh")),
    "scale": Change(Finding.FORWARD, 1, "blocks/1", lambda: make_network(scale=1.001)),
    "label smoothing": Change(Finding.FORWARD, 1, "", loss=smoothed),
    "loss reduction": Change(Finding.FORWARD, 1, "", loss=summed),
    "initial weight": Change(Finding.INITIAL_WEIGHTS, 1, "blocks.1.down.weight", another_weight),
    "learning rate": Change(
        Finding.UPDATE, 1, "embed/weight", optimizer=lambda network: torch.optim.AdamW(network.parameters(), 1.1e-3)
    ),
    "beta": Change(
        Finding.UPDATE, 1, "embed/weight",
        optimizer=lambda network: torch.optim.AdamW(network.parameters(), 1e-3, betas=(0.9, 0.98)),
    ),
    "weight decay of norms": Change(Finding.UPDATE, 1, "blocks/0/norm1/weight", optimizer=no_decay_for_norms),
}  # fmt: skip


@pytest.mark.sampled(6)
@pytest.mark.parametrize("change", CHANGES.values(), ids=list(CHANGES))
def test_the_place_of_a_change_is_named(reference: tuple[str, Analysis], change: Change, tmp_path: Path) -> None:
    capture, a = reference
    b = record(tmp_path / "b", change.network(), change.optimizer, change.loss, capture=capture)
    (result,) = compare_runs(a, b)
    assert (result.finding, result.step) == (change.finding, change.step), sentence(result)
    assert result.verdict is Verdict.DIFFERENT
    named = result.tensors[0].name_a if result.first is None else result.first.pair.a.name
    assert change.within in named, sentence(result)
    assert result.first is None or result.first.inputs, sentence(result)


class Forgetful(torch.optim.AdamW):
    """Loses its first moments when many steps are done, of which a trace has no states any more."""

    updates = 0
    lost_at = 11

    def step(self, closure: Any = None) -> Any:
        if self.updates == self.lost_at:
            for state in self.state.values():
                state["exp_avg"].zero_()
        self.updates += 1
        return super().step(closure)


def test_moments_that_are_lost_late_are_found_in_the_update_of_that_step(tmp_path: Path) -> None:
    steps = Forgetful.lost_at + 3
    a = record(tmp_path / "a", make_network(), as_trace=True, steps=steps)
    (same,) = compare_runs(a, record(tmp_path / "same", make_network(), as_trace=True, steps=steps))
    assert same.verdict is Verdict.SAME, sentence(same)
    b = record(
        tmp_path / "b", make_network(), lambda net: Forgetful(net.parameters(), 1e-3), as_trace=True, steps=steps
    )
    (result,) = compare_runs(a, b)
    assert (result.finding, result.step) == (Finding.UPDATE, Forgetful.lost_at + 1), sentence(result)
    assert result.first is None or "Apply" in result.first.pair.a.name, sentence(result)


def test_gradients_that_are_all_scaled_by_one_number_are_said_to_be(
    reference: tuple[str, Analysis], tmp_path: Path
) -> None:
    capture, a = reference
    network = make_network()
    for parameter in network.parameters():
        parameter.register_hook(lambda gradient: 0.1 * gradient)
    (result,) = compare_runs(a, record(tmp_path / "b", network, capture=capture))
    assert result.finding is Finding.BACKWARD, sentence(result)
    amount = len(list(network.parameters()))
    assert any(f"All {amount} gradients of weights in B are 0.1 times" in note for note in notes(result)), notes(result)


class Renamed(nn.Module):
    """The same network under other names, its layers registered in another order, queries, keys and values apart."""

    def __init__(self, source: Network, eps: float = 1e-5) -> None:
        super().__init__()
        self.classifier = source.head
        self.layers = nn.ModuleList(RenamedBlock(block) for block in source.blocks)
        self.layers[1].ln2.eps = eps
        self.tokens = source.embed

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.tokens(x)
        for layer in self.layers:
            x = layer(x)
        return self.classifier(x)


class RenamedBlock(nn.Module):
    def __init__(self, block: Any) -> None:
        super().__init__()
        width = block.out.in_features
        self.mlp = nn.Sequential(block.up, nn.GELU(), block.down)
        self.ln2, self.ln1 = block.norm2, block.norm1
        for part, name in enumerate("qkv"):
            linear = nn.Linear(width, width)
            linear.load_state_dict(
                {key: value[part * width : (part + 1) * width] for key, value in block.qkv.state_dict().items()}
            )
            setattr(self, name, linear)
        self.proj = block.out

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        y = self.ln1(x)
        q, k, v = (part(y).view(batch, length, 2, width // 2).transpose(1, 2) for part in (self.q, self.k, self.v))
        weights = torch.softmax(q @ k.transpose(-1, -2) / (width // 2) ** 0.5, -1)
        x = x + self.proj((weights @ v).transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.ln2(x))


def test_a_renamed_and_split_network_is_the_same_and_its_changed_layer_is_found(
    reference: tuple[str, Analysis], tmp_path: Path
) -> None:
    capture, a = reference
    (same,) = compare_runs(a, record(tmp_path / "same", Renamed(make_network()), capture=capture))
    assert same.verdict is Verdict.SAME, sentence(same)
    assert {Rule.VALUES, Rule.MODULE} & set(same.matching.rules)
    assert same.matching.only_b or same.matching.only_a
    assert {(fused.whole, fused.parts) for fused in same.matching.fused} == {
        (f"blocks.{block}.qkv.{kind}", tuple(f"layers.{block}.{part}.{kind}" for part in "qkv"))
        for block in (0, 1)
        for kind in ("weight", "bias")
    }
    assert not same.matching.parameters_only_a
    assert not same.matching.parameters_only_b
    changed = record(tmp_path / "changed", Renamed(make_network(), eps=1e-4), capture=capture)
    (result,) = compare_runs(a, changed)
    assert result.first is not None, sentence(result)
    assert "blocks/1/norm2" in result.first.pair.a.name, sentence(result)
    assert "layers/1/ln2" in result.first.pair.b.name


class Mirrored(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.flip(-1)


class Summed(nn.Module):
    """A network whose loss, the sum of its outputs, does not depend on whether a layer in the middle is there."""

    def __init__(self, middle: nn.Module | None) -> None:
        super().__init__()
        self.embed, self.head, self.middle = nn.Embedding(50, 16), nn.Linear(16, 16, bias=False), middle
        nn.init.eye_(self.head.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.embed(x)
        return self.head(x if self.middle is None else self.middle(x))


def test_a_loss_that_agrees_by_chance_does_not_hide_an_additional_layer(tmp_path: Path) -> None:
    analyses = []
    for name, middle in (("a", None), ("b", Mirrored())):
        torch.manual_seed(7)
        analyses.append(record(tmp_path / name, Summed(middle), loss_of=lambda logits, _: logits.sum()))
    (result,) = compare_runs(*analyses)
    assert result.finding is Finding.FORWARD
    assert "head/Linear" in sentence(result)
    assert "middle/Mirrored" in " ".join((sentence(result), *notes(result)))


class Bucketed(nn.Module):
    """A network that computes integers in place, of which nothing but statistics is recorded."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(50, 16), nn.Linear(16, 50)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        buckets = (x > 20).to(torch.long) * 16
        buckets += torch.where(x < 5, x, torch.full_like(x, 4))
        return self.head(self.embed(x) + self.embed(buckets))


def test_integers_of_which_only_statistics_are_known_do_not_differ_where_these_agree(tmp_path: Path) -> None:
    analyses = []
    for name in ("a", "b"):
        torch.manual_seed(7)
        analyses.append(record(tmp_path / name, Bucketed(), capture="ops"))
    (result,) = compare_runs(*analyses)
    assert result.verdict is Verdict.SAME, sentence(result)


def test_a_weight_that_one_run_does_not_train_is_named(reference: tuple[str, Analysis], tmp_path: Path) -> None:
    capture, a = reference

    def without_head(network: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.AdamW([p for name, p in network.named_parameters() if name != "head.bias"], 1e-3)

    (result,) = compare_runs(a, record(tmp_path / "b", make_network(), without_head, capture=capture))
    assert (result.finding, result.step) == (Finding.UPDATE, 1), sentence(result)
    assert "head.bias" in sentence(result), sentence(result)


def test_a_batch_in_two_parts_is_known(reference: tuple[str, Analysis], tmp_path: Path) -> None:
    capture, a = reference
    (result,) = compare_runs(a, record(tmp_path / "b", make_network(), capture=capture, parts=2))
    if capture == "ops":
        # What cuts the batch is an operator itself.
        assert result.first is not None, sentence(result)
        assert "split" in sentence(result)
        return
    assert (result.verdict, result.parts) == (Verdict.SAME, (1, 2)), sentence(result)
    assert "2 parts" in notes(result)[0]


def test_runs_that_differ_by_rounding_are_the_same_and_the_first_bit_is_noted(
    reference: tuple[str, Analysis], tmp_path: Path
) -> None:
    capture, a = reference
    torch.set_num_threads(2)
    try:
        torch.backends.mkldnn.enabled = False
        b = record(tmp_path / "b", make_network(), capture=capture)
    finally:
        torch.backends.mkldnn.enabled = True
        torch.set_num_threads(1)
    (result,) = compare_runs(a, b)
    assert result.verdict is Verdict.SAME, sentence(result)


def test_an_equal_run_is_bit_equal(reference: tuple[str, Analysis], tmp_path: Path) -> None:
    capture, a = reference
    (result,) = compare_runs(a, record(tmp_path / "b", make_network(), capture=capture), exact=True)
    assert result.verdict is Verdict.SAME, sentence(result)
    assert "bit-equal" in sentence(result)
    assert not notes(result)


def test_a_shorter_run_is_the_same_only_in_the_steps_that_were_compared(
    reference: tuple[str, Analysis], tmp_path: Path
) -> None:
    capture, a = reference
    (result,) = compare_runs(a, record(tmp_path / "b", make_network(), capture=capture, steps=STEPS - 1))
    assert result.verdict is Verdict.SAME
    assert (
        sentence(result)
        == f"In the {STEPS - 1} steps that were compared, all tensors that both recorded are bit-equal."
    )
    assert f"Only A has step {STEPS}, which was not compared." in notes(result)


def test_other_data_and_other_weights_are_not_comparable(reference: tuple[str, Analysis], tmp_path: Path) -> None:
    capture, a = reference
    (result,) = compare_runs(a, record(tmp_path / "data", make_network(), capture=capture, data_seed=4))
    assert (result.verdict, result.finding) == (Verdict.NOT_COMPARABLE, Finding.DATA), sentence(result)
    torch.manual_seed(8)
    (result,) = compare_runs(a, record(tmp_path / "weights", Network(), capture=capture))
    assert (result.verdict, result.finding) == (Verdict.NOT_COMPARABLE, Finding.INITIAL_WEIGHTS), sentence(result)


def test_a_tolerance_chosen_by_hand_hides_what_is_below_it(reference: tuple[str, Analysis], tmp_path: Path) -> None:
    capture, a = reference
    b = record(tmp_path / "b", make_network(eps=1e-6), capture=capture)
    (result,) = compare_runs(a, b, tolerance=Tolerance(overrides={"*": 1e-2}))
    assert result.verdict is Verdict.SAME, sentence(result)


@pytest.mark.parametrize(
    ("axes", "layout"),
    [((1, 0), "transposed"), ((0, 2, 3, 1), "NHWC"), ((1, 2, 0), "axes 2,0,1"), (None, "")],
)
def test_the_layout_that_was_found_brings_b_into_the_shape_of_a(axes: tuple[int, ...] | None, layout: str) -> None:
    a = np.random.default_rng(0).normal(size=(2, 3, 4, 5)[: len(axes or (0, 1))])
    b = a[:, None] if axes is None else a.transpose(axes).copy()
    found = compare_values(a, b)
    assert (found.layout, found.relative) == (layout, 0)
    assert np.array_equal(in_layout(b, a.shape, found.layout), a)
