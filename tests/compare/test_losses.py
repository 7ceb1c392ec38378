"""Two loss curves: the verdict, on trainings in which one thing was changed, and on curves that show one thing."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from tensight.compare import Verdict
from tensight.compare.losses import Divergence, LossComparison, compare_losses, relative_text
from tensight.curves import Curve, StepUnit
from tensight.errors import InputError

STEPS = 40


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Threads that wait for each other on a busy machine take longer than the training."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def train(
    *,
    steps: int = STEPS,
    split: int = 1,
    initial: float = 0.0,
    dropout: float = 0.0,
    order: int = 0,
    dtype: torch.dtype = torch.float32,
    optimizer: Callable[..., torch.optim.Optimizer] = torch.optim.SGD,
    rate_drops_at: int | None = None,
    **settings: Any,
) -> list[float]:
    """Return the losses of a small training; `split` is into how many micro-batches each batch is."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(32, 64), nn.LayerNorm(64), nn.GELU(), nn.Dropout(dropout), nn.Linear(64, 10)).to(
        dtype
    )
    with torch.no_grad():
        network[0].weight[0] += initial
    data = torch.randn(128, 32, generator=torch.Generator().manual_seed(1)).to(dtype)
    targets = torch.randint(0, 10, (128,), generator=torch.Generator().manual_seed(2))
    used = optimizer(
        network.parameters(), **({"lr": 0.1, "momentum": 0.9} if optimizer is torch.optim.SGD else {}) | settings
    )
    losses = []
    for step in range(1, steps + 1):
        if step == rate_drops_at:
            used.param_groups[0]["lr"] *= 0.1
        begin = (step + order) * 16 % 128
        used.zero_grad()
        total = 0.0
        parts = (data[begin : begin + 16].chunk(split), targets[begin : begin + 16].chunk(split))
        for inputs, wanted in zip(*parts, strict=True):
            loss = nn.functional.cross_entropy(network(inputs), wanted) / split
            loss.backward()
            total += loss.item()
        used.step()
        losses.append(total)
    return losses


def curve(values: Any, first: int = 1, every: int = 1, rounding: float = 0.0, unit: StepUnit = StepUnit.STEP) -> Curve:
    values = np.asarray(values, np.float64)
    steps = first + every * np.arange(len(values))
    return Curve("loss", steps.astype(np.int64), values, "a.log", np.full(len(values), rounding), unit)


def compare(a: Any, b: Any, **options: Any) -> LossComparison:
    return compare_losses(a if isinstance(a, Curve) else curve(a), b if isinstance(b, Curve) else curve(b), **options)


@pytest.fixture(scope="module")
def losses() -> list[float]:
    return train()


@pytest.fixture(scope="module")
def adam() -> list[float]:
    return train(optimizer=torch.optim.AdamW)


BASE = 2.3 * np.exp(-np.arange(60) / 40)


@pytest.mark.parametrize(
    ("change", "divergence"),
    [
        ({}, Divergence.NONE),
        ({"split": 4}, Divergence.NONE),
        ({"initial": 0.3}, Divergence.FIRST_STEP),
        ({"dropout": 0.1}, Divergence.FIRST_STEP),
        ({"order": 1}, Divergence.FIRST_STEP),
        ({"lr": 0.11}, Divergence.SECOND_STEP),
        ({"weight_decay": 0.01}, Divergence.SECOND_STEP),
        ({"momentum": 0.8}, Divergence.THIRD_STEP),
        ({"rate_drops_at": 15}, Divergence.JUMP),
    ],
)
def test_names_the_manner_in_which_a_changed_training_differs(
    losses: list[float], change: dict[str, Any], divergence: Divergence
) -> None:
    comparison = compare(losses, train(**change))
    assert comparison.divergence is divergence
    assert comparison.verdict is (Verdict.SAME if divergence is Divergence.NONE else Verdict.DIFFERENT)


@pytest.mark.parametrize(
    ("change", "divergence"),
    [({"betas": (0.9, 0.9)}, Divergence.THIRD_STEP), ({"weight_decay": 0.5}, Divergence.SECOND_STEP)],
)
def test_tells_the_state_of_an_optimizer_from_its_first_update(
    adam: list[float], change: dict[str, Any], divergence: Divergence
) -> None:
    assert compare(adam, train(optimizer=torch.optim.AdamW, **change)).divergence is divergence


