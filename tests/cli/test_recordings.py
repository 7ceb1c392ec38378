"""A recording is a run of its framework, on the command line: what it is, what is wrong in it, since when."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tensight.agents.core.reader import Framework
from tensight.dumps import open_dump
from tensight.errors import InputError
from tests.agents.numpy_training import FORWARD, WEIGHTS
from tests.agents.test_recording_of_steps import RecordedTraining

Run = Callable[..., Any]


def recorded(folder: Path, nan_at: int) -> Path:
    """Steps 6 to 8 of a training."""
    training = RecordedTraining(folder, "ring:3", framework=Framework("torch", "2.13.0", "CPU"), nan_at=nan_at)
    training.train(8)
    training.recorder.close()
    return folder


@pytest.fixture(scope="module")
def ring(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Steps 6 to 8 of a training in which NaN began at step 2."""
    return recorded(tmp_path_factory.mktemp("recorded") / "run", nan_at=2)


def test_info_names_the_framework_and_that_it_is_a_recording(tensight: Run, ring: Path) -> None:
    outcome = tensight("info", ring)
    assert (outcome.code, outcome.err) == (0, "")
    assert "PyTorch 2.13.0 on CPU, recording of inputs and outputs" in outcome.out
    assert "MindSpore" not in outcome.out
    assert json.loads(tensight("info", ring, "--json").out)["framework"] == "torch"


def test_check_sets_the_watchpoints_of_a_running_training(tensight: Run, ring: Path) -> None:
    outcome = tensight("check", ring, "--json")
    conditions = [watchpoint["check"].partition("(")[0] for watchpoint in json.loads(outcome.out)["watchpoints"]]
    assert outcome.code == 1
    assert {"unintended_overflow", "weight_initialization", "weight_growth"} <= set(conditions)
    assert not {"tensor_all_zero", "gradient_vanishing"} & set(conditions)


@pytest.mark.parametrize(("nan_at", "certainty"), [(2, "was"), (6, "may have been")])
def test_origin_in_a_ring_says_that_it_was_or_may_have_been_there_before_the_first_recorded_step(
    tensight: Run, tmp_path: Path, nan_at: int, certainty: str
) -> None:
    ring = recorded(tmp_path / "run", nan_at)
    outcome = tensight("origin", ring)
    assert f"step 6 is the first observed one, so it {certainty} there before" in outcome.out
    assert "began at" not in outcome.out
    assert "iteration" not in outcome.out
    (origin,) = json.loads(tensight("origin", ring, "--kind", "nan", "--json").out)["origins"]
    assert (origin["step"], origin["unseen"], origin["is_older"]) == (6, [1, 5], nan_at == 2)
    assert origin["operator"] == (WEIGHTS[0] if nan_at == 2 else FORWARD[2])


def test_origin_in_the_first_step_of_all_has_nothing_before_it(tensight: Run, tmp_path: Path) -> None:
    training = RecordedTraining(tmp_path / "run", "ring:3", nan_at=1)
    training.train(2)
    training.recorder.close()
    assert "NaN began at step 1 in" in tensight("origin", tmp_path / "run").out


def test_a_part_of_a_weights_name_shows_the_weight_and_not_a_state_of_its_optimizer(tensight: Run, ring: Path) -> None:
    shown = json.loads(tensight("show", ring, "c1.weight@7", "--json").out)
    assert shown["address"].endswith("/fc1.weight:0@7")
    with pytest.raises(InputError, match=r"similar: fc[12]\.weight"):
        open_dump(ring).find("fc1.wieght")
    dump = open_dump(ring)
    assert dump.find("fc1.weight", rank=0).step == 8
    assert str(dump.find(shown["address"]).address) == shown["address"]
