"""A run that is compared with a trace while it goes on: the first operator that differs is named, and the run stops."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import flips
import pytest

from tensight.agents import notices

if TYPE_CHECKING:
    from pathlib import Path

CHOSEN, LAYERS = 3, 2


def test_one_flipped_bit_is_named_and_the_same_run_again_has_no_difference(tmp_path: Path, said: list[str]) -> None:
    trace = tmp_path / "trace"
    flips.train(layers=LAYERS, trace=str(trace))
    flips.train(layers=LAYERS, against=str(trace))
    assert [line for line in said if "no difference from the trace in 2 steps" in line]
    assert not flips.named_in(said)
    operators = flips.operators_of(trace, tmp_path / "cache", LAYERS)
    assert len(operators) > 100
    chosen = random.Random(15).sample(sorted(operators), CHOSEN)  # noqa: S311 - the same ones every time
    for target in chosen:
        said.clear()
        notices._said.clear()
        planter = flips.Planter(target)
        with pytest.raises(SystemExit) as ended:
            flips.train(planter, LAYERS, against=str(trace))
        assert planter.has_flipped
        assert ended.value.code == 1
        assert flips.named_in(said) == f"{target.step + 1} {operators[target]}", (target, said)
        # The training has ended before it went on to another step.
        assert planter.step == target.step
    said.clear()
    flips.train(flips.Planter(chosen[0]), LAYERS, against=str(trace), keep_going=True)
    assert flips.named_in(said)


def test_another_seed_another_batch_and_another_capture_are_told_apart(tmp_path: Path, said: list[str]) -> None:
    import test_torch_traces

    trace = str(tmp_path / "trace")
    test_torch_traces.train(trace=trace)
    test_torch_traces.train(against=trace, capture="ops")
    assert [line for line in said if "nothing is compared" in line and "--capture modules" in line]
    test_torch_traces.train(against=trace, steps=2)
    assert [line for line in said if "no difference from the trace in 2 steps" in line and "1 more steps" in line]