def test_losses_of_bfloat16_are_compared_in_its_units() -> None:
    a, b = train(dtype=torch.bfloat16, steps=10), train(dtype=torch.bfloat16, steps=10, foreach=False)
    half_apart = [value * (1 + 2**-8) if step == 4 else value for step, value in enumerate(b)]
    assert compare(a, b).verdict is Verdict.SAME
    comparison = compare(a, np.array(half_apart).astype(np.float32))
    assert any("bfloat16 numbers" in note for note in comparison.notes)


def test_a_jump_is_at_its_step_and_a_drift_where_it_leaves_the_tolerance() -> None:
    jumped = BASE.copy()
    jumped[29:] *= 1.01
    comparison = compare(BASE, jumped)
    assert (comparison.divergence, comparison.departs_at, comparison.leaves_at) == (Divergence.JUMP, 30, 30)
    comparison = compare(BASE, BASE * (1 + 1e-7 * 1.2 ** np.arange(60)))
    first_outside = int(np.argmax(1e-7 * 1.2 ** np.arange(60) > 1e-3)) + 1
    assert comparison.divergence is Divergence.DRIFT
    assert comparison.leaves_at in (first_outside, first_outside + 1)
    assert "accumulated rounding" in comparison.meaning


def test_one_that_becomes_nan_is_named_and_nan_in_both_is_equal_and_told() -> None:
    nan = BASE.copy()
    nan[40:] = math.nan
    comparison = compare(BASE, nan)
    assert (comparison.divergence, comparison.leaves_at) == (Divergence.NON_FINITE, 41)
    assert comparison.sentence.startswith("B becomes NaN at step 41, A does not")
    assert compare(nan, BASE).sentence.startswith("A becomes NaN")
    comparison = compare(nan, nan)
    assert comparison.verdict is Verdict.SAME
    assert "both are NaN at 20 steps, which counts as equal" in comparison.notes
    assert compare([1, math.inf], [1, math.inf]).verdict is Verdict.SAME
    assert compare([1, math.inf], [1, -math.inf]).verdict is Verdict.DIFFERENT


def test_what_differs_for_some_steps_only_is_said() -> None:
    other = BASE.copy()
    other[20:22] *= 1.1
    comparison = compare(BASE, other)
    assert (comparison.divergence, comparison.outside) == (Divergence.PASSING, 2)


def test_small_sudden_differences_are_what_rounding_can_do() -> None:
    """Rounding that tips a ReLU makes a difference from one step to the next, far below the tolerance."""
    tipped = BASE * (1 + np.where(np.arange(60) < 20, 0, 2e-5 * 1.3 ** np.maximum(np.arange(60) - 20, 0)))
    comparison = compare(BASE, tipped)
    assert (comparison.divergence, comparison.departs_at) == (Divergence.DRIFT, 21)
    assert comparison.leaves_at is not None
    assert comparison.leaves_at > 30
    crossing = BASE * (1 + np.where(np.arange(60) == 30, 1.1e-3, 9e-4))
    assert compare(BASE, crossing).divergence is Divergence.DRIFT


def test_logs_of_different_length_are_compared_where_both_have_steps() -> None:
    comparison = compare(np.resize(BASE, 313), np.resize(BASE, 247))
    assert (comparison.verdict, len(comparison.pairs), comparison.pairs.only_a) == (Verdict.SAME, 247, 66)
    assert any("A has 313 steps (1 to 313), B 247 (1 to 247)" in note for note in comparison.notes)
    comparison = compare(BASE, curve(BASE[9::10], first=10, every=10))
    assert (comparison.verdict, comparison.pairs.steps.tolist()) == (Verdict.SAME, [10, 20, 30, 40, 50, 60])
    assert any("A has a loss every step, B every 10 steps" in note for note in comparison.notes)


def test_nothing_in_common_is_not_comparable() -> None:
    comparison = compare(BASE, curve(BASE, first=100))
    assert (comparison.verdict, comparison.verdict.exit_code) == (Verdict.NOT_COMPARABLE, 2)
    assert "A has steps 60 from 1 to 60, B 60 from 100 to 159" in comparison.sentence
    assert compare(BASE, curve(BASE, unit=StepUnit.EPOCH)).verdict is Verdict.NOT_COMPARABLE
    json.dumps(comparison.as_data())


