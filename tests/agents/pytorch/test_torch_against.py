"""A run that is compared with a trace while it goes on: the first operator that differs is named, and the run stops."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

import tensight
from tensight.agents.core import notices
from tests.agents.pytorch import flips, test_torch_traces

if TYPE_CHECKING:
    from pathlib import Path

    from tests.server.running import RunningServer

CHOSEN, LAYERS = 3, 2
PATIENCE_S = 60.0


@pytest.mark.long
def test_one_flipped_bit_is_named_and_the_same_run_again_has_no_difference(tmp_path: Path, said: list[str]) -> None:
    trace = str(tmp_path / "trace")
    whole = flips.Faults()
    flips.train(LAYERS, whole, trace=trace)
    flips.train(LAYERS, against=trace)
    assert [line for line in said if "no difference from the trace in 2 steps" in line]
    assert len(whole.operators) > 800
    chosen = random.Random(15).sample(whole.operators, CHOSEN)  # noqa: S311 - the same ones every time
    for target in chosen:
        said.clear()
        notices._logged.clear()
        faults = flips.Faults(target)
        with pytest.raises(SystemExit) as ended:
            flips.train(LAYERS, faults, against=trace)
        assert faults.has_flipped
        assert ended.value.code == 1
        assert flips.named_in(said) == target, said
        # It has ended there, and not at the end of the step.
        assert faults.operators[-1] == target
    said.clear()
    kept = flips.Faults(chosen[0])
    flips.train(LAYERS, kept, against=trace, keep_going=True)
    assert flips.named_in(said) == chosen[0]
    assert kept.step == flips.STEPS - 1


def test_with_a_server_the_training_waits_at_the_operator_with_its_values(
    tmp_path: Path, torch_server: RunningServer
) -> None:
    trace = str(tmp_path / "trace")
    whole = flips.Faults()
    flips.train(1, whole, trace=trace)
    target = next(one for one in whole.operators if one.step == 1 and "gelu" in one.name)
    port = int(torch_server.debugger.rpartition(":")[2])

    def look() -> tuple[int, str, str]:
        with tensight.connect(torch_server.url) as server:
            session = server.wait_for_session(PATIENCE_S, name="compared")
            record = session.wait(PATIENCE_S)
            found = record.step, record.node, record.message + "".join(rank.message for rank in record.ranks)
            session.continue_()
            return found

    with ThreadPoolExecutor(1) as person:
        looking = person.submit(look)
        flips.train(1, flips.Faults(target), against=trace, port=port, job="compared", connect_within_s=PATIENCE_S)
        step, node, notice = looking.result(PATIENCE_S)
    assert (step, node) == (target.step + 1, target.name)
    assert "differs from the trace in step 2" in notice


def test_another_capture_and_another_length_are_told(tmp_path: Path, said: list[str]) -> None:
    trace = str(tmp_path / "trace")
    test_torch_traces.train(trace=trace)
    test_torch_traces.train(against=trace, capture="ops")
    assert [line for line in said if "nothing is compared" in line and "--capture modules" in line]
    test_torch_traces.train(against=trace, steps=2)
    assert [line for line in said if "no difference from the trace in 2 steps" in line and "1 more steps" in line]
