"""Facts take a small part of a training's time: steps in between have no hooks, and their absence misleads no rule."""

from __future__ import annotations

import math
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.modules import module as module_hooks

from tensight.agents.core.diagnosing import LIVE, Diagnosing, alone
from tensight.agents.core.settings import AgentSettings
from tensight.agents.facts.samples import distinct
from tensight.agents.torch.debugger import Debugger
from tests.diagnosis.diagnosed import Diagnosed, network

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

    from tensight.agents.torch.facts.source import FactSource

LONG_S = 1e6
"""More than these tests take."""


def live() -> Diagnosing:
    return Diagnosing(0, (), lambda _: None, lambda: True, LIVE)


def test_the_first_step_is_read_and_what_takes_long_is_not_read_again() -> None:
    diagnosing = live()
    assert (diagnosing.reads, diagnosing.notes) == (True, True)
    diagnosing.step_done(1, LONG_S)
    # What noting a step takes is unknown until one is noted.
    assert (diagnosing.reads, diagnosing.notes) == (False, True)
    diagnosing.step_done(2, LONG_S)
    assert (diagnosing.reads, diagnosing.notes) == (False, False)
    diagnosing.step_done(3)
    assert (diagnosing.reads, diagnosing.notes) == (False, False)


def test_steps_are_noted_where_only_reading_takes_long() -> None:
    diagnosing = live()
    for step in range(1, 5):
        diagnosing.step_done(step, LONG_S if diagnosing.reads else 0.0)
    assert (diagnosing.reads, diagnosing.notes) == (False, False)


def test_a_search_takes_its_time_from_steps_that_are_read() -> None:
    diagnosing = live()
    diagnosing.step_done(1)
    diagnosing.searched(LONG_S)
    assert not diagnosing.searches()
    diagnosing.step_done(2, LONG_S)
    assert not diagnosing.reads


def test_ranks_that_watch_themselves_read_the_same_steps_and_ever_fewer() -> None:
    read: dict[int, list[int]] = {}
    for rank in (0, 5):
        diagnosing = Diagnosing(rank, (), lambda _: None, lambda: True, alone(rank))
        read[rank] = []
        for step in range(1, 5000):
            if diagnosing.reads:
                read[rank].append(step)
            assert diagnosing.notes == (rank == 0 or diagnosing.reads)
            diagnosing.step_done(step)
    assert read[0] == read[5]
    assert read[0][:32] == [*range(1, 32), 32]
    assert [step for step in read[0] if step >= 2048 and step < 4096] == [
        start + at for start in (2048, 2560, 3072, 3584) for at in range(4)
    ]
    due = sum(map(alone(0).is_due, range(1, 1_000_001)))
    assert due < 300


def test_ranks_that_watch_themselves_stop_reading_where_it_takes_long() -> None:
    diagnosing = Diagnosing(0, (), lambda _: None, lambda: True, alone(0))
    diagnosing.step_done(1, LONG_S)
    assert (diagnosing.reads, diagnosing.notes) == (False, False)


class _Chosen(Diagnosing):
    """Reads everything of some steps, notes some, and of the others nothing."""

    def __init__(self, folder: Path, kind_of: Callable[[int], str]) -> None:
        self._kind_of = kind_of
        super().__init__(0, [folder], lambda _: None, lambda: False, LIVE)

    def decide(self) -> None:
        kind = self._kind_of(self._steps + 1)
        self.reads, self.notes = kind == "read", kind != "off"


class _Debugger(Debugger):
    def __init__(self, folder: Path, kind_of: Callable[[int], str]) -> None:
        super().__init__((), AgentSettings(diagnose=str(folder), quiet=True))
        self._diagnosing = _Chosen(folder, kind_of)

    def _new_facts(self, _: Diagnosing) -> FactSource:
        return super()._new_facts(self._diagnosing)


class Sparse(Diagnosed):
    """A training of some of whose steps nothing is noted."""

    def __init__(self, folder: Path, kind_of: Callable[[int], str]) -> None:
        super().__init__(folder)
        self._debugger = _Debugger(folder, kind_of)


def in_runs(step: int) -> str:
    """Four steps in a row are read, one is noted, and of twelve nothing is."""
    return "read" if step % 17 in (1, 2, 3, 4) else "noted" if step % 17 == 5 else "off"


class _Counting(nn.Module):
    """A model that notes how many hooks PyTorch calls for a module in it."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = network()
        self.hooks: list[int] = []

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        self.hooks.append(len(module_hooks._global_forward_pre_hooks) + len(module_hooks._global_forward_hooks))
        return self.inner(inputs)


def test_steps_of_which_nothing_is_noted_have_no_hooks_and_no_facts(tmp_path: Path) -> None:
    model = _Counting()
    with Sparse(tmp_path, in_runs) as training:
        training.train(model, steps=40)
    noted = [step for step in range(1, 41) if in_runs(step) != "off"]
    assert [step for step, hooks in enumerate(model.hooks, 1) if hooks > 0] == noted
    for subject in ("steps", "losses", "calls", "rates"):
        assert training.facts[subject].steps.tolist() == noted
    read = [step for step in noted if in_runs(step) == "read"]
    assert training.facts["parameters"].steps.tolist() == read


@pytest.mark.parametrize(
    "values",
    [
        np.array([[3, 1], [1, 2]]),
        np.array([math.nan, 2.0, math.nan, -0.0, 0.0, math.inf]),
        np.array([True, False, True]),
        np.zeros(0, np.int64),
        np.array(5),
    ],
    ids=["rows", "nan", "flags", "none", "scalar"],
)
def test_distinct_values_are_counted_as_numpy_counts_them(values: NDArray[Any]) -> None:
    expected, counts = np.unique(values, return_counts=True)
    found, times = distinct(values)
    assert np.array_equal(found, expected, equal_nan=found.dtype.kind == "f")
    assert times.tolist() == counts.tolist()


def test_reading_facts_does_not_import_masked_arrays() -> None:
    code = (
        "import sys, numpy as np; from tensight.agents.facts.loss_functions import target_facts;"
        " target_facts('cross_entropy', (4,), np.array([0, 1, 1, 2]), []); print('numpy.ma' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