def test_forward_and_backward_are_not_told_apart_where_the_first_steps_were_not_logged() -> None:
    later = compare(curve(BASE[9:], first=10), curve(BASE[9:] + 0.2, first=10))
    assert later.divergence is Divergence.FIRST_LOGGED
    assert "cannot be told apart" in later.meaning
    second = compare(curve(BASE[9:], first=10), curve([*BASE[9:10], *BASE[10:] * 1.1], first=10))
    assert second.divergence is Divergence.JUMP
    sparse = compare(curve(BASE[::10], every=10), curve([BASE[0], *BASE[10::10] * 1.1], every=10))
    assert sparse.divergence is Divergence.SECOND_STEP
    assert "was not logged" in sparse.meaning
    epochs = compare(curve(BASE, unit=StepUnit.EPOCH), curve(BASE + 0.2, unit=StepUnit.EPOCH))
    assert "holds many updates" in epochs.meaning
    counted = compare(curve(BASE, unit=StepUnit.ENTRY), curve(BASE + 0.2, unit=StepUnit.ENTRY))
    assert "The logs name no steps" in counted.meaning


def test_differences_below_the_printed_digits_are_not_counted(losses: list[float]) -> None:
    printed = [curve(np.round(values, 2), rounding=0.005) for values in (losses, train(weight_decay=0.001))]
    comparison = compare(*printed)
    assert (comparison.divergence, comparison.pairs.equal[:3].all()) == (Divergence.DRIFT, True)
    assert "cannot be told" in comparison.meaning
    assert compare(curve(BASE, rounding=0.005), curve(BASE + 0.01, rounding=0.005)).verdict is Verdict.SAME


def test_a_difference_within_the_tolerance_that_rounding_does_not_explain_is_noted(losses: list[float]) -> None:
    for factor, words in ((np.full(60, 1 + 1e-4), "forward pass"), (1 + 1e-4 * (np.arange(60) > 0), "from step 2 on")):
        comparison = compare(BASE, BASE * factor)
        assert comparison.verdict is Verdict.SAME
        assert any(words in note for note in comparison.notes)
    assert not compare(losses, train(split=2)).notes


def test_repeated_runs_are_the_tolerance(losses: list[float]) -> None:
    repeats = [curve(train(split=split)) for split in (2, 4)]
    assert compare(losses, train(split=8), noise=repeats).verdict is Verdict.SAME
    changed = compare(losses, train(weight_decay=0.0002), noise=repeats)
    assert changed.verdict is Verdict.DIFFERENT
    assert compare(losses, train(weight_decay=0.0002)).divergence in (Divergence.NONE, Divergence.DRIFT)
    exact = compare(losses, [*losses[:20], *np.array(losses[20:]) * (1 + 1e-5)], noise=[curve(losses)])
    assert (exact.divergence, exact.departs_at) == (Divergence.JUMP, 21)
    assert any("repeats itself exactly" in note for note in exact.notes)
    short = compare(losses, losses, noise=[curve(losses[:10])])
    assert len(short.pairs) == 10
    assert any("end at step 10" in note for note in short.notes)
    assert compare(losses, losses, noise=[curve(losses, first=1000)]).verdict is Verdict.NOT_COMPARABLE


def test_a_factor_and_a_shift_are_noticed(losses: list[float]) -> None:
    jumped = BASE * np.where(np.arange(60) < 20, 1, 4)
    assert any("from step 21 on B is about 4.00 times A" in note for note in compare(BASE, jumped).notes)
    assert any("those of A 1 step later" in note for note in compare(losses, losses[1:]).notes)
    counted_from_0 = compare(losses, curve(losses, first=0))
    assert counted_from_0.verdict is Verdict.SAME
    assert "A counts from 1, B from 0; the first of both were paired" in counted_from_0.notes


@pytest.mark.parametrize(
    ("factor", "words", "cause"),
    [
        (8, "B is 8.00 × A from the first step on", "accumulated micro-batches, if it is 8"),
        (1 / 8, "A is 8.00 × B from the first step on", "accumulated micro-batches, if it is 8"),
        (1.37, "B is 1.37 × A from the first step on", "Another reduction"),
    ],
)
def test_a_constant_factor_is_the_verdict_also_where_the_trainings_part_later(
    factor: float, words: str, cause: str
) -> None:
    comparison = compare(BASE, BASE * factor)
    assert (comparison.divergence, comparison.leaves_at) == (Divergence.FACTOR, 1)
    assert words in comparison.sentence
    assert cause in comparison.meaning
    assert "nothing but the factor differs" in comparison.notes
    later = compare(BASE, BASE * factor * (1 + np.where(np.arange(60) < 30, 0, 0.3 * np.sin(np.arange(60)))))
    assert (later.divergence, later.verdict) == (Divergence.FACTOR, Verdict.DIFFERENT)
    assert any(note.startswith("up to step 3") for note in later.notes)


