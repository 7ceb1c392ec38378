"""Sink mode, in which a device runs many steps at once, is refused; where each step is a call of its own it is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.agents.mindspore.mindspore_stage import Run, python_of

SCRIPT = Path(__file__).with_name("sinking_training.py")
NOWHERE = ("--host", "127.0.0.1", "--port", "9")


@pytest.mark.parametrize(
    ("version", "way", "what", "instead"),
    [
        ("2.10", "model", "dataset_sink_mode=True,  #", "dataset_sink_mode=False"),
        ("2.7", "function", "ms.data_sink(", "a loop that calls the function with each batch"),
    ],
)
def test_where_steps_are_sunk_debugging_ends_with_the_line_to_change_and_the_training_goes_on(
    tmp_path: Path, version: str, way: str, what: str, instead: str
) -> None:
    python_of(version)
    # It would wait for a server with its first graph.
    variables = {"TENSIGHT_CONNECT_WITHIN_S": "0.2"}
    with Run(version, "--way", way, folder=tmp_path, options=NOWHERE, variables=variables, script=SCRIPT) as run:
        run.until("now many steps")
        assert "tensight" not in (tmp_path / "training.stderr").read_text()
        run.go_on()
        outcome = run.outcome()
    assert outcome.code == 0, outcome.errors
    ways = ("PyNative mode", "evaluation", "one batch")
    steps = [f"step {number}" for number in range(1, 5)]
    expected = [
        *(f"{one} has no device: True" for one in ways),
        "now many steps",
        "training has no device: True",
        *steps,
    ]
    assert outcome.output == expected
    line = next(number for number, text in enumerate(SCRIPT.read_text().splitlines(), start=1) if what in text)
    (notice,) = outcome.notices
    assert notice.startswith(f"tensight: {SCRIPT}:{line}: ")
    assert f"because the device may run 4 steps at once; write {instead} there" in notice
