"""Every sampler of the configuration, on a real database."""

from __future__ import annotations

from pathlib import Path

import pytest

from tensight.search.configuration import parse_configuration
from tensight.search.studies import Outcome, Study

SPACE = """
command: train.py
summary_base_dir: runs
tuner: {{name: {name}, args: {{seed: 1, startup_trials: 2}}}}
target: {{name: loss}}
parameters:
  rate: {{bounds: [1e-3, 1.0], type: float, log: true}}
  layers: {{bounds: [1, 4], type: int}}
  kind: {{choice: [a, b]}}
  more: {{choice: [1, 2], when: {{kind: b}}}}
"""


@pytest.mark.long
@pytest.mark.parametrize("name", ["gp", "tpe", "cmaes", "random"])
def test_a_sampler_suggests_within_the_space(name: str, tmp_path: Path) -> None:
    study = Study(parse_configuration(SPACE.format(name=name), "search.yaml"), f"sqlite:///{tmp_path}/search.db")
    seen = []
    while suggestion := study.ask(6):
        values = suggestion.values
        study.tell(suggestion, Outcome((values["rate"] * values["layers"],)))  # type: ignore[operator]
        seen.append(values)

    assert len(seen) == 6
    for values in seen:
        assert 1e-3 <= values["rate"] < 1.0  # type: ignore[operator]
        assert values["layers"] in (1, 2, 3)
        assert set(values) == (
            {"rate", "layers", "kind", "more"} if values["kind"] == "b" else {"rate", "layers", "kind"}
        )


@pytest.mark.long
def test_a_grid_is_every_combination_once(tmp_path: Path) -> None:
    text = SPACE.format(name="grid").replace("bounds: [1e-3, 1.0], type: float, log: true", "choice: [0.1, 0.2]")
    study = Study(parse_configuration(text, "search.yaml"), f"sqlite:///{tmp_path}/search.db")
    study.fill_grid()
    study.fill_grid()
    seen = []
    while suggestion := study.ask(1000):
        study.tell(suggestion, Outcome((1.0,)))
        seen.append(tuple(suggestion.values.items()))

    assert len(seen) == len(set(seen)) == 2 * 3 * (1 + 2)