def test_two_trainings_that_differ_are_no_factor_apart(losses: list[float]) -> None:
    for other in (train(initial=0.3), train(order=1), [value + 0.4 for value in losses]):
        assert compare(losses, other).divergence is Divergence.FIRST_STEP


def with_epochs(values: Any, epochs: Any, unit: StepUnit = StepUnit.ENTRY) -> Curve:
    return dataclasses.replace(curve(values, unit=unit), epochs=np.asarray(epochs, np.float64))


EPOCHS = np.round(np.arange(1, 61) / 40, 4)


def test_entries_of_another_interval_are_paired_by_their_epochs() -> None:
    every, tenth = with_epochs(BASE, EPOCHS), with_epochs(BASE[9::10], EPOCHS[9::10])
    for a, b in ((every, tenth), (tenth, every), (with_epochs(BASE, EPOCHS, StepUnit.STEP), tenth)):
        comparison = compare(a, b)
        assert (comparison.verdict, len(comparison.pairs), comparison.relative.max()) == (Verdict.SAME, 6, 0)
    changed = compare(every, with_epochs(BASE[9::10] * [1, 1, 1, 1.1, 1.1, 1.1], EPOCHS[9::10]))
    assert (changed.divergence, changed.leaves_at) == (Divergence.JUMP, 40)
    assert "was not logged" in changed.meaning
    # Epochs with one digit are of several entries, and the values agree with no interval.
    coarse = compare(with_epochs(BASE, EPOCHS.round(1)), with_epochs(BASE[9::10] + 0.3, EPOCHS[9::10].round(1)))
    assert coarse.verdict is Verdict.NOT_COMPARABLE


def test_means_over_a_longer_interval_are_compared_with_means() -> None:
    means = BASE.reshape(-1, 10).mean(1)
    for a, b in (
        (curve(BASE), curve(means, first=10, every=10)),
        (with_epochs(BASE, EPOCHS), with_epochs(means, EPOCHS[9::10])),
        (curve(BASE, unit=StepUnit.ENTRY), curve(means, unit=StepUnit.ENTRY)),
    ):
        comparison = compare(a, b)
        assert (comparison.verdict, len(comparison.pairs)) == (Verdict.SAME, 6)
        assert any("mean" in note for note in comparison.notes)
    means[3:] *= 1.2
    assert compare(curve(BASE), curve(means, first=10, every=10)).leaves_at == 40


def test_entries_without_steps_are_not_blamed_if_they_may_be_of_other_steps() -> None:
    every = curve(BASE, unit=StepUnit.ENTRY)
    assert compare(every, curve(BASE[9::10], unit=StepUnit.ENTRY)).verdict is Verdict.SAME
    unknown = compare(every, curve(BASE[9::10] * 1.3, unit=StepUnit.ENTRY))
    assert (unknown.verdict, unknown.leaves_at) == (Verdict.NOT_COMPARABLE, None)
    assert "60 and 6 entries" in unknown.sentence


def test_steps_that_are_counted_from_0_and_logged_every_tenth_are_paired() -> None:
    comparison = compare(curve(BASE[9::10], first=9, every=10), curve(BASE[9::10], first=10, every=10))
    assert (comparison.verdict, len(comparison.pairs)) == (Verdict.SAME, 6)
    assert any("one counts from 0" in note for note in comparison.notes)


@pytest.mark.parametrize("decimals", [2, 3, 4])
def test_only_what_was_seen_to_grow_drifts_slowly(decimals: int) -> None:
    half_unit = 0.5 * 10.0**-decimals

    def printed(values: Any) -> Curve:
        return curve(np.round(values, decimals), rounding=half_unit)

    jumped = compare(printed(BASE), printed(BASE * np.where(np.arange(60) < 30, 1, 1.05)))
    assert "slowly" not in jumped.sentence
    assert "step 31" in jumped.sentence
    assert jumped.divergence is (Divergence.DRIFT if decimals == 2 else Divergence.JUMP)
    if decimals == 2:
        assert "cannot be told" in jumped.meaning
    noisy = BASE * (1 + 3e-4 * np.random.default_rng(0).standard_normal(60))
    assert "slowly" not in compare(printed(BASE), printed(noisy * np.where(np.arange(60) < 30, 1, 1.05))).sentence
    drift = compare(BASE, BASE * (1 + 1e-7 * 1.2 ** np.arange(60)))
    assert "slowly" in drift.sentence


def with_validation(values: Any, of_validation: Any, name: str = "val_loss") -> Curve:
    companion = dataclasses.replace(curve(of_validation), name=name)
    return dataclasses.replace(curve(values), companions=(companion,), others=(name,))


def test_the_same_loss_is_not_the_same_if_that_of_the_evaluation_differs() -> None:
    a, b = with_validation(BASE, BASE + 0.1), with_validation(BASE, BASE + 0.5, "eval/loss")
    comparison = compare(a, b)
    assert (comparison.verdict, comparison.name) == (Verdict.DIFFERENT, "val_loss")
    assert comparison.sentence.startswith("val_loss differs, though loss is the same: Different from the first step on")
    same = compare(a, a)
    assert (same.verdict, "the same holds for val_loss" in same.notes) == (Verdict.SAME, True)
    assert "only A has val_loss; not compared" in compare(a, BASE).notes
    # What the user has chosen stands alone.
    assert compare(a, dataclasses.replace(b, companions=())).verdict is Verdict.SAME


def test_a_series_is_compared_with_the_one_of_its_name() -> None:
    a, b = with_validation(BASE, BASE * 0.7, "ce_loss"), dataclasses.replace(curve(BASE * 0.7), name="loss_ce")
    assert (compare(a, b).verdict, compare(a, b).name) == (Verdict.SAME, "ce_loss")
    other = compare(BASE, b)
    assert "'loss' of A was compared with 'loss_ce' of B; --column chooses others" in other.notes


def test_nan_in_the_first_step_and_in_all_is_said(losses: list[float]) -> None:
    nan = np.full(60, math.nan)
    assert compare(nan, nan).sentence == "Same: both are NaN at all 60 steps compared."
    assert compare(BASE, nan).sentence == "B is NaN at step 1, the first compared; A is not."
    later = BASE * 1.1 + np.where(np.arange(60) < 30, 0.1, math.nan)
    assert "B becomes NaN at step 31, the other does not" in compare(BASE, later).notes
    assert not any("becomes" in note for note in compare(losses, losses).notes)


def test_tolerances_are_those_that_were_asked_for() -> None:
    assert compare(BASE, BASE * 1.05, rtol=0.1).verdict is Verdict.SAME
    assert compare(BASE, BASE + 0.5, rtol=0, atol=0.6).verdict is Verdict.SAME
    assert compare(BASE, BASE * (1 + 1e-6), rtol=0).verdict is Verdict.DIFFERENT
    for name in ("rtol", "atol"):
        with pytest.raises(InputError, match=name):
            compare(BASE, BASE, **{name: -1.0})


def test_relative_differences_are_written_in_the_unit_of_their_size() -> None:
    written = [relative_text(value) for value in (0.0, 1.2e-7, 4.2e-4, 0.05, 0.372, math.inf)]
    assert written == ["0", "1.2e-07", "0.42 ‰", "50 ‰", "37.2 %", "∞"]


VALUES = st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=12)
CURVES = st.builds(
    curve, VALUES, st.integers(-1, 3), st.integers(1, 3), st.sampled_from([0.0, 1e-4]), st.sampled_from(StepUnit)
)


@settings(max_examples=settings().max_examples // 2)
@given(CURVES, CURVES, st.lists(CURVES, max_size=2))
def test_any_two_curves_have_a_verdict(a: Curve, b: Curve, noise: list[Curve]) -> None:
    comparison = compare_losses(a, b, noise=noise)
    assert comparison.sentence
    assert (comparison.leaves_at is None) == (comparison.verdict is not Verdict.DIFFERENT)
    json.dumps(comparison.as_data(most_points=3))


@given(CURVES)
def test_a_curve_is_the_same_as_itself(a: Curve) -> None:
    assert compare_losses(a, a).verdict is (Verdict.SAME if len(a) else Verdict.NOT_COMPARABLE)
